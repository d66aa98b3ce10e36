"""From a group to the frozen `KernelSpec`: phases, values handed on without memory, loop order, collapsed loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..codegen.kernel import BufferArg, KernelSpec, LoopVar, Phase
from ..config import Config
from ..index import ZERO, Expr, coefficient, product, substitute, symbol
from ..ir.program import BufferDecl
from ..ops import Op
from .in_place import choose_in_place
from .nodes import Group, Member

PURE_LIMIT = 3


@dataclass(eq=False)
class _PhaseDraft:
    level: int
    scalar: bool
    ops: list[Op] = field(default_factory=list)
    known: dict[tuple, Op] = field(default_factory=dict)
    stored: dict[str, Op] = field(default_factory=dict)


class KernelMaker:
    """Builds the kernel of one group. `internal(name)`: nobody outside the group reads that buffer. After `make()`,
    `arguments` names the
    program buffers of the kernel's pointer arguments, `dropped` the buffers that need no memory, and `in_place` is
    (operand, result) where the kernel writes a result over one of `dying` (see `in_place.choose_in_place`)."""

    def __init__(
        self,
        group: Group,
        buffers: dict[str, BufferDecl],
        internal: Callable[[str], bool],
        config: Config,
        dying: Mapping[str, int] | None = None,
    ) -> None:
        self.dying = dying or {}
        self.in_place: tuple[str, str] | None = None
        self.group = group
        self.buffers = buffers
        self.config = config
        self.internal = {x for x in group.writes if internal(x)}
        self.scratch: set[str] = set()
        self.phases: dict[tuple[int, bool], _PhaseDraft] = {}
        self.scalars: dict[str, Op] = {}
        self.arguments: list[str] = []
        self.dropped: set[str] = set()

    # ---- what becomes of each written buffer

    def _decide_stores(self) -> None:
        row = product(v.size for v in self.group.inner)
        for x in list(self.internal):
            w = self.group.writes[x]
            if w.scalar:
                continue
            later = any(x in m.node.reads and m.level > w.level for m in self.group.members)
            if not later:
                continue
            layout = self.buffers[x].layout
            # a device keeps such values in registers or computes them again: any length will do
            short = row.is_const and int(row) * layout.itemsize <= self.config.scratch_bytes
            if layout.device.type != "cpu" or short:
                self.scratch.add(x)
            else:
                self.internal.discard(x)

    # ---- bodies

    def _phase(self, level: int, scalar: bool) -> _PhaseDraft:
        key = (level, scalar)
        if key not in self.phases:
            self.phases[key] = _PhaseDraft(level, scalar)
        return self.phases[key]

    def _emit(self, phase: _PhaseDraft, name: str, args: tuple, op: Op) -> Op:
        key = (name, tuple(repr(a) if isinstance(a, (float, bool)) else a for a in args), op.dtype)
        found = phase.known.get(key)
        if found is None:
            found = Op(name, args, op.dtype)
            phase.ops.append(found)
            if name not in ("store",):
                phase.known[key] = found
        return found

    def _add(self, m: Member, ops: list[Op], phase: _PhaseDraft, values: dict[Op, Op], local: dict[Op, str]) -> None:
        mapping = dict(m.mapping)
        inner_index: Expr | None = None
        for op in ops:
            name, args = op.name, op.args
            if name == "load":
                x = args[0]
                w = self.group.writes.get(x)
                if w is not None:
                    value = phase.stored.get(x) or self.scalars.get(x)
                    if value is not None:
                        values[op] = value
                        continue
                    if x in self.scratch:
                        inner_index = inner_index if inner_index is not None else self._row_index()
                        values[op] = self._emit(phase, "load", (x, inner_index, None), op)
                        continue
            new = tuple(
                values[a] if isinstance(a, Op) else substitute(a, mapping) if isinstance(a, Expr) else a for a in args
            )
            if name == "indirect":
                made = phase.known.get(("indirect", new[0]))
                if made is None:
                    made = Op(name, new, op.dtype)
                    phase.ops.append(made)
                    phase.known[("indirect", new[0])] = made
                elif made.args[1] != new[1]:
                    mapping[new[1]] = symbol(made.args[1], _bound_of(made.args[1], ops, new[1]))
                values[op] = made
                continue
            if name == "store":
                x, value = args[0], new[2]
                w = self.group.writes[x]
                if w.scalar:
                    self.scalars[x] = value
                else:
                    phase.stored[x] = value
                if x in self.scratch:
                    inner_index = inner_index if inner_index is not None else self._row_index()
                    phase.ops.append(Op("store", (x, inner_index, value, None, None), op.dtype))
                elif x not in self.internal:
                    phase.ops.append(Op("store", new, op.dtype))
                continue
            values[op] = self._emit(phase, name, new, op)

    def _row_index(self) -> Expr:
        flat = ZERO
        for v in self.group.inner:
            flat = flat * v.size + (ZERO if v.size == 1 else symbol(v.name, v.size))
        return flat

    # ---- loops

    def make(self, name: str) -> KernelSpec:
        """The kernel."""
        self._decide_stores()
        for m in self.group.members:
            values: dict[Op, Op] = {}
            self._add(m, m.node.body, self._phase(m.level, m.scalar or not self.group.inner), values, {})
            if m.node.tail:
                self._add(m, m.node.tail, self._phase(m.level, True), values, {})
        drafts = [self.phases[k] for k in sorted(self.phases)]
        drop_dead_ops(drafts)
        drafts = [p for p in drafts if p.ops]
        outer, inner = order_loops(self.group.outer, drafts), order_loops(self.group.inner, drafts)
        rename: dict[str, Expr] = {}
        exprs = {e for p in drafts for op in p.ops for e in op.exprs()}
        exprs = {e for e in exprs if e.op != "const"}
        outer, exprs_map = collapse_loops(outer, {e: e for e in exprs})
        inner, exprs_map = collapse_loops(inner, exprs_map)
        loops_out, loops_in = [], []
        for k, v in enumerate(outer):
            loops_out.append(LoopVar(f"i{k}", v.size, v.kind))
            rename[v.name] = symbol(f"i{k}", v.size)
        for k, v in enumerate(inner):
            loops_in.append(LoopVar(f"r{k}", v.size, v.kind))
            rename[v.name] = ZERO if v.size == 1 else symbol(f"r{k}", v.size)
        return self._freeze(name, drafts, loops_out, loops_in, exprs_map, rename)

    def _freeze(
        self,
        name: str,
        drafts: list[_PhaseDraft],
        loops_out: list[LoopVar],
        loops_in: list[LoopVar],
        exprs_map: dict[Expr, Expr],
        rename: dict[str, Expr],
    ) -> KernelSpec:
        if self.dying and not self.group.isolated:
            self._write_in_place(drafts, lambda e: exprs_map.get(e, e))
        reads: dict[str, None] = {}
        writes: dict[str, None] = {}
        modes: set[str] = set()
        indirect: dict[str, str] = {}
        for p in drafts:
            for op in p.ops:
                if op.name == "load":
                    reads[op.args[0]] = None
                elif op.name == "store":
                    writes[op.args[0]] = None
                    if op.args[3] is not None:
                        modes.add(op.args[0])
                elif op.name == "indirect":
                    indirect.setdefault(op.args[1], f"j{len(indirect)}")
        isolated = self.group.isolated
        roles: dict[str, str] = {}
        for x in reads:
            if x not in writes:
                roles[x] = "in"
        for x in writes:
            both = isolated or (self.in_place is not None and x == self.in_place[1])
            roles[x] = "scratch" if x in self.scratch else "inout" if both else "out"
        order = sorted(roles, key=lambda x: ("in", "inout", "out", "scratch").index(roles[x]))
        prefix = {"in": "x", "inout": "z", "out": "y", "scratch": "t"}
        local: dict[str, str] = {}
        for x in order:
            local[x] = f"{prefix[roles[x]]}{len(local)}"
        row = product(v.size for v in loops_in)
        args = tuple(
            BufferArg(
                local[x],
                self.buffers[x].layout.dtype,
                roles[x],
                row if roles[x] == "scratch" else self.buffers[x].layout.span,
            )
            for x in order
        )
        values: dict[Op, Op] = {}
        memo: dict[Expr, Expr] = {}

        def final(e: Expr) -> Expr:
            found = memo.get(e)
            if found is None:
                step = substitute(exprs_map.get(e, e), rename)
                names = {s: symbol(indirect[s], _size_of(step, s)) for s in step.syms if s in indirect}
                found = memo[e] = substitute(step, names)
            return found

        phases = []
        sizes: dict[str, None] = {}
        for p in drafts:
            ops = []
            kind = "parallel"
            for op in p.ops:
                if op.name in ("reduction", "scan"):
                    kind = op.name
                new = []
                for k, a in enumerate(op.args):
                    if isinstance(a, Op):
                        a = values[a]
                    elif isinstance(a, Expr):
                        a = final(a)
                    elif k == 0 and op.name in ("load", "store"):
                        a = local[a]
                    elif k == 1 and op.name == "indirect":
                        a = indirect[a]
                    new.append(a)
                values[op] = made = Op(op.name, tuple(new), op.dtype)
                ops.append(made)
                for e in made.exprs():
                    for s in e.syms:
                        sizes[s] = None
            loops = () if p.scalar else tuple(LoopVar(v.name, v.size, kind) for v in loops_in)
            phases.append(Phase(loops, tuple(ops)))
        for v in (*loops_out, *loops_in):
            for s in v.size.syms:
                sizes[s] = None
        for b in args:
            for s in b.numel.syms:
                sizes[s] = None
        taken = {v.name for v in (*loops_out, *loops_in)} | set(indirect.values())
        self.arguments = [x for x in order if roles[x] != "scratch"]
        if self.in_place is not None:
            self.arguments = [self.in_place[0] if x == self.in_place[1] else x for x in self.arguments]
        self.dropped = {x for x in self.group.writes if x in self.internal or x in self.scratch}
        symbols = tuple(sorted(s for s in sizes if s not in taken))
        device = self.buffers[order[0]].layout.device.type if order else "cpu"
        return KernelSpec(name, tuple(loops_out), tuple(phases), args, symbols, device, self.group.origins)


    def _write_in_place(self, drafts: list[_PhaseDraft], final: Callable[[Expr], Expr]) -> None:
        """Lets the kernel read the chosen operand through its result's name."""
        self.in_place = choose_in_place([p.ops for p in drafts], self.buffers, self.dying, self.scratch, final)
        if self.in_place is None:
            return
        x, y = self.in_place
        swap: dict[Op, Op] = {}
        for p in drafts:
            for k, op in enumerate(p.ops):
                args = tuple(swap.get(a, a) if isinstance(a, Op) else a for a in op.args)
                if op.name == "load" and args[0] == x:
                    args = (y, *args[1:])
                if any(a is not b for a, b in zip(args, op.args, strict=True)):
                    swap[op] = p.ops[k] = Op(op.name, args, op.dtype)


def _size_of(e: Expr, name: str) -> Expr:
    stack = [e]
    while stack:
        x = stack.pop()
        if x.op == "sym" and x.args[0] == name:
            return x.bound if x.bound is not None else x.hi + 1  # type: ignore[return-value]
        stack.extend(a for a in x.args if isinstance(a, Expr))
    raise KeyError(name)


def _bound_of(_made: str, ops: list[Op], name: str) -> Expr:
    for op in ops:
        for e in op.exprs():
            if name in e.syms:
                return _size_of(e, name)
    return None  # type: ignore[return-value]


def drop_dead_ops(drafts: list[_PhaseDraft]) -> None:
    """Removes ops that no store and no check needs, over all phases."""
    live: set[int] = set()
    wanted: set[str] = set()
    for p in reversed(drafts):
        for op in reversed(p.ops):
            if op.name in ("store", "check") or id(op) in live or (op.name == "indirect" and op.args[1] in wanted):
                live.add(id(op))
                for a in op.operands():
                    live.add(id(a))
                for e in op.exprs():
                    wanted.update(s for s in e.syms if s.startswith("ind"))
        p.ops = [op for op in p.ops if id(op) in live]


def order_loops(loops: list[LoopVar], drafts: list[_PhaseDraft]) -> list[LoopVar]:
    """Loops sorted so that the innermost has the smallest strides; stores count more than loads, large accesses more
    than small ones."""
    if len(loops) < 2:
        return list(loops)
    votes: dict[str, float] = {v.name: 0.0 for v in loops}
    best: tuple[int, list[tuple[str, Expr]]] | None = None
    for p in drafts:
        for op in p.ops:
            if op.name not in ("load", "store"):
                continue
            strides = []
            for v in loops:
                c = coefficient(op.args[1], v.name)
                if c is not None and c is not ZERO:
                    strides.append((v.name, c))
            score = 2 * len(strides) + (1 if op.name == "store" else 0)
            if best is None or score > best[0]:
                best = (score, strides)
    if best is None:
        return list(loops)
    for name, c in best[1]:
        votes[name] = _magnitude(c)
    place = {v.name: k for k, v in enumerate(loops)}
    missing = max(votes.values(), default=0.0) + 1
    return sorted(loops, key=lambda v: (-(votes[v.name] or missing), place[v.name]))


def _magnitude(e: Expr) -> float:
    if e.is_const:
        return abs(float(int(e)))
    return 4096.0 ** len(e.syms) * max(abs(c) for _, c in e.poly[1])


def collapse_loops(loops: list[LoopVar], exprs: dict[Expr, Expr]) -> tuple[list[LoopVar], dict[Expr, Expr]]:
    """Merges neighbouring loops that every index walks like one; `exprs` maps original to current expressions."""
    loops = [v for v in loops if not v.size == 1] or list(loops[:1])
    k = len(loops) - 2
    while k >= 0:
        p, q = loops[k], loops[k + 1]
        if p.kind == q.kind and not q.size == 1:
            size = p.size * q.size
            name = p.name + "_" + q.name
            m = symbol(name, size)
            change = {p.name: m // q.size, q.name: m % q.size}
            merged: dict[Expr, Expr] | None = {}
            for original, e in exprs.items():
                if p.name in e.syms or q.name in e.syms:
                    a, b = coefficient(e, p.name), coefficient(e, q.name)
                    if a is not None and b is not None:
                        if not a == b * q.size:
                            merged = None
                            break
                        rest = substitute(e, {p.name: ZERO, q.name: ZERO})
                        merged[original] = rest + b * m
                        continue
                    e = substitute(e, change)
                    if coefficient(e, name) is None:
                        merged = None
                        break
                merged[original] = e
            if merged is not None:
                exprs = merged
                loops[k : k + 2] = [LoopVar(name, size, p.kind)]
                k = min(k, len(loops) - 2)
                continue
        k -= 1
    return loops, exprs
