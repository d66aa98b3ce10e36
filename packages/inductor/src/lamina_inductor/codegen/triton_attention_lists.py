"""Lists of the blocks of scores that a mask of data leaves over, written by a launch of their own.

Where a mask says in full which columns of a row count (`find_bounds`), its limits do. Where it reads data (the piece of
a sequence that a position belongs to), a launch before the attention evaluates it once for each position, and writes
for each tile of rows (of columns, for gradients that are sums over rows) two lists: blocks of which the mask leaves
some positions, and blocks of which it leaves all, whose masks need not be evaluated again. Other blocks are not
visited. The lists follow from the mask itself, so that they cannot disagree with it.
"""

from __future__ import annotations

import torch

from ..index import to_expr
from ..ops import Op
from .attention_kernel import AttentionGradientKernel, AttentionKernel, Mask
from .triton_attention_parts import SHORTEST_SPLIT, PartWriter, nested
from .triton_launch import Launch, Parameter, Workspace, function_text
from .triton_ops import POINTER

BLOCKS = ["XBLOCK", "YBLOCK"]


def listed_masks(writer: PartWriter) -> tuple[Mask, ...]:
    """All masks of a score if lists of blocks are to be made of them: one of them reads data, none depends on the
    score, and no data is as large as the scores."""
    masks = writer.masks
    if writer.rows < SHORTEST_SPLIT or writer.columns < SHORTEST_SPLIT or all(m.bounds is not None for m in masks):
        return ()
    for mask in masks:
        for op in needed_by(writer, mask.condition):
            if op.name == "check" or (op.name == "load" and not _is_small(writer, op)):
                return ()
    return tuple(masks)


def _is_small(writer: PartWriter, op: Op) -> bool:
    """True for data of rows or of columns."""
    own = op.args[0] in ("product", "softmax", "gradient", "row_sum")
    return not own and op.args[2] is None and not {"x", "y"} <= writer.e.axes_of(op)


def needed_by(writer: PartWriter, condition: Op) -> list[Op]:
    """The ops of the score that a condition is computed from, in their order."""
    ops = writer.spec.part("score").ops
    indirect = {op.args[1]: op for op in ops if op.name == "indirect"}
    found: set[Op] = set()
    stack = [condition]
    while stack:
        op = stack.pop()
        if op in found:
            continue
        found.add(op)
        stack += op.operands()
        stack += [indirect[s] for e in op.exprs() for s in e.syms if s in indirect]
    for op in ops:  # an index that is read is known to the writer before its reader asks
        if op in found and op.name == "indirect":
            writer.e.symbol_deps.setdefault(op.args[1], writer.e.axes_of(op))
    return [op for op in ops if op in found]


class ListWriter(PartWriter):
    """Writes the launch that makes the lists. `name` of their memory; `over_rows`: a list of rows for each tile of
    columns."""

    def __init__(
        self, spec: AttentionKernel | AttentionGradientKernel, name: str, over_rows: bool, unmasked: set[str]
    ) -> None:
        super().__init__(spec)
        self.name, self.over_rows = name, over_rows
        self.lists = listed_masks(self)
        self.e.symbol_deps = {k: v for k, v in self.e.symbol_deps.items() if not k.startswith("ind")}
        self.e.unmasked = {"z", *(unmasked & {"x", "y"})}

    def has_batches(self) -> bool:
        """True where batches have lists of their own."""
        return any("z" in self.e.axes_of(op) for m in self.lists for op in needed_by(self, m.condition))

    def length(self) -> str:
        """Text of the entries of one list: how many there are, and the blocks."""
        size, block = (self.rows, "YBLOCK") if self.over_rows else (self.columns, "XBLOCK")
        return f"(tl.cdiv({size}, {block}) + 1)"

    def workspace(self, configs: list[dict]) -> Workspace:
        """Memory for the lists of any of these blocks."""
        y, x = (min(c[b] for c in configs) for b in ("YBLOCK", "XBLOCK"))
        tiles = [-(-self.rows // y), -(-self.columns // x)]
        if self.over_rows:
            tiles.reverse()
        numel = (self.batch if self.has_batches() else 1) * tiles[0] * 2 * (tiles[1] + 1)
        return Workspace(self.name, torch.int32, to_expr(numel))

    def base(self, tile: str) -> str:
        """Text of where the lists of a tile begin."""
        number = f"(zindex * tl.num_programs(0) + {tile})" if self.has_batches() else f"({tile})"
        return f"{self.name} + {number} * 2 * {self.length()}"

    def headers(self, tile: str, at: str) -> list[tuple[list[str], bool]]:
        """(lines that begin a loop over the blocks of a list, are they whole) of both lists."""
        block = "YBLOCK" if self.over_rows else "XBLOCK"
        self.e.lines = []
        out = []
        for k, name in enumerate(("some", "all")):
            start = self.base(tile) + (f" + {self.length()}" if k else "")
            out.append(([f"{name}_blocks = {start}", f"for step in range(0, tl.load({name}_blocks)):",
                         f"    {at} = tl.load({name}_blocks + 1 + step) * {block}"], bool(k)))  # fmt: skip
        return out

    def write(self, params: list[Parameter], config: str | None) -> tuple[Launch, str]:
        """(the launch, its text)."""
        e = self.e
        batches = self.has_batches()
        e.write("zindex = tl.program_id(1)" + self.wide)
        fixed, walking, block = ("column", "row", "YBLOCK") if self.over_rows else ("row", "column", "XBLOCK")
        start, size, own = ("left", self.columns, "XBLOCK") if self.over_rows else ("top", self.rows, "YBLOCK")
        e.write(f"{start} = tl.program_id(0) * {own}")
        dims = {"row": ":, None", "column": "None, :"}
        self.line(fixed, f"{start} + tl.arange(0, {own}){self.wide}", size, dims[fixed])
        e.write(f"some_blocks = {self.base('tl.program_id(0)')}")
        e.write(f"all_blocks = some_blocks + {self.length()}")
        e.write("some_count = 0")
        e.write("all_count = 0")
        first, last = (self.row_limits if self.over_rows else self.column_limits)(self.bounds, False)
        begin = f"{nested('maximum', first)} // {block} * {block}" if len(first) > 1 else "0"
        e.write(f"for at in range({begin}, {nested('minimum', last)}, {block}):")
        e.depth += 1
        length = self.rows if self.over_rows else self.columns
        self.line(walking, f"at + tl.arange(0, {block}){self.wide}", length, dims[walking])
        self.view_tile()
        kept = []
        for mask in self.lists:
            for op in needed_by(self, mask.condition):
                if op not in e.local:
                    e.emit(op)
            text = f"tl.broadcast_to({e.value(mask.condition)}, [YBLOCK, XBLOCK])"
            kept.append(f"({text} != 0)" if mask.wanted else f"({text} == 0)")
        axes = {"row": "y", "column": "x"}
        if axes[walking] not in e.unmasked:
            kept.append(f"{walking}_in")
        e.write(f"kept = {' & '.join(kept)}")
        inside = axes[fixed] in e.unmasked
        some = "kept" if inside else f"kept & {fixed}_in"
        every = "kept" if inside else f"kept | ({fixed}_in == 0)"
        e.write(f"some = tl.max(tl.max(({some}).to(tl.int32), 1), 0)")
        e.write(f"every = tl.min(tl.min(({every}).to(tl.int32), 1), 0)")
        e.write(f"tl.store(some_blocks + 1 + some_count, at // {block}, (some > 0) & (every == 0))")
        e.write(f"tl.store(all_blocks + 1 + all_count, at // {block}, every > 0)")
        e.write("some_count += some * (1 - every)")
        e.write("all_count += every")
        e.depth -= 1
        e.write("tl.store(some_blocks, some_count)")
        e.write("tl.store(all_blocks, all_count)")
        name = f"{self.spec.name}_{self.name}"
        grid = [(to_expr(size), own), (to_expr(self.batch if batches else 1), "")]
        return Launch(name, params, BLOCKS, grid, False, config), function_text(name, params, BLOCKS, e.lines)


def space_parameter(space: Workspace) -> Parameter:
    """The parameter that a launch has for it."""
    return Parameter(space.name, POINTER[space.dtype], "workspace")


__all__ = ["ListWriter", "listed_masks", "needed_by", "space_parameter"]
