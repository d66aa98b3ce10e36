"""The scheduled program of one graph: an ordered list of steps over named buffers. The wrapper generators consume
exactly this.

Buffers
=======

`GraphProgram.buffers` maps a name to a `BufferDecl`: its `Layout` and its `kind`

* "input": position `index` among the graph inputs (a tensor). Its pointer is ``tensor.data_ptr()``. Sizes and strides
  are those of the layout; constants in
  it were promised by the caller's guards and need no check on every call.
* "constant": position `index` in `GraphProgram.constants` (a real tensor kept by the compiled graph).
* "temp": made by this program and dead at its end. "output": made by this program and handed out.

Steps, in order
===============

* `Alloc(name)`: give the buffer memory of its own: ``layout.span`` elements, strides of the layout. An "arena" buffer
  (`BufferDecl.arena` is not None) instead lies
  `arena` bytes into the one block of `GraphProgram.arena_bytes` bytes (64-byte aligned) that the wrapper allocates
  first; it has no Alloc or Free step.
* `Reuse(name, old)`: `name` takes over the memory of `old` (same number of bytes, `old` is dead after the step that
  follows
  or before it; a kernel between may read `old` and write `name` in place).
* `View(name, base)`: a tensor object over the memory of `base` with the layout of `name` (offset counted from the
  pointer of `base`): no copy.
* `KernelCall(kernel, args)`: `args` are program buffers for `kernel.arguments` in order; `sizes` are expressions for
  `kernel.sizes` in order.
* `ExternCall(target, args, kwargs, outputs)`: call an ATen OpOverload (or any Python callable, e.g. a prim) with
  arguments
  built from `BufferRef`, Expr (an int), numbers, strings, dtypes, devices, None, lists, tuples. `outputs`: names of
  the buffers its tensor
  results become, None for results nobody needs; a result that is a list of tensors is flattened. The declared layout
  of an output is what the op returns. When `out` is True the (one)
  output already has memory and the op's out-variant writes it. `scalars`: for results that are Python numbers:
  (position, symbol name) pairs that later expressions use.
* `BindSize(symbol, buffer, dim)`: after a data-dependent op: size symbol := buffer.size(dim).
* `Free(name)`: the buffer is dead; also for inputs that the caller handed over ("boxed").

`GraphProgram.sizes` tells how to read size symbols at the start of a call: ``(symbol, input index, "size" | "stride"
| "int", dim)``.

Outputs
=======

`GraphProgram.outputs`: one `Output` per graph output. kind "buffer": the buffer `name`, handed out with `layout` (a
view is made when that differs from the
buffer's own). kind "input": graph input `index` itself, the same tensor object. kind "view": like "buffer" but the
memory belongs to an input or to another output
too, so it must be a view sharing storage. kind "scalar": `value` is an Expr or a Python number. kind "none".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ..codegen.kernel import KernelSpec
from ..index import Expr
from .layout import Layout
from .region import RegionCallee


@dataclass(frozen=True)
class BufferRef:
    """A buffer as an argument of an extern call; with `layout`, a view of it with that layout."""

    name: str
    layout: Layout | None = None


@dataclass
class BufferDecl:
    """One buffer: see the module's docstring. `arena`: byte offset into the arena, or None."""

    name: str
    layout: Layout
    kind: str
    index: int = -1
    arena: int | None = None


@dataclass(frozen=True)
class Alloc:
    """Give `name` memory."""

    name: str


@dataclass(frozen=True)
class Reuse:
    """`name` takes over the memory of `old`."""

    name: str
    old: str


@dataclass(frozen=True)
class View:
    """`name` is a view of `base`."""

    name: str
    base: str


@dataclass(frozen=True)
class Free:
    """`name` is dead."""

    name: str


@dataclass(frozen=True)
class BindSize:
    """Size symbol := size of dimension `dim` of `buffer`."""

    symbol: str
    buffer: str
    dim: int


@dataclass(frozen=True, eq=False)
class KernelCall:
    """Run `kernel` on the program buffers `args`; `sizes` are the values of `kernel.sizes`. `in_place`, (old, new): the
    kernel turns the dead buffer `old`, one of its arguments, into `new`; the step behind it is ``Reuse(new, old)``."""

    kernel: KernelSpec
    args: tuple[str, ...]
    sizes: tuple[Expr, ...] = ()
    in_place: tuple[str, str] | None = None


@dataclass(frozen=True, eq=False)
class ExternCall:
    """Call an op that is not lowered; see the module's docstring. `origin` is the graph node's name,
    `effect` True where the order of calls counts (random numbers, errors), `form` how a product is computed where that
    was measured ("library", "inline")."""

    target: Callable[..., Any]
    args: tuple
    kwargs: dict[str, Any]
    outputs: tuple[str | None, ...]
    out: bool = False
    scalars: tuple[tuple[int, str], ...] = ()
    origin: str = ""
    effect: bool = False
    form: str = ""


Step = Alloc | Reuse | View | Free | BindSize | KernelCall | ExternCall


@dataclass(frozen=True)
class Output:
    """One graph output; see the module's docstring."""

    kind: str
    name: str = ""
    layout: Layout | None = None
    index: int = -1
    value: Any = None


@dataclass
class GraphProgram:
    """The whole program of a graph."""

    name: str
    input_count: int
    buffers: dict[str, BufferDecl]
    steps: list[Step]
    outputs: list[Output]
    sizes: list[tuple[str, int, str, int]] = field(default_factory=list)
    constants: list[torch.Tensor] = field(default_factory=list)
    arena_bytes: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    peak_bytes: int = 0

    @property
    def kernels(self) -> list[KernelSpec]:
        """All kernels in call order; equal kernels of repeated layers each time."""
        found: list[KernelSpec] = []
        for s in self.steps:
            if isinstance(s, KernelCall):
                found.append(s.kernel)
            elif isinstance(s, ExternCall) and isinstance(s.target, RegionCallee):
                found.extend(s.target.program.kernels)
        return found

    @property
    def externs(self) -> list[ExternCall]:
        """All calls of ops in order, those of called regions each time."""
        found: list[ExternCall] = []
        for s in self.steps:
            if isinstance(s, ExternCall) and isinstance(s.target, RegionCallee):
                found.extend(s.target.program.externs)
            elif isinstance(s, ExternCall):
                found.append(s)
        return found

    @property
    def callees(self) -> list[RegionCallee]:
        """The called regions, each once, called ones before their callers."""
        found: dict[RegionCallee, None] = {}
        for s in self.steps:
            if isinstance(s, ExternCall) and isinstance(s.target, RegionCallee):
                found.update(dict.fromkeys((*s.target.program.callees, s.target)))
        return list(found)

    def file_text(self) -> str:
        """The program with its kernels as a Python file that runs on random inputs."""
        from .printing import print_program  # the printer knows this module

        return print_program(self)

    def text(self) -> str:
        """The program as readable Python-like text, kernels left out."""
        lines = [c.program.text() for c in self.callees]
        lines += [f"# program {self.name}: {self.input_count} inputs, arena {self.arena_bytes} bytes"]
        for symbol, index, what, dim in self.sizes:
            lines.append(f"{symbol} = inputs[{index}]" + ("" if what == "int" else f".{what}({dim})"))
        for b in self.buffers.values():
            where = f"{b.kind}[{b.index}]" if b.index >= 0 else b.kind
            place = "" if b.arena is None else f" arena+{b.arena}"
            lines.append(f"# {b.name}: {b.layout} {where}{place}")
        for s in self.steps:
            if isinstance(s, KernelCall):
                args = [*s.args, *map(str, s.sizes)]
                lines.append(f"{s.kernel.name}({', '.join(args)})")
            elif isinstance(s, ExternCall):
                call = [_show(a) for a in s.args] + [f"{k}={_show(v)}" for k, v in s.kwargs.items()]
                lines.append(f"{', '.join(n or '_' for n in s.outputs)} = {s.target}({', '.join(call)})")
            elif isinstance(s, BindSize):
                lines.append(f"{s.symbol} = {s.buffer}.size({s.dim})")
            elif isinstance(s, (Reuse, View)):
                lines.append(f"{s.name} = {type(s).__name__.lower()}({s.old if isinstance(s, Reuse) else s.base})")
            else:
                lines.append(f"{type(s).__name__.lower()}({s.name})")
        outs = [o.name or (f"inputs[{o.index}]" if o.kind == "input" else repr(o.value)) for o in self.outputs]
        lines.append(f"return [{', '.join(outs)}]")
        return "\n".join(lines) + "\n"


def _show(a: Any) -> str:
    if isinstance(a, BufferRef):
        return a.name
    if isinstance(a, (list, tuple)):
        return "[" + ", ".join(map(_show, a)) + "]"
    return repr(a)
