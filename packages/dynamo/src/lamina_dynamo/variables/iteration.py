"""Builtin functions that take an iterable apart: iter, next, any, all, sum, min, max, sorted."""

from __future__ import annotations

import operator
from typing import Any

from . import iterators
from .attributes import find_in_mro
from .base import ObservedException, VariableTracker
from .builtin import CONSTRUCTORS, handles
from .constant import fold, is_none
from .container import ListVariable
from .operators import binary, compare
from .ordering import sort_trackers


@handles(iter)
def _iter(tx: Any, obj: VariableTracker, sentinel: VariableTracker | None = None) -> VariableTracker:
    if sentinel is not None:
        if find_in_mro(tx, obj.realize().python_type(), "__call__") is None:
            tx.raise_exception(TypeError, "iter(v, w): v must be callable")
        return iterators.CallIterator(obj, sentinel)
    result = obj.realize().iterate(tx).realize()
    if find_in_mro(tx, result.python_type(), "__next__") is None:
        tx.raise_exception(TypeError, f"iter() returned non-iterator of type '{result.python_type().__name__}'")
    return result


@handles(next)
def _next(tx: Any, iterator: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
    iterator = iterator.realize()
    if find_in_mro(tx, iterator.python_type(), "__next__") is None:
        tx.raise_exception(TypeError, f"'{iterator.python_type().__name__}' object is not an iterator")
    try:
        return iterator.next(tx)
    except ObservedException as e:
        if default is not None and e.matches(StopIteration):
            return default
        raise


CONSTRUCTORS[map] = iterators.make_map
CONSTRUCTORS[filter] = iterators.make_filter
CONSTRUCTORS[zip] = iterators.make_zip
CONSTRUCTORS[enumerate] = iterators.make_enumerate
CONSTRUCTORS[reversed] = iterators.make_reversed


def _each(tx: Any, iterable: VariableTracker) -> Any:
    """Elements of an iterable, one at a time."""
    iterator = iterable.realize().iterate(tx)
    while True:
        try:
            item = iterator.next(tx)
        except ObservedException as e:
            if e.matches(StopIteration):
                return
            raise
        yield item


@handles(any)
def _any(tx: Any, iterable: VariableTracker) -> VariableTracker:
    return tx.const(any(tx.truth(item) for item in _each(tx, iterable)))


@handles(all)
def _all(tx: Any, iterable: VariableTracker) -> VariableTracker:
    return tx.const(all(tx.truth(item) for item in _each(tx, iterable)))


@handles(sum)
def _sum(tx: Any, iterable: VariableTracker, start: VariableTracker | None = None) -> VariableTracker:
    total = tx.const(0) if start is None else start
    if start is not None and start.realize().python_type() in (str, bytes, bytearray):
        hint = {str: "strings [use ''.join(seq) instead]", bytes: "bytes [use b''.join(seq) instead]"}
        kind = start.realize().python_type()
        tx.raise_exception(TypeError, f"sum() can't sum {hint.get(kind, 'bytearray [use b.join(seq) instead]')}")
    items = list(_each(tx, iterable))
    if all(i.realize().is_python_constant() for i in items) and total.realize().is_python_constant():
        values = [i.as_python_constant() for i in items]
        if all(type(v) in (int, float, bool) for v in values):
            return fold(tx, sum, [ListVariable(items), total.realize()], {})
    for item in items:
        total = binary(tx, operator.add, total, item)
    return total


def _extreme(
    op: Any, name: str, tx: Any, args: tuple[VariableTracker, ...], key: VariableTracker | None, default: Any
) -> VariableTracker:
    if not args:
        tx.raise_exception(TypeError, f"{name} expected at least 1 argument, got 0")
    if len(args) > 1 and default is not None:
        tx.raise_exception(TypeError, f"Cannot specify a default for {name}() with multiple positional arguments")
    items = list(args) if len(args) > 1 else list(_each(tx, args[0]))
    if key is not None and is_none(key):
        key = None
    if not items:
        if default is not None:
            return default
        tx.raise_exception(ValueError, f"{name}(){_EMPTY_TEXT}")
    best = items[0]
    best_key = best if key is None else key.call_function(tx, [best], {})
    for item in items[1:]:
        item_key = item if key is None else key.call_function(tx, [item], {})
        special = getattr(item_key.realize(), "pick_extreme", None) or getattr(best_key.realize(), "pick_extreme", None)
        if special is not None and key is None:
            picked = special(tx, name, best_key.realize(), item_key.realize())
            if picked is not None:
                best = best_key = picked
                continue
        if tx.truth(compare(tx, op, item_key, best_key)):
            best, best_key = item, item_key
    return best


def _empty_text() -> str:
    try:
        min(())
    except ValueError as e:
        return str(e)[len("min()") :]
    return ""


_EMPTY_TEXT = _empty_text()


@handles(min)
def _min(
    tx: Any,
    *args: VariableTracker,
    key: VariableTracker | None = None,
    default: VariableTracker | None = None,
) -> VariableTracker:
    return _extreme(operator.lt, "min", tx, args, key, default)


@handles(max)
def _max(
    tx: Any,
    *args: VariableTracker,
    key: VariableTracker | None = None,
    default: VariableTracker | None = None,
) -> VariableTracker:
    return _extreme(operator.gt, "max", tx, args, key, default)


@handles(sorted)
def _sorted(
    tx: Any,
    iterable: VariableTracker,
    /,
    *,
    key: VariableTracker | None = None,
    reverse: VariableTracker | None = None,
) -> VariableTracker:
    return ListVariable(sort_trackers(tx, iterable.realize().unpack(tx), key, reverse))
