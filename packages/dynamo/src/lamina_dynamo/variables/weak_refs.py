"""Weak references."""

from __future__ import annotations

import weakref
from typing import Any

from .base import VariableTracker
from .builder import wraps_type
from .user_object import UserObjectVariable


class WeakRefVariable(VariableTracker):
    """weakref.ref: calling it gives the object (which the region keeps alive)."""

    __slots__ = ("target", "value")

    def __init__(self, target: VariableTracker, source: Any = None, value: Any = None):
        super().__init__(source)
        self.target = target
        self.value = value

    def python_type(self) -> type:
        return weakref.ref

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return self.target

    def hash_key(self, tx: Any) -> Any:
        from .keys import IdentityKey

        return IdentityKey(self)

    def children(self) -> Any:
        return (self.target,)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(weakref.ref)
        codegen(self.target)
        codegen.call_function(1)


@wraps_type(weakref.ref)
def wrap_weakref(tx: Any, value: Any, source: Any) -> VariableTracker:
    from ..source import WeakRefCallSource

    if source is not None:
        tx.output.guard(source, "TYPE", weakref.ref)
    target = value()
    inner = tx.wrap(target, None if source is None else WeakRefCallSource(source))
    return WeakRefVariable(inner, source, value)


def _register_weakref() -> None:
    from .builtin import CONSTRUCTORS

    def make(tx: Any, target: VariableTracker, callback: VariableTracker | None = None) -> VariableTracker:
        from .constant import is_none

        if callback is not None and not is_none(callback):
            tx.graph_break("weak_reference", reason="callback")
        if target.source is None and not isinstance(target.realize(), UserObjectVariable):
            tx.graph_break("weak_reference", reason="object made inside")
        return WeakRefVariable(target.realize())

    CONSTRUCTORS[weakref.ref] = make


_register_weakref()
