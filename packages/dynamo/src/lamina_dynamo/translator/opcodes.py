"""One method an opcode, named after it; a true result means that the frame is left (returned or yielded).

The methods serve all supported CPython versions: where an opcode of one name means different things, the version
table decides.
"""

from __future__ import annotations

import builtins
import operator
import sys
from types import CodeType
from typing import Any, NoReturn

from ..bytecode import Instruction
from ..bytecode import versions as v
from ..graph_break import GraphBreak, ObservedException
from ..source import BuiltinSource, GlobalSource, ModuleSource, SelfDictSource
from ..variables import operators
from ..variables.base import VariableTracker
from ..variables.cells import CellVariable
from ..variables.code_object import CodeVariable
from ..variables.constant import is_none
from ..variables.container import ListVariable, TupleVariable
from ..variables.dicts import DictVariable
from ..variables.exception import chain_context, make_exception
from ..variables.function import NestedFunctionVariable
from ..variables.lazy import has_finalizer
from ..variables.sets import SetVariable
from ..variables.slices import SliceVariable
from ..variables.text import formatted, joined
from . import polyfills
from .base import FALSE, NONE, NULL, TRUE, Translator, constant
from .blocks import begin_block, handle, leave_handler
from .call import Calls

_BINARY = [getattr(operator, name) for name in v.BINARY_OPERATORS]
_INPLACE = [getattr(operator, "i" + name.rstrip("_")) for name in v.BINARY_OPERATORS]
_OPERATORS_310 = {
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


class Opcodes(Calls, Translator):
    """The opcode methods."""

    # -- nothing to do ----------------------------------------------------------------------------------------

    def NOP(self, inst: Instruction) -> Any:
        return None

    RESUME = CACHE = PRECALL = END_ASYNC_NOP = NOP

    def EXTENDED_ARG(self, inst: Instruction) -> Any:
        return None

    # -- stack ---------------------------------------------------------------------------------------------------

    def POP_TOP(self, inst: Instruction) -> Any:
        vt = self.stack.pop()
        if vt.notices_drop:
            self.looping = {depth: other for depth, other in self.looping.items() if other is not vt}
            kept = sys.getrefcount(vt) - 2  # without this name and the look at it
            vt.drop(self, kept)  # type: ignore[attr-defined]

    def PUSH_NULL(self, inst: Instruction) -> Any:
        self.stack.append(NULL)

    def COPY(self, inst: Instruction) -> Any:
        self.stack.append(self.stack[-inst.arg])

    def SWAP(self, inst: Instruction) -> Any:
        stack, n = self.stack, inst.arg
        stack[-1], stack[-n] = stack[-n], stack[-1]

    def DUP_TOP(self, inst: Instruction) -> Any:
        self.stack.append(self.stack[-1])

    def DUP_TOP_TWO(self, inst: Instruction) -> Any:
        self.stack.extend(self.stack[-2:])

    def ROT_TWO(self, inst: Instruction) -> Any:
        self._rotate(2)

    def ROT_THREE(self, inst: Instruction) -> Any:
        self._rotate(3)

    def ROT_FOUR(self, inst: Instruction) -> Any:
        self._rotate(4)

    def ROT_N(self, inst: Instruction) -> Any:
        self._rotate(inst.arg)

    def _rotate(self, n: int) -> None:
        self.stack.insert(len(self.stack) - n, self.stack.pop())

    # -- variables -------------------------------------------------------------------------------------------------

    def LOAD_CONST(self, inst: Instruction) -> Any:
        self.stack.append(self.constant_of(inst.argval))

    def constant_of(self, value: Any) -> VariableTracker:
        kind = type(value)
        if kind is CodeType:
            return CodeVariable(value)
        if kind is tuple:
            return TupleVariable([self.constant_of(x) for x in value])
        if kind is frozenset:
            return self.wrap(value, None)
        return constant(value)

    def LOAD_FAST(self, inst: Instruction) -> Any:
        vt = self.symbolic_locals.get(inst.argval)
        if vt is None:
            vt = self.cells.get(inst.argval)
            if vt is None:
                self._unbound(inst.argval)
        self.stack.append(vt)

    LOAD_FAST_CHECK = LOAD_FAST

    def _unbound(self, name: str) -> Any:
        if v.PY311:
            text = f"cannot access local variable '{name}' where it is not associated with a value"
        else:
            text = f"local variable '{name}' referenced before assignment"
        self.raise_exception(UnboundLocalError, text)

    def raise_name_error(self, name: str) -> Any:
        error = make_exception(self, NameError, [f"name '{name}' is not defined"])
        error.set_field("name", constant(name))  # type: ignore[attr-defined]
        raise ObservedException(error)

    def LOAD_FAST_AND_CLEAR(self, inst: Instruction) -> Any:
        name = inst.argval
        if name in self.cells and name not in self.symbolic_locals:
            self.stack.append(self.cells.pop(name))
        else:
            self.stack.append(self.symbolic_locals.pop(name, NULL))

    def STORE_FAST(self, inst: Instruction) -> Any:
        vt = self.stack.pop()
        self._store_local(inst.argval, vt)

    def _store_local(self, name: str, vt: VariableTracker) -> None:
        previous = self.symbolic_locals.get(name)
        if previous is not None and previous.source is not None and has_finalizer(previous):
            self.stack.append(vt)
            raise GraphBreak("weak_reference", variable=name, operation="assignment")
        if vt is NULL:
            self.symbolic_locals.pop(name, None)
        elif isinstance(vt, CellVariable) and (name in self.f_code.co_cellvars or name in self.f_code.co_freevars):
            self.cells[name] = vt  # inlined comprehensions put an outer cell back
        else:
            self.symbolic_locals[name] = vt

    STORE_FAST_MAYBE_NULL = STORE_FAST

    def DELETE_FAST(self, inst: Instruction) -> Any:
        vt = self.symbolic_locals.get(inst.argval)
        if vt is None:
            self._unbound(inst.argval)
        elif vt.source is not None and has_finalizer(vt) and not inst.argval.startswith("__lamina_"):
            raise GraphBreak("weak_reference", variable=inst.argval, operation="del")
        else:
            del self.symbolic_locals[inst.argval]

    def LOAD_GLOBAL(self, inst: Instruction) -> Any:
        vt = self.load_global(inst.argval)
        if inst.flag & 1:
            if v.PY313:
                self.stack += (vt, NULL)
            else:
                self.stack += (NULL, vt)
        else:
            self.stack.append(vt)

    def load_global(self, name: str) -> VariableTracker:
        output = self.output
        found = output.side_effects.load_global(self, name)
        if found is not None:
            return found
        f_globals = self.f_globals
        key = (id(f_globals), name)
        found = output.globals_seen.get(key)
        if found is not None:
            return found
        if name in f_globals:
            vt = self.lazy(f_globals[name], self.global_source(name))
        else:
            vt = self.load_builtin(name)
        output.globals_seen[key] = vt
        return vt

    def global_source(self, name: str) -> Any:
        if self.f_globals is self.root.f_globals:
            return GlobalSource(name)
        return GlobalSource(name, self.output.globals_source(self))

    def globals_dict_source(self) -> Any:
        from ..source import GlobalsSource

        return GlobalsSource() if self.f_globals is self.root.f_globals else self.output.globals_source(self)

    def load_builtin(self, name: str) -> VariableTracker:
        table = self.f_builtins
        if name not in table:
            self.output.guard(self.globals_dict_source(), "DICT_NOT_CONTAINS", name)
            self.output.guard(SelfDictSource(ModuleSource("builtins")), "DICT_NOT_CONTAINS", name)
            self.raise_name_error(name)
        value = table[name]
        standard = vars(builtins).get(name)
        if value is standard and not name.startswith("_lamina"):
            self.output.guard_builtin_name(self, name)
        return self.lazy(value, BuiltinSource(name))

    def STORE_GLOBAL(self, inst: Instruction) -> Any:
        self.output.side_effects.store_global(self, inst.argval, self.stack.pop())
        self.output.globals_seen.pop((id(self.f_globals), inst.argval), None)

    def DELETE_GLOBAL(self, inst: Instruction) -> Any:
        self.output.side_effects.delete_global(self, inst.argval)
        self.output.globals_seen.pop((id(self.f_globals), inst.argval), None)

    def LOAD_NAME(self, inst: Instruction) -> Any:
        if self.namespace is None:
            raise GraphBreak("opcode", opcode=inst.opname)
        vt = self.find_name(inst.argval)
        self.stack.append(vt if vt is not None else self.load_global(inst.argval))

    def find_name(self, name: str) -> VariableTracker | None:
        """A name of the class body's namespace."""
        if type(self.namespace) is DictVariable:
            return self.namespace.find(self, constant(name))
        try:
            return self.namespace.get_item(self, constant(name))  # type: ignore[union-attr]
        except ObservedException as e:
            if e.matches(KeyError):
                return None
            raise

    def STORE_NAME(self, inst: Instruction) -> Any:
        if self.namespace is None:
            raise GraphBreak("opcode", opcode=inst.opname)
        self.namespace.set_item(self, constant(inst.argval), self.stack.pop())

    def DELETE_NAME(self, inst: Instruction) -> Any:
        if self.namespace is None:
            raise GraphBreak("opcode", opcode=inst.opname)
        try:
            self.namespace.del_item(self, constant(inst.argval))
        except ObservedException as e:
            if not e.matches(KeyError):
                raise
            self.raise_exception(NameError, f"name '{inst.argval}' is not defined")

    def SETUP_ANNOTATIONS(self, inst: Instruction) -> Any:
        if self.namespace is None:
            raise GraphBreak("opcode", opcode=inst.opname)
        if self.find_name("__annotations__") is None:
            self.namespace.set_item(self, constant("__annotations__"), DictVariable.from_pairs(self, []))

    def LOAD_LOCALS(self, inst: Instruction) -> Any:
        if self.namespace is None:
            raise GraphBreak("opcode", opcode=inst.opname)
        self.stack.append(NULL)  # only consumed by LOAD_FROM_DICT_OR_*

    def LOAD_FROM_DICT_OR_DEREF(self, inst: Instruction) -> Any:
        self.stack.pop()
        self.LOAD_CLASSDEREF(inst)

    def LOAD_FROM_DICT_OR_GLOBALS(self, inst: Instruction) -> Any:
        self.stack.pop()
        self.LOAD_NAME(inst)

    def LOAD_CLASSDEREF(self, inst: Instruction) -> Any:
        vt = None if self.namespace is None else self.find_name(inst.argval)
        if vt is not None:
            self.stack.append(vt)
        else:
            self.LOAD_DEREF(inst)

    # -- cells ---------------------------------------------------------------------------------------------------

    def MAKE_CELL(self, inst: Instruction) -> Any:
        name = inst.argval
        self.cells[name] = CellVariable(self.symbolic_locals.pop(name, None), None)

    def COPY_FREE_VARS(self, inst: Instruction) -> Any:
        return None

    def LOAD_CLOSURE(self, inst: Instruction) -> Any:
        self.stack.append(self.cell(inst.argval))

    def cell(self, name: str) -> Any:
        found = self.cells.get(name)
        if found is None:
            found = self.cells[name] = CellVariable(self.symbolic_locals.pop(name, None), None)
        return found.realize()

    def LOAD_DEREF(self, inst: Instruction) -> Any:
        vt = self.output.side_effects.load_cell(self.cell(inst.argval))
        if vt is None:
            name = inst.argval
            if name in self.f_code.co_freevars:
                self.raise_exception(
                    NameError,
                    f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope",
                )
            self._unbound(name)
        self.stack.append(vt)

    def STORE_DEREF(self, inst: Instruction) -> Any:
        self.output.side_effects.store_cell(self.cell(inst.argval), self.stack.pop())

    def DELETE_DEREF(self, inst: Instruction) -> Any:
        cell = self.cell(inst.argval)
        if self.output.side_effects.load_cell(cell) is None:
            self._unbound(inst.argval)
        self.output.side_effects.delete_cell(cell)

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
        op = _OPERATORS_310[name]
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
        if self.unpack(target):
            for key in self.unpack(value.call_method(self, "keys", [], {})):
                if self.truth(target.contains(self, key)):
                    text = f"got multiple values for keyword argument {key.as_python_constant()!r}"
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

    # -- jumps ---------------------------------------------------------------------------------------------------

    def JUMP_FORWARD(self, inst: Instruction) -> Any:
        self.ip = inst.target.index

    JUMP_BACKWARD_NO_INTERRUPT = JUMP_ABSOLUTE = JUMP_FORWARD

    def JUMP_BACKWARD(self, inst: Instruction) -> Any:
        if self.output.count > self.output.instruction_limit:
            raise GraphBreak("recursion", instructions=self.output.count)
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

    # -- functions and classes -----------------------------------------------------------------------------------------

    def MAKE_FUNCTION(self, inst: Instruction) -> Any:
        qualified = None if v.PY311 else self.stack.pop()
        code = self.stack.pop().as_python_constant()
        flags = 0 if v.PY313 else inst.arg
        closure = self.unpack(self.stack.pop()) if flags & 8 else None
        annotations = self.stack.pop() if flags & 4 else None
        kwdefaults = self.stack.pop() if flags & 2 else None
        defaults = self.stack.pop() if flags & 1 else None
        made = self.make_function(code, closure, annotations, kwdefaults, defaults)
        if qualified is not None and qualified.as_python_constant() != code.co_name:
            made.attrs["__qualname__"] = qualified  # type: ignore[attr-defined]  # code objects have none before 3.11
        self.stack.append(made)

    def make_function(
        self, code: CodeType, closure: Any, annotations: Any, kwdefaults: Any, defaults: Any
    ) -> VariableTracker:
        return NestedFunctionVariable(
            code,
            self.f_globals,
            constant(code.co_name),
            tuple(self.unpack(defaults)) if defaults is not None else None,
            self.keyword_dict(kwdefaults) if kwdefaults is not None else None,
            annotations,
            tuple(closure) if closure is not None else None,
            self.f_globals.get("__name__"),
        )

    def SET_FUNCTION_ATTRIBUTE(self, inst: Instruction) -> Any:
        function, value = self.stack.pop(), self.stack.pop()
        if inst.arg == 1:
            function.default_vts = tuple(self.unpack(value))
        elif inst.arg == 2:
            function.kwdefault_vts = self.keyword_dict(value)
        elif inst.arg == 4:
            function.annotations = value
        else:
            function.closure = tuple(self.unpack(value))
        self.stack.append(function)

    def LOAD_BUILD_CLASS(self, inst: Instruction) -> Any:
        self.stack.append(self.wrap(builtins.__build_class__, None))

    def LOAD_ASSERTION_ERROR(self, inst: Instruction) -> Any:
        self.stack.append(self.wrap(AssertionError, None))

    def RETURN_VALUE(self, inst: Instruction) -> Any:
        self.result = self.stack.pop()
        return True

    def RETURN_CONST(self, inst: Instruction) -> Any:
        self.result = self.constant_of(inst.argval)
        return True

    # -- imports -------------------------------------------------------------------------------------------------

    def IMPORT_NAME(self, inst: Instruction) -> Any:
        from_list, level = self.stack.pop(), self.stack.pop()
        names = from_list.as_python_constant()
        name = inst.argval
        try:
            module = __import__(name, self.f_globals, None, names, level.as_python_constant())
        except ImportError as e:
            self.raise_import_error(type(e), *e.args, name=e.name, path=e.path)
        # the name that a module gives itself may be that of another one (`_io` says "io")
        known_as = next((n for n in (module.__name__, name) if sys.modules.get(n) is module), None)
        self.stack.append(self.wrap(module, None if known_as is None else ModuleSource(known_as)))

    def IMPORT_FROM(self, inst: Instruction) -> Any:
        module = self.stack[-1].realize()
        try:
            self.stack.append(module.get_attr(self, inst.argval))
        except ObservedException as e:
            if not e.matches(AttributeError):
                raise
            package = module.get_attr(self, "__name__").as_python_constant()
            full = f"{package}.{inst.argval}"
            if full not in sys.modules:
                path = getattr(sys.modules.get(package), "__file__", None)
                where = path or "unknown location"
                text = f"cannot import name {inst.argval!r} from {package!r} ({where})"
                self.raise_import_error(ImportError, text, name=package, path=path)
            self.stack.append(self.wrap(sys.modules[full], ModuleSource(full)))

    def raise_import_error(self, kind: type[ImportError], *args: Any, name: Any, path: Any) -> NoReturn:
        exc = make_exception(self, kind, [constant(a) for a in args])
        exc.fields.update(name=constant(name), path=constant(path))
        raise ObservedException(exc)

    def IMPORT_STAR(self, inst: Instruction) -> Any:
        raise GraphBreak("import", statement="import *")

    # -- exceptions ----------------------------------------------------------------------------------------------

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
            exc.cause = None if cause.is_python_constant() else self._instance(cause)
            exc.suppress_context = True
        chain_context(exc, self.root.handled_exception)
        raise ObservedException(exc)

    def _instance(self, vt: VariableTracker) -> Any:
        vt = vt.realize()
        kind = vt.python_type()
        if issubclass(kind, type):
            vt = self.call(vt, [], {}).realize()
            kind = vt.python_type()
        if not issubclass(kind, BaseException):
            self.raise_exception(TypeError, "exceptions must derive from BaseException")
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
        types = self.stack.pop()
        self.stack.append(self.call_real(isinstance, self.stack[-1], types))

    def JUMP_IF_NOT_EXC_MATCH(self, inst: Instruction) -> Any:
        types, exc = self.stack.pop(), self.stack.pop()
        if not self.truth(self.call_real(isinstance, exc, types)):
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

    # -- intrinsics of 3.12+ -----------------------------------------------------------------------------------------

    def CALL_INTRINSIC_1(self, inst: Instruction) -> Any:
        if inst.arg == 3:  # a StopIteration that leaves a generator
            exc = self.stack[-1]
            if issubclass(exc.python_type(), StopIteration):
                self.raise_exception(RuntimeError, "generator raised StopIteration")
        elif inst.arg == 5:
            self.UNARY_POSITIVE(inst)
        elif inst.arg == 6:
            self.LIST_TO_TUPLE(inst)
        else:
            raise GraphBreak("opcode", opcode=f"CALL_INTRINSIC_1 {inst.arg}")

    def CALL_INTRINSIC_2(self, inst: Instruction) -> Any:
        if inst.arg == 1:
            return self.PREP_RERAISE_STAR(inst)
        raise GraphBreak("opcode", opcode=f"CALL_INTRINSIC_2 {inst.arg}")


UNTRANSLATED = frozenset(
    {
        "PRINT_EXPR",
        "RESERVED",
        "INTERPRETER_EXIT",
        "EXIT_INIT_CHECK",
        "ENTER_EXECUTOR",
        *v.PAIRED_LOCALS,
    }
)
"""Opcodes of which functions have none, and those that are decoded as two."""


def _untranslated(self: Any, inst: Instruction) -> Any:
    raise GraphBreak("opcode", opcode=inst.opname)


def build_handlers() -> list[Any]:
    """Opcode -> method, for the running CPython."""
    for name in _OPERATORS_310:
        setattr(Opcodes, f"BINARY_{name}", Opcodes.binary_310)
        setattr(Opcodes, f"INPLACE_{name}", Opcodes.binary_310)
    table = [_untranslated] * 512
    for name, code in v.OPMAP.items():
        method = getattr(Opcodes, name, None)
        if method is not None and 0 <= code < 512:
            table[code] = method
    return table


Translator.HANDLERS = build_handlers()
