"""Loops around ops: the realised nodes of the loop-level IR, and the builder that traces their bodies.

A `LoopNode` computes one buffer (or several) in one nest of loops. Kinds:

* pointwise: outer loops only, one store per iteration (scatter: "serial" loops, stores with a mode);
* reduction: inner "reduction" loops; `body` runs inside them, `tail` once after them (it stores the results);
* scan: one inner "scan" loop; `body` stores.

Bodies are made define-by-run: a lowering gives a function ``inner(b, index) -> Op`` that is called with a `Builder`
and index expressions; calling a
producer's function inlines the producer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..codegen.kernel import LoopVar
from ..index import ZERO, Expr, IntLike, is_less, symbol, to_expr
from ..ops import MULTI_RESULT, NARROW, TABLE, Op, compute_dtype

Index = tuple[Expr, ...]
Inner = Callable[["Builder", Index], Op]


class Builder:
    """Collects ops of one body; equal pure ops are made once. Has one method per row of `lamina_inductor.ops.TABLE`."""

    def __init__(self, dtype_of: Callable[[str], torch.dtype], fresh: Callable[[], str]) -> None:
        self.ops: list[Op] = []
        self.dtype_of = dtype_of
        self.fresh = fresh
        self.mask: Op | None = None
        self._known: dict[tuple, Op] = {}
        self.memo: dict[tuple, Op] = {}

    def emit(self, name: str, args: tuple, dtype: torch.dtype) -> Op:
        """The op with these arguments; an equal earlier one when there is one."""
        key = (name, args, dtype)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Op(name, args, dtype)
            self.ops.append(found)
        return found

    def next_phase(self) -> list[Op]:
        """Ends the current phase and returns its ops; later ops go to a new list."""
        done, self.ops = self.ops, []
        self._known.clear()
        self.memo.clear()
        return done

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Op:
        """`value` in `dtype` (float16/bfloat16: rounded, as float32)."""
        wanted = compute_dtype(dtype)
        if dtype == torch.bool:
            value = bool(value)
        elif dtype.is_floating_point:
            value = (
                float(torch.tensor(float(value), dtype=torch.float64).to(dtype).to(torch.float64))
                if (dtype != torch.float64)
                else float(value)
            )
        else:
            value = wrap_integer(int(value), dtype)
        key = ("constant", repr(value), wanted)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Op("constant", (value,), wanted)
            self.ops.append(found)
        return found

    def index_expr(self, e: IntLike, dtype: torch.dtype = torch.int64) -> Op:
        """Value of an index expression."""
        e = to_expr(e)
        if e.is_const:
            return self.constant(int(e), dtype)
        return self.emit("index_expr", (e,), compute_dtype(dtype))

    def load(self, buffer: str, index: IntLike) -> Op:
        """An element of a buffer, under the current mask."""
        return self.emit("load", (buffer, to_expr(index), self.mask), compute_dtype(self.dtype_of(buffer)))

    def store(self, buffer: str, index: IntLike, value: Op, mode: str | None = None) -> Op:
        """Write an element."""
        value = self.to_dtype(value, compute_dtype(self.dtype_of(buffer)))
        op = Op("store", (buffer, to_expr(index), value, mode, self.mask), value.dtype)
        self.ops.append(op)
        return op

    def to_dtype(self, x: Op, dtype: torch.dtype) -> Op:
        """Conversion; nothing when the dtype is the same. To a narrow dtype: rounds, stays float32."""
        if dtype in NARROW:
            x = x if x.dtype == torch.float32 else self.emit("to_dtype", (x,), torch.float32)
            return self.round_to(x, dtype)
        return x if x.dtype == dtype else self.emit("to_dtype", (x,), dtype)

    def round_to(self, x: Op, dtype: torch.dtype) -> Op:
        """float32 `x` rounded to `dtype`; nothing when it is known to be rounded already."""
        if x.name == "round_to" and x.args[1] == dtype:
            return x
        if x.name == "load" and self.dtype_of(x.args[0]) == dtype:
            return x
        return self.emit("round_to", (x, dtype), torch.float32)

    def where(self, c: Op, a: Op, b: Op) -> Op:
        """a if c else b"""
        return a if a is b else self.emit("where", (c, a, b), a.dtype)

    def masked(self, condition: Op, body: Callable[[], Op], other: bool | int | float) -> Op:
        """body() where `condition` holds, `other` elsewhere; loads in body touch no memory elsewhere."""
        before = self.mask
        self.mask = condition if before is None else self.emit("logical_and", (before, condition), torch.bool)
        try:
            value = body()
        finally:
            self.mask = before
        constant = self.constant(other, value.dtype)
        return self.where(condition, value, constant)

    def checked_index(
        self, value: Op, size: IntLike, message: str, *, wrap: bool = True, kind: str = "IndexError"
    ) -> Expr:
        """Expr for a data-dependent index in [-size, size) (or [0, size)), checked, negative values wrapped."""
        size = to_expr(size)
        known = position_of(value)
        if known is not None and known.lo >= 0 and is_less(known, size):
            return known
        value = self.to_dtype(value, torch.int64)
        limit = self.index_expr(size)
        zero = self.constant(0, torch.int64)
        if wrap:
            negative = self.emit("lt", (value, zero), torch.bool)
            value = self.where(negative, self.emit("add", (value, limit), torch.int64), value)
        inside = self.emit(
            "logical_and",
            (self.emit("ge", (value, zero), torch.bool), self.emit("lt", (value, limit), torch.bool)),
            torch.bool,
        )
        self.emit("check", (inside, message, kind, self.mask), torch.bool)
        return self.indirect(value, size)

    def indirect(self, value: Op, size: IntLike) -> Expr:
        """An index expression that stands for an int64 value known to lie in [0, size)."""
        for op in self.ops:
            if op.name == "indirect" and op.args[0] is value:
                return symbol(op.args[1], size)
        name = self.fresh()
        self.emit("indirect", (value, name), torch.int64)
        return symbol(name, size)

    def reduction(self, value: Op, kind: str, index: Op | None, dtype: torch.dtype) -> list[Op]:
        """The results of a reduction over the inner loops (usable in the tail)."""
        op = self.emit("reduction", (value, kind, index), dtype)
        return self._results(op, kind)

    def scan(self, value: Op, kind: str, index: Op | None, dtype: torch.dtype) -> list[Op]:
        """The results of a scan along the inner loop."""
        return self._results(self.emit("scan", (value, kind, index), dtype), kind)

    def _results(self, op: Op, kind: str) -> list[Op]:
        if kind not in MULTI_RESULT:
            return [op]
        indexed = kind.endswith("with_index") or kind in ("cummax", "cummin")
        dtypes = [torch.int64 if indexed and k == 1 else op.dtype for k in range(MULTI_RESULT[kind])]
        return [self.emit("item", (op, k), d) for k, d in enumerate(dtypes)]


def _method(name: str, arity: int, result: str) -> Callable[..., Op]:
    def method(self: Builder, *args: Any) -> Op:
        if len(args) != arity:
            raise TypeError(f"{name} takes {arity} operands, not {len(args)}")
        dtype = torch.bool if result == "bool" else args[0].dtype
        return self.emit(name, args, dtype)

    method.__name__ = name
    method.__doc__ = TABLE[name].doc
    return method


for _row in TABLE.values():
    if not hasattr(Builder, _row.name) and _row.result in ("same", "bool") and _row.category != "memory":
        setattr(Builder, _row.name, _method(_row.name, _row.arity, _row.result))


def position_of(value: Op) -> Expr | None:
    """The index expression that an integer value is; None for one read from memory or computed."""
    while value.name == "to_dtype" and value.args[0].dtype in (torch.int64, torch.int32) and value.dtype == torch.int64:
        value = value.args[0]
    if value.dtype not in (torch.int64, torch.int32):
        return None
    if value.name == "constant":
        return to_expr(int(value.args[0]))
    return value.args[0] if value.name == "index_expr" else None


def wrap_integer(value: int, dtype: torch.dtype) -> int:
    """`value` modulo 2**bits, in the range of `dtype`."""
    info = torch.iinfo(dtype)
    return (value - info.min) % (1 << info.bits) + info.min


@dataclass(eq=False)
class LoopNode:
    """One realised computation. `index` is its place in the graph's order, `origins` the graph nodes in it.

    `updates`: it changes a buffer that earlier nodes have written (scatter). Otherwise, several nodes that write one
    buffer write different parts of it (concatenation)."""

    index: int
    outer: tuple[LoopVar, ...]
    inner: tuple[LoopVar, ...]
    body: list[Op]
    tail: list[Op]
    origins: tuple[str, ...] = ()
    updates: bool = False
    reads: dict[str, list[Op]] = field(default_factory=dict)
    writes: dict[str, list[Op]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for op in (*self.body, *self.tail):
            if op.name == "load":
                self.reads.setdefault(op.args[0], []).append(op)
            elif op.name == "store":
                self.writes.setdefault(op.args[0], []).append(op)

    @property
    def kind(self) -> str:
        """ "pointwise", "reduction" or "scan"."""
        return self.inner[0].kind if self.inner else "pointwise"


def loop_vars(prefix: str, sizes: Sequence[IntLike], kind: str) -> tuple[LoopVar, ...]:
    """Loop variables ``<prefix>0, <prefix>1, ...`` of the given sizes."""
    return tuple(LoopVar(f"{prefix}{k}", to_expr(s), kind) for k, s in enumerate(sizes))


def loop_index(v: LoopVar) -> Expr:
    """The index expression of a loop variable; 0 for a loop of size one."""
    return ZERO if v.size == 1 else symbol(v.name, v.size)
