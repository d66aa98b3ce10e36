"""The loop-level ops: the one protocol that lowerings write, the scheduler moves and every target implements.

Each op works on *one element* (one iteration of the loops around it). `TABLE` lists all of them; a target must handle
every row of the categories ``memory``, ``value``, ``convert``, ``arith``, ``float``, ``bits``, ``logic``, ``reduce``
and may say no to rows that are marked optional (`OpDef.optional`): the compiler then keeps the ATen op.

An `Op` is one SSA value: ``Op.args`` holds other Ops, index expressions (`lamina_inductor.index.Expr`), Python
numbers, strings,
``torch.dtype`` or None. ``Op.dtype`` is the dtype of the value and the dtype the op *computes in*:

* There are no float16/bfloat16/float8 values (`NARROW`). ``load`` from such a buffer yields float32, ``store`` into one
  rounds to nearest
  even; `round_to` rounds a float32 value in between where the program asked for it.
* int8, int16, uint8, ... wrap around in their own dtype. bool is a value of its own (bitwise ops on it are logical).
* Comparison and logic ops yield bool. ``maximum``/``minimum`` and the max/min reductions propagate NaN.
* Integer ``//`` and ``%`` by zero must not trap; a `check` op reports the error where eager raises one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .index import Expr


@dataclass(frozen=True)
class OpDef:
    """One row of the table. `arity` counts the value operands. `result` says how the dtype follows from them:
    "same" (as the first operand), "bool", "given" (stated by the maker), "second" (as operand 1)."""

    name: str
    arity: int
    category: str
    result: str
    doc: str
    optional: bool = False


def _rows() -> list[OpDef]:
    rows = [
        OpDef("load", 0, "memory", "given", "load(buffer, index, mask): element; 0 where mask is false"),
        OpDef("store", 1, "memory", "same", "store(buffer, index, value, mode, mask): mode None|add|mul|min|max"),
        OpDef("indirect", 1, "memory", "given", "indirect(value, symbol): int64 that indices call `symbol`"),
        OpDef("check", 1, "memory", "bool", "check(condition, message, kind, mask): raise if false"),
        OpDef("constant", 0, "value", "given", "constant(number): bool, int or float (inf and nan too)"),
        OpDef("index_expr", 0, "value", "given", "index_expr(expr): value of an index expression"),
        OpDef("to_dtype", 1, "convert", "given", "to_dtype(x): C conversion to the op's dtype; x != 0 for bool"),
        OpDef("round_to", 1, "convert", "same", "round_to(x, dtype): float32 x rounded to values of a narrow dtype"),
        OpDef("bitcast", 1, "convert", "given", "bitcast(x): same bits as another dtype of equal size"),
        OpDef("where", 3, "logic", "second", "where(c, a, b): a if c else b"),
        OpDef("reduction", 1, "reduce", "given", "reduction(value, kind, index): over the loops; see REDUCTIONS"),
        OpDef("scan", 1, "reduce", "given", "scan(value, kind, index): inclusive, along the scan loop; see SCANS"),
        OpDef("item", 1, "reduce", "given", "item(op, k): result k of an op with several results"),
    ]
    for name, doc in {
        "add": "a + b", "sub": "a - b", "mul": "a * b", "truediv": "float a / b",
        "floordiv": "floor(a / b) as Python and torch.floor_divide", "truncdiv": "a / b towards zero (integers)",
        "remainder": "a - b * floor(a / b): sign of b (as torch.remainder)", "fmod": "sign of a (as C fmod)",
        "maximum": "larger; NaN wins", "minimum": "smaller; NaN wins",
    }.items():
        rows.append(OpDef(name, 2, "arith", "same", doc))
    for name, doc in {
        "neg": "-a", "abs": "|a| (wraps for the smallest integer)", "sign": "-1, 0, 1; 0 for NaN (as eager)",
        "square": "a * a",
    }.items():
        rows.append(OpDef(name, 1, "arith", "same", doc))
    rows.append(OpDef("fma", 3, "arith", "same", "a * b + c; whether it is rounded once is up to the target"))
    for name in (
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh "
        "asinh acosh atanh erf erfc sigmoid floor ceil trunc round"
    ).split():
        rows.append(OpDef(name, 1, "float", "same", "half to even" if name == "round" else name))
    for name in "lgamma digamma erfinv i0 i0e i1 i1e ndtri bessel_j0 bessel_j1".split():
        rows.append(OpDef(name, 1, "float", "same", name, optional=True))
    for name in "pow atan2 hypot copysign nextafter".split():
        doc = "integers: wraps around, negative powers 0 or +-1" if name == "pow" else name
        rows.append(OpDef(name, 2, "float", "same", doc))
    for name in ("isnan", "isinf", "signbit"):
        rows.append(OpDef(name, 1, "float", "bool", name))
    for name in "bitwise_and bitwise_or bitwise_xor shl shr".split():
        rows.append(OpDef(name, 2, "bits", "same", "arithmetic shift for signed dtypes" if name == "shr" else name))
    rows.append(OpDef("bitwise_not", 1, "bits", "same", "~a; logical for bool"))
    for name in "eq ne lt le gt ge logical_and logical_or logical_xor".split():
        rows.append(OpDef(name, 2, "logic", "bool", name))
    rows.append(OpDef("logical_not", 1, "logic", "bool", "a == 0"))
    return rows


TABLE: dict[str, OpDef] = {row.name: row for row in _rows()}

REDUCTIONS: dict[str, str] = {
    "sum": "one result; narrow integers and bool are converted before; float32 pairwise or in blocks",
    "prod": "one result",
    "max": "one result; NaN wins",
    "min": "one result; NaN wins",
    "any": "bool: value != 0 anywhere",
    "all": "bool: value != 0 everywhere",
    "xor": "one result, exclusive or",
    "argmax": "int64: `index` (an int64 Op) of the largest value; the first of equals; the first NaN wins",
    "argmin": "int64: `index` of the smallest value; same rules",
    "max_with_index": "two results: as max, as argmax",
    "min_with_index": "two results: as min, as argmin",
    "welford": "three results: mean, sum of squared deviations (m2), number of elements (all in the op's dtype)",
    "softmax_stats": "two results: max m, and sum of exp(value - m); one pass",
}

SCANS: dict[str, str] = {
    "sum": "running sum",
    "prod": "running product",
    "cummax": "two results: running maximum (last of equals, NaN stays) and its int64 `index`",
    "cummin": "two results: running minimum and its int64 `index`",
    "logcumsumexp": "running log(sum(exp))",
}

MULTI_RESULT: dict[str, int] = {
    "max_with_index": 2,
    "min_with_index": 2,
    "welford": 3,
    "softmax_stats": 2,
    "cummax": 2,
    "cummin": 2,
}


class Op:
    """One SSA value (or effect) of a body. Compared by identity; immutable after its making."""

    __slots__ = ("name", "args", "dtype")

    def __init__(self, name: str, args: tuple, dtype: torch.dtype) -> None:
        self.name = name
        self.args = args
        self.dtype = dtype

    def operands(self) -> list[Op]:
        """The Ops among the arguments, in order (masks included)."""
        return [a for a in self.args if isinstance(a, Op)]

    def exprs(self) -> list[Expr]:
        """The index expressions among the arguments."""
        return [a for a in self.args if isinstance(a, Expr)]

    def __repr__(self) -> str:
        return f"<{self.name} {str(self.dtype).removeprefix('torch.')}>"


FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
NARROW = (torch.float16, torch.bfloat16, *FLOAT8)
"""Floating-point dtypes of memory whose values are float32 inside a kernel."""


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values of a buffer of `dtype` live inside a kernel."""
    return torch.float32 if dtype in NARROW else dtype


def is_number(a: Any) -> bool:
    """True for Python's bool, int and float."""
    return isinstance(a, (bool, int, float))
