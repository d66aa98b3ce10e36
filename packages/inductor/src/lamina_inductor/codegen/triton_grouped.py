"""Products of row groups (`grouped_kernel`) as one Triton kernel.

Where groups end is known on the device only. So each program finds its group: from the number of tiles of each group,
and a running sum of these, which all programs compute (a few hundred additions). There are as many programs as there
can be tiles; the last ones find no group and end.
"""

from __future__ import annotations

import torch

from ..index import to_expr
from ..ops import Op
from .grouped_kernel import GroupedKernel
from .triton_blocks import next_power, uses_wide_index
from .triton_dot import half_dtype
from .triton_emitter import Axis, Emitter
from .triton_launch import Launch, TritonKernel, function_text, parameters_of
from .triton_ops import TL_DTYPE, from_memory, to_memory

BLOCKS = ["XBLOCK", "YBLOCK", "RBLOCK", "GBLOCK"]


def grouped_configs(groups: int, rows: int, columns: int, terms: int, half: bool) -> list[dict[str, int]]:
    """Tiles to try, the rule's first: as high as groups are on the average."""
    usual = max(16, min(128, next_power(max(1, rows // groups))))
    if half:
        tiles = [(usual, 128, 64, 8 if usual == 128 else 4, 3), (64, 128, 64, 4, 4), (128, 128, 64, 8, 3),
                 (32, 128, 64, 4, 4), (64, 64, 64, 4, 4), (16, 64, 128, 4, 3)]  # fmt: skip
    else:
        tiles = [(min(usual, 64), 64, 32, 4, 2), (32, 64, 32, 4, 2), (16, 64, 32, 4, 2)]
    found = []
    for y, x, r, warps, stages in tiles:
        c = {
            "XBLOCK": min(x, max(16, next_power(columns))), "YBLOCK": y, "RBLOCK": min(r, max(16, next_power(terms))),
            "GBLOCK": next_power(groups), "num_warps": warps, "num_stages": stages,
        }  # fmt: skip
        if c not in found and y <= 2 * max(16, next_power(rows)):
            found.append(c)
    return found


class _Writer:
    def __init__(self, spec: GroupedKernel) -> None:
        self.spec = spec
        self.groups, self.rows, self.columns, self.terms = spec.extents
        loops = {v.name: v for p in (spec, *spec.phases) for v in p.loops}
        named = {"z": "z", "m": "y", "n": "x", "d": "r"}
        self.axes = [Axis(named[k], (v,)) for k, v in loops.items()]
        halves = [half_dtype(p.ops[-1].args[2], spec) for p in spec.phases[:2]]
        self.half = halves[0] if halves[0] == halves[1] else None
        self.configs = grouped_configs(*spec.extents, self.half is not None)
        self.e = Emitter(spec, self.axes, ["YBLOCK", "XBLOCK"], uses_wide_index(spec))

    def view(self, shape: list[str], **names: str) -> None:
        e = self.e
        e.shape = shape
        e.axes = [a for a in self.axes if a.name == "z" or a.name in names]
        e.local, e.loaded = {}, {}
        for axis, name in names.items():
            e.names[f"{axis}index"] = name
            e.mask_names[axis] = f"{name}_in"

    def operand(self, phase: int, shape: list[str], **names: str) -> str:
        self.view(shape, **names)
        e, ops = self.e, self.spec.phases[phase].ops
        root = ops[-1].args[2]
        e.keep_half = self.half is not None and root.name == "load"
        self.body(ops)
        text = f"tl.broadcast_to({e.value(root)}, [{', '.join(shape)}])"
        e.keep_half = False
        if root.name != "load":
            outside = [f"{names[a]}_in" for a in names if a not in e.unmasked]
            text = f"tl.where({' & '.join(outside)}, {text}, 0.0)" if outside else text
            text = f"({text}).to({TL_DTYPE[self.half]})" if self.half is not None else text
        return e.fresh(text)

    def body(self, ops: tuple[Op, ...]) -> None:
        for op in ops:
            if op.name == "check":
                self.e.check(op)
            elif op.name != "store" and op not in self.e.local:
                self.e.emit(op)

    def find_group(self) -> None:
        """The group of this program, where its tile begins, and where the group's rows end."""
        e, layout = self.e, self.spec.buffer(self.spec.ends)
        e.write("tile = tl.program_id(1) + tl.program_id(2) * tl.num_programs(1)")
        e.write("numbers = tl.arange(0, GBLOCK)")
        e.write(f"known = numbers < {self.groups}")
        e.write(f"ends = tl.load({layout.name} + numbers, known, other=0).to(tl.int32)")
        e.write(f"begins = tl.load({layout.name} + numbers - 1, known & (numbers > 0), other=0).to(tl.int32)")
        e.write("tiles = tl.where(known, (tl.maximum(ends - begins, 0) + YBLOCK - 1) // YBLOCK, 0)")
        e.write("after = tl.cumsum(tiles, 0)")
        e.write("zindex = tl.sum((after <= tile).to(tl.int32), 0)")
        e.write(f"if zindex < {self.groups}:")
        e.depth += 1
        e.write("mine = numbers == zindex")
        e.write("top = tl.sum(tl.where(mine, begins + (tile - after + tiles) * YBLOCK, 0), 0)")
        e.write("bottom = tl.sum(tl.where(mine, ends, 0), 0)")

    def write(self) -> TritonKernel:
        spec, e = self.spec, self.e
        wide = ".to(tl.int64)" if e.wide else ""
        e.unmasked = {"z"}
        for axis, size, block in (("x", self.columns, "XBLOCK"), ("r", self.terms, "RBLOCK")):
            if all(size % c[block] == 0 for c in self.configs):
                e.unmasked.add(axis)
        self.find_group()
        if wide:
            e.write("zindex = zindex.to(tl.int64)")
        self.line("row", f"top + tl.arange(0, YBLOCK){wide}", "bottom", ":, None")
        self.line("column", f"tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK){wide}", str(self.columns), "None, :")
        e.write("product = tl.zeros([YBLOCK, XBLOCK], tl.float32)")
        e.write(f"for deep in range(0, {self.terms}, RBLOCK):")
        e.depth += 1
        self.line("term", f"deep + tl.arange(0, RBLOCK){wide}", str(self.terms), "None, :")
        self.line("below", f"deep + tl.arange(0, RBLOCK){wide}", str(self.terms), ":, None")
        a = self.operand(0, ["YBLOCK", "RBLOCK"], y="row", r="term")
        b = self.operand(1, ["RBLOCK", "XBLOCK"], r="below", x="column")
        e.write(f"product = {'lm.dot' if self.half is not None else 'lm.dot_in_parts'}({a}, {b}, product)")
        e.depth -= 1
        if spec.rounds != torch.float32:
            e.write(f"product = {from_memory(to_memory('product', spec.rounds), spec.rounds)}")
        for phase in spec.phases[2:]:
            self.view(["YBLOCK", "XBLOCK"], y="row", x="column")
            for op in phase.ops:
                if op.name == "load" and op.args[0] == "product":
                    e.local[op] = "product"
            self.body(phase.ops)
            e.store(phase.ops[-1], in_registers=False)
        params = parameters_of(spec)
        highest = max(c["YBLOCK"] for c in self.configs)
        more = 1 + -(-(self.groups - 1) // -(-self.rows // highest))
        grid = [(to_expr(self.columns), "XBLOCK"), (to_expr(self.rows), "YBLOCK"), (to_expr(more), "")]
        launch = Launch(spec.name, params, BLOCKS, grid, e.checks)
        text = function_text(spec.name, params, BLOCKS, e.lines)
        return TritonKernel(spec, "grouped", text, [launch], self.configs)

    def line(self, name: str, text: str, end: str, dims: str) -> None:
        self.e.write(f"{name} = ({text})[{dims}]")
        self.e.write(f"{name}_in = {name} < {end}")


def write_grouped(spec: GroupedKernel) -> TritonKernel:
    """The `TritonKernel` of products of row groups."""
    return _Writer(spec).write()


__all__ = ["grouped_configs", "write_grouped"]
