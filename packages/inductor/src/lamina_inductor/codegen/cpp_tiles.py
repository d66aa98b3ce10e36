"""Transposing kernels: accesses that lie along another loop than the vectorised one go through a small tile.

A tile covers `WIDE` vectors of the vectorised loop and `TILE` iterations of the other one, so that memory is read and
written in pieces of several cache lines in both directions. What is read along the other loop is fetched whole and
turned round in registers before the tile is computed, what is written along it afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..index import Expr
from ..ops import Op
from .cpp_index import c_name, marked_index
from .cpp_ops import ELEMENT
from .kernel import KernelSpec, LoopVar

if TYPE_CHECKING:
    from .cpp_kernel import KernelWriter

TILE = 64
"""Iterations of the second loop of a transposing kernel."""
WIDE = 8
"""Vectors of the vectorised loop that a tile covers."""


def read_after_write(spec: KernelSpec) -> dict[str, set[Expr]]:
    """Buffers that the kernel loads after it stored to them -> the indices of all its loads and stores of them."""
    written: set[str] = set()
    found: dict[str, set[Expr]] = {}
    accesses = [op for op in spec.ops() if op.name in ("load", "store")]
    for op in accesses:
        if op.name == "store":
            written.add(op.args[0])
        elif op.args[0] in written:
            found[op.args[0]] = set()
    for op in accesses:
        if op.args[0] in found:
            found[op.args[0]].add(op.args[1])
    return found


def find_tiles(w: KernelWriter, vec: LoopVar, other: LoopVar) -> dict[Op, str]:
    """Loads and stores that go through a tile -> the tile's name. Buffers that are read after they were written take no
    tiles: what is read is fetched before anything is computed."""
    found: dict[Op, str] = {}
    again = read_after_write(w.spec)
    for op in w.spec.ops():
        if (
            op.name not in ("load", "store")
            or op.args[-1] is not None
            or (op.name == "store" and op.args[3] is not None)
            or op.args[0] in again
        ):
            continue
        e = op.args[1]
        if any(s in w.symbols for s in e.syms) or w._stride(e, vec.name) in (None, 0, 1):
            continue
        if w._stride(e, other.name) == 1:
            found[op] = f"tile{len(found)}_"
    return found


def declare_tiles(w: KernelWriter) -> None:
    """Writes the tiles' memory."""
    for op, name in w.tiles.items():
        w.put(f"alignas(64) {ELEMENT[w.spec.buffer(op.args[0]).dtype]} {name}[{TILE} * {WIDE} * N];")


def move_tiles(w: KernelWriter, vec: LoopVar, other: LoopVar, start: str, stop: str, which: str) -> None:
    """Fetches the tiles of loads, or puts away those of stores. `start`, `stop`: the tile's range of the vectorised
    loop."""

    moved = [(op, name) for op, name in w.tiles.items() if op.name == which]
    if not moved:
        return
    w.open(f"for (i64 chunk_ = {start}; chunk_ < {stop}; chunk_ += N)")
    for op, name in moved:
        e = op.args[1]
        at = f"{c_name(op.args[0])} + {marked_index(e, {vec.name: 'chunk_', other.name: 'from_'})}"
        step = marked_index(w._stride(e, vec.name), {})
        ends, tile = f"imin(N, {stop} - chunk_), to_ - from_", f"{name} + (chunk_ - {start})"
        if which == "load":
            w.put(f"get_tile<N, {WIDE} * N, {TILE}>({tile}, {at}, {step}, {ends});")
        else:
            w.put(f"put_tile<N, {WIDE} * N, {TILE}>({at}, {step}, {tile}, {ends});")
    w.close()


def far_ahead(w: KernelWriter, vec: LoopVar, other: LoopVar) -> dict[Op, Expr]:
    """Loads and stores along the vectorised loop -> the step to the same place of the next tile: memory is asked for
    while this tile is computed."""
    found = {}
    for op in w.spec.ops():
        if op.name not in ("load", "store") or op in w.tiles or op.args[-1] is not None:
            continue
        if any(s in w.symbols for s in op.args[1].syms) or w._stride(op.args[1], vec.name) != 1:
            continue
        step = w._stride(op.args[1], other.name)
        if step is not None and step != 0:
            found[op] = step * TILE
    return found


_LONGEST_ROW = 48
_TILE_BYTES = 49152  # of all tiles together: they stay in the first caches


def short_rows(w: KernelWriter, lanes: int) -> LoopVar | None:
    """The outer loop whose iterations become lanes, where a kernel works on many short contiguous rows: a register then
    holds an element of each of N rows, and nothing is summed across its lanes."""
    spec = w.spec
    inner = [p.loops for p in spec.phases if p.loops]
    if (
        lanes < 2
        or not inner
        or any(len(loops) != 1 or loops[0] != inner[0][0] and loops[0].size != inner[0][0].size for loops in inner)
    ):
        return None
    row = inner[0][0]
    if not row.size.is_const or not 1 < int(row.size) <= _LONGEST_ROW or any(v.kind != "parallel" for v in spec.loops):
        return None
    if any(loops[0].name != row.name for loops in inner):
        return None
    if any(len(places) > 1 for b, places in read_after_write(spec).items() if spec.buffer(b).role != "scratch"):
        return None  # what is written reaches memory after everything was read
    for v in reversed(spec.loops):
        if v.size.lo < lanes:
            continue
        size, fits = 0, False
        for p in spec.phases:
            for op in p.ops:
                if op.name == "check":
                    return None
                if op.name not in ("load", "store") or not p.loops or spec.buffer(op.args[0]).role == "scratch":
                    continue
                if op.args[-1] is not None or op.name == "store" and op.args[3] is not None:
                    return None
                if any(s in w.symbols for s in op.args[1].syms):
                    return None
                along, step = w._stride(op.args[1], v.name), w._stride(op.args[1], row.name)
                if along is None or step is None or not (along == 0 or along == 1 or step == 1):
                    size = 1 << 30
                elif step == 1 and not (along == 0 or along == 1):
                    fits = True
                    size += int(row.size) * lanes * spec.buffer(op.args[0]).dtype.itemsize
        if fits and size <= _TILE_BYTES:
            return v
    return None


def write_short_rows(w: KernelWriter) -> None:
    """Writes the body of the function: blocks of N rows, each turned round, computed, turned back."""

    spec, vec = w.spec, w.vector_loop
    assert vec is not None
    row = next(p.loops[0] for p in spec.phases if p.loops)
    outer = [v for v in spec.loops if v is not vec]
    size = marked_index(vec.size, {})
    count = " * ".join(["i64(1)"] + [f"({marked_index(v.size, {})})" for v in outer])
    w.put(f"const i64 blocks_ = ({size} + N - 1) / N, total_ = {count} * blocks_;")
    w.open(f"parallel(total_, {marked_index(w._work(), {})} * N, 1, [&](i64 lo, i64 hi)")
    w._scratch("N")
    w._flat_loops(outer, [("block_", "blocks_")])
    w.put(f"const i64 chunk_ = block_ * N, lanes_ = imin(N, {size} - chunk_);")
    known: dict[tuple, str] = {}
    moves: dict[str, list[str]] = {"load": [], "store": []}
    for p in spec.phases:
        for op in p.ops:
            if op.name not in ("load", "store") or not p.loops or spec.buffer(op.args[0]).role == "scratch":
                continue
            along, step = w._stride(op.args[1], vec.name), w._stride(op.args[1], row.name)
            if along == 0 or along == 1 or not step == 1:
                continue
            key = (op.name, op.args[0], op.args[1])
            if op.name == "load" and ("store", *key[1:]) in known:
                key = ("store", *key[1:])
            if key not in known:
                name = known[key] = f"tile{len(known)}_"
                at = f"{c_name(op.args[0])} + {marked_index(op.args[1], {vec.name: 'chunk_', row.name: '0'})}"
                stride = marked_index(along, {})
                t = ELEMENT[spec.buffer(op.args[0]).dtype]
                w.put(f"alignas(64) {t} {name}[{int(row.size)} * N];")
                call = (
                    f"get_tile<N>({name}, {at}, {stride}"
                    if op.name == "load"
                    else f"put_tile<N>({at}, {stride}, {name}"
                )
                moves[op.name].append(f"{call}, lanes_, {int(row.size)});")
            w.tiles[op] = known[key]
    w.tile_at = f"({row.name}) * N"
    for text in moves["load"]:
        w.put(text)
    w.open(f"auto step = [&](i64 {vec.name}, auto c) __attribute__((always_inline))")
    for k, p in enumerate(spec.phases):
        w._column_phase(k, p, "c", vec.name, set())
    w.close("};")
    w.put("if (lanes_ == N) step(chunk_, all_lanes{});")
    w.put("else step(chunk_, int(lanes_));")
    for text in moves["store"]:
        w.put(text)
    w.close()
    w.close("});")


__all__ = [
    "TILE", "WIDE", "declare_tiles", "far_ahead", "find_tiles", "move_tiles", "read_after_write", "short_rows",
    "write_short_rows",
]  # fmt: skip
