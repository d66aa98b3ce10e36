"""Code for a frame that is left in the middle: entering a frame's code at any instruction, and going on after a break.

Terms: the *entry code* of (code, index, stack, locals) is the frame's own bytecode behind a prologue that takes the
stack and the live
locals as arguments and jumps to instruction ``index``; the original exception table covers what it covered before.
Three uses:

* resume function   what follows the broken instruction; an ordinary function, captured again when it is called
* continue function an inlined frame at its broken (or calling) instruction; runs in eager
* generator         a partly run generator that leaves the region
"""

from __future__ import annotations

import dis
import sys
import weakref
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from ._eval_frame import enter_frame, run_resumed, tail_call
from .bytecode import Instruction, assemble, copy_instructions, decode, live_locals
from .bytecode import versions as v
from .graph_break import GraphBreak
from .variables.base import VariableTracker
from .variables.finalizers import has_finalizer

NULL_SLOT, VALUE_SLOT, HANDLER_SLOT = "null", "value", "handler"
"""What a stack slot holds: NULL, an object, or the saved exception state that PUSH_EXC_INFO made (passed on as the
exception handled)."""

_CO_VARARGS, _CO_VARKEYWORDS, _CO_GENERATOR = 4, 8, 32


class HandlerState(VariableTracker):
    """The exception state that ``PUSH_EXC_INFO`` saved on the stack: ``previous`` was handled before (or None),
    ``current`` is now. Clean-up code restores a copy of it, after which the saved state is ``over``."""

    __slots__ = ("current", "over", "previous")

    def __init__(self, previous: VariableTracker | None, current: VariableTracker):
        self.source = None
        self.previous = previous
        self.current = current
        self.over = False

    def children(self) -> Any:
        return (self.current,)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.current)

    def describe(self) -> str:
        return "saved exception state"


def current_exception() -> BaseException | None:
    return sys.exc_info()[1]


def enter_generator(code: CodeType, f_globals: dict[str, Any], state: tuple[Any, ...]) -> Any:
    """A generator brought to the yield where it stands: from now on dropping it runs what eager would run."""
    cells, args = state
    generator = FunctionType(code, f_globals, code.co_name, None, cells or None)(*args)
    next(generator)
    return generator


class ResumeInfo:
    """Which frame a resume function continues: instruction ``shift + i`` of it is instruction ``i`` of ``origin``."""

    __slots__ = ("origin", "shift", "index")

    def __init__(self, origin: CodeType, shift: int, index: int):
        self.origin = origin
        self.shift = shift
        self.index = index


_infos: dict[int, tuple[CodeType, ResumeInfo]] = {}
_entry_cache: dict[Any, tuple[CodeType, CodeType]] = {}


class GeneratorEntry(NamedTuple):
    """Where the generators of an entry code stand: before instruction ``index`` of ``origin``, which a yield precedes.
    ``stack``: the arguments that hold the stack, None for NULL."""

    origin: CodeType
    index: int  # type: ignore[assignment]
    names: tuple[str, ...]
    stack: tuple[str | None, ...]


_generator_entries: dict[int, tuple[CodeType, GeneratorEntry]] = {}


def generator_entry(code: CodeType) -> GeneratorEntry:
    """What ``entry_code(..., generator=True)`` noted about ``code``."""
    return _generator_entries[id(code)][1]


def resume_info(code: CodeType) -> ResumeInfo | None:
    """What ``code`` resumes, if it is the code of a resume function."""
    found = _infos.get(id(code))
    return found[1] if found is not None and found[0] is code else None


def origin_of(code: CodeType) -> CodeType:
    """The user's code behind a resume function (or the code itself)."""
    info = resume_info(code)
    return info.origin if info is not None else code


# Places where a frame was left with nothing captured before, by the user's code.
_barren: weakref.WeakKeyDictionary[CodeType, set[int]] = weakref.WeakKeyDictionary()


def barren_breaks(code: CodeType, index: int) -> int:
    """Note that ``code`` was left at instruction ``index`` with nothing captured; at how many places it was so far,
    its resume functions together."""
    info = resume_info(code)
    if info is not None:
        code, index = info.origin, index - info.shift
    places = _barren.setdefault(code, set())
    places.add(index)
    return len(places)


def cell_names(code: CodeType) -> tuple[str, ...]:
    return code.co_cellvars + code.co_freevars


def entry_code(
    code: CodeType, index: int, slots: tuple[str, ...], local_names: tuple[str, ...], *, generator: bool = False
) -> CodeType:
    """Entry code at instruction ``index``. Arguments: the locals named, then the stack's objects (bottom first)."""
    info = resume_info(code)
    if info is not None and index >= info.shift:
        code, index = info.origin, index - info.shift
    key = (id(code), index, slots, local_names, generator)
    found = _entry_cache.get(key)
    if found is not None and found[0] is code:
        return found[1]
    made, shift = _entry_code(code, index, slots, local_names, generator, None)
    _entry_cache[key] = (code, made)
    if generator:
        stack = tuple(None if slot == NULL_SLOT else _stack_argument(i) for i, slot in enumerate(slots))
        _generator_entries[id(made)] = (made, GeneratorEntry(code, index, local_names, stack))
    else:
        _infos[id(made)] = (made, ResumeInfo(code, shift, index))
    return made


def stands_at_yield(code: CodeType, index: int) -> bool:
    """Whether a generator that goes on at ``index`` was left by a yield (and not before its start)."""
    instructions = decode(code)
    return index > 0 and (instructions[index - 1].opname == "YIELD_VALUE" or instructions[index].opname == "YIELD_FROM")


def _stack_argument(i: int) -> str:
    return f"__lamina_stack{i}"


def _load_slots(slots: tuple[str, ...], emit: Callable[..., None]) -> None:
    """Rebuild a stack from arguments named by ``_stack_argument``."""
    for i, slot in enumerate(slots):
        if slot == NULL_SLOT:
            emit(Instruction("PUSH_NULL"))
            continue
        emit(Instruction("LOAD_FAST", _stack_argument(i)))
        emit(Instruction("DELETE_FAST", _stack_argument(i)))
        if slot == HANDLER_SLOT:
            emit(Instruction("PUSH_EXC_INFO"))
            emit(Instruction("POP_TOP"))


def _entry_code(
    code: CodeType,
    index: int,
    slots: tuple[str, ...],
    local_names: tuple[str, ...],
    generator: bool,
    edit: Callable[[list[Instruction]], tuple[list[Instruction], Instruction, tuple[str, ...]]] | None,
    extra: tuple[str, ...] = (),
) -> tuple[CodeType, int]:
    body = copy_instructions(decode(code))
    start = body[index]
    temps: tuple[str, ...] = ()
    if edit is not None:
        body, start, temps = edit(body)
    free = cell_names(code)
    prologue: list[Instruction] = []
    if free and v.PY311:
        prologue.append(Instruction("COPY_FREE_VARS", arg=len(free)))
    if generator and v.PY311:
        prologue.append(Instruction("RETURN_GENERATOR"))
        prologue.append(Instruction("POP_TOP"))
    if v.PY311:
        prologue.append(Instruction("RESUME", arg=0))
    _load_slots(slots, prologue.append)
    if generator and stands_at_yield(code, index):
        prologue.append(Instruction("LOAD_CONST", None))
        if start.opname == "YIELD_FROM":  # 3.10: it wants what is sent next above the iterator
            prologue.append(Instruction("YIELD_VALUE"))
        else:
            start = body[index - 1]
    prologue.append(Instruction(v.UNCONDITIONAL_JUMP, target=start))
    first = code.co_firstlineno
    for inst in prologue:
        inst.positions = (first, first, None, None)
    arguments = local_names + tuple(_stack_argument(i) for i, s in enumerate(slots) if s != NULL_SLOT) + extra
    taken = set(arguments) | set(free)
    varnames = arguments + tuple(n for n in code.co_varnames if n not in taken) + temps
    flags = code.co_flags & ~(_CO_VARARGS | _CO_VARKEYWORDS)
    if not generator:
        flags &= ~_CO_GENERATOR
    made = assemble(
        code,
        prologue + body,
        varnames=varnames,
        cellvars=(),
        freevars=free,
        stacksize=code.co_stacksize + len(slots) + (stub_depth(code) if edit is not None else 2),
        co_argcount=len(arguments),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=flags,
    )
    return made, len(prologue)


# ------------------------------------------------------------------------------------------------- leaving a frame

_PUSHES = {
    "BEFORE_WITH": 2,
    "LOAD_METHOD": 2,
    "GET_LEN": 1,
    "MATCH_KEYS": 1,
    "MATCH_MAPPING": 1,
    "MATCH_SEQUENCE": 1,
    "WITH_EXCEPT_START": 1,
    "CHECK_EXC_MATCH": 1,
    "IMPORT_FROM": 1,
    "FOR_ITER": 1,
    "SEND": 1,
    "COPY": 1,
    "DUP_TOP": 1,
}
_NO_RESULT = (
    "STORE_",
    "DELETE_",
    "POP_",
    "LIST_APPEND",
    "LIST_EXTEND",
    "SET_ADD",
    "SET_UPDATE",
    "MAP_ADD",
    "DICT_",
    "JUMP",
    "END_",
    "NOP",
    "RESUME",
    "IMPORT_STAR",
    "SETUP_ANNOTATIONS",
    "KW_NAMES",
    "PRECALL",
    "MAKE_CELL",
    "COPY_FREE_VARS",
)


def _results(inst: Instruction) -> int:
    name = inst.opname
    found = _PUSHES.get(name)
    if found is not None:
        return found
    if name == "UNPACK_SEQUENCE":
        return inst.arg or 0
    if name == "UNPACK_EX":
        return 1 + ((inst.arg or 0) & 255) + ((inst.arg or 0) >> 8)
    if name in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_SUPER_ATTR") and inst.flag & 1:
        return 2
    return 0 if name.startswith(_NO_RESULT) else 1


def stack_effect(opname: str, opcode: int, arg: int | None, jump: bool = False) -> int:
    if opname == "CALL" and v.PY311:
        return -(arg or 0) - 1  # 3.11 books the arguments under PRECALL
    if opname == "PRECALL":
        return 0
    return dis.stack_effect(opcode, arg, jump=jump)


def slots_of(stack: list[VariableTracker]) -> list[str]:
    from .translator.base import NULL

    def slot_of(vt: VariableTracker) -> str:
        if vt is NULL:
            return NULL_SLOT
        return HANDLER_SLOT if isinstance(vt, HandlerState) and not vt.over else VALUE_SLOT

    return [slot_of(vt) for vt in stack]


def slots_after(slots: list[str], inst: Instruction, jump: bool) -> tuple[str, ...]:
    """Stack slots after ``inst`` ran (with its jump taken or not)."""
    arg = None
    if inst.opcode >= v.HAVE_ARGUMENT:
        arg = inst.arg or 0
    n = len(slots) + stack_effect(inst.opname, inst.opcode, arg, jump)
    if inst.opname == "FOR_ITER" and jump:
        return tuple(slots[:-1])
    if inst.opname == "SEND" and jump:
        return tuple(slots[:-2]) + ((VALUE_SLOT, VALUE_SLOT) if v.PY312 else (VALUE_SLOT,))
    if inst.opname in ("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"):
        return tuple(slots) if jump else tuple(slots[:-1])
    pushed = 0 if jump else _results(inst)
    kept = slots[: n - pushed]
    return tuple(kept + [VALUE_SLOT] * (n - len(kept)))


class FrameExit:
    """What the code of one frame of the chain needs: where it stops and what lives then."""

    def __init__(self, tx: Any, is_innermost: bool):
        self.tx = tx
        self.code: CodeType = tx.f_code
        self.index: int = tx.current_instruction.index
        self.is_innermost = is_innermost
        instructions = decode(self.code)
        self.start = self.index
        if is_innermost:
            while self.start > 0 and instructions[self.start - 1].opname in ("PRECALL", "KW_NAMES"):
                self.start -= 1
        self.inst: Instruction = instructions[self.index]
        self.slots = slots_of(tx.stack)
        self.locals = self.live_after(self.start)
        if not is_innermost:
            self.after = tuple([*self.slots, VALUE_SLOT])

    def live_trackers(self) -> list[VariableTracker]:
        """What the rebuilt frame holds."""
        tx = self.tx
        out = [vt for vt, slot in zip(tx.stack, self.slots) if slot != NULL_SLOT]
        out += [tx.symbolic_locals[name] for name in self.locals]
        out += [cell for name in cell_names(self.code) if (cell := tx.cells.get(name)) is not None]
        return out

    def live_after(self, index: int) -> tuple[str, ...]:
        """Names of the bound locals that the code from ``index`` on may read; the first argument in front."""
        code = self.code
        live = live_locals(code, index)
        if uses_locals(code):
            live = set(self.tx.symbolic_locals)
        # A cell is in the closure, not among the locals.
        cells = set(cell_names(code))
        first = None
        if "__class__" in cells and code.co_varnames:
            first = code.co_varnames[0]  # ``super()`` looks at it
            live.add(first)
        # What is never read again may still notice when it is let go.
        names = [
            n for n, vt in self.tx.symbolic_locals.items() if (n in live or has_finalizer(vt)) and n not in cells
        ]
        if self.inst.opname == "DELETE_FAST" and index > self.index:
            names = [n for n in names if n != self.inst.argval]
        place = {name: i for i, name in enumerate(code.co_varnames)}
        names.sort(key=lambda n: -1 if n == first else place.get(n, len(place)))
        return tuple(names)


def uses_locals(code: CodeType) -> bool:
    """May the code look at its own locals as a whole?"""
    return bool({"locals", "vars", "eval", "exec", "dir"} & set(code.co_names))


def edit_body(
    exit_: FrameExit, body: list[Instruction], call_next: list[Instruction] | None, in_resume: bool
) -> tuple[list[Instruction], Instruction, tuple[str, ...]]:
    """A copied body with the way out of the frame behind it: the broken instruction once more, then stubs that call
    what resumes.

    ``call_next`` (for frames that were calling) stands for the call instruction. The repeated instruction keeps its
    exception range and the
    body itself is left out if there is none, since only handlers lead back into it. Stubs are outside all exception
    ranges.
    Returns the instructions, the one to start at and the temporaries used.
    """
    inst = body[exit_.index]
    if call_next is None and begins_block(inst):
        return body, inst, ()  # a frame cannot be resumed inside the block: the rest of it runs as it is
    temps: list[str] = []
    stubs: list[Instruction] = []
    piece: list[Instruction]
    index = exit_.index + 1
    if call_next is not None:
        piece = call_next
        stubs = _stub(exit_, index, exit_.after, temps, in_resume)
    elif inst.opname == "LOAD_METHOD" or (inst.opname == "LOAD_ATTR" and inst.flag & 1):
        # Whether this pushes NULL or self depends on the object; the plain form is the same program.
        piece = [Instruction("LOAD_ATTR", inst.argval), Instruction("PUSH_NULL")]
        if v.PY313:
            slots = [*exit_.slots[:-1], VALUE_SLOT, NULL_SLOT]
        else:
            slots = [*exit_.slots[:-1], NULL_SLOT, VALUE_SLOT]
            piece.append(Instruction("SWAP", arg=2))
        stubs = _stub(exit_, index, tuple(slots), temps, in_resume)
    else:
        piece = []
        for old in body[exit_.start : index]:
            new = Instruction(old.opname, old.argval, arg=old.arg, flag=old.flag)
            piece.append(new)
        last = piece[-1]
        if inst.opname not in v.TERMINATORS:
            stubs += _stub(exit_, index, slots_after(exit_.slots, inst, False), temps, in_resume)
        if inst.target is not None:
            landing = inst.target.index
            lead: list[Instruction] = []
            if inst.opname == "FOR_ITER" and v.PY312:
                landing += 2 if v.PY313 else 1  # the interpreter skips END_FOR (and POP_TOP) itself
                lead = [Instruction("END_FOR")] + ([Instruction("POP_TOP")] if v.PY313 else [])
            there = lead + _stub(exit_, landing, slots_after(exit_.slots, inst, True), temps, in_resume)
            last.target = there[0]
            last.argval = None
            stubs += there
    for new in piece:
        new.exc, new.positions = inst.exc, inst.positions
    return (body if inst.exc is not None else []) + piece + stubs, piece[0], tuple(temps)


def begins_block(inst: Instruction) -> bool:
    """Does the instruction put a try or with block on the frame's block stack (before 3.11)?"""
    return not v.PY311 and inst.opname.startswith("SETUP_") and inst.target is not None


def _stub(exit_: FrameExit, index: int, slots: tuple[str, ...], temps: list[str], in_resume: bool) -> list[Instruction]:
    """Take the stack off, call the resume function at ``index``, return its result."""
    from .codegen import Codegen

    tx = exit_.tx
    names = exit_.live_after(index)
    code = entry_code(tx.f_code, index, slots, names)
    cg = Codegen(tx.output, tx.f_code)
    values: dict[int, str] = {}
    for i in range(len(slots) - 1, -1, -1):
        name = f"__lamina_r{len(temps)}"
        temps.append(name)
        if slots[i] == HANDLER_SLOT:
            cg.push_function(current_exception)
            cg.call_function(0)
        cg.emit("STORE_FAST", name)
        if slots[i] == HANDLER_SLOT:
            cg.emit("POP_EXCEPT")
        if slots[i] != NULL_SLOT:
            values[i] = name
    cells = cell_names(tx.f_code)
    cg.push_function(tail_call if in_resume else run_resumed)
    if cells:
        cg.push_function(FunctionType)
        cg.load_const(code)
        cg.push_globals(tx.f_globals, tx.f_globals)
        cg.load_const(code.co_name)
        cg.load_const(None)
        for name in cells:
            cg.load_closure(name)
        cg.build("BUILD_TUPLE", len(cells))
        cg.call_function(5)
    else:
        cg.push_function(FunctionType)
        cg.load_const(code)
        cg.push_globals(tx.f_globals, tx.f_globals)
        cg.load_const(code.co_name)
        cg.call_function(3)
    handed = [*names, *(values[i] for i in sorted(values))]
    for name in handed:
        cg.emit("LOAD_FAST", name)
        if not in_resume:
            cg.emit("DELETE_FAST", name)  # from here on it belongs to the resume function alone
    cg.call_function(1 + len(handed))
    cg.emit("RETURN_VALUE")
    line = exit_.inst.line
    if line is not None:
        for inst in cg.body:
            inst.positions = (line, line, None, None)
    return cg.body


def stub_depth(code: CodeType) -> int:
    """Stack that a stub of ``edit_body`` needs at most, above what the frame had: it pushes all cells, then all
    locals and stack objects.
    """
    return code.co_nlocals + len(cell_names(code)) + code.co_stacksize + 8


def continue_code(exit_: FrameExit, next_code: CodeType | None, next_globals: Any) -> CodeType:
    """The continue function of an inlined frame. It takes stack, locals and, if it was calling, the state of the next
    frame."""

    def edit(body: list[Instruction]) -> tuple[list[Instruction], Instruction, tuple[str, ...]]:
        call = call_next_frame(exit_, next_code, next_globals, "__lamina_next") if next_code is not None else None
        return edit_body(exit_, body, call, False)

    extra = ("__lamina_next",) if next_code is not None else ()
    made, _ = _entry_code(exit_.code, exit_.start, tuple(exit_.slots), exit_.locals, False, edit, extra)
    return made


def call_next_frame(exit_: FrameExit, code: CodeType, f_globals: Any, state: str) -> list[Instruction]:
    from .codegen import Codegen

    cg = Codegen(exit_.tx.output, exit_.code)
    cg.push_function(enter_frame)
    cg.load_const(code)
    cg.push_globals(f_globals, exit_.tx.f_globals)
    cg.load_temp(state)
    cg.emit("DELETE_FAST", state)
    cg.call_function(3)
    return cg.body


def emit_state(cg: Any, exit_: FrameExit, push_next: Callable[[], None] | None) -> None:
    """Push the state of an inlined frame: (cells, arguments of its continue function)."""
    from .parked import push_slot

    tx = exit_.tx
    cells = cell_names(tx.f_code)
    for name in cells:
        cg(tx.cell(name))
    cg.build("BUILD_TUPLE", len(cells))
    n = 0
    for name in exit_.locals:
        cg(tx.symbolic_locals[name])
        n += 1
    for depth, slot in enumerate(exit_.slots):
        if slot != NULL_SLOT:
            push_slot(cg, tx, depth, exit_.locals)
            n += 1
    if push_next is not None:
        push_next()
        n += 1
    cg.build("BUILD_TUPLE", n)
    cg.build("BUILD_TUPLE", 2)


def emit_generator(cg: Any, generator: Any, parked: bool = False) -> None:
    """Push a real generator (or a parked one) that goes on where ``generator`` stands."""
    from .parked import park_generator, push_slot
    from .translator.generator import only_passes_exit

    tx = generator.child
    if generator.running:
        raise GraphBreak("generator_escapes", function=tx.f_code.co_name)
    instructions = decode(tx.f_code)
    index = tx.ip
    if not generator.started:
        while instructions[index].opname in (
            "MAKE_CELL",
            "COPY_FREE_VARS",
            "RETURN_GENERATOR",
            "POP_TOP",
            "RESUME",
            "GEN_START",
        ):
            if instructions[index].opname == "MAKE_CELL":
                tx.MAKE_CELL(instructions[index])
            index += 1
    slots = tuple(slots_of(tx.stack))
    if HANDLER_SLOT in slots:
        raise GraphBreak("generator_escapes", function=tx.f_code.co_name, reason="inside an except block")
    if tx.blocks:  # before 3.11 it could not be made again there
        from .translator.base import RestartTranslation

        tx.output.decisions["abandoned", tx.f_code] = True
        raise RestartTranslation
    cells = cell_names(tx.f_code)
    live = set(tx.symbolic_locals) if uses_locals(tx.f_code) else live_locals(tx.f_code, index)
    names = tuple(n for n in tx.symbolic_locals if n in live and n not in cells)
    code = entry_code(tx.f_code, index, slots, names, generator=True)
    at_yield = stands_at_yield(tx.f_code, index)
    cg.push_function(park_generator if parked else enter_generator if at_yield else enter_frame)
    cg.load_const(code)
    cg.push_globals(tx.f_globals)
    for name in cells:
        cg(tx.cell(name))
    cg.build("BUILD_TUPLE", len(cells))
    n = 0
    for name in names:
        cg(tx.symbolic_locals[name])
        n += 1
    for depth, slot in enumerate(slots):
        if slot != NULL_SLOT:
            push_slot(cg, tx, depth, names)
            n += 1
    cg.build("BUILD_TUPLE", n)
    cg.build("BUILD_TUPLE", 2)
    if parked:
        cg.load_const(not only_passes_exit(tx))
    cg.call_function(4 if parked else 3)
