"""Writes the body of a Triton function: ops of a `KernelSpec` as Triton expressions over blocks."""

from __future__ import annotations

from typing import Any

import torch

from ..index import ONE, Expr, product, substitute, symbol, to_expr
from ..ops import MULTI_RESULT, Op
from .kernel import KernelSpec, LoopVar, Phase
from .triton_launch import CannotGenerate
from .triton_ops import BYTES, COMBINE, NEUTRAL, QUICK_ROWS, ROWS, TL_DTYPE, from_memory, literal, to_memory


class Axis:
    """A block axis: some loops of the kernel flattened, last loop fastest."""

    def __init__(self, name: str, loops: tuple[LoopVar, ...]) -> None:
        self.name = name
        self.loops = loops
        self.size = product(v.size for v in loops)
        self.index = symbol(f"{name}index", self.size)
        self.mapping: dict[str, Expr] = {}
        stride = ONE
        for k in range(len(loops) - 1, -1, -1):
            e = self.index // stride
            self.mapping[loops[k].name] = e if k == 0 else e % loops[k].size
            stride = stride * loops[k].size

    @property
    def static(self) -> int | None:
        return int(self.size) if self.size.is_const else None


def print_index(e: Expr, names: dict[str, str]) -> str:
    """Triton source of an index expression (Triton's // and % round towards zero, so signs matter)."""
    op, args = e.op, e.args
    if op == "const":
        return str(args[0])
    if op == "sym":
        return names.get(args[0], args[0])
    texts = [print_index(a, names) for a in args]
    if op == "add":
        return "(" + " + ".join(texts) + ")"
    if op == "mul":
        return "(" + " * ".join(texts) + ")"
    if op in ("floordiv", "mod"):
        if args[0].lo >= 0:
            return f"({texts[0]} {'//' if op == 'floordiv' else '%'} {texts[1]})"
        return f"lm.{'floordiv_int' if op == 'floordiv' else 'remainder_int'}({texts[0]}, {texts[1]})"
    return f"tl.{'minimum' if op == 'min' else 'maximum'}({texts[0]}, {texts[1]})"


class Emitter:
    """Writes the body of one launch."""

    def __init__(self, spec: KernelSpec, axes: list[Axis], shape: list[str], wide: bool) -> None:
        self.spec = spec
        self.lines: list[str] = []
        self.depth = 1
        self.axes = axes  # outer axes; the phase's own axis is added by `enter`
        self.inner: Axis | None = None
        self.shape = shape  # constexpr names of the block's dimensions
        self.wide = wide
        self.kept: dict[Op, str] = {}  # values visible in all later phases
        self.local: dict[Op, str] = {}  # values of the phase (or loop body) being written
        self.deps: dict[Op, frozenset[str]] = {}
        self.names: dict[str, str] = {}  # indirect symbols
        self.symbol_deps: dict[str, frozenset[str]] = {f"{a.name}index": frozenset((a.name,)) for a in axes}
        self.mapping: dict[str, Expr] = {}
        for a in axes:
            self.mapping.update(a.mapping)
        self.scratch: dict[str, Op] = {}
        self.stored: set[str] = set()
        self.counter = 0
        self.checks = False
        self.unmasked: set[str] = set()
        self.loaded: dict[tuple, str] = {}
        self.pending: dict[Op, list[str]] = {}  # values of running softmaxes that are not yet added
        written = [b.dtype for b in spec.arguments if b.role != "in" and b.dtype.is_floating_point]
        self.mask_names: dict[str, str] = {}  # of axes whose index has another shape for the moment
        self.quick = bool(written) and all(d in (torch.float16, torch.bfloat16) for d in written)
        self.keep_half = False  # half-precision values are wanted as they lie in memory
        self.step: str | None = None  # one over the number of this step, in loops where that is a scalar

    def write(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, text: str, prefix: str = "t") -> str:
        name = f"{prefix}{self.counter}"
        self.counter += 1
        self.write(f"{name} = {text}")
        return name

    def enter(self, axis: Axis | None, keep: bool = False) -> None:
        """Begin a phase over `axis` (None: no inner loops). `keep`: what was loaded stays in registers."""
        self.inner = axis
        self.local = {}
        if not keep:
            self.loaded = {}
        if axis is not None:
            self.mapping.update(axis.mapping)
            self.symbol_deps[f"{axis.name}index"] = frozenset((axis.name,))

    # -------------------------------------------------------------------------------------------- index text
    def index(self, e: Expr | int) -> tuple[str, frozenset[str]]:
        """(text, axes it depends on) of an index expression of the spec."""
        e = substitute(to_expr(e), self.mapping)
        deps = frozenset().union(*(self.symbol_deps.get(s, frozenset()) for s in e.syms)) if e.syms else frozenset()
        return print_index(e, self.names), deps

    def mask(self, deps: frozenset[str], extra: str | None = None) -> str | None:
        parts = [self.mask_names.get(a, f"{a}mask") for a in sorted(deps) if a not in self.unmasked]
        if extra is not None:
            parts.append(extra)
        return " & ".join(parts) if parts else None

    def full(self, text: str) -> str:
        """`text` broadcast to the whole block."""
        return f"tl.broadcast_to({text}, [{', '.join(self.shape)}])"

    def spread(self, index: str) -> str:
        """An index that may be a scalar, as a whole block."""
        return f"({index} + tl.zeros([{', '.join(self.shape)}], tl.int32))"

    # -------------------------------------------------------------------------------------------- values
    def value(self, a: Any) -> str:
        if isinstance(a, Op):
            text = self.local.get(a) or self.kept.get(a)
            if text is None:
                text = self.emit(a, again=True)
            return text
        raise CannotGenerate(f"operand {a!r} of a kernel op is not a value")

    def axes_of(self, op: Op) -> frozenset[str]:
        found = self.deps.get(op)
        if found is None:
            if op.name in ("load", "index_expr"):
                found = self.index(op.args[1] if op.name == "load" else op.args[0])[1]
                if op.name == "load" and op.args[0] in self.scratch:
                    found |= self.axes_of(self.scratch[op.args[0]])
            else:
                found = frozenset()
            for o in op.operands():
                found |= self.axes_of(o)
            if op.name in ("reduction",):
                found -= {"r"}
            self.deps[op] = found
        return found

    def emit(self, op: Op, again: bool = False) -> str:
        """Write one op that has a value; returns its text. `again`: an op of an earlier phase, computed once more."""
        name = op.name
        if again and name in ("reduction", "scan", "store"):
            raise CannotGenerate(f"the result of a {name} is used in a phase that cannot see it")
        if name == "load":
            text = self.load(op)
        elif name == "constant":
            text = f"tl.full([{', '.join('1' for _ in self.shape)}], {literal(op.args[0])}, {TL_DTYPE[op.dtype]})"
            text = self.fresh(text)
        elif name == "index_expr":
            index, deps = self.index(op.args[0])
            if not deps:
                index = f"(tl.zeros([{', '.join('1' for _ in self.shape)}], tl.int64) + {index})"
            text = self.fresh(f"({index}).to({TL_DTYPE[op.dtype]})")
        elif name == "indirect":
            text = self.value(op.args[0])
            self.names[op.args[1]] = text
            self.symbol_deps[op.args[1]] = self.axes_of(op)
        elif name == "item":
            base = self.value(op.args[0])
            text = f"{base}_{op.args[1]}"
        else:
            row = QUICK_ROWS.get(name) if self.quick and op.dtype == torch.float32 else None
            row = row or ROWS.get(name)
            if row is None:
                raise CannotGenerate(f"no Triton expression for the op {name}")
            text = self.fresh(row(op, *[self.value(o) for o in op.operands()]))
            if op.dtype == torch.bool and name in ("to_dtype", "where"):
                text = self.fresh(f"{text}.to(tl.int1)")
        self.local[op] = text
        return text

    def prefetch(self, phase: Phase) -> None:
        """Read what a phase loads at places that do not depend on data."""
        for op in phase.ops:
            if op.name != "load" or op.args[2] is not None or self.spec.buffer(op.args[0]).role != "in":
                continue
            if substitute(to_expr(op.args[1]), self.mapping).syms <= self.plain_symbols:
                self.load(op)

    @property
    def plain_symbols(self) -> frozenset[str]:
        """Symbols of block axes and sizes: everything but values read from memory."""
        return frozenset({*(f"{a.name}index" for a in self.axes), "rindex", *self.spec.sizes})

    def load(self, op: Op) -> str:
        buffer, expr, mask = op.args
        if buffer in self.scratch:
            store = self.scratch[buffer]
            if substitute(to_expr(store.args[1]), self.mapping) != substitute(to_expr(expr), self.mapping):
                raise CannotGenerate(f"{buffer} is read at another place than it was written")
            return self.value(store.args[2])
        if buffer in self.stored and self.spec.buffer(buffer).role == "inout" and op not in self.local:
            owner = self.inner
            if owner is not None and any(op in p.ops for p in self.spec.phases) and self._written_before(buffer, op):
                raise CannotGenerate(f"{buffer} would be read again after it was overwritten")
        index, deps = self.index(expr)
        extra = self.value(mask) if mask is not None else None
        key = (buffer, index, extra)
        found = self.loaded.get(key)
        if found is not None:
            return found
        if extra is not None:
            deps = frozenset(a.name for a in self.axes) | ({"r"} if self.inner is not None else frozenset())
            index = self.spread(index)
        cond = self.mask(deps, extra)
        dtype = self.spec.buffer(buffer).dtype
        text = f"tl.load({buffer} + {index}" + (f", {cond}, other=0)" if cond else ")")
        if dtype == torch.bool:
            text += ".to(tl.int1)"
        elif dtype in BYTES or not self.keep_half:
            text = from_memory(text, dtype)
        found = self.fresh(text)
        if op.args[0] not in self.stored and self.spec.buffer(buffer).role == "in":
            self.loaded[key] = found
        return found

    def _written_before(self, buffer: str, op: Op) -> bool:
        """True if an earlier phase than the one being written stores to `buffer`."""
        for p in self.spec.phases:
            if op in p.ops:
                return False
            if any(o.name == "store" and o.args[0] == buffer for o in p.ops):
                return True
        return False

    def store(self, op: Op, in_registers: bool) -> None:
        buffer, expr, value, mode, mask = op.args
        role = self.spec.buffer(buffer).role
        if role == "scratch":
            self.scratch[buffer] = op
            self.value(value)
            if in_registers:
                self.kept[value] = self.value(value)
            return
        text = self.value(value)
        index, _ = self.index(expr)
        deps = frozenset(a.name for a in self.axes) | ({"r"} if self.inner is not None else frozenset())
        cond = self.mask(deps, self.value(mask) if mask is not None else None)
        dtype = self.spec.buffer(buffer).dtype
        if dtype != op.args[2].dtype or dtype == torch.bool:
            text = to_memory(text, dtype)
        shape = self.shape if self.inner is not None else [*self.shape[:-1], "1"] if self._row_block() else self.shape
        where = f"({index} + tl.zeros([{', '.join(shape)}], tl.int32))"
        text = f"tl.broadcast_to({text}, [{', '.join(shape)}])"
        tail = f", {cond}" if cond else ""
        if mode is None:
            self.write(f"tl.store({buffer} + {where}, {text}{tail})")
        elif mode in ("add", "min", "max"):
            self.write(f"tl.atomic_{mode}({buffer} + {where}, {text}, {cond or 'None'}, sem='relaxed')")
        else:
            raise CannotGenerate(f"stores that {mode} are not atomic on the device")
        self.stored.add(buffer)

    def _row_block(self) -> bool:
        """True if blocks are rows by inner range, so that values outside inner loops are columns."""
        return len(self.shape) == 2 and self.shape[-1] == "RBLOCK"

    def check(self, op: Op) -> None:
        condition, message, _kind, *mask = op.args
        cond = self.value(condition)
        guard = self.mask(self.axes_of(op), self.value(mask[0]) if mask and mask[0] is not None else None)
        self.write(f"tl.device_assert({cond}, {message!r}" + (f", {guard})" if guard else ")"))
        self.checks = True

    # -------------------------------------------------------------------------------------------- reductions
    def accumulators(self, op: Op) -> list[tuple[str, Any, torch.dtype]]:
        """(name suffix, initial value, dtype) of what a reduction carries through a loop."""
        kind, dtype = op.args[1], op.dtype
        source = op.args[0].dtype
        if kind == "welford":
            return [("_0", 0.0, dtype), ("_1", 0.0, dtype), ("_2", 0.0, dtype)]
        if kind == "softmax_stats":
            return [("_0", float("-inf"), dtype), ("_1", 0.0, dtype)]
        if kind in ("argmax", "argmin"):
            return [("_0", NEUTRAL[kind](source), source), ("_1", torch.iinfo(torch.int64).max, torch.int64)]
        if kind in ("max_with_index", "min_with_index"):
            return [("_0", NEUTRAL[kind](dtype), dtype), ("_1", torch.iinfo(torch.int64).max, torch.int64)]
        return [("", NEUTRAL[kind](dtype), dtype)]

    def _masked_value(self, op: Op, neutral: Any, dtype: torch.dtype) -> str:
        text = self.full(self.value(op.args[0]))
        if op.args[1] in ("any", "all"):
            text = f"({text} != 0)"
        cond = self.mask(frozenset({"r"}))
        if cond is None:
            return self.fresh(text)
        other = f"tl.full([1, 1], {literal(neutral)}, {TL_DTYPE[dtype]})"
        return self.fresh(f"tl.where({cond}, {text}, {other})")

    def combine_name(self, kind: str, dtype: torch.dtype) -> str:
        name = COMBINE[kind]
        if kind in ("max", "min") and not dtype.is_floating_point:
            return (
                "either" if dtype == torch.bool and kind == "max" else "both" if dtype == torch.bool else f"{name}_int"
            )
        return name

    def start(self, op: Op) -> None:
        """Open the accumulators of a reduction before its loop."""
        name = f"a{self.counter}"
        self.counter += 1
        self.kept[op] = name
        for suffix, init, dtype in self.accumulators(op):
            self.write(f"{name}{suffix} = tl.full([{', '.join(self.shape)}], {literal(init)}, {TL_DTYPE[dtype]})")

    def update(self, op: Op) -> None:
        """Add the current block to the accumulators."""
        name, kind = self.kept[op], op.args[1]
        if kind == "welford":
            v = self.fresh(self.full(self.value(op.args[0])))
            cond = self.mask(frozenset({"r"}))
            if cond is None and self.step is not None:  # every element of the block has taken part equally often
                d = self.fresh(f"{v} - {name}_0")
                self.write(f"{name}_0 = {name}_0 + {d} * {self.step}")
                self.write(f"{name}_1 = {name}_1 + {d} * ({v} - {name}_0)")
                return
            take = (lambda new, old: f"tl.where({cond}, {new}, {old})") if cond else (lambda new, old: new)
            n = self.fresh(f"{name}_2 + 1.0")
            d = self.fresh(f"{v} - {name}_0")
            mean = self.fresh(f"{name}_0 + {d} / {n}")
            self.write(f"{name}_1 = " + take(f"{name}_1 + {d} * ({v} - {mean})", f"{name}_1"))
            self.write(f"{name}_0 = " + take(mean, f"{name}_0"))
            self.write(f"{name}_2 = " + take(n, f"{name}_2"))
            return
        accs = self.accumulators(op)
        v = self._masked_value(op, accs[0][1], accs[0][2])
        if kind == "softmax_stats":
            self.pending.setdefault(op, []).append(v)
        elif len(accs) == 2:
            index = self._masked_index(op)
            self.write(f"{name}_0, {name}_1 = lm.{COMBINE[kind]}({name}_0, {name}_1, {v}, {index})")
        elif kind == "sum":
            self.write(f"{name} = {name} + {v}")
        else:
            self.write(f"{name} = lm.{self.combine_name(kind, op.dtype)}({name}, {v})")

    def merge_stats(self) -> None:
        """Add the values that were read for each running softmax: the sum so far is rescaled once for all of them."""
        for op, values in self.pending.items():
            name = self.kept[op]
            m = f"{name}_0"
            for v in values:
                m = self.fresh(f"lm.maximum({m}, {v})")
            safe = self.fresh(f"tl.where({m} == float('-inf'), 0.0, {m})")
            # the hardware's exponential: its error grows with distance from the maximum, where terms no longer count
            terms = " + ".join(f"tl.exp({v} - {safe})" for v in values)
            self.write(f"{name}_1 = {name}_1 * tl.exp({name}_0 - {safe}) + ({terms})")
            self.write(f"{name}_0 = {m}")
        self.pending = {}

    def _masked_index(self, op: Op) -> str:
        index = self.full(f"{self.value(op.args[2])}.to(tl.int64)")
        cond = self.mask(frozenset({"r"}))
        return self.fresh(f"tl.where({cond}, {index}, {torch.iinfo(torch.int64).max})" if cond else index)

    def finish(self, op: Op) -> None:
        """Reduce the accumulators over the block's inner dimension: values of shape [XBLOCK, 1]."""
        name, kind = self.kept[op], op.args[1]
        out = f"r{self.counter}"
        self.counter += 1
        if kind == "welford":
            self.write(f"{out}_2 = tl.sum({name}_2, 1)")
            self.write(f"{out}_0 = tl.sum({name}_0 * {name}_2, 1) / tl.where({out}_2 == 0.0, 1.0, {out}_2)")
            d = self.fresh(f"{name}_0 - {out}_0[:, None]")
            self.write(f"{out}_1 = tl.sum({name}_1 + {d} * {d} * {name}_2, 1)")
            parts = 3
        elif kind == "softmax_stats":
            self.write(f"{out}_0 = tl.reduce({name}_0, 1, lm.maximum)")
            safe = self.fresh(f"tl.where({out}_0 == float('-inf'), 0.0, {out}_0)")
            self.write(f"{out}_1 = tl.sum({name}_1 * lm.exp({name}_0 - {safe}[:, None]), 1)")
            parts = 2
        elif len(self.accumulators(op)) == 2:
            self.write(f"{out}_0, {out}_1 = tl.reduce(({name}_0, {name}_1), 1, lm.{COMBINE[kind]})")
            parts = 2
        else:
            self.close_single(op, name, out)
            self.kept[op] = out
            return
        for k in range(parts):
            self.write(f"{out}_{k} = {out}_{k}[:, None]")
        self.kept[op] = f"{out}_1" if kind in ("argmax", "argmin") else out

    def close_single(self, op: Op, name: str, out: str) -> None:
        kind = op.args[1]
        if kind == "sum":
            self.write(f"{out} = tl.sum({name}, 1)[:, None]")
        elif kind in ("any", "all"):
            call = "tl.max" if kind == "any" else "tl.min"
            self.write(f"{out} = ({call}({name}.to(tl.int32), 1) != 0)[:, None]")
        else:
            self.write(f"{out} = tl.reduce({name}, 1, lm.{self.combine_name(kind, op.dtype)})[:, None]")

    def reduce_now(self, op: Op) -> None:
        """A reduction whose whole range is in the block."""
        kind = op.args[1]
        if kind == "welford":
            # two passes over registers: exact where the running formula rounds
            v = self.fresh(self.full(self.value(op.args[0])))
            cond = self.mask(frozenset({"r"}))
            n = self.inner.size if self.inner is not None else ONE
            count, _ = self.index(n)
            out = f"r{self.counter}"
            self.counter += 1
            part = f"tl.where({cond}, {v}, 0.0)" if cond else v
            self.write(f"{out}_2 = tl.full([1, 1], {count}, {TL_DTYPE[op.dtype]})")
            self.write(f"{out}_0 = (tl.sum({part}, 1) / {count})[:, None]")
            d = self.fresh(f"{v} - {out}_0")
            sq = f"tl.where({cond}, {d} * {d}, 0.0)" if cond else f"{d} * {d}"
            self.write(f"{out}_1 = tl.sum({sq}, 1)[:, None]")
            self.kept[op] = out
            return
        name = f"a{self.counter}"
        self.counter += 1
        accs = self.accumulators(op)
        v = self._masked_value(op, accs[0][1], accs[0][2])
        self.kept[op] = name
        if kind == "softmax_stats":
            self.write(f"{name}_0 = {v}")
            self.write(f"{name}_1 = tl.where({v} == float('-inf'), 0.0, {v} * 0.0 + 1.0)")
        elif len(accs) == 2:
            self.write(f"{name}_0 = {v}")
            self.write(f"{name}_1 = {self._masked_index(op)}")
        else:
            self.write(f"{name} = {v}")
        self.finish(op)

    # -------------------------------------------------------------------------------------------- scans
    def scan(self, op: Op, carried: bool) -> None:
        """An inclusive scan along the block's inner dimension; `carried`: the range is walked in blocks."""
        value, kind = op.args[0], op.args[1]
        v = self.full(self.value(value))
        cond = self.mask(frozenset({"r"}))
        out = f"s{self.counter}"
        self.counter += 1
        neutral = NEUTRAL[kind](op.dtype)
        if cond:
            v = f"tl.where({cond}, {v}, tl.full([1, 1], {literal(neutral)}, {TL_DTYPE[op.dtype]}))"
        last = f"(rlocal == {self.shape[-1]} - 1)"
        if kind in ("cummax", "cummin"):
            index = self.full(f"{self.value(op.args[2])}.to(tl.int64)")
            v = self.fresh(v)
            self.write(f"{out}_0, {out}_1 = tl.associative_scan(({v}, {index}), 1, lm.{kind})")
            if carried:
                c = self.kept[op]
                self.write(
                    f"{out}_0, {out}_1 = lm.{kind}({self.full(c + '_0')}, {self.full(c + '_1')}, {out}_0, {out}_1)"
                )
                # exactly one element of the row is the last one: its value is taken through the bits of a sum
                self.write(
                    f"{c}_0 = tl.sum(tl.where({last}, {out}_0, 0.0), 1)[:, None]"
                    if op.dtype.is_floating_point
                    else f"{c}_0 = tl.sum(tl.where({last}, {out}_0, 0), 1)[:, None].to({TL_DTYPE[op.dtype]})"
                )
                self.write(f"{c}_1 = tl.sum(tl.where({last}, {out}_1, 0), 1)[:, None]")
        else:
            combine = {"sum": "plus", "prod": "multiply", "logcumsumexp": "log_add_exp"}[kind]
            self.write(f"{out} = tl.associative_scan({v}, 1, lm.{combine})")
            if carried:
                c = self.kept[op]
                self.write(f"{out} = lm.{combine}({self.full(c)}, {out})")
                self.write(
                    f"{c} = tl.sum(tl.where({last}, {out}, tl.full([1, 1], 0, {TL_DTYPE[op.dtype]})), 1)"
                    f"[:, None].to({TL_DTYPE[op.dtype]})"
                )
        self.local[op] = out

    def start_scan(self, op: Op) -> None:
        name = f"c{self.counter}"
        self.counter += 1
        self.kept[op] = name
        init = literal(NEUTRAL[op.args[1]](op.dtype))
        if op.args[1] in MULTI_RESULT:
            self.write(f"{name}_0 = tl.full([{self.shape[0]}, 1], {init}, {TL_DTYPE[op.dtype]})")
            self.write(f"{name}_1 = tl.full([{self.shape[0]}, 1], 0, tl.int64)")
        else:
            self.write(f"{name} = tl.full([{self.shape[0]}, 1], {init}, {TL_DTYPE[op.dtype]})")

    # -------------------------------------------------------------------------------------------- phases
    def body(self, phase: Phase, mode: str) -> None:
        """Ops of a phase in order. `mode`: "once" (no inner loops), "block" (whole range in the block), "loop"."""
        for op in phase.ops:
            if op.name == "store":
                self.store(op, in_registers=mode != "loop")
            elif op.name == "check":
                self.check(op)
            elif op.name == "reduction":
                self.update(op) if mode == "loop" else self.reduce_now(op)
            elif op.name == "scan":
                self.scan(op, carried=mode == "loop")
            elif op.name == "item" and op.args[0] in self.kept:
                base = self.kept[op.args[0]]
                self.kept[op] = f"{base}_{op.args[1]}"
            elif op not in self.local:
                self.emit(op)
        if mode == "once":
            self.kept.update(self.local)

    def index_lines(self, axis: Axis, pid: str, block: str, dim: int) -> None:
        wide = ".to(tl.int64)" if self.wide else ""
        shape = ["None"] * len(self.shape)
        shape[dim] = ":"
        suffix = f"[{', '.join(shape)}]" if len(shape) > 1 else ""
        self.write(f"{axis.name}index = ({pid}{wide} * {block} + tl.arange(0, {block})){suffix}")
        self.write(f"{axis.name}mask = {axis.name}index < {print_index(axis.size, {})}")
