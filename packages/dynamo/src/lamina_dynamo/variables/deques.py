"""Deques."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from ..source import AttrSource
from .base import VariableTracker
from .builder import wraps_type
from .container import ListVariable, wrap_elements
from .operators import index_value, same_or_equal
from .slices import SliceVariable


class DequeVariable(ListVariable):
    """A collections.deque."""

    __slots__ = ("changes", "maxlen")
    kind = collections.deque
    family = collections.deque

    def __init__(self, items: list[VariableTracker] | None = None, source: Any = None, maxlen: int | None = None):
        super().__init__(items, source)
        self.maxlen = maxlen
        #: grows with every change of the elements' number or order, as the state that real iterators look at
        self.changes = 0

    def mutate(self, tx: Any) -> None:
        self.changes += 1
        super().mutate(tx)

    def set_item(self, tx: Any, key: VariableTracker, value: VariableTracker) -> None:
        before = self.changes
        super().set_item(tx, key, value)
        self.changes = before

    def is_python_constant(self) -> bool:
        return False

    def make(self, items: list[VariableTracker]) -> VariableTracker:
        vt = DequeVariable(items, None, self.maxlen)
        vt._trim_left()
        return vt

    def _trim_left(self) -> None:
        if self.maxlen is not None:
            while len(self.items) > self.maxlen:
                del self.items[0]

    def _trim_right(self) -> None:
        if self.maxlen is not None:
            while len(self.items) > self.maxlen:
                del self.items[-1]

    def position(self, tx: Any, key: VariableTracker, action: str = "") -> int:
        i = index_value(tx, key, "sequence index must be integer, not '{type}'")
        if i < 0:
            i += len(self.items)
        if not 0 <= i < len(self.items):
            tx.raise_exception(IndexError, "deque index out of range")
        return i

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        if isinstance(key.realize(), SliceVariable):
            tx.raise_exception(TypeError, "sequence index must be integer, not 'slice'")
        return super().get_item(tx, key)

    def get_member(self, tx: Any, name: str) -> VariableTracker | None:
        return tx.const(self.maxlen) if name == "maxlen" else None

    def method_init(
        self, tx: Any, iterable: VariableTracker | None = None, maxlen: VariableTracker | None = None
    ) -> VariableTracker:
        from .constant import is_none

        limit = None if maxlen is None or is_none(maxlen) else index_value(tx, maxlen)
        if limit is not None and limit < 0:
            tx.raise_exception(ValueError, "maxlen must be non-negative")
        self.maxlen = limit
        items = [] if iterable is None else iterable.unpack(tx)
        self.mutate(tx)
        self.items[:] = items
        self._trim_left()
        return tx.const(None)

    def iterate(self, tx: Any) -> VariableTracker:
        from .iterators import ListIterator

        return ListIterator(self, changes=self.changes)

    def method_append(self, tx: Any, item: VariableTracker) -> VariableTracker:
        super().method_append(tx, item)
        self._trim_left()
        return tx.const(None)

    def method_appendleft(self, tx: Any, item: VariableTracker) -> VariableTracker:
        self.mutate(tx)
        self.items.insert(0, item)
        self._trim_right()
        return tx.const(None)

    def method_extend(self, tx: Any, iterable: VariableTracker) -> VariableTracker:
        for item in iterable.unpack(tx):
            self.method_append(tx, item)
        return tx.const(None)

    def method_extendleft(self, tx: Any, iterable: VariableTracker) -> VariableTracker:
        for item in iterable.unpack(tx):
            self.method_appendleft(tx, item)
        return tx.const(None)

    def method_popleft(self, tx: Any) -> VariableTracker:
        if not self.items:
            tx.raise_exception(IndexError, "pop from an empty deque")
        self.mutate(tx)
        return self.items.pop(0)

    def method_pop(self, tx: Any) -> VariableTracker:  # type: ignore[override]
        if not self.items:
            tx.raise_exception(IndexError, "pop from an empty deque")
        self.mutate(tx)
        return self.items.pop()

    def method_insert(self, tx: Any, index: VariableTracker, item: VariableTracker) -> VariableTracker:
        if self.maxlen is not None and len(self.items) >= self.maxlen:
            tx.raise_exception(IndexError, "deque already at its maximum size")
        return super().method_insert(tx, index, item)

    def method_rotate(self, tx: Any, n: VariableTracker | None = None) -> VariableTracker:
        k = 1 if n is None else index_value(tx, n)
        self.mutate(tx)
        if self.items:
            k %= len(self.items)
            self.items[:] = self.items[-k:] + self.items[:-k] if k else self.items
        return tx.const(None)

    def method_remove(self, tx: Any, item: VariableTracker) -> VariableTracker:
        from .formatting import repr_of

        changes, n = self.changes, len(self.items)
        for i, element in enumerate(list(self.items)):
            found = same_or_equal(tx, element, item)
            if self.changes != changes or len(self.items) != n:
                tx.raise_exception(IndexError, "deque mutated during iteration")
            if found:
                self.mutate(tx)
                del self.items[i]
                return tx.const(None)  # type: ignore[no-any-return]
        tx.raise_exception(ValueError, f"{repr_of(tx, item)} is not in deque")

    def method_copy(self, tx: Any) -> VariableTracker:
        return self.make(list(self.items))

    def inplace_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker) -> Any:
        result = super().inplace_op(tx, op, other)
        self._trim_left()
        return result

    def search(self, tx: Any, item: VariableTracker) -> Any:
        """For each element whether it equals `item`; a comparison that changes the deque is an error."""
        n = len(self.items)
        for element in list(self.items):
            yield same_or_equal(tx, element, item)
            if len(self.items) != n:
                tx.raise_exception(RuntimeError, "deque mutated during iteration")

    def contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        return tx.const(any(self.search(tx, item)))

    def method_count(self, tx: Any, item: VariableTracker) -> VariableTracker:
        return tx.const(sum(self.search(tx, item)))

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(collections.deque)
        codegen.load_const(())
        codegen.load_const(self.maxlen)
        codegen.call_function(2)
        codegen.remember(self)
        codegen.output.side_effects.pending_fill.append(self)

    def replay_into(self, codegen: Any, target: VariableTracker) -> None:
        if self.original is not None and self in codegen.replayed:
            return
        codegen.replayed.add(self)
        original = self.original
        if (
            original is not None
            and all(a is b for a, b in zip(self.items, original))
            and len(self.items) >= len(original)
        ):
            if len(self.items) > len(original):
                codegen.push_function(collections.deque.extend)
                codegen(target)
                for item in self.items[len(original) :]:
                    codegen(item)
                codegen.build("BUILD_LIST", len(self.items) - len(original))
                codegen.call_function(2)
                codegen.pop()
            return
        codegen.push_function(set_deque)
        codegen(target)
        for item in self.items:
            codegen(item)
        codegen.build("BUILD_LIST", len(self.items))
        codegen.call_function(2)
        codegen.pop()


def set_deque(target: Any, items: list[Any]) -> None:
    """Replaces the contents of a deque, for generated code."""
    collections.deque.clear(target)
    collections.deque.extend(target, items)


@wraps_type(collections.deque)
def wrap_deque(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "TYPE", collections.deque)
        tx.output.guard(source, "LENGTH", len(value))
        tx.output.guard(AttrSource(source, "maxlen"), "CONSTANT", value.maxlen)
    vt = DequeVariable([], source, value.maxlen)
    tx.output.builder.remember(value, vt)
    vt.items.extend(wrap_elements(tx, value, source))
    if source is not None:
        vt.original = tuple(vt.items)
    return vt
