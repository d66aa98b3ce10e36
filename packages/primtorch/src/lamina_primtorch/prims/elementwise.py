"""Elementwise prims: tensor operands have one shape and (unless said) one dtype; a Python number may stand for any
operand but not for all.

Half precision (float16, bfloat16): each prim computes in float32 and rounds its result once. A Python number enters
at that precision.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from .. import strides
from ..spec import TensorMeta, define

REAL_OF = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}
COMPLEX_OF = {real: cplx for cplx, real in REAL_OF.items()}


def is_number(x: Any) -> bool:
    return isinstance(x, (int, float, bool, complex, torch.SymInt, torch.SymFloat, torch.SymBool))


def elementwise_meta(operands: tuple, dtype: torch.dtype | None = None) -> TensorMeta:
    """Meta of one result from operands of one shape; raises if shapes or dtypes differ."""
    first = None
    same = True
    for x in operands:
        if hasattr(x, "dtype"):
            if first is None:
                first = x
                shape = tuple(x.shape)
                stride = tuple(x.stride())
            else:
                if x.shape is not first.shape and not strides.equal(tuple(x.shape), shape):
                    raise RuntimeError(f"elementwise prim on shapes {shape} and {tuple(x.shape)}: broadcast first")
                if not strides.equal(tuple(x.stride()), stride):
                    same = False
    if first is None:
        raise TypeError("an elementwise prim needs a tensor operand")
    if not same or not strides.equal(stride, strides.contiguous(shape)):
        stride = strides.elementwise(shape, [(x.shape, x.stride()) for x in operands if hasattr(x, "dtype")])
    return TensorMeta(shape, stride, dtype or first.dtype, first.device)


def _same(*operands: Any, **_: Any) -> TensorMeta:
    return elementwise_meta(operands)


def _bool(*operands: Any) -> TensorMeta:
    return elementwise_meta(operands, torch.bool)


def _real(x: Any) -> TensorMeta:
    return elementwise_meta((x,), REAL_OF.get(x.dtype, x.dtype))


def _lifted(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` of two tensors, made to accept a Python number on either side."""

    def eager(a: Any, b: Any) -> Any:
        if not isinstance(a, torch.Tensor):
            a = torch.full((), a, dtype=b.dtype, device=b.device)
        elif not isinstance(b, torch.Tensor):
            b = torch.full((), b, dtype=a.dtype, device=a.device)
        return fn(a, b)

    return eager


UNARY_SAME: list[tuple[str, Callable[..., Any], str]] = [
    ("neg", torch.neg, "-x; integers wrap around"),
    ("exp", torch.exp, "e**x of floats; exp(-inf) = 0, overflow gives inf"),
    ("exp2", torch.exp2, "2**x of floats"),
    ("expm1", torch.expm1, "exp(x) - 1 without cancellation near 0; keeps -0"),
    ("log", torch.log, "natural logarithm; log(0) = -inf, NaN below 0"),
    ("log2", torch.log2, "binary logarithm"),
    ("log10", torch.log10, "decimal logarithm"),
    ("log1p", torch.log1p, "log(1 + x) without cancellation near 0; log1p(-1) = -inf"),
    ("sqrt", torch.sqrt, "square root; sqrt(-0) = -0, NaN below 0"),
    ("rsqrt", torch.rsqrt, "1 / sqrt(x); inf at 0"),
    ("reciprocal", torch.reciprocal, "1 / x of floats; signed inf at signed 0"),
    ("sin", torch.sin, "sine, NaN at inf"),
    ("cos", torch.cos, "cosine, NaN at inf"),
    ("tan", torch.tan, "tangent, NaN at inf"),
    ("asin", torch.asin, "inverse sine, NaN outside [-1, 1]"),
    ("acos", torch.acos, "inverse cosine, NaN outside [-1, 1]"),
    ("atan", torch.atan, "inverse tangent"),
    ("sinh", torch.sinh, "hyperbolic sine"),
    ("cosh", torch.cosh, "hyperbolic cosine"),
    ("tanh", torch.tanh, "hyperbolic tangent; +-1 at +-inf"),
    ("asinh", torch.asinh, "inverse hyperbolic sine"),
    ("acosh", torch.acosh, "inverse hyperbolic cosine, NaN below 1"),
    ("atanh", torch.atanh, "inverse hyperbolic tangent; +-inf at +-1"),
    ("erf", torch.erf, "error function"),
    ("erfc", torch.erfc, "1 - erf(x) without cancellation"),
    ("erfinv", torch.erfinv, "inverse of erf; +-inf at +-1, NaN outside"),
    ("lgamma", torch.lgamma, "log |gamma(x)|; inf at 0, -1, -2, ..."),
    ("digamma", torch.digamma, "derivative of lgamma; -inf at 0, NaN at negative whole numbers"),
    ("i0", torch.special.i0, "modified Bessel function of order 0"),
    ("i0e", torch.special.i0e, "exp(-|x|) * i0(x)"),
    ("i1", torch.special.i1, "modified Bessel function of order 1"),
    ("i1e", torch.special.i1e, "exp(-|x|) * i1(x)"),
    ("ndtri", torch.special.ndtri, "inverse of the normal distribution function"),
    ("log_ndtr", torch.special.log_ndtr, "log of the normal distribution function"),
    ("sigmoid", torch.sigmoid, "1 / (1 + exp(-x)) of floats and complex"),
    ("floor", torch.floor, "largest whole number <= x; floats only, keeps -0"),
    ("ceil", torch.ceil, "smallest whole number >= x; floats only, ceil(-0.5) = -0"),
    ("trunc", torch.trunc, "rounds towards 0; floats only, keeps the sign of zero"),
    ("round", torch.round, "nearest whole number, halves to even; floats only"),
    ("sign", torch.sign, "-1, 0 or 1 of reals, bool unchanged; sign(NaN) = 0 as eager has it, sign(-0) = 0"),
    ("sgn", torch.sgn, "x / |x|, 0 at 0; complex"),
    ("bitwise_not", torch.bitwise_not, "all bits flipped; logical not of bool"),
    ("conj", lambda x: torch.conj_physical(x), "complex conjugate, written out (no conj bit)"),
]
for _name, _fn, _doc in UNARY_SAME:
    define(_name, "(Tensor x) -> Tensor", _fn, _same, ["elementwise"], _doc)

define(
    "abs",
    "(Tensor x) -> Tensor",
    torch.abs,
    _real,
    ["elementwise"],
    "magnitude; real result for complex, abs of the most negative integer is itself",
)
define("real", "(Tensor x) -> Tensor", lambda x: torch.real(x).clone(), _real, ["elementwise"], "real part of complex")
define(
    "imag",
    "(Tensor x) -> Tensor",
    lambda x: torch.imag(x.resolve_conj()).clone(),
    _real,
    ["elementwise"],
    "imaginary part of complex",
)
for _name, _fn, _doc in [
    ("isnan", torch.isnan, "x is NaN (either part, for complex)"),
    ("isinf", torch.isinf, "x is +inf or -inf"),
    ("isfinite", torch.isfinite, "x is neither infinite nor NaN"),
    ("signbit", torch.signbit, "the sign bit is set: true for -0, negative numbers and NaN with a sign"),
    ("logical_not", torch.logical_not, "x equals 0"),
]:
    define(_name, "(Tensor x) -> Tensor", _fn, _bool, ["elementwise", "comparison"], _doc)

BINARY_SAME: list[tuple[str, Callable[..., Any], str]] = [
    ("add", operator.add, "a + b; integers wrap around, bool: or"),
    ("sub", operator.sub, "a - b; integers wrap around; not for bool"),
    ("mul", operator.mul, "a * b; integers wrap around, bool: and"),
    ("div", operator.truediv, "a / b of floats or complex; x/0 is signed inf, 0/0 NaN"),
    ("div_trunc", _lifted(lambda a, b: torch.div(a, b, rounding_mode="trunc")),
     "quotient rounded towards 0; integers: division by zero raises RuntimeError"),
    ("div_floor", _lifted(lambda a, b: torch.div(a, b, rounding_mode="floor")),
     "quotient rounded down. Floats: from fmod, exact as Python's // (inf // x = NaN, x // 0 = x / 0);"
     " integers: by zero raises"),
    ("remainder", _lifted(torch.remainder), "a - b * floor(a / b) with the sign of b; integers: by zero raises"),
    ("fmod", _lifted(torch.fmod), "C remainder, sign of a; integers: by zero raises"),
    ("pow", lambda a, b: torch.pow(a, b) if isinstance(a, torch.Tensor) else _lifted(torch.pow)(a, b),
     "a ** b; integers wrap around; x**0 = 1 also for NaN; integers with a negative integer exponent: 0, or +-1"
     " for +-1"),
    ("maximum", _lifted(torch.maximum), "the larger; NaN if either is NaN"),
    ("minimum", _lifted(torch.minimum), "the smaller; NaN if either is NaN"),
    ("fmax", _lifted(torch.fmax), "the larger; the other one if one is NaN"),
    ("fmin", _lifted(torch.fmin), "the smaller; the other one if one is NaN"),
    ("atan2", _lifted(torch.atan2), "angle of (b, a) in (-pi, pi], signed zeros respected"),
    ("hypot", _lifted(torch.hypot), "sqrt(a*a + b*b) without overflow"),
    ("copysign", _lifted(torch.copysign), "|a| with the sign bit of b"),
    ("nextafter", _lifted(torch.nextafter), "next float after a towards b"),
    ("igamma", _lifted(torch.special.gammainc), "regularized lower incomplete gamma function"),
    ("igammac", _lifted(torch.special.gammaincc), "regularized upper incomplete gamma function"),
    ("zeta", _lifted(torch.special.zeta), "Hurwitz zeta function"),
    ("gcd", _lifted(torch.gcd), "greatest common divisor of integers, never negative"),
    ("lcm", _lifted(torch.lcm), "least common multiple of integers"),
    ("bitwise_and", operator.and_, "bit by bit and; bool: and"),
    ("bitwise_or", operator.or_, "bit by bit or; bool: or"),
    ("bitwise_xor", operator.xor, "bit by bit exclusive or; bool: unequal"),
    ("shift_left", _lifted(torch.bitwise_left_shift), "a << b; 0 for b < 0 or b >= width"),
    ("shift_right", _lifted(torch.bitwise_right_shift),
     "a >> b, arithmetic for signed types; for b < 0 or b >= width: 0, or -1 for negative a"),
]  # fmt: skip
for _name, _fn, _doc in BINARY_SAME:
    define(_name, "(Tensor|Number a, Tensor|Number b) -> Tensor", _fn, _same, ["elementwise"], _doc)

for _name, _fn, _doc in [
    ("eq", operator.eq, "a == b; false with NaN"),
    ("ne", operator.ne, "a != b; true with NaN"),
    ("lt", operator.lt, "a < b; false with NaN"),
    ("le", operator.le, "a <= b; false with NaN"),
    ("gt", operator.gt, "a > b; false with NaN"),
    ("ge", operator.ge, "a >= b; false with NaN"),
]:
    define(_name, "(Tensor|Number a, Tensor|Number b) -> Tensor", _fn, _bool, ["elementwise", "comparison"], _doc)


def _complex_meta(re: Any, im: Any) -> TensorMeta:
    return elementwise_meta((re, im), COMPLEX_OF[re.dtype])


define(
    "complex",
    "(Tensor re, Tensor im) -> Tensor",
    torch.complex,
    _complex_meta,
    ["elementwise"],
    "complex number from real and imaginary part",
)


def _where_meta(cond: Any, a: Any, b: Any) -> TensorMeta:
    dtype = a.dtype if hasattr(a, "dtype") else b.dtype
    return elementwise_meta((cond, a, b), dtype)


define(
    "where",
    "(Tensor cond, Tensor|Number a, Tensor|Number b) -> Tensor",
    torch.where,
    _where_meta,
    ["elementwise"],
    "a where the bool cond holds, else b; the side not taken never matters, NaN included; one of a, b is a tensor",
)


def _fma_meta(a: Any, b: Any, c: Any) -> TensorMeta:
    return elementwise_meta((a, b, c))


def _convert(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype, copy=True)


def _convert_meta(x: Any, dtype: torch.dtype) -> TensorMeta:
    shape = tuple(x.shape)
    return TensorMeta(shape, strides.like(shape, x.stride()), dtype, x.device)


define(
    "convert_element_type",
    "(Tensor x, dtype dtype) -> Tensor",
    _convert,
    _convert_meta,
    ["elementwise"],
    "the value in another type: rounds to nearest even, floats to integers truncate (out of range as C does),"
    " to bool: != 0,"
    " complex to real drops the imaginary part",
)


def _bitcast_meta(x: Any, dtype: torch.dtype) -> TensorMeta:
    if x.dtype.itemsize != dtype.itemsize:
        raise NotImplementedError("bitcast between widths")
    return TensorMeta(tuple(x.shape), tuple(x.stride()), dtype, x.device)


define(
    "bitcast",
    "(Tensor x, dtype dtype) -> Tensor",
    lambda x, dtype: x.view(dtype),
    _bitcast_meta,
    ["elementwise"],
    "the same bits read as another type of equal width",
)


def _polygamma_meta(n: int, x: Any) -> TensorMeta:
    return elementwise_meta((x,))


define(
    "polygamma",
    "(int n, Tensor x) -> Tensor",
    torch.polygamma,
    _polygamma_meta,
    ["elementwise"],
    "n-th derivative of digamma, n >= 0",
)
