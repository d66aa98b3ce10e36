"""Bound methods, and functions in C that are attributes of a class."""

from __future__ import annotations

import types
from typing import Any

from .attributes import find_in_mro
from .base import VariableTracker
from .builder import wraps_type


class BoundMethodVariable(VariableTracker):
    """A bound method: a callable and its first argument."""

    __slots__ = ("fn_vt", "self_vt")

    @property
    def is_transparent_call(self) -> bool:
        return getattr(self.fn_vt.realize(), "is_transparent_call", False)

    def __init__(self, fn_vt: VariableTracker, self_vt: VariableTracker, source: Any = None):
        super().__init__(source)
        self.fn_vt = fn_vt
        self.self_vt = self_vt

    def describe(self) -> str:
        return f"method {self.fn_vt.describe()}"

    def python_type(self) -> type:
        return types.MethodType

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return self.fn_vt.call_function(tx, [self.self_vt, *args], kwargs)

    def truth(self, tx: Any) -> bool:
        return True

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "__self__":
            return self.self_vt
        if name == "__func__":
            return self.fn_vt
        if find_in_mro(tx, types.MethodType, name) is not None:
            if name in ("__call__", "__eq__", "__hash__", "__ne__"):
                return BuiltinMethodVariable(
                    self, types.MethodType.__dict__.get(name) or getattr(types.MethodType, name)
                )
            if name == "__class__":
                return self.class_vt(tx)
        return self.fn_vt.get_attr(tx, name)

    def binary_op(self, tx: Any, op: Any, other: VariableTracker, reflected: bool = False) -> Any:
        import operator

        from .operators import is_same, values_equal

        other = other.realize()
        if op in (operator.eq, operator.ne) and isinstance(other, BoundMethodVariable):
            same = is_same(tx, self.self_vt, other.self_vt) and values_equal(tx, self.fn_vt, other.fn_vt)
            return tx.const(same == (op is operator.eq))
        return NotImplemented

    def hash_key(self, tx: Any) -> Any:
        from .keys import IdentityKey, TupleKey

        return TupleKey((types.MethodType, self.fn_vt.hash_key(tx), IdentityKey(self.self_vt.realize())))

    def children(self) -> Any:
        return (self.fn_vt, self.self_vt)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(types.MethodType)
        codegen(self.fn_vt)
        codegen(self.self_vt)
        codegen.call_function(2)


@wraps_type(types.MethodType)
def wrap_method(tx: Any, value: Any, source: Any) -> VariableTracker:
    from ..source import AttrSource
    from .builder import wrap_lazy
    from .random_streams import is_stream, wrap_drawing_method

    if is_stream(value.__self__):
        return wrap_drawing_method(tx, value, source)
    if source is None:
        return BoundMethodVariable(tx.wrap(value.__func__, None), tx.wrap(value.__self__, None))
    tx.output.guard(source, "TYPE", types.MethodType)
    return BoundMethodVariable(
        tx.wrap(value.__func__, AttrSource(source, "__func__")),
        wrap_lazy(tx, value.__self__, AttrSource(source, "__self__")),
        source,
    )


class BuiltinMethodVariable(VariableTracker):
    """A C-implemented method bound to an object: `[].append`, `super().__init__` that reaches `object`."""

    __slots__ = ("descriptor", "self_vt")

    def __init__(self, self_vt: VariableTracker, descriptor: Any, source: Any = None):
        super().__init__(source)
        self.self_vt = self_vt
        self.descriptor = descriptor

    def describe(self) -> str:
        return f"builtin method {self.descriptor.__name__}"

    def python_type(self) -> type:
        if type(self.descriptor) is types.WrapperDescriptorType:
            return types.MethodWrapperType
        return types.BuiltinMethodType

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        from lamina_dynamo.variables.slots import call_slot

        return call_slot(tx, self.descriptor, self.self_vt, args, kwargs)

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "__self__":
            return self.self_vt
        if name in ("__name__", "__qualname__", "__doc__"):
            return tx.const(getattr(self.descriptor, name))
        if name == "__call__":
            return self
        return super().get_attr(tx, name)

    def children(self) -> Any:
        return (self.self_vt,)

    def hash_key(self, tx: Any) -> Any:
        from .keys import ConstantKey, IdentityKey, TupleKey

        return TupleKey((ConstantKey(self.descriptor), IdentityKey(self.self_vt.realize())))

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(bind_slot)
        codegen.load_global_alias("slot", self.descriptor)
        codegen(self.self_vt)
        codegen.call_function(2)


def bind_slot(descriptor: Any, obj: Any) -> Any:
    """Binds a C method to its object, in generated code."""
    if isinstance(descriptor, types.ClassMethodDescriptorType):
        return descriptor.__get__(None, obj)
    return descriptor.__get__(obj, type(obj))


class SlotVariable(VariableTracker):
    """An unbound C method or slot: `list.append`, `object.__setattr__`, `dict.fromkeys`."""

    __slots__ = ("descriptor",)
    has_identity = False

    def __init__(self, descriptor: Any, source: Any = None):
        super().__init__(source)
        self.descriptor = descriptor

    def describe(self) -> str:
        return f"slot {self.descriptor.__qualname__}"

    def python_type(self) -> type:
        return type(self.descriptor)

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.descriptor

    def truth(self, tx: Any) -> bool:
        return True

    def hash_key(self, tx: Any) -> Any:
        from .keys import ConstantKey

        return ConstantKey(self.descriptor)

    def descriptor_get(self, tx: Any, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if type(self.descriptor) is types.ClassMethodDescriptorType:
            return BuiltinMethodVariable(cls, self.descriptor)
        if obj is None:
            return self
        if type(self.descriptor) in (types.MemberDescriptorType, types.GetSetDescriptorType):
            from .attributes import get_c_member

            return get_c_member(tx, obj, self.descriptor)
        return BuiltinMethodVariable(obj, self.descriptor)

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name in ("__name__", "__qualname__", "__doc__"):
            return tx.const(getattr(self.descriptor, name))
        if name == "__objclass__":
            return tx.wrap(self.descriptor.__objclass__, None)
        return super().get_attr(tx, name)

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        from lamina_dynamo.variables.slots import call_slot

        if not args:
            tx.raise_exception(TypeError, f"unbound method {self.descriptor.__qualname__}() needs an argument")
        return call_slot(tx, self.descriptor, args[0], args[1:], kwargs)

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_global_alias("slot", self.descriptor)


@wraps_type(
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
def wrap_slot(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return SlotVariable(value, source)


@wraps_type(types.MethodWrapperType)
def wrap_method_wrapper(tx: Any, value: Any, source: Any) -> VariableTracker:
    from ..source import AttrSource

    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
        tx.output.guard(AttrSource(source, "__name__"), "CONSTANT", value.__name__)
    self_vt = tx.wrap(value.__self__, None if source is None else AttrSource(source, "__self__"))
    descriptor = value.__objclass__.__dict__[value.__name__]
    return BuiltinMethodVariable(self_vt, descriptor, source)
