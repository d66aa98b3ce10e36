"""Windows over images as loops: the library's kernels for channels-first images go element by element.

Taps are written out, so windows are small and known. Images that lie channels-last stay with the library, whose kernels
are good there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import LoweringError
from ..index import Expr, maximum, minimum, to_expr
from ..ir.loops import Builder, Index
from ..ir.tensor import TensorValue
from ..ops import Op, compute_dtype
from .registry import lowering

_MOST_TAPS = 25
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def _pair(values: Sequence[Any]) -> tuple[int, int]:
    if not all(isinstance(v, int) for v in values):
        raise LoweringError("a window of unknown size")
    return (values[0], values[-1])


def _image(g: Any, x: TensorValue, kernel: tuple[int, int]) -> tuple[Expr, Expr]:
    """Height and width of the image, which is put into memory."""
    if g.device.type != "cpu" or x.dtype not in _FLOATS or kernel[0] * kernel[1] > _MOST_TAPS:
        raise LoweringError("left to the library: another device or dtype, or a large window")
    if g.layouts is not None and g.node in g.layouts.externs:
        raise LoweringError("left to the library: channels-last")
    g.store_deep(x)
    assert x.layout is not None
    if not x.layout.stride[-1] == 1:
        raise LoweringError("left to the library: rows that are not contiguous")
    return x.shape[-2], x.shape[-1]


@lowering("max_pool2d")
def _max_pool2d(
    g: Any, x: TensorValue, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> tuple[TensorValue, TensorValue]:  # fmt: skip
    """Largest element (a NaN is larger than anything) and its position in the plane. A tap outside of the image reads
    the nearest element inside, which belongs to the window itself."""
    (kh, kw), (sh, sw), (ph, pw) = _pair(kernel), _pair(stride or kernel), _pair(padding)
    if _pair(dilation) != (1, 1) or ph >= kh or pw >= kw:
        raise LoweringError("a dilated window")
    h, w = _image(g, x, (kh, kw))
    compute = compute_dtype(x.dtype)

    def taps(index: Index) -> list[tuple[Expr, Expr]]:
        out = []
        for i in range(kh):
            for j in range(kw):
                row, column = index[-2] * sh - ph + i, index[-1] * sw - pw + j
                out.append((_inside(row, h), _inside(column, w)))
        return list(dict.fromkeys(out))

    def largest(b: Builder, index: Index) -> Op:
        best: Op | None = None
        for row, column in taps(index):
            value = x.load(b, (*index[:-2], row, column))
            best = value if best is None else b.maximum(best, value)
        assert best is not None
        return best

    def place(b: Builder, index: Index) -> Op:
        best = where = None
        for row, column in taps(index):
            value = x.load(b, (*index[:-2], row, column))
            at = b.index_expr(row * w + column)
            if best is None or where is None:
                best, where = value, at
                continue
            better = b.logical_or(b.gt(value, best), b.isnan(value))
            best, where = b.where(better, value, best), b.where(better, at, where)
        assert where is not None
        return where

    g.require("maximum", compute)
    cost = 2 * kh * kw
    values = g.realize(g.lazy(g.result(0), largest, cost=cost, reads=kh * kw))
    return values, g.lazy(g.result(1), place, cost=3 * cost, reads=kh * kw)


def _inside(e: Expr, size: Expr) -> Expr:
    """`e` moved into [0, size)."""
    return minimum(maximum(e, 0), size - 1)


@lowering("avg_pool2d")
def _avg_pool2d(
    g: Any, x: TensorValue, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> TensorValue:  # fmt: skip
    (kh, kw), (sh, sw), (ph, pw) = _pair(kernel), _pair(stride or kernel), _pair(padding)
    h, w = _image(g, x, (kh, kw))
    compute, half = compute_dtype(x.dtype), x.dtype in (torch.bfloat16, torch.float16)

    def mean(b: Builder, index: Index) -> Op:
        total: Op | None = None
        sizes: list[Expr] = []
        for at, size, k, step, pad in ((index[-2], h, kh, sh, ph), (index[-1], w, kw, sw, pw)):
            start = at * step - pad
            if count_include_pad:
                sizes.append(minimum(start + k, size + pad) - start)
            else:
                sizes.append(minimum(start + k, size) - maximum(start, 0))
        for i in range(kh):
            for j in range(kw):
                row, column = index[-2] * sh - ph + i, index[-1] * sw - pw + j
                value = _or_zero(b, x, index, (row, column), (h, w))
                total = value if total is None else b.add(total, value)
        assert total is not None
        count = to_expr(divisor_override) if divisor_override else sizes[0] * sizes[1]
        if count.is_const:
            result = b.truediv(total, b.constant(float(int(count)), compute))
        else:
            result = b.truediv(total, b.to_dtype(b.index_expr(count), compute))
        return b.round_to(result, x.dtype) if half else result

    return g.realize(g.lazy(g.result(), mean, cost=2 * kh * kw, reads=kh * kw))


def _or_zero(b: Builder, x: TensorValue, index: Index, at: tuple[Expr, Expr], sizes: tuple[Expr, Expr]) -> Op:
    """An element of the image, 0 outside."""
    inside: Op | None = None
    for e, size in zip(at, sizes, strict=True):
        tests = []
        if e.lo < 0:
            tests.append(b.emit("ge", (b.index_expr(e), b.constant(0, torch.int64)), torch.bool))
        if not (size - e).lo > 0:
            tests.append(b.emit("lt", (b.index_expr(e), b.index_expr(size)), torch.bool))
        for t in tests:
            inside = t if inside is None else b.emit("logical_and", (inside, t), torch.bool)
    if inside is None:
        return x.load(b, (*index[:-2], *at))
    return b.masked(inside, lambda: x.load(b, (*index[:-2], *at)), 0.0)


@lowering("adaptive_avg_pool2d")
def _adaptive_avg_pool2d(g: Any, x: TensorValue, size: Sequence[Any]) -> TensorValue:
    """Windows of equal size are plain averages."""
    plane = x.shape[-2:]
    if not all(e.is_const for e in plane) or not all(isinstance(n, int) and n > 1 for n in size):
        raise LoweringError("left to the library: unknown sizes, or a mean of everything")
    kernel = [int(e) // n for e, n in zip(plane, size, strict=True)]
    if any(int(e) % n for e, n in zip(plane, size, strict=True)):
        raise LoweringError("left to the library: windows of different sizes")
    return _avg_pool2d(g, x, kernel, kernel)


__all__: list[str] = []
