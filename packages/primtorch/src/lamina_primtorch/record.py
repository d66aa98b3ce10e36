"""Recording: while a ``Recorder`` is active, calling a prim appends a row instead of computing. Rows become FX nodes
at the end.

Equal rows are made once (common subexpressions), rows nobody needs are never made into nodes; random rows are neither
merged nor dropped.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from .spec import STATE, Prim, TensorMeta
from .value import Value

_ATOMS = (int, float, bool, str, type(None), torch.dtype, torch.device)


class Row:
    """One call in the graph being made."""

    __slots__ = ("target", "args", "kwargs", "source", "node", "live", "keep", "meta", "op")

    def __init__(
        self, target: Any, args: tuple, kwargs: dict, source: Any, keep: bool = False, op: str = "call_function"
    ) -> None:
        self.target = target
        self.args = args
        self.kwargs = kwargs
        self.source = source
        self.node: Any = None
        self.live = False
        self.keep = keep
        self.meta: Any = None
        self.op = op


class Opaque:
    """A result that is neither a strided tensor nor a number (or has no metadata): passed on untouched."""

    __slots__ = ("row",)

    def __init__(self, row: Row) -> None:
        self.row = row


class Unkeyed(Exception):
    """Private: the arguments cannot be compared, so the call is not merged with others."""


def _key(x: Any) -> Any:
    t = type(x)
    if t is Value or t is Opaque:
        return ("v", id(x))
    if t is tuple or t is list:
        return tuple([_key(y) for y in x])
    if t is float:
        return (float, x, str(x)) if x == 0.0 or x != x else (float, x)
    if t is int or t is bool:
        return (t, x)
    if t in (torch.SymInt, torch.SymFloat, torch.SymBool):
        return (t, x.node.expr)
    if t is dict:
        return tuple([(k, _key(v)) for k, v in x.items()])
    if isinstance(x, (*_ATOMS, torch.layout, torch.memory_format, complex)):
        return x
    raise Unkeyed


class Recorder:
    """Collects rows. Use as a context manager; ``source`` is the FX node whose decomposition is being recorded."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.seen: dict[Any, Any] = {}
        self.symbols: dict[Any, Row] = {}
        self.source: Any = None
        self._previous: Any = None

    def __enter__(self) -> Recorder:
        self._previous = STATE.recorder
        STATE.recorder = self
        return self

    def __exit__(self, *_: Any) -> None:
        STATE.recorder = self._previous

    def emit(self, prim: Prim, args: tuple, kwargs: dict) -> Any:
        """Record one prim call; the result's metadata comes from the prim's meta function."""
        key = None
        if not prim.is_random:
            try:
                key = (prim, _key(args), _key(kwargs)) if kwargs else (prim, _key(args))
                found = self.seen.get(key)
                if found is not None:
                    return found
            except Unkeyed:
                key = None
        return self.add(prim, args, kwargs, prim.meta(*args, **kwargs), prim.is_random, key)

    def add(self, target: Any, args: tuple, kwargs: dict, meta: Any, keep: bool, key: Any = None) -> Any:
        """Append a row with known metadata: TensorMeta, a tuple of them, or anything else for an opaque result."""
        row = Row(target, args, kwargs, self.source, keep)
        self.rows.append(row)
        out = self.result(row, meta)
        if key is not None:
            self.seen[key] = out
        return out

    def result(self, row: Row, meta: Any) -> Any:
        t = type(meta)
        if t is TensorMeta:
            row.meta = out = Value(meta.shape, meta.stride, meta.dtype, meta.device, row)
            return out
        if t is tuple or t is list:
            parts = []
            for k, m in enumerate(meta):
                if m is None:
                    parts.append(None)
                    continue
                item = Row(operator.getitem, (row, k), {}, self.source)
                self.rows.append(item)
                parts.append(self.result(item, m))
            row.meta = t([p if type(p) is not Opaque else p.row.meta for p in parts])
            return t(parts)
        row.meta = meta
        if isinstance(meta, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            # A size read off a tensor may be an argument of what makes it: only plain symbols are taken from there.
            if meta.node.expr.is_Symbol or row.op != "call_function" or not str(row.target).startswith("aten.sym_"):
                self.symbols.setdefault(meta.node.expr, row)
            return meta
        return Opaque(row)
