"""What looks at a dict: its views and read-only proxies."""

from __future__ import annotations

import collections
import gc
import operator
import types
from collections.abc import Callable
from typing import Any

from ..source import PythonSource
from .base import VariableTracker
from .builder import wraps_type
from .container import ListVariable, TupleVariable, content
from .dict_kinds import OrderedDictVariable
from .dicts import DictVariable, Pair, fill_entries, pairs_of
from .operators import same_or_equal


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

    real = dict_behind(value)
    if type(real) is dict and not ("__module__" in real and "__doc__" in real):
        mapping = tx.wrap(real, None if source is None else PythonSource(source, dict_behind))
        if source is not None:
            tx.output.guard(source, "TYPE", types.MappingProxyType)
        return MappingProxyVariable(mapping, source)
    # of a class, whose dict is no object of the program: its contents are read through the proxy
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
    fill_entries(tx, inner, dict(value), source)
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
    which = next(w for table in (_VIEW_TYPES, _ORDERED_VIEW_TYPES) for w, t in table.items() if t is type(value))
    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
    mapping = tx.wrap(dict_behind(value), None if source is None else PythonSource(source, dict_behind))
    return DictViewVariable(content(mapping), which, source)


def dict_behind(view: Any) -> Any:
    """The dict that a view or a read-only proxy looks at: the one object that it refers to."""
    return gc.get_referents(view)[0]
