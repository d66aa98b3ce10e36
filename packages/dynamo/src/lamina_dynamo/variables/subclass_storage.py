"""The builtin part of instances of a program's subclass of list, tuple, deque, str or a number; named tuples."""

from __future__ import annotations

import collections
from typing import Any

from .base import VariableTracker
from .builder import wraps_type
from .container import ListVariable, TupleVariable, content, wrap_elements
from .deques import DequeVariable


def _list_storage(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "LENGTH", list.__len__(value))
    vt = ListVariable(wrap_elements(tx, list.__iter__(value), source, value), source)
    if source is not None:
        vt.original = tuple(vt.items)
    return vt


def _tuple_storage(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "LENGTH", tuple.__len__(value))
    return TupleVariable(wrap_elements(tx, tuple.__iter__(value), source, value), source)


def _deque_storage(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "LENGTH", collections.deque.__len__(value))
    items = wrap_elements(tx, collections.deque.__iter__(value), source, value)
    return DequeVariable(items, source, value.maxlen)


def _scalar_storage(base: type) -> Any:
    def make(tx: Any, value: Any, source: Any) -> VariableTracker:
        from .constant import ConstantVariable

        plain = base.__new__(base, value) if base is not str else str.__str__(value)
        if base is int:
            plain = int.__int__(value)
        elif base is float:
            plain = float.__float__(value)
        elif base is bytes:
            plain = bytes(memoryview(value))
        if source is not None:
            from ..source import PythonSource

            tx.output.guard(PythonSource(source, _plain_value, base), "CONSTANT", plain)
        return ConstantVariable(plain)

    return make


def _plain_value(value: Any, base: type) -> Any:
    """The builtin value inside an instance of a str/int/float/bytes subclass."""
    if base is str:
        return str.__str__(value)
    if base is int:
        return int.__int__(value)
    if base is float:
        return float.__float__(value)
    return bytes(memoryview(value))


def register_storages() -> None:
    from .user_object import STORAGE_WRAPPERS

    STORAGE_WRAPPERS[list] = _list_storage
    STORAGE_WRAPPERS[tuple] = _tuple_storage
    STORAGE_WRAPPERS[collections.deque] = _deque_storage
    for base in (str, int, float, bytes):
        STORAGE_WRAPPERS[base] = _scalar_storage(base)


register_storages()


class TupleGetterVariable(VariableTracker):
    """The descriptor behind a named tuple's field."""

    __slots__ = ("index", "value")
    has_identity = False

    def __init__(self, value: Any, source: Any = None):
        super().__init__(source)
        self.value = value
        self.index = value.__reduce__()[1][0]

    def python_type(self) -> type:
        return type(self.value)

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def descriptor_get(self, tx: Any, obj: VariableTracker | None, cls: Any) -> VariableTracker:
        if obj is None:
            return self
        return content(obj).items[self.index]  # type: ignore[attr-defined]


@wraps_type(type(collections.namedtuple("_Example", "field").field))  # type: ignore[misc]
def wrap_tuple_getter(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return TupleGetterVariable(value, source)


def NamedTupleVariable(items: list[VariableTracker], cls: type, source: Any = None) -> VariableTracker:
    """A new instance of a named tuple class (or another tuple subclass) with these fields."""
    from .user_object import UserObjectVariable

    return UserObjectVariable(None, source, cls, TupleVariable(items))
