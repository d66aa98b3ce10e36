"""One `KernelSpec` as Triton source.

Forms (`TritonKernel.form`)
===========================

* ``pointwise``: all outer loops flattened into one block axis ``x``.
* ``tiled``: two block axes ``y`` and ``x``, where reads and writes are contiguous along different loops (transposes).
* ``persistent``: rows ``x`` by one block ``r`` that holds the whole inner range: every phase is straight-line code in
registers.
* ``looped``: rows ``x``, and each phase walks its inner range in blocks of ``r``; scratch values are computed again
instead of stored.
* ``split``: too few rows to fill a device: a first kernel reduces parts of the inner range into a workspace, a second
one combines the parts in a fixed order (so the result
  does not depend on scheduling) and runs what follows.
* ``dot``: sums of products of two tiles, on matrix instructions (`triton_dot`).
* ``serial``: iterations may write to the same element in an order that matters: one program, one element after the
other.

Block sizes are ``tl.constexpr`` parameters; `TritonKernel.configs` lists the candidates, the default first.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import InductorError
from ..index import INF, ONE, Expr, coefficient, product, substitute, symbol, to_expr
from ..ops import MULTI_RESULT, Op, compute_dtype
from . import triton_dot, triton_ops
from .kernel import KernelSpec, LoopVar, Phase, elements_touched
from .softmax_stats import merge_softmax_stats
from .triton_ops import COMBINE, NEUTRAL, POINTER, QUICK_ROWS, ROWS, TL_DTYPE, literal

PERSISTENT_LIMIT = 8192  # elements of the inner range that are still kept in registers
MULTIPROCESSORS = 132  # assumed when choosing how finely to split; only speed depends on it


class CannotGenerate(InductorError):
    """This kernel has a shape that the Triton target does not write; the message says which."""


@dataclass(frozen=True)
class Parameter:
    """One run-time parameter of a kernel: a pointer (kind "buffer" or "workspace") or an integer (kind "size")."""

    name: str
    type: str
    kind: str


@dataclass(frozen=True)
class Workspace:
    """Memory that one launch writes and the next reads: `numel` elements of `dtype` (`split` parts a row)."""

    name: str
    dtype: torch.dtype
    rows: Expr


@dataclass
class Launch:
    """One `triton.jit` function and how to start it. `grid` has (axis size, constexpr block name) pairs; ("split",
    name) stands for the number of parts.
    """

    name: str
    params: list[Parameter]
    constexprs: list[str]
    grid: list[tuple[Expr, str]]
    checks: bool = False


@dataclass
class TritonKernel:
    """The launches of one kernel, their common source text, and candidate block sizes."""

    spec: KernelSpec
    form: str
    source: str
    launches: list[Launch]
    configs: list[dict[str, int]]
    workspaces: list[Workspace] = field(default_factory=list)
    program_key: str = ""  # key of the spec that the program calls; `spec` may be a rewritten one


# ------------------------------------------------------------------------------------------------ axes


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


def next_power(n: int) -> int:
    """The smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()


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


# ------------------------------------------------------------------------------------------------ emitting


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
        if compute_dtype(dtype) != dtype and self.keep_half:
            pass
        elif compute_dtype(dtype) != dtype:
            text += f".to({TL_DTYPE[compute_dtype(dtype)]})"
        elif dtype == torch.bool:
            text += ".to(tl.int1)"
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
            text = f"{text}.to({TL_DTYPE[dtype]})"
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


# ------------------------------------------------------------------------------------------------ choosing a form


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


def generate(spec: KernelSpec) -> TritonKernel:
    """Triton source and launch description of `spec`. Raises CannotGenerate with the reason."""
    kernel = _generate(spec)
    kernel.program_key = spec.key()
    return kernel


def _generate(spec: KernelSpec) -> TritonKernel:
    for b in spec.buffers:
        if b.dtype not in TL_DTYPE:
            raise CannotGenerate(f"Triton has no {b.dtype}")
    for op in spec.ops():
        why = triton_ops.reason_against(op.name, op.dtype)
        if why is not None:
            raise CannotGenerate(why)
    inner = [p for p in spec.phases if p.loops]
    if not inner:
        ordered = any(o.name == "store" and (o.args[3] not in (None, "add", "min", "max")) for o in spec.ops())
        serial = any(v.kind == "serial" for v in spec.loops)
        if serial and (ordered or any(o.name == "store" and o.args[3] is None for o in spec.ops())):
            return _serial(spec)
        return _pointwise(spec)
    if any(v.kind == "serial" for v in spec.loops):
        raise CannotGenerate("ordered outer loops around inner loops")
    products = triton_dot.find_products(spec)
    if products is not None:
        return triton_dot.write_products(spec, products, sys.modules[__name__])
    axis = Axis("x", spec.loops)
    sizes = {product(v.size for v in p.loops) for p in inner}
    largest = max((s.hi for s in sizes), default=1)
    if largest <= PERSISTENT_LIMIT and len(sizes) == 1 and (inner_contiguous(spec) or largest <= 64):
        return _rows(spec, axis, "persistent")
    spec = merge_softmax_stats(spec)
    if can_split(spec, axis):
        return _split(spec, axis)
    return _rows(spec, axis, "looped")


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


def _parameters(spec: KernelSpec) -> list[Parameter]:
    out = [Parameter(b.name, POINTER[b.dtype], "buffer") for b in spec.arguments]
    return out + [Parameter(s, "i64", "size") for s in spec.sizes]


def _function(name: str, params: list[Parameter], constexprs: list[str], lines: list[str]) -> str:
    args = ", ".join([p.name for p in params] + [f"{c}: tl.constexpr" for c in constexprs])
    return "\n".join(["@triton.jit", f"def {name}({args}):", *lines]) + "\n"


def _pointwise(spec: KernelSpec) -> TritonKernel:
    position = tile_split(spec)
    params = _parameters(spec)
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
        return TritonKernel(spec, "pointwise", _function(spec.name, params, ["XBLOCK"], e.lines), [launch], configs)
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
    return TritonKernel(spec, "tiled", _function(spec.name, params, names, e.lines), [launch], configs)


HEAVY = 100  # ops of a body


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


def _serial(spec: KernelSpec) -> TritonKernel:
    axis = Axis("x", spec.loops)
    params = _parameters(spec)
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
        spec, "serial", _function(spec.name, params, ["XBLOCK"], e.lines), [launch], [{"XBLOCK": 1, "num_warps": 1}]
    )


def _rows(spec: KernelSpec, axis: Axis, form: str) -> TritonKernel:
    params = _parameters(spec)
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
    return TritonKernel(spec, form, _function(spec.name, params, names, e.lines), [launch], configs)


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


STATS_UNROLL = 4  # blocks of a running softmax that share one rescaling of the sum


def stats_unroll(phase: Phase, axis: Axis) -> int:
    """How many blocks a step of this loop takes: several where a running softmax is all that lasts of it."""
    lasting = [op for op in phase.ops if op.name in ("store", "scan", "check", "reduction", "indirect")]
    if not lasting or not all(op.name == "reduction" and op.args[1] == "softmax_stats" for op in lasting):
        return 1
    return STATS_UNROLL if axis.static is not None and axis.static >= 1 << 14 else 1


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
    return [
        {"XBLOCK": 64, "RBLOCK": min(length, 32), "num_warps": 8},
        {"XBLOCK": 32, "RBLOCK": min(length, 64), "num_warps": 8},
        {"XBLOCK": 128, "RBLOCK": min(length, 16), "num_warps": 8},
    ]


def _split(spec: KernelSpec, axis: Axis) -> TritonKernel:
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
    params = _parameters(spec)
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
    first = _function(first_name, [*params, *spaces], ["XBLOCK", "RBLOCK"], e.lines)
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
    second = _function(second_name, [*params, *spaces], ["XBLOCK", "RBLOCK"], f.lines)
    launches.append(Launch(second_name, [*params, *spaces], ["XBLOCK", "RBLOCK"], [(axis.size, "XBLOCK")], f.checks))
    second_rows = 1 if parts >= 512 else max(1, min(64, 2048 // parts))
    config = {**block, "second": {"XBLOCK": second_rows, "RBLOCK": max(parts, 2), "num_warps": 4}}
    return TritonKernel(spec, "split", first + "\n\n" + second, launches, [config], workspaces)
