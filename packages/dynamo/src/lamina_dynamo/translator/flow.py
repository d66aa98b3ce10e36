"""Opcodes that jump, iterate, and run generators."""

from __future__ import annotations

from typing import Any

from ..bytecode import Instruction
from ..bytecode import versions as v
from ..graph_break import GraphBreak, ObservedException
from ..variables import operators
from ..variables.base import VariableTracker
from .base import NONE


class Flow:
    """Opcodes that jump, iterate, and run generators."""

    stack: list[VariableTracker]

    # -- jumps ---------------------------------------------------------------------------------------------------

    def JUMP_FORWARD(self, inst: Instruction) -> Any:
        self.ip = inst.target.index

    JUMP_BACKWARD_NO_INTERRUPT = JUMP_ABSOLUTE = JUMP_FORWARD

    def JUMP_BACKWARD(self, inst: Instruction) -> Any:
        if self.output.count > self.output.patience:
            self.output.lose_patience()
        self.ip = inst.target.index

    def POP_JUMP_IF_FALSE(self, inst: Instruction) -> Any:
        if not self.truth(self.stack.pop()):
            self.ip = inst.target.index

    def POP_JUMP_IF_TRUE(self, inst: Instruction) -> Any:
        if self.truth(self.stack.pop()):
            self.ip = inst.target.index

    def POP_JUMP_IF_NONE(self, inst: Instruction) -> Any:
        if operators.is_same(self, self.stack.pop(), NONE):
            self.ip = inst.target.index

    def POP_JUMP_IF_NOT_NONE(self, inst: Instruction) -> Any:
        if not operators.is_same(self, self.stack.pop(), NONE):
            self.ip = inst.target.index

    POP_JUMP_FORWARD_IF_FALSE = POP_JUMP_BACKWARD_IF_FALSE = POP_JUMP_IF_FALSE
    POP_JUMP_FORWARD_IF_TRUE = POP_JUMP_BACKWARD_IF_TRUE = POP_JUMP_IF_TRUE
    POP_JUMP_FORWARD_IF_NONE = POP_JUMP_BACKWARD_IF_NONE = POP_JUMP_IF_NONE
    POP_JUMP_FORWARD_IF_NOT_NONE = POP_JUMP_BACKWARD_IF_NOT_NONE = POP_JUMP_IF_NOT_NONE

    def JUMP_IF_FALSE_OR_POP(self, inst: Instruction) -> Any:
        if self.truth(self.stack[-1]):
            self.stack.pop()
        else:
            self.ip = inst.target.index

    def JUMP_IF_TRUE_OR_POP(self, inst: Instruction) -> Any:
        if self.truth(self.stack[-1]):
            self.ip = inst.target.index
        else:
            self.stack.pop()

    # -- iteration -----------------------------------------------------------------------------------------------

    def GET_ITER(self, inst: Instruction) -> Any:
        self.stack[-1] = self.stack[-1].iterate(self)

    def FOR_ITER(self, inst: Instruction) -> Any:
        stack = self.stack
        depth = len(stack) - 1
        if self.looping.get(depth) is not stack[-1]:
            stack[-1] = self.looping[depth] = stack[-1].realize()
        try:
            value = stack[-1].next(self)
        except ObservedException as e:
            if not e.matches(StopIteration):
                raise
            stack.pop()
            self.looping.pop(depth, None)
            self.ip = inst.target.index + (2 if v.PY313 else 1 if v.PY312 else 0)
            return
        stack.append(value)

    def END_FOR(self, inst: Instruction) -> Any:
        self.stack.pop()
        if not v.PY313:
            self.stack.pop()

    def END_SEND(self, inst: Instruction) -> Any:
        del self.stack[-2]

    # -- generators ----------------------------------------------------------------------------------------------

    def RETURN_GENERATOR(self, inst: Instruction) -> Any:
        self.stack.append(NONE)

    def GEN_START(self, inst: Instruction) -> Any:
        """Take off what the first resumption sent: nothing was pushed for it here."""

    def YIELD_VALUE(self, inst: Instruction) -> Any:
        self.yielded = self.result = self.stack.pop()
        return True

    def GET_YIELD_FROM_ITER(self, inst: Instruction) -> Any:
        from lamina_dynamo.translator.generator import GeneratorVariable

        if not isinstance(self.stack[-1].realize(), GeneratorVariable):
            self.stack[-1] = self.stack[-1].iterate(self)

    def SEND(self, inst: Instruction) -> Any:
        receiver, value = self.stack[-2].realize(), self.stack[-1].realize()
        self.stack[-2] = self.looping[len(self.stack) - 2] = receiver
        try:
            if value.is_python_constant() and value.as_python_constant() is None:
                result = receiver.next(self)
            else:
                result = receiver.call_method(self, "send", [value], {})
        except ObservedException as e:
            if not e.matches(StopIteration):
                raise
            args = e.vt.args_vts
            result = args[0] if args else NONE
            self.stack.pop()
            if v.PY312:
                self.stack.append(result)
            else:
                self.stack[-1] = result
            self.ip = inst.target.index
            return
        self.stack[-1] = result

    def YIELD_FROM(self, inst: Instruction) -> Any:  # 3.10
        receiver, value = self.stack[-2].realize(), self.stack[-1].realize()
        self.stack[-2] = self.looping[len(self.stack) - 2] = receiver
        try:
            if value.is_python_constant() and value.as_python_constant() is None:
                result = receiver.next(self)
            else:
                result = receiver.call_method(self, "send", [value], {})
        except ObservedException as e:
            if not e.matches(StopIteration):
                raise
            args = e.vt.args_vts
            self.stack.pop()
            self.stack[-1] = args[0] if args else NONE
            return None
        self.stack.pop()
        self.ip -= 1
        self.yielded = self.result = result
        return True

    def CLEANUP_THROW(self, inst: Instruction) -> Any:
        exc = self.stack[-1]
        if issubclass(exc.python_type(), StopIteration):
            del self.stack[-3:]
            args = exc.args_vts
            self.stack += (NONE, args[0] if args else NONE)
            return
        raise ObservedException(exc)

    def _coroutine(self, inst: Instruction) -> Any:
        raise GraphBreak("coroutine", opcode=inst.opname)

    GET_AWAITABLE = GET_AITER = GET_ANEXT = END_ASYNC_FOR = BEFORE_ASYNC_WITH = ASYNC_GEN_WRAP = SETUP_ASYNC_WITH = (
        _coroutine
    )
