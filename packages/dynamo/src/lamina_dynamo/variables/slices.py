"""Slices and ranges."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from .base import VariableTracker
from .builder import wraps_type
from .operators import index_value


def slice_bounds(tx: Any, key: VariableTracker) -> slice:
    """A real slice from a slice tracker, with `__index__` applied."""
    parts: list[int | None] = []
    for part in key.items:  # type: ignore[attr-defined]
        part = part.realize()
        if part.is_python_constant() and part.as_python_constant() is None:
            parts.append(None)
        else:
            parts.append(index_value(tx, part, "slice indices must be integers or None or have an __index__ method"))
    if parts[2] == 0:
        tx.raise_exception(ValueError, "slice step cannot be zero")
    return slice(*parts)


class SliceVariable(VariableTracker):
    """A slice; `items` are start, stop, step."""

    __slots__ = ("items",)

    def __init__(self, *items: Any, source: Any = None):
        super().__init__(source)
        self.items = list(items[0]) if len(items) == 1 and isinstance(items[0], (list, tuple)) else list(items)
        if len(self.items) == 2:
            from .constant import ConstantVariable

            self.items.append(ConstantVariable(None))

    def python_type(self) -> type:
        return slice

    def is_python_constant(self) -> bool:
        return all(i.realize().is_python_constant() for i in self.items)

    def as_python_constant(self) -> Any:
        return slice(*[i.as_python_constant() for i in self.items])

    def as_proxy(self) -> Any:
        return slice(*[i.as_proxy() for i in self.items])

    def truth(self, tx: Any) -> bool:
        return True

    def get_member(self, tx: Any, name: str) -> VariableTracker | None:
        return self.items[("start", "stop", "step").index(name)] if name in ("start", "stop", "step") else None

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        return self.get_member(tx, name) or super().get_attr(tx, name)

    def method_indices(self, tx: Any, length: VariableTracker) -> VariableTracker:
        from .constant import wrap_result

        return wrap_result(tx, slice_bounds(tx, self).indices(index_value(tx, length)))

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        from .container import COMPARISONS, TupleVariable, compare_sequences

        other = other.realize()
        if op in COMPARISONS and isinstance(other, SliceVariable):
            return compare_sequences(tx, op, TupleVariable(self.items), TupleVariable(other.items))
        return NotImplemented

    def hash_key(self, tx: Any) -> Any:
        tx.raise_exception(TypeError, "unhashable type: 'slice'")

    def children(self) -> Any:
        return self.items

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(slice)
        for item in self.items:
            codegen(item)
        codegen.call_function(len(self.items))


@wraps_type(slice)
def wrap_slice(tx: Any, value: slice, source: Any) -> VariableTracker:
    if source is not None:
        from ..source import AttrSource

        tx.output.guard(source, "TYPE", slice)
        return SliceVariable(
            [tx.wrap(getattr(value, n), AttrSource(source, n)) for n in ("start", "stop", "step")], source=source
        )
    return SliceVariable([tx.wrap(v, None) for v in (value.start, value.stop, value.step)])


class RangeVariable(VariableTracker):
    """A range with known bounds (symbolic bounds are made concrete by the caller)."""

    __slots__ = ("value",)
    has_identity = False

    def __init__(self, value: range, source: Any = None):
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return range

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def truth(self, tx: Any) -> bool:
        return bool(self.value)

    def length(self, tx: Any) -> VariableTracker:
        return tx.const(len(self.value))

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        key = key.realize()
        if isinstance(key, SliceVariable):
            return RangeVariable(self.value[slice_bounds(tx, key)])
        i = index_value(tx, key, "range indices must be integers or slices, not {type}")
        try:
            return tx.const(self.value[i])
        except IndexError as e:
            tx.raise_exception(IndexError, str(e))

    def contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        from .container import TupleVariable

        item = item.realize()
        if item.is_python_constant():
            return tx.const(item.as_python_constant() in self.value)
        return TupleVariable(self.unpack(tx)).contains(tx, item)

    def iterate(self, tx: Any) -> VariableTracker:
        from .iterators import RangeIterator

        return RangeIterator(self.value)

    def unpack(self, tx: Any) -> list[VariableTracker]:
        if len(self.value) > 1 << 16:
            tx.graph_break("fold_too_large", operation="range")
        return [tx.const(i) for i in self.value]

    def method_reversed(self, tx: Any) -> VariableTracker:
        from .iterators import RangeIterator

        return RangeIterator(self.value[::-1])

    def method_index(self, tx: Any, item: VariableTracker) -> VariableTracker:
        from .constant import fold

        return fold(tx, range.index, [self, item.realize()], {})

    def method_count(self, tx: Any, item: VariableTracker) -> VariableTracker:
        from .constant import fold

        return fold(tx, range.count, [self, item.realize()], {})

    def get_member(self, tx: Any, name: str) -> VariableTracker | None:
        return tx.const(getattr(self.value, name)) if name in ("start", "stop", "step") else None

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        other = other.realize()
        if op in (operator.eq, operator.ne) and isinstance(other, RangeVariable):
            return tx.const(op(self.value, other.value))
        return NotImplemented

    def hash_key(self, tx: Any) -> Any:
        from .keys import ConstantKey

        return ConstantKey(self.value)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(range)
        for part in (self.value.start, self.value.stop, self.value.step):
            codegen.load_const(part)
        codegen.call_function(3)


@wraps_type(range)
def wrap_range(tx: Any, value: range, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "CONSTANT", value)
    return RangeVariable(value, source)
