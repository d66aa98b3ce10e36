"""Attention as one Triton kernel: a tile of rows a program, the columns in blocks, the softmax as it goes.

For each block of columns the product of the query's tile with the key's is computed on matrix units, the score function
element by element in registers, and the running maximum and sum of each row are corrected (the online softmax); the
scores never reach memory. Columns that a mask of positions (causal, a window) excludes for a whole tile are not visited
(`attention_kernel.find_bounds`); where such a mask ends the row, tiles with most columns start first.

Half-precision operands are multiplied as such, with sums in float32; float32 ones in three products of shortened
numbers whose sum is as exact as float32 (``tf32x3``).
"""

from __future__ import annotations

from ..index import to_expr
from ..ops import Op
from .attention_kernel import AttentionKernel
from .triton_attention_parts import SHORTEST_SPLIT, PartWriter
from .triton_blocks import next_power
from .triton_launch import Launch, TritonKernel, function_text, parameters_of
from .triton_ops import TL_DTYPE

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


class _Writer(PartWriter):
    spec: AttentionKernel

    def __init__(self, spec: AttentionKernel) -> None:
        super().__init__(spec)
        self.half, self.half_value = self.half_of("query", "key"), self.half_of("value")
        head = max(self.depth, self.width)
        half = self.half is not None and self.half_value is not None
        self.configs = [
            {**c, "DBLOCK": max(16, next_power(self.depth)), "EBLOCK": max(16, next_power(self.width))}
            for c in attention_configs(self.batch, self.rows, self.columns, head, half)
        ]
        self.query = ""

    def divides(self, size: int, block: str) -> bool:
        return all(size % c[block] == 0 for c in self.configs)

    def write(self) -> TritonKernel:
        spec, e = self.spec, self.e
        for axis, size, block in (("y", self.rows, "YBLOCK"), ("x", self.columns, "XBLOCK"),
                                  ("d", self.depth, "DBLOCK"), ("e", self.width, "EBLOCK")):  # fmt: skip
            if self.divides(size, block):
                e.unmasked.add(axis)
        tile = "tl.program_id(0)"
        if any(b.upper and b.rows > 0 for b in self.bounds):  # the longest rows first
            tile = f"tl.num_programs(0) - 1 - {tile}"
        e.write(f"zindex = tl.program_id(1){self.wide}")
        e.write(f"top = ({tile}) * YBLOCK")
        self.line("row", f"top + tl.arange(0, YBLOCK){self.wide}", self.rows, ":, None")
        self.line("term", f"tl.arange(0, DBLOCK){self.wide}", self.depth, "None, :")
        self.line("deep", f"tl.arange(0, DBLOCK){self.wide}", self.depth, ":, None")
        self.line("wide", f"tl.arange(0, EBLOCK){self.wide}", self.width, "None, :")
        self.query = self.operand("query", ["YBLOCK", "DBLOCK"], self.half, y="row", d="term")
        self.view_tile()
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
        all_in = "x" in self.e.unmasked
        exact = [b for m in self.masks for b in m.bounds or ()]
        known = {m.choice: m.kept for m in self.masks if m.bounds is not None}
        splits = self.columns >= SHORTEST_SPLIT and (bool(known) or not all_in)
        inner = self.column_limits(exact, True) if splits else None
        self.walk("XBLOCK", self.column_limits(self.bounds, False), inner,
                  lambda begin, end, whole: self.loop(begin, end, known if whole else {}, whole or all_in))  # fmt: skip

    def loop(self, start: str, end: str, known: dict[Op, Op], whole: bool) -> None:
        """Blocks of columns from `start` to `end`. `known`: choices that come out as these values; `whole`: no block
        passes the last column."""
        spec, e = self.spec, self.e
        masked = "x" not in e.unmasked
        if whole:
            e.unmasked.add("x")
        e.write(f"for left in range({start}, {end}, XBLOCK):")
        depth = e.depth
        e.depth += 1
        self.line("column", f"left + tl.arange(0, XBLOCK){self.wide}", self.columns, "None, :")
        k = self.operand("key", ["DBLOCK", "XBLOCK"], self.half, d="deep", x="column")
        product = self.product(self.query, k, self.half, spec.rounds, "product")
        self.view_tile()
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
        self.line("below", f"left + tl.arange(0, XBLOCK){self.wide}", self.columns, ":, None")
        v = self.operand("value", ["XBLOCK", "EBLOCK"], self.half_value, x="below", e="wide")
        if self.half_value is not None:
            weight = f"({weight}).to({TL_DTYPE[self.half_value]})"
        dot = "lm.dot" if self.half_value is not None else "lm.dot_in_parts"
        e.write(f"sums = {dot}({weight}, {v}, sums * shrink)")
        e.depth = depth
        if masked:
            e.unmasked.discard("x")


def write_attention(spec: AttentionKernel) -> TritonKernel:
    """The `TritonKernel` of an attention."""
    return _Writer(spec).write()


__all__ = ["attention_configs", "write_attention"]
