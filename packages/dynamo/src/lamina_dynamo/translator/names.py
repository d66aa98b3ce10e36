"""Opcodes that read and write variables: locals, globals, builtins, the names of class bodies, cells."""

from __future__ import annotations

import builtins
from types import CodeType
from typing import Any

from ..bytecode import Instruction
from ..bytecode import versions as v
from ..graph_break import GraphBreak, ObservedException
from ..roots import BuiltinSource, GlobalSource, ModuleSource
from ..source import SelfDictSource
from ..variables.attributes import DELETED
from ..variables.base import VariableTracker
from ..variables.cells import CellVariable
from ..variables.code_object import CodeVariable
from ..variables.container import TupleVariable
from ..variables.dicts import DictVariable
from ..variables.exception import make_exception
from ..variables.finalizers import has_finalizer
from .base import NULL, constant


class Names:
    """Opcodes that read and write variables: locals, globals, builtins, the names of class bodies, cells."""

    stack: list[VariableTracker]

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
        if found is DELETED:  # by the region
            return self.load_builtin(name, was_deleted=True)
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
        from ..roots import GlobalsSource

        return GlobalsSource() if self.f_globals is self.root.f_globals else self.output.globals_source(self)

    def load_builtin(self, name: str, was_deleted: bool = False) -> VariableTracker:
        table = self.f_builtins
        if name not in table:
            if not was_deleted:
                self.output.guard(self.globals_dict_source(), "DICT_NOT_CONTAINS", name)
            self.output.guard(SelfDictSource(ModuleSource("builtins")), "DICT_NOT_CONTAINS", name)
            self.raise_name_error(name)
        value = table[name]
        standard = vars(builtins).get(name)
        if value is standard and not name.startswith("_lamina") and not was_deleted:
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
