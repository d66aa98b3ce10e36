"""Fusion: which loop nodes share a kernel.

One pass in graph order puts each node into the latest group it can join (a producer of something it reads, or a
reader of the same buffer); a second pass
merges whole groups into their producers. A join is refused when the loops do not match (`align.add_node`), when it
would make groups depend on each other in a circle, or when
the kernel would get too large; each refusal between related nodes is logged with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..codegen.kernel import elements_touched
from ..config import Config
from ..index import product
from ..ir.extern import ExternNode
from ..ir.loops import LoopNode
from ..passes import is_on
from .align import Mismatch, add_node
from .nodes import Group, group_of

MAX_OPS = 600
MAX_BUFFERS = 48
MAX_SIBLINGS = 3
SMALL = 8192
FEW_ROWS = 264  # two programs for each multiprocessor of a large GPU
LONG_ROW = 4096
COLUMN_BLOCK = 64  # rows that one program takes together where memory runs along them
LONG_COLUMN = 256
STARVES = "too few rows to keep the device busy while each is read twice"


def walks_columns(g: Group) -> bool:
    """True if most elements that a group with inner loops reads and writes lie next to each other along an outer
    loop."""
    loops = (*g.outer, *g.inner)
    outer = {v.name for v in g.outer}
    along_outer = along_inner = 0
    for e in (*(e for found in g.reads.values() for e in found[:1]), *(w.index for w in g.writes.values())):
        touched, contiguous = elements_touched(e, loops)
        if contiguous is not None:
            if contiguous in outer:
                along_outer += touched
            else:
                along_inner += touched
    return along_outer > along_inner


@dataclass(frozen=True)
class Refusal:
    """A fusion that was looked at and not done: names of graph nodes on both sides, and why."""

    a: str
    b: str
    reason: str

    def __str__(self) -> str:
        return f"{self.a} with {self.b}: {self.reason}"


@dataclass(frozen=True)
class Fused:
    """One kernel for several graph nodes."""

    kernel: str
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kernel}: {', '.join(self.nodes)}"


class Fusion:
    """The state of both passes; `run()` returns the groups (dead ones removed), `log` the refusals."""

    def __init__(self, nodes: list[LoopNode | ExternNode], config: Config, device: str = "cpu") -> None:
        self.nodes = nodes
        self.config = config
        self.device = device
        self.groups: list[Group | None] = []
        self.ancestors: list[int] = []
        self.log: list[Refusal] = []
        self.writers: dict[str, list[int]] = {}
        self.readers: dict[str, list[int]] = {}
        self.deps: list[set[int]] = []
        self.parts: dict[str, int] = {}  # how many nodes write a buffer
        self._last_effect: int | None = None
        self._logged: set[Refusal] = set()

    def run(self) -> list[Group]:
        """All groups; their order is not yet an execution order."""
        for node in self.nodes:
            self._place(node)
        if self.config.fusion and is_on("fusion"):
            self._merge_groups()
            self._merge_small()
        return [g for g in self.groups if g is not None]

    # ---- first pass

    def _deps_of(self, node: Any) -> set[int]:
        deps: set[int] = set()
        for x in node.reads:
            deps.update(self.writers.get(x, ()))
        if getattr(node, "updates", False):
            for x in node.writes:
                deps.update(self.writers.get(x, ()))
        if isinstance(node, ExternNode) and node.effect and self._last_effect is not None:
            deps.add(self._last_effect)
        return deps

    def _place(self, node: Any) -> None:
        deps = self._deps_of(node)
        if isinstance(node, LoopNode) and self.config.fusion and is_on("fusion"):
            multi = {x for x in node.reads if self.parts.get(x, 0) > 1}
            candidates = sorted((d for d in deps), reverse=True)
            seen = set(candidates)
            for x in node.reads:
                for r in reversed(self.readers.get(x, [])[-MAX_SIBLINGS:]):
                    if r not in seen:
                        seen.add(r)
                        candidates.append(r)
            for c in candidates:
                reason = self._try_join(c, node, deps, multi)
                if reason is None:
                    self._record(c, node)
                    return
                if c in deps:
                    self._refuse(self.groups[c], node, reason)
        k = len(self.groups)
        if isinstance(node, ExternNode):
            g = Group(extern=node, reads=dict(node.reads), writes={})
        else:
            g = group_of(node)
        self.groups.append(g)
        self.deps.append(set(deps))
        bits = 0
        for d in deps:
            bits |= self.ancestors[d] | (1 << d)
        self.ancestors.append(bits)
        self._record(k, node)

    def _record(self, k: int, node: Any) -> None:
        for x in node.reads:
            at = self.readers.setdefault(x, [])
            if k not in at:
                at.append(k)
        for x in node.writes:
            self.parts[x] = self.parts.get(x, 0) + 1
            at = self.writers.setdefault(x, [])
            if k not in at:
                at.append(k)
        if isinstance(node, ExternNode) and node.effect:
            self._last_effect = k

    def _try_join(self, c: int, node: LoopNode, deps: set[int], multi: set[str]) -> str | None:
        g = self.groups[c]
        if g is None:
            return "merged away"
        if g.extern is not None:
            return "extern call"
        if g.ops + len(node.body) + len(node.tail) > MAX_OPS or len(g.reads) + len(g.writes) > MAX_BUFFERS:
            return "kernel too large"
        if any(x in g.writes for x in multi):
            return "written in parts"
        added = self._added_ancestors(c, deps)
        if added is None:
            return "a node between them depends on the first"
        try:
            joined = add_node(g, node)
        except Mismatch as mismatch:
            return str(mismatch)
        if self._starves(joined):
            return STARVES
        self.groups[c] = joined
        self._depend(c, deps, added)
        return None

    def _starves(self, g: Group) -> bool:
        """True for a kernel that walks few long rows more than once on a device: reduced alone, such rows can be
        split over
        many programs; with a pass behind the reduction each needs one program from beginning to end."""
        if self.device == "cpu" or not g.inner or not any(m.level > 0 and not m.scalar for m in g.members):
            return False
        rows, length = product(v.size for v in g.outer), product(v.size for v in g.inner)
        if not (rows.is_const and length.is_const):
            return False
        if walks_columns(g):
            return int(rows) < FEW_ROWS * COLUMN_BLOCK and int(length) >= LONG_COLUMN
        return int(rows) < FEW_ROWS and int(length) >= LONG_ROW

    def _added_ancestors(self, c: int, deps: set[int]) -> int | None:
        """Bits of all groups that would come before group `c`; None if one of them comes after it."""
        bits = 0
        for d in deps:
            if d != c:
                if self.ancestors[d] >> c & 1:
                    return None
                bits |= self.ancestors[d] | (1 << d)
        return bits

    def _depend(self, c: int, deps: set[int], added: int) -> None:
        self.deps[c].update(d for d in deps if d != c)
        if added & ~self.ancestors[c]:
            self.ancestors[c] |= added
            for h in range(len(self.groups)):
                if self.groups[h] is not None and self.ancestors[h] >> c & 1:
                    self.ancestors[h] |= added

    # ---- second pass

    def _merge_groups(self) -> None:
        for h in range(len(self.groups)):
            g = self.groups[h]
            if g is None or g.extern is not None or g.isolated:
                continue
            for c in sorted(self.deps[h], reverse=True):
                first = self.groups[c]
                if first is None or first.extern is not None:
                    continue
                reason = self._try_merge(c, h)
                if reason is None:
                    break
                self._refuse(first, g.members[0].node, reason)

    def _merge_small(self) -> None:
        """Puts small independent pointwise groups with equal loops into one kernel: they cost mostly the launch."""
        open_groups: dict[tuple, int] = {}
        for h, g in enumerate(self.groups):
            if g is None or g.extern is not None or g.isolated or g.inner:
                continue
            sizes = tuple(v.size for v in g.outer)
            numel = product(sizes)
            if not numel.is_const or int(numel) > SMALL:
                continue
            c = open_groups.get(sizes)
            if c is not None and self.groups[c] is not None:
                apart = not self.ancestors[h] >> c & 1 and not self.ancestors[c] >> h & 1
                if apart and self._try_merge(c, h, together=True) is None:
                    continue
            open_groups[sizes] = h

    def _try_merge(self, c: int, h: int, together: bool = False) -> str | None:
        first, second = self.groups[c], self.groups[h]
        assert first is not None and second is not None
        if first.ops + second.ops > MAX_OPS or len(first.reads) + len(second.reads) > MAX_BUFFERS:
            return "kernel too large"
        added = self._added_ancestors(c, self.deps[h])
        if added is None:
            return "a node between them depends on the first"
        merged = first
        try:
            for m in second.members:
                merged = add_node(merged, m.node, together)
        except Mismatch as mismatch:
            return str(mismatch)
        if any(self.parts.get(x, 0) > 1 for x in first.writes if x in second.reads):
            return "written in parts"
        if self._starves(merged):
            return STARVES
        self.groups[c], self.groups[h] = merged, None
        self._depend(c, self.deps[h], added)
        bit_h, bit_c = 1 << h, 1 << c
        for k in range(len(self.groups)):
            if self.ancestors[k] & bit_h:
                self.ancestors[k] = (self.ancestors[k] | bit_c | self.ancestors[c]) & ~bit_h
            if h in self.deps[k]:
                self.deps[k].discard(h)
                if k != c:
                    self.deps[k].add(c)
        return None

    def _refuse(self, a: Group | None, node: LoopNode, reason: str) -> None:
        if a is not None and reason not in ("merged away",):
            left = a.origins[-1] if a.origins else "?"
            refusal = Refusal(left, node.origins[-1] if node.origins else "?", reason)
            if refusal not in self._logged:
                self._logged.add(refusal)
                self.log.append(refusal)
