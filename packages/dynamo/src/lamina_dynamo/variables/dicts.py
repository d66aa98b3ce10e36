"""Mappings: dict, OrderedDict, defaultdict, mapping proxies, instance dicts and dict views."""

from __future__ import annotations

import collections
import enum
import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from .attributes import DELETED
from .base import ObservedException, VariableTracker
from .builder import wrap_lazy, wraps_type
from .container import ListVariable, TupleVariable, all_constant, content
from .keys import push_traced_keys, stored_key
from .operators import same_or_equal

Pair = tuple[VariableTracker, VariableTracker]


class DictVariable(VariableTracker):
    """A dict; `entries` maps key stand-ins (see keys.py) to (key tracker, value tracker), in the dict's order.

    For a dict from outside, single look-ups guard only that key; whatever depends on all keys guards them all.
    """

    __slots__ = ("disturbed", "entries", "missing_guarded", "original", "owner", "real", "version", "whole_guarded")
    kind: type = dict
    is_mutable = True

    def __init__(self, items: Any = None, source: Any = None, real: dict[Any, Any] | None = None):
        super().__init__(source)
        self.entries: dict[Any, Pair] = {}
        self.real = real
        self.owner: VariableTracker | None = None
        self.whole_guarded = source is None
        self.missing_guarded: set[Any] = set()
        #: counts insertions and deletions, for iterators that must notice
        self.version = 0
        #: the entries that the real dict has; whether the region took one out and put it in again
        self.original: dict[Any, Pair] | None = None
        self.disturbed = False
        if items:
            from .constant import ConstantVariable
            from .keys import ConstantKey

            for k, v in items.items():
                key = k if not isinstance(k, (str, int, float, bool, type(None))) else ConstantVariable(k)
                self.entries[ConstantKey(key.as_python_constant())] = (key, v)

    @classmethod
    def from_pairs(cls, tx: Any, pairs: list[Pair]) -> DictVariable:
        vt = cls()
        for k, v in pairs:
            vt.insert(k.realize().hash_key(tx), k, v)
        return vt

    def insert(self, key: Any, k: VariableTracker, v: VariableTracker) -> None:
        """Stores without side-effect bookkeeping; an equal key that is there keeps its object, as in a real dict."""
        old = self.entries.get(key)
        self.entries[key] = (k if old is None else old[0], v)
        if old is None:
            self.version += 1
            if self.original is not None and key in self.original:
                self.disturbed = True

    def describe(self) -> str:
        where = f" from {self.source.name}" if self.source is not None else ""
        return f"{self.python_type().__name__} of {len(self.entries)}{where}"

    def python_type(self) -> type:
        return self.kind

    def is_python_constant(self) -> bool:
        return (
            self.source is None
            and self.owner is None
            and type(self) is DictVariable
            and all_constant(part for pair in self.entries.values() for part in pair)
        )

    def as_python_constant(self) -> Any:
        return {k.as_python_constant(): v.as_python_constant() for k, v in self.entries.values()}

    def as_proxy(self) -> Any:
        return {k.as_python_constant(): v.as_proxy() for k, v in self.entries.values()}

    def children(self) -> Any:
        for k, v in self.entries.values():
            yield k
            yield v

    # -- guards -------------------------------------------------------------------------------------------------

    def guard_all_keys(self, tx: Any) -> None:
        if not self.whole_guarded:
            self.whole_guarded = True
            if self.source is not None and self.real is not None:
                tx.output.guard(self.source, "DICT_KEYS", [k for k, _ in items_in_order(self.real)])

    def guard_missing(self, tx: Any, key_vt: VariableTracker, key: Any) -> None:
        if self.whole_guarded or self.source is None or key in self.missing_guarded:
            return
        if key_vt.realize().is_python_constant():
            self.missing_guarded.add(key)
            real_key = key_vt.realize().as_python_constant()
            if self.real is not None and dict.__contains__(self.real, real_key):
                return  # the region itself removed it
            tx.output.guard(self.source, "DICT_NOT_CONTAINS", real_key)
        else:
            self.guard_all_keys(tx)

    # -- primitives (InstanceDictVariable replaces them) -----------------------------------------------------------

    def mutate(self, tx: Any) -> None:
        tx.output.side_effects.mutation(self)

    def find(self, tx: Any, key_vt: VariableTracker) -> VariableTracker | None:
        """Value of a key, or None."""
        key = key_vt.realize().hash_key(tx)
        entry = self.entries.get(key)
        if entry is None:
            self.guard_missing(tx, key_vt, key)
            return None
        if not self.whole_guarded and self.source is not None and isinstance(entry[1], VariableTracker):
            # the value's own guards read the item; a value never looked at still needs the key to be there
            from .lazy import LazyVariable

            if isinstance(entry[1], LazyVariable) and not entry[1].is_realized and entry[0].is_python_constant():
                real_key = entry[0].as_python_constant()
                # else the region itself put an untouched value of elsewhere there
                if self.real is None or dict.__contains__(self.real, real_key):
                    tx.output.guard(self.source, "DICT_CONTAINS", real_key)
        return entry[1]

    def put(self, tx: Any, key_vt: VariableTracker, value: VariableTracker) -> None:
        key = key_vt.realize().hash_key(tx)
        if key not in self.entries:
            self.guard_missing(tx, key_vt, key)
        self.mutate(tx)
        self.insert(key, key_vt, value)

    def remove(self, tx: Any, key_vt: VariableTracker) -> VariableTracker | None:
        """Removes a key and gives its value, or None if it is not there."""
        value = self.find(tx, key_vt)
        if value is None:
            return None
        self.mutate(tx)
        del self.entries[key_vt.realize().hash_key(tx)]
        self.version += 1
        return value

    def pairs(self, tx: Any) -> list[Pair]:
        """(key, value) in order."""
        self.guard_all_keys(tx)
        return list(self.entries.values())

    def count(self, tx: Any) -> int:
        if not self.whole_guarded and self.source is not None and self.real is not None:
            self.guard_all_keys(tx)
        return len(self.entries)

    def order_token(self) -> Any:
        return self.version

    # -- protocols ----------------------------------------------------------------------------------------------

    def length(self, tx: Any) -> VariableTracker:
        return tx.const(self.count(tx))

    def truth(self, tx: Any) -> bool | None:
        return self.count(tx) > 0

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        value = self.find(tx, key)
        if value is not None:
            return value
        return self.missing(tx, key)

    def missing(self, tx: Any, key: VariableTracker) -> VariableTracker:
        if self.owner is not None:
            from .attributes import lookup_special

            method = lookup_special(tx, self.owner, "__missing__")
            if method is not None:
                return method.call_function(tx, [key], {})
        raise_key_error(tx, key)

    def set_item(self, tx: Any, key: VariableTracker, value: VariableTracker) -> None:
        self.put(tx, key, value)

    def del_item(self, tx: Any, key: VariableTracker) -> None:
        if self.remove(tx, key) is None:
            raise_key_error(tx, key)

    def contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        return tx.const(self.find(tx, item) is not None)

    def unpack(self, tx: Any) -> list[VariableTracker]:
        return [k for k, _ in self.pairs(tx)]

    def iterate(self, tx: Any) -> VariableTracker:
        return DictViewVariable(self, "keys").iterate(tx)

    def hash_key(self, tx: Any) -> Any:
        tx.raise_exception(TypeError, f"unhashable type: '{self.python_type().__name__}'")

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        other = content(other)
        if isinstance(other, MappingProxyVariable):
            other = other.mapping
        if not isinstance(other, DictVariable):
            return NotImplemented
        if op in (operator.eq, operator.ne):
            return tx.const(self.equals(tx, other) == (op is operator.eq))
        if op is operator.or_:
            left, right = (other, self) if reflected else (self, other)
            result = left.method_copy(tx)
            result.method_update(tx, right)
            return result
        return NotImplemented

    def equals(self, tx: Any, other: DictVariable) -> bool:
        mine = self.pairs(tx)
        if len(mine) != other.count(tx):
            return False
        for k, v in mine:
            theirs = other.find(tx, k)
            if theirs is None or not same_or_equal(tx, v, theirs):
                return False
        return True

    def inplace_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker) -> Any:
        if op is operator.ior:
            self.method_update(tx, other)
            return self
        return NotImplemented

    def method_ior(self, tx: Any, other: VariableTracker) -> VariableTracker:
        self.method_update(tx, other)
        return self

    # -- methods ------------------------------------------------------------------------------------------------

    def method_init(self, tx: Any, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        return self.method_update(tx, *args, **kwargs)

    def method_get(self, tx: Any, key: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
        value = self.find(tx, key)
        if value is not None:
            return value
        return tx.const(None) if default is None else default

    def method_setdefault(
        self, tx: Any, key: VariableTracker, default: VariableTracker | None = None
    ) -> VariableTracker:
        value = self.find(tx, key)
        if value is None:
            value = tx.const(None) if default is None else default
            self.put(tx, key, value)
        return value

    def method_pop(self, tx: Any, key: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
        value = self.remove(tx, key)
        if value is not None:
            return value
        if default is not None:
            return default
        raise_key_error(tx, key)

    def method_popitem(self, tx: Any) -> VariableTracker:
        pairs = self.pairs(tx)
        if not pairs:
            tx.raise_exception(KeyError, "popitem(): dictionary is empty")
        key, value = pairs[-1]
        self.remove(tx, key)
        return TupleVariable([key, value])

    def method_clear(self, tx: Any) -> VariableTracker:
        self.guard_all_keys(tx)
        self.mutate(tx)
        self.entries.clear()
        self.version += 1
        return tx.const(None)

    def method_copy(self, tx: Any) -> DictVariable:
        fresh = DictVariable()
        for k, v in self.pairs(tx):
            fresh.insert(k.realize().hash_key(tx), k, v)
        return fresh

    def method_keys(self, tx: Any) -> VariableTracker:
        return DictViewVariable(self, "keys")

    def method_values(self, tx: Any) -> VariableTracker:
        return DictViewVariable(self, "values")

    def method_items(self, tx: Any) -> VariableTracker:
        return DictViewVariable(self, "items")

    def method_reversed(self, tx: Any) -> VariableTracker:
        return DictViewVariable(self, "keys").method_reversed(tx)

    def store(self, tx: Any, key: VariableTracker, value: VariableTracker) -> None:
        """How update() stores: dict's own way; OrderedDict goes through the owner's `__setitem__`."""
        self.put(tx, key, value)

    def method_update(self, tx: Any, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if len(args) > 1:
            tx.raise_exception(TypeError, f"update expected at most 1 argument, got {len(args)}")
        if args:
            for key, value in pairs_of(tx, args[0]):
                self.store(tx, key, value)
        for name, value in kwargs.items():
            self.store(tx, tx.const(name), value)
        return tx.const(None)

    def method_fromkeys(self, tx: Any, *args: VariableTracker) -> VariableTracker:
        tx.graph_break("unsupported_builtin_method", type="dict", method="fromkeys")

    def method_class_getitem(self, tx: Any, *args: VariableTracker) -> VariableTracker:
        tx.graph_break("unsupported_builtin_method", type="dict", method="__class_getitem__")

    # -- leaving the region -------------------------------------------------------------------------------------

    def reconstruct(self, codegen: Any) -> None:
        if codegen.output.side_effects.is_cyclic(self):
            codegen.build("BUILD_MAP", 0)
            codegen.remember(self)
            codegen.output.side_effects.pending_fill.append(self)
            return
        self.push_entries(codegen)

    def push_entries(self, codegen: Any) -> None:
        push_traced_keys(codegen, [(key, pair[0]) for key, pair in self.entries.items()])
        for k, v in self.entries.values():
            codegen(k)
            codegen(v)
        codegen.build("BUILD_MAP", len(self.entries))

    def fill(self, codegen: Any) -> None:
        self.replay_into(codegen, self)

    def replay(self, codegen: Any) -> None:
        self.replay_into(codegen, self)

    def replay_into(self, codegen: Any, target: VariableTracker) -> None:
        if self.original is not None and self in codegen.replayed:
            return
        codegen.replayed.add(self)
        if self.original is not None:
            self.replay_changes(codegen, target, self.original)
            return
        codegen.push_function(self.replay_function())
        codegen(target)
        self.push_entries(codegen)
        codegen.call_function(2)
        codegen.pop()

    def replay_changes(self, codegen: Any, target: VariableTracker, original: dict[Any, Pair]) -> None:
        """Only what the region changed is written: the dict may hold keys that nothing looked at, and other threads
        may write theirs."""
        if self.disturbed:
            self.guard_all_keys(codegen)
        places = {key: i for i, key in enumerate(original)}
        kept: set[Any] = set()
        last = -1
        for key in self.entries:
            place = places.get(key, -1)
            if place <= last:
                break
            last = place
            kept.add(key)
        gone = [(k, pair[0]) for k, pair in original.items() if k not in kept]
        changed = [(k, pair) for k, pair in self.entries.items() if k not in kept or pair[1] is not original[k][1]]
        if not gone and not changed:
            return
        push_traced_keys(codegen, [*gone, *((k, pair[0]) for k, pair in changed)])
        codegen.push_function(self.change_function)
        codegen(target)
        for _, k in gone:
            codegen(k)
        codegen.build("BUILD_TUPLE", len(gone))
        for _, (k, v) in changed:
            codegen(k)
            codegen(v)
        codegen.build("BUILD_MAP", len(changed))
        codegen.call_function(3)
        codegen.pop()

    def replay_function(self) -> Callable[[Any, Any], None]:
        return set_dict

    @property
    def change_function(self) -> Callable[[Any, Any, Any], None]:
        return change_dict


def change_dict(target: dict[Any, Any], gone: tuple[Any, ...], entries: dict[Any, Any]) -> None:
    """Takes keys out of a dict and stores others, for generated code."""
    for k in gone:
        dict.pop(target, k, None)
    for k, v in entries.items():
        dict.__setitem__(target, k, v)


def change_ordered_dict(target: Any, gone: tuple[Any, ...], entries: dict[Any, Any]) -> None:
    """``change_dict`` for an OrderedDict."""
    for k in gone:
        collections.OrderedDict.pop(target, k, None)
    for k, v in entries.items():
        collections.OrderedDict.__setitem__(target, k, v)


def set_dict(target: dict[Any, Any], entries: dict[Any, Any]) -> None:
    """Replaces the contents of a dict, for generated code; a dict whose keys stay keeps its order in place."""
    if isinstance(target, collections.OrderedDict):
        set_ordered_dict(target, entries)
        return
    if len(target) == len(entries) and all(a is b for a, b in zip(dict.__iter__(target), entries)):
        for k, v in entries.items():
            dict.__setitem__(target, k, v)
        return
    dict.clear(target)
    dict.update(target, entries)


def set_ordered_dict(target: Any, entries: dict[Any, Any]) -> None:
    """Replaces the contents of an OrderedDict, for generated code."""
    collections.OrderedDict.clear(target)
    for k, v in entries.items():
        collections.OrderedDict.__setitem__(target, k, v)


def raise_key_error(tx: Any, key: VariableTracker) -> Any:
    from .exception import make_exception

    raise ObservedException(make_exception(tx, KeyError, [key]))


def pairs_of(tx: Any, source: VariableTracker) -> list[Pair]:
    """What `dict(source)` would read: a mapping's items, or an iterable of pairs."""
    source = source.realize()
    inner = content(source)
    if isinstance(inner, MappingProxyVariable):
        inner = inner.mapping
    if isinstance(inner, DictVariable):
        exact = source is inner or _uses_dict_iteration(tx, source)
        if exact:
            return inner.pairs(tx)
    if source.has_attr(tx, "keys"):
        keys = source.call_method(tx, "keys", [], {})
        return [(k, source.get_item(tx, k)) for k in keys.unpack(tx)]
    out: list[Pair] = []
    for i, element in enumerate(source.unpack(tx)):
        try:
            parts = element.unpack(tx)
        except ObservedException as e:
            if e.matches(TypeError):
                tx.raise_exception(TypeError, f"cannot convert dictionary update sequence element #{i} to a sequence")
            raise
        if len(parts) != 2:
            tx.raise_exception(
                ValueError, f"dictionary update sequence element #{i} has length {len(parts)}; 2 is required"
            )
        out.append((parts[0], parts[1]))
    return out


def _uses_dict_iteration(tx: Any, vt: VariableTracker) -> bool:
    """CPython reads a dict subclass directly unless it overrides `__iter__`."""
    from .attributes import find_in_type

    found = find_in_type(tx, vt, "__iter__")
    return found is not None and found.owner in (dict, collections.OrderedDict)


class OrderedDictVariable(DictVariable):
    """A collections.OrderedDict (the C type)."""

    __slots__ = ()
    kind = collections.OrderedDict

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
        from .function import is_none

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


class MappingProxyVariable(VariableTracker):
    """types.MappingProxyType over a mapping."""

    __slots__ = ("mapping",)

    def __init__(self, mapping: VariableTracker, source: Any = None):
        super().__init__(source)
        self.mapping = mapping

    def python_type(self) -> type:
        return types.MappingProxyType

    def pairs(self, tx: Any) -> list[Pair]:
        return pairs_of(tx, self.mapping)

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        return self.mapping.get_item(tx, key)

    def contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        return self.mapping.contains(tx, item)

    def length(self, tx: Any) -> VariableTracker:
        return self.mapping.length(tx)

    def truth(self, tx: Any) -> bool | None:
        return self.mapping.truth(tx)

    def iterate(self, tx: Any) -> VariableTracker:
        return self.mapping.iterate(tx)

    def unpack(self, tx: Any) -> list[VariableTracker]:
        return self.mapping.unpack(tx)

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        return self.mapping.binary_op(tx, op, other, reflected)

    def call_builtin_method(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name in ("get", "keys", "values", "items", "copy", "__reversed__"):
            return self.mapping.call_method(tx, name, args, kwargs)
        return super().call_builtin_method(tx, name, args, kwargs)

    def children(self) -> Any:
        return (self.mapping,)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(types.MappingProxyType)
        codegen(self.mapping)
        codegen.call_function(1)


@wraps_type(types.MappingProxyType)
def wrap_mapping_proxy(tx: Any, value: Any, source: Any) -> VariableTracker:
    from .constant import is_constant_value

    # the mapping behind a proxy is not reachable: its contents are read through the proxy
    inner = DictVariable(None, source, value)  # type: ignore[arg-type]
    inner.whole_guarded = source is None
    if source is not None:
        keys = list(value)
        if not all(is_constant_value(k) for k in keys):
            tx.graph_break("unknown_object", type="a mapping proxy whose keys are no constants")

        def has_same_keys(proxy: Any) -> bool:
            return len(proxy) == len(keys) and all(a is b or a == b for a, b in zip(proxy, keys))

        tx.output.guard(source, "TYPE", types.MappingProxyType)
        tx.output.guard(source, "PYTHON", has_same_keys)
        inner.whole_guarded = True
    vt = MappingProxyVariable(inner, source)
    tx.output.builder.remember(value, vt)
    _fill_entries(tx, inner, dict(value), source)
    return vt


# -- views -------------------------------------------------------------------------------------------------------------

_VIEW_TYPES = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}
_ORDERED_VIEW_TYPES = {
    "keys": type(collections.OrderedDict().keys()),
    "values": type(collections.OrderedDict().values()),
    "items": type(collections.OrderedDict().items()),
}


class DictViewVariable(VariableTracker):
    """`d.keys()`, `d.values()`, `d.items()`: live views."""

    __slots__ = ("mapping", "which")

    def __init__(self, mapping: DictVariable, which: str, source: Any = None):
        super().__init__(source)
        self.mapping = mapping
        self.which = which

    def python_type(self) -> type:
        table = _ORDERED_VIEW_TYPES if isinstance(self.mapping, OrderedDictVariable) else _VIEW_TYPES
        return table[self.which]

    def element(self, pair: Pair) -> VariableTracker:
        if self.which == "keys":
            return pair[0]
        return pair[1] if self.which == "values" else TupleVariable(list(pair))

    def unpack(self, tx: Any) -> list[VariableTracker]:
        return [self.element(p) for p in self.mapping.pairs(tx)]

    def iterate(self, tx: Any) -> VariableTracker:
        from lamina_dynamo.variables.iterators import DictIterator

        return DictIterator(tx, self)

    def length(self, tx: Any) -> VariableTracker:
        return self.mapping.length(tx)

    def truth(self, tx: Any) -> bool | None:
        return self.mapping.truth(tx)

    def contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        if self.which == "keys":
            return self.mapping.contains(tx, item)
        if self.which == "items":
            inner = content(item)
            if not isinstance(inner, TupleVariable) or len(inner.items) != 2:
                return tx.const(False)
            value = self.mapping.find(tx, inner.items[0])
            return tx.const(value is not None and same_or_equal(tx, value, inner.items[1]))
        return ListVariable(self.unpack(tx)).contains(tx, item)

    def as_set(self, tx: Any) -> VariableTracker:
        from .sets import SetVariable

        return SetVariable.from_items(tx, self.unpack(tx))

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        from .sets import SetBase, SetVariable

        if self.which == "values":
            return NotImplemented
        other = content(other)
        if op in (operator.and_, operator.or_, operator.xor, operator.sub):
            theirs: VariableTracker = SetVariable.from_items(tx, other.unpack(tx))
            return self.as_set(tx).binary_op(tx, op, theirs, reflected)
        if isinstance(other, DictViewVariable):
            other = other.as_set(tx)
        if isinstance(other, SetBase):
            return self.as_set(tx).binary_op(tx, op, other, reflected)
        return NotImplemented

    def method_isdisjoint(self, tx: Any, other: VariableTracker) -> VariableTracker:
        return self.as_set(tx).call_builtin_method(tx, "isdisjoint", [other], {})

    def method_reversed(self, tx: Any) -> VariableTracker:
        from .iterators import ListIterator

        return ListIterator(ListVariable(list(reversed(self.unpack(tx)))))

    def get_member(self, tx: Any, name: str) -> VariableTracker | None:
        return MappingProxyVariable(self.mapping) if name == "mapping" else None

    def hash_key(self, tx: Any) -> Any:
        if self.which == "values":
            return super().hash_key(tx)
        tx.raise_exception(TypeError, f"unhashable type: '{self.python_type().__name__}'")

    def children(self) -> Any:
        return (self.mapping if self.mapping.owner is None else self.mapping.owner,)

    def reconstruct(self, codegen: Any) -> None:
        base = collections.OrderedDict if isinstance(self.mapping, OrderedDictVariable) else dict
        codegen.push_function(getattr(base, self.which))
        codegen(self.mapping if self.mapping.owner is None else self.mapping.owner)
        codegen.call_function(1)


@wraps_type(*_VIEW_TYPES.values(), *_ORDERED_VIEW_TYPES.values())
def wrap_view(tx: Any, value: Any, source: Any) -> VariableTracker:
    which = next(k for t in (_VIEW_TYPES, _ORDERED_VIEW_TYPES) for k, v in t.items() if v is type(value))
    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
    from ..source import AttrSource

    proxy = value.mapping
    inner = tx.wrap(proxy, None if source is None else AttrSource(source, "mapping"))
    return DictViewVariable(inner.mapping, which, source)


# -- from outside ------------------------------------------------------------------------------------------------------


def has_traced_hash(key: Any) -> bool:
    """Whether looking at a key of a real dict would run code of the program that the real dict does not run."""
    kind = type(key)
    if isinstance(key, torch.Tensor) and kind.__hash__ is torch.Tensor.__hash__:
        return False  # by identity
    if not isinstance(kind.__hash__, types.FunctionType) or isinstance(key, enum.Enum):
        return False
    return "__dataclass_fields__" not in kind.__dict__


def items_in_order(value: dict[Any, Any]) -> Any:
    """Items as the program sees them: an OrderedDict keeps its order apart from its table."""
    return collections.OrderedDict.items(value) if isinstance(value, collections.OrderedDict) else dict.items(value)


def _fill_entries(tx: Any, vt: DictVariable, value: dict[Any, Any], source: Any) -> None:
    from lamina_dynamo.source import DictKeySource, DictValueSource, item_source
    from lamina_dynamo.variables.constant import is_constant_value

    table = {id(k): i for i, k in enumerate(dict.keys(value))}
    for k, v in items_in_order(value):
        i = table[id(k)]
        if is_constant_value(k):
            key_vt = tx.const(k)
        else:
            vt.guard_all_keys(tx)
            key_vt = tx.wrap(k, None if source is None else DictKeySource(source, i))
            if has_traced_hash(k):
                key = stored_key(tx, vt, key_vt.realize())
                vt.entries[key] = (key_vt, wrap_lazy(tx, v, None if source is None else DictValueSource(source, i)))
                continue
        found_at: Any = None
        if source is not None:
            plain = is_constant_value(k) or type(k) is types.FunctionType
            found_at = item_source(value)(source, k) if plain else DictValueSource(source, i)
        vt.entries[key_vt.realize().hash_key(tx)] = (key_vt, wrap_lazy(tx, v, found_at))
    if source is not None:
        vt.original = dict(vt.entries)


@wraps_type(dict)
def wrap_dict(tx: Any, value: Any, source: Any) -> VariableTracker:
    if any(value is frame.f_globals for frame in tx.chain()):
        # names of the frame would be read past what is stored here
        tx.graph_break("frame_access", operation="a dict of globals")
    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
    vt = DictVariable(None, source, value)
    tx.output.builder.remember(value, vt)
    _fill_entries(tx, vt, value, source)
    return vt


@wraps_type(collections.OrderedDict)
def wrap_ordered_dict(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
    vt = OrderedDictVariable(None, source, value)
    tx.output.builder.remember(value, vt)
    _fill_entries(tx, vt, value, source)
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
    _fill_entries(tx, vt, value, source)
    return vt


def _storage(cls: type[DictVariable]) -> Any:
    def make(tx: Any, value: Any, source: Any) -> VariableTracker:
        vt = cls(None, source, value)
        if cls is DefaultDictVariable:
            from ..source import AttrSource

            factory_source = None if source is None else AttrSource(source, "default_factory")
            vt.default_factory = wrap_lazy(tx, value.default_factory, factory_source)  # type: ignore[attr-defined]
        _fill_entries(tx, vt, value, source)
        return vt

    return make


def register_storages() -> None:
    from .user_object import STORAGE_WRAPPERS

    STORAGE_WRAPPERS[dict] = _storage(DictVariable)
    STORAGE_WRAPPERS[collections.OrderedDict] = _storage(OrderedDictVariable)
    STORAGE_WRAPPERS[collections.defaultdict] = _storage(DefaultDictVariable)


register_storages()
