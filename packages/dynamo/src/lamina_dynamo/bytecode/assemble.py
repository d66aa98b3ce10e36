"""Instructions back to a code object: argument indices, ``EXTENDED_ARG``, caches, jumps, exception table, line
table."""

from __future__ import annotations

from types import CodeType
from typing import Any

from . import versions as v
from .instruction import COMPARISONS, Instruction, local_names


class _Pool:
    """Index of a value in a tuple that grows; constants are told apart by type and identity where equality is too
    weak."""

    def __init__(self, items: Any = (), by_name: bool = False):
        self.items = list(items)
        self.by_name = by_name
        self.index: dict[Any, int] = {}
        for i, item in enumerate(self.items):
            self.index.setdefault(self._key(item), i)

    def _key(self, item: Any) -> Any:
        if self.by_name:
            return item
        kind = type(item)
        if kind is int or kind is str or kind is bytes or kind is bool or item is None:
            return (kind, item)
        return id(item)

    def __call__(self, item: Any) -> int:
        key = self._key(item)
        found = self.index.get(key)
        if found is None:
            found = self.index[key] = len(self.items)
            self.items.append(item)
        return found


def assemble(
    template: CodeType,
    instructions: list[Instruction],
    *,
    varnames: tuple[str, ...] | None = None,
    cellvars: tuple[str, ...] | None = None,
    freevars: tuple[str, ...] | None = None,
    stacksize: int,
    **changes: Any,
) -> CodeType:
    """A code object like ``template`` that runs ``instructions``.

    ``varnames`` may be longer than the template's (temporaries are appended). ``changes`` go to ``CodeType.replace``
    (``co_argcount``, ``co_name`` ...).
    """
    varnames = template.co_varnames if varnames is None else varnames
    cellvars = template.co_cellvars if cellvars is None else cellvars
    freevars = template.co_freevars if freevars is None else freevars
    known = set(varnames)
    fast = list(varnames)
    if v.PY311:
        fast += [n for n in cellvars if n not in known]
        fast += freevars
        cell_names = fast
    else:
        cell_names = list(cellvars) + list(freevars)
    fast_index = {n: i for i, n in reversed(list(enumerate(fast)))}
    cell_index = {n: i for i, n in enumerate(cell_names)}
    consts = _Pool(template.co_consts[:1])
    names = _Pool(by_name=True)

    args: list[int] = []
    for inst in instructions:
        op, name = inst.opcode, inst.opname
        if op < 0:
            raise ValueError(f"no opcode {name} in this Python")
        if inst.target is not None:
            args.append(0)
        elif op in v.HAS_NAME:
            args.append((names(inst.argval) << v.NAME_SHIFT.get(name, 0)) | inst.flag)
        elif op in v.HAS_CONST:
            args.append(consts(inst.argval))
        elif op in v.HAS_LOCAL:
            args.append(fast_index[inst.argval])
        elif op in v.HAS_FREE:
            args.append(cell_index[inst.argval])
        elif op in v.COMPARE:
            args.append((COMPARISONS.index(inst.argval) << v.COMPARE_SHIFT) | inst.flag)
        else:
            args.append(inst.arg if inst.arg is not None else inst.argval if isinstance(inst.argval, int) else 0)

    for i, inst in enumerate(instructions):
        inst.index = i
    for inst in instructions:
        if inst.target is not None and inst.opname in v.DIRECTIONS:
            inst.opname = v.DIRECTIONS[inst.opname][inst.target.index <= inst.index]
            inst.opcode = v.OPMAP[inst.opname]

    widths = [_width(a) for a in args]
    while True:
        offset = 0
        for inst, width in zip(instructions, widths):
            inst.offset = offset
            offset += 2 * (width + v.CACHES[inst.opcode])
        end = offset
        changed = False
        for i, inst in enumerate(instructions):
            if inst.target is None:
                continue
            target = inst.target.offset
            if inst.opcode in v.ABSOLUTE_JUMPS:
                arg = target // 2
            else:
                delta = (target - (inst.offset + 2 * (widths[i] + v.CACHES[inst.opcode]))) // 2
                arg = -delta if inst.opcode in v.BACKWARD else delta
                if arg < 0:
                    raise ValueError(f"{inst.opname} cannot reach its target")
            args[i] = arg
            width = _width(arg)
            if width > widths[i]:
                widths[i] = width
                changed = True
        if not changed:
            break

    code = bytearray()
    for inst, arg, width in zip(instructions, args, widths):
        for k in range(width - 1, 0, -1):
            code += bytes((v.EXTENDED_ARG, (arg >> (8 * k)) & 255))
        code += bytes((inst.opcode, arg & 255))
        code += bytes(2 * v.CACHES[inst.opcode])
    assert len(code) == end
    fields: dict[str, Any] = dict(
        co_code=bytes(code),
        co_consts=tuple(consts.items),
        co_names=tuple(names.items),
        co_varnames=varnames,
        co_cellvars=cellvars,
        co_freevars=freevars,
        co_nlocals=len(varnames),
        co_stacksize=stacksize,
        co_linetable=_line_table(instructions, widths, template.co_firstlineno),
    )
    if v.PY311:
        fields["co_exceptiontable"] = _exception_table(instructions, end)
    fields.update(changes)
    return template.replace(**fields)


def _width(arg: int) -> int:
    return 1 if arg < 256 else 2 if arg < 65536 else 3 if arg < 1 << 24 else 4


def _varint(value: int, first: bool = False) -> list[int]:
    groups = [value & 63]
    value >>= 6
    while value:
        groups.append(value & 63)
        value >>= 6
    groups.reverse()
    out = [g | 64 for g in groups[:-1]] + [groups[-1]]
    if first:
        out[0] |= 128
    return out


def _exception_table(instructions: list[Instruction], end: int) -> bytes:
    table: list[int] = []
    i, n = 0, len(instructions)
    while i < n:
        entry = instructions[i].exc
        if entry is None:
            i += 1
            continue
        j = i
        while (
            j < n
            and (e := instructions[j].exc) is not None
            and (e is entry or (e.target is entry.target and e.depth == entry.depth and e.lasti == entry.lasti))
        ):
            j += 1
        start = instructions[i].offset // 2
        stop = (instructions[j].offset if j < n else end) // 2
        table += _varint(start, first=True)
        table += _varint(stop - start)
        table += _varint(entry.target.offset // 2)
        table += _varint((entry.depth << 1) | entry.lasti)
        i = j
    return bytes(table)


def _line_varint(value: int) -> list[int]:
    out = []
    while value >= 64:
        out.append((value & 63) | 64)
        value >>= 6
    out.append(value)
    return out


def _line_table(instructions: list[Instruction], widths: list[int], first_line: int) -> bytes:
    if not v.PY311:
        return _line_table_310(instructions, widths, first_line)
    out: list[int] = []
    line = first_line
    for inst, width in zip(instructions, widths):
        units = width + v.CACHES[inst.opcode]
        pos = inst.positions
        while units > 0:
            take = min(units, 8)
            units -= take
            if pos is None:
                # generated code counts as part of the line before it: a traceback entry without a line breaks tools
                out.append(128 | (13 << 3) | (take - 1))
                out.append(0)
                continue
            if pos[0] is None:  # the program's own has none
                out.append(128 | (15 << 3) | (take - 1))
                continue
            delta = pos[0] - line
            line = pos[0]
            signed = (-delta << 1) | 1 if delta < 0 else delta << 1
            if pos[1] is None or pos[2] is None or pos[3] is None:
                out.append(128 | (13 << 3) | (take - 1))
                out += _line_varint(signed)
            else:
                out.append(128 | (14 << 3) | (take - 1))
                out += _line_varint(signed)
                out += _line_varint(pos[1] - pos[0])
                out += _line_varint(pos[2] + 1)
                out += _line_varint(pos[3] + 1)
    return bytes(out)


def _line_table_310(instructions: list[Instruction], widths: list[int], first_line: int) -> bytes:
    out: list[int] = []
    line = first_line
    for inst, width in zip(instructions, widths):
        size = 2 * width
        here = inst.positions[0] if inst.positions else None
        if here is None:
            # generated code counts as part of the line before it; some of the program's own has no line
            out += [size, 0 if inst.positions is None else 128]
            continue
        delta = here - line
        line = here
        while delta > 127:
            out += [0, 127]
            delta -= 127
        while delta < -127:
            out += [0, 256 - 127]
            delta += 127
        out += [size, delta & 255]
    return bytes(out)


__all__ = ["assemble", "local_names"]
