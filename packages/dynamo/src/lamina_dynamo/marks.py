"""What users said about single callables: leave out of the graph, put into it whole, take its result as a constant,
do not follow it.

Kept by identity of the function, beside it and not on it, so that `functools.wraps` does not copy a mark and C
functions can carry one.
"""

from __future__ import annotations

import types
import weakref
from typing import Any

__all__ = [
    "ALLOW",
    "CONSTANT_RESULT",
    "DISABLE",
    "DISABLE_SHALLOW",
    "DISALLOW",
    "any_marks",
    "clear",
    "mark",
    "mark_of",
]

ALLOW = "allow_in_graph"
DISALLOW = "disallow_in_graph"
CONSTANT_RESULT = "assume_constant_result"
DISABLE = "disable"
DISABLE_SHALLOW = "disable(recursive=False)"

_marks: dict[int, tuple[Any, str]] = {}


def _plain(fn: Any) -> Any:
    return fn.__func__ if isinstance(fn, types.MethodType) else fn


def mark(fn: Any, what: str) -> None:
    """Give ``fn`` a mark; an earlier one is replaced. Raises TypeError if it is not callable."""
    if not callable(fn):
        raise TypeError(f"{what} needs a callable, got {type(fn).__name__}")
    fn = _plain(fn)
    key = id(fn)
    try:
        held: Any = weakref.ref(fn, lambda _: _marks.pop(key, None))
    except TypeError:
        held = lambda value=fn: value  # noqa: E731 - objects without weak references are C functions, which stay
    _marks[key] = (held, what)


def any_marks() -> bool:
    """Whether anything is marked at all."""
    return bool(_marks)


def mark_of(fn: Any) -> str | None:
    """The mark of a callable, or None."""
    if not _marks:
        return None
    fn = _plain(fn)
    found = _marks.get(id(fn))
    return found[1] if found is not None and found[0]() is fn else None


def clear(fn: Any) -> None:
    """Take a mark away."""
    _marks.pop(id(_plain(fn)), None)
