"""When buffers live and where: frees, reuse of dead memory, arena offsets, peak."""

from __future__ import annotations

from ..index import Expr
from ..ir.program import Alloc, BufferDecl, ExternCall, Free, KernelCall, Reuse, Step
from ..passes import is_on

ALIGN = 64
KEEP_STEPS = 2  # how long dead memory waits for a kernel that can take it over

# bytes and device -> dead buffers (name, last step they wait for)
Pool = dict[tuple[int | Expr, str], list[tuple[str, int]]]


def bytes_of(decl: BufferDecl) -> int | None:
    """Bytes of a buffer, None when its size is symbolic."""
    span = decl.layout.span
    return int(span) * decl.layout.itemsize if span.is_const else None


def plan_memory(
    calls: list[tuple[Step, list[str], list[str]]],
    buffers: dict[str, BufferDecl],
    pinned: set[str],
    arena_limit: int,
) -> tuple[list[Step], int, int]:
    """Adds Alloc, Reuse and Free steps to `calls`, a list of (step, buffers read, buffers written); returns (steps,
    arena bytes, peak bytes).

    Small temporaries get offsets in one arena, larger ones memory of their own, taken over from a dead buffer of
    equal size where there is one. Inputs are
    freed after their last use."""
    last: dict[str, int] = {}
    first: dict[str, int] = {}
    for k, (_, reads, writes) in enumerate(calls):
        for x in (*reads, *writes):
            last[x] = k
        for x in writes:
            first.setdefault(x, k)
    arena = _place_in_arena(first, last, buffers, pinned, calls, arena_limit)
    dying: dict[int, list[str]] = {}
    for x, k in last.items():
        if (buffers[x].kind == "temp" or (buffers[x].kind == "input" and x not in pinned)) and x not in arena:
            dying.setdefault(k, []).append(x)
    steps: list[Step] = []
    pool: Pool = {}
    alive = peak = 0
    made: set[str] = set()
    size_of = {x: bytes_of(d) or 0 for x, d in buffers.items()}
    for k, (step, _, writes) in enumerate(calls):
        own = not isinstance(step, ExternCall) or step.out
        alive -= sum(size_of[x] for x in _free_expired(steps, pool, k))
        old, new = (step.in_place or (None, None)) if isinstance(step, KernelCall) else (None, None)
        for x in writes:
            if x in made or x in arena:
                continue
            made.add(x)
            if x == new:
                continue
            alive += size_of[x]
            if own:
                key = _pool_key(buffers[x])
                dead = pool.get(key)
                if dead:
                    steps.append(Reuse(x, dead.pop()[0]))
                    alive -= size_of[x]
                else:
                    steps.append(Alloc(x))
        peak = max(peak, alive)
        steps.append(step)
        if old is not None and new is not None:
            steps.append(Reuse(new, old))
        for x in dying.get(k, ()):
            if x == old:
                continue
            decl = buffers[x]
            # torch's allocator for devices hands freed blocks out again by itself
            on_cpu = decl.layout.device.type == "cpu"
            wanted = (
                on_cpu and decl.kind == "temp" and x not in pinned and is_on("memory")
                and _is_wanted(x, k, calls, buffers, made, arena)
            )
            if wanted:
                pool.setdefault(_pool_key(decl), []).append((x, k + KEEP_STEPS))
            else:
                steps.append(Free(x))
                alive -= size_of[x]
    total = max((buffers[x].arena + size_of[x] for x in arena), default=0)  # type: ignore[operator]
    total = -(-total // ALIGN) * ALIGN
    _free_expired(steps, pool, len(calls) + KEEP_STEPS)
    return steps, total, peak + total


def _free_expired(steps: list[Step], pool: Pool, k: int) -> list[str]:
    """Gives back dead buffers that no kernel has taken over in time (another dead buffer may have served it)."""
    gone = []
    for entries in pool.values():
        for entry in [e for e in entries if e[1] < k]:
            entries.remove(entry)
            steps.append(Free(entry[0]))
            gone.append(entry[0])
    return gone


def _pool_key(decl: BufferDecl) -> tuple[int | Expr, str]:
    return (
        bytes_of(decl) if decl.layout.span.is_const else decl.layout.span * decl.layout.itemsize,
        str(decl.layout.device),
    )  # type: ignore[return-value]


def _is_wanted(
    x: str,
    k: int,
    calls: list[tuple[Step, list[str], list[str]]],
    buffers: dict[str, BufferDecl],
    made: set[str],
    arena: set[str],
) -> bool:
    """True if one of the next few kernels can take the memory over (holding it longer would raise the peak)."""
    key = _pool_key(buffers[x])
    for step, _, writes in calls[k + 1 : k + 1 + KEEP_STEPS]:
        if isinstance(step, KernelCall):
            own = step.in_place[1] if step.in_place is not None else None
            for y in writes:
                if y != own and y not in made and y not in arena and _pool_key(buffers[y]) == key:
                    return True
    return False


def _place_in_arena(
    first: dict[str, int],
    last: dict[str, int],
    buffers: dict[str, BufferDecl],
    pinned: set[str],
    calls: list[tuple[Step, list[str], list[str]]],
    limit: int,
) -> set[str]:
    """Offsets by first fit, largest buffers first."""
    chosen = []
    for x, k in first.items():
        decl = buffers[x]
        size = bytes_of(decl)
        step = calls[k][0]
        own = not isinstance(step, ExternCall) or step.out
        if decl.kind == "temp" and own and x not in pinned and size is not None and 0 < size <= limit:
            chosen.append((size, x))
    chosen.sort(key=lambda sx: (-sx[0], first[sx[1]], sx[1]))
    placed: list[tuple[int, int, int, int]] = []  # first, last, offset, end
    for size, x in chosen:
        a, z = first[x], last[x]
        taken = sorted((o, e) for f, l, o, e in placed if f <= z and a <= l)
        at = 0
        for o, e in taken:
            if at + size <= o:
                break
            at = max(at, e)
        at = -(-at // ALIGN) * ALIGN
        buffers[x].arena = at
        placed.append((a, z, at, -(-(at + size) // ALIGN) * ALIGN))
    return {x for _, x in chosen}
