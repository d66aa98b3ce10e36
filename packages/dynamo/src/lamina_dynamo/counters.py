"""Numbers that tell what capture did: frames, graphs, breaks by kind, recompiles by guard."""

from __future__ import annotations

import collections
import threading
from typing import Any

__all__ = ["bump", "counters", "reset_counters"]

_lock = threading.Lock()
_totals: collections.Counter[str] = collections.Counter()
_by_kind: dict[str, collections.Counter[str]] = {
    "breaks": collections.Counter(),
    "continued_breaks": collections.Counter(),
    "recompiles": collections.Counter(),
    "skips": collections.Counter(),
}


def bump(name: str, key: str | None = None, amount: int = 1) -> None:
    """Add to a total ("frames", "compiled", "graphs", "fallbacks", ...) or, with ``key``, to an entry of "breaks",
    "recompiles" or "skips".
    """
    with _lock:
        if key is None:
            _totals[name] += amount
        else:
            if name not in _by_kind:
                _by_kind[name] = collections.Counter()
            _by_kind[name][key] += amount


def counters() -> dict[str, Any]:
    """A snapshot: ``frames`` (seen by the translator), ``compiled``, ``graphs``, ``fallbacks``, ``cache_hits``; and
    dicts ``breaks`` (kind id → number), ``continued_breaks`` (those right after another break, with nothing captured
    between: eager goes on), ``recompiles`` (guard → number), ``skips`` (reason → number)."""
    from . import cache

    with _lock:
        result: dict[str, Any] = {name: _totals[name] for name in ("frames", "compiled", "graphs", "fallbacks")}
        result.update({name: value for name, value in _totals.items() if name not in result})
        result.update({name: dict(table) for name, table in _by_kind.items()})
    result["cache_hits"] = cache.hit_count()
    return result


def reset_counters() -> None:
    """Set every number to zero."""
    from . import cache

    with _lock:
        _totals.clear()
        for table in _by_kind.values():
            table.clear()
    cache.reset_hit_count()
