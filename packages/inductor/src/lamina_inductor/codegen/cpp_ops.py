"""How each loop-level op is written in C++: one table from op name to a text maker.

Lanes: a value of dtype float32 is `vec<f32, N>`, float64 `vec<f64, N>`, int64 `vec<i64, N>`; int32 and the narrower
integers share
`vec<i32, N>` (narrow ones are wrapped back into their range after each op that can leave it); bool is a mask, 0 or -1 a
lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from ..ops import Op

ELEMENT: dict[torch.dtype, str] = {
    torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8",
    torch.uint8: "u8", torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64", torch.bool: "bool",
}  # fmt: skip
"""Element type of a buffer in memory."""

LANE: dict[torch.dtype, str] = {
    torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "f32", torch.float16: "f32",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i32", torch.int8: "i32",
    torch.uint8: "i32", torch.uint16: "i32", torch.uint32: "u32", torch.uint64: "u64", torch.bool: "i32",
}  # fmt: skip
"""Element type of a value in flight."""

_LANE_BYTES = {"f32": 4, "f64": 8, "i64": 8, "i32": 4, "u32": 4, "u64": 8}
_NARROW = {torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.uint16: "u16"}


def lane_bytes(dtype: torch.dtype) -> int:
    """Bytes a lane of a value of `dtype` takes."""
    return _LANE_BYTES[LANE[dtype]]


def vector_type(dtype: torch.dtype) -> str:
    """C++ type of a value; N is a constant of the emitted scope."""
    return f"vec<{LANE[dtype]}, N>"


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A lane constant of `dtype` in C++."""
    if dtype is torch.bool:
        return "-1" if value else "0"
    if dtype.is_floating_point:
        value = float(value)
        if value != value:
            return f'{LANE[dtype]}(__builtin_nan(""))'
        if math.isinf(value):
            return f"{LANE[dtype]}({'-' if value < 0 else ''}__builtin_inf())"
        return f"{LANE[dtype]}({value!r})"
    value = int(value)
    if LANE[dtype] == "u64":
        return f"u64({value}ULL)"
    if value == -(1 << 63):
        return "i64(-9223372036854775807LL - 1)"
    return f"{LANE[dtype]}({value}LL)"


def _is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point


def wrapped(text: str, dtype: torch.dtype) -> str:
    """`text` brought back into the range of a narrow integer dtype."""
    narrow = _NARROW.get(dtype)
    return text if narrow is None else f"wrap_to<{narrow}, {vector_type(dtype)}>({text})"


def _binary(sign: str, on_bool: str | None = None) -> Callable:
    def make(op: Op, a: str, b: str) -> str:
        if op.dtype is torch.bool:
            return f"({a} {on_bool or sign} {b})"
        return wrapped(f"({a} {sign} {b})", op.dtype)

    return make


def _call(name: str) -> Callable:
    return lambda op, *args: f"{name}<{vector_type(op.dtype)}>({', '.join(args)})"


def _by_kind(on_float: str, on_int: str, wrap: bool = False) -> Callable:
    def make(op: Op, *args: str) -> str:
        text = f"{on_float if _is_float(op.dtype) else on_int}<{vector_type(op.dtype)}>({', '.join(args)})"
        return wrapped(text, op.dtype) if wrap else text

    return make


def _compare(name: str, sign: str) -> Callable:
    def make(op: Op, a: str, b: str) -> str:
        if op.args[0].dtype is torch.bool and sign not in ("==", "!="):
            a, b = f"(-{a})", f"(-{b})"
        return f"as_mask(compare<cmp_{name}, {vector_type(op.args[0].dtype)}>({a}, {b}))"

    return make


def truth(operand: Op, text: str) -> str:
    """`text` as a mask."""
    return text if operand.dtype is torch.bool else f"truth<{vector_type(operand.dtype)}>({text})"


def _logic(sign: str) -> Callable:
    return lambda op, a, b: f"({truth(op.args[0], a)} {sign} {truth(op.args[1], b)})"


def _extreme(name: str, on_bool: str) -> Callable:
    def make(op: Op, a: str, b: str) -> str:
        if op.dtype is torch.bool:
            return f"({a} {on_bool} {b})"
        if op.dtype.is_floating_point:
            for bound, value in ((op.args[0], f"{b}, {a}"), (op.args[1], f"{a}, {b}")):
                if bound.name == "constant" and math.isfinite(bound.args[0]):
                    return f"{'at_least' if name == 'maximum' else 'at_most'}<{vector_type(op.dtype)}>({value})"
        return f"{name}<{vector_type(op.dtype)}>({a}, {b})"

    return make


def _shift(name: str) -> Callable:
    def make(op: Op, a: str, b: str) -> str:
        return wrapped(f"{name}<{vector_type(op.dtype)}>({a}, {b}, {8 * op.dtype.itemsize})", op.dtype)

    return make


def _convert(op: Op, x: str) -> str:
    source, target = op.args[0].dtype, op.dtype
    if source is target:
        return x
    if target is torch.bool:
        return truth(op.args[0], x)
    if source is torch.bool:
        return f"from_mask<{vector_type(target)}>({x})"
    if _is_float(source) and not _is_float(target):
        return wrapped(f"to_int<{vector_type(target)}>({x})", target)
    return wrapped(f"cvt<{vector_type(target)}>({x})", target)


def _round_to(op: Op, x: str) -> str:
    if op.args[1] is torch.bfloat16:
        return f"widen_bf16<N>(narrow_bf16<N>({x}))"
    return f"half_conv<N>::widen(half_conv<N>::narrow({x}))"


def _divide(op: Op, a: str, b: str) -> str:
    by = op.args[1]
    if by.name == "constant" and by.args[0] and math.isfinite(by.args[0]) and abs(math.frexp(by.args[0])[0]) == 0.5:
        scale = 1.0 / by.args[0]
        if 1e-30 < abs(scale) < 1e30:  # a power of two: exact
            return f"({a} * {literal(scale, op.dtype)})"
    return f"({a} / {b})"


def _where(op: Op, c: str, a: str, b: str) -> str:
    return f"pick<{vector_type(op.dtype)}>({truth(op.args[0], c)}, {a}, {b})"


TEXT: dict[str, Callable] = {
    "add": _binary("+", "|"),
    "sub": _binary("-", "^"),
    "mul": _binary("*", "&"),
    "truediv": lambda op, a, b: _divide(op, a, b),
    "floordiv": _by_kind("float_floor_div", "vfloor_div", True),
    "truncdiv": _by_kind("float_trunc_div", "vint_div", True),
    "remainder": _by_kind("float_rem", "vfloor_rem"),
    "fmod": _by_kind("fmod_", "vint_rem"),
    "maximum": _extreme("maximum", "|"),
    "minimum": _extreme("minimum", "&"),
    "neg": lambda op, a: wrapped(f"(-{a})", op.dtype),
    "abs": lambda op, a: a if op.dtype is torch.bool else wrapped(f"absolute<{vector_type(op.dtype)}>({a})", op.dtype),
    "sign": lambda op, a: a if op.dtype is torch.bool else f"sign<{vector_type(op.dtype)}>({a})",
    "square": lambda op, a: wrapped(f"({a} * {a})", op.dtype),
    "fma": lambda op, a, b, c: wrapped(f"({a} * {b} + {c})", op.dtype),
    "reciprocal": lambda op, a: f"({literal(1, op.dtype)} / {a})",
    "round": _call("rint_"),
    "pow": _by_kind("pow_", "vint_pow", True),
    "copysign": _call("copysign"),
    "isnan": lambda op, a: f"as_mask({a} != {a})",
    "isinf": lambda op, a: f"as_mask(absolute({a}) == {literal(math.inf, op.args[0].dtype)})",
    "signbit": lambda op, a: f"as_mask(signbit({a}))",
    "bitwise_and": _binary("&"),
    "bitwise_or": _binary("|"),
    "bitwise_xor": _binary("^"),
    "bitwise_not": lambda op, a: wrapped(f"(~{a})", op.dtype),
    "shl": _shift("vshl"),
    "shr": _shift("vshr"),
    "eq": _compare("eq", "=="),
    "ne": _compare("ne", "!="),
    "lt": _compare("lt", "<"),
    "le": _compare("le", "<="),
    "gt": _compare("gt", ">"),
    "ge": _compare("ge", ">="),
    "logical_and": _logic("&"),
    "logical_or": _logic("|"),
    "logical_xor": _logic("^"),
    "logical_not": lambda op, a: f"(~{truth(op.args[0], a)})",
    "to_dtype": _convert,
    "round_to": lambda op, x: _round_to(op, x),
    "round_coarse": lambda op, x: f"widen_bf16<N>(narrow_bf16_coarse<N>({x}))",
    "bitcast": lambda op, x: f"bits<{vector_type(op.dtype)}>({x})",
    "where": _where,
    "constant": lambda op: f"splat<{vector_type(op.dtype)}>({literal(op.args[0], op.dtype)})",
}
for _name in (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erf1p normal_cdf normal_cdf_coarse erfc sigmoid floor ceil trunc lgamma atan2 hypot nextafter"
).split():
    TEXT[_name] = _call(_name + "_")

EXPENSIVE = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erf1p normal_cdf normal_cdf_coarse "  # noqa: E501
    "erfc sigmoid pow "
    "lgamma atan2 hypot nextafter floordiv remainder fmod truncdiv".split()
)
"""Ops that cost tens of instructions: loops with one of them are not unrolled, and count more when work is divided."""

MEMORY_OPS = frozenset({"load", "store", "indirect", "check", "index_expr", "reduction", "scan", "item"})


def can_write(op: str, dtype: torch.dtype) -> str | None:
    """None when `op` ("reduction:kind" and "scan:kind" too) can be written for `dtype`, else the reason."""
    if dtype not in ELEMENT:
        return f"the C++ target has no values of {dtype}"
    base = op.split(":")[0]
    if base in MEMORY_OPS or base in TEXT:
        if base == "bitcast" and dtype in _NARROW:
            return f"bitcast to {dtype} is not written for lanes of 32 bits"
        return None
    return f"the C++ target has no {op}"
