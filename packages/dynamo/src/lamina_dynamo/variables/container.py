"""Sequences: list, tuple, named tuples, range, slice, deque."""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable
from typing import Any

import torch

from .attributes import find_in_mro
from .base import ObservedException, VariableTracker
from .builder import wrap_lazy, wraps_type
from .operators import index_value, same_or_equal


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


_depth = 0


def all_constant(items: Any) -> bool:
    """Whether all trackers are constants; containers that contain themselves are none."""
    global _depth
    if _depth > 40:
        return False
    _depth += 1
    try:
        return all(item.realize().is_python_constant() for item in items)
    finally:
        _depth -= 1


class SequenceVariable(VariableTracker):
    """Base of list, tuple and deque trackers: `items` is a real list of trackers."""

    __slots__ = ("items", "owner")
    kind: type = object
    #: sequences of one family compare and concatenate with each other
    family: type = object

    def __init__(self, items: list[VariableTracker] | None = None, source: Any = None):
        super().__init__(source)
        self.items: list[VariableTracker] = items if items is not None else []
        #: the object whose builtin part this is (subclasses of list and tuple)
        self.owner: VariableTracker | None = None

    def describe(self) -> str:
        where = f" from {self.source.name}" if self.source is not None else ""
        return f"{self.python_type().__name__} of {len(self.items)}{where}"

    def python_type(self) -> type:
        return self.kind

    def children(self) -> Any:
        return self.items

    def as_proxy(self) -> Any:
        return [item.as_proxy() for item in self.items]

    def length(self, tx: Any) -> VariableTracker:
        return tx.const(len(self.items))

    def truth(self, tx: Any) -> bool | None:
        return bool(self.items)

    def unpack(self, tx: Any) -> list[VariableTracker]:
        return list(self.items)

    def position(self, tx: Any, key: VariableTracker, action: str = "") -> int:
        """A checked, non-negative index."""
        name = self.kind.__name__
        i = index_value(tx, key, name + " indices must be integers or slices, not {type}")
        if i < 0:
            i += len(self.items)
        if not 0 <= i < len(self.items):
            tx.raise_exception(IndexError, f"{name} {action}index out of range")
        return i

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        key = key.realize()
        if isinstance(key, SliceVariable):
            return self.make(self.items[slice_bounds(tx, key)])
        return self.items[self.position(tx, key)]

    def make(self, items: list[VariableTracker]) -> VariableTracker:
        """A new sequence of this kind."""
        return type(self)(items)

    def contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        i = 0
        while i < len(self.items):
            if same_or_equal(tx, self.items[i], item):
                return tx.const(True)
            i += 1
        return tx.const(False)

    def iterate(self, tx: Any) -> VariableTracker:
        from .iterators import ListIterator

        return ListIterator(self)

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        other = content(other)
        if op in _COMPARISONS:
            if not isinstance(other, SequenceVariable) or other.family is not self.family:
                return NotImplemented
            return compare_sequences(tx, op, self, other)
        if op is operator.add and not reflected:
            if isinstance(other, SequenceVariable) and other.family is self.family:
                if isinstance(other, SizeVariable) and hasattr(torch.Size, "__radd__"):
                    return other.make(self.items + other.items)
                return self.make(self.items + other.items)
            return NotImplemented
        if op is operator.mul:
            n = repeat_count(tx, other)
            if n is None:
                return NotImplemented
            if n * len(self.items) > 1 << 20:
                tx.graph_break("fold_too_large", operation="repeat")
            return self.make(self.items * n)
        return NotImplemented

    def method_index(
        self, tx: Any, item: VariableTracker, start: VariableTracker | None = None, stop: VariableTracker | None = None
    ) -> VariableTracker:
        i = 0 if start is None else _clamp(index_value(tx, start), len(self.items))
        end = len(self.items) if stop is None else _clamp(index_value(tx, stop), len(self.items))
        while i < end and i < len(self.items):
            if same_or_equal(tx, self.items[i], item):
                return tx.const(i)
            i += 1
        from .stdlib import repr_of

        if self.kind is tuple:
            tx.raise_exception(ValueError, "tuple.index(x): x not in tuple")
        tx.raise_exception(ValueError, f"{repr_of(tx, item)} is not in {self.kind.__name__}")

    def method_count(self, tx: Any, item: VariableTracker) -> VariableTracker:
        return tx.const(sum(same_or_equal(tx, element, item) for element in list(self.items)))

    def method_repr(self, tx: Any) -> VariableTracker:
        from .stdlib import repr_of

        return tx.const(repr_of(tx, self))


def _clamp(i: int, n: int) -> int:
    return max(i + n, 0) if i < 0 else i


def repeat_count(tx: Any, vt: VariableTracker) -> int | None:
    """The int of a sequence repetition; None if the operand is none."""
    vt = vt.realize()
    if vt.is_python_constant():
        value = vt.as_python_constant()
        return max(int(value), 0) if isinstance(value, int) else None
    if find_in_mro(tx, vt.python_type(), "__index__") is not None and not isinstance(vt, SequenceVariable):
        return max(index_value(tx, vt), 0)
    return None


def content(vt: VariableTracker) -> VariableTracker:
    """The builtin part of an object (subclasses of list, dict, ...), else the object."""
    vt = vt.realize()
    storage = getattr(vt, "storage", None)
    return vt if storage is None else storage


_COMPARISONS = {operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge}


def compare_sequences(tx: Any, op: Callable[..., Any], a: SequenceVariable, b: SequenceVariable) -> VariableTracker:
    """Lexicographic comparison with the interpreter's short cuts."""
    from .operators import compare

    if op in (operator.eq, operator.ne) and len(a.items) != len(b.items):
        return tx.const(op is operator.ne)
    i = 0
    while i < len(a.items) and i < len(b.items):
        x, y = a.items[i], b.items[i]
        if not same_or_equal(tx, x, y):
            if i >= len(a.items) or i >= len(b.items):
                break  # the comparison itself shortened a list
            if op is operator.eq:
                return tx.const(False)
            if op is operator.ne:
                return tx.const(True)
            return compare(tx, op, x, y)
        i += 1
    return tx.const(op(len(a.items), len(b.items)))


# -- tuple -------------------------------------------------------------------------------------------------------------


class TupleVariable(SequenceVariable):
    """An exact tuple."""

    __slots__ = ()
    kind = tuple
    family = tuple

    def is_python_constant(self) -> bool:
        return all_constant(self.items)

    def as_python_constant(self) -> Any:
        return tuple(item.as_python_constant() for item in self.items)

    def as_proxy(self) -> Any:
        return tuple(item.as_proxy() for item in self.items)

    def make(self, items: list[VariableTracker]) -> VariableTracker:
        return TupleVariable(items)

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        result = super().get_item(tx, key)
        return self.itself(result) if isinstance(key.realize(), SliceVariable) else result

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        result = super().binary_op(tx, op, other, reflected)
        return self.itself(result) if op in (operator.mul, operator.add) else result

    def itself(self, result: Any) -> Any:
        """`t[:]`, `t * 1` and `t + ()` are t itself."""
        if type(self) is TupleVariable and self.owner is None and isinstance(result, TupleVariable):
            mine, theirs = self.items, result.items
            if (
                type(result) is TupleVariable
                and mine
                and len(mine) == len(theirs)
                and all(map(operator.is_, mine, theirs))
            ):
                return self
        return result

    def hash_key(self, tx: Any) -> Any:
        from .keys import TupleKey

        return TupleKey(tuple(item.hash_key(tx) for item in self.items))

    def push_new_arguments(self, codegen: Any) -> int:
        for item in self.items:
            codegen(item)
        codegen.build("BUILD_TUPLE", len(self.items))
        return 1

    def reconstruct(self, codegen: Any) -> None:
        self.push_new_arguments(codegen)

    def method_getnewargs(self, tx: Any) -> VariableTracker:
        return TupleVariable([TupleVariable(list(self.items))])


@wraps_type(tuple)
def wrap_tuple(tx: Any, value: tuple[Any, ...], source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "TYPE", tuple)
        tx.output.guard(source, "LENGTH", len(value))
    return TupleVariable(_wrap_elements(tx, value, source), source)


def _wrap_elements(tx: Any, value: Any, source: Any, container: Any = None) -> list[VariableTracker]:
    """Trackers of the elements; ``container``: the object that they are read from, if it is not ``value``."""
    if source is None:
        return [tx.wrap(v, None) for v in value]
    from ..source import item_source

    source_of = item_source(value if container is None else container)
    return [wrap_lazy(tx, v, source_of(source, i)) for i, v in enumerate(value)]


class SizeVariable(TupleVariable):
    """A torch.Size; elements are ints or symbolic ints."""

    __slots__ = ()
    kind = torch.Size

    def make(self, items: list[VariableTracker]) -> VariableTracker:
        return SizeVariable(items)

    def as_python_constant(self) -> Any:
        return torch.Size(super().as_python_constant())

    def method_numel(self, tx: Any) -> VariableTracker:
        from .operators import binary

        total = tx.const(1)
        for item in self.items:
            total = binary(tx, operator.mul, total, item)
        return total

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(torch.Size)
        super().push_new_arguments(codegen)
        codegen.call_function(1)


@wraps_type(torch.Size)
def wrap_size(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "TYPE", torch.Size)
        tx.output.guard(source, "LENGTH", len(value))
    return SizeVariable(_wrap_elements(tx, value, source), source)


# -- list --------------------------------------------------------------------------------------------------------------


class ListVariable(SequenceVariable):
    """A list; `items` is mutated in place. `original`: what the real list holds."""

    __slots__ = ("original",)
    kind = list
    family = list
    is_mutable = True

    def __init__(self, items: list[VariableTracker] | None = None, source: Any = None):
        super().__init__(items, source)
        self.original: tuple[VariableTracker, ...] | None = None

    def is_python_constant(self) -> bool:
        # folding a list is right where the called function neither keeps nor changes it
        return self.source is None and self.owner is None and all_constant(self.items)

    def as_python_constant(self) -> Any:
        return [item.as_python_constant() for item in self.items]

    def mutate(self, tx: Any) -> None:
        tx.output.side_effects.mutation(self)

    def make(self, items: list[VariableTracker]) -> VariableTracker:
        return ListVariable(items)

    def hash_key(self, tx: Any) -> Any:
        tx.raise_exception(TypeError, "unhashable type: 'list'")

    def set_item(self, tx: Any, key: VariableTracker, value: VariableTracker) -> None:
        key = key.realize()
        if isinstance(key, SliceVariable):
            bounds = slice_bounds(tx, key)
            try:
                values = value.unpack(tx)
            except ObservedException as e:
                if e.matches(TypeError):
                    tx.raise_exception(TypeError, "can only assign an iterable")
                raise
            self.mutate(tx)
            try:
                self.items[bounds] = values
            except ValueError as e:
                tx.raise_exception(ValueError, str(e))
            return
        i = self.position(tx, key, "assignment ")
        self.mutate(tx)
        self.items[i] = value

    def del_item(self, tx: Any, key: VariableTracker) -> None:
        key = key.realize()
        if isinstance(key, SliceVariable):
            bounds = slice_bounds(tx, key)
            self.mutate(tx)
            del self.items[bounds]
            return
        i = self.position(tx, key, "assignment ")
        self.mutate(tx)
        del self.items[i]

    def inplace_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker) -> Any:
        if op is operator.iadd:
            self.method_extend(tx, other)
            return self
        if op is operator.imul:
            n = repeat_count(tx, other)
            if n is None:
                return NotImplemented
            if n * len(self.items) > 1 << 20:
                tx.graph_break("fold_too_large", operation="repeat")
            self.mutate(tx)
            self.items *= n
            return self
        return NotImplemented

    def method_iadd(self, tx: Any, other: VariableTracker) -> VariableTracker:
        return self.inplace_op(tx, operator.iadd, other)

    def method_imul(self, tx: Any, other: VariableTracker) -> VariableTracker:
        result = self.inplace_op(tx, operator.imul, other)
        return tx.const(NotImplemented) if result is NotImplemented else result

    def method_init(self, tx: Any, iterable: VariableTracker | None = None) -> VariableTracker:
        items = [] if iterable is None else iterable.unpack(tx)
        self.mutate(tx)
        self.items[:] = items
        return tx.const(None)

    def method_append(self, tx: Any, item: VariableTracker) -> VariableTracker:
        self.mutate(tx)
        self.items.append(item)
        return tx.const(None)

    def method_extend(self, tx: Any, iterable: VariableTracker) -> VariableTracker:
        source = content(iterable)
        if source is self:
            self.mutate(tx)
            self.items.extend(list(self.items))
            return tx.const(None)
        if isinstance(source, SequenceVariable):
            self.mutate(tx)
            self.items.extend(iterable.unpack(tx))
            return tx.const(None)
        iterator = iterable.iterate(tx)
        while True:
            # one by one: an iterable that fails half-way leaves the first elements in the list
            try:
                item = iterator.next(tx)
            except ObservedException as e:
                if e.matches(StopIteration):
                    return tx.const(None)
                raise
            self.method_append(tx, item)

    def method_insert(self, tx: Any, index: VariableTracker, item: VariableTracker) -> VariableTracker:
        i = index_value(tx, index)
        self.mutate(tx)
        self.items.insert(i, item)
        return tx.const(None)

    def method_pop(self, tx: Any, index: VariableTracker | None = None) -> VariableTracker:
        if not self.items:
            tx.raise_exception(IndexError, "pop from empty list")
        i = -1 if index is None else index_value(tx, index)
        if not -len(self.items) <= i < len(self.items):
            tx.raise_exception(IndexError, "pop index out of range")
        self.mutate(tx)
        return self.items.pop(i)

    def method_remove(self, tx: Any, item: VariableTracker) -> VariableTracker:
        i = 0
        while i < len(self.items):
            if same_or_equal(tx, self.items[i], item):
                self.mutate(tx)
                del self.items[i]
                return tx.const(None)
            i += 1
        tx.raise_exception(ValueError, "list.remove(x): x not in list")

    def method_clear(self, tx: Any) -> VariableTracker:
        self.mutate(tx)
        self.items.clear()
        return tx.const(None)

    def method_copy(self, tx: Any) -> VariableTracker:
        return ListVariable(list(self.items))

    def method_reverse(self, tx: Any) -> VariableTracker:
        self.mutate(tx)
        self.items.reverse()
        return tx.const(None)

    def method_reversed(self, tx: Any) -> VariableTracker:
        from .iterators import ReversedIterator

        return ReversedIterator(self)

    def method_sort(
        self, tx: Any, *, key: VariableTracker | None = None, reverse: VariableTracker | None = None
    ) -> VariableTracker:
        items = list(self.items)
        self.mutate(tx)
        self.items.clear()
        try:
            ordered = sort_trackers(tx, items, key, reverse)
        except ObservedException:
            self.items[:] = items
            raise
        if self.items:
            self.items[:] = ordered
            tx.raise_exception(ValueError, "list modified during sort")
        self.items[:] = ordered
        return tx.const(None)

    # -- leaving the region -------------------------------------------------------------------------------------

    def reconstruct(self, codegen: Any) -> None:
        if codegen.output.side_effects.is_cyclic(self):
            codegen.build("BUILD_LIST", 0)
            codegen.remember(self)
            codegen.output.side_effects.pending_fill.append(self)
            return
        for item in self.items:
            codegen(item)
        codegen.build("BUILD_LIST", len(self.items))

    def fill(self, codegen: Any) -> None:
        self.replay_into(codegen, self)

    def replay(self, codegen: Any) -> None:
        self.replay_into(codegen, self)

    def replay_into(self, codegen: Any, target: VariableTracker) -> None:
        if self.original is not None and self in codegen.replayed:
            return
        codegen.replayed.add(self)
        original = self.original
        if original is not None and len(self.items) >= len(original):
            changed = [i for i, old in enumerate(original) if self.items[i] is not old]
            if len(changed) <= _FEW_CHANGES:
                self.replay_changes(codegen, target, changed, self.items[len(original) :])
                return
        codegen.push_function(set_list)
        codegen(target)
        for item in self.items:
            codegen(item)
        codegen.build("BUILD_LIST", len(self.items))
        codegen.call_function(2)
        codegen.pop()

    def replay_changes(
        self, codegen: Any, target: VariableTracker, changed: list[int], new: list[VariableTracker]
    ) -> None:
        """Elements that were replaced, and those appended: other threads may write theirs."""
        if not changed and not new:
            return
        codegen.push_function(change_list)
        codegen(target)
        codegen.load_const(tuple(changed))
        for i in changed:
            codegen(self.items[i])
        codegen.build("BUILD_TUPLE", len(changed))
        for item in new:
            codegen(item)
        codegen.build("BUILD_LIST", len(new))
        codegen.call_function(4)
        codegen.pop()


_FEW_CHANGES = 8


def change_list(target: list[Any], places: tuple[int, ...], values: tuple[Any, ...], new: list[Any]) -> None:
    """Replaces elements of a list and appends others, for generated code."""
    for i, value in zip(places, values):
        list.__setitem__(target, i, value)
    list.extend(target, new)


def set_list(target: list[Any], items: list[Any]) -> None:
    """Replaces the contents of a list, for generated code."""
    list.__setitem__(target, slice(None), items)


class _SortKey:
    """Lets real `sorted` order trackers by the traced `<`."""

    __slots__ = ("key", "tx", "vt")

    def __init__(self, tx: Any, vt: VariableTracker, key: VariableTracker):
        self.tx = tx
        self.vt = vt
        self.key = key

    def __lt__(self, other: _SortKey) -> bool:
        from .operators import compare

        return self.tx.truth(compare(self.tx, operator.lt, self.key, other.key))


def sort_trackers(
    tx: Any, items: list[VariableTracker], key: VariableTracker | None, reverse: VariableTracker | None
) -> list[VariableTracker]:
    """Stable sort; errors of the traced comparison pass through."""
    from .function import is_none

    if key is not None and is_none(key):
        key = None
    keys = [item if key is None else key.call_function(tx, [item], {}) for item in items]
    backwards = reverse is not None and tx.truth(reverse)
    wrapped = [_SortKey(tx, item, k) for item, k in zip(items, keys)]
    wrapped.sort(reverse=backwards)
    return [w.vt for w in wrapped]


@wraps_type(list)
def wrap_list(tx: Any, value: list[Any], source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "TYPE", list)
        tx.output.guard(source, "LENGTH", len(value))
    vt = ListVariable([], source)
    tx.output.builder.remember(value, vt)
    vt.items.extend(_wrap_elements(tx, value, source))
    if source is not None:
        vt.original = tuple(vt.items)
    return vt


# -- slice and range ---------------------------------------------------------------------------------------------------


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
        other = other.realize()
        if op in _COMPARISONS and isinstance(other, SliceVariable):
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


# -- deque -------------------------------------------------------------------------------------------------------------


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
        from .function import is_none

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
        try:
            return super().method_remove(tx, item)
        except ObservedException as e:
            if e.matches(ValueError) and not any(same_or_equal(tx, i, item) for i in self.items):
                from .stdlib import repr_of

                tx.raise_exception(ValueError, f"{repr_of(tx, item)} is not in deque")
            raise

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
    vt = DequeVariable([], source, value.maxlen)
    tx.output.builder.remember(value, vt)
    vt.items.extend(_wrap_elements(tx, value, source))
    if source is not None:
        vt.original = tuple(vt.items)
    return vt


# -- subclasses --------------------------------------------------------------------------------------------------------


def _list_storage(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "LENGTH", list.__len__(value))
    vt = ListVariable(_wrap_elements(tx, list.__iter__(value), source, value), source)
    if source is not None:
        vt.original = tuple(vt.items)
    return vt


def _tuple_storage(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "LENGTH", tuple.__len__(value))
    return TupleVariable(_wrap_elements(tx, tuple.__iter__(value), source, value), source)


def _deque_storage(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "LENGTH", collections.deque.__len__(value))
    items = _wrap_elements(tx, collections.deque.__iter__(value), source, value)
    return DequeVariable(items, source, value.maxlen)


def _scalar_storage(base: type) -> Any:
    def make(tx: Any, value: Any, source: Any) -> VariableTracker:
        from .constant import ConstantVariable

        plain = base.__new__(base, value) if base is not str else str.__str__(value)
        if base is int:
            plain = int.__int__(value)
        elif base is float:
            plain = float.__float__(value)
        elif base is bytes:
            plain = bytes(memoryview(value))
        if source is not None:
            from ..source import PythonSource

            tx.output.guard(PythonSource(source, _plain_value, base), "CONSTANT", plain)
        return ConstantVariable(plain)

    return make


def _plain_value(value: Any, base: type) -> Any:
    """The builtin value inside an instance of a str/int/float/bytes subclass."""
    if base is str:
        return str.__str__(value)
    if base is int:
        return int.__int__(value)
    if base is float:
        return float.__float__(value)
    return bytes(memoryview(value))


def register_storages() -> None:
    from .user_object import STORAGE_WRAPPERS

    STORAGE_WRAPPERS[list] = _list_storage
    STORAGE_WRAPPERS[tuple] = _tuple_storage
    STORAGE_WRAPPERS[collections.deque] = _deque_storage
    for base in (str, int, float, bytes):
        STORAGE_WRAPPERS[base] = _scalar_storage(base)


register_storages()


class TupleGetterVariable(VariableTracker):
    """The descriptor behind a named tuple's field."""

    __slots__ = ("index", "value")
    has_identity = False

    def __init__(self, value: Any, source: Any = None):
        super().__init__(source)
        self.value = value
        self.index = value.__reduce__()[1][0]

    def python_type(self) -> type:
        return type(self.value)

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def descriptor_get(self, tx: Any, obj: VariableTracker | None, cls: Any) -> VariableTracker:
        if obj is None:
            return self
        return content(obj).items[self.index]  # type: ignore[attr-defined]


@wraps_type(type(collections.namedtuple("_Example", "field").field))  # type: ignore[misc]
def wrap_tuple_getter(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return TupleGetterVariable(value, source)


def NamedTupleVariable(items: list[VariableTracker], cls: type, source: Any = None) -> VariableTracker:
    """A new instance of a named tuple class (or another tuple subclass) with these fields."""
    from .user_object import UserObjectVariable

    return UserObjectVariable(None, source, cls, TupleVariable(items))
