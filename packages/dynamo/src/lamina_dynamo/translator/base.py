"""The symbolic interpreter: runs a frame's bytecode over variable trackers and records what torch calls it meets.

Nothing of the user's program really happens during translation, so it can be started again at will: at a graph break
the root
frame is translated a second time and stopped just before the instruction that broke (``StopTranslation``).
"""

from __future__ import annotations

import linecache
from types import CodeType
from typing import Any, NoReturn

from ..bytecode import Instruction, decode
from ..bytecode import versions as v
from ..graph_break import GraphBreak, ObservedException
from ..trace_policy import WHOLE_MODULES
from ..variables.base import VariableTracker
from ..variables.constant import ConstantVariable
from ..variables.lazy import LazyVariable
from .blocks import enter_handler

GENERATOR = 0x20
COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})  # frames of their own before 3.12
ASYNCHRONOUS = 0x80 | 0x200  # coroutine, asynchronous generator


class StopTranslation(Exception):
    """The instruction to break at is reached; ``chain`` are the active translators from the root inwards."""

    def __init__(self, chain: list[Translator]):
        super().__init__()
        self.chain = chain


class RestartTranslation(Exception):
    """A decision taken earlier in this translation has to be taken differently; ``output.decisions`` says how."""


class NullVariable(VariableTracker):
    """The NULL that CPython keeps below a callable."""

    __slots__ = ()

    def describe(self) -> str:
        return "NULL"


NULL = NullVariable()
NONE = ConstantVariable(None)
TRUE = ConstantVariable(True)
FALSE = ConstantVariable(False)

_small = {i: ConstantVariable(i) for i in range(-5, 257)}


def constant(value: Any) -> ConstantVariable:
    kind = type(value)
    if kind is int:
        found = _small.get(value)
        if found is not None:
            return found
    elif value is None:
        return NONE
    elif kind is bool:
        return TRUE if value else FALSE
    return ConstantVariable(value)


_line_text: dict[tuple[int, int], tuple[CodeType, str]] = {}


def line_of(code: CodeType, line: int | None) -> str:
    """Two lines of a stack trace, as Python prints them."""
    key = (id(code), line or 0)
    found = _line_text.get(key)
    if found is not None and found[0] is code:
        return found[1]
    source = linecache.getline(code.co_filename, line or 0).strip()
    text = f'  File "{code.co_filename}", line {line}, in {code.co_name}\n    {source}\n'
    if len(_line_text) > 50_000:
        _line_text.clear()
    _line_text[key] = (code, text)
    return text


class Translator:
    """One frame under translation. ``parent`` is None for the root. Opcode methods come from ``opcodes.Opcodes``."""

    def __init__(
        self,
        output: Any,
        parent: Translator | None,
        code: CodeType,
        symbolic_locals: dict[str, VariableTracker],
        f_globals: dict[str, Any],
        f_builtins: dict[str, Any],
        closure: Any = (),
        function: VariableTracker | None = None,
    ):
        self.output = output
        self.parent = parent
        self.root: Translator = parent.root if parent is not None else self
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self.f_code = code
        self.f_globals = f_globals
        self.f_builtins = f_builtins
        self.function = function
        self.instructions = decode(code)
        self.ip = 0
        self.stack: list[VariableTracker] = []
        self.symbolic_locals = symbolic_locals
        self.cells: dict[str, VariableTracker] = dict(zip(code.co_freevars, closure or ()))
        self.namespace: VariableTracker | None = None
        self.locals_vt: Any = None
        #: generators: the exception that the frame which resumed it is handling
        self.outer_handled: Any = None
        self.current_instruction: Instruction = self.instructions[0]
        self.current_count = 0
        self.kw_names: tuple[str, ...] = ()
        self.result: VariableTracker | None = None
        self.yielded: VariableTracker | None = None
        self.blocks: list[Any] = []  # before 3.11: see `blocks`
        self.left_block: int | None = None  # where the outermost block began that an exception left
        #: depth on the stack -> iterator that a for loop stepped there last
        self.looping: dict[int, VariableTracker] = {}
        # A callee entered straight from a CALL of this frame can be left at a break and resumed; others cannot.
        self.direct_call = False
        self.is_direct = parent is None
        self.is_generator = bool(code.co_flags & GENERATOR)
        self._trace_prefix: str | None = None

    def stand_at(self, code: CodeType, index: int) -> None:
        """Be at instruction ``index`` of ``code``, having run the one before it."""
        self.f_code = code
        self.instructions = decode(code)
        self.ip = index
        self.current_instruction = self.instructions[index - 1]

    # -- running ------------------------------------------------------------------------------------------------

    def run(self) -> VariableTracker:
        """Interpret until the frame returns (its value) or yields (``yielded`` is set, value returned)."""
        output = self.output
        instructions = self.instructions
        handlers = self.HANDLERS
        previous = output.current_tx
        output.current_tx = self
        try:
            while True:
                try:
                    while True:
                        inst = instructions[self.ip]
                        self.ip += 1
                        self.current_instruction = inst
                        self.current_count = count = output.count = output.count + 1
                        if count == output.break_at:
                            raise StopTranslation(self.chain())
                        if handlers[inst.opcode](self, inst):
                            return self.result
                except ObservedException as e:
                    self.handle_exception(e)
                except GraphBreak as e:
                    self.locate(e)
                    raise
                except (RecursionError, MemoryError) as e:
                    # Only now is it clear that the calls go too deep: the root makes its call in eager.
                    if self.parent is not None:
                        raise
                    broken = GraphBreak("recursion", error=type(e).__name__)
                    self.locate(broken)
                    raise broken from None
        finally:
            output.current_tx = previous

    HANDLERS: list[Any] = []

    def handle_exception(self, e: ObservedException) -> None:
        """Go to the handler of the current instruction, or let the exception leave the frame."""
        inst = self.current_instruction
        where = getattr(e, "count", None)
        if where is None:
            e.count = self.current_count  # type: ignore[attr-defined]
            e.chain = self.chain()  # type: ignore[attr-defined]
        entry = inst.exc if v.PY311 else None
        target = enter_handler(self, e.vt, NONE) if not v.PY311 else entry and entry.target
        if target is None:
            if self.parent is None:
                broken = GraphBreak("exception_escapes", exception=e.vt.python_type().__name__)
                broken.chain = e.chain  # type: ignore[attr-defined]
                self.place(broken)
                raise broken from e
            raise e
        e.count = None  # type: ignore[attr-defined]
        if getattr(e.vt, "user_stack", True) is None:
            e.vt.user_stack = tuple(  # from here on it has a traceback
                (tx.f_code.co_filename, tx.f_code.co_name, tx.current_instruction.line or tx.f_code.co_firstlineno)
                for tx in e.chain  # type: ignore[attr-defined]
            )
        if entry is not None:
            del self.stack[entry.depth :]
            if entry.lasti:
                self.stack.append(constant(inst.offset // 2))
            self.stack.append(e.vt)
        self.ip = target.index
        self.direct_call = False

    def chain(self) -> list[Translator]:
        out: list[Translator] = []
        tx: Translator | None = self
        while tx is not None:
            out.append(tx)
            tx = tx.parent
        out.reverse()
        return out

    def locate(self, e: GraphBreak) -> None:
        """Remember, once, which frames were active when ``e`` was raised."""
        if getattr(e, "chain", None) is None:
            e.chain = self.chain()  # type: ignore[attr-defined]
            self.place(e)

    @staticmethod
    def place(e: GraphBreak) -> None:
        chain: list[Translator] = e.chain  # type: ignore[attr-defined]
        # Where to stop: the deepest frame such that it and all its callers can be continued in eager. A comprehension
        # is left whole: it would be left again for every element.
        counts: list[int] = []
        for tx in chain:
            if counts and (not tx.is_direct or tx.is_generator or tx.f_code.co_name in COMPREHENSIONS):
                break
            if counts and tx.f_globals.get("__name__") in WHOLE_MODULES:
                break
            if tx.blocks or tx.left_block is not None:  # before 3.11 a frame inside a block cannot be continued
                counts.append(tx.blocks[0].count if tx.blocks else tx.left_block)  # type: ignore[arg-type]
                break
            counts.append(tx.current_count)
        e.counts = counts  # type: ignore[attr-defined]
        e.user_stack = [(tx.f_code, tx.current_instruction.line) for tx in chain]

    def stack_trace(self) -> str:
        """The user's frames, outermost first, ending at the current line."""
        prefix = self._trace_prefix
        if (
            prefix is None or self.is_generator
        ):  # the caller stands still while its callee runs; generators have many callers
            prefix = self._trace_prefix = self.parent.stack_trace() if self.parent is not None else ""
        return prefix + line_of(self.f_code, self.current_instruction.line)

    def is_protected(self) -> bool:
        """Is the current instruction inside a ``try`` or ``with`` block of the program?"""
        return self.current_instruction.exc is not None or bool(self.blocks)

    # -- what variable trackers ask for ---------------------------------------------------------------------------

    def wrap(self, value: Any, source: Any = None) -> VariableTracker:
        return self.output.builder.wrap(self, value, source)

    def lazy(self, value: Any, source: Any) -> VariableTracker:
        return LazyVariable(self.root, value, source)

    def const(self, value: Any) -> VariableTracker:
        return constant(value)

    def call(
        self, fn: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return fn.call_function(self, args, kwargs)

    def call_real(self, fn: Any, *args: VariableTracker) -> VariableTracker:
        """Call a builtin or library function that the program does not mention, known to be the real one."""
        return self.wrap(fn, None).call_function(self, list(args), {})

    def raise_exception(self, exc_type: type[BaseException], *args: Any) -> NoReturn:
        from lamina_dynamo.variables.exception import make_exception

        vts = [a if isinstance(a, VariableTracker) else constant(a) for a in args]
        raise ObservedException(make_exception(self, exc_type, vts))

    def graph_break(self, kind_id: str, /, **detail: Any) -> NoReturn:
        raise GraphBreak(kind_id, **detail)

    def truth(self, vt: VariableTracker) -> bool:
        value = vt.truth(self)
        if value is None:
            raise GraphBreak("data_dependent_branch", value=vt.describe())
        return value

    def unpack(self, vt: VariableTracker) -> list[VariableTracker]:
        return vt.unpack(self)

    def key(self, vt: VariableTracker) -> Any:
        return vt.hash_key(self)

    def inline(self, fn: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from lamina_dynamo.translator.inline import inline_call

        return inline_call(self, fn, args, kwargs)

    def inline_real(self, fn: Any, *args: VariableTracker) -> VariableTracker:
        """Inline a Python function of this package that spells out what an opcode does."""
        return self.inline(self.wrap(fn, None), list(args), {})

    def run_class_body(self, func_vt: Any, namespace: VariableTracker) -> VariableTracker:
        """Runs a class body with `namespace` as its locals; gives the `__class__` cell, or None (a constant)."""
        from .inline import run_class_body

        return run_class_body(self, func_vt, namespace)

    def bound_locals(self) -> list[tuple[str, VariableTracker]]:
        """(name, value) of the bound local and free variables, in the order of `locals()`."""
        out = []
        code = self.f_code
        for name in dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars)):
            vt = self.symbolic_locals.get(name)
            if vt is None and name in self.cells:
                vt = self.output.side_effects.load_cell(self.cells[name])
            if vt is not None and vt is not NULL and not name.startswith("__lamina"):
                out.append((name, vt))
        return out

    # -- the stack ------------------------------------------------------------------------------------------------

    def push(self, vt: VariableTracker) -> None:
        self.stack.append(vt)

    def pop(self) -> VariableTracker:
        return self.stack.pop()

    def popn(self, n: int) -> list[VariableTracker]:
        if not n:
            return []
        stack = self.stack
        out = stack[-n:]
        del stack[-n:]
        return out
