"""Sums of products over two tiles as one Triton kernel around ``tl.dot`` (``lm.dot``).

A kernel has this form when each of its reductions is the sum, over the inner loops, of a product of two values of which
one depends on the loops ``y`` (rows of the result) and the other on ``x`` (its columns); loops on which both depend are
batches, one program each. What surrounds the reductions is computed on the tile of the result, in registers: bias,
activation, residual, scale, casts, and several results.

Operands that are half precision in memory (or rounded to it) are multiplied as such, with sums in float32; float32
operands are multiplied in float32, never in a shortened format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..index import product
from ..ops import Op
from .kernel import KernelSpec, LoopVar, Phase

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
    y = 16 if m <= 16 else 32
    x = 64 if half else 32
    tiles = batch * -(-m // y)
    while x > 16 and tiles * -(-n // x) < 128:
        x //= 2
    if y == 32 and tiles * -(-n // x) < 64:
        y = 16
    r = max(16, min(64 if half else 32, 1 << (k - 1).bit_length()))
    first = {"XBLOCK": x, "YBLOCK": y, "RBLOCK": r, "num_warps": 4 if x * y > 256 else 2, "num_stages": 4}
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


def write_products(spec: KernelSpec, found: Products, tools: Any) -> Any:
    """The `TritonKernel` of a spec. `tools`: the module ``triton_kernel``."""
    t = tools
    y, x, r = t.Axis("y", found.y), t.Axis("x", found.x), t.Axis("r", found.phase.loops)
    z = t.Axis("z", found.batch) if found.batch else None
    params = t._parameters(spec)
    axes = [y, x] + ([z] if z is not None else [])
    if any(a.static is None for a in axes):
        raise t.CannotGenerate("a product with symbolic sizes")
    batch = z.static if z is not None else 1
    if -(-y.static // 16) > 65535 or batch > 65535:
        raise t.CannotGenerate("a product with too many tiles")
    e = t.Emitter(spec, axes, ["YBLOCK", "XBLOCK"], t.uses_wide_index(spec))
    dtypes = {half_dtype(o, spec) for _, a, b in found.sums for o in (a, b)}
    half = dtypes.pop() if len(dtypes) == 1 else None
    configs = product_configs(batch, y.static, x.static, r.static, half is not None, len(found.sums))
    e.index_lines(x, "tl.program_id(0)", "XBLOCK", 1)
    e.index_lines(y, "tl.program_id(1)", "YBLOCK", 0)
    if z is not None:
        e.write("zindex = tl.program_id(2)" + (".to(tl.int64)" if e.wide else ""))
        e.unmasked.add("z")
    for axis, block in ((x, "XBLOCK"), (y, "YBLOCK"), (r, "RBLOCK")):
        if all(axis.static % c[block] == 0 for c in configs[:1]):
            e.unmasked.add(axis.name)
    position = spec.phases.index(found.phase)
    for p in spec.phases[:position]:
        e.enter(None)
        e.body(p, "once")
    for op, _, _ in found.sums:
        e.kept[op] = f"a{e.counter}"
        e.counter += 1
        e.write(f"{e.kept[op]} = tl.zeros([YBLOCK, XBLOCK], tl.float32)")
    e.write("rlocal = tl.arange(0, RBLOCK)")
    e.write(f"for roffset in range(0, {r.static}, RBLOCK):")
    e.depth += 1
    e.keep_half = half is not None
    sides: list[dict[Op, str]] = [{}, {}]
    for side, shape in ((0, "[None, :]"), (1, "[:, None]")):
        e.enter(r)
        e.write(f"rindex = (roffset + rlocal){shape}" + (".to(tl.int64)" if e.wide else ""))
        if "r" not in e.unmasked:
            e.write(f"rmask = rindex < {r.static}")
        block = "[YBLOCK, RBLOCK]" if side == 0 else "[RBLOCK, XBLOCK]"
        for _, *operands in found.sums:
            op = operands[side]
            if op in sides[side]:
                continue
            text = e.value(op)
            if op.name != "load" and "r" not in e.unmasked:
                text = f"tl.where(rmask, {text}, 0.0)"
            if half is not None and op.name != "load":
                text = f"({text}).to({t.TL_DTYPE[half]})"
            sides[side][op] = e.fresh(f"tl.broadcast_to({text}, {block})")
    e.keep_half = False
    for op, a, b in found.sums:
        name = e.kept[op]
        e.write(f"{name} = lm.dot({sides[0][a]}, {sides[1][b]}, {name})")
    e.depth -= 1
    e.mapping = {k: v for k, v in e.mapping.items() if k not in r.mapping}
    for p in spec.phases[position + 1 :]:
        e.enter(None)
        e.body(p, "once")
    names = ["XBLOCK", "YBLOCK", "RBLOCK"]
    grid = [(x.size, "XBLOCK"), (y.size, "YBLOCK")] + ([(z.size, "")] if z is not None else [])
    launch = t.Launch(spec.name, params, names, grid, e.checks)
    legal = [c for c in configs if all(a.name not in e.unmasked or a.static % c[f"{a.name.upper()}BLOCK"] == 0
                                       for a in (x, y, r))]  # fmt: skip
    return t.TritonKernel(spec, "dot", t._function(spec.name, params, names, e.lines), [launch], legal)


__all__ = ["Products", "find_products", "product_configs", "write_products"]
