"""Sequences: list, tuple and torch.Size."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from .attributes import find_in_mro
from .base import ObservedException, VariableTracker
from .builder import wrap_lazy, wraps_type
from .operators import index_value, same_or_equal
from .slices import SliceVariable, slice_bounds

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
        if op in COMPARISONS:
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
        from .formatting import repr_of

        if self.kind is tuple:
            tx.raise_exception(ValueError, "tuple.index(x): x not in tuple")
        tx.raise_exception(ValueError, f"{repr_of(tx, item)} is not in {self.kind.__name__}")

    def method_count(self, tx: Any, item: VariableTracker) -> VariableTracker:
        return tx.const(sum(same_or_equal(tx, element, item) for element in list(self.items)))

    def method_repr(self, tx: Any) -> VariableTracker:
        from .formatting import repr_of

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


COMPARISONS = {operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge}


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
    return TupleVariable(wrap_elements(tx, value, source), source)


def wrap_elements(tx: Any, value: Any, source: Any, container: Any = None) -> list[VariableTracker]:
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
    return SizeVariable(wrap_elements(tx, value, source), source)


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
                del self.items[i : i + 1]  # comparing may have taken elements away
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
        from .ordering import sort_trackers

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


@wraps_type(list)
def wrap_list(tx: Any, value: list[Any], source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "TYPE", list)
        tx.output.guard(source, "LENGTH", len(value))
    vt = ListVariable([], source)
    tx.output.builder.remember(value, vt)
    vt.items.extend(wrap_elements(tx, value, source))
    if source is not None:
        vt.original = tuple(vt.items)
    return vt
