"""Scalar functions that generated Triton kernels call: each exact on the GPU (libdevice) and in Triton's interpreter
(numpy).

A kernel says ``lm.tanh(x)``. On a device these are ``triton.jit`` functions over libdevice; with
``TRITON_INTERPRET=1`` a kernel is plain Python over numpy arrays, where
libdevice does not exist, so the same names work on the arrays. The combine functions of reductions are ordinary
Triton code in both.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton import knobs

INTERPRET = knobs.runtime.interpret

# ------------------------------------------------------------------------------------------------ combine functions


@triton.jit
def maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def maximum_int(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def minimum_int(a, b):
    return tl.where(a < b, a, b)


if INTERPRET:  # whose products of bfloat16 would multiply the bits

    @triton.jit
    def dot(a, b, acc):
        return tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")

    @triton.jit
    def dot_in_parts(a, b, acc):
        return tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")

else:

    @triton.jit
    def dot(a, b, acc):
        return tl.dot(a, b, acc, input_precision="ieee")

    @triton.jit
    def dot_in_parts(a, b, acc):
        return tl.dot(a, b, acc, input_precision="tf32x3")


@triton.jit
def multiply(a, b):
    return a * b


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def either(a, b):
    return a | b


@triton.jit
def both(a, b):
    return a & b


@triton.jit
def exclusive_or(a, b):
    return a ^ b


@triton.jit
def argmax(va, ia, vb, ib):
    """The larger value with its index; NaN beats numbers, the smaller index wins among equals."""
    nan_a, nan_b = va != va, vb != vb
    a_first = ia < ib
    take_a = tl.where(
        nan_a | nan_b, nan_a & ((nan_a & nan_b & a_first) | (nan_b == 0)), (va > vb) | ((va == vb) & a_first)
    )
    return tl.where(take_a, va, vb), tl.where(take_a, ia, ib)


@triton.jit
def argmin(va, ia, vb, ib):
    """The smaller value with its index; NaN beats numbers, the smaller index wins among equals."""
    nan_a, nan_b = va != va, vb != vb
    a_first = ia < ib
    take_a = tl.where(
        nan_a | nan_b, nan_a & ((nan_a & nan_b & a_first) | (nan_b == 0)), (va < vb) | ((va == vb) & a_first)
    )
    return tl.where(take_a, va, vb), tl.where(take_a, ia, ib)


@triton.jit
def cummax(va, ia, vb, ib):
    """Running maximum as eager has it: a later equal value takes over, NaN stays."""
    take_b = (vb >= va) | (vb != vb)
    take_b = take_b & ((va == va) | (vb != vb))
    return tl.where(take_b, vb, va), tl.where(take_b, ib, ia)


@triton.jit
def cummin(va, ia, vb, ib):
    """Running minimum as eager has it: a later equal value takes over, NaN stays."""
    take_b = (vb <= va) | (vb != vb)
    take_b = take_b & ((va == va) | (vb != vb))
    return tl.where(take_b, vb, va), tl.where(take_b, ib, ia)


@triton.jit
def welford(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    """Chan et al., 1979: mean, sum of squared deviations and count of two parts together."""
    n = n_a + n_b
    delta = mean_b - mean_a
    share = tl.where(n == 0.0, 0.0, n_b / n)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n


@triton.jit
def log_add_exp(a, b):
    """log(exp(a) + exp(b)) without overflow; infinities as eager."""
    big = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    small = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    return tl.where((big == small) & (tl.abs(big) == float("inf")), big, big + tl.log(1.0 + tl.exp(small - big)))


# ------------------------------------------------------------------------------------------------ float8 as bytes


@triton.jit
def to_float8_e4m3fn(x):
    """float32 to the byte of a float8_e4m3fn, rounded to nearest even; beyond 464 NaN."""
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    odd = (size >> 20) & 1
    normal = (size - (120 << 23) + 0x7FFFF + odd) >> 20
    # adding 2^14 leaves multiples of 2^-9 in the last bits of the sum
    small = (size.to(tl.float32, bitcast=True) + 16384.0).to(tl.int32, bitcast=True) - (141 << 23)
    code = tl.where(size < (121 << 23), small, normal)
    code = tl.where(size >= (1087 << 20), 0x7F, code)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def to_float8_e4m3fn_saturated(x):
    """The same, but beyond 448 the largest finite value."""
    byte = to_float8_e4m3fn(x)
    return tl.where(((byte & 0x7F) == 0x7F) & (x == x), byte - 1, byte)


@triton.jit
def from_float8_e4m3fn(byte):
    """The value of such a byte in float32. It is 2^8 times that of the same bits in the middle of a float16."""
    b = byte.to(tl.int32)
    bits = ((b & 0x7F) << 7) | ((b & 0x80) << 8)
    value = bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32) * 256.0
    return tl.where((b & 0x7F) == 0x7F, value * float("nan"), value)


@triton.jit
def to_float8_e5m2(x):
    """float32 to the byte of a float8_e5m2, rounded to nearest even; beyond 61440 infinity."""
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    odd = (size >> 21) & 1
    normal = (size - (112 << 23) + 0xFFFFF + odd) >> 21
    # adding 2^7 leaves multiples of 2^-16 in the last bits of the sum
    small = (size.to(tl.float32, bitcast=True) + 128.0).to(tl.int32, bitcast=True) - (134 << 23)
    code = tl.where(size < (113 << 23), small, normal)
    code = tl.where(size >= (143 << 23), tl.where(size > (255 << 23), 0x7F, 0x7C), code)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def from_float8_e5m2(byte):
    """The value of such a byte in float32: it is the upper half of a float16."""
    return (byte.to(tl.int32) << 8).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


# ------------------------------------------------------------------------------------------------ integer and float
# division


@triton.jit
def floordiv_int(a, b):
    """Quotient rounded towards minus infinity."""
    q = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), q - 1, q)


@triton.jit
def remainder_int(a, b):
    """Remainder with the sign of the divisor."""
    r = a % b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


@triton.jit
def logistic(x):
    # the approximate division (2 ulp) is as good as the exponential inside it
    one = tl.full(x.shape, 1.0, x.dtype)
    return one / (one + exp(-x))


# In kernels whose results are rounded to half precision: the hardware's exponential and division (2 ulp of float32).


@triton.jit
def quick_logistic(x):
    one = tl.full(x.shape, 1.0, x.dtype)
    return one / (one + tl.exp(-x))


@triton.jit
def quick_exp(x):
    return tl.exp(x)


@triton.jit
def quick_div(a, b):
    return a / b


@triton.jit
def reciprocal(x):
    return div(tl.full(x.shape, 1.0, x.dtype), x)


@triton.jit
def sign(x):
    """-1, 0 or 1 in the type of `x`; 0 for NaN."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def floordiv_float(a, b):
    """torch.floor_divide of floats: from the exact remainder, so that the quotient never rounds up over a whole
    number.
    """
    m = fmod(a, b)
    q = div(a - m, b)
    q = tl.where((m != 0) & ((b < 0) != (m < 0)), q - 1.0, q)
    f = tl.floor(q)
    f = tl.where(q - f > 0.5, f + 1.0, f)
    f = tl.where(q == 0, copysign(q * 0.0, div(a, b)), f)
    return tl.where(b == 0, div(a, b), f)


@triton.jit
def remainder_float(a, b):
    """torch.remainder of floats: the sign of the divisor."""
    m = fmod(a, b)
    return tl.where((m != 0) & ((b < 0) != (m < 0)), m + b, m)


# ------------------------------------------------------------------------------------------------ float functions
_UNARY = (
    "exp exp2 expm1 log log2 log10 log1p rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc "
    "floor ceil trunc lgamma erfinv i0 i1 j0 j1"
).split()
_BINARY = "pow atan2 hypot copysign nextafter fmod".split()

if INTERPRET:
    import math

    import numpy as np
    from triton.runtime.interpreter import TensorHandle

    _np_names = {
        "asin": "arcsin",
        "acos": "arccos",
        "atan": "arctan",
        "asinh": "arcsinh",
        "acosh": "arccosh",
        "atanh": "arctanh",
        "atan2": "arctan2",
        "pow": "power",
    }
    _slow = {"erf": math.erf, "erfc": math.erfc, "lgamma": math.lgamma}

    def _numpy_function(name):
        if name == "rsqrt":
            return lambda x: 1 / np.sqrt(x)
        if name in _slow:
            scalar = np.frompyfunc(_slow[name], 1, 1)
            return lambda x: scalar(x.astype(np.float64)).astype(np.float64)
        return getattr(np, _np_names.get(name, name), None)

    def _lift(name):
        fn = _numpy_function(name)

        def call(*args):
            args = (
                [a if isinstance(a, tl.tensor) else None for a in args]
                if all(isinstance(a, tl.tensor) for a in args)
                else args
            )
            first = next(a for a in args if isinstance(a, tl.tensor))
            data = [
                a.handle.data if isinstance(a, tl.tensor) else np.asarray(a, dtype=first.handle.data.dtype)
                for a in args
            ]
            with np.errstate(all="ignore"):
                out = np.asarray(fn(*data)).astype(first.handle.data.dtype)
            ty = first.type if out.shape == first.handle.data.shape else tl.block_type(first.dtype, list(out.shape))
            return tl.tensor(TensorHandle(out, first.dtype.scalar), ty)

        call.__name__ = name
        return call

    for _name in (*_UNARY, *_BINARY):
        if _numpy_function(_name) is not None:
            globals()[_name] = _lift(_name)
    sqrt = _lift("sqrt")
    rint = _lift("rint")

    def div(a, b):
        return a / b

else:
    # each in a function of its own: Triton looks up the device's libdevice where a jit function names it
    from triton.language.extra import libdevice

    @triton.jit
    def div(a, b):
        return tl.div_rn(a, b) if a.dtype == tl.float32 else a / b

    @triton.jit
    def sqrt(x):
        return tl.sqrt_rn(x) if x.dtype == tl.float32 else libdevice.sqrt(x)

    @triton.jit
    def rint(x):
        return libdevice.rint(x)

    @triton.jit
    def exp(x):
        return libdevice.exp(x)

    @triton.jit
    def exp2(x):
        return libdevice.exp2(x)

    @triton.jit
    def expm1(x):
        return libdevice.expm1(x)

    @triton.jit
    def log(x):
        return libdevice.log(x)

    @triton.jit
    def log2(x):
        return libdevice.log2(x)

    @triton.jit
    def log10(x):
        return libdevice.log10(x)

    @triton.jit
    def log1p(x):
        return libdevice.log1p(x)

    @triton.jit
    def rsqrt(x):
        return libdevice.rsqrt(x)

    @triton.jit
    def sin(x):
        return libdevice.sin(x)

    @triton.jit
    def cos(x):
        return libdevice.cos(x)

    @triton.jit
    def tan(x):
        return libdevice.tan(x)

    @triton.jit
    def asin(x):
        return libdevice.asin(x)

    @triton.jit
    def acos(x):
        return libdevice.acos(x)

    @triton.jit
    def atan(x):
        return libdevice.atan(x)

    @triton.jit
    def sinh(x):
        return libdevice.sinh(x)

    @triton.jit
    def cosh(x):
        return libdevice.cosh(x)

    @triton.jit
    def tanh(x):
        return libdevice.tanh(x)

    @triton.jit
    def asinh(x):
        return libdevice.asinh(x)

    @triton.jit
    def acosh(x):
        return libdevice.acosh(x)

    @triton.jit
    def atanh(x):
        return libdevice.atanh(x)

    @triton.jit
    def erf(x):
        return libdevice.erf(x)

    @triton.jit
    def erfc(x):
        return libdevice.erfc(x)

    @triton.jit
    def floor(x):
        return libdevice.floor(x)

    @triton.jit
    def ceil(x):
        return libdevice.ceil(x)

    @triton.jit
    def trunc(x):
        return libdevice.trunc(x)

    @triton.jit
    def lgamma(x):
        return libdevice.lgamma(x)

    @triton.jit
    def erfinv(x):
        return libdevice.erfinv(x)

    @triton.jit
    def i0(x):
        return libdevice.cyl_bessel_i0(x)

    @triton.jit
    def i1(x):
        return libdevice.cyl_bessel_i1(x)

    @triton.jit
    def j0(x):
        return libdevice.j0(x)

    @triton.jit
    def j1(x):
        return libdevice.j1(x)

    @triton.jit
    def pow(a, b):
        return libdevice.pow(a, b)

    @triton.jit
    def atan2(a, b):
        return libdevice.atan2(a, b)

    @triton.jit
    def hypot(a, b):
        return libdevice.hypot(a, b)

    @triton.jit
    def copysign(a, b):
        return libdevice.copysign(a, b)

    @triton.jit
    def nextafter(a, b):
        return libdevice.nextafter(a, b)

    @triton.jit
    def fmod(a, b):
        return libdevice.fmod(a, b)
