"""Pointwise kernels with expensive functions of expensive functions, computed in stages.

A processor looks ahead over some hundred instructions. Two functions of forty instructions, one needing the other's
result, leave no room for the next vector in there, and what one waits for is not hidden by another. So a piece of
memory that stays in the first cache goes through one function after the other: each stage is a short loop whose vectors
do not depend on each other. What later stages need is kept in arrays of vectors on the stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..ops import Op
from .cpp_index import Value
from .cpp_ops import EXPENSIVE, vector_type
from .kernel import LoopVar, Phase

if TYPE_CHECKING:
    from .cpp_kernel import KernelWriter

PIECE = 512
"""Elements that go through all stages before the next ones."""
_MOST_KEPT = 6  # arrays between stages
_LEAST = 4  # pieces that a loop must have


def plan_stages(w: KernelWriter, phase: Phase, vec: LoopVar, done: set[Op]) -> list[list[Op]]:
    """The ops of each stage; empty where one loop is the better code. `done`: ops that are computed before the loop."""
    heavy = [op for op in phase.ops if op.name in EXPENSIVE and op not in done]
    if len(heavy) < 2 or phase.loops or w.lanes < 8 or vec.size.lo < _LEAST * PIECE:
        return []
    if any(op.dtype is not torch.float32 for op in heavy) or not _is_chain(heavy):
        return []
    for op in phase.ops:
        if op.name in ("check", "indirect", "scan", "reduction", "item"):
            return []
        if op.name == "store" and op.args[3] is not None or op.name in ("load", "store") and op in w.tiles:
            return []
    stages: list[list[Op]] = [[]]
    last: list[Op] = []  # stores come at the end: they may lie over what is loaded
    taken = 0
    for op in phase.ops:
        if op in done:
            continue
        if op.name == "store":
            last.append(op)
            continue
        if op.name in EXPENSIVE:
            if taken:
                stages.append([])
            taken = 1
        stages[-1].append(op)
    stages[-1] += last
    return stages if len({op for k in range(1, len(stages)) for op in _kept(stages, k)}) <= _MOST_KEPT else []


def _is_chain(heavy: list[Op]) -> bool:
    """Does one of the functions wait for another? Those that do not already run side by side."""
    found: set[Op] = set(heavy)
    for op in heavy:
        seen: set[Op] = set()
        below = op.operands()
        while below:
            if any(a in found for a in below):
                return True
            seen.update(below)
            below = list({b for a in below for b in a.operands()} - seen)
    return False


def _can_repeat(op: Op) -> bool:
    """Loads and numbers are written again in each stage that uses them."""
    return op.name in ("constant", "index_expr") or op.name == "load" and op.args[2] is None


def _wanted(stage: list[Op]) -> list[Op]:
    """Operands from before a stage, in order of use; with what they need themselves if they are written again."""
    own = set(stage)
    return [a for a in dict.fromkeys(a for op in stage for a in op.operands()) if a not in own]


def _kept(stages: list[list[Op]], number: int) -> list[Op]:
    """Values that stage `number` takes from earlier stages."""
    before = {op for stage in stages[:number] for op in stage}
    return [a for a in _wanted(stages[number]) if a in before and not _can_repeat(a)]


def write_stages(w: KernelWriter, stages: list[list[Op]], vec: LoopVar, start: str, stop: str) -> None:
    """Writes the loops over [start, stop) of the vectorised loop."""
    kept = list(dict.fromkeys(op for k in range(1, len(stages)) for op in _kept(stages, k)))
    places = {op: f"kept{k}_" for k, op in enumerate(kept)}
    for op, name in places.items():
        w.put(f"{vector_type(op.dtype)} {name}[{PIECE} / N];")
    w.open(f"for (i64 piece_ = {start}, end_; piece_ < {stop}; piece_ = end_)")
    w.put(f"end_ = imin(piece_ + {PIECE}, {stop});")
    outer = dict(w.values)
    at = f"[({vec.name} - piece_) / N]"
    for number, stage in enumerate(stages):
        w.values = dict(outer)
        w.open(f"vloop<N>(piece_, end_, [&](i64 {vec.name}, auto c) __attribute__((always_inline))")
        for a in _wanted(stage):
            if a in w.values:
                continue
            if a in places:
                name = f"{places[a]}v"
                w.put(f"const {vector_type(a.dtype)} {name} = {places[a]}{at};")
                w.values[a] = Value(name, "one")  # not to be taken apart: what it was made of is gone
            else:
                w._emit(a, lanes="c", base=vec.name, accs={}, leave="return;")
        for op in stage:
            w._emit(op, lanes="c", base=vec.name, accs={}, leave="return;")
        later = {a for k in range(number + 1, len(stages)) for a in _kept(stages, k)}
        for op in stage:
            if op in places and op in later:
                w.put(f"{places[op]}{at} = {w.values[op].text};")
        w.close("});")
    w.values = outer
    w.close()


__all__ = ["PIECE", "plan_stages", "write_stages"]
