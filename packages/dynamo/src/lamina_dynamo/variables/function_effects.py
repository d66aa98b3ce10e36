"""May a Python function change anything but what it makes itself? Read off its bytecode.

``torch.autograd.Function`` objects run their forward and backward once on fakes while translating: what such a function
does besides computing would happen once too often.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from typing import Any

from ..bytecode import decode

_EFFECTS = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "STORE_SLICE", "STORE_NAME"})
_CELLS = frozenset({"STORE_DEREF", "DELETE_DEREF"})
_SUBSCRIPTS = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR"})
_ATTRIBUTES = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_READS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_EFFECT_NAMES = frozenset(
    "append extend update pop setdefault insert remove clear warn write log discard appendleft popitem __setitem__ "
    "__dict__ sort reverse add".split()
)
"""Methods that change what they belong to, unless it was made here or is a module of torch or math."""

_TENSOR_METHODS = frozenset({"add", "log", "sort"})
"""Those of them that tensors have too, where they only compute."""

_EFFECT_GLOBALS = frozenset({"print", "setattr", "delattr", "open", "input", "exec", "eval", "next", "warn"})
_MAKES = frozenset({"BUILD_LIST", "BUILD_MAP", "BUILD_SET", "LIST_EXTEND", "LIST_TO_TUPLE", "BINARY_OP", "BINARY_ADD",
                    "BINARY_MULTIPLY", "BINARY_SUBTRACT", "BINARY_TRUE_DIVIDE", "UNARY_NEGATIVE"})  # fmt: skip

def has_effects(fn: Any, tensors: bool = False) -> bool:
    """May ``fn`` change anything but its first argument (the context)? ``tensors``: its other arguments are tensors of
    its own."""
    fn = program_function(fn)
    code = getattr(fn, "__code__", None)
    if code is None:
        return True
    context = code.co_varnames[0] if code.co_argcount else None
    return any(_Code(inner, fn, context, tensors and inner is code).has_effects(True) for inner in _codes(code))


def program_function(fn: Any) -> Any:
    """The function inside wrappers of torch (``once_differentiable``, ``custom_fwd``)."""
    while getattr(fn, "__wrapped__", None) is not None and _module_of(fn).startswith("torch."):
        fn = fn.__wrapped__
    return fn


def _module_of(fn: Any) -> str:
    return str(getattr(fn, "__globals__", {}).get("__name__", ""))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


class _Code:
    """One code object of a function."""

    def __init__(self, code: types.CodeType, fn: Any, context: str | None, tensors: bool):
        self.fn = fn
        self.context = context
        self.instructions = decode(code)
        self.cells = frozenset(code.co_cellvars)
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        self.arguments = set(code.co_varnames[:count])
        self.fresh = self.arguments - {context} if tensors else set()
        self.fresh |= self._made_here()

    def has_effects(self, looks_into_calls: bool) -> bool:
        for i, inst in enumerate(self.instructions):
            name = inst.opname
            if name in _EFFECTS or name in _CELLS and inst.argval not in self.cells:
                return True
            if name in _ATTRIBUTES and not (self._is_local(i - 1, self.context) or self._is_fresh(i - 1)):
                return True
            if name in _SUBSCRIPTS and not self._is_fresh(self._container(i)):
                return True
            if name in _READS and inst.argval in _EFFECT_NAMES and not self._is_harmless(i - 1, inst.argval):
                return True
            if name in ("LOAD_GLOBAL", "LOAD_NAME"):
                if inst.argval in _EFFECT_GLOBALS:
                    return True
                value = self.fn.__globals__.get(inst.argval)
                if looks_into_calls and isinstance(value, types.FunctionType) and _called_has_effects(value, self.fn):
                    return True
        return False

    # -- what an instruction leaves on the stack ------------------------------------------------------------------

    def _is_local(self, at: int, name: str | None) -> bool:
        inst = self.instructions[at] if at >= 0 else None
        return inst is not None and inst.opname.startswith("LOAD_FAST") and inst.argval == name

    def _is_fresh(self, at: int) -> bool:
        """Is the value on top behind instruction ``at`` one that this code made (or a tensor of its own)?"""
        inst = self.instructions[at] if at >= 0 else None
        return inst is not None and inst.opname.startswith("LOAD_FAST") and inst.argval in self.fresh

    def _container(self, at: int) -> int:
        """Index of the instruction that pushed what instruction ``at`` stores an element of; -1: unknown."""
        end = at - 1
        if self.instructions[end].opname in ("SWAP", "ROT_THREE"):  # x[i] += y: behind the copies of x and i
            while end > 0 and not self._copies_two(end):
                end -= 1
            end -= 1 if self.instructions[end].opname == "DUP_TOP_TWO" else 2
        return self._start_of(end) - 1

    def _copies_two(self, at: int) -> bool:
        inst, before = self.instructions[at], self.instructions[at - 1]
        return inst.opname == "DUP_TOP_TWO" or inst.opname == before.opname == "COPY" and inst.arg == before.arg == 2

    def _is_harmless(self, at: int, name: str) -> bool:
        """Is the method ``name`` of the value on top behind ``at`` one that changes nothing from outside?"""
        if at < 0:
            return False
        inst = self.instructions[at]
        if inst.opname == "LOAD_GLOBAL":
            value = self.fn.__globals__.get(inst.argval)
            return isinstance(value, types.ModuleType) and value.__name__.split(".")[0] in ("torch", "math", "numpy")
        if name in _TENSOR_METHODS:
            return inst.opname not in ("LOAD_DEREF", "LOAD_NAME")
        return self._is_fresh(at)

    def _start_of(self, at: int) -> int:
        """Index of the first instruction of the expression whose value is on top behind ``at``; -1: unknown."""
        depth = 0
        while at >= 0:
            inst = self.instructions[at]
            if inst.target is not None:
                return -1
            depth += dis.stack_effect(inst.opcode, inst.arg if inst.opcode >= dis.HAVE_ARGUMENT else None)
            if depth >= 1:
                return at
            at -= 1
        return -1

    def _made_here(self) -> set[str]:
        """Locals that only ever hold results of operators, of containers' displays and of calls of torch functions and
        of methods of other locals."""
        held: dict[str, bool] = {name: False for name in self.arguments}
        for i, inst in enumerate(self.instructions):
            if inst.opname == "STORE_FAST":
                held[inst.argval] = held.get(inst.argval, True) and i > 0 and self._makes(i - 1)
        return {name for name, made in held.items() if made}

    def _makes(self, at: int) -> bool:
        name = self.instructions[at].opname
        if name in _MAKES:
            return True
        if not name.startswith("CALL"):
            return False
        start = self._start_of(at)
        while start >= 0 and self.instructions[start].opname in ("PUSH_NULL", "PRECALL"):
            start += 1
        if start < 0:
            return False
        first = self.instructions[start]
        if first.opname.startswith("LOAD_FAST"):
            return bool(first.argval != self.context)
        if first.opname != "LOAD_GLOBAL":
            return False
        value = self.fn.__globals__.get(first.argval)
        module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
        return str(module).split(".")[0] == "torch"


def _called_has_effects(fn: Any, caller: Any) -> bool:
    """One level of called functions is looked into; torch's own functions have no effects."""
    if (fn.__module__ or "").startswith("torch"):
        return False
    return fn is caller or any(_Code(code, fn, None, False).has_effects(False) for code in _codes(fn.__code__))


__all__ = ["has_effects", "program_function"]
