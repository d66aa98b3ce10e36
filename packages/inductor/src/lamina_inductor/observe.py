"""Events of this package for whoever listens; with no listener an event costs one test of `active`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_listeners: list[Callable[[Event], None]] = []


@dataclass(frozen=True)
class Event:
    """`stage`: "inductor"; `name`: kernel, fusion made, fusion refused, fallback, cache hit, cache miss, lowered graph,
    program; `seconds` where it took time."""

    stage: str
    name: str
    payload: Any = None
    seconds: float = 0.0


def on_event(callback: Callable[[Event], None]) -> Callable[[], None]:
    """Calls `callback` with every event from now on; returns a function that ends it."""
    if not callable(callback):
        raise TypeError(f"on_event takes a callable, not {type(callback).__name__}")
    _listeners.append(callback)

    def remove() -> None:
        if callback in _listeners:
            _listeners.remove(callback)

    return remove


def is_active() -> bool:
    """True when somebody listens."""
    return bool(_listeners)


def report(name: str, payload: Any = None, seconds: float = 0.0) -> None:
    """Tells all listeners."""
    if _listeners:
        event = Event("inductor", name, payload, seconds)
        for listener in list(_listeners):
            listener(event)
