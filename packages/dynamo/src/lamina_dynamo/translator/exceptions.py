"""Opcodes that raise, catch and leave `with` blocks."""

from __future__ import annotations

import types
from typing import Any

from ..bytecode import Instruction
from ..bytecode import versions as v
from ..graph_break import ObservedException
from ..variables.attributes import find_in_type, lookup_special
from ..variables.base import VariableTracker
from ..variables.constant import is_none
from ..variables.container import TupleVariable, content
from ..variables.exception import chain_context
from ..variables.user_class import ClassVariable
from ..variables.user_object import UserObjectVariable
from . import polyfills
from .base import constant
from .blocks import begin_block, handle, leave_handler


class Exceptions:
    """Opcodes that raise, catch and leave `with` blocks."""

    stack: list[VariableTracker]

    def RAISE_VARARGS(self, inst: Instruction) -> Any:
        if inst.arg == 0:
            exc = self.root.handled_exception
            if exc is None:
                self.raise_exception(RuntimeError, "No active exception to reraise")
            raise ObservedException(exc)
        cause = self.stack.pop() if inst.arg == 2 else None
        exc = self._instance(self.stack.pop())
        if cause is not None:
            cause = cause.realize()
            exc.cause = None if is_none(cause) else self._instance(cause, "exception causes")
            exc.suppress_context = True
        before = exc.context
        chain_context(exc, self.root.handled_exception)
        if exc.value is not None and (cause is not None or exc.context is not before):  # one from outside
            self.output.side_effects.mutation(exc)
        raise ObservedException(exc)

    def _instance(self, vt: VariableTracker, what: str = "exceptions") -> Any:
        vt = vt.realize()
        kind = vt.python_type()
        if issubclass(kind, type) and issubclass(vt.value, BaseException):  # type: ignore[attr-defined]
            vt = self.call(vt, [], {}).realize()
            kind = vt.python_type()
        if not issubclass(kind, BaseException):
            self.raise_exception(TypeError, f"{what} must derive from BaseException")
        return vt

    def RERAISE(self, inst: Instruction) -> Any:
        exc = self.stack.pop()
        if not v.PY311:
            del self.stack[-2:]
        raise ObservedException(exc)

    def PUSH_EXC_INFO(self, inst: Instruction) -> Any:
        exc = self.stack.pop()
        self.stack += (handle(self, exc), exc)

    def POP_EXCEPT(self, inst: Instruction) -> Any:
        leave_handler(self, self.stack.pop())
        if not v.PY311:
            del self.stack[-2:]
            self.blocks.pop()

    def SETUP_FINALLY(self, inst: Instruction) -> Any:  # 3.10
        begin_block(self, inst.target)

    def SETUP_WITH(self, inst: Instruction) -> Any:  # 3.10
        self.BEFORE_WITH(inst)
        value = self.stack.pop()
        begin_block(self, inst.target)
        self.stack.append(value)

    def POP_BLOCK(self, inst: Instruction) -> Any:  # 3.10
        self.blocks.pop()

    def CHECK_EXC_MATCH(self, inst: Instruction) -> Any:
        kinds = self.stack.pop()
        self.stack.append(constant(matches_handler(self, self.stack[-1], kinds)))

    def JUMP_IF_NOT_EXC_MATCH(self, inst: Instruction) -> Any:
        kinds, exc = self.stack.pop(), self.stack.pop()
        if not matches_handler(self, exc, kinds):
            self.ip = inst.target.index

    def CHECK_EG_MATCH(self, inst: Instruction) -> Any:
        kinds, exc = self.stack.pop(), self.stack.pop()
        rest, match = self.unpack(self.inline_real(polyfills.match_except_star, exc, kinds))
        self.stack += (rest, match)
        if not match.realize().is_python_constant():
            self.root.handled_exception = match.realize()

    def PREP_RERAISE_STAR(self, inst: Instruction) -> Any:
        raised, group = self.stack.pop(), self.stack.pop()
        self.stack.append(self.inline_real(polyfills.reraise_star, group, raised))

    def BEFORE_WITH(self, inst: Instruction) -> Any:
        manager = self.stack[-1].realize()
        plain = type(manager) is UserObjectVariable
        found = find_in_type(self, manager, "__exit__") if plain else None
        if found is not None and (found.vt is not None or isinstance(found.real, types.FunctionType)):
            enter = lookup_special(self, manager, "__enter__")
            if enter is not None:  # what the instance itself has is not asked
                self.stack[-1] = lookup_special(self, manager, "__exit__")
                self.stack.append(enter.call_function(self, [], {}))
                return
        leave = manager.get_attr(self, "__exit__") if manager.has_attr(self, "__exit__") else None
        if leave is None or not manager.has_attr(self, "__enter__"):
            name = manager.python_type().__name__
            text = f"'{name}' object does not support the context manager protocol"
            if leave is None and manager.has_attr(self, "__enter__"):
                text += " (missed __exit__ method)"
            self.raise_exception(TypeError, text)
        value = manager.call_method(self, "__enter__", [], {})
        self.stack[-1] = leave
        self.stack.append(value)

    def WITH_EXCEPT_START(self, inst: Instruction) -> Any:
        exc = self.stack[-1].realize()
        leave = self.stack[-4 if v.PY311 else -7]
        traceback = exc.get_member(self, "__traceback__")
        self.stack.append(self.call(leave, [exc.class_vt(self), exc, traceback], {}))


def matches_handler(tx: Any, exc: VariableTracker, kinds: VariableTracker) -> bool:
    """Does ``except kinds`` catch the exception? By class alone: no ``__instancecheck__`` is asked."""
    kinds = content(kinds)
    listed = [k.realize() for k in kinds.items] if isinstance(kinds, TupleVariable) else [kinds]
    for kind in listed:
        if not isinstance(kind, ClassVariable) or not issubclass(kind.value, BaseException):
            tx.raise_exception(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    mro = exc.python_type().__mro__
    return any(kind.value in mro for kind in listed)
