"""Merge the two passes of a softmax into one: ``m = max(v)`` followed by ``sum(exp(v - m))`` becomes
`softmax_stats(v)`.

Invariant: the returned kernel stores the same values (up to the rounding of a sum taken in another order). Worth it
where a row is too long to keep: each pass less is one reading
of the row less. The running form is that of Milakov and Gimelshein, 2018.
"""

from __future__ import annotations

from dataclasses import replace

from ..index import Expr
from ..ops import Op
from .kernel import KernelSpec, Phase


def _same(a: object, b: object) -> bool:
    """True if two values are computed by the same ops from the same loads."""
    if isinstance(a, Op) and isinstance(b, Op):
        if a is b:
            return True
        return (
            a.name == b.name
            and a.name not in ("reduction", "scan", "store", "item")
            and a.dtype == b.dtype
            and len(a.args) == len(b.args)
            and all(_same(x, y) for x, y in zip(a.args, b.args))
        )
    if isinstance(a, Expr) or isinstance(b, Expr):
        return a == b
    return type(a) is type(b) and a == b


def _find_pair(spec: KernelSpec) -> tuple[int, Op, int, Op] | None:
    """(phase, max reduction, later phase, sum reduction) of a softmax."""
    for i, first in enumerate(spec.phases):
        for top in first.ops:
            if top.name != "reduction" or top.args[1] != "max" or not top.dtype.is_floating_point:
                continue
            for j in range(i + 1, len(spec.phases)):
                second = spec.phases[j]
                if [(v.name, v.size) for v in second.loops] != [(v.name, v.size) for v in first.loops]:
                    continue
                for total in second.ops:
                    if total.name != "reduction" or total.args[1] != "sum" or total.dtype != top.dtype:
                        continue
                    exp = total.args[0]
                    if exp.name != "exp" or exp.args[0].name != "sub":
                        continue
                    value, maximum = exp.args[0].args[:2]
                    if maximum is top and _same(value, top.args[0]):
                        return i, top, j, total
    return None


def merge_softmax_stats(spec: KernelSpec) -> KernelSpec:
    """`spec` with every softmax's two reductions merged, where the second phase does nothing else that lasts."""
    found = _find_pair(spec)
    if found is None:
        return spec
    i, top, j, total = found
    for op in spec.phases[j].ops:
        if op.name == "reduction" and op is not total:
            return spec
        if op.name in ("scan", "check") or (op.name == "store" and spec.buffer(op.args[0]).role != "scratch"):
            return spec
    stats = Op("reduction", (top.args[0], "softmax_stats", None), top.dtype)
    new_top, new_total = Op("item", (stats, 0), top.dtype), Op("item", (stats, 1), top.dtype)
    swap: dict[Op, Op] = {top: new_top, total: new_total}

    def rebuild(op: Op) -> Op:
        done = swap.get(op)
        if done is None:
            args = tuple(rebuild(a) if isinstance(a, Op) else a for a in op.args)
            same = all(x is y for x, y in zip(args, op.args))
            done = swap[op] = op if same else Op(op.name, args, op.dtype)
        return done

    phases = []
    for k, phase in enumerate(spec.phases):
        if k == i:
            ops = [stats if op is top else rebuild(op) for op in phase.ops]
            ops += [new_top, new_total]
        elif k == j:
            # what later phases read through scratch memory is computed again there: keep the description, not the pass
            ops = [rebuild(op) for op in phase.ops if op is not total]
            if any(op.name == "store" for op in ops):
                phases.append(Phase(tuple(replace(v, kind="parallel") for v in phase.loops), tuple(ops)))
            continue
        else:
            ops = [rebuild(op) for op in phase.ops]
        phases.append(Phase(phase.loops, tuple(ops)))
    return merge_softmax_stats(
        KernelSpec(spec.name, spec.loops, tuple(phases), spec.buffers, spec.sizes, spec.device, spec.origins)
    )
