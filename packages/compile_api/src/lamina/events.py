"""One subscription for the events of the whole stack.

Each layer reports `Event(stage, name, payload, seconds)` through its `observe` module; the pipeline adds how long
each stage took for each graph. Everything a user can ask for (explain, logs, dumps, progress, check) listens here.
With no listener an event costs one attribute test.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .config import LAYERS


@dataclass
class Event:
    """What the pipeline itself reports. Layers have classes of their own with the same four fields."""

    stage: str
    name: str
    payload: Any = None
    seconds: float = 0.0
    at: float = field(default_factory=time.perf_counter)


_own: list[Callable[[Any], None]] = []


def emit(stage: str, name: str, payload: Any = None, seconds: float = 0.0) -> None:
    """Report an event of the pipeline to the listeners."""
    if _own:
        event = Event(stage, name, payload, seconds)
        for callback in tuple(_own):
            callback(event)


def on_event(callback: Callable[[Any], None]) -> Callable[[], None]:
    """Call `callback(event)` for every event of every installed layer; the returned function ends it."""
    _own.append(callback)
    removers = [lambda: _own.remove(callback) if callback in _own else None]
    for layer in LAYERS:
        try:
            observe = importlib.import_module(f"{layer}.observe")
        except ImportError:
            continue
        removers.append(observe.on_event(callback))

    def remove() -> None:
        while removers:
            removers.pop()()

    return remove


@contextmanager
def listening(callback: Callable[[Any], None]) -> Iterator[None]:
    """Listen inside a with-block."""
    remove = on_event(callback)
    try:
        yield
    finally:
        remove()


@contextmanager
def timed(stage: str, name: str, payload: Any = None) -> Iterator[None]:
    """Report start and end of a piece of pipeline work; the end carries its seconds."""
    if not _own:
        yield
        return
    emit(stage, f"{name} started", payload)
    start = time.perf_counter()
    try:
        yield
    finally:
        emit(stage, name, payload, time.perf_counter() - start)
