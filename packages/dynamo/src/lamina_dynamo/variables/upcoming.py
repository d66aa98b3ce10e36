"""Iterators from outside whose next elements can be looked at, and parked ones.

A builtin iterator over a list, a dict, a range and so on tells what it is going to give. The elements are read
relative to where it stands (`upcoming(it)[k]`), so that what is compiled for one step of a loop serves the other steps,
and it is really advanced when the region ends.
"""

from __future__ import annotations

import gc
import itertools
import operator
import types
from typing import Any

from .. import _torch
from ..parked import Parked, is_untouched, take
from ..resume import generator_entry
from ..source import AttrSource, ItemSource, PythonSource
from .base import VariableTracker
from .builder import wrap_lazy, wraps_type
from .iterators import IteratorVariable, OutsideIterator, stop, wrap_iterator
from .operators import binary


def upcoming(iterator: Any) -> Any:
    """The elements still to come, as a sequence; the iterator stays where it is."""
    parts = iterator.__reduce__()
    sequence = parts[1][0]
    if len(parts) < 3:  # at its end, or a copy of the rest
        return sequence if parts[0] is iter else ()
    if parts[0] is reversed:
        return sequence[parts[2] :: -1] if parts[2] >= 0 else ()
    return sequence[parts[2] or 0 :]


def has_upcoming(sequence: Any, index: int) -> bool:
    """Whether there is an element number `index`."""
    return index < len(sequence)


def advance(iterator: Any, steps: int) -> None:
    """For generated code."""
    for _ in range(steps):
        next(iterator, None)


class UpcomingIterator(IteratorVariable):
    """A builtin iterator from outside. `rest`: the elements to come when the region started; `index`: steps taken."""

    __slots__ = ("base", "ended", "index", "rest", "steps", "value")

    def __init__(self, value: Any, source: Any):
        super().__init__(source)
        self.value = value
        self.rest = upcoming(value)
        self.base = PythonSource(source, upcoming)
        self.index = 0
        self.steps = 0
        self.ended = False

    def python_type(self) -> type:
        return type(self.value)

    def next(self, tx: Any) -> VariableTracker:
        for real in gc.get_referents(self.value):  # what it goes through
            known = tx.output.builder.by_id.get(id(real))
            if known is None:
                continue
            for vt in (known[1], getattr(known[1], "storage", None)):
                if vt is not None and tx.output.side_effects.is_modified(vt):
                    tx.graph_break("outside_iterator", type=type(self.value).__name__, reason="changed on the way")
        tx.output.side_effects.mutation(self)
        self.steps += 1
        if self.ended:
            stop(tx)
        there = has_upcoming(self.rest, self.index)
        tx.output.guard(PythonSource(self.base, has_upcoming, self.index), "CONSTANT", there)
        if not there:
            self.ended = True
            stop(tx)
        item = wrap_lazy(tx, self.rest[self.index], ItemSource(self.base, self.index))
        self.index += 1
        return item

    def replay(self, codegen: Any) -> None:
        codegen.push_function(advance)
        codegen(self)
        codegen.load_const(self.steps)
        codegen.call_function(2)
        codegen.pop()


@wraps_type(
    type(iter([])),
    type(iter(())),
    type(iter(range(0))),
    type(iter(range(1 << 70))),
    type(iter("")),
    type(iter("é")),
    type(iter(b"")),
    type(iter(set())),
    type(iter({})),
    type(iter({}.values())),
    type(iter({}.items())),
    type(reversed([])),
)
def wrap_upcoming(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is None:
        return OutsideIterator(value, source)
    tx.output.guard(source, "TYPE", type(value))
    try:
        return UpcomingIterator(value, source)
    except RuntimeError:  # of a dict or set that changed size
        return OutsideIterator(value, source)


def _count_start(iterator: Any) -> Any:
    return _count_parts(iterator)[0]


def _count_step(iterator: Any) -> Any:
    return _count_parts(iterator)[1]


def _count_parts(iterator: Any) -> tuple[int, ...]:
    """(next number, step) of `itertools.count`, which has no other way to say it that leaves it alone."""
    numbers = repr(iterator).removeprefix("count(").removesuffix(")").split(", ")
    return (int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 1)


class CountIterator(IteratorVariable):
    """`itertools.count` of ints, from outside."""

    __slots__ = ("current", "step", "steps", "value")

    def __init__(self, tx: Any, value: Any, source: Any):
        super().__init__(source)
        self.value = value
        start, step = _count_parts(value)
        self.current = wrap_lazy(tx, start, PythonSource(source, _count_start))
        self.step = wrap_lazy(tx, step, PythonSource(source, _count_step))
        self.steps = 0

    def python_type(self) -> type:
        return itertools.count

    def next(self, tx: Any) -> VariableTracker:
        tx.output.side_effects.mutation(self)
        self.steps += 1
        value = self.current
        self.current = binary(tx, operator.add, value, self.step)
        return value

    replay = UpcomingIterator.replay


@wraps_type(itertools.count)
def wrap_count(tx: Any, value: Any, source: Any) -> VariableTracker:
    try:
        _count_parts(value)
    except ValueError:  # not of ints
        return wrap_iterator(tx, value, source)
    if source is None or value is _torch.FUNCTION_NUMBERS:
        return OutsideIterator(value, source)  # the other moves whenever a graph is compiled: no guard on it would hold
    tx.output.guard(source, "TYPE", itertools.count)
    return CountIterator(tx, value, source)


# -- parked iterators --------------------------------------------------------------------------------------------------
class TakenVariable(VariableTracker):
    """A parked iterator that the region goes on with: the object that stood for it is told so."""

    __slots__ = ()

    def replay(self, codegen: Any) -> None:
        codegen.push_function(take)
        codegen(self)
        codegen.call_function(1)
        codegen.pop()


# A generator has no state that reads the same at each step: a loop over one that breaks in each step would be compiled
# for every step. After so many times eager steps it.
_STEPS_COMPILED = 3


@wraps_type(Parked)
def wrap_parked(tx: Any, value: Any, source: Any) -> VariableTracker:
    tx.output.guard(source, "TYPE", Parked)
    state = tx.output.frame_state
    if state is not None and state.recompiles >= _STEPS_COMPILED and _has_generator(value):
        return OutsideIterator(value, source)
    tx.output.guard(PythonSource(source, is_untouched), "CONSTANT", value.fn is not None)
    if value.fn is None:
        return OutsideIterator(value, source)
    fn = tx.wrap(value.fn, AttrSource(source, "fn")).realize()
    parts = tx.wrap(value.parts, AttrSource(source, "parts")).realize().items
    if value.ends:
        tx.output.side_effects.mutation(TakenVariable(source))
    if type(value.fn) is types.FunctionType and value.primed:
        return _resume_generator(tx, value.fn, fn, parts)
    return fn.call_function(tx, list(parts), {}).realize()


def _has_generator(parked: Parked) -> bool:
    return parked.primed or any(type(part) is Parked and _has_generator(part) for part in parked.parts)


def _resume_generator(tx: Any, fn: types.FunctionType, fn_vt: Any, parts: list[VariableTracker]) -> VariableTracker:
    """The generator that `fn(*parts)` would be, standing behind the yield where it was parked."""
    from ..resume import cell_names
    from ..translator.base import NULL
    from ..translator.generator import GeneratorVariable
    from ..translator.inline import make_child

    entry = generator_entry(fn.__code__)
    if tx.output.decisions.get(("abandoned", entry.origin)):
        tx.graph_break("generator_escapes", function=fn.__name__, reason="dropped inside a block")
    child = make_child(tx, fn_vt, list(parts), {})
    bound = child.symbolic_locals
    child.stand_at(entry.origin, entry.index)
    child.cells = dict(zip(cell_names(entry.origin), fn_vt.get_closure(tx)))
    child.symbolic_locals = {name: bound[name] for name in entry.names}
    child.stack = [NULL if name is None else bound[name] for name in entry.stack]
    return GeneratorVariable(child, fn_vt, started=True)
