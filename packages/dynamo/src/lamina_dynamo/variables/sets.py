"""set and frozenset."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from .base import VariableTracker
from .builder import wraps_type
from .container import all_constant, content
from .keys import push_traced_keys

_SET_OPS = {operator.and_, operator.or_, operator.xor, operator.sub}


class SetBase(VariableTracker):
    """Base of set and frozenset trackers: `entries` maps key stand-ins to element trackers.

    The order of a real set depends on hashes; where the order of a set shows, the constants' real order is used and
    other elements break the graph.
    """

    __slots__ = ("entries", "original", "owner", "version")
    kind: type = set

    def __init__(self, entries: dict[Any, VariableTracker] | None = None, source: Any = None):
        super().__init__(source)
        self.entries: dict[Any, VariableTracker] = entries if entries is not None else {}
        self.owner: VariableTracker | None = None
        self.version = 0
        #: what the real set holds
        self.original = dict(self.entries) if source is not None else None

    @classmethod
    def from_items(cls, tx: Any, items: list[VariableTracker]) -> Any:
        vt = cls()
        for item in items:
            vt.entries.setdefault(key_in_set(tx, item), item)
        return vt

    def describe(self) -> str:
        return f"{self.python_type().__name__} of {len(self.entries)}"

    def python_type(self) -> type:
        return self.kind

    def children(self) -> Any:
        return self.entries.values()

    def length(self, tx: Any) -> VariableTracker:
        return tx.const(len(self.entries))

    def truth(self, tx: Any) -> bool | None:
        return bool(self.entries)

    def contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        return tx.const(key_in_set(tx, item) in self.entries)

    def unpack(self, tx: Any) -> list[VariableTracker]:
        items = list(self.entries.values())
        if len(items) < 2:
            return items
        if all(i.realize().is_python_constant() for i in items):
            by_value = {i.as_python_constant(): i for i in items}
            if all(_hash_is_stable(v) for v in by_value):
                return [by_value[v] for v in self.kind(by_value)]
        tx.graph_break("unordered_set", operation="iteration")

    def iterate(self, tx: Any) -> VariableTracker:
        from .iterators import SetIterator

        return SetIterator(self, self.unpack(tx))

    def make(self, entries: dict[Any, VariableTracker]) -> Any:
        return type(self)(entries)

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        from .dict_views import DictViewVariable

        other = content(other)
        if isinstance(other, DictViewVariable) and other.which != "values":
            other = other.as_set(tx)
        if not isinstance(other, SetBase):
            return NotImplemented
        a, b = (other, self) if reflected else (self, other)
        if op in _SET_OPS:
            return a.make(_combine(op, a.entries, b.entries))
        if op is operator.eq:
            return tx.const(a.entries.keys() == b.entries.keys())
        if op is operator.ne:
            return tx.const(a.entries.keys() != b.entries.keys())
        if op in (operator.le, operator.lt, operator.ge, operator.gt):
            return tx.const(op(a.entries.keys(), b.entries.keys()))
        return NotImplemented

    def method_union(self, tx: Any, *others: VariableTracker) -> VariableTracker:
        entries = dict(self.entries)
        for other in others:
            for item in elements(tx, other):
                entries.setdefault(key_in_set(tx, item), item)
        return self.make(entries)

    def method_intersection(self, tx: Any, *others: VariableTracker) -> VariableTracker:
        entries = dict(self.entries)
        for other in others:
            keys = {key_in_set(tx, i) for i in elements(tx, other)}
            entries = {k: v for k, v in entries.items() if k in keys}
        return self.make(entries)

    def method_difference(self, tx: Any, *others: VariableTracker) -> VariableTracker:
        entries = dict(self.entries)
        for other in others:
            for item in elements(tx, other):
                entries.pop(key_in_set(tx, item), None)
        return self.make(entries)

    def method_symmetric_difference(self, tx: Any, other: VariableTracker) -> VariableTracker:
        theirs = {key_in_set(tx, i): i for i in elements(tx, other)}
        return self.make(_combine(operator.xor, self.entries, theirs))

    def method_issubset(self, tx: Any, other: VariableTracker) -> VariableTracker:
        keys = {key_in_set(tx, i) for i in elements(tx, other)}
        return tx.const(self.entries.keys() <= keys)

    def method_issuperset(self, tx: Any, other: VariableTracker) -> VariableTracker:
        return tx.const(all(key_in_set(tx, i) in self.entries for i in elements(tx, other)))

    def method_isdisjoint(self, tx: Any, other: VariableTracker) -> VariableTracker:
        return tx.const(not any(key_in_set(tx, i) in self.entries for i in elements(tx, other)))

    def method_copy(self, tx: Any) -> VariableTracker:
        return self.make(dict(self.entries))


def _combine(op: Any, a: dict[Any, VariableTracker], b: dict[Any, VariableTracker]) -> dict[Any, VariableTracker]:
    if op is operator.and_:
        return {k: v for k, v in a.items() if k in b}
    if op is operator.sub:
        return {k: v for k, v in a.items() if k not in b}
    if op is operator.or_:
        return {**a, **{k: v for k, v in b.items() if k not in a}}
    return {**{k: v for k, v in a.items() if k not in b}, **{k: v for k, v in b.items() if k not in a}}


def _hash_is_stable(value: Any) -> bool:
    return isinstance(value, (int, float, str, bytes, tuple, type(None), complex))


def elements(tx: Any, vt: VariableTracker) -> list[VariableTracker]:
    """Elements of an iterable in any order (sets need none)."""
    inner = content(vt)
    if isinstance(inner, SetBase):
        return list(inner.entries.values())
    return vt.unpack(tx)


def key_in_set(tx: Any, item: VariableTracker) -> Any:
    """Stand-in of an element; a set looked up in a set counts as a frozenset."""
    item = item.realize()
    inner = content(item)
    if isinstance(inner, SetVariable) and inner is item:
        return FrozenSetVariable(dict(inner.entries)).hash_key(tx)
    return item.hash_key(tx)


class FrozenSetVariable(SetBase):
    """A frozenset."""

    __slots__ = ()
    kind = frozenset

    def is_python_constant(self) -> bool:
        return all_constant(self.entries.values())

    def as_python_constant(self) -> Any:
        return frozenset(i.as_python_constant() for i in self.entries.values())

    def hash_key(self, tx: Any) -> Any:
        from .keys import TupleKey

        return TupleKey(frozenset(self.entries))

    def method_copy(self, tx: Any) -> VariableTracker:
        return self if self.owner is None else FrozenSetVariable(dict(self.entries))

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(frozenset)
        for item in self.entries.values():
            codegen(item)
        codegen.build("BUILD_LIST", len(self.entries))
        codegen.call_function(1)


class SetVariable(SetBase):
    """A set; mutated in place."""

    __slots__ = ()
    kind = set
    is_mutable = True

    def is_python_constant(self) -> bool:
        return self.source is None and self.owner is None and all_constant(self.entries.values())

    def as_python_constant(self) -> Any:
        return {i.as_python_constant() for i in self.entries.values()}

    def mutate(self, tx: Any) -> None:
        self.version += 1
        tx.output.side_effects.mutation(self)

    def hash_key(self, tx: Any) -> Any:
        tx.raise_exception(TypeError, "unhashable type: 'set'")

    def method_init(self, tx: Any, iterable: VariableTracker | None = None) -> VariableTracker:
        items = [] if iterable is None else elements(tx, iterable)
        self.mutate(tx)
        self.entries.clear()
        for item in items:
            self.entries.setdefault(key_in_set(tx, item), item)
        return tx.const(None)

    def method_add(self, tx: Any, item: VariableTracker) -> VariableTracker:
        key = item.realize().hash_key(tx)
        self.mutate(tx)
        self.entries.setdefault(key, item)
        return tx.const(None)

    def method_discard(self, tx: Any, item: VariableTracker) -> VariableTracker:
        key = key_in_set(tx, item)
        self.mutate(tx)
        self.entries.pop(key, None)
        return tx.const(None)

    def method_remove(self, tx: Any, item: VariableTracker) -> VariableTracker:
        from .dicts import raise_key_error

        key = key_in_set(tx, item)
        if key not in self.entries:
            raise_key_error(tx, item)
        self.mutate(tx)
        del self.entries[key]
        return tx.const(None)

    def method_pop(self, tx: Any) -> VariableTracker:
        if not self.entries:
            tx.raise_exception(KeyError, "pop from an empty set")
        first = self.unpack(tx)[0]
        self.mutate(tx)
        del self.entries[key_in_set(tx, first)]
        return first

    def method_clear(self, tx: Any) -> VariableTracker:
        self.mutate(tx)
        self.entries.clear()
        return tx.const(None)

    def method_update(self, tx: Any, *others: VariableTracker) -> VariableTracker:
        for other in others:
            items = elements(tx, other)
            self.mutate(tx)
            for item in items:
                self.entries.setdefault(key_in_set(tx, item), item)
        return tx.const(None)

    def _become(self, tx: Any, result: Any) -> VariableTracker:
        self.mutate(tx)
        entries = dict(result.entries)
        self.entries.clear()
        self.entries.update(entries)
        return tx.const(None)

    def method_intersection_update(self, tx: Any, *others: VariableTracker) -> VariableTracker:
        return self._become(tx, self.method_intersection(tx, *others))

    def method_difference_update(self, tx: Any, *others: VariableTracker) -> VariableTracker:
        return self._become(tx, self.method_difference(tx, *others))

    def method_symmetric_difference_update(self, tx: Any, other: VariableTracker) -> VariableTracker:
        return self._become(tx, self.method_symmetric_difference(tx, other))

    def inplace_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker) -> Any:
        from .dict_views import DictViewVariable

        plain = {
            operator.ior: operator.or_,
            operator.iand: operator.and_,
            operator.isub: operator.sub,
            operator.ixor: operator.xor,
        }.get(op)
        if plain is None:
            return NotImplemented
        inner = content(other)
        if isinstance(inner, DictViewVariable):
            return NotImplemented
        result = self.binary_op(tx, plain, inner)
        if result is NotImplemented:
            return NotImplemented
        self._become(tx, result)
        return self

    def reconstruct(self, codegen: Any) -> None:
        push_traced_keys(codegen, self.entries.items())
        for item in self.entries.values():
            codegen(item)
        codegen.build("BUILD_SET", len(self.entries))

    def fill(self, codegen: Any) -> None:
        self.replay_into(codegen, self)

    def replay(self, codegen: Any) -> None:
        self.replay_into(codegen, self)

    def replay_into(self, codegen: Any, target: VariableTracker) -> None:
        if self.original is not None and self in codegen.replayed:
            return
        codegen.replayed.add(self)
        if self.original is not None:
            original = self.original
            gone = [(k, vt) for k, vt in original.items() if k not in self.entries]
            new = [(k, vt) for k, vt in self.entries.items() if k not in original]
            push_traced_keys(codegen, [*gone, *new])
            codegen.push_function(change_set)
            codegen(target)
            for part in (gone, new):
                for _, vt in part:
                    codegen(vt)
                codegen.build("BUILD_TUPLE", len(part))
            codegen.call_function(3)
            codegen.pop()
            return
        push_traced_keys(codegen, self.entries.items())
        codegen.push_function(set_set)
        codegen(target)
        for item in self.entries.values():
            codegen(item)
        codegen.build("BUILD_LIST", len(self.entries))
        codegen.call_function(2)
        codegen.pop()


def change_set(target: set[Any], gone: tuple[Any, ...], new: tuple[Any, ...]) -> None:
    """Takes elements out of a set and adds others, for generated code."""
    set.difference_update(target, gone)
    for item in new:
        set.add(target, item)


def set_set(target: set[Any], items: list[Any]) -> None:
    """Replaces the contents of a set, for generated code."""
    set.clear(target)
    set.update(target, items)


def _wrap_elements(tx: Any, value: Any, source: Any) -> dict[Any, VariableTracker]:
    from .constant import is_constant_value

    entries: dict[Any, VariableTracker] = {}
    for item in value:
        if is_constant_value(item) or isinstance(item, (type, tuple, frozenset)) or source is None:
            vt = tx.wrap(item, None)
        else:
            own_hash = type(item).__hash__
            if isinstance(own_hash, types.FunctionType) and own_hash is not torch.Tensor.__hash__:
                tx.graph_break("unordered_set", type=type(item).__name__, reason="own __hash__")
            known = tx.output.builder.by_id.get(id(item))
            if known is None:
                from ..source import PythonSource

                vt = tx.wrap(item, PythonSource(source, element_by_id, id(item)))
            else:
                vt = known[1]
        entries[key_in_set(tx, vt)] = vt
    return entries


def element_by_id(value: Any, address: int) -> Any:
    """The element of a set that has this identity (the SET_CONTENTS guard has checked that it is there)."""
    for item in value:
        if id(item) == address:
            return item
    raise KeyError(address)


def _guard(tx: Any, value: Any, source: Any) -> None:
    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
        tx.output.guard(source, "SET_CONTENTS", type(value)(value) if type(value) in (set, frozenset) else set(value))


@wraps_type(set)
def wrap_set(tx: Any, value: Any, source: Any) -> VariableTracker:
    _guard(tx, value, source)
    return SetVariable(_wrap_elements(tx, value, source), source)


@wraps_type(frozenset)
def wrap_frozenset(tx: Any, value: Any, source: Any) -> VariableTracker:
    _guard(tx, value, source)
    return FrozenSetVariable(_wrap_elements(tx, value, source), source)


def register_storages() -> None:
    from .user_object import STORAGE_WRAPPERS

    def make(cls: Any) -> Any:
        def storage(tx: Any, value: Any, source: Any) -> VariableTracker:
            if source is not None:
                tx.output.guard(source, "SET_CONTENTS", set(cls.kind.__iter__(value)))
            return cls(_wrap_elements(tx, cls.kind.__iter__(value), source), source)

        return storage

    STORAGE_WRAPPERS[set] = make(SetVariable)
    STORAGE_WRAPPERS[frozenset] = make(FrozenSetVariable)


register_storages()
