"""The order of groups: a topological order that keeps little memory alive."""

from __future__ import annotations

import heapq

from ..errors import ScheduleError
from .fusion import Fusion
from .nodes import Group


def order_groups(fusion: Fusion, sizes: dict[str, int], keep: set[str]) -> list[Group]:
    """Groups in execution order. Among those that are ready, one that frees more bytes than it allocates goes first;
    else graph order
    decides. `sizes`: bytes of each temporary (0: unknown), `keep`: buffers that outlive the program."""
    alive = [k for k, g in enumerate(fusion.groups) if g is not None]
    waiting = {k: {d for d in fusion.deps[k] if fusion.groups[d] is not None and d != k} for k in alive}
    users: dict[int, list[int]] = {k: [] for k in alive}
    for k, deps in waiting.items():
        for d in deps:
            users[d].append(k)
    last_readers: dict[str, set[int]] = {}
    for k in alive:
        for x in fusion.groups[k].reads:  # type: ignore[union-attr]
            if x in sizes and x not in keep:
                last_readers.setdefault(x, set()).add(k)

    def priority(k: int) -> tuple[int, int]:
        g = fusion.groups[k]
        assert g is not None
        writes = g.extern.writes if g.extern is not None else g.writes
        made = sum(sizes.get(x, 0) for x in writes if x not in g.reads)  # what is written over is there
        freed = sum(sizes[x] for x in g.reads if last_readers.get(x) == {k} and x not in writes)
        return (0 if freed > made else 1, g.last)

    ready = [(priority(k), k) for k in alive if not waiting[k]]
    heapq.heapify(ready)
    out: list[Group] = []
    while ready:
        old, k = heapq.heappop(ready)
        new = priority(k)
        if new < old:  # has become better meanwhile
            heapq.heappush(ready, (new, k))
            continue
        g = fusion.groups[k]
        assert g is not None
        out.append(g)
        for x in g.reads:
            if x in last_readers:
                last_readers[x].discard(k)
        for u in users[k]:
            waiting[u].discard(k)
            if not waiting[u]:
                heapq.heappush(ready, (priority(u), u))
    if len(out) != len(alive):
        raise ScheduleError("groups depend on each other in a circle")
    return _delay_makers(out, fusion, sizes, keep)


def _delay_makers(groups: list[Group], fusion: Fusion, sizes: dict[str, int], keep: set[str]) -> list[Group]:
    """Moves each group that makes more bytes than it lets go down to its first user: what backward graphs compute again
    from saved values must not be computed at their beginning."""
    number = {id(g): k for k, g in enumerate(fusion.groups) if g is not None}
    users: dict[int, list[int]] = {}
    readers: dict[str, list[int]] = {}
    for k, g in enumerate(fusion.groups):
        if g is None:
            continue
        for d in fusion.deps[k]:
            users.setdefault(d, []).append(k)
        for x in g.reads:
            if x in sizes and x not in keep:
                readers.setdefault(x, []).append(k)
    # doubly linked by position: positions are made anew only for what moves
    order = [number[id(g)] for g in groups]
    place = {k: float(i) for i, k in enumerate(order)}
    for k in reversed(order):
        g = fusion.groups[k]
        assert g is not None
        if (g.extern is not None and g.extern.effect) or not users.get(k):
            continue
        target = min(place[u] for u in users[k])
        if target - place[k] <= 1:
            continue
        writes = g.extern.writes if g.extern is not None else g.writes
        made = sum(sizes.get(x, 0) for x in writes if x not in g.reads)
        ours = [x for x in g.reads if x in readers and x not in writes]
        last = [x for x in ours if all(place[r] <= place[k] for r in readers[x])]
        if made > sum(sizes[x] for x in last):
            place[k] = target - 0.5 - place[k] * 1e-7  # before its user, later makers nearest to it
    by_place = sorted(order, key=lambda k: place[k])
    return [g for g in (fusion.groups[k] for k in by_place) if g is not None]
