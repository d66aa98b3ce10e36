"""Writing one loop node in the loops of a group.

Two nests match when they visit the elements of a common buffer alike. The strides with which both walk that buffer
tell which loop corresponds to which;
a loop that covers several loops of the other side is split.
"""

from __future__ import annotations

from ..codegen.kernel import LoopVar
from ..index import ZERO, Expr, coefficient, floordiv, substitute, symbol
from ..ir.loops import LoopNode
from .nodes import Group, Member, Write, add_accesses

MAX_LEVELS = 12


class Mismatch(Exception):
    """The node cannot join the group; the text says why."""


class _Side:
    """The loops of one side, with the splits made so far."""

    def __init__(self, loops: list[LoopVar]) -> None:
        self.loops = {v.name: v for v in loops if not v.size == 1}
        self.splits: dict[str, Expr] = {}
        self.open = dict.fromkeys(self.loops)  # names not matched yet

    def split(self, name: str, low: Expr) -> tuple[str, str]:
        """Splits a loop into (high, low), low of the given size."""
        v = self.loops.pop(name)
        high_size = floordiv(v.size, low)
        a, b = LoopVar(name + "a", high_size, v.kind), LoopVar(name + "b", low, v.kind)
        rebuilt: dict[str, LoopVar] = {}
        self.loops[a.name], self.loops[b.name] = a, b
        rebuilt.update(self.loops)
        sym_a = ZERO if high_size == 1 else symbol(a.name, high_size)
        change = {name: sym_a * low + symbol(b.name, low)}
        self.splits = {k: substitute(e, change) for k, e in self.splits.items()}
        self.splits[name] = change[name]
        del self.open[name]
        self.open[a.name] = self.open[b.name] = None
        return a.name, b.name


def _walk(side: _Side, expr: Expr) -> list[tuple[Expr, str]] | None:
    """(stride, loop) for the open loops that `expr` moves with, smallest stride first; None if not affine."""
    out = []
    for name in side.open:
        stride = coefficient(expr, name)
        if stride is None:
            return None
        if stride is not ZERO:
            out.append((stride, name))
    out.sort(key=lambda sn: (len(sn[0].syms), sn[0].hi if not sn[0].syms else len(sn[0].text()), sn[0].text()))
    return out


def _match(g: _Side, n: _Side, pairs: list[tuple[str, str]], a: list, b: list, by_stride: bool) -> bool:
    """Pairs the loops of both lists from the innermost outwards, splitting where sizes differ."""
    a, b = list(a), list(b)
    while a and b:
        (sa, na), (sb, nb) = a[0], b[0]
        if by_stride and not sa == sb:
            return False
        va, vb = g.loops[na], n.loops[nb]
        if va.size == vb.size:
            pairs.append((na, nb))
            del g.open[na], n.open[nb]
            a.pop(0)
            b.pop(0)
            continue
        if _divides(va.size, vb.size):
            high, low = n.split(nb, va.size)
            b[0] = (sb, low)
            b.insert(1, (sb * va.size, high))
        elif _divides(vb.size, va.size):
            high, low = g.split(na, vb.size)
            a[0] = (sa, low)
            a.insert(1, (sa * vb.size, high))
        else:
            return False
    return not by_stride or not (a and b)


def _divides(a: Expr, b: Expr) -> bool:
    if a.is_const and b.is_const:
        return int(a) > 0 and int(b) % int(a) == 0
    q = floordiv(b, a)
    return q * a == b


def add_node(group: Group, node: LoopNode, together: bool = False) -> Group:
    """A new group with `node` appended; raises Mismatch with the reason. With `together`, loops are paired by their
    sizes when the
    two have no buffer in common."""
    if group.extern is not None or group.isolated:
        raise Mismatch("extern call or scatter")
    if node.updates:
        raise Mismatch("scatter")
    g_side = _Side([*group.outer, *group.inner])
    n_side = _Side([*node.outer, *node.inner])
    common = [x for x in node.reads if x in group.writes]
    common += [x for x in node.reads if x in group.reads and x not in group.writes]
    if not common and not together:
        raise Mismatch("no buffer in common")
    pairs: list[tuple[str, str]] = []
    done = False
    for x in common:
        eg = group.writes[x].index if x in group.writes else group.reads[x][0]
        en = node.reads[x][0].args[1]
        if any(s.startswith("ind") for s in eg.syms | en.syms):
            continue
        eg, en = substitute(eg, g_side.splits), substitute(en, n_side.splits)
        a, b = _walk(g_side, eg), _walk(n_side, en)
        if a is None or b is None or not (a or b):
            continue
        if not _match(g_side, n_side, pairs, a, b, True):
            raise Mismatch(f"loops walk {x} differently")
        done = True
        if not g_side.open and not n_side.open:
            break
    if not done and not together and (g_side.open or n_side.open):
        raise Mismatch("no affine access in common")
    if g_side.open and n_side.open:
        a = [(ZERO, name) for name in reversed(list(g_side.open))]
        b = [(ZERO, name) for name in reversed(list(n_side.open))]
        if not _match(g_side, n_side, pairs, a, b, False):
            raise Mismatch("loop sizes differ")
    return _join(group, node, g_side, n_side, pairs)


def _root(name: str, names: set[str]) -> str:
    while name not in names:
        name = name[:-1]
    return name


def _join(group: Group, node: LoopNode, g: _Side, n: _Side, pairs: list[tuple[str, str]]) -> Group:
    g_outer_names = {v.name for v in group.outer}
    g_inner_names = {v.name for v in group.inner}
    n_inner_names = {v.name for v in node.inner}
    n_all_names = {v.name for v in node.outer} | n_inner_names

    def in_inner(name: str, all_names: set[str], inner_names: set[str]) -> bool:
        return _root(name, all_names) in inner_names

    g_names = g_outer_names | g_inner_names
    g_inner = [k for k in g.loops if in_inner(k, g_names, g_inner_names)]
    n_inner = [k for k in n.loops if in_inner(k, n_all_names, n_inner_names)]
    paired = dict(pairs)  # group loop -> node loop
    back = {b: a for a, b in pairs}
    scalar = False
    group_becomes_scalar = False
    new_inner: list[str] | None = None
    if group.inner:
        if not node.inner:
            if n.open:
                raise Mismatch("consumer has more loops")
            if g.open:
                if set(g.open) != set(g_inner):
                    raise Mismatch("consumer has fewer loops")
                scalar = True
        else:
            if node.kind != group.inner_kind:
                raise Mismatch(f"{node.kind} beside {group.inner_kind}")
            if g.open or n.open:
                raise Mismatch("loops differ")
            if {paired[k] for k in g_inner} != set(n_inner):
                raise Mismatch("reduced dimensions differ")
    elif not node.inner:
        if g.open or n.open:
            raise Mismatch("loops differ")
    else:
        if g.open:
            raise Mismatch("loops differ")
        if n.open:
            if set(n.open) != set(n_inner):
                raise Mismatch("loops differ")
            group_becomes_scalar = True
        else:
            new_inner = [back[k] for k in n_inner]
    if (group.inner_kind == "scan" or node.kind == "scan") and (
        len([k for k in g_inner if k in g.loops]) > 1 or len(n_inner) > 1
    ):
        raise Mismatch("the scanned dimension would be split")

    out = group.copy()
    out.rename(g.splits)
    loops = _order(group, g)
    if group.inner:
        out.outer = [v for v in loops if v.name not in g_inner]
        out.inner = [v for v in loops if v.name in g_inner] or list(group.inner)
    elif new_inner is not None:
        out.outer = [v for v in loops if v.name not in new_inner]
        out.inner = [LoopVar(k, g.loops[k].size, node.kind) for k in new_inner] or [
            LoopVar("q" + v.name, v.size, v.kind) for v in node.inner
        ]
    elif group_becomes_scalar:
        out.outer = loops
        out.inner = [LoopVar("q" + k, n.loops[k].size, node.kind) for k in n_inner]
        for m in out.members:
            m.scalar, m.level = True, -1
        out.writes = {k: Write(w.index, -1, True) for k, w in out.writes.items()}
    else:
        out.outer = loops
    # the node's variables in terms of the group's
    final: dict[str, Expr] = {}
    for k, v in n.loops.items():
        final[k] = symbol(back[k], g.loops[back[k]].size) if k in back else symbol("q" + k, v.size)
    mapping: dict[str, Expr] = {}
    for v in (*node.outer, *node.inner):
        if v.size == 1:
            mapping[v.name] = ZERO
        else:
            mapping[v.name] = substitute(n.splits.get(v.name, symbol(v.name, v.size)), final)
    level = _level(out, node, mapping, scalar)
    member = Member(node, mapping, level, scalar)
    out.members.append(member)
    add_accesses(out, member)
    return out


def _order(group: Group, side: _Side) -> list[LoopVar]:
    """The group's loops after splitting, in their old order."""
    names = {v.name for v in (*group.outer, *group.inner)}
    place = {v.name: k for k, v in enumerate((*group.outer, *group.inner))}
    return [side.loops[k] for k in sorted(side.loops, key=lambda k: (place[_root(k, names)], k))]


def _level(group: Group, node: LoopNode, mapping: dict[str, Expr], scalar: bool) -> int:
    """The earliest level at which everything the node reads from the group is there; checks that it reads what was
    written."""
    level = -1 if scalar else 0
    for x, ops in node.reads.items():
        w = group.writes.get(x)
        if w is None:
            continue
        for op in ops:
            if not substitute(op.args[1], mapping) == w.index:
                raise Mismatch(f"reads {x} at another position than it is written")
        level = max(level, w.level + 1 if w.scalar and not scalar else w.level)
    for x in node.writes:
        if x in group.reads:
            raise Mismatch(f"writes {x}, which the group uses")
    if level > MAX_LEVELS:
        raise Mismatch("too many phases")
    return level
