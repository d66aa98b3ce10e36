"""Depthwise convolutions as loops, for devices whose library is slow at them (cuDNN builds an engine for every shape).

Each of the few taps is one multiplication per element, so the taps are written out: the forward pass and the gradient
of the input are elementwise kernels over the image, in which bias and whatever follows fuse. The gradient of the
weights is a reduction over images and positions, with one row of taps a program and a fixed order of summation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..index import Expr, to_expr
from ..ir.loops import Builder, Index, LoopNode, loop_index, loop_vars
from ..ir.tensor import TensorValue, is_tensor_value
from ..layout_pass import DEPTHWISE_TAPS, channels_last_strides
from ..ops import Op, compute_dtype

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Window:
    """A depthwise convolution of fixed sizes: images (n, c, h, w), results (n, c, oh, ow), taps (kh, kw)."""

    n: int
    c: int
    h: int
    w: int
    oh: int
    ow: int
    kh: int
    kw: int
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]


def _ints(values: Sequence[Any]) -> tuple[int, ...] | None:
    if any(isinstance(v, Expr) and not v.is_const for v in values):
        return None
    return tuple(int(v) for v in values)


def window_of(
    x: Any, weight: Any, out: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, groups: int,
) -> Window | None:  # fmt: skip
    """The convolution if it is depthwise, with one result channel for each channel, of fixed sizes and few taps."""
    if transposed or not is_tensor_value(x) or not is_tensor_value(weight) or len(weight.shape) != 4:
        return None
    if x.dtype not in _FLOATS or weight.dtype != x.dtype or len(x.shape) != 4:
        return None
    shapes = [_ints(t.shape) for t in (x, weight, out)]
    if any(s is None or 0 in s for s in shapes):
        return None
    (n, c, h, w), (o, inner, kh, kw), (_, _, oh, ow) = shapes  # type: ignore[misc]
    if groups == 1 or groups != c or o != c or inner != 1 or kh * kw > DEPTHWISE_TAPS:
        return None
    pairs = [_ints(tuple(p) * (2 // len(p))) for p in (stride, padding, dilation)]
    if any(p is None for p in pairs):
        return None
    return Window(n, c, h, w, oh, ow, kh, kw, *pairs)  # type: ignore[arg-type]


def _inside(b: Builder, at: Expr, size: int) -> Op | None:
    """Whether 0 <= at < size; None where that is certain."""
    found = None
    if at.lo < 0:
        found = b.ge(b.index_expr(at, torch.int32), b.constant(0, torch.int32))
    if at.hi >= size:
        below = b.lt(b.index_expr(at, torch.int32), b.constant(size, torch.int32))
        found = below if found is None else b.logical_and(found, below)
    return found


def _masked(b: Builder, conditions: Sequence[Op | None], load: Any) -> Op:
    known = [c for c in conditions if c is not None]
    if not known:
        return load()
    condition = known[0]
    for c in known[1:]:
        condition = b.logical_and(condition, c)
    before, b.mask = b.mask, condition  # a load yields 0 where its mask is false
    try:
        return load()
    finally:
        b.mask = before


def _taps_outside(g: Any, win: Window, weight: TensorValue) -> TensorValue:
    """The weights with channels next to each other, as they lie in the image."""
    return g.store_with_strides(weight, g.exprs((1, win.kh * win.kw * win.c, win.kw * win.c, win.c)))


def forward(g: Any, win: Window, x: TensorValue, weight: TensorValue, bias: TensorValue | None) -> TensorValue:
    """The convolution as a stored value."""
    meta = g.result()
    compute = compute_dtype(x.dtype)
    x = g.store_with_strides(x, g.exprs(channels_last_strides(x.shape)))
    weight = _taps_outside(g, win, weight)

    def inner(b: Builder, index: Index) -> Op:
        i, c, p, q = map(to_expr, index)
        total: Op | None = None if bias is None else b.to_dtype(bias.load(b, (c,)), compute)
        for u in range(win.kh):
            row = p * win.stride[0] + (u * win.dilation[0] - win.padding[0])
            for v in range(win.kw):
                column = q * win.stride[1] + (v * win.dilation[1] - win.padding[1])
                inside = (_inside(b, row, win.h), _inside(b, column, win.w))
                value = _masked(b, inside, lambda: x.load(b, (i, c, row, column)))  # noqa: B023
                term = b.mul(b.to_dtype(value, compute), b.to_dtype(weight.load(b, (c, to_expr(0), u, v)), compute))
                total = term if total is None else b.add(total, term)
        assert total is not None
        return b.to_dtype(total, meta.dtype)

    return g.realize(g.lazy(meta, inner, cost=2 * win.kh * win.kw, reads=2 * win.kh * win.kw))


def input_gradient(g: Any, win: Window, grad: TensorValue, weight: TensorValue, meta: Any) -> TensorValue:
    """The gradient of the image as a stored value; `grad` is stored."""
    compute = compute_dtype(grad.dtype)
    weight = _taps_outside(g, win, weight)

    def source(b: Builder, at: Expr, tap: int, axis: int) -> tuple[Expr, list[Op | None]]:
        """Where the result lies that position `at` of the image went into by tap `tap`, and whether there is one."""
        step = win.stride[axis]
        step, size = win.stride[axis], (win.oh, win.ow)[axis]
        far = win.padding[axis] - tap * win.dilation[axis]
        start = at + far % step
        place = start // step + far // step
        conditions = [_inside(b, place, size)]
        if step > 1:
            conditions.append(b.eq(b.index_expr(start % step, torch.int32), b.constant(0, torch.int32)))
        return place, conditions

    def inner(b: Builder, index: Index) -> Op:
        i, c, p, q = map(to_expr, index)
        total: Op | None = None
        for u in range(win.kh):
            row, row_inside = source(b, p, u, 0)
            for v in range(win.kw):
                column, column_inside = source(b, q, v, 1)
                value = _masked(
                    b, [*row_inside, *column_inside], lambda: grad.load(b, (i, c, row, column))  # noqa: B023
                )
                term = b.mul(b.to_dtype(value, compute), b.to_dtype(weight.load(b, (c, to_expr(0), u, v)), compute))
                total = term if total is None else b.add(total, term)
        assert total is not None
        return b.to_dtype(total, meta.dtype)

    return g.realize(g.lazy(meta, inner, cost=2 * win.kh * win.kw, reads=2 * win.kh * win.kw))


def weight_gradient(g: Any, win: Window, grad: TensorValue, x: TensorValue, meta: Any) -> TensorValue:
    """The gradient of the weights as a stored value. One reduction over (n, oh, ow) for each row of taps and channel
    has the row's taps as its results, so that gradients are read once a row."""
    compute = compute_dtype(x.dtype)
    g.require("reduction:sum", compute)
    name, layout = g.new_buffer(meta, stride=g.exprs((1, win.kh * win.kw * win.c, win.kw * win.c, win.c)))
    outer = loop_vars("d", g.exprs((win.kh, win.c)), "parallel")
    inner = loop_vars("e", g.exprs((win.n, win.oh, win.ow)), "reduction")
    u, c = (loop_index(v) for v in outer)
    i, p, q = (loop_index(v) for v in inner)
    b = g.builder()
    gradient = b.to_dtype(grad.load(b, (i, c, p, q)), compute)
    sums = []
    row = p * win.stride[0] + u * win.dilation[0] - win.padding[0]
    row_inside = _inside(b, row, win.h)
    for v in range(win.kw):
        column = q * win.stride[1] + (v * win.dilation[1] - win.padding[1])
        inside = (row_inside, _inside(b, column, win.w))
        value = _masked(b, inside, lambda: x.load(b, (i, c, row, column)))  # noqa: B023
        sums += b.reduction(b.mul(gradient, b.to_dtype(value, compute)), "sum", None, compute)
    body = b.next_phase()
    for v, total in enumerate(sums):
        b.store(name, layout.index((c, to_expr(0), u, to_expr(v))), total)
    origins = tuple(dict.fromkeys((*grad.origins, g.node.name)))
    g.nodes.append(LoopNode(len(g.nodes), outer, inner, body, b.ops, origins))
    return g.stored(meta, name, layout)


__all__ = ["Window", "forward", "input_gradient", "weight_gradient", "window_of"]
