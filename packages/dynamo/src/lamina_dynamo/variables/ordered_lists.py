"""The modules heapq and bisect, and the counting of collections.Counter."""

from __future__ import annotations

import bisect
import collections
import heapq
import operator
from typing import Any

from .base import VariableTracker
from .builtin import HANDLERS
from .container import ListVariable, content
from .formatting import run_checked


def _count_elements(tx: Any, mapping: VariableTracker, iterable: VariableTracker) -> VariableTracker:
    for item in iterable.realize().unpack(tx):
        storage = content(mapping)
        old = storage.find(tx, item)  # type: ignore[attr-defined]
        new = tx.const(1) if old is None else _plus_one(tx, old)
        mapping.realize().set_item(tx, item, new)
    return tx.const(None)


def _plus_one(tx: Any, vt: VariableTracker) -> VariableTracker:
    from .operators import binary

    return binary(tx, operator.add, vt, tx.const(1))


def _heap_function(fn: Any) -> Any:
    def handler(tx: Any, heap: VariableTracker, *args: VariableTracker) -> VariableTracker:
        from .ordering import SortKey

        storage = content(heap)
        if not isinstance(storage, ListVariable):
            tx.raise_exception(TypeError, f"heap argument must be a list, not {heap.realize().python_type().__name__}")
        keys = [SortKey(tx, item, item) for item in storage.items]
        storage.mutate(tx)
        try:
            result = run_checked(tx, lambda: fn(keys, *[SortKey(tx, a, a) for a in args]))
        finally:
            storage.items[:] = [k.vt for k in keys]
        return tx.const(None) if result is None else result.vt

    return handler


def _bisect_function(insert: bool, right: bool) -> Any:
    """bisect.bisect_left and friends: binary search that compares as the traced program would."""

    def handler(
        tx: Any,
        a: VariableTracker,
        x: VariableTracker,
        lo: VariableTracker | None = None,
        hi: VariableTracker | None = None,
        *,
        key: VariableTracker | None = None,
    ) -> VariableTracker:
        from .constant import is_none
        from .operators import compare, index_value

        def key_of(item: VariableTracker) -> VariableTracker:
            return item if key is None or is_none(key) else key.call_function(tx, [item], {})

        a = a.realize()
        low = 0 if lo is None else index_value(tx, lo)
        if low < 0:
            tx.raise_exception(ValueError, "lo must be non-negative")
        high = a.length(tx).as_python_constant() if hi is None or is_none(hi) else index_value(tx, hi)
        wanted = key_of(x) if insert else x
        while low < high:
            middle = (low + high) // 2
            item = key_of(a.get_item(tx, tx.const(middle)))
            pair = (wanted, item) if right else (item, wanted)
            is_less = tx.truth(compare(tx, operator.lt, *pair))
            if is_less == right:
                high = middle
            else:
                low = middle + 1
        if not insert:
            return tx.const(low)
        a.call_method(tx, "insert", [tx.const(low), x], {})
        return tx.const(None)

    return handler


for _name, _insert, _right in (
    ("bisect_left", False, False),
    ("bisect_right", False, True),
    ("insort_left", True, False),
    ("insort_right", True, True),
):
    HANDLERS[getattr(bisect, _name)] = _bisect_function(_insert, _right)

for _name in ("heapify", "heappush", "heappop", "heapreplace", "heappushpop"):
    HANDLERS[getattr(heapq, _name)] = _heap_function(getattr(heapq, _name))


HANDLERS[collections._count_elements] = _count_elements  # type: ignore[attr-defined]
