"""Loads from places that lie neither next to each other nor at equal steps, where they can be had faster than lane by
lane: at places that a vector holds, and at places that are cut off at a border which most vectors never meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..index import Expr, coefficient, substitute, to_expr
from ..ops import Op
from .cpp_index import c_name, marked_index
from .cpp_ops import ELEMENT, LANE, vector_type

if TYPE_CHECKING:
    from .cpp_kernel import KernelWriter


def text_of_load(w: KernelWriter, op: Op, lanes: str, base: str | None) -> str | None:
    """C text of an unmasked load, or None."""
    return _at_places(w, op, lanes, base) or _up_to_a_border(w, op, lanes, base)


def _at_places(w: KernelWriter, op: Op, lanes: str, base: str | None) -> str | None:
    """``c * index + rest`` with one index that data decide."""

    e = op.args[1]
    found = [s for s in e.syms if s in w.symbols and base in w.deps[w.symbols[s]]]
    if len(found) != 1:
        return None
    index = w.symbols[found[0]].args[0]
    factor, rest = coefficient(e, found[0]), substitute(e, {found[0]: to_expr(0)})
    step = w._stride(rest, base)
    if factor is None or step is None or LANE[index.dtype] != "i64":
        return None
    i64 = "vec<i64, N>"
    at = w._text(index)
    if factor != 1:
        at += f" * i64({marked_index(factor, w._names(base, None, factor))})"
    if step != 0:
        at += f" + iota<{i64}>() * i64({marked_index(step, w._names(base, None, step))})"
    start = f"{c_name(op.args[0])} + {marked_index(rest, w._names(base, None, rest))}"
    return f"load_at<{vector_type(op.dtype)}>({start}, {i64}({at}), {lanes})"


def _up_to_a_border(w: KernelWriter, op: Op, lanes: str, base: str | None) -> str | None:
    """One ``max(0, min(size - 1, i))`` whose inside moves by equal steps: if it cuts off neither the first nor the last
    lane, it cuts off none."""

    e = op.args[1]
    if base is None or any(s in w.symbols for s in e.syms):
        return None
    cut: list[Expr] = []
    free = _without_border(e, base, cut)
    step = w._stride(free, base) if len(cut) == 1 else None
    if step is None:
        return None
    t, p = ELEMENT[w.spec.buffer(op.args[0]).dtype], c_name(op.args[0])
    each = f"[&](int k) {{ return {p} + {marked_index(e, w._names(base, 'k', e))}; }}"
    start = f"{p} + {marked_index(free, w._names(base, None, free))}"
    stride = marked_index(step, w._names(base, None, step))
    return f"load_inside<{vector_type(op.dtype)}, {t}>({each}, {start}, {stride}, {lanes})"


def _without_border(e: Expr, base: str, cut: list[Expr]) -> Expr:
    """`e` with the outermost bounds on what depends on the loop taken away; `cut` gets them."""
    if base not in e.syms or e.op == "sym":
        return e
    if e.op in ("min", "max"):
        cut.append(e)
        return _inside(e, base)
    if e.op == "add":
        total = to_expr(0)
        for a in e.args:
            total = total + _without_border(a, base, cut)
        return total
    if e.op == "mul":
        result = to_expr(1)
        for a in e.args:
            result = result * _without_border(a, base, cut)
        return result
    return e


def _inside(e: Expr, base: str) -> Expr:
    while e.op in ("min", "max"):
        a, b = e.args
        if (base in a.syms) == (base in b.syms):
            return e
        e = a if base in a.syms else b
    return e


__all__ = ["text_of_load"]
