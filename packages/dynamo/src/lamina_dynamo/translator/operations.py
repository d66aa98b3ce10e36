"""Opcodes that read attributes and items, apply operators, build containers and text, and match patterns."""

from __future__ import annotations

import operator
from typing import Any

from ..bytecode import Instruction
from ..bytecode import versions as v
from ..graph_break import ObservedException
from ..variables import operators
from ..variables.attributes import find_in_type
from ..variables.base import VariableTracker
from ..variables.constant import is_none
from ..variables.container import ListVariable, TupleVariable
from ..variables.dicts import DictVariable
from ..variables.formatting import text_of
from ..variables.sets import SetVariable
from ..variables.slices import SliceVariable
from ..variables.text import formatted, joined
from . import polyfills
from .base import FALSE, NONE, NULL, TRUE, constant

_BINARY = [getattr(operator, name) for name in v.BINARY_OPERATORS]
_INPLACE = [getattr(operator, "i" + name.rstrip("_")) for name in v.BINARY_OPERATORS]
OPERATORS_310 = {
    "ADD": "add",
    "AND": "and_",
    "FLOOR_DIVIDE": "floordiv",
    "LSHIFT": "lshift",
    "MATRIX_MULTIPLY": "matmul",
    "MULTIPLY": "mul",
    "MODULO": "mod",
    "OR": "or_",
    "POWER": "pow",
    "RSHIFT": "rshift",
    "SUBTRACT": "sub",
    "TRUE_DIVIDE": "truediv",
    "XOR": "xor",
}
_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONVERSIONS = {1: str, 2: repr, 3: ascii}
_MAPPING, _SEQUENCE = 1 << 6, 1 << 5


class Operations:
    """Opcodes that read attributes and items, apply operators, build containers and text, and match patterns."""

    stack: list[VariableTracker]

    # -- attributes and items ---------------------------------------------------------------------------------------

    def LOAD_ATTR(self, inst: Instruction) -> Any:
        stack = self.stack
        vt = stack[-1].get_attr(self, inst.argval)
        if inst.flag & 1:
            if v.PY313:
                stack[-1] = vt
                stack.append(NULL)
            else:
                stack[-1] = NULL
                stack.append(vt)
        else:
            stack[-1] = vt

    def LOAD_METHOD(self, inst: Instruction) -> Any:
        stack = self.stack
        vt = stack[-1].get_attr(self, inst.argval)
        stack[-1] = NULL
        stack.append(vt)

    def LOAD_SUPER_ATTR(self, inst: Instruction) -> Any:
        stack = self.stack
        super_vt, class_vt, self_vt = stack[-3:]
        vt = self.call(super_vt, [class_vt, self_vt] if inst.flag & 2 else [], {}).get_attr(self, inst.argval)
        del stack[-3:]
        if inst.flag & 1:
            stack += (vt, NULL) if v.PY313 else (NULL, vt)
        else:
            stack.append(vt)

    def STORE_ATTR(self, inst: Instruction) -> Any:
        value, target = self.stack[-2:]
        target.set_attr(self, inst.argval, value)
        del self.stack[-2:]

    def DELETE_ATTR(self, inst: Instruction) -> Any:
        self.stack[-1].del_attr(self, inst.argval)
        self.stack.pop()

    def BINARY_SUBSCR(self, inst: Instruction) -> Any:
        stack = self.stack
        result = stack[-2].get_item(self, stack[-1])
        stack.pop()
        stack[-1] = result

    def STORE_SUBSCR(self, inst: Instruction) -> Any:
        value, target, key = self.stack[-3:]
        target.set_item(self, key, value)
        del self.stack[-3:]

    def DELETE_SUBSCR(self, inst: Instruction) -> Any:
        target, key = self.stack[-2:]
        target.del_item(self, key)
        del self.stack[-2:]

    def BINARY_SLICE(self, inst: Instruction) -> Any:
        target, start, stop = self.popn(3)
        self.stack.append(target.get_item(self, SliceVariable([start, stop, NONE])))

    def STORE_SLICE(self, inst: Instruction) -> Any:
        value, target, start, stop = self.popn(4)
        target.set_item(self, SliceVariable([start, stop, NONE]), value)

    # -- operators -----------------------------------------------------------------------------------------------

    def BINARY_OP(self, inst: Instruction) -> Any:
        stack = self.stack
        a, b = stack[-2], stack[-1]
        code = inst.arg
        if code < 13:
            result = operators.binary(self, _BINARY[code], a, b)
        else:
            result = operators.inplace(self, _INPLACE[code - 13], a, b)
        stack.pop()
        stack[-1] = result

    def binary_310(self, inst: Instruction) -> Any:
        """BINARY_ADD, INPLACE_ADD and so on: an opcode an operator, before 3.11."""
        b, a = self.stack.pop(), self.stack.pop()
        kind, _, name = inst.opname.partition("_")
        op = OPERATORS_310[name]
        if kind == "BINARY":
            self.stack.append(operators.binary(self, getattr(operator, op), a, b))
        else:
            self.stack.append(operators.inplace(self, getattr(operator, "i" + op.rstrip("_")), a, b))

    def COPY_DICT_WITHOUT_KEYS(self, inst: Instruction) -> Any:  # 3.10
        self.stack[-1] = self.inline_real(polyfills.rest_of_mapping, self.stack[-2], self.stack[-1])

    def COMPARE_OP(self, inst: Instruction) -> Any:
        stack = self.stack
        result = operators.compare(self, _COMPARE[inst.argval], stack[-2], stack[-1])
        stack.pop()
        stack[-1] = result

    def IS_OP(self, inst: Instruction) -> Any:
        b, a = self.stack.pop(), self.stack.pop()
        self.stack.append(constant(operators.is_same(self, a, b) != bool(inst.arg)))

    def CONTAINS_OP(self, inst: Instruction) -> Any:
        container, item = self.stack[-1], self.stack[-2]
        result = operators.contains(self, container, item)
        del self.stack[-2:]
        self.stack.append(constant(not self.truth(result)) if inst.arg else result)

    def UNARY_NOT(self, inst: Instruction) -> Any:
        self.stack[-1] = constant(not self.truth(self.stack[-1]))

    def UNARY_NEGATIVE(self, inst: Instruction) -> Any:
        self.stack[-1] = operators.unary(self, operator.neg, self.stack[-1])

    def UNARY_POSITIVE(self, inst: Instruction) -> Any:
        self.stack[-1] = operators.unary(self, operator.pos, self.stack[-1])

    def UNARY_INVERT(self, inst: Instruction) -> Any:
        self.stack[-1] = operators.unary(self, operator.invert, self.stack[-1])

    def TO_BOOL(self, inst: Instruction) -> Any:
        self.stack[-1] = constant(self.truth(self.stack[-1]))

    # -- building ------------------------------------------------------------------------------------------------

    def BUILD_TUPLE(self, inst: Instruction) -> Any:
        self.stack.append(TupleVariable(self.popn(inst.arg)))

    def BUILD_LIST(self, inst: Instruction) -> Any:
        self.stack.append(ListVariable(self.popn(inst.arg)))

    def BUILD_SET(self, inst: Instruction) -> Any:
        self.stack.append(SetVariable.from_items(self, self.popn(inst.arg)))

    def BUILD_MAP(self, inst: Instruction) -> Any:
        flat = self.popn(2 * inst.arg)
        self.stack.append(DictVariable.from_pairs(self, list(zip(flat[::2], flat[1::2]))))

    def BUILD_CONST_KEY_MAP(self, inst: Instruction) -> Any:
        keys = self.unpack(self.stack.pop())
        self.stack.append(DictVariable.from_pairs(self, list(zip(keys, self.popn(inst.arg)))))

    def BUILD_SLICE(self, inst: Instruction) -> Any:
        parts = self.popn(inst.arg)
        if len(parts) == 2:
            parts.append(NONE)
        self.stack.append(SliceVariable(parts))

    def BUILD_STRING(self, inst: Instruction) -> Any:
        parts = self.popn(inst.arg)
        parts = [p.realize() for p in parts]
        if all(p.is_python_constant() for p in parts):
            self.stack.append(constant("".join(p.as_python_constant() for p in parts)))
        elif (text := joined(parts)) is not None:
            self.stack.append(text)
        else:
            self.stack.append(constant("").call_method(self, "join", [TupleVariable(parts)], {}))

    def FORMAT_VALUE(self, inst: Instruction) -> Any:
        spec = self.stack.pop() if inst.arg & 4 else constant("")
        value = self.stack.pop()
        conversion = _CONVERSIONS.get(inst.arg & 3)
        if conversion is not None:
            value = self.call_real(conversion, value)
        self.stack.append(self._format(value, spec))

    def _format(self, value: VariableTracker, spec: VariableTracker) -> VariableTracker:
        value = value.realize()
        if type(getattr(value, "value", None)) is str and spec.is_python_constant() and not spec.as_python_constant():
            return value
        text = formatted(value, spec.realize())
        return self.call_real(format, value, spec) if text is None else text

    def FORMAT_SIMPLE(self, inst: Instruction) -> Any:
        self.stack.append(self._format(self.stack.pop(), constant("")))

    def FORMAT_WITH_SPEC(self, inst: Instruction) -> Any:
        spec = self.stack.pop()
        self.stack.append(self._format(self.stack.pop(), spec))

    def CONVERT_VALUE(self, inst: Instruction) -> Any:
        self.stack.append(self.call_real(_CONVERSIONS[inst.arg], self.stack.pop()))

    def LIST_APPEND(self, inst: Instruction) -> Any:
        value = self.stack.pop()
        self.stack[-inst.arg].call_method(self, "append", [value], {})

    def SET_ADD(self, inst: Instruction) -> Any:
        value = self.stack.pop()
        self.stack[-inst.arg].call_method(self, "add", [value], {})

    def MAP_ADD(self, inst: Instruction) -> Any:
        key, value = self.popn(2)
        self.stack[-inst.arg].set_item(self, key, value)

    def LIST_EXTEND(self, inst: Instruction) -> Any:
        value = self.stack.pop()
        check_starred(self, value, "Value")
        self.stack[-inst.arg].call_method(self, "extend", [value], {})

    def SET_UPDATE(self, inst: Instruction) -> Any:
        value = self.stack.pop()
        self.stack[-inst.arg].call_method(self, "update", [value], {})

    def DICT_UPDATE(self, inst: Instruction) -> Any:
        value = self.stack.pop()
        self.stack[-inst.arg].call_method(self, "update", [value], {})

    def DICT_MERGE(self, inst: Instruction) -> Any:
        value = self.stack.pop().realize()
        target = self.stack[-inst.arg]
        if find_in_type(self, value, "keys") is None and not value.has_attr(self, "keys"):
            name, kind = called_name(self, self.stack[-inst.arg - 2]), value.python_type().__name__
            self.raise_exception(TypeError, f"{name} argument after ** must be a mapping, not {kind}")
        if self.unpack(target):
            for key in self.unpack(value.call_method(self, "keys", [], {})):
                if self.truth(target.contains(self, key)):
                    name = called_name(self, self.stack[-inst.arg - 2])
                    text = f"{name} got multiple values for keyword argument {key.as_python_constant()!r}"
                    self.raise_exception(TypeError, text)
        target.call_method(self, "update", [value], {})

    def LIST_TO_TUPLE(self, inst: Instruction) -> Any:
        self.stack[-1] = TupleVariable(self.unpack(self.stack[-1]))

    def UNPACK_SEQUENCE(self, inst: Instruction) -> Any:
        n = inst.arg
        vt = self.stack[-1].realize()
        items = self._unpack_exactly(vt, n)
        if len(items) < n:
            self.raise_exception(ValueError, f"not enough values to unpack (expected {n}, got {len(items)})")
        if len(items) > n:
            self.raise_exception(ValueError, f"too many values to unpack (expected {n})")
        self.stack.pop()
        self.stack.extend(reversed(items))

    def _unpack_exactly(self, vt: VariableTracker, n: int) -> list[VariableTracker]:
        if isinstance(vt, (TupleVariable, ListVariable)) or vt.is_python_constant():
            return vt.unpack(self)
        items = []
        iterator = vt.iterate(self)
        while len(items) <= n:  # an endless iterator is asked for one element too many, as CPython does
            try:
                items.append(iterator.next(self))
            except ObservedException as e:
                if e.matches(StopIteration):
                    break
                raise
        return items

    def UNPACK_EX(self, inst: Instruction) -> Any:
        before, after = inst.arg & 255, inst.arg >> 8
        items = self.unpack(self.stack[-1])
        if len(items) < before + after:
            self.raise_exception(
                ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(items)})"
            )
        self.stack.pop()
        end = len(items) - after
        self.stack.extend(reversed(items[end:]))
        self.stack.append(ListVariable(items[before:end]))
        self.stack.extend(reversed(items[:before]))

    def GET_LEN(self, inst: Instruction) -> Any:
        self.stack.append(self.stack[-1].length(self))

    # -- patterns ------------------------------------------------------------------------------------------------

    def _has_flag(self, vt: VariableTracker, flag: int) -> VariableTracker:
        return TRUE if vt.python_type().__flags__ & flag else FALSE

    def MATCH_MAPPING(self, inst: Instruction) -> Any:
        self.stack.append(self._has_flag(self.stack[-1].realize(), _MAPPING))

    def MATCH_SEQUENCE(self, inst: Instruction) -> Any:
        self.stack.append(self._has_flag(self.stack[-1].realize(), _SEQUENCE))

    def MATCH_KEYS(self, inst: Instruction) -> Any:
        subject, keys = self.stack[-2:]
        result = self.inline_real(polyfills.match_keys, subject, keys)
        self.stack.append(result)
        if not v.PY311:
            self.stack.append(constant(not is_none(result)))

    def MATCH_CLASS(self, inst: Instruction) -> Any:
        names = self.stack.pop()
        cls, subject = self.stack.pop(), self.stack.pop()
        result = self.inline_real(polyfills.match_class, subject, cls, constant(inst.arg), names)
        if v.PY311:
            self.stack.append(result)
        else:
            found = not is_none(result)
            self.stack += (result if found else subject, constant(found))


def called_name(tx: Any, fn: VariableTracker) -> str:
    """How messages of the interpreter call a function."""
    fn = fn.realize()
    try:
        name = text_of(tx, fn.get_attr(tx, "__qualname__"))
    except ObservedException:
        return text_of(tx, fn)
    try:
        module = fn.get_attr(tx, "__module__").realize()
    except ObservedException:
        return f"{name}()"
    if is_none(module) or module.is_python_constant() and module.as_python_constant() == "builtins":
        return f"{name}()"
    return f"{text_of(tx, module)}.{name}()"


def check_starred(tx: Any, value: VariableTracker, name: str) -> None:
    """The error of the interpreter where what stands behind `*` cannot be iterated."""
    value = value.realize()
    if all(find_in_type(tx, value, special) is None for special in ("__iter__", "__getitem__")):
        tx.raise_exception(TypeError, f"{name} after * must be an iterable, not {value.python_type().__name__}")
