"""The forms of a kernel that `triton_kernel` lists, each written with an `Emitter`."""

from __future__ import annotations

import torch

from ..index import to_expr
from ..ops import Op
from .kernel import KernelSpec, Phase
from .triton_blocks import (
    MULTIPROCESSORS,
    looped_configs,
    next_power,
    persistent_configs,
    pointwise_configs,
    stats_unroll,
    tile_split,
    uses_wide_index,
)
from .triton_emitter import Axis, Emitter, print_index
from .triton_launch import (
    CannotGenerate,
    Launch,
    Parameter,
    TritonKernel,
    Workspace,
    function_text,
    parameters_of,
)
from .triton_ops import POINTER, TL_DTYPE, literal


def write_pointwise(spec: KernelSpec) -> TritonKernel:
    position = tile_split(spec)
    params = parameters_of(spec)
    wide = uses_wide_index(spec)
    if position is None:
        axis = Axis("x", spec.loops)
        e = Emitter(spec, [axis], ["XBLOCK"], wide)
        e.index_lines(axis, "tl.program_id(0)", "XBLOCK", 0)
        n = axis.static
        configs = pointwise_configs(spec, n)
        if n is not None and all(n % c["XBLOCK"] == 0 for c in configs):
            e.unmasked.add("x")
        for p in spec.phases:
            e.enter(None)
            e.body(p, "once")
        launch = Launch(spec.name, params, ["XBLOCK"], [(axis.size, "XBLOCK")], e.checks)
        return TritonKernel(spec, "pointwise", function_text(spec.name, params, ["XBLOCK"], e.lines), [launch], configs)
    y, x = Axis("y", spec.loops[:position]), Axis("x", spec.loops[position:])
    e = Emitter(spec, [y, x], ["YBLOCK", "XBLOCK"], wide)
    e.index_lines(x, "tl.program_id(0)", "XBLOCK", 1)
    e.index_lines(y, "(tl.program_id(1) + tl.program_id(2) * tl.num_programs(1))", "YBLOCK", 0)
    configs = [
        {"XBLOCK": 64, "YBLOCK": 64, "num_warps": 8},
        {"XBLOCK": 32, "YBLOCK": 32, "num_warps": 4},
        {"XBLOCK": 128, "YBLOCK": 32, "num_warps": 4},
        {"XBLOCK": 32, "YBLOCK": 128, "num_warps": 4},
    ]
    for p in spec.phases:
        e.enter(None)
        e.body(p, "once")
    names = ["XBLOCK", "YBLOCK"]
    launch = Launch(spec.name, params, names, [(x.size, "XBLOCK"), (y.size, "YBLOCK")], e.checks)
    return TritonKernel(spec, "tiled", function_text(spec.name, params, names, e.lines), [launch], configs)


def write_serial(spec: KernelSpec) -> TritonKernel:
    axis = Axis("x", spec.loops)
    params = parameters_of(spec)
    e = Emitter(spec, [axis], ["XBLOCK"], uses_wide_index(spec))
    size = print_index(axis.size, {})
    e.write(f"for position in range({size}):")
    e.depth += 1
    e.write("xindex = position + tl.zeros([XBLOCK], tl.int64)")
    e.unmasked.add("x")
    for p in spec.phases:
        e.enter(None)
        for op in p.ops:
            if op.name == "store" and op.args[3] == "mul":
                raise CannotGenerate("ordered products in place")
        e.body(p, "once")
    e.write("tl.debug_barrier()")
    launch = Launch(spec.name, params, ["XBLOCK"], [], e.checks)
    return TritonKernel(
        spec, "serial", function_text(spec.name, params, ["XBLOCK"], e.lines), [launch], [{"XBLOCK": 1, "num_warps": 1}]
    )


def write_rows(spec: KernelSpec, axis: Axis, form: str) -> TritonKernel:
    params = parameters_of(spec)
    e = Emitter(spec, [axis], ["XBLOCK", "RBLOCK"], uses_wide_index(spec))
    inner_axes = {id(p): Axis("r", p.loops) for p in spec.phases if p.loops}
    first = next(iter(inner_axes.values()))
    configs = persistent_configs(spec, axis, first) if form == "persistent" else looped_configs(spec, axis, first)
    if axis.static is not None and all(axis.static % c["XBLOCK"] == 0 for c in configs):
        e.unmasked.add("x")
    e.index_lines(axis, "tl.program_id(0)", "XBLOCK", 0)
    rsize = print_index(first.size, {})
    if form == "persistent":
        if first.static is not None and first.static == configs[0]["RBLOCK"]:
            e.unmasked.add("r")
        e.write("rlocal = tl.arange(0, RBLOCK)[None, :]")
        e.write("rindex = rlocal" + (".to(tl.int64)" if e.wide else ""))
        e.write(f"rmask = rindex < {rsize}")
        for p in spec.phases:  # all reading first: memory is busy while the first reductions wait for each other
            e.enter(inner_axes.get(id(p)), keep=True)
            e.prefetch(p)
        for p in spec.phases:
            e.enter(inner_axes.get(id(p)), keep=True)
            e.body(p, "block" if p.loops else "once")
    else:
        e.write("rlocal = tl.arange(0, RBLOCK)[None, :]")
        for p in spec.phases:
            a = inner_axes.get(id(p))
            e.enter(a)
            if a is None:
                e.body(p, "once")
            elif _only_fills_scratch(spec, p):
                for op in p.ops:
                    if op.name == "store":
                        e.scratch[op.args[0]] = op
            else:
                _loop(
                    e,
                    p,
                    a,
                    "0",
                    print_index(a.size, {}),
                    all(a.static is not None and a.static % c["RBLOCK"] == 0 for c in configs),
                )
    names = ["XBLOCK", "RBLOCK"]
    launch = Launch(spec.name, params, names, [(axis.size, "XBLOCK")], e.checks)
    return TritonKernel(spec, form, function_text(spec.name, params, names, e.lines), [launch], configs)


def _only_fills_scratch(spec: KernelSpec, phase: Phase) -> bool:
    """True if nothing of a phase lasts but scratch values, which are computed again where they are read."""
    lasting = [op for op in phase.ops if op.name in ("store", "reduction", "scan", "check")]
    return bool(lasting) and all(op.name == "store" and spec.buffer(op.args[0]).role == "scratch" for op in lasting)


def _loop(e: Emitter, phase: Phase, axis: Axis, start: str, end: str, divides: bool) -> None:
    """One phase walked in blocks from `start` to `end`."""
    for op in phase.ops:
        if op.name == "reduction":
            e.start(op)
        elif op.name == "scan":
            e.start_scan(op)
    e.unmasked.discard("r")
    if divides:
        e.unmasked.add("r")
    unroll = stats_unroll(phase, axis)
    counted = [op for op in phase.ops if op.name == "reduction" and op.args[1] == "welford"]
    if unroll > 1 or counted:  # whole steps without masks first
        length = end if start == "0" else f"tl.maximum({end} - {start}, 0)"  # a part may lie behind the end
        e.write(f"rfull = {start} + {length} // ({unroll} * RBLOCK) * ({unroll} * RBLOCK)")
        e.unmasked.add("r")
        _steps(e, phase, start, "rfull", unroll, counted=counted)
        if divides and unroll == 1:
            return _close(e, phase)
        if not divides:
            e.unmasked.discard("r")
        start = "rfull"
    _steps(e, phase, start, end, 1, None if divides else end)
    _close(e, phase)


def _close(e: Emitter, phase: Phase) -> None:
    """What follows a loop: accumulators become values."""
    kept_items = [op for op in phase.ops if op.name == "item"]
    for op in phase.ops:
        if op.name == "reduction":
            e.finish(op)
    for op in kept_items:
        if op.args[0].name == "reduction":
            e.kept[op] = f"{e.kept[op.args[0]]}_{op.args[1]}"
    e.local = {}
    e.loaded = {}


def _steps(
    e: Emitter,
    phase: Phase,
    start: str,
    end: str,
    unroll: int,
    limit: str | None = None,
    counted: list[Op] | None = None,
) -> None:
    """The loop itself: `unroll` blocks a step, with a mask where a block may pass `limit`. `counted`: running means
    whose number of terms is that of the steps."""
    e.write(f"for roffset in range({start}, {end}, " + ("RBLOCK):" if unroll == 1 else f"{unroll} * RBLOCK):"))
    e.depth += 1
    if counted:
        e.step = e.fresh(f"1.0 / ((roffset - {start}) // RBLOCK + 1)")
    for k in range(unroll):
        e.local, e.loaded = {}, {}
        ahead = f" + {k} * RBLOCK" if k else ""
        e.write(f"rindex = roffset{ahead} + rlocal" + (".to(tl.int64)" if e.wide else ""))
        if limit is not None:
            e.write(f"rmask = rindex < {limit}")
        e.body(phase, "loop")
    e.merge_stats()
    if not phase.ops:
        e.write("pass")
    e.depth -= 1
    e.step = None
    for op in counted or ():
        shape = ", ".join(e.shape)
        count = f"tl.full([{shape}], (({end} - {start}) // RBLOCK), tl.int32)"
        e.write(f"{e.kept[op]}_2 = {count}.to({TL_DTYPE[op.dtype]})")


def write_split(spec: KernelSpec, axis: Axis) -> TritonKernel:
    position = next(k for k, p in enumerate(spec.phases) if p.loops)
    phase = spec.phases[position]
    inner = Axis("r", phase.loops)
    configs = looped_configs(spec, axis, inner)[:1]
    block = configs[0]
    rows = -(-int(axis.size) // block["XBLOCK"])
    steps = -(-int(inner.size) // block["RBLOCK"])
    parts = min(next_power(-(-4 * MULTIPROCESSORS // rows)), next_power(steps), 1024)
    parts = max(parts, 2)
    chunk = -(-steps // parts) * block["RBLOCK"]
    parts = next_power(-(-int(inner.size) // chunk))
    reductions = [op for op in phase.ops if op.name == "reduction"]
    e = Emitter(spec, [axis], ["XBLOCK", "RBLOCK"], uses_wide_index(spec))
    workspaces: list[Workspace] = []
    params = parameters_of(spec)
    spaces: list[Parameter] = []
    for k, op in enumerate(reductions):
        for suffix, _, dtype in e.accumulators(op):
            stored = torch.int8 if dtype == torch.bool else dtype
            workspaces.append(Workspace(f"ws{k}{suffix}", stored, axis.size * parts))
            spaces.append(Parameter(f"ws{k}{suffix}", POINTER[stored], "workspace"))
    if axis.static is not None and axis.static % block["XBLOCK"] == 0:
        e.unmasked.add("x")
    e.index_lines(axis, "tl.program_id(0)", "XBLOCK", 0)
    e.write("rlocal = tl.arange(0, RBLOCK)[None, :]")
    e.write("part = tl.program_id(1)")
    for p in spec.phases[:position]:
        e.enter(None)
        e.body(p, "once")
    e.enter(inner)
    e.write(f"first = part * {chunk}")
    e.write(f"last = tl.minimum(first + {chunk}, {int(inner.size)})")
    _loop(e, phase, inner, "first", "last", int(inner.size) % chunk == 0 and chunk % block["RBLOCK"] == 0)
    cond = e.mask(frozenset({"x"}))
    tail = f", {cond})" if cond else ")"
    for k, op in enumerate(reductions):
        accs = e.accumulators(op)
        base = e.kept[op] if op.args[1] not in ("argmax", "argmin") else e.kept[op].removesuffix("_1")
        for suffix, _, dtype in accs:
            text = f"{base}{suffix}" + (".to(tl.int8)" if dtype == torch.bool else "")
            e.write(f"tl.store(ws{k}{suffix} + xindex * {parts} + part, {text}{tail}")
    first_name, second_name = f"{spec.name}_parts", f"{spec.name}_whole"
    first = function_text(first_name, [*params, *spaces], ["XBLOCK", "RBLOCK"], e.lines)
    launches = [
        Launch(
            first_name,
            [*params, *spaces],
            ["XBLOCK", "RBLOCK"],
            [(axis.size, "XBLOCK"), (to_expr(parts), "")],
            e.checks,
        )
    ]
    f = Emitter(spec, [axis], ["XBLOCK", "RBLOCK"], uses_wide_index(spec))
    f.index_lines(axis, "tl.program_id(0)", "XBLOCK", 0)
    f.write("rlocal = tl.arange(0, RBLOCK)[None, :]")
    f.unmasked.add("r")
    f.mapping.update(inner.mapping)
    for k, op in enumerate(reductions):
        name = f"a{f.counter}"
        f.counter += 1
        f.kept[op] = name
        for suffix, init, dtype in f.accumulators(op):
            other = literal(int(init) if dtype == torch.bool else init)
            text = f"tl.load(ws{k}{suffix} + xindex * {parts} + rlocal, xmask & (rlocal < {parts}), other={other})"
            f.write(f"{name}{suffix} = {text}" + (" != 0" if dtype == torch.bool else ""))
        f.finish(op)
    for op in phase.ops:
        if op.name == "item":
            f.kept[op] = f"{f.kept[op.args[0]]}_{op.args[1]}"
    for p in spec.phases[position + 1 :]:
        f.enter(None)
        f.body(p, "once")
    second = function_text(second_name, [*params, *spaces], ["XBLOCK", "RBLOCK"], f.lines)
    launches.append(Launch(second_name, [*params, *spaces], ["XBLOCK", "RBLOCK"], [(axis.size, "XBLOCK")], f.checks))
    second_rows = 1 if parts >= 512 else max(1, min(64, 2048 // parts))
    config = {**block, "second": {"XBLOCK": second_rows, "RBLOCK": max(parts, 2), "num_warps": 4}}
    return TritonKernel(spec, "split", first + "\n\n" + second, launches, [config], workspaces)
