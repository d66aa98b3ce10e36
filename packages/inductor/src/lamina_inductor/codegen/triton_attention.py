"""Attention as one Triton kernel: a tile of rows a program, the columns in blocks, the softmax as it goes.

For each block of columns the product of the query's tile with the key's is computed on matrix units, the score function
element by element in registers, and the running maximum and sum of each row are corrected (the online softmax); the
scores never reach memory. Columns that a mask of positions (causal, a window) excludes for a whole tile are not visited
(`attention_kernel.find_bounds`); where such a mask ends the row, tiles with most columns start first.

Half-precision operands are multiplied as such, with sums in float32; float32 ones in three products of shortened
numbers whose sum is as exact as float32 (``tf32x3``).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..index import to_expr
from ..ops import Op
from .attention_kernel import AttentionKernel, Bound, find_bounds, find_masks
from .kernel import Phase
from .triton_blocks import next_power, uses_wide_index
from .triton_dot import half_dtype
from .triton_emitter import Axis, Emitter
from .triton_launch import Launch, TritonKernel, function_text, parameters_of
from .triton_ops import TL_DTYPE, from_memory, to_memory

BLOCKS = ["XBLOCK", "YBLOCK", "DBLOCK", "EBLOCK"]

# (largest head, half precision): blocks of rows, of columns, warps, stages; the rule's choice first
_TILES = {
    (64, True): ((64, 64, 4, 3), (128, 64, 4, 3), (128, 128, 8, 3), (128, 32, 4, 4)),
    (128, True): ((128, 64, 8, 3), (64, 64, 4, 3), (128, 32, 4, 3), (128, 128, 8, 2)),
    (256, True): ((64, 32, 4, 2), (64, 64, 8, 2), (128, 32, 8, 2)),
    (64, False): ((64, 32, 4, 2), (32, 32, 4, 2)),
    (128, False): ((32, 32, 4, 2),),
    (256, False): ((16, 32, 4, 1),),
}
PROGRAMS = 132  # wanted of a launch
SHORTEST_SPLIT = 512  # columns from which on blocks that no mask cuts get a loop of their own


def attention_configs(batch: int, rows: int, columns: int, head: int, half: bool) -> list[dict[str, int]]:
    """Tiles to try, the rule's first."""
    largest = next(n for n in (64, 128, 256) if head <= n)
    found = []
    for y, x, warps, stages in _TILES[largest, half]:
        y = min(y, max(16, next_power(rows)))
        while y > (64 if half else 32) and batch * -(-rows // y) < PROGRAMS:
            y, warps, x = y // 2, min(warps, 4), min(x, 64 if largest == 64 else 32)
        x = min(x, max(16, next_power(columns)))
        c = {"XBLOCK": x, "YBLOCK": y, "num_warps": warps, "num_stages": stages}
        if c not in found:
            found.append(c)
    return found


class _Writer:
    def __init__(self, spec: AttentionKernel) -> None:
        self.spec = spec
        self.batch, self.rows, self.columns, self.depth, self.width = spec.extents
        loops = {v.name: v for p in (spec, *spec.phases) for v in p.loops}
        named = {"z": "z", "m": "y", "n": "x", "d": "d", "e": "e"}
        self.axes = [Axis(named[k], (v,)) for k, v in loops.items()]
        halves = [half_dtype(spec.root(p), spec) for p in ("query", "key")]
        self.half = halves[0] if halves[0] == halves[1] else None
        self.half_value = half_dtype(spec.root("value"), spec)
        head = max(self.depth, self.width)
        half = self.half is not None and self.half_value is not None
        self.configs = [
            {**c, "DBLOCK": max(16, next_power(self.depth)), "EBLOCK": max(16, next_power(self.width))}
            for c in attention_configs(self.batch, self.rows, self.columns, head, half)
        ]
        self.e = Emitter(spec, self.axes, ["YBLOCK", "XBLOCK"], uses_wide_index(spec))
        self.bounds = find_bounds(spec.root("score"))
        self.masks = find_masks(spec.root("score"))
        self.query = ""

    def divides(self, size: int, block: str) -> bool:
        return all(size % c[block] == 0 for c in self.configs)

    def view(self, shape: list[str], **names: str) -> None:
        """The shape of the tile that is written from here on, and what its axes' indices are called."""
        e = self.e
        e.shape = shape
        e.axes = [a for a in self.axes if a.name == "z" or a.name in names]
        e.local, e.loaded = {}, {}
        for axis, name in names.items():
            e.names[f"{axis}index"] = name
            e.mask_names[axis] = f"{name}_in"

    def operand(self, name: str, shape: list[str], half: torch.dtype | None, **names: str) -> str:
        """A tile of q, k or v."""
        self.view(shape, **names)
        e, root = self.e, self.spec.root(name)
        e.keep_half = half is not None and root.name == "load"
        self.body(self.spec.part(name))
        text = f"tl.broadcast_to({e.value(root)}, [{', '.join(shape)}])"
        e.keep_half = False
        if root.name != "load":
            outside = [f"{names[a]}_in" for a in names if a not in e.unmasked]
            if outside:
                text = f"tl.where({' & '.join(outside)}, {text}, 0.0)"
            if half is not None:
                text = f"({text}).to({TL_DTYPE[half]})"
        return e.fresh(text, name)

    def body(self, phase: Phase, only: frozenset[str] | None = None) -> None:
        """Writes a part. `only`: what depends on no other axes than these, to stay."""
        e = self.e
        for op in phase.ops:
            if op.name == "store" or op in e.local or op in e.kept:
                continue
            if only is not None:
                if e.axes_of(op) <= only and op.name not in ("check", "constant", "index_expr") and self.is_known(op):
                    e.kept[op] = e.emit(op)
            elif op.name == "check":
                e.check(op)
            else:
                e.emit(op)

    def is_known(self, op: Op) -> bool:
        """True unless a value depends on the tile of products, or on an index that is not read yet."""
        if op.name == "load" and op.args[0] in ("product", "softmax"):
            return False
        if any(s.startswith("ind") and s not in self.e.symbol_deps for e in op.exprs() for s in e.syms):
            return False
        return all(map(self.is_known, op.operands()))

    def limits(self, bounds: Iterable[Bound], inside: bool) -> tuple[list[str], list[str]]:
        """Where the columns begin and end that count for a row of the tile; `inside`: for each of them."""
        first, last = ["0"], [str(self.columns)]
        for b in bounds:
            row = "top" if (b.rows > 0) != (b.upper != inside) else "(top + YBLOCK - 1)"
            text = f"{b.rows} * {row} + {b.offset + b.upper}" if b.rows else str(b.offset + b.upper)
            (last if b.upper else first).append(text)
        return first, last

    def write(self) -> TritonKernel:
        spec, e = self.spec, self.e
        wide = ".to(tl.int64)" if e.wide else ""
        e.unmasked = {"z"}
        for axis, size, block in (("y", self.rows, "YBLOCK"), ("x", self.columns, "XBLOCK"),
                                  ("d", self.depth, "DBLOCK"), ("e", self.width, "EBLOCK")):  # fmt: skip
            if self.divides(size, block):
                e.unmasked.add(axis)
        tile = "tl.program_id(0)"
        if any(b.upper and b.rows > 0 for b in self.bounds):  # the longest rows first
            tile = f"tl.num_programs(0) - 1 - {tile}"
        e.write(f"zindex = tl.program_id(1){wide}")
        e.write(f"top = ({tile}) * YBLOCK")
        self.line("row", f"top + tl.arange(0, YBLOCK){wide}", self.rows, ":, None")
        self.line("term", f"tl.arange(0, DBLOCK){wide}", self.depth, "None, :")
        self.line("deep", f"tl.arange(0, DBLOCK){wide}", self.depth, ":, None")
        self.line("wide", f"tl.arange(0, EBLOCK){wide}", self.width, "None, :")
        self.query = self.operand("query", ["YBLOCK", "DBLOCK"], self.half, y="row", d="term")
        self.view(["YBLOCK", "XBLOCK"], y="row", x="column")
        for part in ("score", "weight"):
            self.body(spec.part(part), frozenset("zy"))
        e.write("high = tl.full([YBLOCK, 1], float('-inf'), tl.float32)")
        e.write("total = tl.zeros([YBLOCK, 1], tl.float32)")
        e.write("sums = tl.zeros([YBLOCK, EBLOCK], tl.float32)")
        self.loops()
        e.write("result = tl.where(total == 0.0, 0.0, sums / total)" if spec.safe else "result = sums / total")
        self.view(["YBLOCK", "EBLOCK"], y="row", e="wide")
        self.leaf("store", "result", "result")
        e.store(spec.part("store").ops[-1], in_registers=False)
        params = parameters_of(spec)
        grid = [(to_expr(self.rows), "YBLOCK"), (to_expr(self.batch), "")]
        launch = Launch(spec.name, params, BLOCKS, grid, e.checks)
        text = function_text(spec.name, params, BLOCKS, e.lines)
        return TritonKernel(spec, "attention", text, [launch], self.configs)

    def loops(self) -> None:
        """The walk over the columns: where that pays, tiles that no mask cuts by themselves."""
        e = self.e
        first, last = self.limits(self.bounds, False)
        begin = f"{_nested('maximum', first)} // XBLOCK * XBLOCK" if len(first) > 1 else "0"
        end = _nested("minimum", last)
        whole = {m.choice: m.kept for m in self.masks if m.bounds is not None}
        if "x" in e.unmasked and not whole or self.columns < SHORTEST_SPLIT:
            return self.loop(begin, end, {}, "x" in e.unmasked)
        e.write(f"begin = {begin}")
        e.write(f"end = tl.maximum({end}, begin)")
        first, last = self.limits([b for m in self.masks for b in m.bounds or ()], True)
        inner = "begin"
        if len(first) > 1:
            e.write(f"inner = tl.minimum(end, ({_nested('maximum', first)} + XBLOCK - 1) // XBLOCK * XBLOCK)")
            inner = "tl.maximum(inner, begin)"
        e.write(f"inner = {inner}")
        e.write(f"outer = tl.maximum(inner, tl.minimum(end, {_nested('minimum', last)}) // XBLOCK * XBLOCK)")
        if len(first) > 1:
            self.loop("begin", "inner", {}, "x" in e.unmasked)
        self.loop("inner", "outer", whole, True)
        self.loop("outer", "end", {}, "x" in e.unmasked)

    def loop(self, start: str, end: str, known: dict[Op, Op], whole: bool) -> None:
        """Blocks of columns from `start` to `end`. `known`: choices that come out as these values; `whole`: no block
        passes the last column."""
        spec, e = self.spec, self.e
        wide = ".to(tl.int64)" if e.wide else ""
        masked = "x" not in e.unmasked
        if whole:
            e.unmasked.add("x")
        e.write(f"for left in range({start}, {end}, XBLOCK):")
        depth = e.depth
        e.depth += 1
        self.line("column", f"left + tl.arange(0, XBLOCK){wide}", self.columns, "None, :")
        k = self.operand("key", ["DBLOCK", "XBLOCK"], self.half, d="deep", x="column")
        dot = "lm.dot" if self.half is not None else "lm.dot_in_parts"
        product = f"{dot}({self.query}, {k}, tl.zeros([YBLOCK, XBLOCK], tl.float32))"
        if spec.rounds != torch.float32:
            product = from_memory(to_memory(product, spec.rounds), spec.rounds)
        product = e.fresh(product, "product")
        self.view(["YBLOCK", "XBLOCK"], y="row", x="column")
        self.leaf("score", "product", product)
        for choice, kept in known.items():
            e.local[choice] = e.value(kept)
        self.body(spec.part("score"))
        score = f"tl.broadcast_to({e.value(spec.root('score'))}, [YBLOCK, XBLOCK])"
        if "x" not in e.unmasked:
            score = f"tl.where(column_in, {score}, float('-inf'))"
        score = e.fresh(score, "score")
        e.write(f"higher = tl.maximum(high, tl.max({score}, 1)[:, None])")
        e.write("level = tl.where(higher == float('-inf'), 0.0, higher)")
        e.write("shrink = tl.exp(high - level)")
        e.write(f"weight = tl.exp({score} - level)")
        e.write("total = total * shrink + tl.sum(weight, 1)[:, None]")
        e.write("high = higher")
        self.leaf("weight", "softmax", "weight")
        self.body(spec.part("weight"))
        weight = f"tl.broadcast_to({e.value(spec.root('weight'))}, [YBLOCK, XBLOCK])"
        self.line("below", f"left + tl.arange(0, XBLOCK){wide}", self.columns, ":, None")
        v = self.operand("value", ["XBLOCK", "EBLOCK"], self.half_value, x="below", e="wide")
        if self.half_value is not None:
            weight = f"({weight}).to({TL_DTYPE[self.half_value]})"
        dot = "lm.dot" if self.half_value is not None else "lm.dot_in_parts"
        e.write(f"sums = {dot}({weight}, {v}, sums * shrink)")
        e.depth = depth
        if masked:
            e.unmasked.discard("x")

    def line(self, name: str, text: str, size: int, dims: str) -> None:
        """An index along one dimension of a tile, and which of it lies inside."""
        self.e.write(f"{name} = ({text})[{dims}]")
        self.e.write(f"{name}_in = {name} < {size}")

    def leaf(self, part: str, name: str, text: str) -> None:
        """Gives a value of the kernel to the body that loads it by `name`."""
        for op in self.spec.part(part).ops:
            if op.name == "load" and op.args[0] == name:
                self.e.local[op] = text


def _nested(function: str, texts: list[str]) -> str:
    out = texts[0]
    for text in texts[1:]:
        out = f"tl.{function}({out}, {text})"
    return out


def write_attention(spec: AttentionKernel) -> TritonKernel:
    """The `TritonKernel` of an attention."""
    return _Writer(spec).write()


__all__ = ["Bound", "attention_configs", "write_attention"]
