"""`capture`: run a function once with capture on and keep all that was learned, for analysis tools; `explain`: the
same as text.

record = lamina_dynamo.capture(fn)(*args)
record.graphs[0].gm.print_readable(); print(record); open("capture.html", "w").write(record.html())
"""

from __future__ import annotations

import dataclasses
import dis
import io
import types
from collections.abc import Callable
from typing import Any

import torch

from . import cache, observe
from .backends import eager, get_backend
from .convert_frame import Compiler
from .eval_frame import CompiledFunction

__all__ = ["Capture", "CapturedBreak", "CapturedFrame", "CapturedGraph", "capture", "explain"]


@dataclasses.dataclass(frozen=True)
class CapturedGraph:
    """One graph. ``gm``: the GraphModule; ``example_inputs``: metadata of its inputs as text; ``lines``: ``(file,
    line)`` of the user's code in it.
    """

    gm: torch.fx.GraphModule
    frame: str
    number: int

    @property
    def inputs(self) -> list[str]:
        """One line per input: name, where it comes from, metadata."""
        return [
            f"{n.name}: {getattr(n.meta.get('source'), 'name', '?')}: {_describe(n.meta.get('val'))}"
            for n in self.gm.graph.nodes
            if n.op == "placeholder"
        ]

    @property
    def lines(self) -> set[tuple[str, int]]:
        found = set()
        for node in self.gm.graph.nodes:
            for file, line in _stack_lines(node.meta.get("stack_trace") or ""):
                found.add((file, line))
        return found


@dataclasses.dataclass(frozen=True)
class CapturedBreak:
    """One graph break: kind id, why, what to change, the user's line, ``(file, line)``."""

    kind: str
    message: str
    hint: str
    user_line: str
    place: tuple[str, int] | None


@dataclasses.dataclass(frozen=True)
class CapturedFrame:
    """One compiled frame: code before and after, guards as text, its graphs and breaks, seconds."""

    code: types.CodeType
    new_code: types.CodeType | None
    guards: list[str]
    graphs: list[CapturedGraph]
    breaks: list[CapturedBreak]
    seconds: float
    skipped: str = ""

    @property
    def name(self) -> str:
        name = getattr(self.code, "co_qualname", self.code.co_name)
        return f"{name} ({self.code.co_filename}:{self.code.co_firstlineno})"

    def bytecode_before(self) -> str:
        """Disassembly of the original."""
        return _disassemble(self.code)

    def bytecode_after(self) -> str:
        """Disassembly of what runs instead ("" if the original runs)."""
        return "" if self.new_code is None else _disassemble(self.new_code)


@dataclasses.dataclass
class Capture:
    """What one call showed. ``value``: the call's result (None if it raised: then ``error`` is set)."""

    value: Any = None
    error: BaseException | None = None
    frames: list[CapturedFrame] = dataclasses.field(default_factory=list)
    recompiles: list[str] = dataclasses.field(default_factory=list)

    @property
    def graphs(self) -> list[CapturedGraph]:
        return [g for f in self.frames for g in f.graphs]

    @property
    def breaks(self) -> list[CapturedBreak]:
        return [b for f in self.frames for b in f.breaks]

    @property
    def guards(self) -> list[str]:
        return [g for f in self.frames for g in f.guards]

    def source_map(self) -> dict[tuple[str, int], int]:
        """``(file, line)`` of the user's code → number of the graph that it went into (the first, if several)."""
        result: dict[tuple[str, int], int] = {}
        for graph in self.graphs:
            for place in graph.lines:
                result.setdefault(place, graph.number)
        return result

    def text(self) -> str:
        """Everything, readable."""
        out = [
            f"{len(self.graphs)} graphs, {len(self.breaks)} graph breaks, {len(self.guards)} guards "
            f"in {len(self.frames)} frames"
        ]
        for frame in self.frames:
            out.append(
                f"\nframe {frame.name}, {frame.seconds * 1e3:.1f} ms"
                + (f": runs as it is ({frame.skipped})" if frame.skipped else "")
            )
            for graph in frame.graphs:
                ops = sum(n.op.startswith("call") for n in graph.gm.graph.nodes)
                out.append(f"  graph {graph.number}: {ops} operations, inputs:")
                out.extend(f"    {line}" for line in graph.inputs)
                out.extend("    " + line for line in str(graph.gm.graph).splitlines())
            for broken in frame.breaks:
                out.append(
                    f"  graph break [{broken.kind}]: {broken.message}\n    {broken.user_line}\n    hint: {broken.hint}"
                )
            if frame.guards:
                out.append("  guards:")
                out.extend(f"    {g}" for g in frame.guards)
        for line in self.recompiles:
            out.append(f"recompile: {line}")
        if self.error is not None:
            out.append(f"the call raised {type(self.error).__name__}: {self.error}")
        return "\n".join(out)

    __str__ = text

    def html(self) -> str:
        """One self-contained page: source lines coloured by graph, breaks with their hints, guards, bytecode before
        and after.
        """
        from .report import page

        return page(self)


def capture(
    fn: Callable[..., Any], *, backend: Any = eager, fullgraph: bool = False, dynamic: bool | None = None
) -> Callable[..., Capture]:
    """A function that calls ``fn`` with capture on and gives back a `Capture`. Nothing is left behind: its compiled
    frames are its own.

    An exception of the call is kept in ``error``, except GraphBreakError under ``fullgraph``, which is raised.
    TypeError if ``fn`` cannot be called.
    """
    if not callable(fn):
        raise TypeError(f"capture takes a function, method or module, not {type(fn).__name__}")
    chosen = get_backend(backend)

    def call(*args: Any, **kwargs: Any) -> Capture:
        # A compiler of its own: frames compiled for others do not count, and are not touched.
        compiler = Compiler(chosen, fullgraph, dynamic)
        record = Capture()
        remove = observe.on_event(lambda event: _collect(record, event))
        try:
            owner = cache.new_owner(compiler)
            record.value = CompiledFunction(fn, owner)(*args, **kwargs)
        except Exception as error:
            if fullgraph:
                raise
            record.error = error
        finally:
            remove()
        return record

    return call


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Capture:
    """``capture(fn)(*args, **kwargs)``; print the result to read it."""
    return capture(fn)(*args, **kwargs)


def _collect(record: Capture, event: observe.Event) -> None:
    payload = event.payload
    if event.name == "frame compiled":
        first = len(record.graphs)
        name = payload["code"].co_name
        graphs = [CapturedGraph(gm, name, first + i) for i, gm in enumerate(payload["graphs"])]
        breaks = [_break(b) for b in payload["breaks"]]
        record.frames.append(
            CapturedFrame(
                payload["code"], payload["new_code"], [str(g) for g in payload["guards"]], graphs, breaks, event.seconds
            )
        )
    elif event.name == "frame skipped":
        breaks = [_break(b) for b in payload.get("breaks", ())]
        record.frames.append(
            CapturedFrame(
                payload["code"], None, [], [], breaks, event.seconds, payload["reason"] or "nothing to capture"
            )
        )
    elif event.name == "recompile":
        record.recompiles.append(str(payload["reason"]))


def _break(record: Any) -> CapturedBreak:
    place = None
    if record.user_stack:
        code, line = record.user_stack[-1]
        place = (code.co_filename, line or 0)
    return CapturedBreak(record.kind.id, record.message, record.kind.hint, record.user_line, place)


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} on {value.device}"
    return repr(value)


def _stack_lines(stack: str) -> list[tuple[str, int]]:
    found = []
    for line in stack.splitlines():
        line = line.strip()
        if line.startswith('File "'):
            file, _, rest = line[6:].partition('", line ')
            number = rest.partition(",")[0]
            if number.isdigit():
                found.append((file, int(number)))
    return found


def _disassemble(code: types.CodeType) -> str:
    out = io.StringIO()
    dis.dis(code, file=out, depth=0)
    return out.getvalue()
