"""What the Triton kernels of attention have in common: parts of the description written onto a tile, and walks over
blocks of columns (or rows) that leave out what a mask of positions excludes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from ..ops import Op
from .attention_kernel import AttentionGradientKernel, AttentionKernel, Bound, find_bounds, find_masks
from .kernel import Phase
from .triton_blocks import uses_wide_index
from .triton_dot import half_dtype
from .triton_emitter import Axis, Emitter
from .triton_ops import TL_DTYPE, from_memory, to_memory

SHORTEST_SPLIT = 512  # columns from which on blocks that no mask cuts get a loop of their own
_AXES = {"m": "y", "n": "x"}
_OWN = ("product", "softmax", "gradient", "row_sum")  # values of the kernel, different for each tile


class PartWriter:
    """Writes one launch. Tiles have rows of the scores along the axis ``y`` (index ``row``) and columns along ``x``
    (index ``column``), in either order of dimensions; blocks of these are YBLOCK and XBLOCK."""

    def __init__(self, spec: AttentionKernel | AttentionGradientKernel) -> None:
        self.spec = spec
        self.batch, self.rows, self.columns, self.depth, self.width = spec.extents
        loops = {v.name: v for p in (spec, *spec.phases) for v in p.loops}
        self.axes = [Axis(_AXES.get(k, k), (v,)) for k, v in loops.items()]
        self.e = Emitter(spec, self.axes, ["YBLOCK", "XBLOCK"], uses_wide_index(spec))
        self.e.unmasked = {"z"}
        self.wide = ".to(tl.int64)" if self.e.wide else ""
        self.bounds = find_bounds(spec.root("score"))
        self.masks = find_masks(spec.root("score"))
        self.tile: list[str] = ["YBLOCK", "XBLOCK"]

    def half_of(self, *parts: str) -> torch.dtype | None:
        """The half format that all these operands have in memory, or None."""
        found = {half_dtype(self.spec.root(p), self.spec) for p in parts}
        return found.pop() if len(found) == 1 else None

    def view(self, shape: list[str], **names: str) -> None:
        """The shape of the tile that is written from here on, and what its axes' indices are called."""
        e = self.e
        e.shape = shape
        e.axes = [a for a in self.axes if a.name == "z" or a.name in names]
        e.local, e.loaded = {}, {}
        for axis, name in names.items():
            e.names[f"{axis}index"] = name
            e.mask_names[axis] = f"{name}_in"

    def view_tile(self) -> None:
        """The view of the scores."""
        self.view(self.tile, y="row", x="column")

    def operand(self, name: str, shape: list[str], half: torch.dtype | None, **names: str) -> str:
        """A tile of an operand of a product."""
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
        if op.name == "load" and op.args[0] in _OWN:
            return False
        if any(s.startswith("ind") and s not in self.e.symbol_deps for e in op.exprs() for s in e.syms):
            return False
        return all(map(self.is_known, op.operands()))

    def product(self, left: str, right: str, half: torch.dtype | None, rounds: torch.dtype, name: str) -> str:
        """A product of the scores' size."""
        dot = "lm.dot" if half is not None else "lm.dot_in_parts"
        text = f"{dot}({left}, {right}, tl.zeros([{', '.join(self.tile)}], tl.float32))"
        if rounds != torch.float32:
            text = from_memory(to_memory(text, rounds), rounds)
        return self.e.fresh(text, name)

    def line(self, name: str, text: str, size: int | str, dims: str) -> None:
        """An index along one dimension of a tile, and which of it lies inside."""
        self.e.write(f"{name} = ({text})[{dims}]")
        self.e.write(f"{name}_in = {name} < {size}")

    def leaf(self, part: str, name: str, text: str) -> None:
        """Gives a value of the kernel to the body that loads it by `name`."""
        for op in self.spec.part(part).ops:
            if op.name == "load" and op.args[0] == name:
                self.e.local[op] = text

    def column_limits(self, bounds: Iterable[Bound], inside: bool) -> tuple[list[str], list[str]]:
        """Where the columns begin and end that count for a row of the tile; `inside`: for each of them."""
        first, last = ["0"], [str(self.columns)]
        for b in bounds:
            row = "top" if (b.rows > 0) != (b.upper != inside) else "(top + YBLOCK - 1)"
            text = f"{b.rows} * {row} + {b.offset + b.upper}" if b.rows else str(b.offset + b.upper)
            (last if b.upper else first).append(text)
        return first, last

    def row_limits(self, bounds: Iterable[Bound], inside: bool) -> tuple[list[str], list[str]]:
        """Where the rows begin and end that count for a column of the tile, of limits that move with the row;
        `inside`: for each of them."""
        first, last = ["0"], [str(self.rows)]
        for b in bounds:
            if abs(b.rows) != 1:
                continue
            begins = b.upper == (b.rows > 0)  # rows from that place on count
            far = begins == inside
            column = "(left + XBLOCK - 1)" if far == (b.rows > 0) else "left"
            text = f"{column} - {b.offset}" if b.rows > 0 else f"{b.offset} - {column}"
            (first if begins else last).append(text if begins else f"{text} + 1")
        return first, last

    def walk(self, block: str, limits: tuple[list[str], list[str]], inner: tuple[list[str], list[str]] | None,
             step: Callable[[str, str, bool], None]) -> None:  # fmt: skip
        """`step(begin, end, whole)` for ranges of blocks. `limits`: what the first begin and the last end are at least
        and at most; `inner`: the same of blocks that no mask cuts, which get a loop of their own."""
        e = self.e
        first, last = limits
        begin = f"{nested('maximum', first)} // {block} * {block}" if len(first) > 1 else "0"
        end = nested("minimum", last)
        if inner is None:
            return step(begin, end, False)
        e.write(f"begin = {begin}")
        e.write(f"end = tl.maximum({end}, begin)")
        first, last = inner
        start = "begin"
        if len(first) > 1:
            e.write(f"inner = tl.minimum(end, ({nested('maximum', first)} + {block} - 1) // {block} * {block})")
            start = "tl.maximum(inner, begin)"
        e.write(f"inner = {start}")
        e.write(f"outer = tl.maximum(inner, tl.minimum(end, {nested('minimum', last)}) // {block} * {block})")
        if len(first) > 1:
            step("begin", "inner", False)
        step("inner", "outer", True)
        step("outer", "end", False)


def nested(function: str, texts: list[str]) -> str:
    """``tl.minimum(tl.minimum(a, b), c)``"""
    out = texts[0]
    for text in texts[1:]:
        out = f"tl.{function}({out}, {text})"
    return out


__all__ = ["SHORTEST_SPLIT", "PartWriter", "nested"]
