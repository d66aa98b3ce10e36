"""All scheduling in order: fuse, order, make kernels, place in memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from time import perf_counter

from ..codegen.kernel import KernelSpec
from ..codegen.native_kernel import NativeOp
from ..config import Config
from ..graph import GraphLowering
from ..index import symbol
from ..ir.program import BindSize, BufferDecl, ExternCall, GraphProgram, KernelCall, Step
from ..passes import is_on
from .fusion import Fused, Fusion, Refusal
from .in_place import last_uses
from .kernels import KernelMaker
from .memory import bytes_of, plan_memory
from .order import order_groups


@dataclass
class Schedule:
    """The program, what was not fused and why, seconds per step, and the kernels of several nodes."""

    program: GraphProgram
    log: list[Refusal]
    seconds: dict[str, float]
    fused: list[Fused] = field(default_factory=list)


def schedule(lowered: GraphLowering, name: str) -> Schedule:
    """Turns a lowered graph into a program."""
    config: Config = lowered.config
    times = {}
    start = perf_counter()
    buffers = lowered.buffers
    keep = {o.name for o in lowered.outputs if o.name}
    nodes = drop_dead_nodes(lowered.nodes, keep)
    fusion = Fusion(nodes, config, lowered.device.type)
    fusion.run()
    times["fuse"] = perf_counter() - start
    start = perf_counter()
    sizes = {x: bytes_of(d) or 0 for x, d in buffers.items() if d.kind == "temp"}
    groups = order_groups(fusion, sizes, keep)
    times["order"] = perf_counter() - start
    start = perf_counter()
    readers: dict[str, int] = {}
    for g in groups:
        for x in g.reads:
            readers[x] = readers.get(x, 0) + 1
    kernels: dict[str, KernelSpec] = {}
    names: dict[str, int] = {}
    fused: list[Fused] = []
    calls: list[tuple[Step, list[str], list[str]]] = []
    used: set[str] = set()
    last, written = last_uses(groups)
    pinned = lowered.pinned | keep
    for place, g in enumerate(groups):
        if g.extern is not None:
            e = g.extern
            if isinstance(e.target, NativeOp):
                own = kernels.setdefault(e.target.kernel.key(), e.target.kernel)
                names_of = (*(a.name for a in e.args), *(o for o in e.outputs if o is not None))
                calls.append((KernelCall(own, names_of), list(e.reads), list(e.writes)))
                used.update(names_of)
                continue
            call = ExternCall(
                e.target, e.args, e.kwargs, e.outputs, e.out, e.scalars, e.origins[0] if e.origins else "",
                e.effect, e.form,
            )
            calls.append((call, list(e.reads), list(e.writes)))
            for s, x, d in e.binds:
                calls.append((BindSize(s, x, d), [x], []))
            used.update(e.reads, e.writes)
            continue

        def internal(x: str, g=g) -> bool:  # type: ignore[no-untyped-def]
            outside = readers.get(x, 0) - (1 if x in g.reads else 0)
            return buffers[x].kind == "temp" and x not in keep and outside == 0

        dying = {}
        if lowered.device.type == "cpu" and is_on("in_place"):  # a device's allocator hands memory out again by itself
            ours = [x for x in g.reads if x in written and last[x] == place and x not in pinned]
            dying = {x: written[x] for x in ours if buffers[x].kind == "temp" and _is_large(buffers[x], config)}
        maker = KernelMaker(g, buffers, internal, config, dying)
        kernel = maker.make(_kernel_name(g.origins, names))
        shared = kernels.setdefault(kernel.key(), kernel)
        if len(g.origins) > 1:
            fused.append(Fused(shared.name, g.origins))
        reads = [x for x, b in zip(maker.arguments, kernel.arguments, strict=True) if b.role in ("in", "inout")]
        writes = [x for x, b in zip(maker.arguments, kernel.arguments, strict=True) if b.role in ("out", "inout")]
        values = tuple(lowered.sizes.symbols.get(s) or symbol(s) for s in kernel.sizes)
        if maker.in_place is not None:
            writes = [maker.in_place[1] if x == maker.in_place[0] else x for x in writes]
        calls.append((KernelCall(shared, tuple(maker.arguments), values, maker.in_place), reads, writes))
        used.update(writes)
        used.update(maker.arguments)
    times["kernels"] = perf_counter() - start
    start = perf_counter()
    steps, arena, peak = plan_memory(calls, buffers, pinned, config.arena_bytes if is_on("memory") else 0)
    times["memory"] = perf_counter() - start
    alive = {x: d for x, d in buffers.items() if x in used or x in keep or d.kind in ("input", "constant")}
    program = GraphProgram(
        name,
        lowered.input_count,
        alive,
        steps,
        lowered.outputs,
        [(s, k, what, d) for s, (k, what, d) in lowered.bindings.items()],
        lowered.constants,
        arena,
        lowered.device,
        peak,
    )
    return Schedule(program, [*lowered.region_log, *fusion.log], times, fused)


def _is_large(decl: BufferDecl, config: Config) -> bool:
    """True for what has memory of its own; smaller buffers lie side by side in the arena."""
    size = bytes_of(decl)
    return size is not None and size > config.arena_bytes


def drop_dead_nodes(nodes: list, keep: set[str]) -> list:
    """Removes nodes whose results nobody reads (effects stay)."""
    live = set(keep)
    out = []
    for node in reversed(nodes):
        effect = getattr(node, "effect", False) or any(op.name == "check" for op in getattr(node, "body", ()))
        if effect or any(x in live for x in node.writes) or getattr(node, "scalars", ()):
            live.update(node.reads)
            out.append(node)
    out.reverse()
    return out


def _kernel_name(origins: tuple[str, ...], names: dict[str, int]) -> str:
    words = [re.sub(r"_\d+$", "", o) for o in origins]
    words = [
        w for w in dict.fromkeys(words) if w not in ("broadcast_in_dim", "convert_element_type", "reshape", "permute")
    ]
    base = "k_" + "_".join(words[-4:] or ["copy"])
    base = re.sub(r"\W", "_", base)[:60]
    k = names[base] = names.get(base, 0) + 1
    return base if k == 1 else f"{base}_{k}"
