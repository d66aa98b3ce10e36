"""Prims that join or pad tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import LoweringError
from ..index import ZERO, Expr, product
from ..ir.layout import Layout, contiguous_strides
from ..ir.loops import Builder, Index
from ..ir.tensor import BROADCAST_OPS, TensorValue
from ..ops import Op, compute_dtype
from .registry import lowering

_LARGE_PAD = 1 << 16
"""Elements of a padded tensor from which on its parts are written by loops of their own; fewer are mostly calls."""


@lowering("cat")
def _cat(g: Any, tensors: Sequence[TensorValue], dim: int) -> TensorValue:
    """Every operand is computed straight into its slice of the result."""
    meta = g.result()
    dim = dim % max(len(meta.shape), 1)
    tensors = [t for t in tensors if not any(s == 0 for s in t.shape) and len(t.shape) == len(meta.shape)]
    if not tensors:
        return g.lazy(meta, lambda b, index: b.constant(0, meta.dtype))
    if len(tensors) == 1:
        t = tensors[0]
        return g.lazy(meta, lambda b, index: t.load(b, index), cost=t.weight()[0], reads=t.weight()[1])
    name, layout = g.new_buffer(meta)
    start = ZERO
    for t in tensors:
        offset = layout.offset + start * layout.stride[dim]
        g.store_node(t, name, Layout(layout.dtype, layout.device, t.shape, layout.stride, offset))
        start = start + t.shape[dim]
    return g.stored(meta, name, layout)


@lowering("pad")
def _pad(g: Any, x: TensorValue, value: Any, low: Sequence[Any], high: Sequence[Any]) -> TensorValue:
    if not isinstance(value, (bool, int, float)):
        raise LoweringError(f"padding with {value!r}")
    low = g.exprs(low)
    high = g.exprs(high)
    if _is_stored_at_once(g, low, high):
        return _write_parts(g, x, value, low, high)
    if x.weight()[0] > BROADCAST_OPS and g.device.type == "cpu":
        g.realize(x)

    def inner(b: Builder, index: Index) -> Op:
        moved = tuple(i - n for i, n in zip(index, low, strict=True))
        condition: Op | None = None
        for d, e in enumerate(moved):
            tests = []
            if not low[d].hi <= 0:
                tests.append(b.emit("ge", (b.index_expr(e), b.constant(0, torch.int64)), torch.bool))
            if not high[d].hi <= 0:
                tests.append(b.emit("lt", (b.index_expr(e), b.index_expr(x.shape[d])), torch.bool))
            for t in tests:
                condition = t if condition is None else b.emit("logical_and", (condition, t), torch.bool)
        if condition is None:
            return x.load(b, moved)
        return b.masked(condition, lambda: x.load(b, moved), value)

    cost, reads = x.weight()
    return g.lazy(g.result(), inner, cost=cost + 2 * len(low), reads=reads)


def _is_stored_at_once(g: Any, low: Sequence[Expr], high: Sequence[Expr]) -> bool:
    """True for a large result that a call of the library or the caller of the graph gets, and no kernel of ours."""
    meta = g.result()
    if g.device.type != "cpu" or g.inlines or not all(e.is_const for e in (*meta.shape, *low, *high)):
        return False
    if int(product(meta.shape)) < _LARGE_PAD or any(int(n) < 0 for n in (*low, *high)):
        return False
    users = [u for u in g.node.users if u.op != "output"]
    return all("extern" in getattr(getattr(u.target, "spec", None), "tags", ()) for u in users)


def _write_parts(
    g: Any, x: TensorValue, value: float, low: Sequence[Expr], high: Sequence[Expr]
) -> TensorValue:
    """The operand and each of its borders, straight into their places."""
    meta = g.result()
    name, layout = g.new_buffer(meta)

    def put(part: TensorValue, start: Sequence[Expr]) -> None:
        if not any(n == 0 for n in part.shape):
            offset = layout.index(start)
            g.store_node(part, name, Layout(layout.dtype, layout.device, part.shape, layout.stride, offset))

    def border(b: Builder, index: Index) -> Op:
        return b.constant(value, compute_dtype(meta.dtype))

    put(x, low)
    for d in range(len(low)):
        for size, start in ((low[d], ZERO), (high[d], low[d] + x.shape[d])):
            shape = (*x.shape[:d], size, *meta.shape[d + 1 :])
            of = type(meta)(meta.dtype, meta.device, shape, contiguous_strides(shape))
            put(g.lazy(of, border), (*low[:d], start, *[ZERO] * (len(low) - d - 1)))
    return g.stored(meta, name, layout)
