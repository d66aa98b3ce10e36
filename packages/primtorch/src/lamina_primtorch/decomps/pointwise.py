"""Elementwise arithmetic, comparisons and selections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import prims as p
from ..operands import align, broadcast, full, is_tensor, promoted, to, widened
from ..promotion import COMPLEX, INEXACT, INTEGERS, compute_type, result_type, to_inexact
from ._table import DECOMPOSITIONS, decomp

BOOL = torch.bool


def copy_of(x: Any) -> Any:
    """The value of ``x``: values are never mutated, so this is ``x`` itself."""
    return x


def _unary_float(prim: Callable[..., Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        return prim(to(x, to_inexact(x.dtype)))

    return run


FLOAT_UNARY = {
    n: n
    for n in "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh"
    " tanh asinh acosh atanh erf erfc"
    " erfinv lgamma digamma i0 sigmoid".split()
}
FLOAT_UNARY |= {"special_" + n: n for n in "i0e i1 i1e ndtri log_ndtr".split()}
for _aten, _prim in FLOAT_UNARY.items():
    DECOMPOSITIONS[_aten + ".default"] = _unary_float(getattr(p, _prim))


def _rounding(prim: Callable[..., Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        if x.dtype in COMPLEX or x.dtype is BOOL:
            raise NotImplementedError
        return x if x.dtype not in INEXACT else prim(x)

    return run


for _name in ("floor", "ceil", "trunc", "round"):
    DECOMPOSITIONS[_name + ".default"] = _rounding(getattr(p, _name))


@decomp("frac.default")
def frac(x: Any) -> Any:
    if x.dtype not in INEXACT or x.dtype in COMPLEX:
        raise NotImplementedError
    return p.sub(x, p.trunc(x))


@decomp("sign.default")
def sign(x: Any) -> Any:
    if x.dtype in COMPLEX:
        raise NotImplementedError
    return x if x.dtype is BOOL else p.sign(x)


@decomp("sgn.default")
def sgn(x: Any) -> Any:
    return p.sgn(x) if x.dtype in COMPLEX else sign(x)


@decomp("neg.default")
def neg(x: Any) -> Any:
    if x.dtype is BOOL:
        raise NotImplementedError
    return p.neg(x)


@decomp("abs.default")
def abs_(x: Any) -> Any:
    if x.dtype is BOOL:
        raise NotImplementedError
    return p.abs(x)


@decomp("bitwise_not.default")
def bitwise_not(x: Any) -> Any:
    if x.dtype in INEXACT:
        raise NotImplementedError
    return p.bitwise_not(x)


@decomp("logical_not.default")
def logical_not(x: Any) -> Any:
    return p.logical_not(x)


@decomp("isnan.default")
def isnan(x: Any) -> Any:
    return p.isnan(x) if x.dtype in INEXACT else full(x.shape, False, BOOL, x.device)


@decomp("isinf.default")
def isinf(x: Any) -> Any:
    return p.isinf(x) if x.dtype in INEXACT else full(x.shape, False, BOOL, x.device)


@decomp("isposinf.default")
def isposinf(x: Any) -> Any:
    if x.dtype in COMPLEX:
        raise NotImplementedError
    return p.eq(x, float("inf")) if x.dtype in INEXACT else full(x.shape, False, BOOL, x.device)


@decomp("isneginf.default")
def isneginf(x: Any) -> Any:
    if x.dtype in COMPLEX:
        raise NotImplementedError
    return p.eq(x, float("-inf")) if x.dtype in INEXACT else full(x.shape, False, BOOL, x.device)


@decomp("signbit.default")
def signbit(x: Any) -> Any:
    if x.dtype is BOOL:
        return full(x.shape, False, BOOL, x.device)
    if x.dtype in COMPLEX:
        raise NotImplementedError
    return p.signbit(x) if x.dtype in INEXACT else p.lt(x, 0)


@decomp("deg2rad.default")
def deg2rad(x: Any) -> Any:
    (y,), dtype = widened((x,))
    return to(p.mul(y, 0.017453292519943295769236907684886), dtype)


@decomp("rad2deg.default")
def rad2deg(x: Any) -> Any:
    (y,), dtype = widened((x,))
    return to(p.mul(y, 57.295779513082320876798154814105), dtype)


@decomp("sinc.default")
def sinc(x: Any) -> Any:
    (y,), dtype = widened((x,))
    if dtype in COMPLEX:
        raise NotImplementedError
    z = p.mul(y, 3.14159265358979323846)
    return to(p.where(p.eq(y, 0.0), 1.0, p.div(p.sin(z), z)), dtype)


# -- binary
# -----------------------------------------------------------------------------------------------------------------


def _scaled(alpha: Any, b: Any, dtype: torch.dtype) -> Any:
    if dtype is BOOL and not isinstance(alpha, bool):
        raise NotImplementedError
    if dtype not in INEXACT and not isinstance(alpha, (int, torch.SymInt)):
        raise NotImplementedError
    return p.mul(b, to(alpha, dtype)) if is_tensor(b) else b * alpha


@decomp("add.Tensor", "add.Scalar")
def add(a: Any, b: Any, alpha: Any = 1) -> Any:
    if type(alpha) is int and alpha == 1:
        (a, b), dtype = promoted((a, b))
        return p.add(a, b)
    (a, b), dtype = widened((a, b), inexact=False)
    if dtype is BOOL:
        raise NotImplementedError
    return to(p.add(a, _scaled(alpha, b, a.dtype if is_tensor(a) else b.dtype)), dtype)


@decomp("sub.Tensor", "sub.Scalar")
def sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    if result_type((a, b)) is BOOL or (is_tensor(b) and b.dtype is BOOL) or (is_tensor(a) and a.dtype is BOOL):
        raise NotImplementedError
    if isinstance(b, bool):
        raise NotImplementedError
    if type(alpha) is int and alpha == 1:
        (a, b), dtype = promoted((a, b))
        return p.sub(a, b)
    (a, b), dtype = widened((a, b), inexact=False)
    return to(p.sub(a, _scaled(alpha, b, a.dtype if is_tensor(a) else b.dtype)), dtype)


@decomp("rsub.Tensor", "rsub.Scalar")
def rsub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return sub(b, a, alpha)


@decomp("mul.Tensor", "mul.Scalar")
def mul(a: Any, b: Any) -> Any:
    (a, b), _ = promoted((a, b))
    return p.mul(a, b)


@decomp("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(a: Any, b: Any) -> Any:
    (a, b), _ = promoted((a, b), inexact=True)
    return p.div(a, b)


@decomp("div.Tensor_mode", "div.Scalar_mode")
def div_mode(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return div(a, b)
    (a, b), dtype = promoted((a, b))
    if dtype is BOOL or dtype in COMPLEX or rounding_mode not in ("floor", "trunc"):
        raise NotImplementedError
    return p.div_floor(a, b) if rounding_mode == "floor" else p.div_trunc(a, b)


@decomp("floor_divide.default", "floor_divide.Scalar")
def floor_divide(a: Any, b: Any) -> Any:
    return div_mode(a, b, "floor")


def _binary(prim: Callable[..., Any], kind: str) -> Callable[[Any, Any], Any]:
    def run(a: Any, b: Any) -> Any:
        (a, b), dtype = promoted((a, b), kind == "float")
        if kind == "real" and dtype in COMPLEX:
            raise NotImplementedError
        if kind == "realnobool" and (dtype in COMPLEX or dtype is BOOL):
            raise NotImplementedError
        if kind == "int" and dtype in INEXACT:
            raise NotImplementedError
        if kind == "intonly" and dtype not in INTEGERS:
            raise NotImplementedError
        if kind == "floatonly" and not dtype.is_floating_point:
            raise NotImplementedError
        if kind == "fullfloat" and dtype not in (torch.float32, torch.float64):
            raise NotImplementedError
        return prim(a, b)

    return run


_BINARY = {
    "real": "maximum minimum fmax fmin lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor ge.Scalar",
    "any": "eq.Tensor eq.Scalar ne.Tensor ne.Scalar",
    "realnobool": "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor fmod.Tensor fmod.Scalar",
    "float": "atan2 copysign.Tensor copysign.Scalar special_zeta",
    "floatonly": "hypot igamma igammac",
    "fullfloat": "nextafter",  # in half precision a step is a step of that type: not to be computed in float32
    "int": "bitwise_and.Tensor bitwise_and.Scalar bitwise_and.Scalar_Tensor bitwise_or.Tensor bitwise_or.Scalar"
    " bitwise_or.Scalar_Tensor"
    " bitwise_xor.Tensor bitwise_xor.Scalar bitwise_xor.Scalar_Tensor",
    "intonly": "gcd lcm",
}
for _kind, _names in _BINARY.items():
    for _name in _names.split():
        _prim = getattr(p, _name.partition(".")[0].replace("special_", ""))
        DECOMPOSITIONS[_name if "." in _name else _name + ".default"] = _binary(_prim, _kind)


def _shift(prim: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def run(a: Any, b: Any) -> Any:
        (a, b), dtype = promoted((a, b))
        if dtype not in INTEGERS:
            raise NotImplementedError
        return prim(a, b)

    return run


for _side in ("left", "right"):
    for _kind in ("Tensor", "Tensor_Scalar", "Scalar_Tensor"):
        DECOMPOSITIONS[f"bitwise_{_side}_shift.{_kind}"] = _shift(getattr(p, f"shift_{_side}"))


def _truth(x: Any) -> Any:
    return x if x.dtype is BOOL else p.ne(x, 0 if x.dtype not in INEXACT else 0.0)


def _logical(prim: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def run(a: Any, b: Any) -> Any:
        a, b = align((_truth(a), _truth(b)), BOOL)
        return prim(a, b)

    return run


for _name in ("and", "or", "xor"):
    DECOMPOSITIONS[f"logical_{_name}.default"] = _logical(getattr(p, f"bitwise_{_name}"))


@decomp("pow.Tensor_Tensor", "pow.Scalar")
def pow_(a: Any, b: Any) -> Any:
    dtype = result_type((a, b))
    if dtype is BOOL:
        raise NotImplementedError
    a, b = align((a, b), dtype)
    return p.pow(a, b)


@decomp("pow.Tensor_Scalar")
def pow_scalar(x: Any, n: Any) -> Any:
    dtype = result_type((x, n))
    if dtype is BOOL or dtype in COMPLEX or not isinstance(n, (int, float)) or (dtype not in INEXACT and n < 0):
        raise NotImplementedError
    if n == 0:
        return full(x.shape, 1, dtype, x.device)
    if n == 1:
        return to(x, dtype)
    y = to(x, dtype)
    if n == 2:
        return p.mul(y, y)
    if dtype in INEXACT:
        if n == 0.5:
            return p.sqrt(y)
        wide = to(y, compute_type(dtype))
        if n == 3:
            return to(p.mul(p.mul(wide, wide), wide), dtype)
        if n == -0.5:
            return p.rsqrt(y)
        if n == -1:
            return p.reciprocal(y)
        if n == -2:
            return to(p.reciprocal(p.mul(wide, wide)), dtype)
    return p.pow(y, to(n, dtype))


@decomp("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self")
def xlogy(a: Any, b: Any) -> Any:
    if result_type((a, b)) in COMPLEX:
        raise NotImplementedError("eager has no kernel")
    if not is_tensor(a) or not is_tensor(b):
        t = a if is_tensor(a) else b
        dtype = to_inexact(result_type((a, b)))
        if not is_tensor(b):
            b = full(t.shape, b, dtype, t.device)
        else:
            a = full(t.shape, a, dtype, t.device)
    (a, b), dtype = widened((a, b))
    return to(p.where(p.isnan(b), float("nan"), p.where(p.eq(a, 0.0), 0.0, p.mul(a, p.log(b)))), dtype)


@decomp("special_xlog1py.default")
def xlog1py(a: Any, b: Any) -> Any:
    if result_type((a, b)) in COMPLEX:
        raise NotImplementedError("eager has no kernel")
    (a, b), dtype = widened((a, b))
    return to(p.where(p.isnan(b), float("nan"), p.where(p.eq(a, 0.0), 0.0, p.mul(a, p.log1p(b)))), dtype)


@decomp("logaddexp.default")
def logaddexp(a: Any, b: Any) -> Any:
    (a, b), dtype = widened((a, b), inexact=False)
    if not dtype.is_floating_point:
        raise NotImplementedError
    m = p.maximum(a, b)
    same = p.bitwise_and(p.isinf(a), p.eq(a, b))
    return to(p.where(same, a, p.add(m, p.log1p(p.exp(p.neg(p.abs(p.sub(a, b))))))), dtype)


@decomp("heaviside.default")
def heaviside(x: Any, values: Any) -> Any:
    if x.dtype is not values.dtype or x.dtype in COMPLEX:
        raise NotImplementedError
    x, values = align((x, values), x.dtype)
    return p.where(p.eq(x, to(0, x.dtype)), values, to(p.gt(x, to(0, x.dtype)), x.dtype))


@decomp("where.self")
def where(cond: Any, a: Any, b: Any) -> Any:
    if cond.dtype is not BOOL:
        raise NotImplementedError
    dtype = result_type((a, b))
    shaped = align((a, b, cond), dtype) if cond.dtype is dtype else None
    if shaped is None:
        from ..operands import common_shape

        shape = common_shape(cond, a, b)
        return p.where(broadcast(cond, shape), broadcast(to(a, dtype), shape), broadcast(to(b, dtype), shape))
    return p.where(shaped[2], shaped[0], shaped[1])


@decomp("clamp.default", "clamp.Tensor")
def clamp(x: Any, lo: Any = None, hi: Any = None) -> Any:
    dtype = result_type((x, lo, hi))
    if dtype in COMPLEX or (lo is None and hi is None) or dtype is BOOL:
        raise NotImplementedError
    x, lo, hi = align((x, lo, hi), dtype)
    if lo is not None:
        x = p.maximum(x, lo)
    return x if hi is None else p.minimum(x, hi)


@decomp("clamp_min.default", "clamp_min.Tensor")
def clamp_min(x: Any, lo: Any) -> Any:
    return clamp(x, lo, None)


@decomp("clamp_max.default", "clamp_max.Tensor")
def clamp_max(x: Any, hi: Any) -> Any:
    return clamp(x, None, hi)


@decomp("lerp.Scalar", "lerp.Tensor")
def lerp(a: Any, b: Any, weight: Any) -> Any:
    if not a.dtype.is_floating_point or b.dtype is not a.dtype or (is_tensor(weight) and weight.dtype is not a.dtype):
        raise NotImplementedError
    dtype = a.dtype
    a, b, weight = align((a, b, weight), compute_type(dtype))
    d = p.sub(b, a)
    if not is_tensor(weight):
        out = p.add(a, p.mul(d, weight)) if abs(weight) < 0.5 else p.sub(b, p.mul(d, 1.0 - weight))
        return to(out, dtype)
    low = p.add(a, p.mul(weight, d))
    high = p.sub(b, p.mul(d, p.sub(1.0, weight)))
    return to(p.where(p.lt(p.abs(weight), 0.5), low, high), dtype)


@decomp("addcmul.default")
def addcmul(x: Any, a: Any, b: Any, value: Any = 1) -> Any:
    (x, a, b), dtype = widened((x, a, b), inexact=False)
    if dtype not in INEXACT and not isinstance(value, int) or dtype is BOOL:
        raise NotImplementedError
    if value != 1:
        a = p.mul(a, to(value, x.dtype))
    return to(p.add(x, p.mul(a, b)), dtype)


@decomp("addcdiv.default")
def addcdiv(x: Any, a: Any, b: Any, value: Any = 1) -> Any:
    (x, a, b), dtype = widened((x, a, b), inexact=False)
    if dtype not in INEXACT:
        raise NotImplementedError
    if value != 1:
        a = p.mul(a, to(value, x.dtype))
    return to(p.add(x, p.div(a, b)), dtype)


@decomp("nan_to_num.default")
def nan_to_num(x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    if x.dtype not in INEXACT:
        return copy_of(x)
    if x.dtype in COMPLEX:
        raise NotImplementedError
    info = torch.finfo(x.dtype)
    out = p.where(p.isnan(x), float(nan or 0.0), x)
    out = p.where(p.eq(x, float("inf")), float(info.max if posinf is None else posinf), out)
    return p.where(p.eq(x, float("-inf")), float(info.min if neginf is None else neginf), out)


@decomp("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    if mask.dtype is not BOOL:
        raise NotImplementedError
    from ..operands import common_shape

    if is_tensor(value):
        if len(value.shape):
            raise NotImplementedError
        if result_type((x, value)) is not x.dtype:
            raise NotImplementedError
    elif result_type((x, value)) is not x.dtype:
        raise NotImplementedError
    shape = common_shape(x, mask)
    return p.where(broadcast(mask, shape), broadcast(to(value, x.dtype), shape), broadcast(x, shape))


@decomp("polygamma.default")
def polygamma(n: int, x: Any) -> Any:
    return p.polygamma(n, to(x, to_inexact(x.dtype)))


@decomp("complex.default")
def complex_(re: Any, im: Any) -> Any:
    if re.dtype is not im.dtype:
        raise NotImplementedError
    re, im = align((re, im), re.dtype)
    return p.complex(re, im)


@decomp("_conj_physical.default", "conj_physical.default", "_conj.default")
def conj(x: Any) -> Any:
    return p.conj(x) if x.dtype in COMPLEX else x
