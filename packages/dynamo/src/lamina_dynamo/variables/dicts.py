"""Dicts: what holds for each of them, and how changes to them are replayed."""

from __future__ import annotations

import collections
import enum
import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from .base import ObservedException, VariableTracker
from .builder import wrap_lazy, wraps_type
from .container import TupleVariable, all_constant, content
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
        from .dict_views import DictViewVariable

        return DictViewVariable(self, "keys").iterate(tx)

    def hash_key(self, tx: Any) -> Any:
        tx.raise_exception(TypeError, f"unhashable type: '{self.python_type().__name__}'")

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        from .dict_views import MappingProxyVariable

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
        from .dict_views import DictViewVariable

        return DictViewVariable(self, "keys")

    def method_values(self, tx: Any) -> VariableTracker:
        from .dict_views import DictViewVariable

        return DictViewVariable(self, "values")

    def method_items(self, tx: Any) -> VariableTracker:
        from .dict_views import DictViewVariable

        return DictViewVariable(self, "items")

    def method_reversed(self, tx: Any) -> VariableTracker:
        from .dict_views import DictViewVariable

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

    from .dict_views import MappingProxyVariable

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


def fill_entries(tx: Any, vt: DictVariable, value: dict[Any, Any], source: Any) -> None:
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
    fill_entries(tx, vt, value, source)
    return vt
