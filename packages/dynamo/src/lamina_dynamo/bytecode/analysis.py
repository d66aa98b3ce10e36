"""Data flow over decoded instructions: which locals are still read after a point, and which targets are loops."""

from __future__ import annotations

from types import CodeType

from . import versions as v
from .instruction import Instruction, decode, local_names

_READS = {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST", "LOAD_CLOSURE", "LOAD_DEREF",
          "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "STORE_DEREF", "DELETE_DEREF"}  # fmt: skip


def _effects(inst: Instruction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names read and names overwritten by ``inst`` (reads happen first)."""
    name = inst.opname
    if name == "STORE_FAST":
        return (), (inst.argval,)
    if name in _READS:
        return (inst.argval,), ()
    return (), ()


_live: dict[int, tuple[CodeType, list[int], dict[str, int]]] = {}


def live_locals(code: CodeType, index: int) -> set[str]:
    """Locals and cells that some path from instruction ``index`` on still reads."""
    cached = _live.get(id(code))
    if cached is None or cached[0] is not code:
        bits = {name: 1 << i for i, name in enumerate(dict.fromkeys(local_names(code)))}
        cached = _live[id(code)] = (code, _solve(decode(code), bits), bits)
        if len(_live) > 512:
            _live.pop(next(iter(_live)))
    _, live, bits = cached
    mask = live[index] if index < len(live) else 0
    return {name for name, bit in bits.items() if mask & bit}


def _solve(instructions: list[Instruction], bits: dict[str, int]) -> list[int]:
    n = len(instructions)
    reads, kills = [0] * n, [0] * n
    for i, inst in enumerate(instructions):
        r, k = _effects(inst)
        for name in r:
            reads[i] |= bits.get(name, 0)
        for name in k:
            kills[i] |= bits.get(name, 0)
    live = [0] * (n + 1)
    changed = True
    while changed:
        changed = False
        for i in range(n - 1, -1, -1):
            inst = instructions[i]
            after = 0 if inst.opname in v.TERMINATORS else live[i + 1]
            if inst.target is not None:
                after |= live[inst.target.index]
            now = reads[i] | (after & ~kills[i])
            if inst.exc is not None:
                now |= live[inst.exc.target.index]
            if now != live[i]:
                live[i] = now
                changed = True
    return live


def is_backward_target(instructions: list[Instruction], index: int) -> bool:
    """Is instruction ``index`` the head of a loop?"""
    return any(i.target is not None and i.target.index == index and i.index >= index for i in instructions)
