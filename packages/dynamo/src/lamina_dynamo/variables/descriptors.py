"""Descriptor objects: staticmethod, classmethod, property."""

from __future__ import annotations

from typing import Any

from .attributes import bind_vt, find_in_mro
from .base import VariableTracker
from .builder import wraps_type
from .constant import is_none
from .function import FunctionVariable
from .methods import BoundMethodVariable


class WrappedDescriptorVariable(VariableTracker):
    """staticmethod and classmethod objects, from outside or made inside."""

    __slots__ = ("attrs", "fn_vt", "kind")
    is_mutable = True

    def __init__(self, kind: type, fn_vt: VariableTracker, source: Any = None):
        super().__init__(source)
        self.kind = kind
        self.fn_vt = fn_vt

    def python_type(self) -> type:
        return self.kind

    def truth(self, tx: Any) -> bool:
        return True

    def descriptor_get(self, tx: Any, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if self.kind is staticmethod:
            return self.fn_vt
        fn = self.fn_vt.realize()
        if isinstance(fn, FunctionVariable):
            return BoundMethodVariable(fn, cls)
        # classmethod chains to the wrapped object's own __get__ (3.9 to 3.12)
        if fn.python_type() is property or find_in_mro(tx, fn.python_type(), "__get__") is not None:
            return bind_vt(tx, fn, cls, cls.class_vt(tx))
        return BoundMethodVariable(fn, cls)

    def method_get(self, tx: Any, obj: VariableTracker, cls: VariableTracker | None = None) -> VariableTracker:
        instance = None if is_none(obj) else obj
        if cls is None or is_none(cls):
            cls = obj.class_vt(tx)
        return self.descriptor_get(tx, instance, cls)

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name in ("__func__", "__wrapped__"):
            return self.fn_vt
        if name == "__isabstractmethod__":
            return tx.const(self.fn_vt.has_attr(tx, name) and tx.truth(self.fn_vt.get_attr(tx, name)))
        if name in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__"):
            return self.fn_vt.get_attr(tx, name)
        return super().get_attr(tx, name)

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if self.kind is staticmethod:
            return self.fn_vt.call_function(tx, args, kwargs)
        tx.raise_exception(TypeError, "'classmethod' object is not callable")

    def children(self) -> Any:
        return (self.fn_vt,)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(self.kind)
        codegen(self.fn_vt)
        codegen.call_function(1)


@wraps_type(staticmethod, classmethod)
def wrap_static_or_class_method(tx: Any, value: Any, source: Any) -> VariableTracker:
    from ..source import AttrSource

    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
    fn = tx.wrap(value.__func__, None if source is None else AttrSource(source, "__func__"))
    return WrappedDescriptorVariable(type(value), fn, source)


class PropertyVariable(VariableTracker):
    """A property object: `fget`, `fset`, `fdel`, `doc` trackers (None constants where missing)."""

    __slots__ = ("doc", "parts")
    is_mutable = True

    def __init__(self, parts: list[VariableTracker], doc: VariableTracker | None = None, source: Any = None):
        super().__init__(source)
        self.parts = parts
        self.doc = doc

    def python_type(self) -> type:
        return property

    def truth(self, tx: Any) -> bool:
        return True

    def descriptor_get(self, tx: Any, obj: VariableTracker | None, cls: Any) -> VariableTracker:
        if obj is None:
            return self
        if is_none(self.parts[0]):
            tx.raise_exception(AttributeError, f"property of '{obj.python_type().__name__}' object has no getter")
        return self.parts[0].call_function(tx, [obj], {})

    def property_set(self, tx: Any, obj: VariableTracker, value: VariableTracker, name: str) -> None:
        if is_none(self.parts[1]):
            kind = obj.python_type().__qualname__
            tx.raise_exception(AttributeError, f"property '{name}' of '{kind}' object has no setter")
        self.parts[1].call_function(tx, [obj, value], {})

    def property_delete(self, tx: Any, obj: VariableTracker, name: str) -> None:
        if is_none(self.parts[2]):
            kind = obj.python_type().__qualname__
            tx.raise_exception(AttributeError, f"property '{name}' of '{kind}' object has no deleter")
        self.parts[2].call_function(tx, [obj], {})

    def method_get(self, tx: Any, obj: VariableTracker, cls: VariableTracker | None = None) -> VariableTracker:
        return self.descriptor_get(tx, None if is_none(obj) else obj, cls)

    def method_set(self, tx: Any, obj: VariableTracker, value: VariableTracker) -> VariableTracker:
        self.property_set(tx, obj, value, "")
        return tx.const(None)

    def method_delete(self, tx: Any, obj: VariableTracker) -> VariableTracker:
        self.property_delete(tx, obj, "")
        return tx.const(None)

    def _with(self, tx: Any, i: int, fn: VariableTracker) -> PropertyVariable:
        parts = list(self.parts)
        parts[i] = fn
        return PropertyVariable(parts, self.doc)

    def method_getter(self, tx: Any, fn: VariableTracker) -> VariableTracker:
        return self._with(tx, 0, fn)

    def method_setter(self, tx: Any, fn: VariableTracker) -> VariableTracker:
        return self._with(tx, 1, fn)

    def method_deleter(self, tx: Any, fn: VariableTracker) -> VariableTracker:
        return self._with(tx, 2, fn)

    def get_member(self, tx: Any, name: str) -> VariableTracker | None:
        index = ("fget", "fset", "fdel").index(name) if name in ("fget", "fset", "fdel") else None
        if index is not None:
            return self.parts[index]
        if name == "__doc__":
            if self.doc is not None and not is_none(self.doc):
                return self.doc
            return tx.const(None) if is_none(self.parts[0]) else self.parts[0].get_attr(tx, "__doc__")
        if name == "__isabstractmethod__":
            return tx.const(any(p.has_attr(tx, name) and tx.truth(p.get_attr(tx, name)) for p in self.parts))
        return None

    def children(self) -> Any:
        return tuple(self.parts) if self.doc is None else (*self.parts, self.doc)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(property)
        for part in self.parts:
            codegen(part)
        if self.doc is not None:
            codegen(self.doc)
        codegen.call_function(3 if self.doc is None else 4)


@wraps_type(property)
def wrap_property(tx: Any, value: Any, source: Any) -> VariableTracker:
    from ..source import AttrSource

    if source is not None:
        tx.output.guard(source, "TYPE", property)
    parts = [
        tx.wrap(getattr(value, name), None if source is None else AttrSource(source, name))
        for name in ("fget", "fset", "fdel")
    ]
    return PropertyVariable(parts, None, source)
