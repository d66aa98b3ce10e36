"""View prims: index transformations, never copies. A view of a stored value is again stored, with other strides,
where strides can say it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import LoweringError
from ..index import ONE, ZERO, Expr, is_equal, is_less, product, to_expr
from ..ir.layout import Layout, same_strides
from ..ir.loops import Builder, Index
from ..ir.tensor import BROADCAST_OPS, TensorValue
from ..ops import Op
from .registry import lowering


def make_view(
    g: Any,
    x: TensorValue,
    reindex: Callable[[Index], Sequence[Any]],
    restride: Callable[[Layout], Layout | None] | None,
) -> TensorValue:
    """The view of `x` whose element at i is x[reindex(i)]; `restride` gives its layout from that of a stored x."""
    meta = g.result()
    x.try_store()
    if x.is_stored and restride is not None:
        layout = restride(x.layout)
        if layout is not None:
            return g.stored(meta, x.buffer, layout)

    def inner(b: Builder, index: Index) -> Op:
        return x.load(b, tuple(to_expr(e) for e in reindex(index)))

    cost, reads = x.weight()
    out = g.lazy(meta, inner, cost=cost, reads=reads)
    out.base, out.restride = x, restride
    return out


@lowering("broadcast_in_dim")
def _broadcast_in_dim(g: Any, x: TensorValue, shape: Sequence[Any], dims: Sequence[int]) -> TensorValue:
    shape = g.exprs(shape)
    repeats = [is_equal(x.shape[k], 1) and not is_equal(shape[d], 1) for k, d in enumerate(dims)]
    grows = not is_equal(product(shape), x.numel)
    if grows and not x.is_stored and x.cost > BROADCAST_OPS and not g.inlines:
        # the library's ops get what eager gives them, rows that are padded (a bias of fused attention) included
        called = any("extern" in getattr(getattr(u.target, "spec", None), "tags", ()) for u in g.node.users)
        g.store_deep(x) if called else g.realize(x)

    def reindex(index: Index) -> list:
        return [ZERO if repeats[k] else index[d] for k, d in enumerate(dims)]

    def restride(layout: Layout) -> Layout:
        stride: list[Expr | None] = [None] * len(shape)
        for k, d in enumerate(dims):
            stride[d] = ZERO if repeats[k] else layout.stride[k]
        step = ONE
        for d in range(len(shape) - 1, -1, -1):
            if stride[d] is None:
                stride[d] = step if shape[d] == 1 else ZERO
            step = stride[d] * (ONE if stride[d] is ZERO else shape[d])
        return Layout(layout.dtype, layout.device, shape, tuple(stride), layout.offset)

    return make_view(g, x, reindex, restride)


@lowering("permute")
def _permute(g: Any, x: TensorValue, dims: Sequence[int]) -> TensorValue:
    dims = [d % max(len(x.shape), 1) for d in dims]
    place = {d: k for k, d in enumerate(dims)}

    def restride(layout: Layout) -> Layout:
        return Layout(
            layout.dtype,
            layout.device,
            tuple(layout.shape[d] for d in dims),
            tuple(layout.stride[d] for d in dims),
            layout.offset,
        )

    return make_view(g, x, lambda index: [index[place[d]] for d in range(len(dims))], restride)


def group_dims(old: Sequence[Expr], new: Sequence[Expr]) -> list[tuple[list[int], list[int]]]:
    """Groups of consecutive dimensions with equal products: (old dims, new dims), in order."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = [], []
        pa = pb = ONE
        while True:
            if i < len(old) and (not a or (not pa == pb and _is_smaller(pa, pb))):
                a.append(i)
                pa = pa * old[i]
                i += 1
            elif j < len(new) and (not b or not pa == pb):
                b.append(j)
                pb = pb * new[j]
                j += 1
            elif pa == pb:
                break
            elif i < len(old):
                a.append(i)
                pa = pa * old[i]
                i += 1
            else:
                break
        groups.append((a, b))
    return groups


def _is_smaller(a: Expr, b: Expr) -> bool:
    if a.is_const and b.is_const:
        return int(a) < int(b)
    return a.hi < b.hi or len(str(a)) < len(str(b))


@lowering("reshape")
def _reshape(g: Any, x: TensorValue, shape: Sequence[Any]) -> TensorValue:
    shape = g.exprs(shape)
    old = x.shape
    empty = any(s == 0 for s in shape)
    # dimensions of size one carry no information
    keep_old = [d for d, s in enumerate(old) if not s == 1]
    keep_new = [d for d, s in enumerate(shape) if not s == 1]
    groups = [] if empty else group_dims([old[d] for d in keep_old], [shape[d] for d in keep_new])

    def reindex(index: Index) -> list:
        out: list[Expr] = [ZERO] * len(old)
        for a, b in groups:
            flat = ZERO
            for j in b:
                flat = flat * shape[keep_new[j]] + index[keep_new[j]]
            for i in reversed(a[1:]):
                out[keep_old[i]] = flat % old[keep_old[i]]
                flat = flat // old[keep_old[i]]
            if a:
                out[keep_old[a[0]]] = flat
        return out

    def restride(layout: Layout) -> Layout | None:
        stride: list[Expr] = [ONE] * len(shape)
        if empty:
            from ..ir.layout import contiguous_strides

            return Layout(layout.dtype, layout.device, shape, contiguous_strides(shape), layout.offset)
        for a, b in groups:
            for p, q in zip(a, a[1:], strict=False):
                if not layout.stride[keep_old[p]] == layout.stride[keep_old[q]] * old[keep_old[q]]:
                    return None
            step = layout.stride[keep_old[a[-1]]] if a else ONE
            for j in reversed(b):
                stride[keep_new[j]] = step
                step = step * shape[keep_new[j]]
        for d in range(len(shape) - 1, -1, -1):
            if shape[d] == 1:
                stride[d] = stride[d + 1] * shape[d + 1] if d + 1 < len(shape) else ONE
        return Layout(layout.dtype, layout.device, shape, tuple(stride), layout.offset)

    return make_view(g, x, reindex, restride)


@lowering("slice")
def _slice(g: Any, x: TensorValue, starts: Sequence[Any], limits: Sequence[Any], steps: Sequence[Any]) -> TensorValue:
    starts, steps = g.exprs(starts), g.exprs(steps)
    shape = g.result().shape

    def restride(layout: Layout) -> Layout:
        return Layout(
            layout.dtype,
            layout.device,
            shape,
            tuple(s * t for s, t in zip(layout.stride, steps, strict=True)),
            layout.index(starts),
        )

    return make_view(g, x, lambda index: [i * t + s for i, s, t in zip(index, starts, steps, strict=True)], restride)


@lowering("as_strided")
def _as_strided(g: Any, x: TensorValue, size: Sequence[Any], stride: Sequence[Any], offset: Any = None) -> TensorValue:
    size, stride = g.exprs(size), g.exprs(stride)
    g.store_as_eager(x)
    start = x.layout.offset
    if offset is not None:
        start = start + (g.expr(offset) - g.storage_offset(0))
    layout = Layout(x.dtype, x.device, size, stride, start)
    if start.lo < 0 or is_less(g.buffers[x.buffer].layout.span, layout.span):
        raise LoweringError("memory outside the operand is read")
    return g.stored(g.result(), x.buffer, layout)


@lowering("flip")
def _flip(g: Any, x: TensorValue, dims: Sequence[int]) -> TensorValue:
    rank = max(len(x.shape), 1)
    flipped = {d % rank for d in dims}

    def reindex(index: Index) -> list:
        return [x.shape[d] - 1 - i if d in flipped else i for d, i in enumerate(index)]

    return make_view(g, x, reindex, None)


@lowering("diagonal")
def _diagonal(g: Any, x: TensorValue, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorValue:
    rank = len(x.shape)
    dim1, dim2 = dim1 % rank, dim2 % rank
    keep = [d for d in range(rank) if d not in (dim1, dim2)]
    shift1, shift2 = (0, offset) if offset >= 0 else (-offset, 0)
    shape = g.result().shape

    def reindex(index: Index) -> list:
        out: list[Any] = [ZERO] * rank
        for k, d in enumerate(keep):
            out[d] = index[k]
        out[dim1], out[dim2] = index[-1] + shift1, index[-1] + shift2
        return out

    def restride(layout: Layout) -> Layout:
        stride = [layout.stride[d] for d in keep] + [layout.stride[dim1] + layout.stride[dim2]]
        start = layout.offset + layout.stride[dim1] * shift1 + layout.stride[dim2] * shift2
        return Layout(layout.dtype, layout.device, shape, tuple(stride), start)

    return make_view(g, x, reindex, restride)


@lowering("unfold")
def _unfold(g: Any, x: TensorValue, dim: int, size: int, step: int) -> TensorValue:
    shape = g.result().shape
    if not x.shape:
        return make_view(g, x, lambda index: [], None)
    dim = dim % len(x.shape)

    def reindex(index: Index) -> list:
        return [i * step + index[-1] if d == dim else i for d, i in enumerate(index[:-1])]

    def restride(layout: Layout) -> Layout:
        stride = [s * step if d == dim else s for d, s in enumerate(layout.stride)] + [layout.stride[dim]]
        return Layout(layout.dtype, layout.device, shape, tuple(stride), layout.offset)

    return make_view(g, x, reindex, restride)


@lowering("restride")
def _restride(g: Any, x: TensorValue, stride: Sequence[Any]) -> TensorValue:
    """The value itself where it lies as wanted; a graph output of it gets memory of its own (`GraphLowering`)."""
    wanted = g.exprs(stride)

    def restride(layout: Layout) -> Layout | None:
        return layout if same_strides(layout.shape, layout.stride, wanted) else None

    return make_view(g, x, lambda index: index, restride)


@lowering("view_as_real", "view_as_complex")
def _reinterpret(g: Any, x: TensorValue) -> TensorValue:
    raise LoweringError("complex numbers are not seen inside kernels")
