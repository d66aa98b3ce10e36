"""One subscription for the events of the whole stack.

Each layer reports `Event(stage, name, payload, seconds)` through its `observe` module; the pipeline adds how long
each stage took for each graph. Everything a user can ask for (explain, logs, dumps, progress, check) listens here.
With no listener an event costs one attribute test.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
_silent: ContextVar[bool] = ContextVar("lamina_events_silent", default=False)


def needs_order() -> bool:
    """True when a listener relies on one thing being reported after the other; one that does not says so with an
    attribute `takes_any_order`."""
    return not all(getattr(callback, "takes_any_order", False) for callback in _own)


def emit(stage: str, name: str, payload: Any = None, seconds: float = 0.0) -> None:
    """Report an event of the pipeline to the listeners."""
    if _own:
        event = Event(stage, name, payload, seconds)
        for callback in tuple(_own):
            callback(event)


def on_event(callback: Callable[[Any], None]) -> Callable[[], None]:
    """Call `callback(event)` for every event of every installed layer; the returned function ends it."""

    def heard(event: Any) -> None:
        if not _silent.get():
            callback(event)

    _own.append(heard)
    removers = [lambda: _own.remove(heard) if heard in _own else None]
    for layer in LAYERS:
        try:
            observe = importlib.import_module(f"{layer}.observe")
        except ImportError:
            continue
        removers.append(observe.on_event(heard))

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
def silenced() -> Iterator[None]:
    """Keep what is compiled inside a with-block from the listeners: work of the tools, not of the program."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


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


STAGES = {"capture": "capture", "aot_compile": "autograd graphs", "decompose": "decomposition",
          "compile_graph": "code generation"}
"""What each timed step is called in reports, from the outermost to the innermost."""


def own_seconds(recorded: Iterable[Any]) -> dict[str, float]:
    """Return the seconds that each stage took itself, without the stages that it called, in the order of `STAGES`.

    `recorded` are the events of a run in the order in which they came.
    """
    own: dict[str, float] = {}
    below: list[float] = []  # seconds of the steps inside each step that has begun
    in_frame = 0.0  # seconds of the compiles since the last captured frame: capture calls them
    for event in recorded:
        if isinstance(event, Event):
            if event.name.endswith(" started"):
                below.append(0.0)
            elif event.name in STAGES and below:
                own[event.name] = own.get(event.name, 0.0) + event.seconds - below.pop()
                if below:
                    below[-1] += event.seconds
                elif event.name == "aot_compile":
                    in_frame += event.seconds
        elif event.stage == "capture" and str(event.name) == "frame compiled":
            own["capture"] = own.get("capture", 0.0) + max(event.seconds - in_frame, 0.0)
            in_frame = 0.0
    return {title: own[name] for name, title in STAGES.items() if name in own}
