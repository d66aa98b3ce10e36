"""itertools: the lazy iterators as trackers; the combinatoric ones from all their elements."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

from .base import ObservedException, VariableTracker
from .builtin import CONSTRUCTORS, HANDLERS
from .constant import is_none
from .container import ListVariable, TupleVariable
from .iterators import IteratorVariable, ListIterator, RecipeIterator, stop
from .operators import binary, index_value, values_equal


def _constructs(kind: type) -> Callable[[Any], Any]:
    def register(fn: Any) -> Any:
        CONSTRUCTORS[kind] = fn
        return fn

    return register


class ChainIterator(IteratorVariable):
    """itertools.chain."""

    __slots__ = ("active", "sources")

    def __init__(self, sources: VariableTracker):
        super().__init__(None)
        self.sources: VariableTracker | None = sources
        self.active: VariableTracker | None = None

    def python_type(self) -> type:
        return itertools.chain

    def next(self, tx: Any) -> VariableTracker:
        while True:
            if self.sources is None:
                stop(tx)
            if self.active is None:
                try:
                    self.active = self.sources.next(tx).realize().iterate(tx)
                except ObservedException:
                    self.sources = None
                    raise
            try:
                return self.active.next(tx)
            except ObservedException as e:
                if not e.matches(StopIteration):
                    raise
                self.active = None

    def children(self) -> Any:
        return [v for v in (self.active, self.sources) if v is not None]

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(make_chain)
        for part in (self.active, self.sources):
            if part is None:
                codegen.load_const(())
            else:
                codegen(part)
        codegen.call_function(2)


def make_chain(active: Any, sources: Any) -> Any:
    """A chain in the middle of its work, for generated code."""
    return itertools.chain.from_iterable(itertools.chain((active,), sources))


@_constructs(itertools.chain)
def _chain(tx: Any, *iterables: VariableTracker) -> VariableTracker:
    return ChainIterator(ListIterator(TupleVariable(list(iterables))))


HANDLERS[itertools.chain.from_iterable] = lambda tx, iterable: ChainIterator(iterable.realize().iterate(tx))


@_constructs(itertools.count)
def _count(tx: Any, start: VariableTracker | None = None, step: VariableTracker | None = None) -> VariableTracker:
    first = tx.const(0) if start is None else start
    by = tx.const(1) if step is None else step

    def advance(tx: Any, parts: list[VariableTracker]) -> VariableTracker:
        value = parts[0]
        parts[0] = binary(tx, operator.add, value, parts[1])
        return value

    return RecipeIterator(itertools.count, [first, by], advance)


class CycleIterator(IteratorVariable):
    """itertools.cycle."""

    __slots__ = ("index", "iterator", "saved")

    def __init__(self, iterator: VariableTracker):
        super().__init__(None)
        self.iterator: VariableTracker | None = iterator
        self.saved: list[VariableTracker] = []
        self.index = 0

    def python_type(self) -> type:
        return itertools.cycle

    def next(self, tx: Any) -> VariableTracker:
        if self.iterator is not None:
            try:
                item = self.iterator.next(tx)
            except ObservedException as e:
                if not e.matches(StopIteration):
                    raise
                self.iterator = None
            else:
                self.saved.append(item)
                return item
        if not self.saved:
            stop(tx)
        item = self.saved[self.index]
        self.index = (self.index + 1) % len(self.saved)
        return item

    def children(self) -> Any:
        return self.saved if self.iterator is None else [*self.saved, self.iterator]

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(make_cycle)
        for item in self.saved:
            codegen(item)
        codegen.build("BUILD_LIST", len(self.saved))
        if self.iterator is None:
            codegen.load_const(())
        else:
            codegen(self.iterator)
        codegen.load_const(self.index if self.iterator is None else len(self.saved))
        codegen.call_function(3)


def make_cycle(saved: list[Any], rest: Any, index: int) -> Any:
    """A cycle in the middle of its work, for generated code."""
    made = itertools.cycle(itertools.chain(saved, rest))
    for _ in range(index):
        next(made)
    return made


CONSTRUCTORS[itertools.cycle] = lambda tx, iterable: CycleIterator(iterable.realize().iterate(tx))


@_constructs(itertools.repeat)
def _repeat(tx: Any, obj: VariableTracker, times: VariableTracker | None = None) -> VariableTracker:
    if times is None:
        return RecipeIterator(itertools.repeat, [obj], lambda tx, parts: parts[0])
    left = max(index_value(tx, times), 0)

    def advance(tx: Any, parts: list[VariableTracker]) -> VariableTracker:
        n = parts[1].as_python_constant()
        if n <= 0:
            stop(tx)
        parts[1] = tx.const(n - 1)
        return parts[0]

    return RecipeIterator(itertools.repeat, [obj, tx.const(left)], advance)


class StatefulIterator(IteratorVariable):
    """A lazy itertools object with state that its constructor cannot express; leaving the region breaks the graph."""

    __slots__ = ("kind", "parts", "step")

    def __init__(self, kind: type, parts: list[VariableTracker], step: Callable[..., VariableTracker]):
        super().__init__(None)
        self.kind = kind
        self.parts = parts
        self.step = step

    def python_type(self) -> type:
        return self.kind

    def next(self, tx: Any) -> VariableTracker:
        return self.step(tx)

    def children(self) -> Any:
        return self.parts

    def reconstruct(self, codegen: Any) -> None:
        from .base import break_graph

        break_graph("reconstruct", type=self.kind.__name__, reason="partly run iterator")


@_constructs(itertools.accumulate)
def _accumulate(
    tx: Any,
    iterable: VariableTracker,
    func: VariableTracker | None = None,
    *,
    initial: VariableTracker | None = None,
) -> VariableTracker:
    iterator = iterable.realize().iterate(tx)
    state: dict[str, Any] = {"total": None, "initial": None if initial is None or is_none(initial) else initial}
    if func is not None and is_none(func):
        func = None

    def step(tx: Any) -> VariableTracker:
        if state["initial"] is not None:
            state["total"], state["initial"] = state["initial"], None
            return state["total"]
        item = iterator.next(tx)
        if state["total"] is None:
            state["total"] = item
        elif func is None:
            state["total"] = binary(tx, operator.add, state["total"], item)
        else:
            state["total"] = func.call_function(tx, [state["total"], item], {})
        return state["total"]

    return StatefulIterator(itertools.accumulate, [iterator], step)


@_constructs(itertools.compress)
def _compress(tx: Any, data: VariableTracker, selectors: VariableTracker) -> VariableTracker:
    def step(tx: Any, parts: list[VariableTracker]) -> VariableTracker:
        while True:
            item, selected = parts[0].next(tx), parts[1].next(tx)
            if tx.truth(selected):
                return item

    return RecipeIterator(itertools.compress, [data.realize().iterate(tx), selectors.realize().iterate(tx)], step)


@_constructs(itertools.dropwhile)
def _dropwhile(tx: Any, predicate: VariableTracker, iterable: VariableTracker) -> VariableTracker:
    iterator = iterable.realize().iterate(tx)
    state = {"dropping": True}

    def step(tx: Any) -> VariableTracker:
        item = iterator.next(tx)
        while state["dropping"]:
            if not tx.truth(predicate.call_function(tx, [item], {})):
                state["dropping"] = False
                break
            item = iterator.next(tx)
        return item

    return StatefulIterator(itertools.dropwhile, [predicate, iterator], step)


@_constructs(itertools.takewhile)
def _takewhile(tx: Any, predicate: VariableTracker, iterable: VariableTracker) -> VariableTracker:
    iterator = iterable.realize().iterate(tx)
    state = {"done": False}

    def step(tx: Any) -> VariableTracker:
        if state["done"]:
            stop(tx)
        item = iterator.next(tx)
        if not tx.truth(predicate.call_function(tx, [item], {})):
            state["done"] = True
            stop(tx)
        return item

    return StatefulIterator(itertools.takewhile, [predicate, iterator], step)


@_constructs(itertools.filterfalse)
def _filterfalse(tx: Any, predicate: VariableTracker, iterable: VariableTracker) -> VariableTracker:
    def step(tx: Any, parts: list[VariableTracker]) -> VariableTracker:
        while True:
            item = parts[1].next(tx)
            verdict = item if is_none(parts[0]) else parts[0].call_function(tx, [item], {})
            if not tx.truth(verdict):
                return item

    return RecipeIterator(itertools.filterfalse, [predicate, iterable.realize().iterate(tx)], step)


@_constructs(itertools.starmap)
def _starmap(tx: Any, fn: VariableTracker, iterable: VariableTracker) -> VariableTracker:
    def step(tx: Any, parts: list[VariableTracker]) -> VariableTracker:
        return parts[0].call_function(tx, parts[1].next(tx).realize().unpack(tx), {})

    return RecipeIterator(itertools.starmap, [fn, iterable.realize().iterate(tx)], step)


@_constructs(itertools.islice)
def _islice(tx: Any, iterable: VariableTracker, *bounds: VariableTracker) -> VariableTracker:
    def bound(vt: VariableTracker) -> int | None:
        return None if is_none(vt) else index_value(tx, vt)

    if not 1 <= len(bounds) <= 3:
        what = "at least 2" if not bounds else "at most 4"
        tx.raise_exception(TypeError, f"islice expected {what} arguments, got {len(bounds) + 1}")
    values = [bound(b) for b in bounds]
    if len(values) == 1:
        start, stop_at, step_by = 0, values[0], 1
    else:
        start = values[0] or 0
        stop_at = values[1]
        step_by = 1 if len(values) < 3 or values[2] is None else values[2]
    if start < 0 or stop_at is not None and stop_at < 0:
        text = "Stop argument for islice() must be None or an integer: 0 <= x <= sys.maxsize."
        if len(values) > 1:
            text = "Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize."
        tx.raise_exception(ValueError, text)
    if step_by < 1:
        tx.raise_exception(ValueError, "Step for islice() must be a positive integer or None.")
    iterator = iterable.realize().iterate(tx)
    state = {"at": 0, "next": start}

    def step(tx: Any, parts: list[VariableTracker]) -> VariableTracker:
        limit = None if is_none(parts[2]) else parts[2].as_python_constant()
        if limit is not None and state["next"] >= limit:
            while state["at"] < limit:
                state["at"] += 1
                try:
                    parts[0].next(tx)
                except ObservedException as e:
                    if e.matches(StopIteration):
                        break
                    raise
            stop(tx)
        while state["at"] < state["next"]:
            parts[0].next(tx)
            state["at"] += 1
        item = parts[0].next(tx)
        state["at"] += 1
        state["next"] += step_by
        return item

    class _Islice(RecipeIterator):
        __slots__ = ()

        def reconstruct(self, codegen: Any) -> None:
            codegen.push_function(itertools.islice)
            codegen(self.parts[0])
            codegen.load_const(state["next"] - state["at"])
            limit = None if is_none(self.parts[2]) else self.parts[2].as_python_constant()
            codegen.load_const(None if limit is None else max(limit - state["at"], 0))
            codegen.load_const(step_by)
            codegen.call_function(4)

    return _Islice(itertools.islice, [iterator, tx.const(start), tx.const(stop_at), tx.const(step_by)], step)


class TeeIterator(IteratorVariable):
    """One branch of itertools.tee."""

    __slots__ = ("buffer", "index", "iterator")

    def __init__(self, iterator: VariableTracker, buffer: list[VariableTracker], index: int = 0):
        super().__init__(None)
        self.iterator = iterator
        self.buffer = buffer
        self.index = index

    def python_type(self) -> type:
        return type(itertools.tee(())[0])

    def next(self, tx: Any) -> VariableTracker:
        if self.index == len(self.buffer):
            self.buffer.append(self.iterator.next(tx))
        self.index += 1
        return self.buffer[self.index - 1]

    def method_copy(self, tx: Any) -> VariableTracker:
        return TeeIterator(self.iterator, self.buffer, self.index)

    def children(self) -> Any:
        return [*self.buffer, self.iterator]

    def reconstruct(self, codegen: Any) -> None:
        from .base import break_graph

        break_graph("reconstruct", type="tee", reason="partly run iterator")


def _tee(tx: Any, iterable: VariableTracker, n: VariableTracker | None = None) -> VariableTracker:
    count = 2 if n is None else index_value(tx, n)
    if count < 0:
        tx.raise_exception(ValueError, "n must be >= 0")
    iterator = iterable.realize().iterate(tx)
    if isinstance(iterator, TeeIterator):
        copies = [iterator] + [iterator.method_copy(tx) for _ in range(count - 1)]
        return TupleVariable(list(copies[:count]))
    buffer: list[VariableTracker] = []
    return TupleVariable([TeeIterator(iterator, buffer) for _ in range(count)])


HANDLERS[itertools.tee] = _tee


@_constructs(itertools.zip_longest)
def _zip_longest(tx: Any, *iterables: VariableTracker, fillvalue: VariableTracker | None = None) -> VariableTracker:
    fill = tx.const(None) if fillvalue is None else fillvalue
    active: list[VariableTracker | None] = [i.realize().iterate(tx) for i in iterables]

    def step(tx: Any) -> VariableTracker:
        if not any(a is not None for a in active):
            stop(tx)
        row = []
        for i, iterator in enumerate(active):
            if iterator is None:
                row.append(fill)
                continue
            try:
                row.append(iterator.next(tx))
            except ObservedException as e:
                if not e.matches(StopIteration):
                    raise
                active[i] = None
                if not any(a is not None for a in active):
                    raise
                row.append(fill)
        return TupleVariable(row)

    return StatefulIterator(itertools.zip_longest, [fill, *[a for a in active if a is not None]], step)


if hasattr(itertools, "pairwise"):

    @_constructs(itertools.pairwise)
    def _pairwise(tx: Any, iterable: VariableTracker) -> VariableTracker:
        iterator = iterable.realize().iterate(tx)
        state: dict[str, Any] = {"old": None}

        def step(tx: Any) -> VariableTracker:
            if state["old"] is None:
                state["old"] = iterator.next(tx)
            new = iterator.next(tx)
            old, state["old"] = state["old"], new
            return TupleVariable([old, new])

        return StatefulIterator(itertools.pairwise, [iterator], step)


if hasattr(itertools, "batched"):

    @_constructs(itertools.batched)
    def _batched(tx: Any, iterable: VariableTracker, n: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        size = index_value(tx, n)
        if size < 1:
            tx.raise_exception(ValueError, "n must be at least one")
        strict = "strict" in kwargs and tx.truth(kwargs["strict"])
        iterator = iterable.realize().iterate(tx)

        def step(tx: Any) -> VariableTracker:
            row: list[VariableTracker] = []
            while len(row) < size:
                try:
                    row.append(iterator.next(tx))
                except ObservedException as e:
                    if not row or not e.matches(StopIteration):
                        raise
                    if strict:
                        tx.raise_exception(ValueError, "batched(): incomplete batch")
                    break
            return TupleVariable(row)

        return StatefulIterator(itertools.batched, [iterator], step)


class GroupByIterator(IteratorVariable):
    """itertools.groupby; a group ends when the next one is asked for."""

    __slots__ = ("current", "current_key", "group", "iterator", "key", "target_key")

    def __init__(self, iterator: VariableTracker, key: VariableTracker | None):
        super().__init__(None)
        self.iterator = iterator
        self.key = key
        self.current: VariableTracker | None = None
        self.current_key: VariableTracker | None = None
        self.target_key: VariableTracker | None = None
        self.group: Any = None

    def python_type(self) -> type:
        return itertools.groupby

    def advance(self, tx: Any) -> None:
        item = self.iterator.next(tx)
        self.current_key = item if self.key is None else self.key.call_function(tx, [item], {})
        self.current = item

    def next(self, tx: Any) -> VariableTracker:
        self.group = None
        while True:
            if self.current_key is None:
                pass
            elif self.target_key is None:
                break
            elif not values_equal(tx, self.target_key, self.current_key):
                break
            self.advance(tx)
        self.target_key = self.current_key
        self.group = StatefulIterator(itertools._grouper, [self], lambda tx: self.next_of_group(tx, group))  # type: ignore[attr-defined]
        group = self.group
        return TupleVariable([self.current_key, self.group])  # type: ignore[list-item]

    def next_of_group(self, tx: Any, group: Any) -> VariableTracker:
        if self.group is not group:
            stop(tx)
        if self.current is None:
            self.advance(tx)
        if not values_equal(tx, self.target_key, self.current_key):  # type: ignore[arg-type]
            stop(tx)
        item = self.current
        self.current = None
        if item is None:  # comparing the keys took it
            stop(tx)
        return item

    def children(self) -> Any:
        return (self.iterator,)

    def reconstruct(self, codegen: Any) -> None:
        from .base import break_graph

        if self.current_key is None:
            codegen.push_function(itertools.groupby)
            codegen(self.iterator)
            if self.key is None:
                codegen.load_const(None)
            else:
                codegen(self.key)
            codegen.call_function(2)
            return
        break_graph("reconstruct", type="groupby", reason="partly run iterator")


@_constructs(itertools.groupby)
def _groupby(tx: Any, iterable: VariableTracker, key: VariableTracker | None = None) -> VariableTracker:
    return GroupByIterator(iterable.realize().iterate(tx), None if key is None or is_none(key) else key)


def _combinatoric(kind: Any) -> None:
    def construct(tx: Any, iterable: VariableTracker, r: VariableTracker | None = None) -> VariableTracker:
        pool = iterable.realize().unpack(tx)
        size = [] if r is None or is_none(r) else [index_value(tx, r)]
        if size and size[0] < 0:
            tx.raise_exception(ValueError, "r must be non-negative")
        rows = [TupleVariable([pool[i] for i in row]) for row in kind(range(len(pool)), *size)]
        return ListIterator(ListVariable(list(rows)), kind=kind)

    CONSTRUCTORS[kind] = construct


for _kind in (itertools.permutations, itertools.combinations, itertools.combinations_with_replacement):
    _combinatoric(_kind)


@_constructs(itertools.product)
def _product(tx: Any, *iterables: VariableTracker, repeat: VariableTracker | None = None) -> VariableTracker:
    pools = [i.realize().unpack(tx) for i in iterables] * (1 if repeat is None else index_value(tx, repeat))
    total = 1
    for pool in pools:
        total *= len(pool)
    if total > 1 << 16:
        tx.graph_break("fold_too_large", operation="itertools.product")
    rows = [TupleVariable(list(row)) for row in itertools.product(*pools)]
    return ListIterator(ListVariable(list(rows)), kind=itertools.product)
