"""A value from outside that nothing has looked at yet: no guard is recorded until something does."""

from __future__ import annotations

from typing import Any

from ..source import InstanceAttrSource, ModuleMemberSource, SelfDictSource
from .base import VariableTracker

# Attributes that a program may delete, and the dict that has them.
PLACES: dict[type, Any] = {
    InstanceAttrSource: lambda source: SelfDictSource(source.base),
    ModuleMemberSource: lambda source: InstanceAttrSource(source.base, source.kind),
}


class LazyVariable(VariableTracker):
    """Wraps (value, source); every operation realises it first.  Passing it on costs nothing and guards nothing."""

    __slots__ = ("_value", "_tx", "_real")

    def __init__(self, tx: Any, value: Any, source: Any):
        self.source = source
        self._value = value
        self._tx = tx
        self._real: VariableTracker | None = None
        if type(source) in PLACES:
            tx.output.unread.append(self)

    def guard_presence(self) -> None:
        """Guard that there is a value, whatever it is: where nothing has looked at it no other guard says so."""
        if self._real is None and type(self.source) in PLACES:
            self._tx.output.guard(PLACES[type(self.source)](self.source), "DICT_CONTAINS", self.source.attr)

    def realize(self) -> VariableTracker:
        real = self._real
        if real is None:
            real = self._tx.wrap(self._value, self.source).realize()
            self._real = real
            self._value = None
        return real

    @property
    def is_realized(self) -> bool:
        return self._real is not None

    def peek_type(self) -> type:
        """Type of the value without recording a guard (for decisions that do not change what is computed)."""
        return type(self._value) if self._real is None else self._real.python_type()

    @property
    def has_identity(self) -> bool:  # type: ignore[override]
        return self.realize().has_identity

    @property
    def is_mutable(self) -> bool:  # type: ignore[override]
        return self._real is not None and self._real.is_mutable

    def children(self) -> Any:
        return (self._real,) if self._real is not None else ()

    def describe(self) -> str:
        return f"lazy {self.source.name}" if self._real is None else self._real.describe()

    def reconstruct(self, codegen: Any) -> None:
        if self._real is None:
            self.source.reconstruct(codegen)
        else:
            codegen(self._real)


def _forward(name: str) -> Any:
    def method(self: LazyVariable, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.realize(), name)(*args, **kwargs)

    method.__name__ = name
    return method


for _name in (
    "python_type class_vt is_python_constant as_python_constant as_proxy get_attr set_attr del_attr has_attr "
    "call_function call_method call_builtin_method get_item set_item del_item contains length iterate next unpack "
    "truth binary_op unary_op hash_key call_special"
).split():
    setattr(LazyVariable, _name, _forward(_name))
