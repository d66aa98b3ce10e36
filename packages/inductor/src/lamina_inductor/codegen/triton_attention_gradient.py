"""The backward of attention as two Triton launches, in which no result depends on the order of programs.

The first walks over the columns of a tile of rows, twice: for each row's maximum and sum (of which the logarithm is
kept) and its sum of weights times gradients; then for what is summed over columns (the query's gradient). The second
walks over the rows of a tile of columns, for what is summed over rows (the gradients of key and value). Scores are
computed anew in each, weights from the logarithm of the row's sum; neither reaches memory.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..index import substitute, symbol, to_expr
from ..ops import Op
from .attention_kernel import AttentionGradientKernel
from .triton_attention_parts import SHORTEST_SPLIT, PartWriter
from .triton_blocks import next_power
from .triton_launch import Launch, Parameter, TritonKernel, Workspace, function_text, parameters_of
from .triton_ops import POINTER, TL_DTYPE

BLOCKS = ["XBLOCK", "YBLOCK"]
_HALF = (torch.bfloat16, torch.float16)

# (largest head, half precision): (rows, columns, warps, stages) of the first and of the second launch; the rule's
# choice first
_TILES = {
    (64, True): (((64, 64, 4, 3), (32, 64, 4, 3)), ((64, 64, 4, 2), (64, 64, 4, 2)), ((128, 64, 8, 3), (64, 128, 8, 3)),
                 ((128, 32, 4, 3), (32, 128, 4, 3))),
    (128, True): (((64, 64, 8, 2), (64, 64, 8, 2)), ((128, 64, 8, 2), (64, 128, 8, 2)),
                  ((64, 32, 4, 2), (32, 64, 4, 2))),
    (256, True): (((32, 32, 4, 1), (32, 32, 4, 1)), ((64, 32, 8, 1), (32, 64, 8, 1))),
    (64, False): (((32, 32, 4, 1), (16, 32, 4, 1)), ((32, 32, 4, 1), (32, 32, 8, 1)), ((64, 32, 8, 1), (32, 64, 8, 1))),
    (128, False): (((32, 16, 4, 1), (16, 32, 8, 1)),),
    (256, False): (((16, 16, 4, 1), (16, 16, 4, 1)),),
}  # fmt: skip


def gradient_configs(rows: int, columns: int, head: int, half: bool) -> list[dict]:
    """Tiles to try, the rule's first."""
    largest = next(n for n in (64, 128, 256) if head <= n)
    found: list[dict] = []
    for choice in _TILES[largest, half]:
        one, two = (
            {"YBLOCK": min(y, max(16, next_power(rows))), "XBLOCK": min(x, max(16, next_power(columns))),
             "num_warps": warps, "num_stages": stages}
            for y, x, warps, stages in choice
        )  # fmt: skip
        if {**one, "second": two} not in found:
            found.append({**one, "second": two})
    return found


class _Writer(PartWriter):
    """Writes one of the launches; `over_rows`: the second."""

    spec: AttentionGradientKernel

    def __init__(self, spec: AttentionGradientKernel, configs: list[dict], over_rows: bool) -> None:
        super().__init__(spec)
        self.over_rows = over_rows
        self.tile = ["XBLOCK", "YBLOCK"] if over_rows else ["YBLOCK", "XBLOCK"]
        self.half = self.half_of("query", "key")
        self.half_gradient = self.half_of("left", "right")
        blocks = [c["second"] if over_rows else c for c in configs]
        for axis, size, block in (("y", self.rows, "YBLOCK"), ("x", self.columns, "XBLOCK")):
            if all(size % c[block] == 0 for c in blocks):
                self.e.unmasked.add(axis)
        self.mine = [k for k, s in enumerate(spec.sums) if s.over_rows == over_rows]
        self.sizes = {"d": self.depth, "e": self.width}
        self.sizes |= {f"f{k}": int(spec.part(f"store{k}").loops[1].size) for k in self.mine}
        self.block = {a: max(16, next_power(n)) for a, n in self.sizes.items()}
        self.e.unmasked |= {a for a, n in self.sizes.items() if n == self.block[a]}
        self.lent: dict[str, str] = {}  # operands that another product has as well: their tiles' texts
        self.conditions = self.find_conditions()

    # ---------------------------------------------------------------------------------------- the tile
    def find_conditions(self) -> dict[Op, bool]:
        """Values of the parts that are known where no mask cuts a tile."""
        known = {_text(m.condition): m.wanted for m in self.masks if m.bounds is not None}
        found = {}
        for part in ("score", "term", *(f"tile{k}" for k in self.mine)):
            for op in self.spec.part(part).ops:
                if op.dtype == torch.bool and known:
                    wanted = known.get(_text(op))
                    if wanted is not None:
                        found[op] = wanted
        return found

    def first_lines(self) -> None:
        """Indices within a row of an operand, as rows and as columns of a tile."""
        for a, n in self.sizes.items():
            self.line(f"{a}_along", f"tl.arange(0, {self.block[a]}){self.wide}", n, "None, :")
            self.line(f"{a}_down", f"tl.arange(0, {self.block[a]}){self.wide}", n, ":, None")

    def rowwise(self, part: str, block: str, axis: str, inner: str, half: torch.dtype | None) -> str:
        """An operand as [block, inner]."""
        name = {"y": "row", "x": "column"}[axis]
        index = name if self.tile[0] == block else f"{name}_down"
        return self.operand(part, [block, str(self.block[inner])], half, **{axis: index, inner: f"{inner}_along"})

    def other(self, k: int) -> str:
        """The operand of sum `k` along the walk: [block, f]."""
        block, axis = ("YBLOCK", "y") if self.over_rows else ("XBLOCK", "x")
        return self.rowwise(f"other{k}", block, axis, f"f{k}", self.half_sum(k))

    def half_sum(self, k: int) -> torch.dtype | None:
        """The half format in which sum `k` is multiplied, or None."""
        dtype = self.spec.sums[k].dtype
        return dtype if dtype in _HALF and self.half_of(f"other{k}") == dtype else None

    def turned(self, part: str, half: torch.dtype | None) -> str:
        """The operand of a product of the scores' size that moves with the walk, as [inner, block]: that of a sum where
        both are the same."""
        block, axis = ("YBLOCK", "y") if self.over_rows else ("XBLOCK", "x")
        inner = {"query": "d", "key": "d", "left": "e", "right": "e"}[part]
        for k in self.mine:
            if self.half_sum(k) == half and self.is_same(part, inner, f"other{k}", f"f{k}"):
                self.lent[f"other{k}"] = text = self.other(k)
                return f"tl.trans({text})"
        return f"tl.trans({self.rowwise(part, block, axis, inner, half)})"

    def is_same(self, part: str, inner: str, other: str, free: str) -> bool:
        """True for two operands that read the same elements."""
        a, b = self.spec.root(part), self.spec.root(other)
        if a.name != "load" or b.name != "load" or a.args[0] != b.args[0] or a.args[2] or b.args[2]:
            return False
        size = self.sizes[inner]
        return size == self.sizes[free] and a.args[1] == substitute(b.args[1], {free: symbol(inner, size)})

    def scores(self, product: str, masks: bool) -> str:
        """The text of what the softmax takes, -inf behind the last column."""
        e = self.e
        self.view_tile()
        self.leaf("score", "product", product)
        self.settle(masks)
        self.body(self.spec.part("score"))
        score = f"tl.broadcast_to({e.value(self.spec.root('score'))}, [{', '.join(self.tile)}])"
        if "x" not in e.unmasked:
            score = f"tl.where(column_in, {score}, float('-inf'))"
        return e.fresh(score, "score")

    def settle(self, masks: bool) -> None:
        """Gives conditions their values in tiles that no mask cuts."""
        for op, wanted in self.conditions.items():
            if not masks:
                self.e.local[op] = f"tl.full([1, 1], {int(wanted)}, tl.int1)"

    def add_sums(self, leaves: dict[str, str], masks: bool) -> None:
        """A step of each sum."""
        e = self.e
        for k in self.mine:
            self.view_tile()
            for name, text in leaves.items():
                self.leaf(f"tile{k}", name, text)
            self.settle(masks)
            self.body(self.spec.part(f"tile{k}"))
            text = f"tl.broadcast_to({e.value(self.spec.root(f'tile{k}'))}, [{', '.join(self.tile)}])"
            outside = [n for n, a in (("row_in", "y"), ("column_in", "x")) if a not in e.unmasked]
            if outside:
                text = f"tl.where({' & '.join(outside)}, {text}, 0.0)"
            half = self.half_sum(k)
            if half is not None:
                text = f"({text}).to({TL_DTYPE[half]})"
            text = e.fresh(text, "tile")
            other = self.lent.get(f"other{k}") or self.other(k)
            e.write(f"sum{k} = {'lm.dot' if half is not None else 'lm.dot_in_parts'}({text}, {other}, sum{k})")
        self.lent = {}

    def start_sums(self) -> None:
        for k in self.mine:
            e = self.e
            e.write(f"sum{k} = tl.zeros([{self.tile[0]}, {self.block[f'f{k}']}], tl.float32)")

    def store_sums(self) -> None:
        name, axis = ("column", "x") if self.over_rows else ("row", "y")
        for k in self.mine:
            self.view([self.tile[0], str(self.block[f"f{k}"])], **{axis: name, f"f{k}": f"f{k}_along"})
            self.leaf(f"store{k}", f"result{k}", f"sum{k}")
            self.e.store(self.spec.part(f"store{k}").ops[-1], in_registers=False)

    def keep(self, axis: str) -> None:
        """Values that are the same in the whole walk."""
        self.view_tile()
        for part in ("score", "term", *(f"tile{k}" for k in self.mine)):
            if part != "term" or not self.over_rows:
                self.body(self.spec.part(part), frozenset(("z", axis)))

    # ---------------------------------------------------------------------------------------- the launches
    def write_rows(self) -> list[str]:
        """The first launch's lines."""
        spec, e = self.spec, self.e
        tile = "tl.program_id(0)"
        if any(b.upper and b.rows > 0 for b in self.bounds):  # the longest rows first
            tile = f"tl.num_programs(0) - 1 - {tile}"
        e.write(f"zindex = tl.program_id(1){self.wide}")
        e.write(f"top = ({tile}) * YBLOCK")
        self.line("row", f"top + tl.arange(0, YBLOCK){self.wide}", self.rows, ":, None")
        self.first_lines()
        query = self.rowwise("query", "YBLOCK", "y", "d", self.half)
        left = self.rowwise("left", "YBLOCK", "y", "e", self.half_gradient)
        self.keep("y")
        e.write("high = tl.full([YBLOCK, 1], float('-inf'), tl.float32)")
        e.write("total = tl.zeros([YBLOCK, 1], tl.float32)")
        e.write("row_sum = tl.zeros([YBLOCK, 1], tl.float32)")

        def products() -> tuple[str, str]:
            self.line("column", f"at + tl.arange(0, XBLOCK){self.wide}", self.columns, "None, :")
            self.line("column_down", f"at + tl.arange(0, XBLOCK){self.wide}", self.columns, ":, None")
            product = self.product(query, self.turned("key", self.half), self.half, spec.rounds[0], "product")
            right = self.turned("right", self.half_gradient)
            return product, self.product(left, right, self.half_gradient, spec.rounds[1], "gradient")

        def statistics(masks: bool) -> None:
            product, gradient = products()
            score = self.scores(product, masks)
            e.write(f"higher = tl.maximum(high, tl.max({score}, 1)[:, None])")
            e.write("level = tl.where(higher == float('-inf'), 0.0, higher)")
            e.write("shrink = tl.exp(high - level)")
            e.write(f"weight = tl.exp({score} - level)")
            e.write("total = total * shrink + tl.sum(weight, 1)[:, None]")
            e.write("high = higher")
            self.view_tile()
            for name, text in (("softmax", "weight"), ("gradient", gradient), ("product", product)):
                self.leaf("term", name, text)
            self.settle(masks)
            self.body(spec.part("term"))
            term = f"tl.broadcast_to({e.value(spec.root('term'))}, [YBLOCK, XBLOCK])"
            if "x" not in e.unmasked:
                term = f"tl.where(column_in, {term}, 0.0)"
            e.write(f"row_sum = row_sum * shrink + tl.sum({term}, 1)[:, None]")
            self.lent = {}

        self.columns_loop(statistics)
        e.write("level = high + tl.log(total)")
        e.write("row_sum = tl.where(total == 0.0, 0.0, row_sum / total)")
        place = f"zindex * {self.rows} + row"
        cond = "" if "y" in e.unmasked else ", row_in"
        e.write(f"tl.store(levels + {place}, level{cond})")
        e.write(f"tl.store(row_sums + {place}, row_sum{cond})")
        if self.mine:
            if spec.safe:
                e.write("level = tl.where(level == float('-inf'), 0.0, level)")
            self.start_sums()

            def gradients(masks: bool) -> None:
                product, gradient = products()
                weight = e.fresh(f"tl.exp({self.scores(product, masks)} - level)", "weight")
                leaves = {"product": product, "gradient": gradient, "softmax": weight, "row_sum": "row_sum"}
                self.add_sums(leaves, masks)

            self.columns_loop(gradients)
            self.store_sums()
        return e.lines

    def write_columns(self) -> list[str]:
        """The second launch's lines."""
        spec, e = self.spec, self.e
        tile = "tl.program_id(0)"
        if any(not b.upper and b.rows > 0 for b in self.bounds) and not any(b.upper for b in self.bounds):
            tile = f"tl.num_programs(0) - 1 - {tile}"
        e.write(f"zindex = tl.program_id(1){self.wide}")
        e.write(f"left = ({tile}) * XBLOCK")
        self.line("column", f"left + tl.arange(0, XBLOCK){self.wide}", self.columns, ":, None")
        self.first_lines()
        key = self.rowwise("key", "XBLOCK", "x", "d", self.half)
        right = self.rowwise("right", "XBLOCK", "x", "e", self.half_gradient)
        self.keep("x")
        self.start_sums()

        def gradients(masks: bool) -> None:
            self.line("row", f"at + tl.arange(0, YBLOCK){self.wide}", self.rows, "None, :")
            self.line("row_down", f"at + tl.arange(0, YBLOCK){self.wide}", self.rows, ":, None")
            product = self.product(key, self.turned("query", self.half), self.half, spec.rounds[0], "product")
            left = self.turned("left", self.half_gradient)
            gradient = self.product(right, left, self.half_gradient, spec.rounds[1], "gradient")
            place = f"zindex * {self.rows} + row"
            inside = "" if "y" in e.unmasked else ", row_in, other={}"
            e.write(f"level = tl.load(levels + {place}{inside.format(0.0)})")
            e.write(f"row_sum = tl.load(row_sums + {place}{inside.format(0.0)})")
            if spec.safe:
                e.write("level = tl.where(level == float('-inf'), 0.0, level)")
            weight = e.fresh(f"tl.exp({self.scores(product, masks)} - level)", "weight")
            self.add_sums({"product": product, "gradient": gradient, "softmax": weight, "row_sum": "row_sum"}, masks)

        self.rows_loop(gradients)
        self.store_sums()
        return e.lines

    def columns_loop(self, step: Callable[[bool], None]) -> None:
        exact = [b for m in self.masks for b in m.bounds or ()]
        splits = self.half is not None and self.columns >= SHORTEST_SPLIT and bool(self.conditions)
        self.loop("XBLOCK", self.column_limits(self.bounds, False),
                  self.column_limits(exact, True) if splits else None, step)  # fmt: skip

    def rows_loop(self, step: Callable[[bool], None]) -> None:
        exact = [b for m in self.masks for b in m.bounds or ()]
        splits = self.half is not None and self.rows >= SHORTEST_SPLIT and bool(self.conditions)
        splits = splits and all(abs(b.rows) == 1 for b in exact)
        self.loop("YBLOCK", self.row_limits(self.bounds, False), self.row_limits(exact, True) if splits else None, step)

    def loop(
        self,
        block: str,
        limits: tuple[list[str], list[str]],
        inner: tuple[list[str], list[str]] | None,
        step: Callable[[bool], None],
    ) -> None:
        """`step(masks)` in loops over blocks; `masks`: masks may cut them."""
        e, axis = self.e, "x" if block == "XBLOCK" else "y"

        def range_of(begin: str, end: str, whole: bool) -> None:
            e.write(f"for at in range({begin}, {end}, {block}):")
            depth, masked = e.depth, axis not in e.unmasked
            e.depth += 1
            if whole:  # such a block does not pass the end
                e.unmasked.add(axis)
            step(not whole)
            e.depth = depth
            if masked:
                e.unmasked.discard(axis)

        self.walk(block, limits, inner, range_of)


def _text(op: Op) -> str:
    """Equal for values that are computed in the same way from the same elements."""
    return f"{op.name}({', '.join(_text(a) if isinstance(a, Op) else repr(a) for a in op.args)}):{op.dtype}"


def write_attention_gradient(spec: AttentionGradientKernel) -> TritonKernel:
    """The `TritonKernel` of the backward of an attention."""
    head = max(int(spec.part(f"store{k}").loops[1].size) for k in range(len(spec.sums)))
    batch, rows, columns, depth, width = spec.extents
    head = max(head, depth, width)
    half = all(s.dtype in _HALF for s in spec.sums)
    configs = gradient_configs(rows, columns, head, half)
    spaces = [Workspace(name, torch.float32, to_expr(batch * rows)) for name in ("levels", "row_sums")]
    params = [*parameters_of(spec), *(Parameter(w.name, POINTER[w.dtype], "workspace") for w in spaces)]
    one = _Writer(spec, configs, False)
    texts = [function_text(f"{spec.name}_rows", params, BLOCKS, one.write_rows())]
    grid = [(to_expr(rows), "YBLOCK"), (to_expr(batch), "")]
    launches = [Launch(f"{spec.name}_rows", params, BLOCKS, grid, one.e.checks)]
    if any(s.over_rows for s in spec.sums):
        two = _Writer(spec, configs, True)
        texts.append(function_text(f"{spec.name}_columns", params, BLOCKS, two.write_columns()))
        grid = [(to_expr(columns), "XBLOCK"), (to_expr(batch), "")]
        launches.append(Launch(f"{spec.name}_columns", params, BLOCKS, grid, two.e.checks))
    return TritonKernel(spec, "attention gradient", "\n\n".join(texts), launches, configs, spaces)


__all__ = ["gradient_configs", "write_attention_gradient"]
