"""Reductions over rows that are narrower than a vector register, or no multiple of one.

The columns of such a matrix lie next to each other, row after row: a few vectors hold a whole number of rows, and the
element at a fixed place in them belongs always to the same column. So memory is read straight through, each of these
vectors has an accumulator of its own, and the columns are put together at the end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from ..index import Expr, coefficient
from ..ops import Op
from .cpp_index import Value, c_name, marked_index
from .cpp_ops import ELEMENT, EXPENSIVE, vector_type
from .kernel import LoopVar, Phase

if TYPE_CHECKING:
    from .cpp_kernel import KernelWriter

_MOST_VECTORS = 16  # accumulators that stay in registers
_FEW_VECTORS = 4  # independent chains that hide the latency of an addition
_FEWEST_ROWS = 256
_CHUNK = 32768  # elements a chunk covers at least
_MOST_CHUNKS = 64
_KINDS = frozenset({"sum", "prod", "max", "min", "any", "all"})


def period_of(columns: int, lanes: int) -> int:
    """Vectors of `lanes` elements that hold a whole number of rows."""
    return columns // math.gcd(columns, lanes)


def narrow_columns(w: KernelWriter, lanes: int) -> LoopVar | None:
    """The loop over the columns, where this is such a kernel."""
    spec = w.spec
    if lanes < 2 or not spec.phases or len(spec.phases[0].loops) != 1 or any(p.loops for p in spec.phases[1:]):
        return None
    if any(v.kind != "parallel" for v in spec.loops) or any(b.role == "scratch" for b in spec.buffers):
        return None
    phase = spec.phases[0]
    row = phase.loops[0]
    if row.kind != "reduction" or row.size.lo < _FEWEST_ROWS or any(op.name == "check" for op in spec.ops()):
        return None
    if not any(op.name == "reduction" for op in phase.ops):
        return None
    for v in spec.loops:
        if not v.size.is_const or not 1 < int(v.size) < 4 * lanes or int(v.size) % lanes == 0 and int(v.size) > lanes:
            continue
        if period_of(int(v.size), lanes) <= _MOST_VECTORS and all(_fits(w, op, phase, v, row) for op in phase.ops):
            return v
    return None


def _fits(w: KernelWriter, op: Op, phase: Phase, column: LoopVar, row: LoopVar) -> bool:
    if op.name == "load":
        if op.args[2] is not None or any(s in w.symbols for s in op.args[1].syms):
            return False
        along, down = coefficient(op.args[1], column.name), coefficient(op.args[1], row.name)
        if along is None or down is None:
            return False
        return (down == 0 and (along == 0 or along == 1)) or (along == 1 and down == column.size)
    if op.name in ("reduction", "item"):
        return op.name == "reduction" and op.args[1] in _KINDS
    if op.name in ("store", "scan", "indirect"):
        return False
    return not any(isinstance(a, Expr) and a.syms & {column.name, row.name} for a in op.args)


def _accumulator(op: Op, vectors: int) -> str:
    kind, v = op.args[1], vector_type(op.dtype)
    if kind == "sum":
        return f"period_sum<{v}, {vectors}>"
    if kind in ("any", "all") or op.dtype is torch.bool:
        name = {"max": "any", "min": "all", "prod": "all"}.get(kind, kind)
        return f"period_fold<op_{name}<mask<N>>, mask<N>, {vectors}>"
    return f"period_fold<op_{kind}<{v}>, {v}, {vectors}>"


def write_narrow_columns(w: KernelWriter) -> None:
    """Writes the body of the function: chunks of rows, the columns joined, then the phases without loops."""
    spec, vec = w.spec, w.vector_loop
    assert vec is not None
    phase = spec.phases[0]
    row = phase.loops[0]
    columns = int(vec.size)
    period = period_of(columns, w.lanes)
    vectors = period * max(1, _FEW_VECTORS // period)
    outer = [v for v in spec.loops if v is not vec]
    reductions = [op for op in phase.ops if op.name == "reduction"]
    accs = {op: f"acc{k}_p0" for k, op in enumerate(reductions)}
    count = " * ".join(["i64(1)"] + [f"({marked_index(v.size, {})})" for v in outer])
    w.put(f"const i64 rows_ = {marked_index(row.size, {})}, outer_ = {count};")
    w.put(f"const i64 most_ = outer_ > 0 ? ({_MOST_CHUNKS} + outer_ - 1) / outer_ : 1;")
    w.put(f"const i64 want_ = imax(1, imin(most_, rows_ * {columns} / {_CHUNK}));")
    w.put("const i64 step_ = imax(1, (rows_ + want_ - 1) / want_), chunks_ = (rows_ + step_ - 1) / step_;")
    for op, a in accs.items():
        w.put(f"typedef {_accumulator(op, vectors)} {a}_t; parts<{a}_t> {a}_parts(outer_ * chunks_);")
    cost = sum(16 if op.name in EXPENSIVE else 1 for op in phase.ops if op.name != "constant")
    w.open(f"parallel(outer_ * chunks_, step_ * {columns * max(1, cost // 4)}, 1, [&](i64 lo, i64 hi)")
    w._flat_loops(outer, [("chunk_", "chunks_")])
    for a in accs.values():
        w.put(f"{a}_t {a};")
    w.put(f"const i64 {row.name} = 0; (void){row.name};")
    before = dict(w.values)
    done = _tables(w, phase, vec, row, vectors, columns)
    lo, hi = f"chunk_ * step_ * {columns}", f"imin((chunk_ + 1) * step_, rows_) * {columns}"
    w.open(f"vperiod<N, {vectors}>({lo}, {hi}, [&](i64 {vec.name}, auto c, auto u) __attribute__((always_inline))")
    for op in phase.ops:
        if op not in done:
            w._emit(op, lanes="c", base=vec.name, accs=accs, leave="return;")
    w.close("}, [&] { " + " ".join(f"{a}.spill();" for a in accs.values()) + " });")
    for a in accs.values():
        w.put(f"{a}_parts.p[it] = {a};")
    w.close()
    w.close("});")
    w.values = before
    w.open("parallel(outer_, 1, 1, [&](i64 lo, i64 hi)")
    w._flat_loops(outer, [])
    for op, a in accs.items():
        lane = "i32" if op.args[1] in ("any", "all") or op.dtype is torch.bool else f"elem<{vector_type(op.dtype)}>"
        w.put(f"{a}_t {a} = {a}_parts.p[it * chunks_];")
        w.put(f"for (i64 k = 1; k < chunks_; ++k) {a}.merge({a}_parts.p[it * chunks_ + k]);")
        w.put(f"{lane} {a}_columns[{columns}]; {a}.columns({a}_columns, {columns});")
    w.open(f"vloop<N>(0, {columns}, [&](i64 {vec.name}, auto c) __attribute__((always_inline))")
    for op, a in accs.items():
        bit = op.args[1] in ("any", "all") or op.dtype is torch.bool
        v = "mask<N>" if bit else vector_type(op.dtype)
        w.put(f"const {v} {a}_result = load_raw<elem<{v}>, N>({a}_columns + {vec.name}, c);")
        w.values[op] = Value(f"{a}_result", "lanes")
    for k, p in enumerate(spec.phases[1:], 1):
        w._column_phase(k, p, "c", vec.name, set())
    w.close("});")
    w.close()
    w.close("});")


def _tables(w: KernelWriter, phase: Phase, vec: LoopVar, row: LoopVar, vectors: int, columns: int) -> set[Op]:
    """Loads that differ between columns only: their vectors are made ahead, one for each place in the period. Loads
    that do not differ at all are made ahead, too."""
    done: set[Op] = set()
    for op in phase.ops:
        if op.name != "load" or not coefficient(op.args[1], row.name) == 0:
            continue
        if coefficient(op.args[1], vec.name) == 0:
            w._emit(op, lanes="all_lanes{}", base=None, accs={}, leave="return;")
        else:
            name, v, t = f"table{len(done)}", vector_type(op.dtype), ELEMENT[w.spec.buffer(op.args[0]).dtype]
            here = marked_index(op.args[1], {vec.name: f"(k % {columns})"})
            w.put(f"{t} {name}_raw[{vectors} * N]; {v} {name}[{vectors}];")
            w.put(f"for (int k = 0; k < {vectors} * N; ++k) {name}_raw[k] = {c_name(op.args[0])}[{here}];")
            w.put(f"for (int k = 0; k < {vectors}; ++k) {name}[k] = load<{v}>({name}_raw + k * N, all_lanes{{}});")
            w.values[op] = Value(f"{name}[decltype(u)::value]", "lanes")
        done.add(op)
    return done


__all__ = ["narrow_columns", "period_of", "write_narrow_columns"]
