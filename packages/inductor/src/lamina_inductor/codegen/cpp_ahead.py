"""Rows that are walked several times: while the last pass computes, the memory of the next row is fetched.

The first pass of a row waits for memory and the others for arithmetic, on a row that is in the cache by then; one after
the other, each leaves half of the machine idle. Hardware fetches ahead along a row, not from one row's end to the
pass that reads the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..index import Expr, coefficient
from ..ops import Op

if TYPE_CHECKING:
    from .cpp_kernel import KernelWriter

_SHORTEST, _LONGEST = 512, 1 << 17  # bytes of a row: below, the next one is on its way anyway; beyond, it would be lost


def find_ahead(w: KernelWriter) -> dict[Op, Expr]:
    """Loads of a row kernel that repeat a load of an earlier pass, in the last pass that does -> the step from this row
    to the next, in elements."""
    spec = w.spec
    rows = [v for v in spec.loops if v.kind == "parallel"][-1]
    first: dict[tuple[str, Expr], int] = {}
    last: dict[tuple[str, Expr], tuple[int, Op]] = {}
    for number, phase in enumerate(spec.phases):
        if not phase.loops:
            continue
        vec = w._phase_vector_loop(phase)
        for op in phase.ops:
            if op.name != "load" or op.args[2] is not None or spec.buffer(op.args[0]).role == "scratch":
                continue
            size = vec.size.hi * spec.buffer(op.args[0]).dtype.itemsize
            if any(s in w.symbols for s in op.args[1].syms) or coefficient(op.args[1], vec.name) != 1:
                continue
            if len(phase.loops) == 1 and _SHORTEST <= size <= _LONGEST:
                key = (op.args[0], op.args[1])
                first.setdefault(key, number)
                last[key] = (number, op)
    found = {}
    for key, (number, op) in last.items():
        step = coefficient(key[1], rows.name)
        if number > first[key] and step is not None and step != 0:
            found[op] = step
    return found


__all__ = ["find_ahead"]
