"""C++ of one scheduled kernel.

Every kernel becomes ``int name(void* const* B, const i64* S)``: buffers and size symbols in, 0 or the number of a
failed check out.
One loop is *vectorised* (N lanes a step); which one decides the shape of the code:

* ``row``: the inner loops of each phase run along memory. Outer loops are flattened and shared between threads, each
phase vectorises
  its own contiguous loop, reductions end as scalars.
* ``column``: an outer loop runs along memory (every pointwise kernel, and reductions over rows). Lanes are different
outer iterations,
  inner loops stay scalar, reductions end as vectors.
* ``scalar``: scans and serial loops that fit neither; the same code with N = 1.

Values that do not depend on a loop are computed before it: the C++ compiler cannot prove that stores leave them alone.
"""

from __future__ import annotations

import sys

import torch

from ..index import ONE, Expr, coefficient, product, to_expr
from ..ops import MULTI_RESULT, Op
from ..passes import is_on
from .cpp_ahead import find_ahead
from .cpp_columns import can_split_rows, write_split_rows
from .cpp_index import Value, c_index, c_name, marked_index
from .cpp_ops import ELEMENT, EXPENSIVE, LANE, lane_bytes, vector_type
from .cpp_periods import narrow_columns, write_narrow_columns
from .cpp_rewrites import rewrite
from .cpp_stages import plan_stages, write_stages
from .cpp_statements import Statements
from .cpp_tiles import TILE, WIDE, declare_tiles, far_ahead, find_tiles, move_tiles, short_rows, write_short_rows
from .kernel import KernelSpec, LoopVar, Phase

_SPLIT_REDUCTION = 16384  # elements a partial result of a reduction without outer loops covers
_WIDE_OPS = frozenset("load store reduction add sub mul neg square to_dtype constant".split())
_ON_POSITIONS = frozenset("constant index_expr ge lt le gt eq ne bitwise_and logical_and add sub mul where".split())
_POSITIONS = (torch.int64, torch.int32, torch.bool)
_ONCE = 0.05  # weight of an access beside an inner loop against one in it
_STACK_BYTES = 65536  # scratch up to this size lives on the stack


class KernelWriter(Statements):
    """Writes one kernel. `vector_bytes` is the register width to fill (64, 32, 16; 0 for plain scalars)."""

    def __init__(self, spec: KernelSpec, name: str, vector_bytes: int) -> None:
        self.spec = spec = rewrite(spec) if is_on("rewrites") else spec
        self.name = name
        self.vector_bytes = vector_bytes
        self.lines: list[str] = []
        self.indent = 1
        self.values: dict[Op, Value] = {}
        self.symbols: dict[str, Op] = {}  # indirect symbol -> the op that makes it
        self.deps: dict[Op, frozenset[str]] = {}
        self.outer_names = [v.name for v in spec.loops]
        self.checks = {op: k + 1 for k, op in enumerate(o for o in spec.ops() if o.name == "check")}
        self._find_dependences()
        looped = [p for p in spec.phases if p.loops]
        self.rare = {op for p in spec.phases if looped and not p.loops for op in p.ops}  # once for a whole inner loop
        self.bytewise = _narrow_element(spec)
        self.vector_loop: LoopVar | None = None
        self.mode = ""
        self.tiles: dict[Op, str] = {}
        self.tile_at = ""  # C text of the place in a tile
        self.ahead: dict[Op, Expr] = {}  # loads behind which the same place of the next row is fetched
        self.fetch = "ahead"
        self.short = False
        self.uniform: frozenset[Op] = frozenset()  # positions that are the same in all lanes: one number is enough
        self.one_number = False
        self.narrow = narrow_columns(self, self._natural_lanes())
        if self.narrow is not None:
            self.mode, self.vector_loop, self.lanes = "column", self.narrow, self._natural_lanes()
        else:
            self.mode = self._choose_mode()
            if self.mode == "column" and self.vector_loop is not None:
                self.uniform = self._uniform_positions(self.vector_loop.name)
            self.lanes = self._choose_lanes()
            rows = None
            if self.mode == "row" or self.mode == "column" and not self._is_along():
                rows = short_rows(self, self._natural_lanes())
            if rows is not None:
                self.mode, self.vector_loop, self.short = "column", rows, True
                self.uniform = self._uniform_positions(rows.name)
                self.lanes = self._natural_lanes()

    # ------------------------------------------------------------------------------------------------- analysis

    def _find_dependences(self) -> None:
        for op in self.spec.ops():
            if op.name == "indirect":
                self.symbols[op.args[1]] = op
            found: set[str] = set()
            for a in op.args:
                if isinstance(a, Op):
                    found |= self.deps[a]
                elif isinstance(a, Expr):
                    found |= self._expr_deps(a)
            if op.name in ("reduction", "scan"):
                inner = {v.name for p in self.spec.phases if op in p.ops for v in p.loops}
                found = (found - inner) if op.name == "reduction" else found | inner
                found |= set(self.outer_names)
            elif op.name == "item" and op.args[0].name == "reduction":
                found = set(self.deps[op.args[0]])
            if op.name == "load" and self.spec.buffer(op.args[0]).role == "scratch":
                found |= set(self.outer_names)
            self.deps[op] = frozenset(found)

    def _uniform_positions(self, loop: str) -> frozenset[Op]:
        """What only becomes an index or a check of one, and does not depend on the vectorised loop."""
        found: set[Op] = set()
        users: dict[Op, list[Op]] = {}
        for op in self.spec.ops():
            for a in op.operands():
                users.setdefault(a, []).append(op)
        for op in reversed(list(self.spec.ops())):
            if op.name in ("indirect", "check"):
                fits = True
            elif op.name == "load":
                fits = op.dtype in _POSITIONS and self.spec.buffer(op.args[0]).role != "scratch"
            else:
                fits = op.dtype in _POSITIONS and op.name in _ON_POSITIONS
            if fits and loop not in self.deps[op] and all(u in found for u in users.get(op, ())):
                if all(a.dtype in _POSITIONS for a in op.operands()):
                    found.add(op)
        while True:  # the checks of other values are made lane by lane
            bad = {op for op in found if any(a not in found for a in op.operands())}
            if not bad:
                return frozenset(found)
            found = {op for op in found - bad if all(u in found - bad for u in users.get(op, ()))}

    def _expr_deps(self, e: Expr) -> set[str]:
        found: set[str] = set()
        for s in e.syms:
            if s in self.symbols:
                found |= self.deps[self.symbols[s]]
            else:
                found.add(s)
        return found

    def _score(self, loop: str, ops: tuple[Op, ...] | list[Op]) -> float:
        """How well memory runs along `loop`: contiguous accesses count for, strided ones against."""
        score = 0.0
        for op in ops:
            if op.name not in ("load", "store"):
                continue
            stride = coefficient(op.args[1], loop)
            if stride is not None and any(
                loop in self.deps[self.symbols[s]] for s in op.args[1].syms if s in self.symbols
            ):
                stride = None
            if self.spec.buffer(op.args[0]).role == "scratch":
                continue
            weight = (2.0 if op.name == "store" else 1.0) * (_ONCE if op in self.rare else 1.0)
            if stride == 1:
                score += weight
            elif stride is None or stride != 0:
                score -= weight
        return score

    def _choose_mode(self) -> str:
        spec = self.spec
        if any(v.kind == "scan" for p in spec.phases for v in p.loops):
            candidates = [v for v in spec.loops if v.kind == "parallel" and self._score(v.name, list(spec.ops())) > 0]
            if not candidates and self._can_scan_along_memory():
                return "row"
            if not candidates:  # rows side by side: strided accesses, but as many independent chains as there are lanes
                candidates = [v for v in spec.loops if v.kind == "parallel" and v.size.lo >= 8]
            if candidates and self.vector_bytes:
                self.vector_loop = candidates[-1]
                return "column"
            return "scalar"
        best: tuple[float, LoopVar | None] = (-1e9, None)
        for v in spec.loops:
            score = self._score(v.name, list(spec.ops()))
            if v.size.hi < 4 and len(spec.loops) > 1:
                score -= 2.5
            if score >= best[0]:
                best = (score, v)
        has_inner = any(p.loops for p in spec.phases)
        if not has_inner:
            self.vector_loop = best[1]
            return "column" if best[1] is not None else "scalar"
        inner = 0.0
        for p in spec.phases:
            if p.loops:
                inner += max(self._score(v.name, p.ops) for v in p.loops)
        if best[1] is not None and best[0] > inner and best[0] > 0:
            self.vector_loop = best[1]
            return "column"
        return "row"

    def _is_along(self) -> bool:
        """True when the lanes of a column kernel lie next to each other."""
        return self.mode == "column" and self._score(self.vector_loop.name, list(self.spec.ops())) > 0

    def _can_scan_along_memory(self) -> bool:
        """Sums and products can be scanned a vector at a time (products in double could overflow in between)."""
        scans = [op for op in self.spec.ops() if op.name == "scan"]
        if not self.vector_bytes or any(len(p.loops) > 1 for p in self.spec.phases):
            return False
        if any(op.args[1] not in ("sum", "prod") or (op.args[1], op.dtype) == ("prod", torch.float64) for op in scans):
            return False
        return all(self._score(p.loops[0].name, p.ops) > 0 for p in self.spec.phases if p.loops)

    def _natural_lanes(self) -> int:
        """Lanes of the widest type that the kernel computes with, in one register. What is the same in all lanes does
        not count."""
        if self.bytewise is not None:
            return max(1, self.vector_bytes // self.bytewise.itemsize)
        names: set[str] | None = None
        if self.mode == "column" and self.vector_loop is not None:
            names = {self.vector_loop.name}
        elif self.mode == "row":
            names = {v.name for p in self.spec.phases for v in p.loops}
        widest = max(
            (
                lane_bytes(op.dtype)
                for op in self.spec.ops()
                if op.dtype in LANE and op.name != "indirect" and (names is None or self.deps[op] & names)
            ),
            default=4,
        )
        return max(1, self.vector_bytes // widest)

    def _choose_lanes(self) -> int:
        if self.mode == "scalar" or not self.vector_bytes:
            return 1
        lanes = self._natural_lanes()
        if self.mode == "row":  # short inner loops: vectors that are full
            shortest = min(self._phase_vector_loop(p).size.hi for p in self.spec.phases if p.loops)
            while lanes > 4 and shortest < lanes:
                lanes //= 2
        if self.mode == "column" and not can_split_rows(self) and self._can_widen(lanes):
            lanes *= 4
        return lanes

    def _can_widen(self, lanes: int) -> bool:
        """Reductions over rows of cheap ops take four registers of columns at a time: a row of memory is then
        read in longer pieces."""
        if (
            not any(p.loops for p in self.spec.phases)
            or self.vector_loop is None
            or self.vector_loop.size.lo < 4 * lanes
        ):
            return False
        return all(
            op in self.uniform or op.name in _WIDE_OPS and (op.name != "reduction" or op.args[1] == "sum")
            for op in self.spec.ops()
        )

    def _phase_vector_loop(self, phase: Phase) -> LoopVar:
        return max(phase.loops, key=lambda v: (self._score(v.name, phase.ops), phase.loops.index(v)))

    # ------------------------------------------------------------------------------------------------- writing

    def put(self, text: str) -> None:
        if self.one_number:
            text = text.replace(", N>", ", 1>").replace("<N>", "<1>")
        self.lines.append("  " * self.indent + text)

    def open(self, text: str) -> None:
        self.put(text + " {")
        self.indent += 1

    def close(self, text: str = "}") -> None:
        self.indent -= 1
        self.put(text)

    def write(self) -> str:
        """The function's text."""
        spec = self.spec
        self.lines = [f'extern "C" int {self.name}(void* const* B, const i64* S) {{']
        for k, b in enumerate(spec.arguments):
            const = "const " if b.role == "in" else ""
            t = ELEMENT[b.dtype]
            self.put(f"{const}{t}* __restrict {c_name(b.name)} = ({const}{t}*)B[{k}];")
        for k, s in enumerate(spec.sizes):
            self.put(f"const i64 {s} = S[{k}];")
        self.put("(void)B, (void)S;")
        self.put("int err = 0;")
        self.put(f"constexpr int N = {self.lanes};")
        if self.narrow is not None:
            write_narrow_columns(self)
        elif self.short:
            write_short_rows(self)
        elif self.mode == "row":
            self._write_row()
        elif self.mode == "column" and can_split_rows(self):
            write_split_rows(self)
        else:
            self._write_column()
        self.put("return err;")
        self.lines.append("}")
        text = "\n".join(self.lines) + "\n"
        return text if self.bytewise is None else text.replace("vec<i32, N>", f"vec<{ELEMENT[self.bytewise]}, N>")

    def _work(self) -> Expr:
        total = to_expr(0)
        for p in self.spec.phases:
            cost = sum(16 if op.name in EXPENSIVE else 1 for op in p.ops if op.name not in ("constant", "index_expr"))
            total = total + product(v.size for v in p.loops) * max(1, cost // 4)
        return total

    def _scratch(self, lanes: str) -> None:
        for b in self.spec.buffers:
            if b.role != "scratch":
                continue
            t, count = ELEMENT[b.dtype], marked_index(b.numel, {})
            if b.numel.is_const and int(b.numel) * b.dtype.itemsize * self.lanes <= _STACK_BYTES:
                self.put(f"alignas(64) {t} {c_name(b.name)}_raw[{max(1, int(b.numel))} * {lanes}];")
                self.put(f"{t}* __restrict {c_name(b.name)} = {c_name(b.name)}_raw;")
            else:
                self.put(f"heap {c_name(b.name)}_raw(({count}) * i64(sizeof({t})) * {lanes});")
                self.put(f"{t}* __restrict {c_name(b.name)} = ({t}*){c_name(b.name)}_raw.p;")

    def _flat_loops(self, loops: list[LoopVar], blocks: list[tuple[str, str]]) -> None:
        """Opens `for it in [lo, hi)` with the loop variables kept in step; `blocks` adds inner (name, count) pairs."""
        parts = [(v.name, marked_index(v.size, {})) for v in loops] + blocks
        self.put("i64 rest_ = lo;")
        for name, size in reversed(parts):
            self.put(f"i64 {name} = rest_ % ({size}); rest_ /= ({size});")
        self.put("(void)rest_;")
        carry = ""
        for name, size in parts:
            carry = f"++{name} == ({size}) ? ({name} = 0, {carry or '0'}) : 0"
        self.open(f"for (i64 it = lo; it < hi; ++it, {carry or '0'})")

    # row mode ------------------------------------------------------------------------------------------------

    def _write_row(self) -> None:
        spec = self.spec
        outer = [v for v in spec.loops if v.kind == "parallel"]
        serial = [v for v in spec.loops if v.kind != "parallel"]
        single = not spec.loops or (product(v.size for v in spec.loops) == ONE)
        if single:
            for v in spec.loops:
                self.put(f"const i64 {v.name} = 0; (void){v.name};")
            self._scratch("1")
            for k, p in enumerate(spec.phases):
                self._row_phase(k, p, split=True)
            return
        self.ahead = find_ahead(self) if outer and not serial else {}
        count = " * ".join(["i64(1)"] + [f"({marked_index(v.size, {})})" for v in outer])
        work = marked_index(self._work() * product(v.size for v in serial), {})
        self.open(f"parallel({count}, {work}, 1, [&](i64 lo, i64 hi)")
        self._scratch("1")
        self._flat_loops(outer, [])
        for v in serial:
            self.open(f"for (i64 {v.name} = 0; {v.name} < {marked_index(v.size, {})}; ++{v.name})")
        for k, p in enumerate(spec.phases):
            self._row_phase(k, p, split=False)
        for _ in serial:
            self.close()
        self.close()
        self.close("});")

    def _imports(self, phase: Phase, tag: str) -> dict[Op, Value]:
        """Values of earlier phases that this phase uses, splat to its lanes."""
        own = set(phase.ops)
        out: dict[Op, Value] = {}
        wanted: list[Op] = []
        for op in phase.ops:
            if op.name == "item" and op in self.values:
                wanted.append(op)
                continue
            wanted += [a for a in op.operands() if a not in own]
            for e in op.exprs():
                wanted += [self.symbols[s] for s in e.syms if s in self.symbols and self.symbols[s] not in own]
        for op in dict.fromkeys(wanted):
            if op in self.values:
                text = f"{self.values[op].text}_{tag}"
                self.put(
                    f"const {vector_type(op.dtype)} {text} = splat<{vector_type(op.dtype)}>(first({self.values[op].text}));"  # noqa: E501
                )
                out[op] = Value(text, "one")
        return out

    def _row_phase(self, number: int, phase: Phase, split: bool) -> None:
        tag = f"p{number}"
        outer_values = dict(self.values)
        reductions = [op for op in phase.ops if op.name == "reduction"]
        self.put(f"// phase {number}")
        accs: dict[Op, str] = {}
        if not phase.loops:
            imported = self._imports(phase, tag)
            self.values.update(imported)
            for op in phase.ops:
                self._emit(op, lanes="1", base=None, accs={}, leave="return;" if self.spec.loops else "return err;")
            for op in imported:
                self.values[op] = outer_values[op]
            return
        vec = self._phase_vector_loop(phase)
        others = [v for v in phase.loops if v is not vec]
        unroll = 4 if reductions and len(phase.ops) <= 10 and not any(o.name in EXPENSIVE for o in phase.ops) else 1
        for op in reductions:
            accs[op] = f"acc{len(self.values)}_{len(accs)}_{tag}"
        parts = split and reductions and not others
        vec_size = marked_index(vec.size, {})
        leave = "return;"
        if parts:
            for op in reductions:
                self.put(f"constexpr int most_{accs[op]} = 64;")
                self.put(f"{self._acc_type(op, unroll)} {accs[op]}_parts[64];")
            first = accs[reductions[0]]
            size = f"chunk_{first}"
            self.put(f"const i64 want_{first} = ({vec_size} + {_SPLIT_REDUCTION - 1}) / {_SPLIT_REDUCTION};")
            self.put(f"const i64 count_{first} = imax(1, imin(64, want_{first}));")
            self.put(f"const i64 {size} = ((({vec_size}) + count_{first} - 1) / count_{first} + N - 1) / N * N;")
            self.open(f"parallel(count_{first}, {size} * 4, 1, [&](i64 lo, i64 hi)")
            self.open("for (i64 it = lo; it < hi; ++it)")
            for op in reductions:  # a local one stays in registers
                self.put(f"{self._acc_type(op, unroll)} {accs[op]};")
            lo, hi = f"it * {size}", f"imin((it + 1) * {size}, {vec_size})"
            self.values.update(self._imports(phase, tag))
        elif split and not reductions and all(v.kind == "parallel" for v in phase.loops):
            work = marked_index(product(v.size for v in others) * max(1, len(phase.ops)), {})
            self.open(f"parallel({vec_size}, {work}, 1024, [&](i64 lo_, i64 hi_)")
            lo, hi = "lo_", "hi_"
            self.values.update(self._imports(phase, tag))
        else:
            for op in reductions:
                self.put(f"{self._acc_type(op, unroll)} {accs[op]};")
            for op in phase.ops:
                if op.name == "scan":
                    accs[op] = f"scan{len(accs)}_{tag}"
                    self.put(f"row_scan<{vector_type(op.dtype)}, join_{op.args[1]}> {accs[op]};")
            self.open("" if self.lines else "")
            lo, hi = "0", vec_size
            leave = "return;" if self.spec.loops and not split else "return err;"
            self.values.update(self._imports(phase, tag))
        inner_names = {v.name for v in phase.loops}
        done: set[Op] = set()
        self._hoist(phase, done, lambda d: not (d & inner_names), leave)
        for v in others:
            self.open(f"for (i64 {v.name} = 0; {v.name} < {marked_index(v.size, {})}; ++{v.name})")
        self._hoist(phase, done, lambda d: vec.name not in d, leave)
        rest = [op for op in phase.ops if op not in done]
        if reductions:
            self.open(
                f"vloop<N, {unroll}>({lo}, {hi}, [&](i64 {vec.name}, auto c, auto u) __attribute__((always_inline))"
            )
        else:
            self.open(f"vloop<N>({lo}, {hi}, [&](i64 {vec.name}, auto c) __attribute__((always_inline))")
        for op in rest:
            self._emit(op, lanes="c", base=vec.name, accs=accs, leave="return;")
        spill = ", [&] { " + " ".join(f"{accs[op]}.spill();" for op in reductions) + " }" if reductions else ""
        self.close("}" + spill + ");")
        for _ in others:
            self.close()
        if parts:
            for op in reductions:
                self.put(f"{accs[op]}_parts[it] = {accs[op]};")
            self.close()
            self.close("});")
            for op in reductions:
                a = accs[op]
                self.put(f"{self._acc_type(op, unroll)}& {a} = {a}_parts[0];")
                self.put(f"for (i64 k = 1; k < count_{accs[reductions[0]]}; ++k) {a}.merge({a}_parts[k]);")
            self.put("if (err) return err;")
        elif split and not reductions and all(v.kind == "parallel" for v in phase.loops):
            self.close("});")
            self.put("if (err) return err;")
        else:
            self.close()
        # only reductions live on
        self.values = outer_values
        for op in reductions:
            self._finish_scalar(op, accs[op])

    def _hoist(self, phase: Phase, done: set[Op], can_hoist, leave: str) -> None:
        """Emits the ops of `phase` that `can_hoist` (a test of their dependences) allows before the loop that
        follows."""
        for op in phase.ops:
            if op in done or op.name in ("store", "reduction", "scan", "item") or not can_hoist(self.deps[op]):
                continue
            if any(a in phase.ops and a not in done for a in op.operands()):
                continue
            self._emit(op, lanes="all_lanes{}", base=None, accs={}, leave=leave)
            done.add(op)

    def _finish_scalar(self, op: Op, acc: str) -> None:
        kind = op.args[1]
        name = f"r{len(self.values)}_{acc}"
        t = LANE[op.dtype]
        items = self._items(op)
        if kind == "welford":
            self.put(f"{t} {name}_0, {name}_1, {name}_2; {acc}.reduce({name}_0, {name}_1, {name}_2);")
        elif kind == "softmax_stats":
            self.put(f"{t} {name}_0, {name}_1; {acc}.reduce({name}_0, {name}_1);")
        elif kind in ("argmax", "argmin"):
            self.put(f"const i64 {name} = {acc}.index();")
        elif kind in ("max_with_index", "min_with_index"):
            self.put(f"const {t} {name}_0 = {acc}.result(); const i64 {name}_1 = {acc}.index();")
        else:
            self.put(f"const {t} {name} = {acc}.result();")
        self.values[op] = Value(name, "one")
        for k, its in items.items():
            for it in its:
                self.values[it] = Value(f"{name}_{k}", "one")

    def _items(self, op: Op) -> dict[int, list[Op]]:
        out: dict[int, list[Op]] = {}
        for other in self.spec.ops():
            if other.name == "item" and other.args[0] is op:
                out.setdefault(other.args[1], []).append(other)
        return out

    def _acc_type(self, op: Op, unroll: int) -> str:
        kind = op.args[1]
        v = vector_type(op.args[0].dtype)
        if kind == "sum":
            return f"sum_acc<{vector_type(op.dtype)}, {unroll}>"
        if kind in ("any", "all"):
            return f"fold_acc<op_{kind}<mask<N>>, mask<N>, {unroll}>"
        if kind in ("prod", "max", "min", "xor"):
            name = kind
            if op.dtype is torch.bool:
                name = {"max": "any", "min": "all", "prod": "all"}.get(kind, kind)
            v = vector_type(op.dtype)
            if name in ("max", "min") and op.dtype.is_floating_point:
                return f"extreme_acc<{v}, {'true' if name == 'max' else 'false'}, {unroll}>"
            return f"fold_acc<op_{name}<{v}>, {v}, {unroll}>"
        if kind in ("argmax", "argmin", "max_with_index", "min_with_index"):
            small = op.args[2].name == "index_expr" and op.args[2].args[0].hi < (1 << 31) - 1
            flags = ("max" in kind, small, self._visits_in_order(op))
            return f"arg_acc<{v}, {', '.join('true' if flag else 'false' for flag in flags)}>"
        return {"welford": f"welford_acc<{v}>", "softmax_stats": f"softmax_acc<{v}>"}[kind]

    def _visits_in_order(self, op: Op) -> bool:
        """Do the loops run through the positions of an argmax in increasing order? Not where they follow the memory of
        a transposed tensor: of equal values the first by position is then not the first met."""
        if op.args[2].name != "index_expr":
            return False
        loops = next(p for p in self.spec.phases if op in p.ops).loops
        steps = [(self._stride(op.args[2].args[0], v.name), v.size) for v in loops]
        steps = [(step, size) for step, size in steps if step is None or step != 0]
        reach = 1
        for step, size in reversed(steps):
            if step is None or not step.is_const or int(step) < reach:
                return False
            reach = int(step) * int(size) if size.is_const else sys.maxsize
        return bool(steps)

    # column mode ---------------------------------------------------------------------------------------------

    def _transposed_loop(self) -> LoopVar | None:
        """Another parallel outer loop along which some accesses are contiguous that are strided along the
        vectorised one: both are then
        cut into tiles, so that every cache line is used whole while it is near."""
        spec, vec = self.spec, self.vector_loop
        if vec is None or vec.kind != "parallel" or any(p.loops for p in spec.phases):
            return None
        if any(b.role == "scratch" for b in spec.buffers):
            return None
        for op in spec.ops():
            if op.name not in ("load", "store") or self._stride(op.args[1], vec.name) in (None, 0, 1):
                continue
            for v in spec.loops:
                if v is not vec and v.kind == "parallel" and v.size.hi >= 8 and self._stride(op.args[1], v.name) == 1:
                    return v
        return None

    def _write_column(self) -> None:
        spec = self.spec
        vec = self.vector_loop
        other = self._transposed_loop()
        outer = [v for v in spec.loops if v is not vec and v is not other and v.kind == "parallel"]
        serial = [v for v in spec.loops if v is not vec and v.kind != "parallel"]
        per_item = self._work() * product(v.size for v in serial)
        count = " * ".join(["i64(1)"] + [f"({marked_index(v.size, {})})" for v in outer])
        if vec is None:
            self.put(f"const i64 total_ = {count};")
            self.open(f"parallel(total_, {marked_index(per_item, {})}, 1, [&](i64 lo, i64 hi)")
            self._scratch("N")
            self._flat_loops(outer, [])
        else:
            self._open_blocks(vec, other, outer, count, per_item)
        for v in serial:
            self.open(f"for (i64 {v.name} = 0; {v.name} < {marked_index(v.size, {})}; ++{v.name})")
        done: set[Op] = set()
        start = "block_ * width_"
        stop = f"imin((block_ + 1) * width_, {marked_index(vec.size, {})})" if vec is not None else ""
        if other is not None and vec is not None:
            self.put(f"const i64 from_ = tile_ * {TILE}, to_ = imin(from_ + {TILE}, {marked_index(other.size, {})});")
            self.put(f"const i64 start_ = {start}, stop_ = {stop};")
            start, stop = "start_", "stop_"
            self.tiles = find_tiles(self, vec, other)
            self.tile_at = f"({other.name} - from_) * ({WIDE} * N) + ({vec.name} - start_)"
            self.ahead, self.fetch = far_ahead(self, vec, other), "far_ahead"
            declare_tiles(self)
            move_tiles(self, vec, other, start, stop, "load")
            self.open(f"for (i64 {other.name} = from_; {other.name} < to_; ++{other.name})")
        if vec is not None:
            if len(spec.phases) == 1 and not spec.phases[0].loops:
                self._hoist(spec.phases[0], done, lambda d: vec.name not in d, "return;")
            single = len(spec.phases) == 1 and other is None and not any(b.role == "scratch" for b in spec.buffers)
            stages = plan_stages(self, spec.phases[0], vec, done) if single else []
            if not stages:
                self.open(f"vloop<N>({start}, {stop}, [&](i64 {vec.name}, auto c) __attribute__((always_inline))")
            lanes, base = "c", vec.name
        else:
            stages = []
            lanes, base = ("all_lanes{}", None) if self.lanes == 1 else ("1", None)
        if stages and vec is not None:
            write_stages(self, stages, vec, start, stop)
        else:
            for k, p in enumerate(spec.phases):
                self._column_phase(k, p, lanes, base, done)
            if vec is not None:
                self.close("});")
        if other is not None and vec is not None:
            self.close()
            move_tiles(self, vec, other, start, stop, "store")
        for _ in serial:
            self.close()
        self.close()
        self.close("});")

    def _open_blocks(
        self, vec: LoopVar, other: LoopVar | None, outer: list[LoopVar], count: str, per_item: Expr
    ) -> None:
        """Opens the shared loop over outer iterations and blocks of the vectorised loop (and tiles of the
        transposed one)."""
        size = marked_index(vec.size, {})
        if any(p.loops for p in self.spec.phases):
            width = 4 * self.lanes
        else:
            width = max(self.lanes, 8192 // self.lanes * self.lanes if other is None else WIDE * self.lanes)
        if vec.kind == "parallel":
            self.put(f"const i64 width_ = {width}, blocks_ = ({size} + width_ - 1) / width_;")
        else:
            self.put(f"const i64 width_ = imax(1, {size}), blocks_ = {size} > 0;")
        blocks, tile_work = [("block_", "blocks_")], "1"
        if other is not None:
            self.put(f"const i64 tiles_ = ({marked_index(other.size, {})} + {TILE - 1}) / {TILE};")
            blocks, tile_work, count = [*blocks, ("tile_", "tiles_")], str(TILE), f"{count} * tiles_"
        self.put(f"const i64 total_ = {count} * blocks_;")
        self.open(
            f"parallel(total_, {marked_index(per_item, {})} * {tile_work} * imin(width_, {size}), 1, [&](i64 lo, i64 hi)"  # noqa: E501
        )
        self._scratch("N")
        self._flat_loops(outer, blocks)

    def _column_phase(self, number: int, phase: Phase, lanes: str, base: str | None, done: set[Op]) -> None:
        self.put(f"// phase {number}")
        if not phase.loops:
            for op in phase.ops:
                if op not in done:
                    self._emit(op, lanes=lanes, base=base, accs={}, leave="return;")
            return
        outer_values = dict(self.values)
        accs = {op: f"acc{k}_p{number}" for k, op in enumerate(o for o in phase.ops if o.name in ("reduction", "scan"))}
        for op, a in accs.items():
            self.put(f"{self._acc_type(op, 1) if op.name == 'reduction' else self._scan_type(op)} {a};")
        self.open("")
        inner = {v.name for v in phase.loops}
        local: set[Op] = set()
        self._hoist_column(phase, local, inner, lanes, base)
        spills = [
            a for op, a in accs.items() if op.name == "reduction" and op.args[1] == "sum" and op.dtype.is_floating_point
        ]
        for v in phase.loops:
            self.open(f"for (i64 {v.name} = 0; {v.name} < {marked_index(v.size, {})}; ++{v.name})")
        for op in phase.ops:
            if op not in local:
                self._emit(op, lanes=lanes, base=base, accs=accs, leave="return;", full_push=True)
        if spills:
            last = phase.loops[-1].name
            self.put(f"if (({last} & 127) == 127) {{ " + " ".join(f"{a}.spill();" for a in spills) + " }")
        for _ in phase.loops:
            self.close()
        self.close()
        self.values = outer_values
        for op, a in accs.items():
            if op.name == "reduction":
                self._finish_lanes(op, a)

    def _hoist_column(self, phase: Phase, local: set[Op], inner: set[str], lanes: str, base: str | None) -> None:
        for op in phase.ops:
            if op.name in ("store", "reduction", "scan", "item", "check") or self.deps[op] & inner:
                continue
            if any(a in phase.ops and a not in local for a in op.operands()):
                continue
            if op.name == "load" and any(o.name == "check" for o in phase.ops):
                continue
            self._emit(op, lanes=lanes, base=base, accs={}, leave="return;")
            local.add(op)

    def _scan_type(self, op: Op) -> str:
        kind, v = op.args[1], vector_type(op.dtype)
        if kind in ("cummax", "cummin"):
            v = vector_type(op.args[0].dtype)
            return f"scan_extreme<{v}, {'true' if kind == 'cummax' else 'false'}>"
        return f"scan_{kind}<{v}>"

    def _finish_lanes(self, op: Op, acc: str) -> None:
        kind = op.args[1]
        name = f"r{len(self.values)}_{acc}"
        v = vector_type(op.dtype)
        vi = "vec<i64, N>"
        if kind == "welford":
            self.put(f"{acc}.flush(); const {v} {name}_0 = {acc}.mean, {name}_1 = {acc}.m2, {name}_2 = {acc}.weight;")
        elif kind == "softmax_stats":
            self.put(f"{v} {name}_0, {name}_1; {acc}.lanes_results({name}_0, {name}_1);")
        elif kind in ("argmax", "argmin"):
            self.put(f"const {vi} {name} = {acc}.lanes_index();")
        elif kind in ("max_with_index", "min_with_index"):
            self.put(f"const {v} {name}_0 = {acc}.lanes_result(); const {vi} {name}_1 = {acc}.lanes_index();")
        else:
            self.put(f"const {v} {name} = {acc}.lanes_result();")
        self.values[op] = Value(name, "lanes")
        for k, its in self._items(op).items():
            for it in its:
                self.values[it] = Value(f"{name}_{k}", "lanes")


_WRAPPING = frozenset(
    "load store constant add sub mul neg square bitwise_and bitwise_or bitwise_xor bitwise_not".split()
)
_NARROW = frozenset({torch.uint8, torch.int8, torch.int16, torch.uint16})


def _narrow_element(spec: KernelSpec) -> torch.dtype | None:
    """The one dtype of a pointwise kernel of narrow integers whose ops wrap around by themselves: it needs no lanes of
    32 bits."""
    dtypes = {op.dtype for op in spec.ops()} | {b.dtype for b in spec.buffers}
    plain = all(
        op.name in _WRAPPING
        and (op.name != "load" or op.args[2] is None)
        and (op.name != "store" or op.args[3:] == (None, None))
        for op in spec.ops()
    )
    alone = len(dtypes) == 1 and len(spec.phases) == 1 and not spec.phases[0].loops
    return next(iter(dtypes)) if plain and alone and dtypes <= _NARROW else None


def write_kernel(spec: KernelSpec, name: str, vector_bytes: int) -> str:
    """The C++ function of `spec`, called `name`."""
    return KernelWriter(spec, name, vector_bytes).write().translate(_UNMARK)


def write_template(spec: KernelSpec, name: str, vector_bytes: int) -> str:
    """The same with the numbers marked that could as well be arguments (see `c_index`)."""
    return KernelWriter(spec, name, vector_bytes).write()


_UNMARK = {1: None, 2: None}

__all__ = ["KernelWriter", "MULTI_RESULT", "c_index", "write_kernel", "write_template"]
