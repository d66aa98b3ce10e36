"""How each loop-level op (`lamina_inductor.ops.TABLE`) is written in Triton: one row an op.

A row takes the texts of the operands and the op, and gives an expression. Values are typed blocks: float16 and
bfloat16 live as float32, bool as int1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch

from ..ops import Op, compute_dtype

TL_DTYPE = {
    torch.bool: "tl.int1", torch.int8: "tl.int8", torch.int16: "tl.int16", torch.int32: "tl.int32",
    torch.int64: "tl.int64",
    torch.uint8: "tl.uint8", torch.uint16: "tl.uint16", torch.uint32: "tl.uint32", torch.uint64: "tl.uint64",
    torch.float16: "tl.float16", torch.bfloat16: "tl.bfloat16", torch.float32: "tl.float32",
    torch.float64: "tl.float64",
}  # fmt: skip

# Formats that kernels read and write as bytes: functions of `triton_math` convert them on every architecture, and as
# eager does (`saturates`).
BYTES = {torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2"}

# Triton's names of pointer types in a kernel's signature
POINTER = {
    torch.bool: "*i1", torch.int8: "*i8", torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64",
    torch.uint8: "*u8", torch.uint16: "*u16", torch.uint32: "*u32", torch.uint64: "*u64",
    torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.float64: "*fp64",
    torch.float8_e4m3fn: "*u8", torch.float8_e5m2: "*u8",
}  # fmt: skip

Row = Callable[..., str]


def from_memory(text: str, dtype: torch.dtype) -> str:
    """The value of an element of `dtype` as a kernel computes with it."""
    if dtype in BYTES:
        return f"lm.from_{BYTES[dtype]}({text})"
    return f"{text}.to({TL_DTYPE[compute_dtype(dtype)]})" if compute_dtype(dtype) != dtype else text


def to_memory(text: str, dtype: torch.dtype) -> str:
    """A float32 value as an element of a narrow `dtype`."""
    if dtype not in BYTES:
        return f"{text}.to({TL_DTYPE[dtype]})"
    return f"lm.to_{BYTES[dtype]}{'_saturated' if saturates(dtype) else ''}({text})"


@functools.cache
def saturates(dtype: torch.dtype) -> bool:
    """Whether this torch turns values beyond the largest float8_e4m3fn into that one, and not into NaN."""
    return dtype == torch.float8_e4m3fn and bool(torch.tensor(1e9).to(dtype).to(torch.float32).isfinite())


def _is_float(op: Op) -> bool:
    return op.dtype.is_floating_point


def literal(value: bool | int | float) -> str:
    """A Python number as Triton source."""
    if isinstance(value, float):
        if math.isnan(value):
            return "float('nan')"
        if math.isinf(value):
            return "float('inf')" if value > 0 else "float('-inf')"
    return repr(value)


def _operand(op: Op, k: int = 0) -> Op:
    return op.operands()[k]


def _to_dtype(op: Op, x: str) -> str:
    source = _operand(op).dtype
    if op.dtype == source:
        return x
    if op.dtype == torch.bool:
        return f"({x} != 0)"
    if op.dtype in (torch.uint8, torch.uint16, torch.uint32) and source.is_floating_point:
        return f"{x}.to(tl.int64).to({TL_DTYPE[op.dtype]})"  # negative floats wrap, as eager has it
    return f"{x}.to({TL_DTYPE[op.dtype]})"


def _by_kind(for_float: str, for_int: str) -> Row:
    return lambda op, *a: (for_float if _is_float(op) else for_int).format(*a)


def _logic(symbol: str) -> Row:
    def row(op: Op, a: str, b: str) -> str:
        texts = [t if o.dtype == torch.bool else f"({t} != 0)" for t, o in zip((a, b), op.operands())]
        return f"({texts[0]} {symbol} {texts[1]})"

    return row


def _bool_arith(symbol: str, for_bool: str) -> Row:
    """+ and * of int1 blocks would wrap; as truth values they are | and &."""
    return lambda op, a, b: f"({a} {for_bool if op.dtype == torch.bool else symbol} {b})"


def _compare(symbol: str) -> Row:
    return lambda op, a, b: f"({a} {symbol} {b})"


def _minmax(name: str, for_bool: str) -> Row:
    def row(op: Op, a: str, b: str) -> str:
        if op.dtype == torch.bool:
            return f"({a} {for_bool} {b})"
        return f"lm.{name}({a}, {b})" if _is_float(op) else f"lm.{name}_int({a}, {b})"

    return row


def _pow(op: Op, a: str, b: str) -> str:
    if _is_float(op):
        return f"lm.pow({a}, {b})"
    raise KeyError("pow of integers")


def _float_function(name: str) -> Row:
    return lambda op, *a: f"lm.{name}({', '.join(a)})"


ROWS: dict[str, Row] = {
    "to_dtype": _to_dtype,
    "round_to": lambda op, x: from_memory(to_memory(x, op.args[1]), op.args[1]),
    "bitcast": lambda op, x: f"{x}.to({TL_DTYPE[op.dtype]}, bitcast=True)",
    "where": lambda op, c, a, b: f"tl.where({c}, {a}, {b})",
    "add": _bool_arith("+", "|"),
    "sub": lambda op, a, b: f"({a} {'^' if op.dtype == torch.bool else '-'} {b})",
    "mul": _bool_arith("*", "&"),
    "truediv": lambda op, a, b: f"lm.div({a}, {b})",
    "floordiv": _by_kind("lm.floordiv_float({0}, {1})", "lm.floordiv_int({0}, {1})"),
    "truncdiv": _by_kind("lm.trunc(lm.div({0}, {1}))", "({0} // {1})"),
    "remainder": _by_kind("lm.remainder_float({0}, {1})", "lm.remainder_int({0}, {1})"),
    "fmod": _by_kind("lm.fmod({0}, {1})", "({0} % {1})"),
    "maximum": _minmax("maximum", "|"),
    "minimum": _minmax("minimum", "&"),
    "neg": lambda op, x: f"(-{x})",
    "abs": lambda op, x: (
        f"tl.abs({x})" if _is_float(op) else x if not op.dtype.is_signed else f"tl.where({x} < 0, -{x}, {x})"
    ),
    "sign": lambda op, x: x if op.dtype == torch.bool else f"lm.sign({x})",
    "square": lambda op, x: f"({x} * {x})",
    "fma": lambda op, a, b, c: f"({a} * {b} + {c})",
    "sigmoid": lambda op, x: f"lm.logistic({x})",
    "reciprocal": _float_function("reciprocal"),
    "sqrt": _float_function("sqrt"),
    "round": _float_function("rint"),
    "pow": _pow,
    "isnan": lambda op, x: f"({x} != {x})",
    "isinf": lambda op, x: f"(tl.abs({x}) == float('inf'))",
    "signbit": lambda op, x: f"({x}.to({'tl.int64' if _operand(op).dtype == torch.float64 else 'tl.int32'}, "
    "bitcast=True) < 0)"
    if _operand(op).dtype.is_floating_point
    else f"({x} < 0)",
    "bitwise_and": _compare("&"), "bitwise_or": _compare("|"), "bitwise_xor": _compare("^"),
    "shl": _compare("<<"), "shr": _compare(">>"),
    "bitwise_not": lambda op, x: f"({x} == 0)" if op.dtype == torch.bool else f"(~{x})",
    "eq": _compare("=="), "ne": _compare("!="), "lt": _compare("<"), "le": _compare("<="),
    "gt": _compare(">"), "ge": _compare(">="),
    "logical_and": _logic("&"), "logical_or": _logic("|"), "logical_xor": _logic("^"),
    "logical_not": lambda op, x: f"({x} == 0)",
}  # fmt: skip
for _name in (
    "exp exp2 expm1 log log2 log10 log1p rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc floor ceil trunc "
    "atan2 hypot copysign nextafter lgamma erfinv i0 i1"
).split():
    ROWS[_name] = _float_function(_name)
ROWS["bessel_j0"], ROWS["bessel_j1"] = _float_function("j0"), _float_function("j1")

# the same in float32, where results are rounded to half precision anyway
QUICK_ROWS: dict[str, Row] = {
    "truediv": lambda op, a, b: f"lm.quick_div({a}, {b})",
    "sigmoid": lambda op, x: f"lm.quick_logistic({x})",
    "exp": lambda op, x: f"lm.quick_exp({x})",
}

# reduction kind -> (combine function of triton_math, neutral element by dtype)
COMBINE = {
    "sum": "plus", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "either", "all": "both",
    "xor": "exclusive_or",
    "argmax": "argmax", "argmin": "argmin", "max_with_index": "argmax", "min_with_index": "argmin",
}  # fmt: skip


def lowest(dtype: torch.dtype) -> bool | int | float:
    """The value that every other one is larger than or equal to."""
    if dtype == torch.bool:
        return False
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> bool | int | float:
    """The value that every other one is smaller than or equal to."""
    if dtype == torch.bool:
        return True
    return float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max


NEUTRAL: dict[str, Callable[[torch.dtype], bool | int | float]] = {
    "sum": lambda d: 0.0 if d.is_floating_point else 0,
    "prod": lambda d: 1.0 if d.is_floating_point else 1,
    "max": lowest, "argmax": lowest, "max_with_index": lowest, "cummax": lowest,
    "min": highest, "argmin": highest, "min_with_index": highest, "cummin": highest,
    "any": lambda d: False, "all": lambda d: True, "xor": lambda d: 0, "logcumsumexp": lowest,
}  # fmt: skip


def reason_against(name: str, dtype: torch.dtype) -> str | None:
    """None if op `name` (or "reduction:kind", "scan:kind") can be generated in `dtype`, otherwise why not."""
    if dtype.is_complex:
        return "complex values stay with ATen"
    if dtype in BYTES:
        return None if name in ("float8", "to_dtype") else f"{name} of {dtype}"
    if dtype not in TL_DTYPE:
        return f"Triton has no {dtype}"
    if ":" in name:
        what, kind = name.split(":", 1)
        if what == "reduction" and (kind in COMBINE or kind in ("welford", "softmax_stats")):
            return None
        if what == "scan" and kind in ("sum", "prod", "cummax", "cummin", "logcumsumexp"):
            return None
        return f"no {what} of kind {kind}"
    if name in ("product", "depthwise", "attention"):
        return None if dtype in (torch.float32, torch.bfloat16, torch.float16) else f"no {name} in {dtype}"
    if name in ("load", "store", "indirect", "check", "constant", "index_expr", "reduction", "scan", "item"):
        return None
    if name not in ROWS:
        return f"no Triton expression for {name}"
    if name == "pow" and not dtype.is_floating_point:
        return "integer powers stay with ATen"
    return None
