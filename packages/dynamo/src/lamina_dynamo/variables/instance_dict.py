"""`obj.__dict__` as a dict."""

from __future__ import annotations

from typing import Any

from .attributes import DELETED
from .base import VariableTracker
from .dicts import DictVariable, Pair


class InstanceDictVariable(DictVariable):
    """`obj.__dict__`: reads and writes go to the object's attributes."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any):
        super().__init__()
        self.obj = obj

    def same_object(self, tx: Any, other: VariableTracker) -> bool | None:
        return isinstance(other, InstanceDictVariable) and other.obj is self.obj

    def is_python_constant(self) -> bool:
        return False

    def find(self, tx: Any, key_vt: VariableTracker) -> VariableTracker | None:
        key = key_vt.realize()
        if not key.is_python_constant() or not isinstance(key.as_python_constant(), str):
            key.hash_key(tx)
            return None
        return self.obj.instance_attr(tx, key.as_python_constant(), True)

    def put(self, tx: Any, key_vt: VariableTracker, value: VariableTracker) -> None:
        key = key_vt.realize()
        if not key.is_python_constant() or not isinstance(key.as_python_constant(), str):
            tx.graph_break("unknown_attribute", type="instance dict", attribute="a key that is no string")
        self.obj.store_attr(tx, key.as_python_constant(), value)
        self.version += 1

    def remove(self, tx: Any, key_vt: VariableTracker) -> VariableTracker | None:
        value = self.find(tx, key_vt)
        if value is not None:
            self.obj.store_attr(tx, key_vt.realize().as_python_constant(), DELETED)
            self.version += 1
        return value

    def pairs(self, tx: Any) -> list[Pair]:
        return [(tx.const(n), self.obj.instance_attr(tx, n, True)) for n in self.obj.attr_names(tx)]

    def count(self, tx: Any) -> int:
        return len(self.obj.attr_names(tx))

    def method_clear(self, tx: Any) -> VariableTracker:
        for name in list(self.obj.attr_names(tx)):
            self.obj.store_attr(tx, name, DELETED)
        return tx.const(None)

    def children(self) -> Any:
        return (self.obj,)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(read_instance_dict)
        codegen(self.obj)
        codegen.call_function(1)


def read_instance_dict(obj: Any) -> Any:
    """`obj.__dict__`, for generated code."""
    return object.__getattribute__(obj, "__dict__")
