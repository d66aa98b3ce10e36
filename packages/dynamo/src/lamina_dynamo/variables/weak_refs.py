"""Weak references."""

from __future__ import annotations

import operator
import weakref
from typing import Any

from .base import VariableTracker
from .builder import wraps_type
from .constant import is_none
from .keys import IdentityKey, TupleKey
from .operators import compare, is_same
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

    def referent(self, tx: Any) -> VariableTracker | None:
        """What it refers to; None once that is dead."""
        target = self.target.realize()
        return None if is_none(target) else target

    def same_object(self, tx: Any, other: VariableTracker) -> bool | None:
        """References without callback to one object are one object."""
        if not isinstance(other, WeakRefVariable) or self.has_callback or other.has_callback:
            return self is other
        target = self.referent(tx)
        return self is other or target is not None and is_same(tx, target, other.target.realize())

    @property
    def has_callback(self) -> bool:
        return self.value is not None and self.value.__callback__ is not None

    def hash_key(self, tx: Any) -> Any:
        target = self.referent(tx)
        if target is None:
            return IdentityKey(self)
        return TupleKey(("weak reference", target.hash_key(tx)))

    def binary_op(self, tx: Any, op: Any, other: VariableTracker, reflected: bool = False) -> Any:
        """Live references are equal if what they refer to is, dead ones if they are one object."""
        other = other.realize()
        if op not in (operator.eq, operator.ne) or not isinstance(other, WeakRefVariable):
            return super().binary_op(tx, op, other, reflected)
        mine, theirs = self.referent(tx), other.referent(tx)
        if mine is None or theirs is None:
            return tx.const((self is other) == (op is operator.eq))
        return compare(tx, op, mine, theirs)

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
        if callback is not None and not is_none(callback):
            tx.graph_break("weak_reference", reason="callback")
        if target.source is None and not isinstance(target.realize(), UserObjectVariable):
            tx.graph_break("weak_reference", reason="object made inside")
        target = target.realize()
        if isinstance(target, UserObjectVariable):
            target.is_watched = True
        return WeakRefVariable(target)

    CONSTRUCTORS[weakref.ref] = make


_register_weakref()
