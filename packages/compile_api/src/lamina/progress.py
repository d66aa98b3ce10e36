"""The line on a terminal that tells what a slow compile is doing.

Nothing is written unless standard error is a terminal (or `LAMINA_PROGRESS=on`) and a compile has taken longer than
`config.progress_after` seconds. The line is erased when the compile ends.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from . import config, events

_TICK = 0.25


def is_wanted() -> bool:
    """Tell whether a progress line may be written."""
    setting = config.current().progress
    if setting == "auto":
        return bool(getattr(sys.stderr, "isatty", lambda: False)())
    return setting == "on"


class Progress:
    """Follows the pipeline's events; one line, rewritten in place from a timer thread."""

    takes_any_order = True  # steps begin and end in several threads

    def __init__(self, stream: Any = None) -> None:
        self.stream = stream
        self.depth = 0
        self.graphs = 0
        self.kernels = 0
        self.doing = ""
        self.since = 0.0
        self.shown = False
        self._lock = threading.Lock()
        self._timer: threading.Thread | None = None

    def __call__(self, event: Any) -> None:
        name = str(event.name)
        if name == "kernel":
            self.kernels += 1
        if name == "autotune":
            self.doing = str(event.payload)
        if not isinstance(event, events.Event):
            return
        with self._lock:
            if name.endswith(" started"):
                if self.depth == 0:
                    self.since, self.kernels = time.monotonic(), 0
                    self._start_timer()
                self.depth += 1
                self.doing = f"{event.stage} {name.removesuffix(' started')}"
            elif name in events.STAGES and self.depth:
                self.depth -= 1
                if self.depth == 0:
                    self.graphs += 1
                    self._erase()

    def _start_timer(self) -> None:
        if self._timer is None or not self._timer.is_alive():
            self._timer = threading.Thread(target=self._tick, name="lamina-progress", daemon=True)
            self._timer.start()

    def _tick(self) -> None:
        while True:
            time.sleep(_TICK)
            with self._lock:
                if self.depth == 0:
                    return
                seconds = time.monotonic() - self.since
                if seconds >= config.current().progress_after:
                    self._draw(seconds)

    def _draw(self, seconds: float) -> None:
        kernels = f", {self.kernels} kernels" if self.kernels else ""
        out = self.stream or sys.stderr
        out.write(f"\r\x1b[Klamina: compiling graph {self.graphs + 1} ({self.doing}{kernels}), {seconds:.0f} s")
        out.flush()
        self.shown = True

    def _erase(self) -> None:
        if self.shown:
            out = self.stream or sys.stderr
            out.write("\r\x1b[K")
            out.flush()
            self.shown = False


_installed: Progress | None = None


def install() -> None:
    """Start following compiles, once, if a progress line is wanted."""
    global _installed
    if _installed is None and is_wanted():
        _installed = Progress()
        events.on_event(_installed)
    from . import logs

    logs.install()
