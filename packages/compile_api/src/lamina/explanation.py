"""`lamina.explain(model)(*args)`: what became of a program, as an object, as text and as one HTML page."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from . import events
from .failures import _FRAME
from .logs import ARTIFACTS, graph_in, normalised, readable, text_of
from .options import check_flag, check_model, check_number, settings_of
from .recording import Graph, Recording, record


@dataclass
class Break:
    """One graph break; `times` counts the compiles that met it."""

    kind: str
    reason: str
    line: str = ""
    hint: str = ""
    times: int = 1


@dataclass
class Explanation:
    """The parts of an explanation; `str()` gives text, `html()` a page, `save(path)` writes the page."""

    recording: Recording
    title: str = "program"
    breaks: list[Break] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)
    recompiles: list[str] = field(default_factory=list)
    joint: list[str] = field(default_factory=list)
    saved: list[str] = field(default_factory=list)
    fusions: list[str] = field(default_factory=list)
    kernels: list[tuple[str, str]] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    externs: list[str] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    cache: list[str] = field(default_factory=list)
    measured: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def graphs(self) -> list[Graph]:
        """The captured graphs, in order."""
        return self.recording.graphs

    @property
    def result(self) -> Any:
        """What the program returned."""
        return self.recording.result

    def source_lines(self) -> dict[str, dict[int, list[int]]]:
        """Return file -> line -> numbers of the graphs that have operations from that line."""
        found: dict[str, dict[int, list[int]]] = collections.defaultdict(dict)
        for number, graph in enumerate(self.graphs):
            for node in graph.gm.graph.nodes:
                for file, line, _ in _FRAME.findall(node.meta.get("stack_trace") or ""):
                    numbers = found[file].setdefault(int(line), [])
                    if number not in numbers:
                        numbers.append(number)
        return {file: lines for file, lines in found.items() if os.path.exists(file)}

    def counts(self) -> dict[str, int]:
        """Return the numbers of the first line of the text."""
        return {
            "graphs": len(self.graphs),
            "operations": sum(count_operations(g) for g in self.graphs),
            "graph breaks": sum(b.times for b in self.breaks),
            "guards": len(self.guards),
            "recompiles": len(self.recompiles),
            "kernels": len(self.kernels),
            "fallbacks": len(self.fallbacks),
        }

    def __str__(self) -> str:
        lines = [f"{self.title}: " + ", ".join(f"{n} {k}" for k, n in self.counts().items())]
        if self.recording.error is not None:
            lines.append(f"it raised {type(self.recording.error).__name__}: {self.recording.error}")
        for number, graph in enumerate(self.graphs):
            lines.append(f"\ngraph {number}: {count_operations(graph)} operations, {len(graph.inputs)} inputs")
            lines += ["    " + row for row in readable(graph.gm.code).splitlines()]
        for b in self.breaks:
            again = f", in {b.times} compiles" if b.times > 1 else ""
            lines.append(f"\ngraph break ({b.kind}{again}): {b.reason}")
            lines += [f"    {label}: {value}" for label, value in (("at", b.line), ("hint", b.hint)) if value]
        for label, entries in (("guards", self.guards), ("recompiles", self.recompiles),
                               ("saved for backward", self.saved), ("fusions", self.fusions),
                               ("called, not generated", self.externs),
                               ("handed back to eager", self.fallbacks), ("cache", self.cache),
                               ("measured", self.measured)):
            if entries:
                lines.append(f"\n{label}:")
                lines += ["    " + entry.replace("\n", "\n    ") for entry in entries]
        if self.kernels:
            lines.append("\nkernels: " + ", ".join(name for name, _ in self.kernels))
        if self.seconds:
            lines.append("\nseconds: " + ", ".join(f"{k} {v:.3f}" for k, v in self.seconds.items()))
        return "\n".join(lines)

    def html(self) -> str:
        """Return one self-contained HTML page."""
        from .page import page_of

        return page_of(self)

    def save(self, path: str) -> str:
        """Write the HTML page; returns its path."""
        with open(path, "w", encoding="utf-8") as out:
            out.write(self.html())
        return path


def count_operations(graph: Graph) -> int:
    """Return the number of calls in a graph."""
    return sum(n.op.startswith("call_") for n in graph.gm.graph.nodes)


def explain(model: Any, *, backward: bool = True, calls: int = 1, **options: Any) -> Callable[..., Explanation]:
    """Run a program once under observation and tell what each stage made of it.

    Args:
        model: a function or module, compiled or not. It is compiled afresh; what was compiled before is not touched.
        backward: also compute gradients (into nowhere) if the result has them, so that the backward graph shows.
        calls: how often to call; 2 shows what the second call reuses.
        options: as for `lamina.compile`.

    Returns:
        A function to call with the program's arguments; it returns the Explanation.

    Raises:
        OptionError: an argument is not one of the values it takes.
    """
    check_model("explain", model)
    check_flag("explain", "backward", backward)
    check_number("explain", "calls", calls, 1, int)
    settings = settings_of("explain", options)

    def run(*args: Any, **kwargs: Any) -> Explanation:
        name = getattr(model, "__name__", None) or type(model).__name__
        return explanation_of(record(model, settings, args, kwargs, backward=backward, calls=calls), name)

    return run


def explanation_of(recording: Recording, title: str) -> Explanation:
    """Sort the events of a recording into the parts of an explanation."""
    e = Explanation(recording, title, seconds=events.own_seconds(recording.events))
    for event in recording.events:
        name = normalised(event.name)
        if isinstance(event, events.Event):
            if name == "fallback":
                e.fallbacks.append(str(event.payload))
            if name == "wrapper":
                e.code.append(text_of(event.payload))
            continue
        payload = event.payload if isinstance(event.payload, Mapping) else {}
        if name == "frame compiled":
            e.guards += [str(g) for g in payload.get("guards", ())]
        elif name == "graph break":
            found = break_of(payload.get("record", event.payload))
            known = next((b for b in e.breaks if replace(b, times=1) == found), None)
            if known is None:
                e.breaks.append(found)
            else:
                known.times += 1
        elif ARTIFACTS["recompiles"].takes(name):
            e.recompiles.append(text_of(payload.get("reason", event.payload)))
        elif ARTIFACTS["joint_graph"].takes(name):
            report = getattr(event.payload, "report", None) or payload.get("report")
            graph = graph_in(event.payload)
            if report is not None:
                e.saved.append(str(report))
            elif graph is not None:
                count = sum(n.op.startswith("call_") for n in graph.graph.nodes)
                e.joint.append(f"{name.removesuffix(' compiled')}: {count} operations\n{readable(graph.code)}")
        elif ARTIFACTS["fusion"].takes(name):
            e.fusions.append(f"{event.name}: {text_of(event.payload)}")
        elif name == "kernel":
            title_ = str(payload.get("name") or getattr(event.payload, "name", f"kernel {len(e.kernels)}"))
            e.kernels.append((title_, str(payload.get("source") or text_of(event.payload))))
        elif name == "kept" or name == "fallback" and event.stage == "inductor":
            e.externs.append(text_of(event.payload))
        elif ARTIFACTS["fallback"].takes(name):
            e.fallbacks.append(f"{event.stage}: {text_of(event.payload)}")
        elif name == "autotune":
            if not str(event.payload).startswith("measuring"):  # what is measured now, for the progress line
                e.measured.append(str(event.payload))
        elif ARTIFACTS["cache"].takes(name):
            e.cache.append(f"{event.name}: {text_of(event.payload)}")
    return e


def break_of(payload: Any) -> Break:
    """Read a graph break's payload, a mapping or an object, whatever it calls its parts."""

    def get(*names: str) -> Any:
        for name in names:
            value = payload.get(name) if isinstance(payload, Mapping) else getattr(payload, name, None)
            if value:
                return value
        return ""

    kind = get("kind", "id") or "break"
    return Break(
        str(getattr(kind, "id", kind)),
        str(get("reason", "message") or text_of(payload)),
        str(get("user_line", "line", "where")),
        str(get("hint") or getattr(kind, "hint", "")),
    )
