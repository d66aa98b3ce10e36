"""Programs and kernels as Python files that run: ``python 011_ir.py`` computes the graph on random inputs, scalar by
scalar (`lamina_inductor.ir.scalar_ops`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..codegen.kernel import KernelSpec, short_dtype
from ..codegen.native_kernel import NativeKernel
from ..index import Expr
from .layout import Layout
from .program import Alloc, BindSize, BufferRef, ExternCall, Free, GraphProgram, KernelCall, Output, Reuse, View
from .region import RegionCallee
from .scalar_ops import EXAMPLE_SIZE

IMPORTS = "import torch\n\nfrom lamina_inductor.ir.scalar_ops import Ops, example, main\n\n\n"


def print_program(program: GraphProgram) -> str:
    """The program, its kernels and the regions it calls as one file."""
    kernels = list({k.name: k for k in program.kernels}.values())
    parts = [_kernel(k) for k in kernels]
    parts += [_function(f"region_{c.name}", c.program) for c in program.callees]
    parts.append(_function("call", program))
    return IMPORTS + "\n\n".join(parts) + "\n\n" + _run(program)


def print_kernel_file(kernel: KernelSpec) -> str:
    """One kernel as a file that runs it on random buffers."""
    sizes = dict.fromkeys(kernel.sizes, EXAMPLE_SIZE)
    lines = [IMPORTS + _kernel(kernel), "", 'if __name__ == "__main__":', *(f"    {s} = {n}" for s, n in sizes.items())]
    for b in kernel.arguments:
        lines.append(f"    {b.name} = example(({b.numel},), (1,), {short_dtype(b.dtype)!r}, 'cpu')")
    names = [*(b.name for b in kernel.arguments), *kernel.sizes]
    lines.append(f"    {kernel.name}(Ops(), {', '.join(names)})")
    lines += [f"    print({b.name!r}, {b.name})" for b in kernel.arguments if b.role != "in"]
    return "\n".join(lines) + "\n"


def _kernel(kernel: KernelSpec) -> str:
    if isinstance(kernel, NativeKernel):
        return kernel.text() + f"def {kernel.name}(ops, *buffers):\n    ops.not_printed({kernel.name!r})()\n"
    return kernel.text()


def _sizes(values: Sequence[Any]) -> str:
    return "(" + "".join(f"{v}, " for v in values).rstrip() + ")"


def _layout(layout: Layout, offset: Any) -> str:
    return f"{_sizes(layout.shape)}, {_sizes(layout.stride)}, {offset}, {short_dtype(layout.dtype)!r}"


def _function(title: str, program: GraphProgram) -> str:
    lines = [f"def {title}(ops, inputs, constants):"]
    for symbol, index, what, dim in program.sizes:
        lines.append(f"{symbol} = inputs[{index}]" + ("" if what == "int" else f".{what}({dim})"))
    if program.arena_bytes:
        device = str(program.device)
        lines.append(f"arena = torch.empty({program.arena_bytes}, dtype=torch.uint8, device={device!r})")
    for b in program.buffers.values():
        if b.kind == "input":
            lines.append(f"{b.name} = inputs[{b.index}]  # {b.layout}")
        elif b.kind == "constant":
            lines.append(f"{b.name} = constants[{b.index}]  # {b.layout}")
        elif b.arena is not None:
            offset = b.layout.offset + b.arena // b.layout.itemsize
            lines.append(f"{b.name} = ops.at(arena, {_layout(b.layout, offset)})")
    for step in program.steps:
        lines.append(PRINTERS[type(step)](program, step))
    lines.append(f"return [{', '.join(_output(program, o) for o in program.outputs)}]")
    return "\n    ".join(line.replace("\n", "\n    ") for line in lines) + "\n"


def _alloc(program: GraphProgram, step: Alloc) -> str:
    layout = program.buffers[step.name].layout
    return f"{step.name} = ops.empty({_layout(layout, layout.offset)}, {str(layout.device)!r})"


def _over(program: GraphProgram, name: str, base: str, how: str) -> str:
    layout = program.buffers[name].layout
    return f"{name} = ops.{how}({base}, {_layout(layout, layout.offset)})"


def _kernel_call(program: GraphProgram, step: KernelCall) -> str:
    args = [f"ops.flat({a}, {program.buffers[a].layout.span})" for a in step.args] + [str(s) for s in step.sizes]
    return f"{step.kernel.name}(ops, {', '.join(args)})"


def _extern_call(program: GraphProgram, step: ExternCall) -> str:
    show = lambda a: _show(program, a)  # noqa: E731
    if isinstance(step.target, RegionCallee):
        call = f"region_{step.target.name}(ops, [{', '.join(map(show, step.args))}], [])"
    else:
        args = [show(a) for a in step.args] + [f"{k}={show(v)}" for k, v in step.kwargs.items()]
        call = f"{_target(step.target)}({', '.join(args)})"
    lines = [f"results = ops.results({call})"]
    for k, name in enumerate(step.outputs):
        if name is not None:
            layout = program.buffers[name].layout
            unknown = any(e.op == "sym" for e in layout.shape)
            shape, stride = _sizes(layout.shape), _sizes(layout.stride)
            whole = f"ops.laid_out(results[{k}], {shape}, {stride}, {short_dtype(layout.dtype)!r})"
            lines.append(f"{name} = results[{k}]" if unknown else f"{name} = {whole}")
    lines += [f"{symbol} = int(results[{k}])" for k, symbol in step.scalars]
    return "\n".join(lines)


PRINTERS: dict[type, Callable[[GraphProgram, Any], str]] = {
    Alloc: _alloc,
    Reuse: lambda p, s: _over(p, s.name, s.old, "take_over"),
    View: lambda p, s: _over(p, s.name, s.base, "at"),
    Free: lambda p, s: f"del {s.name}",
    BindSize: lambda p, s: f"{s.symbol} = {s.buffer}.size({s.dim})",
    KernelCall: _kernel_call,
    ExternCall: _extern_call,
}
"""Kind of step -> its line."""


def _target(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target}"
    return f"ops.not_printed({getattr(target, '__name__', None) or repr(target)!r})"


def _show(program: GraphProgram, a: Any) -> str:
    if isinstance(a, BufferRef):
        if a.layout is None:
            return a.name
        return f"ops.at({a.name}, {_layout(a.layout, a.layout.offset - program.buffers[a.name].layout.offset)})"
    if isinstance(a, (list, tuple)):
        return "[" + ", ".join(_show(program, x) for x in a) + "]"
    if isinstance(a, dict):
        return "{" + ", ".join(f"{k!r}: {_show(program, v)}" for k, v in a.items()) + "}"
    if isinstance(a, torch.device):
        return f"torch.{a!r}"
    if isinstance(a, float) and not math.isfinite(a):
        return f"float({str(a)!r})"
    return str(a) if isinstance(a, Expr) else repr(a)


def _output(program: GraphProgram, out: Output) -> str:
    if out.kind == "input":
        return f"inputs[{out.index}]"
    if out.kind == "scalar":
        return _show(program, out.value)
    if out.kind == "none" or out.layout is None:
        return "None"
    return f"ops.at({out.name}, {_layout(out.layout, out.layout.offset)})"


def _run(program: GraphProgram) -> str:
    symbols = {s for s, _, _, _ in program.sizes}
    entries: dict[str, dict[int, str]] = {"input": {}, "constant": {}}
    for b in program.buffers.values():
        if b.kind in entries:
            what = f"({_sizes(b.layout.shape)}, {_sizes(b.layout.stride)}, {short_dtype(b.layout.dtype)!r}, "
            entries[b.kind][b.index] = what + f"{str(b.layout.device)!r})"
            symbols |= {s for e in (*b.layout.shape, *b.layout.stride) for s in e.syms}
    for _, index, what, _ in program.sizes:
        if what == "int":
            entries["input"][index] = str(EXAMPLE_SIZE)
    lines = ['if __name__ == "__main__":', *(f"    {s} = {EXAMPLE_SIZE}" for s in sorted(symbols))]
    inputs = [entries["input"].get(k, "None") for k in range(program.input_count)]
    constants = [entries["constant"].get(k, "None") for k in range(len(program.constants))]
    lines.append(f"    main(call, [{', '.join(inputs)}], [{', '.join(constants)}])")
    return "\n".join(lines) + "\n"


__all__ = ["print_kernel_file", "print_program"]
