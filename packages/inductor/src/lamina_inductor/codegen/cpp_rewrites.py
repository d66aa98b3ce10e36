"""Rewrites of a kernel that only pay in C++.

Invariant: the stored values stay the same, up to the last bits of 1 + erf(x), and up to two hundredths of a unit of the
last place where such a value is rounded to bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from ..ops import Op
from .kernel import KernelSpec, Phase

_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
_INT32 = (1 << 31) - 1


def rewrite(spec: KernelSpec) -> KernelSpec:
    """`spec` with all rewrites done."""
    moved = _moved_type(spec)
    if moved is not None:
        spec = _as_integers(spec, moved)
    users: dict[Op, list[Op]] = {}
    for op in spec.ops():
        for a in op.operands():
            users.setdefault(a, []).append(op)
    narrow = _narrow_indices(spec, users)
    pairs = _erf_plus_one(spec, users)
    coarse = {op for op in pairs if _is_rounded(op, users)}
    normal = _normal_distributions(spec, users, pairs)
    rounds = {r for op in coarse & normal.keys() for r in _roundings(op, users)}
    if not narrow and not pairs:
        return spec

    def change(op: Op, new: Op) -> Op:
        if op in normal:
            x = new.args[pairs[op]].args[0].args[normal[op]]
            return Op("normal_cdf_coarse" if op in coarse else "normal_cdf", (x,), op.dtype)
        if op in pairs:
            return Op("erf1p", (new.args[pairs[op]].args[0],), op.dtype)
        if op.name == "mul" and any(a in normal for a in op.operands()):
            cdf, half = new.args if op.args[0] in normal else reversed(new.args)
            return Op("mul", (cdf.args[0], cdf), op.dtype) if half is not cdf else new
        if op in rounds:
            return Op("round_coarse", new.args, op.dtype)
        if op in narrow:
            return Op(op.name, op.args, torch.int32)
        if op.name in _COMPARISONS and any(a in narrow for a in op.operands()):
            return Op(op.name, tuple(_narrowed(a) for a in new.args), op.dtype)
        return new

    return _rebuild(spec, change)


_HALVES = (torch.bfloat16, torch.float16)
_MOVES = frozenset("load store where round_to neg abs constant".split())


def _moved_type(spec: KernelSpec) -> torch.dtype | None:
    """The 16-bit float type whose elements a kernel only moves (or changes the sign of): what has to be converted for
    arithmetic is not for that."""
    halves = {b.dtype for b in spec.buffers if b.dtype.is_floating_point}
    if len(halves) != 1 or (half := next(iter(halves))) not in _HALVES:
        return None
    for op in spec.ops():
        if not op.dtype.is_floating_point:
            if any(a.dtype.is_floating_point for a in op.operands()):
                return None
            continue
        if op.dtype is not torch.float32 or op.name not in _MOVES:
            return None
        if op.name == "round_to" and op.args[1] is not half or op.name == "store" and op.args[3] is not None:
            return None
        if op.name in ("load", "store") and spec.buffer(op.args[0]).dtype is not half:
            return None
        if op.name == "constant" and not _holds(half, op.args[0]):
            return None
    return half


def _holds(half: torch.dtype, value: float) -> bool:
    there = torch.tensor(value, dtype=half).item()
    return there == value or value != value


def _as_integers(spec: KernelSpec, half: torch.dtype) -> KernelSpec:
    swap: dict[Op, Op] = {}
    phases = []
    sign, rest = Op("constant", (-0x8000,), torch.int16), Op("constant", (0x7FFF,), torch.int16)
    for phase in spec.phases:
        ops: list[Op] = []
        for op in phase.ops:
            args = tuple(swap.get(a, a) if isinstance(a, Op) else a for a in op.args)
            if op.name == "round_to":
                swap[op] = args[0]
                continue
            if not op.dtype.is_floating_point:
                new = op if all(x is y for x, y in zip(args, op.args, strict=True)) else Op(op.name, args, op.dtype)
            elif op.name == "constant":
                bits = torch.tensor(float(op.args[0]), dtype=half).view(torch.int16).item()
                new = Op("constant", (bits,), torch.int16)
            elif op.name in ("neg", "abs"):
                mask = sign if op.name == "neg" else rest
                if mask not in ops:
                    ops.append(mask)
                new = Op("bitwise_xor" if op.name == "neg" else "bitwise_and", (args[0], mask), torch.int16)
            else:
                new = Op(op.name, args, torch.int16)
            ops.append(new)
            swap[op] = new
        phases.append(Phase(phase.loops, tuple(ops)))
    buffers = tuple(replace(b, dtype=torch.int16) if b.dtype is half else b for b in spec.buffers)
    return replace(spec, phases=tuple(phases), buffers=buffers, _cache={})


def _narrowed(a: Op) -> Op:
    return a if a.dtype is torch.int32 else Op("constant", a.args, torch.int32)


def _rebuild(spec: KernelSpec, change: Callable[[Op, Op], Op]) -> KernelSpec:
    swap: dict[Op, Op] = {}
    phases = []
    for phase in spec.phases:
        ops: list[Op] = []
        for op in phase.ops:
            args = tuple(swap.get(a, a) if isinstance(a, Op) else a for a in op.args)
            same = all(x is y for x, y in zip(args, op.args, strict=True))
            new = change(op, op if same else Op(op.name, args, op.dtype))
            known = set(ops)
            ops += [a for a in new.operands() if a.name == "constant" and a not in known and a not in swap.values()]
            ops.append(new)
            swap[op] = new
        phases.append(Phase(phase.loops, tuple(ops)))
    pure = ("constant", "erf", "mul")
    while True:
        used = {a for p in phases for op in p.ops for a in op.operands()}
        kept = [Phase(p.loops, tuple(op for op in p.ops if op in used or op.name not in pure)) for p in phases]
        if [len(p.ops) for p in kept] == [len(p.ops) for p in phases]:
            break
        phases = kept
    return replace(spec, phases=tuple(phases), _cache={})


def _narrow_indices(spec: KernelSpec, users: dict[Op, list[Op]]) -> set[Op]:
    """Positions that are only compared, with each other or with numbers: 32 bits hold them, as many lanes as floats."""
    found = {
        op
        for op in spec.ops()
        if op.name == "index_expr" and op.dtype is torch.int64 and -_INT32 <= op.args[0].lo and op.args[0].hi <= _INT32
    }

    def fits(a: Op) -> bool:
        return a in found or (a.name == "constant" and a.dtype is torch.int64 and -_INT32 <= a.args[0] <= _INT32)

    while True:
        bad = {
            op
            for op in found
            if not all(u.name in _COMPARISONS and all(map(fits, u.operands())) for u in users.get(op, ()))
        }
        if not bad:
            return found
        found -= bad


def _is_rounded(op: Op, users: dict[Op, list[Op]]) -> bool:
    """True if all that becomes of a value are products that are rounded to bfloat16: few of its digits survive."""
    return all(
        u.name == "round_to" and u.args[1] is torch.bfloat16 or u.name == "mul" and _is_rounded(u, users)
        for u in users.get(op, ())
    )


def _erf_plus_one(spec: KernelSpec, users: dict[Op, list[Op]]) -> dict[Op, int]:
    """Sums of an error function and one -> place of the error function: the normal distribution takes half the work of
    the error function, since nothing has to be exact near zero."""
    found = {}
    for op in spec.ops():
        if op.name != "add" or op.dtype is not torch.float32:
            continue
        for k in (0, 1):
            erf, one = op.args[k], op.args[1 - k]
            if erf.name == "erf" and one.name == "constant" and one.args[0] == 1 and len(users[erf]) == 1:
                found[op] = k
    return found


_ROOT_HALF = 0.7071067811865476


def _is_number(op: Op, value: float) -> bool:
    return op.name == "constant" and abs(op.args[0] - value) < 1e-7


def _normal_distributions(spec: KernelSpec, users: dict[Op, list[Op]], pairs: dict[Op, int]) -> dict[Op, int]:
    """Sums 1 + erf(x / sqrt(2)) of which all that becomes is their product with x / 2 -> place of x below the error
    function: that product is x times the distribution function of x, one lookup."""
    found = {}
    for op, k in pairs.items():
        scaled = op.args[k].args[0]
        if scaled.name != "mul" or len(users[op]) != 1 or users[op][0].name != "mul":
            continue
        half = next((a for a in users[op][0].operands() if a is not op), None)
        if half is None or half.name != "mul":
            continue
        for place in (0, 1):
            x = scaled.args[place]
            if _is_number(scaled.args[1 - place], _ROOT_HALF) and any(
                half.args[j] is x and _is_number(half.args[1 - j], 0.5) for j in (0, 1)
            ):
                found[op] = place
    return found


def _roundings(op: Op, users: dict[Op, list[Op]]) -> list[Op]:
    """Where a value of which only products are made is rounded."""
    found = []
    for u in users.get(op, ()):
        found += [u] if u.name == "round_to" else _roundings(u, users)
    return found


__all__ = ["rewrite"]
