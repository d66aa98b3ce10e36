"""Iterators of builtin types and the builtin iterator classes (zip, map, filter, enumerate, reversed)."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable
from typing import Any

from .base import ObservedException, VariableTracker
from .builder import wraps_type


def stop(tx: Any, *args: Any) -> Any:
    """Raises StopIteration in the traced program."""
    tx.raise_exception(StopIteration, *args)


class IteratorVariable(VariableTracker):
    """Base: an iterator made inside the region."""

    __slots__ = ()
    is_mutable = True

    def iterate(self, tx: Any) -> VariableTracker:
        return self

    def truth(self, tx: Any) -> bool:
        return True

    def next(self, tx: Any) -> VariableTracker:
        raise NotImplementedError

    def unpack(self, tx: Any) -> list[VariableTracker]:
        out: list[VariableTracker] = []
        while True:
            try:
                out.append(self.next(tx))
            except ObservedException as e:
                if e.matches(StopIteration):
                    return out
                raise

    def contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        from .operators import contains_by_iteration

        return contains_by_iteration(tx, self, item)

    def method_reduce(self, tx: Any) -> VariableTracker:
        tx.graph_break("copying", type=self.python_type().__name__)


class ListIterator(IteratorVariable):
    """Iterator over a list, tuple or deque; sees elements that are added while it runs."""

    __slots__ = ("changes", "index", "kind", "sequence")

    def __init__(self, sequence: Any, index: int = 0, kind: type | None = None, changes: int | None = None):
        super().__init__(None)
        self.sequence: Any = sequence
        self.index = index
        self.kind = kind
        self.changes = changes  # of a deque, when the iterator was made

    def python_type(self) -> type:
        if self.kind is not None:
            return self.kind
        sequence = self.sequence
        return type(iter(())) if sequence is None or sequence.kind is tuple else type(iter(sequence.kind()))

    def next(self, tx: Any) -> VariableTracker:
        sequence = self.sequence
        if sequence is None:
            stop(tx)
        items = sequence.items
        if self.changes is not None and sequence.changes != self.changes:
            tx.raise_exception(RuntimeError, "deque mutated during iteration")
        if self.index >= len(items):
            self.kind = self.python_type()
            self.sequence = None
            stop(tx)
        item = items[self.index]
        self.index += 1
        return item

    def method_length_hint(self, tx: Any) -> VariableTracker:
        return tx.const(0 if self.sequence is None else max(len(self.sequence.items) - self.index, 0))

    def children(self) -> Any:
        return () if self.sequence is None else (self.target(),)

    def target(self) -> VariableTracker:
        return self.sequence.owner or self.sequence

    def reconstruct(self, codegen: Any) -> None:
        if self.sequence is None:
            codegen.push_function(exhausted_iterator)
            codegen.load_const(self.kind)
            codegen.call_function(1)
            return
        codegen.push_function(advanced_iterator)
        codegen(self.target())
        codegen.load_const(self.index)
        codegen.call_function(2)


def exhausted_iterator(kind: type) -> Any:
    """A builtin iterator of this type at its end, for generated code."""
    for empty in ([], (), "", b"", collections.deque()):
        iterator = iter(empty)  # type: ignore[call-overload]
        if type(iterator) is kind:
            next(iterator, None)
            return iterator
    return iter(())


def advanced_iterator(iterable: Any, n: int) -> Any:
    """An iterator after `n` steps (n < 0: exhausted), for generated code."""
    iterator = iter(iterable)
    if n < 0:
        for _ in iterator:
            pass
        return iterator
    if hasattr(iterator, "__setstate__") and n:
        iterator.__setstate__(n)
        return iterator
    for _ in range(n):
        next(iterator)
    return iterator


class StrIterator(ListIterator):
    """Iterator over the characters of a str or the numbers of bytes."""

    __slots__ = ()

    def __init__(self, sequence: Any, kind: type):
        super().__init__(sequence, 0, kind)

    def target(self) -> VariableTracker:
        from .constant import ConstantVariable

        values = [i.as_python_constant() for i in self.sequence.items]
        return ConstantVariable(bytes(values) if self.kind is type(iter(b"")) else "".join(values))


class ReversedIterator(IteratorVariable):
    """`reversed(list)`: walks down from the last element."""

    __slots__ = ("index", "sequence")

    def __init__(self, sequence: Any):
        super().__init__(None)
        self.sequence: Any = sequence
        self.index = len(sequence.items) - 1

    def python_type(self) -> type:
        return type(reversed([])) if self.sequence is None or self.sequence.kind is list else reversed

    def next(self, tx: Any) -> VariableTracker:
        if self.sequence is None or not 0 <= self.index < len(self.sequence.items):
            self.sequence = None
            stop(tx)
        item = self.sequence.items[self.index]
        self.index -= 1
        return item

    def children(self) -> Any:
        return () if self.sequence is None else (self.sequence.owner or self.sequence,)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(reversed_iterator)
        if self.sequence is None:
            codegen.load_const(())
        else:
            codegen(self.sequence.owner or self.sequence)
        codegen.load_const(self.index)
        codegen.call_function(2)


def reversed_iterator(sequence: Any, index: int) -> Any:
    """`reversed(sequence)` whose next element is number `index`, for generated code."""
    iterator = reversed(sequence)
    for _ in range(len(sequence) - 1 - index):
        next(iterator, None)
    return iterator


class SequenceIterator(IteratorVariable):
    """Iterator over an object that only has `__getitem__`."""

    __slots__ = ("index", "obj")

    def __init__(self, obj: VariableTracker):
        super().__init__(None)
        self.obj: VariableTracker | None = obj
        self.index = 0

    def python_type(self) -> type:
        return type(iter(_OnlyGetItem()))

    def next(self, tx: Any) -> VariableTracker:
        if self.obj is None:
            stop(tx)
        try:
            value = self.obj.get_item(tx, tx.const(self.index))
        except ObservedException as e:
            if e.matches((IndexError, StopIteration)):
                self.obj = None
                stop(tx)
            raise
        self.index += 1
        return value

    def children(self) -> Any:
        return () if self.obj is None else (self.obj,)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(advanced_iterator)
        if self.obj is None:
            codegen.load_const(())
            codegen.load_const(-1)
        else:
            codegen.whole(self.obj)
            codegen.load_const(self.index)
        codegen.call_function(2)


class _OnlyGetItem:
    def __getitem__(self, i: int) -> int:
        raise IndexError


class RangeIterator(IteratorVariable):
    """Iterator over a range."""

    __slots__ = ("index", "value")

    def __init__(self, value: range, index: int = 0):
        super().__init__(None)
        self.value = value
        self.index = index

    def python_type(self) -> type:
        return type(iter(self.value))

    def next(self, tx: Any) -> VariableTracker:
        if self.index >= len(self.value):
            stop(tx)
        value = self.value[self.index]
        self.index += 1
        return tx.const(value)

    def method_length_hint(self, tx: Any) -> VariableTracker:
        return tx.const(len(self.value) - self.index)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(iter)
        rest = self.value[self.index :]
        codegen.load_const(rest)
        codegen.call_function(1)


class DictIterator(IteratorVariable):
    """Iterator over a dict view; notices insertions and deletions as a real one does."""

    __slots__ = ("done", "index", "keys", "size", "view")

    def __init__(self, tx: Any, view: Any):
        super().__init__(None)
        self.view = view
        self.keys = [k for k, _ in view.mapping.pairs(tx)]
        self.size = len(self.keys)
        self.index = 0
        self.done = False

    def python_type(self) -> type:
        return type(iter(getattr({}, self.view.which)()))

    def next(self, tx: Any) -> VariableTracker:
        if self.done:
            stop(tx)
        mapping = self.view.mapping
        if mapping.count(tx) != self.size:
            self.done = True
            tx.raise_exception(RuntimeError, "dictionary changed size during iteration")
        if self.index >= len(self.keys):
            self.done = True
            stop(tx)
        key = self.keys[self.index]
        value = mapping.find(tx, key)
        if value is None:
            tx.raise_exception(RuntimeError, "dictionary keys changed during iteration")
        self.index += 1
        return self.view.element((key, value))

    def method_length_hint(self, tx: Any) -> VariableTracker:
        return tx.const(0 if self.done else self.size - self.index)

    def children(self) -> Any:
        return (self.view,)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(advanced_iterator)
        codegen(self.view)
        codegen.load_const(-1 if self.done else self.index)
        codegen.call_function(2)


class SetIterator(IteratorVariable):
    """Iterator over a set; the elements are in their real order already."""

    __slots__ = ("index", "items", "the_set", "version")

    def __init__(self, the_set: Any, items: list[VariableTracker]):
        super().__init__(None)
        self.the_set = the_set
        self.items = items
        self.index = 0
        self.version = len(the_set.entries)

    def python_type(self) -> type:
        return type(iter(set()))

    def next(self, tx: Any) -> VariableTracker:
        if len(self.the_set.entries) != self.version:
            tx.raise_exception(RuntimeError, "Set changed size during iteration")
        if self.index >= len(self.items):
            stop(tx)
        self.index += 1
        return self.items[self.index - 1]

    def children(self) -> Any:
        return (self.the_set.owner or self.the_set,)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(advanced_iterator)
        codegen(self.the_set.owner or self.the_set)
        codegen.load_const(self.index)
        codegen.call_function(2)


class CallIterator(IteratorVariable):
    """`iter(callable, sentinel)`."""

    __slots__ = ("fn", "sentinel")

    def __init__(self, fn: VariableTracker, sentinel: VariableTracker):
        super().__init__(None)
        self.fn: VariableTracker | None = fn
        self.sentinel = sentinel

    def python_type(self) -> type:
        return type(iter(int, 1))

    def next(self, tx: Any) -> VariableTracker:
        from .operators import values_equal

        if self.fn is None:
            stop(tx)
        try:
            value = self.fn.call_function(tx, [], {})
        except ObservedException as e:
            if e.matches(StopIteration):
                self.fn = None
            raise
        if values_equal(tx, self.sentinel, value):
            self.fn = None
            stop(tx)
        return value

    def children(self) -> Any:
        return () if self.fn is None else (self.fn, self.sentinel)

    def reconstruct(self, codegen: Any) -> None:
        if self.fn is None:
            codegen.push_function(iter)
            codegen.load_const(())
            codegen.call_function(1)
            return
        codegen.push_function(iter)
        codegen.whole(self.fn)
        codegen(self.sentinel)
        codegen.call_function(2)


class RecipeIterator(IteratorVariable):
    """An iterator of a C class whose state is its arguments: `kind(*parts)` makes an equal one.

    `step(tx, parts)` computes the next element; parts are mutated by it.
    """

    __slots__ = ("kind", "parts", "step")

    def __init__(self, kind: type, parts: list[VariableTracker], step: Callable[..., VariableTracker]):
        super().__init__(None)
        self.kind = kind
        self.parts = parts
        self.step = step

    def python_type(self) -> type:
        return self.kind

    def next(self, tx: Any) -> VariableTracker:
        return self.step(tx, self.parts)

    def children(self) -> Any:
        return self.parts

    def parked_parts(self) -> Any:
        return (self.kind, self.parts, 1) if self.kind in (map, filter) else None

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(self.kind)
        for part in self.parts:
            codegen.whole(part)
        codegen.call_function(len(self.parts))


def make_map(tx: Any, fn: VariableTracker, *iterables: VariableTracker) -> VariableTracker:
    if not iterables:
        tx.raise_exception(TypeError, "map() must have at least two arguments.")

    def step(tx: Any, parts: list[VariableTracker]) -> VariableTracker:
        return parts[0].call_function(tx, [p.next(tx) for p in parts[1:]], {})

    return RecipeIterator(map, [fn, *[i.iterate(tx) for i in iterables]], step)


def make_filter(tx: Any, fn: VariableTracker, iterable: VariableTracker) -> VariableTracker:
    from .constant import is_none

    def step(tx: Any, parts: list[VariableTracker]) -> VariableTracker:
        while True:
            item = parts[1].next(tx)
            verdict = item if is_none(parts[0]) else parts[0].call_function(tx, [item], {})
            if tx.truth(verdict):
                return item

    return RecipeIterator(filter, [fn, iterable.iterate(tx)], step)


class ZipIterator(IteratorVariable):
    """`zip(*iterables, strict=)`."""

    __slots__ = ("iterators", "strict")

    def __init__(self, iterators: list[VariableTracker], strict: bool):
        super().__init__(None)
        self.iterators = iterators
        self.strict = strict

    def python_type(self) -> type:
        return zip

    def next(self, tx: Any) -> VariableTracker:
        from .container import TupleVariable

        if not self.iterators:
            stop(tx)
        out = []
        for i, iterator in enumerate(self.iterators):
            try:
                out.append(iterator.next(tx))
            except ObservedException as e:
                if not self.strict or not e.matches(StopIteration):
                    raise
                if i:
                    plural = " " if i == 1 else "s 1-"
                    tx.raise_exception(ValueError, f"zip() argument {i + 1} is shorter than argument{plural}{i}")
                for j, other in enumerate(self.iterators[1:], 1):
                    try:
                        other.next(tx)
                    except ObservedException as e2:
                        if not e2.matches(StopIteration):
                            raise
                    else:
                        plural = " " if j == 1 else "s 1-"
                        tx.raise_exception(ValueError, f"zip() argument {j + 1} is longer than argument{plural}{j}")
                raise
        return TupleVariable(out)

    def children(self) -> Any:
        return self.iterators

    def parked_parts(self) -> Any:
        from ..translator.polyfills import strict_zip

        return (strict_zip if self.strict else zip, self.iterators, 1)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(zip)
        for iterator in self.iterators:
            codegen.whole(iterator)
        if self.strict:
            codegen.load_const(True)
            codegen.call_kw(len(self.iterators) + 1, ("strict",))
        else:
            codegen.call_function(len(self.iterators))


def make_zip(tx: Any, *iterables: VariableTracker, strict: VariableTracker | None = None) -> VariableTracker:
    return ZipIterator([i.iterate(tx) for i in iterables], strict is not None and tx.truth(strict))


class EnumerateIterator(IteratorVariable):
    """`enumerate(iterable, start)`."""

    __slots__ = ("count", "iterator")

    def __init__(self, iterator: VariableTracker, count: VariableTracker):
        super().__init__(None)
        self.iterator = iterator
        self.count = count

    def python_type(self) -> type:
        return enumerate

    def next(self, tx: Any) -> VariableTracker:
        import operator

        from .container import TupleVariable
        from .operators import binary

        item = self.iterator.next(tx)
        index = self.count
        self.count = binary(tx, operator.add, index, tx.const(1))
        return TupleVariable([index, item])

    def children(self) -> Any:
        return (self.iterator, self.count)

    def parked_parts(self) -> Any:
        return (enumerate, [self.iterator, self.count], 2)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(enumerate)
        codegen.whole(self.iterator)
        codegen(self.count)
        codegen.call_function(2)


def make_enumerate(tx: Any, iterable: VariableTracker, start: VariableTracker | None = None) -> VariableTracker:
    from .operators import index_value

    count = tx.const(0)
    if start is not None:
        count = start if not start.realize().is_python_constant() else tx.const(index_value(tx, start))
    return EnumerateIterator(iterable.iterate(tx), count)


def make_reversed(tx: Any, sequence: VariableTracker) -> VariableTracker:
    from .attributes import find_in_type, lookup_special
    from .container import ListVariable, SequenceVariable, TupleVariable

    sequence = sequence.realize()
    if type(sequence) is ListVariable:
        return ReversedIterator(sequence)
    if isinstance(sequence, SequenceVariable):
        return ReversedIterator(TupleVariable(list(sequence.items)))
    if sequence.is_python_constant() and isinstance(sequence.as_python_constant(), (str, bytes)):
        return ReversedIterator(TupleVariable(sequence.unpack(tx)))
    found = find_in_type(tx, sequence, "__reversed__")
    if found is not None:
        if found.is_none:
            tx.raise_exception(TypeError, f"'{sequence.python_type().__name__}' object is not reversible")
        return lookup_special(tx, sequence, "__reversed__").call_function(tx, [], {})  # type: ignore[union-attr]
    if find_in_type(tx, sequence, "__getitem__") is None or find_in_type(tx, sequence, "__len__") is None:
        tx.raise_exception(TypeError, f"'{sequence.python_type().__name__}' object is not reversible")
    n = sequence.length(tx).as_python_constant()
    state = {"i": n}

    def step(tx: Any, parts: list[VariableTracker]) -> VariableTracker:
        if state["i"] <= 0:
            stop(tx)
        state["i"] -= 1
        return parts[0].get_item(tx, tx.const(state["i"]))

    return RecipeIterator(reversed, [sequence], step)


class OutsideIterator(IteratorVariable):
    """An iterator from outside whose next elements cannot be looked at: passing it on is fine, advancing it breaks the
    graph."""

    __slots__ = ("value",)

    def __init__(self, value: Any, source: Any):
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def next(self, tx: Any) -> VariableTracker:
        tx.graph_break("outside_iterator", type=type(self.value).__name__)

    def unpack(self, tx: Any) -> list[VariableTracker]:
        tx.graph_break("outside_iterator", type=type(self.value).__name__)

    def call_builtin_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        tx.graph_break("outside_iterator", type=type(self.value).__name__, method=name)

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_global_alias("iterator", self.value)


@wraps_type(
    type(reversed({})),
    type(iter(int, 1)),
    reversed,
    map,
    filter,
    zip,
    enumerate,
    *{t for t in vars(itertools).values() if isinstance(t, type) and t is not itertools.count},
)
def wrap_iterator(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
    return OutsideIterator(value, source)
