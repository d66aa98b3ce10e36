"""Events of this package, for tools: `on_event` registers a listener, `emit` tells it. Without listeners an event
costs one test of `listeners`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Event", "emit", "listeners", "on_event"]


class Event(NamedTuple):
    """One thing that a stage did.

    ``stage``: ``"capture"``, ``"guards"``, ``"backend"``. ``name``: ``"graph captured"``, ``"graph break"``,
    ``"recompile"``, ``"guard failure"``,
    ``"frame compiled"``, ``"frame skipped"``, ``"fallback"``, ``"cache hit"``. ``payload``: a dict, keys by name.
    ``seconds``: how long it took.
    """

    stage: str
    name: str
    payload: dict[str, Any]
    seconds: float = 0.0


listeners: list[Callable[[Event], None]] = []


def on_event(callback: Callable[[Event], None]) -> Callable[[], None]:
    """Call ``callback(event)`` for every event from now on; the result, called, ends that."""
    if not callable(callback):
        raise TypeError(f"on_event takes a callable, not {type(callback).__name__}")
    listeners.append(callback)

    def remove() -> None:
        if callback in listeners:
            listeners.remove(callback)

    return remove


def emit(stage: str, name: str, payload: dict[str, Any], seconds: float = 0.0) -> None:
    """Tell every listener. Callers test ``listeners`` first, so that building the payload costs nothing when nobody
    listens.
    """
    event = Event(stage, name, payload, seconds)
    for callback in tuple(listeners):
        callback(event)
