"""Elementwise prims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import LoweringError
from ..index import Expr
from ..ir.loops import Builder, Index
from ..ir.tensor import TensorValue
from ..ops import Op, compute_dtype
from .registry import add_lowering

HALF = (torch.float16, torch.bfloat16)

# result is one of the operands (or exactly representable), so that nothing has to be rounded
EXACT = frozenset(
    "neg abs sign maximum minimum fmax fmin where floor ceil trunc round copysign "
    "convert_element_type bitcast clone".split()
)
# eager turns a number operand into a tensor of the other operand's dtype first
ROUNDED_NUMBERS = frozenset(
    "maximum minimum fmax fmin atan2 hypot copysign nextafter div_trunc div_floor remainder fmod".split()
)


def pointwise(
    g: Any, name: str, fn: Callable[..., Op], args: tuple, *, cost: int = 1, number_dtype: torch.dtype | None = None
) -> TensorValue:
    """A lazy value of `fn(b, *operands)`; operands are loads of the tensor `args` and constants for the numbers."""
    meta = g.result()
    tensors = [a for a in args if isinstance(a, TensorValue)]
    if number_dtype is None:
        dtypes = [t.dtype for t in tensors if t.dtype != torch.bool or name != "where"]
        number_dtype = dtypes[0] if dtypes else meta.dtype
        if name not in ROUNDED_NUMBERS:
            number_dtype = compute_dtype(number_dtype)
    for a in args:
        if not isinstance(a, (TensorValue, bool, int, float, Expr)):
            raise LoweringError(f"operand {a!r}")
    total, reads = cost, 0
    for t in tensors:
        c, r = t.weight()
        total, reads = total + c, reads + r
    if (total > g.config.inline_ops or reads > g.config.inline_reads) and not g.inlines:
        for t in sorted(tensors, key=lambda t: -t.weight()[0]):
            if not t.is_stored and t.cost:
                g.realize(t)
                total, reads = cost, 0
                for u in tensors:
                    c, r = u.weight()
                    total, reads = total + c, reads + r
                if total <= g.config.inline_ops and reads <= g.config.inline_reads:
                    break
    rounds = meta.dtype in HALF and name not in EXACT
    wanted = compute_dtype(meta.dtype)

    def inner(b: Builder, index: Index) -> Op:
        operands = []
        for a in args:
            if isinstance(a, TensorValue):
                operands.append(a.load(b, index))
            elif isinstance(a, Expr):
                operands.append(b.to_dtype(b.index_expr(a), number_dtype))
            else:
                operands.append(b.constant(a, number_dtype))
        value = fn(b, *operands)
        if value.dtype != wanted:
            value = b.to_dtype(value, wanted)
        return b.round_to(value, meta.dtype) if rounds else value

    return g.lazy(meta, inner, cost=total, reads=reads)


def _direct(name: str) -> Callable[..., Op]:
    return lambda b, *xs: getattr(b, name)(*xs)


def _add_op(name: str, fn: Callable[..., Op], cost: int = 1, op: str | None = None, kinds: str = "fib") -> None:
    """One row of the table. `kinds`: dtypes it is for, f(loat), i(nteger), b(ool)."""

    def lower(g: Any, *args: Any) -> TensorValue:
        for a in args:
            if isinstance(a, TensorValue):
                kind = "b" if a.dtype == torch.bool else "f" if a.dtype.is_floating_point else "i"
                if kind not in kinds:
                    raise LoweringError(f"{name} of {a.dtype}")
                g.require(op or name, a.dtype)
        return pointwise(g, name, fn, args, cost=cost)

    add_lowering(name, lower)


def _is_float(x: Op) -> bool:
    return x.dtype.is_floating_point


def _signed_integer(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and dtype != torch.bool and torch.iinfo(dtype).min < 0


for _name, _cost in {
    "exp": 8, "exp2": 8, "expm1": 10, "log": 8, "log2": 8, "log10": 8, "log1p": 10, "sqrt": 3, "rsqrt": 4,
    "reciprocal": 2,
    "sin": 10, "cos": 10, "tan": 14, "asin": 14, "acos": 14, "atan": 14, "sinh": 12, "cosh": 12, "tanh": 10,
    "asinh": 14,
    "acosh": 14, "atanh": 14, "erf": 12, "erfc": 14, "erfinv": 16, "lgamma": 20, "digamma": 20, "i0": 20, "i0e": 20,
    "i1": 20,
    "i1e": 20, "ndtri": 20, "sigmoid": 10, "floor": 1, "ceil": 1, "trunc": 1, "round": 1,
}.items():  # fmt: skip
    _add_op(_name, _direct(_name), _cost, kinds="f")
_add_op("neg", _direct("neg"), kinds="fi")
_add_op("abs", lambda b, x: x if x.dtype in (torch.bool, torch.uint8) else b.abs(x), kinds="fib")
_add_op("sign", lambda b, x: x if x.dtype == torch.bool else b.sign(x))
_add_op("bitwise_not", _direct("bitwise_not"), kinds="ib")
_add_op("logical_not", lambda b, x: b.logical_not(x))
_add_op("isnan", lambda b, x: b.isnan(x) if _is_float(x) else b.constant(False, torch.bool))
_add_op("isinf", lambda b, x: b.isinf(x) if _is_float(x) else b.constant(False, torch.bool))
_add_op(
    "isfinite",
    lambda b, x: b.logical_not(b.logical_or(b.isnan(x), b.isinf(x))) if _is_float(x) else b.constant(True, torch.bool),
    cost=2,
)
def _signbit(b: Builder, x: Op) -> Op:
    if _is_float(x):
        return b.signbit(x)
    return b.constant(False, torch.bool) if x.dtype == torch.bool else b.lt(x, b.constant(0, x.dtype))


_add_op("signbit", _signbit)
_add_op("add", lambda b, x, y: b.bitwise_or(x, y) if x.dtype == torch.bool else b.add(x, y))
_add_op("sub", _direct("sub"), kinds="fi")
_add_op("mul", lambda b, x, y: b.bitwise_and(x, y) if x.dtype == torch.bool else b.mul(x, y))
_add_op("div", _direct("truediv"), 2, op="truediv", kinds="f")
_add_op("maximum", lambda b, x, y: b.bitwise_or(x, y) if x.dtype == torch.bool else b.maximum(x, y))
_add_op("minimum", lambda b, x, y: b.bitwise_and(x, y) if x.dtype == torch.bool else b.minimum(x, y))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _add_op(_name, _direct(_name))
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    _add_op(_name, _direct(_name), kinds="ib")
for _name, _cost in {"atan2": 20, "hypot": 8, "copysign": 2, "nextafter": 4}.items():
    _add_op(_name, _direct(_name), _cost, kinds="f")


def _other_if_nan(op: str) -> Callable[..., Op]:
    def fn(b: Builder, x: Op, y: Op) -> Op:
        best = getattr(b, op)(x, y)
        return b.where(b.isnan(x), y, b.where(b.isnan(y), x, best)) if _is_float(x) else best

    return fn


_add_op("fmax", _other_if_nan("maximum"), 3, op="maximum", kinds="fi")
_add_op("fmin", _other_if_nan("minimum"), 3, op="minimum", kinds="fi")


def _check_divisor(b: Builder, y: Op) -> None:
    if y.name == "constant" and y.args[0] != 0:
        return
    inside = b.ne(y, b.constant(0, y.dtype))
    b.emit("check", (inside, "ZeroDivisionError", "RuntimeError", b.mask), torch.bool)


def _div_trunc(g: Any, x: Any, y: Any) -> TensorValue:
    dtype = g.result().dtype

    def fn(b: Builder, p: Op, q: Op) -> Op:
        if _is_float(p):
            quotient = b.truediv(p, q)
            return b.trunc(
                b.round_to(quotient, dtype) if dtype in HALF else quotient
            )  # eager rounds the quotient first
        _check_divisor(b, q)
        return b.truncdiv(p, q)

    if dtype == torch.bool:
        raise LoweringError("div_trunc of bool")
    g.require("truncdiv", dtype)
    return pointwise(g, "div_trunc", fn, (x, y), cost=3)


def _checked(op: str) -> Callable[..., Op]:
    def fn(b: Builder, x: Op, y: Op) -> Op:
        if not _is_float(x):
            _check_divisor(b, y)
        return getattr(b, op)(x, y)

    return fn


add_lowering("div_trunc", _div_trunc)
_add_op("div_floor", _checked("floordiv"), 6, op="floordiv", kinds="fi")
_add_op("remainder", _checked("remainder"), 6, kinds="fi")
_add_op("fmod", _checked("fmod"), 6, kinds="fi")


def _shift(op: str) -> Callable[..., Op]:
    def fn(b: Builder, x: Op, y: Op) -> Op:
        bits = x.dtype.itemsize * 8
        signed = _signed_integer(x.dtype)
        zero = b.constant(0, y.dtype)
        if op == "shl" or not signed:
            valid = b.lt(y, b.constant(bits, y.dtype))
            safe = b.where(valid, y, zero)
            if signed:
                valid = b.logical_and(valid, b.ge(y, zero))
                safe = b.where(valid, y, zero)
            return b.where(valid, getattr(b, op)(x, safe), b.constant(0, x.dtype))
        valid = b.logical_and(b.lt(y, b.constant(bits, y.dtype)), b.ge(y, zero))
        return b.shr(x, b.where(valid, y, b.constant(bits - 1, y.dtype)))

    return fn


_add_op("shift_left", _shift("shl"), 4, op="shl", kinds="i")
_add_op("shift_right", _shift("shr"), 4, op="shr", kinds="i")


def _pow(b: Builder, x: Op, y: Op) -> Op:
    if y.name == "constant":
        p = y.args[0]
        if p == 1:
            return x
        if p == 2:
            return b.mul(x, x)
        if p == 3:
            return b.mul(b.mul(x, x), x)
        if _is_float(x):
            special = {
                0.5: lambda: b.sqrt(x),
                -0.5: lambda: b.reciprocal(b.sqrt(x)),
                -1.0: lambda: b.reciprocal(x),
                -2.0: lambda: b.reciprocal(b.mul(x, x)),
            }.get(p)
            if special is not None:
                return special()
    return b.pow(x, y)


_add_op("pow", _pow, 20, kinds="fi")


def _where(g: Any, cond: TensorValue, x: Any, y: Any) -> TensorValue:
    dtype = x.dtype if isinstance(x, TensorValue) else y.dtype
    return pointwise(g, "where", lambda b, c, p, q: b.where(c, p, q), (cond, x, y), number_dtype=compute_dtype(dtype))


add_lowering("where", _where)


def _convert(g: Any, x: TensorValue, dtype: torch.dtype) -> TensorValue:
    g.require("to_dtype", dtype)
    return pointwise(g, "convert_element_type", lambda b, v: b.to_dtype(v, dtype), (x,))


add_lowering("convert_element_type", _convert)


def _bitcast(g: Any, x: TensorValue, dtype: torch.dtype) -> TensorValue:
    if x.dtype in HALF or dtype in HALF:
        raise LoweringError("bits of half precision are not seen inside kernels")
    g.require("bitcast", dtype)
    if x.dtype == dtype:
        return pointwise(g, "bitcast", lambda b, v: v, (x,))
    return pointwise(g, "bitcast", lambda b, v: b.emit("bitcast", (v,), dtype), (x,))


add_lowering("bitcast", _bitcast)
