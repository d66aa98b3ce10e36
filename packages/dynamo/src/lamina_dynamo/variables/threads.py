"""Locks and thread-local objects."""

from __future__ import annotations

import threading
import types
from typing import Any

from ..source import AttrSource, PythonSource
from .attributes import raise_attribute_error
from .base import VariableTracker
from .builder import wraps_if, wraps_type
from .builtin import handles
from .user_object import UserObjectVariable


@wraps_type(type(threading.RLock()), type(threading.Lock()))
def wrap_lock(tx: Any, value: Any, source: Any) -> VariableTracker:
    return LockVariable(value, source)


class LockVariable(UserObjectVariable):
    """A lock: taking it is a break. What the program reads under it must be read after that, and guards are checked
    before; what follows is captured, and the real lock is held by then."""

    __slots__ = ()
    is_mutable = False

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name in ("__enter__", "__exit__"):
            return LockMethodVariable(self, name)
        tx.graph_break("lock", type=type(self.value).__name__, attribute=name)

    def call_builtin_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        tx.graph_break("lock", type=type(self.value).__name__, attribute=name)

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_global_alias("lock", self.value)


@handles(threading.Lock, threading.RLock)
def _make_lock(tx: Any, *args: VariableTracker) -> VariableTracker:
    tx.graph_break("lock", operation="made inside")


class LockMethodVariable(VariableTracker):
    """`lock.__enter__` / `lock.__exit__`."""

    __slots__ = ("lock", "name")

    def __init__(self, lock: LockVariable, name: str):
        super().__init__(None)
        self.lock = lock
        self.name = name

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        tx.graph_break("lock", type=type(self.lock.value).__name__, attribute=self.name)

    def children(self) -> Any:
        return (self.lock,)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.lock)
        codegen.load_attr(self.name)


@wraps_if(lambda v: issubclass(type(v), threading.local), priority=5)
def wrap_thread_local(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return ThreadLocalVariable(value, source)


class ThreadLocalVariable(UserObjectVariable):
    """threading.local: reads are guarded in the calling thread; writes break."""

    __slots__ = ()
    is_mutable = False

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        try:
            value = getattr(self.value, name)
        except AttributeError:
            if self.source is None or hasattr(type(self.value), "__getattr__"):
                tx.graph_break("thread_local", attribute=name)
            tx.output.guard(PythonSource(self.source, lacks_attribute, name), "CONSTANT", True)
            raise_attribute_error(tx, self, name)
        return tx.wrap(value, None if self.source is None else AttrSource(self.source, name))

    def set_attr(self, tx: Any, name: str, value: VariableTracker) -> None:
        tx.graph_break("thread_local", attribute=name)

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_global_alias("local", self.value)


def lacks_attribute(obj: Any, name: str) -> bool:
    """For guards: what the calling thread sees."""
    return not hasattr(obj, name)
