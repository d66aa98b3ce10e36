"""Events of this package: ``on_event(callback) -> remove()``. Without a listener an event costs one attribute test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Event(NamedTuple):
    """stage "primtorch"; name "decomposed" (payload: nodes_in, nodes_out, kept: overload -> reason, graph) or "kept"
    (payload: op, reason); seconds.
    """

    stage: str
    name: str
    payload: dict[str, Any]
    seconds: float


LISTENERS: list[Callable[[Event], None]] = []


def on_event(callback: Callable[[Event], None]) -> Callable[[], None]:
    """Call ``callback`` for every event until the returned function is called."""
    if not callable(callback):
        raise TypeError(f"on_event takes a callable, not {type(callback).__name__}")
    LISTENERS.append(callback)

    def remove() -> None:
        if callback in LISTENERS:
            LISTENERS.remove(callback)

    return remove


def emit(name: str, payload: dict[str, Any], seconds: float = 0.0) -> None:
    event = Event("primtorch", name, payload, seconds)
    for listener in list(LISTENERS):
        listener(event)
