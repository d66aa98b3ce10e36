"""Which form a kernel gets and which block sizes are tried for it, the default first."""

from __future__ import annotations

from ..index import INF, ONE, coefficient, product, to_expr
from ..ops import Op
from .kernel import KernelSpec, LoopVar, Phase, elements_touched
from .triton_emitter import Axis

PERSISTENT_LIMIT = 8192  # elements of the inner range that are still kept in registers
MULTIPROCESSORS = 132  # assumed when choosing how finely to split; only speed depends on it
HEAVY = 100  # ops of a body
STATS_UNROLL = 4  # blocks of a running softmax that share one rescaling of the sum


def next_power(n: int) -> int:
    """The smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()


def uses_wide_index(spec: KernelSpec) -> bool:
    """True if some offset may not fit 32 bits."""
    limit = (1 << 31) - 1
    sizes = [b.numel for b in spec.arguments]
    sizes += [product(v.size for v in spec.loops), *(product(v.size for v in p.loops) for p in spec.phases)]
    return any(s.hi >= limit for s in sizes if s.hi < INF) or any(s.hi >= INF for s in sizes)


def _contiguous_loop(spec: KernelSpec, op: Op, loops: tuple[LoopVar, ...]) -> str | None:
    """The loop along which an access moves by one element."""
    for v in reversed(loops):
        if v.size.is_const and int(v.size) == 1:
            continue
        if coefficient(op.args[1], v.name) == ONE:
            return v.name
    return None


def tile_split(spec: KernelSpec) -> int | None:
    """For a pointwise kernel: how many leading loops form the axis ``y``, if reads and writes run along different
    loops.
    """
    if len(spec.loops) < 2 or any(v.kind == "serial" for v in spec.loops):
        return None
    last = next((v.name for v in reversed(spec.loops) if not (v.size.is_const and int(v.size) == 1)), None)
    other: dict[str, int] = {}
    for op in spec.ops():
        if op.name in ("load", "store"):
            found = _contiguous_loop(spec, op, spec.loops)
            if found is not None and found != last and coefficient(op.args[1], last) != 0:
                other[found] = other.get(found, 0) + 1
    if not other:
        return None
    name = max(other, key=lambda n: other[n])
    position = next(k for k, v in enumerate(spec.loops) if v.name == name)
    size = spec.loops[position].size
    rest = product(v.size for v in spec.loops[position + 1 :])
    if (size.is_const and int(size) < 8) or (rest.is_const and int(rest) < 8):
        return None
    return position + 1


def inner_contiguous(spec: KernelSpec) -> bool:
    """True unless most elements that the inner loops visit lie next to each other along an outer loop."""
    inner = outer = 0
    outer_names = {v.name for v in spec.loops}
    for p in spec.phases:
        if not p.loops:
            continue
        for op in p.ops:
            if op.name in ("load", "store") and spec.buffer(op.args[0]).role != "scratch":
                touched, contiguous = elements_touched(to_expr(op.args[1]), (*spec.loops, *p.loops))
                if contiguous is not None:
                    if contiguous in outer_names:
                        outer += touched
                    else:
                        inner += touched
    return inner >= outer


def can_split(spec: KernelSpec, axis: Axis) -> bool:
    """True if there are too few rows to fill a device and only one reduced phase, with nothing but single values
    after it.
    """
    inner = [p for p in spec.phases if p.loops]
    if len(inner) != 1 or any(o.name == "scan" for o in spec.ops()):
        return False
    if not any(o.name == "reduction" for o in inner[0].ops):
        return False
    length = product(v.size for v in inner[0].loops)
    if not (length.is_const and axis.size.is_const):
        return False
    along = inner_contiguous(spec)
    rows = int(axis.size) if along else -(-int(axis.size) // 64)
    long = int(length) >= (2048 if along else 256)
    return rows < 2 * MULTIPROCESSORS and long and int(length) * max(int(axis.size), 1) >= 1 << 16


def pointwise_configs(spec: KernelSpec, n: int | None) -> list[dict[str, int]]:
    """Candidate block sizes: about 16 bytes a thread and access, several accesses a thread for large sizes."""
    widest = max((b.dtype.itemsize for b in spec.arguments), default=4)
    if n is not None and n < 1 << 18:
        small = max(32, min(256, next_power(n)))
        return [{"XBLOCK": small, "num_warps": max(1, min(4, small // 64))}, {"XBLOCK": 512, "num_warps": 4}]
    first = 1024 if widest >= 4 else 2048
    if sum(1 for _ in spec.ops()) > HEAVY:  # many live values: small programs fill the device better
        return [{"XBLOCK": first // 4, "num_warps": 2}, {"XBLOCK": first // 2, "num_warps": 4}]
    return [
        {"XBLOCK": first, "num_warps": 8},
        {"XBLOCK": first, "num_warps": 4},
        {"XBLOCK": 512, "num_warps": 4},
        {"XBLOCK": 2 * first, "num_warps": 8},
    ]


def persistent_configs(spec: KernelSpec, axis: Axis, inner: Axis) -> list[dict[str, int]]:
    """The inner range in one block; rows a program so that a program has some thousand elements and the device stays
    full.
    """
    length = next_power(int(inner.size.hi if inner.size.hi < INF else PERSISTENT_LIMIT))
    length = max(length, 2)
    rows = axis.static if axis.static is not None else 1 << 20
    out = []
    for target in (2048, 1024, 4096):
        x = max(1, target // length)
        while x > 1 and rows // x < 2 * MULTIPROCESSORS:
            x //= 2
        warps = max(1, min(16, next_power(x * length // 512 or 1)))
        c = {"XBLOCK": x, "RBLOCK": length, "num_warps": warps}
        if c not in out:
            out.append(c)
        more = {**c, "num_warps": max(1, min(16, warps * 2))}
        if more not in out:
            out.append(more)
    return out


def largest_body(spec: KernelSpec) -> int:
    """Arithmetic ops of the longest inner phase."""
    quiet = ("load", "store", "constant", "item", "index_expr")
    return max(sum(op.name not in quiet for op in p.ops) for p in spec.phases if p.loops)


def looped_configs(spec: KernelSpec, axis: Axis, inner: Axis) -> list[dict[str, int]]:
    """Blocks of a looped reduction: long rows when the inner range is contiguous, tiles when the rows are.

    Every op is unrolled over a thread's elements, in each phase: long bodies take smaller blocks, or their compile time
    grows with no gain in speed.
    """
    length = next_power(int(inner.size)) if inner.size.is_const else 1 << 20
    if inner_contiguous(spec):
        first = 1024 if sum(1 for _ in spec.ops()) > 24 else 4096 if largest_body(spec) <= 4 else 2048
        if all(stats_unroll(p, inner) > 1 for p in spec.phases if p.loops):
            # four blocks a step are in flight: half as long ones, with more threads, keep more reads going
            return [
                {"XBLOCK": 1, "RBLOCK": 2048, "num_warps": 16},
                {"XBLOCK": 1, "RBLOCK": min(length, first), "num_warps": 8},
                {"XBLOCK": 1, "RBLOCK": 4096, "num_warps": 8},
            ]
        return [
            {"XBLOCK": 1, "RBLOCK": min(length, first), "num_warps": 8},
            {"XBLOCK": 1, "RBLOCK": min(length, 4096), "num_warps": 8},
            {"XBLOCK": 1, "RBLOCK": min(length, 8192), "num_warps": 16},
        ]
    if max(sum(op.name == "reduction" for op in p.ops) for p in spec.phases if p.loops) >= 3:
        return [
            {"XBLOCK": 64, "RBLOCK": min(length, 16), "num_warps": 4},
            {"XBLOCK": 32, "RBLOCK": min(length, 32), "num_warps": 4},
        ]
    if largest_body(spec) > HEAVY:  # a depthwise window: half the elements a thread are as fast, and compiled sooner
        return [
            {"XBLOCK": 64, "RBLOCK": min(length, 16), "num_warps": 8},
            {"XBLOCK": 32, "RBLOCK": min(length, 32), "num_warps": 4},
            {"XBLOCK": 64, "RBLOCK": min(length, 16), "num_warps": 4},
        ]
    return [
        {"XBLOCK": 64, "RBLOCK": min(length, 32), "num_warps": 8},
        {"XBLOCK": 32, "RBLOCK": min(length, 64), "num_warps": 8},
        {"XBLOCK": 128, "RBLOCK": min(length, 16), "num_warps": 8},
    ]


def stats_unroll(phase: Phase, axis: Axis) -> int:
    """How many blocks a step of this loop takes: several where a running softmax is all that lasts of it."""
    lasting = [op for op in phase.ops if op.name in ("store", "scan", "check", "reduction", "indirect")]
    if not lasting or not all(op.name == "reduction" and op.args[1] == "softmax_stats" for op in lasting):
        return 1
    return STATS_UNROLL if axis.static is not None and axis.static >= 1 << 14 else 1
