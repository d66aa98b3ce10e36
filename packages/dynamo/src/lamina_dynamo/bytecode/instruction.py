"""Instructions as objects, decoded from and encoded to the bytecode of the running CPython.

Arguments are resolved on decoding: names, constants, local and cell names in ``argval``, jump targets as
``Instruction``.
``EXTENDED_ARG`` and ``CACHE`` units do not appear; the assembler puts them back.
"""

from __future__ import annotations

import weakref
from types import CodeType
from typing import Any

from . import versions as v


class ExceptionRange:
    """What the exception table says of one instruction: where control goes, with which stack."""

    __slots__ = ("target", "depth", "lasti")

    def __init__(self, target: Instruction, depth: int, lasti: bool):
        self.target = target
        self.depth = depth
        self.lasti = lasti


class Instruction:
    """One instruction. ``flag`` holds the low bits of arguments that mix a name index with flags."""

    __slots__ = ("opcode", "opname", "arg", "argval", "flag", "target", "positions", "exc", "offset", "index")

    def __init__(
        self,
        opname: str,
        argval: Any = None,
        *,
        arg: int | None = None,
        flag: int = 0,
        target: Instruction | None = None,
    ):
        self.opname = opname
        self.opcode = v.OPMAP.get(opname, -1)
        self.arg = arg
        self.argval = argval
        self.flag = flag
        self.target = target
        self.positions: tuple[int | None, int | None, int | None, int | None] | None = None
        self.exc: ExceptionRange | None = None
        self.offset = -1
        self.index = -1

    @property
    def line(self) -> int | None:
        return self.positions[0] if self.positions else None

    def __repr__(self) -> str:
        arg = f"-> {self.target.index}" if self.target is not None else "" if self.argval is None else repr(self.argval)
        return f"{self.index}: {self.opname} {arg}"


def local_names(code: CodeType) -> list[str]:
    """Names by index of the frame's fast locals: locals, then cells that are not arguments, then free variables."""
    names = list(code.co_varnames)
    known = set(names)
    names += [n for n in code.co_cellvars if n not in known]
    names += code.co_freevars
    return names


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    value = byte & 63
    while byte & 64:
        at += 1
        byte = data[at]
        value = (value << 6) | (byte & 63)
    return value, at + 1


def parse_exception_table(table: bytes) -> list[tuple[int, int, int, int, bool]]:
    """Rows ``(start, end, target, depth, lasti)`` in byte offsets (3.11+)."""
    rows = []
    at = 0
    while at < len(table):
        start, at = _varint(table, at)
        length, at = _varint(table, at)
        target, at = _varint(table, at)
        word, at = _varint(table, at)
        rows.append((start * 2, (start + length) * 2, target * 2, word >> 1, bool(word & 1)))
    return rows


def _split(inst: Instruction, arg: int, fast: list[str]) -> Instruction | None:
    """3.13 has instructions that are two in one. They are read as two (``inst`` becomes the first, the result is the
    second), so that a graph can break between a comparison of tensors and the question for its truth, and locals can
    lie where four bits do not reach.
    """
    if inst.opcode in v.COMPARE and inst.flag & v.COMPARE_ASKS_TRUTH:
        inst.flag &= ~v.COMPARE_ASKS_TRUTH
        return Instruction("TO_BOOL")
    names = v.PAIRED_LOCALS.get(inst.opname)
    if names is None:
        return None
    inst.opname, inst.opcode, inst.argval, inst.arg = names[0], v.OPMAP[names[0]], fast[arg >> 4], arg >> 4
    return Instruction(names[1], fast[arg & 15])


_decoded: dict[int, tuple[Any, list[Instruction]]] = {}


def decode(code: CodeType) -> list[Instruction]:
    """The instructions of ``code``; cached, so treat them as read-only (``copy_instructions`` gives fresh ones)."""
    key = id(code)
    found = _decoded.get(key)
    if found is not None:
        return found[1]
    instructions = _decode(code)
    _decoded[key] = (weakref.ref(code, lambda _, key=key: _decoded.pop(key, None)), instructions)
    return instructions


def _decode(code: CodeType) -> list[Instruction]:
    raw = code.co_code
    names, consts = code.co_names, code.co_consts
    fast = local_names(code) if v.PY311 else list(code.co_varnames)
    cells = fast if v.PY311 else list(code.co_cellvars) + list(code.co_freevars)
    positions = list(code.co_positions()) if v.PY311 else None
    lines: dict[int, int | None] = {}
    if positions is None:
        for start, end, line in code.co_lines():
            for offset in range(start, end, 2):
                lines[offset] = line
    out: list[Instruction] = []
    by_offset: dict[int, Instruction] = {}
    jumps: list[tuple[Instruction, int]] = []
    halves: list[tuple[Instruction, Instruction]] = []
    at, extended, first = 0, 0, -1
    size = len(raw)
    while at < size:
        op, arg = raw[at], raw[at + 1]
        if first < 0:
            first = at
        if op == v.EXTENDED_ARG:
            extended = (extended | arg) << 8
            at += 2
            continue
        arg |= extended
        extended = 0
        op = v.SAME_PROGRAM.get(op, op)
        inst = Instruction.__new__(Instruction)
        name = v.OPNAME[op]
        inst.opcode, inst.opname, inst.target, inst.exc, inst.flag = op, name, None, None, 0
        inst.offset = first
        inst.index = len(out)
        inst.arg = arg if op >= v.HAVE_ARGUMENT else None
        inst.argval = inst.arg
        inst.positions = positions[at >> 1] if positions is not None else (lines.get(at), None, None, None)
        caches = v.CACHES[op]
        if op in v.HAS_NAME:
            shift = v.NAME_SHIFT.get(name, 0)
            inst.flag = arg & ((1 << shift) - 1)
            inst.argval = names[arg >> shift]
        elif op in v.HAS_CONST:
            inst.argval = consts[arg]
        elif op in v.HAS_LOCAL and name not in v.PAIRED_LOCALS:
            inst.argval = fast[arg]
        elif op in v.HAS_FREE:
            inst.argval = cells[arg]
        elif op in v.COMPARE:
            inst.argval = COMPARISONS[arg >> v.COMPARE_SHIFT]
            inst.flag = arg & ((1 << v.COMPARE_SHIFT) - 1)
        elif op in v.JUMPS:
            if op in v.ABSOLUTE_JUMPS:
                jumps.append((inst, arg * 2))
            else:
                delta = -arg if op in v.BACKWARD else arg
                jumps.append((inst, at + 2 + 2 * caches + 2 * delta))
        for offset in range(first, at + 2, 2):
            by_offset[offset] = inst
        out.append(inst)
        second = _split(inst, arg, fast) if v.PY313 else None
        if second is not None:
            second.offset, second.index, second.positions = first, len(out), inst.positions
            halves.append((inst, second))
            out.append(second)
        at += 2 + 2 * caches
        first = -1
    for inst, offset in jumps:
        inst.target = by_offset[offset]
        inst.argval = None
    if v.PY311 and code.co_exceptiontable:
        ranges = parse_exception_table(code.co_exceptiontable)
        for start, end, target, depth, lasti in ranges:
            entry = ExceptionRange(by_offset[target], depth, lasti)
            for offset in range(start, end, 2):
                found = by_offset.get(offset)
                if found is not None:
                    found.exc = entry
        for inst, second in halves:
            second.exc = inst.exc
    return out


import dis as _dis  # noqa: E402  (only for the names of comparisons)

COMPARISONS = list(_dis.cmp_op)


def copy_instructions(instructions: list[Instruction]) -> list[Instruction]:
    """Fresh copies whose jumps and exception ranges point among the copies."""
    fresh: dict[int, Instruction] = {}
    out = []
    for inst in instructions:
        new = Instruction.__new__(Instruction)
        for slot in ("opcode", "opname", "arg", "argval", "flag", "positions", "offset", "index"):
            setattr(new, slot, getattr(inst, slot))
        new.target = None
        new.exc = None
        fresh[id(inst)] = new
        out.append(new)
    entries: dict[int, ExceptionRange] = {}
    for inst, new in zip(instructions, out):
        if inst.target is not None:
            new.target = fresh[id(inst.target)]
        if inst.exc is not None:
            entry = entries.get(id(inst.exc))
            if entry is None:
                entry = entries[id(inst.exc)] = ExceptionRange(
                    fresh[id(inst.exc.target)], inst.exc.depth, inst.exc.lasti
                )
            new.exc = entry
    return out
