"""Groups: loop nodes that will share one kernel.

A group has outer loops and maybe inner loops. Each member is a loop node whose loop variables are written in the
group's variables, at a *level*: its
inner ops run in inner phase `level`, the ops after its reduction in the scalar phase of the same level. A member that
only has
the outer loops is *scalar*; level -1 is the scalar phase before the first inner one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..codegen.kernel import LoopVar
from ..index import Expr, substitute
from ..ir.extern import ExternNode
from ..ir.loops import LoopNode, loop_index


@dataclass(frozen=True)
class Write:
    """Where a group writes a buffer: index in group variables, level, and whether in the scalar phase."""

    index: Expr
    level: int
    scalar: bool


@dataclass(eq=False)
class Member:
    """One loop node in a group; `mapping`: its loop variables -> expressions in the group's."""

    node: LoopNode
    mapping: dict[str, Expr]
    level: int
    scalar: bool


@dataclass(eq=False)
class Group:
    """See the module's docstring. `extern` groups hold one ExternNode and nothing else."""

    outer: list[LoopVar] = field(default_factory=list)
    inner: list[LoopVar] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    reads: dict[str, list[Expr]] = field(default_factory=dict)
    writes: dict[str, Write] = field(default_factory=dict)
    extern: ExternNode | None = None
    isolated: bool = False
    ops: int = 0

    @property
    def inner_kind(self) -> str | None:
        """ "reduction", "scan" or None."""
        return self.inner[0].kind if self.inner else None

    @property
    def first(self) -> int:
        """Place of its earliest node in the graph."""
        return self.extern.index if self.extern is not None else min(m.node.index for m in self.members)

    @property
    def last(self) -> int:
        """Place of its latest node in the graph."""
        return self.extern.index if self.extern is not None else max(m.node.index for m in self.members)

    @property
    def origins(self) -> tuple[str, ...]:
        """Names of the graph nodes it computes."""
        if self.extern is not None:
            return self.extern.origins
        return tuple(dict.fromkeys(n for m in self.members for n in m.node.origins))

    def copy(self) -> Group:
        """A copy whose containers may be changed."""
        return Group(
            list(self.outer), list(self.inner), [Member(m.node, m.mapping, m.level, m.scalar) for m in self.members],
            {k: list(v) for k, v in self.reads.items()}, dict(self.writes), self.extern, self.isolated, self.ops,
        )  # fmt: skip

    def rename(self, mapping: dict[str, Expr]) -> None:
        """Substitutes group variables everywhere."""
        if not mapping:
            return
        for m in self.members:
            m.mapping = {k: substitute(v, mapping) for k, v in m.mapping.items()}
        self.reads = {k: [substitute(e, mapping) for e in v] for k, v in self.reads.items()}
        self.writes = {k: Write(substitute(w.index, mapping), w.level, w.scalar) for k, w in self.writes.items()}

    def __repr__(self) -> str:
        if self.extern is not None:
            return f"<extern {self.extern.origins}>"
        outer = ", ".join(f"{v.name}<{v.size}" for v in self.outer)
        inner = ", ".join(f"{v.name}<{v.size}" for v in self.inner)
        return f"<group [{outer}] [{inner}] {self.origins}>"


def group_of(node: LoopNode) -> Group:
    """A group of one loop node."""
    # all nodes call their loops alike, which makes equal index arithmetic of different nodes the same objects
    renamed = {v.name: LoopVar("p" + v.name, v.size, v.kind) for v in (*node.outer, *node.inner)}
    mapping = {name: loop_index(v) for name, v in renamed.items()}
    outer = [renamed[v.name] for v in node.outer if not v.size == 1]
    inner = [renamed[v.name] for v in node.inner if not v.size == 1] or [renamed[v.name] for v in node.inner[:1]]
    g = Group(outer, inner, [Member(node, mapping, 0, False)])
    add_accesses(g, g.members[0])
    g.isolated = node.updates or any(
        op.args[3] is not None or any(s.startswith("ind") for s in op.args[1].syms)
        for ops in node.writes.values()
        for op in ops
    )
    return g


def add_accesses(g: Group, m: Member) -> None:
    """Enters a member's loads and stores into the group's tables."""
    node = m.node
    for name, ops in node.reads.items():
        g.reads.setdefault(name, []).extend(substitute(op.args[1], m.mapping) for op in ops)
    in_tail = {id(op) for op in node.tail}
    for name, ops in node.writes.items():
        for op in ops:
            scalar = m.scalar or id(op) in in_tail
            g.writes[name] = Write(substitute(op.args[1], m.mapping), m.level, scalar)
    g.ops += len(node.body) + len(node.tail)
