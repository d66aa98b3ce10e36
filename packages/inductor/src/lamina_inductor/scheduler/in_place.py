"""Writing a result over an operand that nobody reads afterwards.

A kernel that reads every element of a buffer just where it stores its result, and reads none of them later, can store
into the same memory: no fresh memory has to be touched, and what was just read is still in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..index import Expr
from ..ir.program import BufferDecl
from ..ops import Op


def choose_in_place(
    phases: Sequence[Sequence[Op]],
    buffers: Mapping[str, BufferDecl],
    dying: Mapping[str, int],
    taken: set[str],
    final: Callable[[Expr], Expr],
) -> tuple[str, str] | None:
    """(operand, result) of the most recent operand that the kernel may write its result over, or None.

    `phases`: the kernel's ops; `dying`: operand -> place of its last writer, for buffers that are dead behind the
    kernel; `taken`: results that get no memory. Invariant: every load of the operand comes before the store of the
    result and has the store's index.
    """
    loads: dict[str, list[tuple[int, int, Op]]] = {}
    stores: dict[str, list[tuple[int, int, Op]]] = {}
    for p, ops in enumerate(phases):
        for k, op in enumerate(ops):
            if op.name == "load" and op.args[0] in dying:
                loads.setdefault(op.args[0], []).append((p, k, op))
            elif op.name == "store":
                stores.setdefault(op.args[0], []).append((p, k, op))
    for x in sorted(loads, key=lambda x: -dying[x]):
        if x in stores:
            continue
        for y, written in stores.items():
            if y in taken or len(written) != 1 or not _same_memory(buffers[x], buffers[y]):
                continue
            p, k, store = written[0]
            if store.args[3] is not None or store.args[4] is not None or y in loads:
                continue
            where = final(store.args[1])
            if any(s.startswith("ind") for s in where.syms):
                continue
            if all((a, b) < (p, k) and o.args[2] is None and final(o.args[1]) == where for a, b, o in loads[x]):
                return x, y
    return None


def _same_memory(x: BufferDecl, y: BufferDecl) -> bool:
    a, b = x.layout, y.layout
    return a.dtype == b.dtype and a.span == b.span and a.offset == b.offset


FRESH = frozenset({
    "aten::convolution", "aten::convolution_backward", "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm",
    "mkldnn::_convolution_pointwise",
})  # fmt: skip
"""Extern ops whose results are always memory of their own. Others may hand out an operand without saying so."""


def last_uses(groups: Sequence[Any]) -> tuple[dict[str, int], dict[str, int]]:
    """(buffer -> position of the last group that reads or writes it, buffer of kernels and of `FRESH` ops -> position
    of its last writer)."""
    last: dict[str, int] = {}
    written: dict[str, int] = {}
    for k, g in enumerate(groups):
        writes = g.extern.writes if g.extern is not None else g.writes
        for x in (*g.reads, *writes):
            last[x] = k
        if g.extern is None or getattr(getattr(g.extern.target, "_schema", None), "name", "") in FRESH:
            for x in writes:
                written[x] = k
    return last, written


__all__ = ["choose_in_place", "last_uses"]
