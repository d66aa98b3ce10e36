"""`LAMINA_LOGS=guards,prims ...` and `LAMINA_DUMP_DIR=folder`: what the stages report, as text.

Every artifact is a row of `ARTIFACTS`: the names of the events that it prints. A dump writes the same texts as
numbered files (`03_joint_graph.py`), graphs as runnable scripts headed by pass and time.
"""

from __future__ import annotations

import dis
import io
import itertools
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from . import config, events
from .errors import unknown


@dataclass(frozen=True)
class Artifact:
    """One name for LAMINA_LOGS: a pattern for the names of its events, what it is good for, and which parts of the
    payload it prints (all of it if no keys are given)."""

    pattern: str
    doc: str
    suffix: str = "txt"
    keys: tuple[str, ...] = ()

    def takes(self, name: str) -> bool:
        """Tell whether an event of this name belongs to the artifact."""
        return re.fullmatch(self.pattern, normalised(name)) is not None

    def parts(self, event: Any) -> list[Any]:
        """Return what to print of an event, piece by piece; graphs and kernels are pieces of their own."""
        payload = event.payload
        if self.keys and isinstance(payload, Mapping):
            chosen = [payload[k] for k in self.keys if payload.get(k) is not None]
            if self.suffix == "dis":
                return ["\n".join(f"{title}\n{bytecode_of(code)}" for title, code in zip(("before", "after"), chosen,
                                                                                       strict=False))]
            flat: list[Any] = []
            for part in chosen:
                flat += list(part) if isinstance(part, list | tuple) and self.suffix == "py" else [part]
            return flat
        return [] if payload is None else [payload]


def bytecode_of(code: Any) -> str:
    """Return a code object disassembled."""
    out = io.StringIO()
    dis.dis(code, file=out, depth=0)
    return out.getvalue()


ARTIFACTS: dict[str, Artifact] = {
    "bytecode": Artifact(r"frame compiled", "bytecode before and after capture", "dis", ("code", "new_code")),
    "graph": Artifact(r"frame compiled", "captured graphs of torch calls", "py", ("graphs",)),
    "guards": Artifact(r"frame compiled|guards( built)?", "what must still hold for reuse", keys=("guards",)),
    "graph_breaks": Artifact(r"graph break|frame skipped", "each graph break: kind, line, hint",
                             keys=("record", "frame", "reason")),
    "recompiles": Artifact(r"recompile|guard failure", "each recompile: guard, old and new value", keys=("reason",)),
    "joint_graph": Artifact(r"joint( graph)?|partition|(forward|backward|inference) (graph|compiled)",
                            "functional graphs and what is saved between them", "py"),
    "prims": Artifact(r"decomposed graph|kept", "graphs of prims; what was not decomposed", "py"),
    "ir": Artifact(r"kernel|program|lowered graph", "loop-level IR: kernels and the scheduled program", "ir"),
    "fusion": Artifact(r"fusion.*|fused", "fusions made and refused, with the reason"),
    "output_code": Artifact(r"wrapper", "generated code of a graph", "cpp"),
    "cache": Artifact(r"cache.*", "cache hits and misses"),
    "fallback": Artifact(r"fallback|extern|split|retrace", "work handed back to eager, with the reason"),
    "perf": Artifact(r".*", "seconds of every step"),
}


def normalised(name: str) -> str:
    """Return an event name in lower case with blanks between words."""
    return str(name).lower().replace("_", " ").replace("-", " ")


def parse(text: str) -> list[str]:
    """Return the artifact names in a LAMINA_LOGS value; "all" means all of them. OptionError for an unknown name."""
    names = [n.strip().lstrip("+") for n in text.split(",") if n.strip()]
    if "all" in names:
        return [n for n in ARTIFACTS if n != "perf"]
    for name in names:
        if name not in ARTIFACTS:
            raise unknown("artifact in LAMINA_LOGS:", name, [*ARTIFACTS, "all"])
    return names


def readable(code: str) -> str:
    """Return generated Python without the statements that only free names."""
    return re.sub(r";  (\w+ = )+None$", "", code.strip(), flags=re.M)


def text_of(payload: Any) -> str:
    """Return what an event carries as text: graphs as code, objects that can print themselves, mappings by line."""
    if payload is None:
        return ""
    if isinstance(payload, str):
        return payload
    if isinstance(payload, torch.fx.GraphModule):
        return payload.code.strip()
    if isinstance(payload, torch.fx.Graph):
        return payload.python_code("self").src.strip()
    if isinstance(payload, Mapping):
        return "\n".join(f"{k}: {_indented(text_of(v))}" for k, v in payload.items())
    if isinstance(payload, list | tuple):
        return "\n".join(text_of(v) for v in payload)
    if getattr(payload, "report", None) is not None:  # a partition: its graphs are reported when they are compiled
        return str(payload.report)
    if hasattr(payload, "kind") and hasattr(payload, "user_line"):
        kind = payload.kind
        return (f"{getattr(kind, 'id', kind)}: {getattr(payload, 'message', '')}\n  at {payload.user_line}\n"
                f"  hint: {getattr(kind, 'hint', '')}")
    if callable(getattr(payload, "text", None)):
        return payload.text()
    for name in ("source", "code"):
        source = getattr(payload, name, None)
        if isinstance(source, str):
            return source
    return str(payload)


def _indented(text: str) -> str:
    return text if "\n" not in text else "\n" + re.sub("^", "  ", text, flags=re.M)


class Printer:
    """Prints the events of the chosen artifacts to standard error."""

    def __init__(self, names: list[str], stream: Any = None) -> None:
        self.names = names
        self.stream = stream

    def __call__(self, event: Any) -> None:
        out = self.stream or sys.stderr
        for name in self.names:
            if name == "perf":
                if event.seconds and event.name != "decomposed graph":  # the step "decompose" says the same
                    print(f"[lamina perf] {event.stage:12} {event.name:24} {event.seconds * 1e3:9.2f} ms", file=out)
            elif ARTIFACTS[name].takes(event.name) and not str(event.name).endswith(" started"):
                seconds = f", {event.seconds * 1e3:.1f} ms" if event.seconds else ""
                text = "\n".join(text_of(part) for part in ARTIFACTS[name].parts(event))
                if text:
                    print(f"[lamina {name}] {event.stage}: {event.name}{seconds}\n{text}", file=out)


class Dumper:
    """Writes the events of every artifact but perf and cache to numbered files in a folder.

    A folder that cannot be written to ends the dump with one warning, never the program.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.numbers = itertools.count(1)
        self.ended = False
        self._lock = threading.Lock()
        self._last: tuple[str, str] = "", ""  # artifact and path of the last file
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            self._end(error)

    def __call__(self, event: Any) -> None:
        if str(event.name).endswith(" started") or self.ended:
            return
        for name, artifact in ARTIFACTS.items():
            if name not in ("perf", "cache") and artifact.takes(event.name):
                for part in artifact.parts(event):
                    try:
                        self._write(name, artifact, event, part)
                    except OSError as error:
                        self._end(error)
                        return

    def _end(self, error: OSError) -> None:
        self.ended = True
        warnings.warn(f"lamina: LAMINA_DUMP_DIR={self.folder} cannot be written to ({error}); nothing more is dumped.",
                      UserWarning, stacklevel=2)

    def _write(self, name: str, artifact: Artifact, event: Any, part: Any) -> None:
        graph = graph_in(part)
        if graph is not None:
            text, suffix = runnable(graph, f"{event.stage}: {event.name}"), "py"
        elif callable(getattr(part, "file_text", None)):  # kernels and programs of the loop-level IR
            text, suffix = part.file_text(), "py"
        else:
            text, suffix = text_of(part), "txt" if artifact.suffix in ("py", "dis", "ir") else artifact.suffix
        if not text:
            return
        mark = "//" if suffix == "cpp" else "#"
        head = f"{mark} stage: {event.stage}; pass: {event.name}; {event.seconds * 1e3:.2f} ms\n"
        with self._lock:
            follows = name == "fusion" and self._last[0] == name  # the decisions of one graph are one list
            path = self._last[1] if follows else os.path.join(self.folder,
                                                              f"{next(self.numbers):03}_{name}.{suffix}")
            self._last = name, path
            with open(path, "a" if follows else "w") as out:
                out.write(head + text + "\n")


def graph_in(payload: Any) -> torch.fx.GraphModule | None:
    """Return the GraphModule that an event carries, if it carries one."""
    if isinstance(payload, torch.fx.GraphModule):
        return payload
    if isinstance(payload, Mapping):
        for value in payload.values():
            if isinstance(value, torch.fx.GraphModule):
                return value
    for name in ("gm", "graph_module", "graph", "forward"):
        value = getattr(payload, name, None)
        if isinstance(value, torch.fx.GraphModule):
            return value
    return None


def example_inputs_of(gm: torch.fx.GraphModule) -> list[Any]:
    """Return the metadata values of a graph's placeholders."""
    return [n.meta.get("val", n.meta.get("example_value", 2)) for n in gm.graph.find_nodes(op="placeholder")]


def runnable(gm: torch.fx.GraphModule, title: str) -> str:
    """Return a graph as a script that runs, or as plain code if some part of it has no importable name."""
    from .scripts import CannotWriteScript, script_of

    try:
        return script_of(gm, example_inputs_of(gm), purpose="run", title=title)
    except CannotWriteScript as error:
        return f"# not runnable alone: {error}\n{gm.code.strip()}"


LISTENERS: dict[str, Callable[[str], Callable[[Any], None]]] = {
    "logs": lambda names: Printer(parse(names)),
    "dump_dir": Dumper,
}
"""Setting -> what listens while it is set."""

_installed: dict[str, tuple[str, Callable[[], None]]] = {}  # setting -> its value and what ends the listener


def install() -> None:
    """Let the printer and the dumper be as the settings of this moment ask."""
    now = config.current()
    for setting, listener in LISTENERS.items():
        wanted = getattr(now, setting)
        value, end = _installed.get(setting, ("", None))
        if value == wanted:
            continue
        if end is not None:
            end()
            del _installed[setting]
        if wanted:
            _installed[setting] = wanted, events.on_event(listener(wanted))
