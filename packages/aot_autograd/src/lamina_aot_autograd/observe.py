"""Events of this stage: what happened, for logs and tools. With no listener an event costs one attribute test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Event(NamedTuple):
    """`stage` is "aot_autograd"; `name` one of joint_graph, partition, forward_compiled, backward_compiled,
    inference_compiled, fallback, split, retrace; `payload` depends on the name; `seconds` is the time it took."""

    stage: str
    name: str
    payload: Any
    seconds: float


_listeners: list[Callable[[Event], None]] = []


def on_event(callback: Callable[[Event], None]) -> Callable[[], None]:
    """Call `callback` with each Event from now on; returns a function that stops it."""
    if not callable(callback):
        raise TypeError(f"on_event takes a callable, not {type(callback).__name__}")
    _listeners.append(callback)

    def remove() -> None:
        if callback in _listeners:
            _listeners.remove(callback)

    return remove


def report(name: str, payload: Any, seconds: float = 0.0) -> None:
    """Tell the listeners; callers test `observe._listeners` first where building the payload costs something."""
    if _listeners:
        event = Event("aot_autograd", name, payload, seconds)
        for callback in tuple(_listeners):
            callback(event)


def is_observed() -> bool:
    """True when somebody listens."""
    return bool(_listeners)
