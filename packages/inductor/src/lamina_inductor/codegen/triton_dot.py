"""Sums of products over two tiles as one Triton kernel around ``tl.dot`` (``lm.dot``).

A kernel has this form when each of its reductions is the sum, over the inner loops, of a product of two values of which
one depends on the loops ``y`` (rows of the result) and the other on ``x`` (its columns); loops on which both depend are
batches, one program each. What surrounds the reductions is computed on the tile of the result, in registers: bias,
activation, residual, scale, casts, and several results.

Operands that are half precision in memory (or rounded to it) are multiplied as such, with sums in float32; float32
operands are multiplied in float32, never in a shortened format. Matrix units do not do that: small products of float32
are multiplied and added element by element in blocks ``[y, x, r]``, which needs no exchange of operands between threads
(`MOST_LANES`).

Where the result has too few tiles to fill a device and the sums are long, parts of each sum go to programs of their own
(`split_parts`); a second launch adds the parts in their order and does what follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..index import product, to_expr
from ..ops import Op
from .kernel import KernelSpec, LoopVar, Phase
from .triton_blocks import uses_wide_index
from .triton_emitter import Axis, Emitter
from .triton_launch import CannotGenerate, Launch, Parameter, TritonKernel, Workspace, function_text, parameters_of
from .triton_ops import POINTER, TL_DTYPE

_HALF = (torch.bfloat16, torch.float16)
_PURE = ("load", "constant", "mul", "add", "sub", "to_dtype", "round_to", "neg", "maximum", "minimum", "sigmoid",
         "tanh", "exp", "where", "gt", "lt", "ge", "le", "truediv", "reciprocal", "reduction")  # fmt: skip


@dataclass(frozen=True)
class Products:
    """What `find_products` saw: the phase of the sums, the loops of each axis, and (sum, row operand, column
    operand)."""

    phase: Phase
    y: tuple[LoopVar, ...]
    x: tuple[LoopVar, ...]
    batch: tuple[LoopVar, ...]
    sums: tuple[tuple[Op, Op, Op], ...]


def find_products(spec: KernelSpec) -> Products | None:
    """The kernel as products of tiles, or None."""
    inner = [p for p in spec.phases if p.loops]
    if len(inner) != 1 or spec.sizes or any(v.kind != "parallel" for v in spec.loops):
        return None
    phase = inner[0]
    own = set(phase.ops)
    if any(op.name not in _PURE or (op.name == "load" and op.args[2] is not None) for op in phase.ops):
        return None
    outer = {v.name for v in spec.loops}
    k = {v.name for v in phase.loops}
    sums: list[tuple[Op, Op, Op]] = []
    sides: tuple[frozenset[str], frozenset[str]] | None = None
    batch: frozenset[str] = frozenset()
    for op in phase.ops:
        if op.name != "reduction":
            continue
        value = op.args[0]
        if op.args[1] != "sum" or op.dtype != torch.float32 or value.name != "mul" or value.dtype != torch.float32:
            return None
        found = [_loops_of(o, own) for o in value.operands()]
        if len(found) != 2 or any(f is None or not k <= f for f in found):
            return None
        a, b = (f & outer for f in found if f is not None)
        left, right = a - b, b - a
        if sides is None:
            last = next((v.name for v in reversed(spec.loops) if v.name in left | right), None)
            sides = (right, left) if last in left else (left, right)
            batch = frozenset(outer) - left - right
        if {left, right} != set(sides) or not left or not right:
            return None
        rows, columns = value.operands() if left == sides[0] else reversed(value.operands())
        sums.append((op, rows, columns))
    if not sums or sides is None:
        return None
    pick: Callable[[frozenset[str]], tuple[LoopVar, ...]] = lambda names: tuple(  # noqa: E731
        v for v in spec.loops if v.name in names
    )
    found_products = Products(phase, pick(sides[0]), pick(sides[1]), pick(batch), tuple(sums))
    sizes = [product(v.size for v in loops) for loops in (found_products.y, found_products.x, phase.loops)]
    if not all(s.is_const for s in sizes) or int(sizes[2]) < 8 or min(int(sizes[0]), int(sizes[1])) < 4:
        return None
    return found_products


def _loops_of(op: Op, own: set[Op]) -> frozenset[str] | None:
    """The loops that a value depends on; None if part of it belongs to another phase."""
    if op not in own or op.name == "reduction":
        return None
    found: frozenset[str] = frozenset().union(*(e.syms for e in op.exprs())) if op.exprs() else frozenset()
    for o in op.operands():
        more = _loops_of(o, own)
        if more is None:
            return None
        found |= more
    return found


def half_dtype(op: Op, spec: KernelSpec) -> torch.dtype | None:
    """The half format that holds an operand without loss, or None."""
    if op.name == "load":
        dtype = spec.buffer(op.args[0]).dtype
        return dtype if dtype in _HALF else None
    return op.args[1] if op.name == "round_to" else None


def product_configs(batch: int, m: int, n: int, k: int, half: bool, sums: int) -> list[dict[str, int]]:
    """Tiles to try, the rule's first: small enough that the card's processors all have one."""
    if half and k >= 512:  # long sums: deep steps, and tiles for every processor
        y, x, r = 16, 32, 128
    else:
        y, x = 16 if m <= 16 else 32, 64 if half else 32
        r = max(16, min(64 if half else 32, 1 << (k - 1).bit_length()))
    tiles = batch * -(-m // y)
    while x > 16 and tiles * -(-n // x) < 128:
        x //= 2
    if y == 32 and tiles * -(-n // x) < 64:
        y = 16
    first = {"XBLOCK": x, "YBLOCK": y, "RBLOCK": r, "num_warps": 4 if x * y > 256 else 2,
             "num_stages": 3 if r == 128 else 4}  # fmt: skip
    found = [first]
    deepest = max(16, min(128, 1 << (k - 1).bit_length()))
    for yb, xb, rb, warps, stages in (
        (16, 16, 64, 2, 3), (16, 32, 64, 2, 4), (16, 64, 64, 4, 4), (16, 32, 128, 4, 3), (32, 32, 64, 4, 3),
        (64, 64, 32, 4, 4), (64, 64, 64, 4, 4), (64, 128, 64, 4, 4), (128, 64, 64, 4, 4), (128, 128, 64, 8, 3),
    ):  # fmt: skip
        tall, wide = 2 * max(16, 1 << (m - 1).bit_length()), 2 * max(16, 1 << (n - 1).bit_length())
        if yb > tall or xb > wide or sums * yb * xb > 16384 or (not half and yb * xb > 4096):
            continue
        c = {"XBLOCK": xb, "YBLOCK": yb, "RBLOCK": min(rb, deepest), "num_warps": warps, "num_stages": stages}
        if c not in found:
            found.append(c)
    return found


PROGRAMS = 128  # wanted of a launch; a part of a sum is at least two of `CHUNK` long
CHUNK = 128
MOST_LANES = 1 << 23
"""Largest m*n*k of float32 products that are added element by element."""


def split_parts(tiles: int, k: int) -> int:
    """How many parts the sums of a product are split into; 1: not at all."""
    parts = 1
    while tiles * parts * 2 <= PROGRAMS and k // (parts * 2) >= 2 * CHUNK:
        parts *= 2
    return parts


class _Writer:
    """Writes the one or two launches of a spec."""

    def __init__(self, spec: KernelSpec, found: Products) -> None:
        self.spec, self.found = spec, found
        self.y, self.x, self.r = Axis("y", found.y), Axis("x", found.x), Axis("r", found.phase.loops)
        self.z = Axis("z", found.batch) if found.batch else None
        if any(a.static is None for a in (self.y, self.x, self.r, self.z) if a is not None):
            raise CannotGenerate("a product with symbolic sizes")
        self.batch = self.z.static if self.z is not None else 1
        dtypes = {half_dtype(o, spec) for _, a, b in found.sums for o in (a, b)}
        self.half = dtypes.pop() if len(dtypes) == 1 else None
        m, n, k = self.y.static, self.x.static, self.r.static
        self.lanes = self.half is None and self.batch * m * n * k <= MOST_LANES
        if self.lanes:
            configs = lane_configs(self.batch, m, n, k)
        else:
            configs = product_configs(self.batch, m, n, k, self.half is not None, len(found.sums))
        first = configs[0]
        tiles = self.batch * -(-m // first["YBLOCK"]) * -(-n // first["XBLOCK"])
        chunk = -(-k // split_parts(tiles, k))
        self.chunk = -(-chunk // CHUNK) * CHUNK
        self.parts = -(-k // self.chunk)
        if -(-m // 16) > 65535 or self.batch * self.parts > 65535:
            raise CannotGenerate("a product with too many tiles")
        self.unmasked = {a.name for a in (self.y, self.x) if a.static % first[f"{a.name.upper()}BLOCK"] == 0}
        if (k if self.parts == 1 else self.chunk) % first["RBLOCK"] == 0 and k % max(self.chunk, k // self.parts) == 0:
            self.unmasked.add("r")
        self.configs = [c for c in configs if self._is_legal(c)]
        self.params = parameters_of(spec)
        self.position = spec.phases.index(found.phase)

    def _is_legal(self, c: dict[str, int]) -> bool:
        lengths = {"y": self.y.static, "x": self.x.static, "r": self.r.static if self.parts == 1 else self.chunk}
        return all(lengths[a] % c[f"{a.upper()}BLOCK"] == 0 for a in self.unmasked)

    def begin(self, batch: str) -> Emitter:
        """An emitter with the lines that say where a program's tile lies; `batch`: text of its number."""
        axes = [self.y, self.x] + ([self.z] if self.z is not None else [])
        e = Emitter(self.spec, axes, ["YBLOCK", "XBLOCK"], uses_wide_index(self.spec))
        e.index_lines(self.x, "tl.program_id(0)", "XBLOCK", 1)
        e.index_lines(self.y, "tl.program_id(1)", "YBLOCK", 0)
        e.write(f"zindex = {batch}" + (".to(tl.int64)" if e.wide else ""))
        e.unmasked = {"z", *self.unmasked}
        return e

    def sums(self, e: Any, start: str, end: str) -> None:
        """The loop over the inner range."""
        if self.lanes:
            return self.lane_sums(e, start, end)
        for op, _, _ in self.found.sums:
            e.kept[op] = e.fresh("tl.zeros([YBLOCK, XBLOCK], tl.float32)", "a")
        e.write("rlocal = tl.arange(0, RBLOCK)")
        e.write(f"for roffset in range({start}, {end}, RBLOCK):")
        e.depth += 1
        e.keep_half = self.half is not None
        sides: list[dict[Op, str]] = [{}, {}]
        for side, shape in ((0, "[None, :]"), (1, "[:, None]")):
            e.enter(self.r)
            e.write(f"rindex = (roffset + rlocal){shape}" + (".to(tl.int64)" if e.wide else ""))
            if "r" not in e.unmasked:
                e.write(f"rmask = rindex < {end}")
            block = "[YBLOCK, RBLOCK]" if side == 0 else "[RBLOCK, XBLOCK]"
            for _, *operands in self.found.sums:
                op = operands[side]
                if op in sides[side]:
                    continue
                text = e.value(op)
                if op.name != "load" and "r" not in e.unmasked:
                    text = f"tl.where(rmask, {text}, 0.0)"
                if self.half is not None and op.name != "load":
                    text = f"({text}).to({TL_DTYPE[self.half]})"
                sides[side][op] = e.fresh(f"tl.broadcast_to({text}, {block})")
        e.keep_half = False
        for op, a, b in self.found.sums:
            name = e.kept[op]
            e.write(f"{name} = lm.dot({sides[0][a]}, {sides[1][b]}, {name})")
        e.depth -= 1
        e.mapping = {k: v for k, v in e.mapping.items() if k not in self.r.mapping}

    def lane_sums(self, e: Any, start: str, end: str) -> None:
        """The same, element by element."""
        for op, _, _ in self.found.sums:
            e.kept[op] = e.fresh("tl.zeros([YBLOCK, XBLOCK, RBLOCK], tl.float32)", "a")
        for a in ("y", "x"):
            e.write(f"{a}line = {a}index[:, :, None]")
            e.write(f"{a}linemask = {a}mask[:, :, None]")
        e.write("rlocal = tl.arange(0, RBLOCK)[None, None, :]")
        e.write(f"for roffset in range({start}, {end}, RBLOCK):")
        e.depth += 1
        e.write("rline = roffset + rlocal" + (".to(tl.int64)" if e.wide else ""))
        if "r" not in e.unmasked:
            e.write(f"rlinemask = rline < {end}")
        e.names.update({f"{a}index": f"{a}line" for a in "yxr"})
        e.mask_names = {a: f"{a}linemask" for a in "yxr"}
        e.enter(self.r)
        texts: dict[Op, str] = {}
        for op, *operands in self.found.sums:
            for o in operands:
                if o not in texts:
                    text = e.value(o)
                    plain = o.name == "load" or "r" in e.unmasked
                    texts[o] = text if plain else e.fresh(f"tl.where(rlinemask, {text}, 0.0)")
            name = e.kept[op]
            e.write(f"{name} = {name} + {texts[operands[0]]} * {texts[operands[1]]}")
        for a in "yxr":
            del e.names[f"{a}index"]
        e.mask_names = {}
        e.depth -= 1
        e.mapping = {k: v for k, v in e.mapping.items() if k not in self.r.mapping}
        for op, _, _ in self.found.sums:
            e.kept[op] = e.fresh(f"tl.sum({e.kept[op]}, 2)", "a")

    def phases(self, e: Any, phases: Any) -> None:
        for p in phases:
            e.enter(None)
            e.body(p, "once")

    def launch(self, name: str, params: list, constexprs: list[str], programs: int, e: Any) -> tuple[Launch, str]:
        """(launch, its text)."""
        grid = [(self.x.size, "XBLOCK"), (self.y.size, "YBLOCK")]
        if programs > 1:
            grid.append((to_expr(programs), ""))
        text = function_text(name, params, constexprs, e.lines)
        return Launch(name, params, constexprs, grid, e.checks), text

    def write(self) -> TritonKernel:
        """The `TritonKernel`."""
        spec = self.spec
        blocks = ["XBLOCK", "YBLOCK", "RBLOCK"]
        if self.parts == 1:
            e = self.begin("tl.program_id(2)")
            self.phases(e, spec.phases[: self.position])
            self.sums(e, "0", str(self.r.static))
            self.phases(e, spec.phases[self.position + 1 :])
            launch, text = self.launch(spec.name, self.params, blocks, self.batch, e)
            return TritonKernel(spec, "dot", text, [launch], self.configs)
        numel = self.y.static * self.x.static
        spaces = [Workspace(f"ws{k}", torch.float32, to_expr(self.batch * self.parts * numel))
                  for k in range(len(self.found.sums))]  # fmt: skip
        params = [*self.params, *(Parameter(w.name, POINTER[w.dtype], "workspace") for w in spaces)]
        e = self.begin(f"tl.program_id(2) // {self.parts}")
        e.write(f"first = (tl.program_id(2) % {self.parts}) * {self.chunk}")
        e.write(f"last = tl.minimum(first + {self.chunk}, {self.r.static})")
        self.sums(e, "first", "last")
        where = f"{{part}} * {numel} + yindex * {self.x.static} + xindex"
        cond = e.mask(frozenset({"x", "y"}))
        for w, (op, _, _) in zip(spaces, self.found.sums, strict=True):
            at = where.format(part="tl.program_id(2)" + (".to(tl.int64)" if e.wide else ""))
            e.write(f"tl.store({w.name} + {at}, {e.kept[op]}" + (f", {cond})" if cond else ")"))
        one, first = self.launch(f"{spec.name}_parts", params, blocks, self.batch * self.parts, e)
        f = self.begin("tl.program_id(2)")
        self.phases(f, spec.phases[: self.position])
        for w, (op, _, _) in zip(spaces, self.found.sums, strict=True):
            name = f.kept[op] = f.fresh("tl.zeros([YBLOCK, XBLOCK], tl.float32)", "a")
            f.write(f"for part in range(0, {self.parts}):")
            at = where.format(part=f"(zindex * {self.parts} + part)")
            f.write(f"    {name} = {name} + tl.load({w.name} + {at}" + (f", {cond}, other=0)" if cond else ")"))
        self.phases(f, spec.phases[self.position + 1 :])
        two, second = self.launch(f"{spec.name}_whole", params, blocks[:2], self.batch, f)
        ending = {k: v for k, v in self.configs[0].items() if k in ("XBLOCK", "YBLOCK")}
        configs = [{**c, "second": {**ending, "num_warps": 4}} for c in self.configs]
        return TritonKernel(spec, "dot", first + "\n\n" + second, [one, two], configs, spaces)


def lane_configs(batch: int, m: int, n: int, k: int) -> list[dict[str, int]]:
    """Blocks of products that are added element by element: about 64 products a thread and step."""
    r = max(16, min(256, 1 << (k - 1).bit_length()))
    found = []
    for elements, warps in ((8192, 4), (4096, 4), (8192, 8), (16384, 8)):
        x = y = 2
        while y * x * r < elements:
            x, y = (x * 2, y) if x <= y else (x, y * 2)
        while batch * -(-m // y) * -(-n // x) < 64 and y * x > 8:
            x, y = (x // 2, y) if x > y else (x, y // 2)
        c = {"XBLOCK": x, "YBLOCK": y, "RBLOCK": r, "num_warps": warps, "num_stages": 2}
        if c not in found:
            found.append(c)
    return found


def write_products(spec: KernelSpec, found: Products) -> TritonKernel:
    """The `TritonKernel` of a spec."""
    return _Writer(spec, found).write()


__all__ = ["Products", "find_products", "product_configs", "write_products"]
