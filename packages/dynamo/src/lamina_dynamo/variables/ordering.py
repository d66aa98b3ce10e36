"""Order among trackers by the traced `<`: the sort of lists."""

from __future__ import annotations

import operator
from typing import Any

from .base import VariableTracker


class SortKey:
    """Lets real `sorted` order trackers by the traced `<`."""

    __slots__ = ("key", "tx", "vt")

    def __init__(self, tx: Any, vt: VariableTracker, key: VariableTracker):
        self.tx = tx
        self.vt = vt
        self.key = key

    def __lt__(self, other: SortKey) -> bool:
        from .operators import compare

        return self.tx.truth(compare(self.tx, operator.lt, self.key, other.key))


def sort_trackers(
    tx: Any, items: list[VariableTracker], key: VariableTracker | None, reverse: VariableTracker | None
) -> list[VariableTracker]:
    """Stable sort; errors of the traced comparison pass through."""
    from .constant import is_none

    if key is not None and is_none(key):
        key = None
    keys = [item if key is None else key.call_function(tx, [item], {}) for item in items]
    backwards = reverse is not None and tx.truth(reverse)
    wrapped = [SortKey(tx, item, k) for item, k in zip(items, keys)]
    wrapped.sort(reverse=backwards)
    return [w.vt for w in wrapped]
