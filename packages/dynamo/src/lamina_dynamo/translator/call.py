"""The CALL family: takes callable and arguments off the stack in each version's layout."""

from __future__ import annotations

import sys
from typing import Any

from ..bytecode import Instruction
from ..bytecode import versions as v
from ..variables.attributes import find_in_type
from ..variables.base import VariableTracker
from ..variables.constant import ConstantVariable
from ..variables.container import TupleVariable
from .base import NULL
from .operations import called_name, check_starred


class Calls:
    """Opcodes that call. A callee that runs as an inlined frame whose result is the call's result is marked *direct*:
    a graph break inside it can leave and resume both frames."""

    stack: list[VariableTracker]
    kw_names: tuple[str, ...]
    direct_call: bool

    def finish_call(self, fn: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
        fn = fn.realize()
        self.direct_call = getattr(fn, "is_transparent_call", False)
        try:
            result = fn.call_function(self, args, kwargs)
        finally:
            self.direct_call = False
        for i in range(len(args)):
            if args[i].notices_drop:
                kept = sys.getrefcount(args[i]) - 2  # without this list and the look at it
                args[i].drop(self, kept)  # type: ignore[attr-defined]
        self.stack.append(result)

    def CALL(self, inst: Instruction) -> Any:
        n = inst.arg
        stack = self.stack
        args = stack[-n:] if n else []
        names, self.kw_names = self.kw_names, ()
        if v.PY313:
            fn, receiver = stack[-n - 2], stack[-n - 1]
            if receiver is not NULL:
                args.insert(0, receiver)
        else:
            first, fn = stack[-n - 2], stack[-n - 1]
            if first is not NULL:
                args.insert(0, fn)
                fn = first
        del stack[-n - 2 :]
        if names:
            k = len(args) - len(names)
            kwargs = dict(zip(names, args[k:]))
            del args[k:]
            self.finish_call(fn, args, kwargs)
        else:
            self.finish_call(fn, args, {})

    def CALL_KW(self, inst: Instruction) -> Any:  # 3.13
        self.kw_names = tuple(x.as_python_constant() for x in self.stack.pop().unpack(self))
        self.CALL(inst)

    def KW_NAMES(self, inst: Instruction) -> Any:
        self.kw_names = inst.argval

    def CALL_FUNCTION(self, inst: Instruction) -> Any:  # 3.10
        args = self.popn(inst.arg)
        self.finish_call(self.stack.pop(), args, {})

    def CALL_FUNCTION_KW(self, inst: Instruction) -> Any:  # 3.10
        names = [x.as_python_constant() for x in self.stack.pop().unpack(self)]
        args = self.popn(inst.arg)
        k = len(args) - len(names)
        self.finish_call(self.stack.pop(), args[:k], dict(zip(names, args[k:])))

    def CALL_METHOD(self, inst: Instruction) -> Any:  # 3.10
        args = self.popn(inst.arg)
        fn = self.stack.pop()
        self.stack.pop()  # NULL: LOAD_METHOD always binds here
        self.finish_call(fn, args, {})

    def CALL_FUNCTION_EX(self, inst: Instruction) -> Any:
        kwargs = self.keyword_dict(self.stack.pop()) if inst.arg & 1 else {}
        args = self.stack.pop().realize()
        if not isinstance(args, TupleVariable):
            fn = self.stack[-2] if v.PY313 else self.stack[-1]
            if find_in_type(self, args, "__iter__") is None:  # otherwise there is nothing to name
                check_starred(self, args, f"{called_name(self, fn)} argument")
        args = list(args.unpack(self))
        if v.PY313:
            self.stack.pop()
            fn = self.stack.pop()
        else:
            fn = self.stack.pop()
            if v.PY311:
                self.stack.pop()
        self.finish_call(fn, args, kwargs)

    def keyword_dict(self, vt: VariableTracker) -> dict[str, VariableTracker]:
        """A mapping of the traced program as keyword arguments."""
        vt = vt.realize()
        out = {}
        for key in vt.call_method(self, "keys", [], {}).unpack(self):
            key = key.realize()
            if not isinstance(key, ConstantVariable) or type(key.value) is not str:
                self.raise_exception(TypeError, "keywords must be strings")
            out[key.value] = vt.get_item(self, key)
        return out
