"""Ordered dicts, dicts with a default, and the dict part of a program's subclasses."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from .attributes import DELETED
from .base import VariableTracker
from .builder import wrap_lazy, wraps_type
from .container import TupleVariable
from .dicts import DictVariable, change_ordered_dict, fill_entries, raise_key_error, set_ordered_dict
from .operators import same_or_equal


class OrderedDictVariable(DictVariable):
    """A collections.OrderedDict (the C type). ``attrs``: attributes that the region stored on one that it made."""

    __slots__ = ("attrs",)
    kind = collections.OrderedDict

    def __init__(self, items: Any = None, source: Any = None, real: dict[Any, Any] | None = None):
        super().__init__(items, source, real)
        self.attrs: dict[str, VariableTracker] = {}

    def instance_attr(self, tx: Any, name: str, shadowing: bool) -> VariableTracker | None:
        return self.attrs.get(name)

    def store_attr(self, tx: Any, name: str, value: Any, shadowing: bool = False) -> None:
        if self.source is not None or self.owner is not None:
            tx.graph_break("side_effect", operation=f"attribute {name} stored on an OrderedDict from outside")
        self.attrs.pop(name, None)
        if value is not DELETED:
            self.attrs[name] = value

    def children(self) -> Any:
        yield from super().children()
        yield from self.attrs.values()

    def fill(self, codegen: Any) -> None:
        super().fill(codegen)
        for name, value in self.attrs.items():
            codegen.push_function(setattr)
            codegen(self)
            codegen.load_const(name)
            codegen(value)
            codegen.call_function(3)
            codegen.pop()

    def is_python_constant(self) -> bool:
        return False

    def store(self, tx: Any, key: VariableTracker, value: VariableTracker) -> None:
        if self.owner is not None:
            self.owner.set_item(tx, key, value)
        else:
            self.put(tx, key, value)

    def equals(self, tx: Any, other: DictVariable) -> bool:
        if not super().equals(tx, other):
            return False
        if isinstance(other, OrderedDictVariable):
            return all(same_or_equal(tx, a, b) for (a, _), (b, _) in zip(self.pairs(tx), other.pairs(tx)))
        return True

    def method_copy(self, tx: Any) -> DictVariable:
        fresh = OrderedDictVariable()
        for k, v in self.pairs(tx):
            fresh.insert(k.realize().hash_key(tx), k, v)
        return fresh

    def method_move_to_end(self, tx: Any, key: VariableTracker, last: VariableTracker | None = None) -> VariableTracker:
        self.guard_all_keys(tx)
        stand_in = key.realize().hash_key(tx)
        if stand_in not in self.entries:
            raise_key_error(tx, key)
        self.mutate(tx)
        entry = self.entries.pop(stand_in)
        if last is None or tx.truth(last):
            self.entries[stand_in] = entry
        else:
            rest = list(self.entries.items())
            self.entries.clear()
            self.entries[stand_in] = entry
            self.entries.update(rest)
        self.version += 1
        return tx.const(None)

    def method_popitem(self, tx: Any, last: VariableTracker | None = None) -> VariableTracker:  # type: ignore[override]
        pairs = self.pairs(tx)
        if not pairs:
            tx.raise_exception(KeyError, "dictionary is empty")
        key, value = pairs[-1 if last is None or tx.truth(last) else 0]
        self.remove(tx, key)
        return TupleVariable([key, value])

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(collections.OrderedDict)
        codegen.call_function(0)
        codegen.remember(self)
        codegen.output.side_effects.pending_fill.append(self)

    def replay_function(self) -> Callable[[Any, Any], None]:
        return set_ordered_dict

    @property
    def change_function(self) -> Callable[[Any, Any, Any], None]:
        return change_ordered_dict


class DefaultDictVariable(DictVariable):
    """A collections.defaultdict."""

    __slots__ = ("default_factory",)
    kind = collections.defaultdict

    def __init__(self, items: Any = None, source: Any = None, real: Any = None, factory: Any = None):
        super().__init__(items, source, real)
        self.default_factory: VariableTracker | None = factory

    def is_python_constant(self) -> bool:
        return False

    def missing(self, tx: Any, key: VariableTracker) -> VariableTracker:
        if self.owner is not None:
            from .attributes import find_in_type, lookup_special

            found = find_in_type(tx, self.owner, "__missing__")
            if found is not None and found.owner is not collections.defaultdict:
                return lookup_special(tx, self.owner, "__missing__").call_function(tx, [key], {})  # type: ignore[union-attr]
        return self.method_missing(tx, key)

    def method_missing(self, tx: Any, key: VariableTracker) -> VariableTracker:
        from .constant import is_none

        if self.default_factory is None or is_none(self.default_factory):
            raise_key_error(tx, key)
        value = self.default_factory.call_function(tx, [], {})
        target = self if self.owner is None else self.owner
        target.set_item(tx, key, value)
        return value

    def method_init(self, tx: Any, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        self.default_factory = args[0] if args else None
        self.mutate(tx)
        return self.method_update(tx, *args[1:], **kwargs)

    def get_member(self, tx: Any, name: str) -> VariableTracker | None:
        if name == "default_factory":
            return self.default_factory or tx.const(None)
        return None

    def set_member(self, tx: Any, name: str, value: VariableTracker) -> bool:
        if name != "default_factory":
            return False
        self.mutate(tx)
        self.default_factory = value
        return True

    def method_copy(self, tx: Any) -> DictVariable:
        fresh = DefaultDictVariable(factory=self.default_factory)
        for k, v in self.pairs(tx):
            fresh.insert(k.realize().hash_key(tx), k, v)
        return fresh

    def children(self) -> Any:
        yield from super().children()
        if self.default_factory is not None:
            yield self.default_factory

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(collections.defaultdict)
        codegen.call_function(0)
        codegen.remember(self)
        codegen.output.side_effects.pending_fill.append(self)

    def replay_into(self, codegen: Any, target: VariableTracker) -> None:
        super().replay_into(codegen, target)
        if self.default_factory is not None:
            codegen.push_function(set_default_factory)
            codegen(target)
            codegen(self.default_factory)
            codegen.call_function(2)
            codegen.pop()


def set_default_factory(target: Any, factory: Any) -> None:
    """Sets `default_factory`, for generated code."""
    target.default_factory = factory


@wraps_type(collections.OrderedDict)
def wrap_ordered_dict(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
    vt = OrderedDictVariable(None, source, value)
    tx.output.builder.remember(value, vt)
    fill_entries(tx, vt, value, source)
    return vt


@wraps_type(collections.defaultdict)
def wrap_default_dict(tx: Any, value: Any, source: Any) -> VariableTracker:
    from ..source import AttrSource

    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
    vt = DefaultDictVariable(None, source, value)
    tx.output.builder.remember(value, vt)
    vt.default_factory = wrap_lazy(
        tx, value.default_factory, None if source is None else AttrSource(source, "default_factory")
    )
    fill_entries(tx, vt, value, source)
    return vt


def _storage(cls: type[DictVariable]) -> Any:
    def make(tx: Any, value: Any, source: Any) -> VariableTracker:
        vt = cls(None, source, value)
        if cls is DefaultDictVariable:
            from ..source import AttrSource

            factory_source = None if source is None else AttrSource(source, "default_factory")
            vt.default_factory = wrap_lazy(tx, value.default_factory, factory_source)  # type: ignore[attr-defined]
        fill_entries(tx, vt, value, source)
        return vt

    return make


def register_storages() -> None:
    from .user_object import STORAGE_WRAPPERS

    STORAGE_WRAPPERS[dict] = _storage(DictVariable)
    STORAGE_WRAPPERS[collections.OrderedDict] = _storage(OrderedDictVariable)
    STORAGE_WRAPPERS[collections.defaultdict] = _storage(DefaultDictVariable)


register_storages()
