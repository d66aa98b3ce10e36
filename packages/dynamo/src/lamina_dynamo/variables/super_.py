"""`super()`."""

from __future__ import annotations

import types
from typing import Any

from .attributes import bind, find_in_mro
from .base import VariableTracker
from .builtin import constructs
from .user_class import ClassVariable


class SuperVariable(VariableTracker):
    """`super(cls, obj)`."""

    __slots__ = ("cls_vt", "obj_vt")

    def __init__(self, cls_vt: VariableTracker, obj_vt: VariableTracker):
        super().__init__(None)
        self.cls_vt = cls_vt
        self.obj_vt = obj_vt

    def python_type(self) -> type:
        return super

    def truth(self, tx: Any) -> bool:
        return True

    def start(self, tx: Any) -> tuple[type, VariableTracker | None, VariableTracker]:
        """(class whose MRO is searched, object to bind to, tracker of that class)."""
        cls = self.cls_vt.realize().value  # type: ignore[attr-defined]
        obj = self.obj_vt.realize()
        if isinstance(obj, ClassVariable) and cls in (obj.value.__mro__ or ()):
            return obj.value, None, obj
        kind = obj.python_type()
        if cls not in (kind.__mro__ or ()):
            tx.raise_exception(TypeError, "super(type, obj): obj must be an instance or subtype of type")
        return kind, obj, obj.class_vt(tx)

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "__class__":
            return self.class_vt(tx)
        kind, obj, cls_vt = self.start(tx)
        if name == "__thisclass__":
            return self.cls_vt
        if name == "__self__":
            return self.obj_vt
        found = find_in_mro(tx, kind, name, cls_vt, after=self.cls_vt.realize().value)  # type: ignore[attr-defined]
        if found is None:
            tx.raise_exception(AttributeError, f"'super' object has no attribute '{name}'")
        if obj is None:
            fn = found.value(tx).realize() if found.vt is not None else None
            if found.vt is None and isinstance(found.real, (types.FunctionType, types.BuiltinFunctionType)):
                return found.value(tx)
            if fn is not None and fn.python_type() is types.FunctionType:
                return fn
        return bind(tx, found, obj, cls_vt)

    def set_attr(self, tx: Any, name: str, value: VariableTracker) -> None:
        tx.raise_exception(AttributeError, f"'super' object has no attribute '{name}'")

    def children(self) -> Any:
        return (self.cls_vt, self.obj_vt)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(super)
        codegen(self.cls_vt)
        codegen(self.obj_vt)
        codegen.call_function(2)


@constructs(super)
def _super(tx: Any, *args: VariableTracker) -> VariableTracker:
    if not args:
        return zero_argument_super(tx)
    if len(args) > 2:
        tx.raise_exception(TypeError, f"super() expected at most 2 arguments, got {len(args)}")
    if not isinstance(args[0].realize(), ClassVariable):
        tx.raise_exception(
            TypeError, f"super() argument 1 must be a type, not {args[0].realize().python_type().__name__}"
        )
    if len(args) == 1:
        tx.graph_break("unknown_builtin", function="super with one argument")
    vt = SuperVariable(args[0], args[1])
    vt.start(tx)
    return vt


def zero_argument_super(tx: Any) -> VariableTracker:
    """`super()`: the class from the frame's `__class__` cell, the object from its first argument."""
    code = tx.f_code
    if not code.co_argcount:
        tx.raise_exception(RuntimeError, "super(): no arguments")
    name = code.co_varnames[0]
    obj = None
    if name in tx.cells:
        obj = tx.output.side_effects.load_cell(tx.cells[name])
    if obj is None:
        obj = tx.symbolic_locals.get(name)
    if obj is None:
        tx.raise_exception(RuntimeError, "super(): arg[0] deleted")
    cell = tx.cells.get("__class__")
    cls = None if cell is None else tx.output.side_effects.load_cell(cell)
    if cls is None:
        text = "super(): __class__ cell not found" if cell is None else "super(): empty __class__ cell"
        tx.raise_exception(RuntimeError, text)
    vt = SuperVariable(cls, obj)
    vt.start(tx)
    return vt
