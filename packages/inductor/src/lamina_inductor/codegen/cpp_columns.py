"""Reductions over rows, lanes along the columns: the rows are walked in the order in which they lie in memory.

A reduction over the first dimension that finishes one strip of columns before the next reads a few cache lines of
every row, over and over. Here the rows are cut into chunks (shared between threads; how many follows from the sizes
alone, so that results do not depend on the number of threads), a chunk is walked in groups of rows, and each group
passes once over all columns. The accumulators of a chunk lie in memory; a group reduces into registers first. Then
the chunks are joined, and the phases without loops run once for each column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..index import product
from .cpp_index import marked_index
from .cpp_ops import EXPENSIVE

if TYPE_CHECKING:
    from .cpp_kernel import KernelWriter

_GROUP = 8  # rows whose values are reduced in registers; more streams than that are not prefetched
_FEWEST_ROWS = 32
_CHUNK = 16384  # elements a chunk covers at least
_MOST_CHUNKS = 64
_WIDE_STATE = frozenset({"welford", "softmax_stats"})
_WIDE_CHUNK = 8 * _CHUNK  # of accumulators that take as much memory as a dozen rows


def can_split_rows(w: KernelWriter) -> bool:
    """True for a column kernel whose only loops are those of a first phase that reduces enough rows."""
    spec, vec = w.spec, w.vector_loop
    if vec is None or vec.kind != "parallel" or not spec.phases or not spec.phases[0].loops:
        return False
    if any(p.loops for p in spec.phases[1:]) or any(v.kind != "reduction" for v in spec.phases[0].loops):
        return False
    if any(v.kind != "parallel" for v in spec.loops) or any(b.role == "scratch" for b in spec.buffers):
        return False
    if any(op.name == "check" for op in spec.ops()):
        return False
    return product(v.size for v in spec.phases[0].loops).lo >= _FEWEST_ROWS


def write_split_rows(w: KernelWriter) -> None:
    """Writes the body of the function: chunks of rows, then the columns."""

    spec, vec = w.spec, w.vector_loop
    assert vec is not None
    phase = spec.phases[0]
    first, rest = phase.loops[0], phase.loops[1:]
    outer = [v for v in spec.loops if v is not vec]
    reductions = [op for op in phase.ops if op.name == "reduction"]
    accs = {op: f"acc{k}_p0" for k, op in enumerate(reductions)}
    wide = any(op.args[1] in _WIDE_STATE for op in reductions)
    group = 1 if rest else _GROUP
    others = " * ".join(["i64(1)"] + [f"({marked_index(v.size, {})})" for v in rest])
    count = " * ".join(["i64(1)"] + [f"({marked_index(v.size, {})})" for v in outer])
    w.put(f"const i64 cols_ = {marked_index(vec.size, {})}, rows_ = {marked_index(first.size, {})};")
    w.put(f"const i64 vecs_ = (cols_ + N - 1) / N, outer_ = {count}, each_ = {others};")
    w.put(f"const i64 most_ = outer_ > 0 ? ({_MOST_CHUNKS} + outer_ - 1) / outer_ : 1;")
    w.put(f"const i64 want_ = imax(1, imin(most_, rows_ * each_ * cols_ / {_WIDE_CHUNK if wide else _CHUNK}));")
    w.put(f"const i64 step_ = imax(1, ((rows_ + want_ - 1) / want_ + {group - 1}) / {group}) * {group};")
    w.put("const i64 chunks_ = (rows_ + step_ - 1) / step_;")
    for op, a in accs.items():
        w.put(f"typedef {w._acc_type(op, 1)} {a}_t; parts<{a}_t> {a}_parts(outer_ * chunks_ * vecs_);")
    cost = sum(16 if op.name in EXPENSIVE else 1 for op in phase.ops if op.name not in ("constant", "index_expr"))
    w.open(f"parallel(outer_ * chunks_, step_ * each_ * cols_ * {max(1, cost // 4)}, 1, [&](i64 lo, i64 hi)")
    w._flat_loops(outer, [("chunk_", "chunks_")])
    for a in accs.values():
        w.put(f"{a}_t* const {a}_at = {a}_parts.p + it * vecs_;")
        w.put(f"for (i64 k = 0; k < vecs_; ++k) {a}_at[k] = {a}_t();")
    w.put("const i64 end_ = imin((chunk_ + 1) * step_, rows_);")
    w.open(f"for (i64 row_ = chunk_ * step_; row_ < end_; row_ += {group})")
    w.open(f"vloop<N>(0, cols_, [&](i64 {vec.name}, auto c) __attribute__((always_inline))")
    for a in accs.values():
        w.put(f"{a}_t {a};")
    before = dict(w.values)
    local: set = set()
    w._hoist_column(phase, local, {v.name for v in phase.loops}, "c", vec.name)
    w.open(f"for (i64 {first.name} = row_; {first.name} < imin(row_ + {group}, end_); ++{first.name})")
    for v in rest:
        w.open(f"for (i64 {v.name} = 0; {v.name} < {marked_index(v.size, {})}; ++{v.name})")
    for op in phase.ops:
        if op not in local:
            w._emit(op, lanes="c", base=vec.name, accs=accs, leave="return;", full_push=True)
    sums = [accs[op] for op in reductions if op.args[1] == "sum" and op.dtype.is_floating_point]
    if rest and sums:
        w.put(f"if (({rest[-1].name} & 127) == 127) {{ " + " ".join(f"{a}.spill();" for a in sums) + " }")
    for _ in rest:
        w.close()
    w.close()
    for op, a in accs.items():
        join = "merge" if rest or op.args[1] != "sum" else "absorb"  # unspilled sums are still in one register
        w.put(f"{a}_at[{vec.name} / N].{join}({a});")
    w.close("});")
    w.close()
    w.close()
    w.close("});")
    w.values = before
    w.open(f"parallel(outer_ * vecs_, chunks_ * N * {4 * len(accs)}, 1, [&](i64 lo, i64 hi)")
    w._flat_loops(outer, [("block_", "vecs_")])
    w.put("const i64 from_ = it / vecs_ * chunks_ * vecs_ + block_;")
    w.open(
        f"vloop<N>(block_ * N, imin((block_ + 1) * N, cols_), [&](i64 {vec.name}, auto c) __attribute__((always_inline))"  # noqa: E501
    )
    for op, a in accs.items():
        w.put(f"{a}_t {a};")
        w.put(f"for (i64 k = 0; k < chunks_; ++k) {a}.merge({a}_parts.p[from_ + k * vecs_]);")
        w._finish_lanes(op, a)
    for k, p in enumerate(spec.phases[1:], 1):
        w._column_phase(k, p, "c", vec.name, set())
    w.close("});")
    w.close()
    w.close("});")


__all__ = ["can_split_rows", "write_split_rows"]
