"""Views, joins, pads and the backwards of views."""

from __future__ import annotations

from typing import Any

import torch

from .. import prims as p
from .. import strides
from ..operands import broadcast, full, narrow, permute, reshape, to
from ..promotion import result_type
from ..rules import views as rule
from ..rules.views import slice_bounds, split_sizes
from ._table import decomp


@decomp(
    "detach.default",
    "alias.default",
    "lift_fresh.default",
    "lift_fresh_copy.default",
    "lift.default",
    "detach_copy.default",
)
def same(x: Any) -> Any:
    return x


@decomp("view.default", "_unsafe_view.default", "reshape.default", "view_copy.default")
def view(x: Any, size: Any) -> Any:
    return reshape(x, strides.infer_view(size, strides.numel(x.shape)))


@decomp("_reshape_alias.default")
def reshape_alias(x: Any, size: Any, stride: Any) -> Any:
    return view(x, size)


@decomp("permute.default", "permute_copy.default")
def permute_(x: Any, dims: Any) -> Any:
    rank = len(x.shape)
    order = tuple([strides.wrap_dim(d, rank) for d in dims])
    if len(set(order)) != rank or len(order) != rank:
        raise NotImplementedError
    return permute(x, order)


@decomp("transpose.int", "transpose_copy.int")
def transpose(x: Any, dim0: int, dim1: int) -> Any:
    rank = len(x.shape)
    a, b = strides.wrap_dim(dim0, rank), strides.wrap_dim(dim1, rank)
    order = list(range(rank))
    if rank:
        order[a], order[b] = b, a
    return permute(x, tuple(order))


@decomp("t.default", "t_copy.default")
def t(x: Any) -> Any:
    rule.t(x)
    return permute(x, tuple(range(len(x.shape) - 1, -1, -1)))


@decomp("slice.Tensor", "slice_copy.Tensor")
def slice_(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    rank = len(x.shape)
    if not rank or step <= 0:
        raise NotImplementedError
    dim = strides.wrap_dim(dim, rank)
    start, end = slice_bounds(x.shape[dim], start, end)
    return narrow(x, dim, start, end, step)


@decomp("select.int", "select_copy.int")
def select(x: Any, dim: int, index: Any) -> Any:
    rank = len(x.shape)
    if not rank:
        raise NotImplementedError
    dim = strides.wrap_dim(dim, rank)
    n = x.shape[dim]
    if type(index) is not int or type(n) is int and not -n <= index < n:
        raise NotImplementedError
    index = index + n if index < 0 else index
    shape = tuple(x.shape)
    return reshape(narrow(x, dim, index, index + 1), shape[:dim] + shape[dim + 1 :])


@decomp("expand.default", "expand_copy.default")
def expand(x: Any, size: Any, implicit: bool = False) -> Any:
    return broadcast(x, rule.expand(x, size).shape)


@decomp("squeeze.default", "squeeze_copy.default")
def squeeze(x: Any) -> Any:
    return reshape(x, rule.squeeze(x).shape)


@decomp("squeeze.dim", "squeeze.dims", "squeeze_copy.dim", "squeeze_copy.dims")
def squeeze_dims(x: Any, dim: Any) -> Any:
    return reshape(x, rule.squeeze_dims(x, dim).shape)


@decomp("unsqueeze.default", "unsqueeze_copy.default")
def unsqueeze(x: Any, dim: int) -> Any:
    shape = rule.unsqueeze(x, dim).shape
    if any(strides.is_int(step, 0) for step in x.stride()):  # an expanded layout is kept by this view alone
        at = strides.wrap_dim(dim, len(shape))
        return p.broadcast_in_dim(x, shape, tuple(d for d in range(len(shape)) if d != at))
    return reshape(x, shape)


@decomp("unfold.default", "unfold_copy.default")
def unfold(x: Any, dimension: int, size: int, step: int) -> Any:
    rule.unfold(x, dimension, size, step)
    return p.unfold(x, strides.wrap_dim(dimension, len(x.shape)), size, step)


@decomp("as_strided.default")
def as_strided(x: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    return p.as_strided(x, tuple(size), tuple(stride), storage_offset)


def _pieces(x: Any, sizes: Any, dim: int) -> list:
    out = []
    at: Any = 0
    for n in sizes:
        out.append(narrow(x, dim, at, at + n))
        at = at + n
    return out


@decomp("split.Tensor", "unsafe_split.Tensor")
def split(x: Any, split_size: Any, dim: int = 0) -> Any:
    if not len(x.shape):
        raise NotImplementedError
    dim = strides.wrap_dim(dim, len(x.shape))
    return _pieces(x, split_sizes(x.shape[dim], split_size), dim)


@decomp("split_with_sizes.default", "unsafe_split_with_sizes.default", "split_with_sizes_copy.default")
def split_with_sizes(x: Any, sizes: Any, dim: int = 0) -> Any:
    rule.split_with_sizes(x, sizes, dim)
    return _pieces(x, sizes, strides.wrap_dim(dim, len(x.shape)))


@decomp("unbind.int", "unbind_copy.int")
def unbind(x: Any, dim: int = 0) -> Any:
    if not len(x.shape):
        raise NotImplementedError
    dim = strides.wrap_dim(dim, len(x.shape))
    return [select(x, dim, i) for i in range(int(x.shape[dim]))]


@decomp("diagonal.default", "diagonal_copy.default")
def diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    rank = len(x.shape)
    return p.diagonal(x, offset, strides.wrap_dim(dim1, rank), strides.wrap_dim(dim2, rank))


@decomp("view_as_real.default")
def view_as_real(x: Any) -> Any:
    return p.view_as_real(x)


@decomp("view_as_complex.default")
def view_as_complex(x: Any) -> Any:
    if x.dtype not in (torch.float32, torch.float64) or strides.has_zero(x.shape):
        raise NotImplementedError
    return p.view_as_complex(x)


@decomp("view.dtype")
def view_dtype(x: Any, dtype: torch.dtype) -> Any:
    if x.dtype is dtype:
        return x
    if x.dtype.itemsize != dtype.itemsize or torch.bool in (x.dtype, dtype):
        raise NotImplementedError
    return p.bitcast(x, dtype)


# -- joins, repeats, pads
# ---------------------------------------------------------------------------------------------------


@decomp("cat.default")
def cat(tensors: Any, dim: int = 0) -> Any:
    rule.cat(tensors, dim)
    dtype = tensors[0].dtype
    if any(x.dtype is not dtype for x in tensors):
        dtype = result_type(tensors)
    kept = [x for x in tensors if not (len(x.shape) == 1 and strides.is_int(x.shape[0], 0))] or [tensors[0]]
    kept = [to(x, dtype) for x in kept]
    dim = strides.wrap_dim(dim, len(kept[0].shape))
    return kept[0] if len(kept) == 1 else p.cat(kept, dim)


@decomp("stack.default")
def stack(tensors: Any, dim: int = 0) -> Any:
    rule.stack(tensors, dim)
    dim = strides.wrap_dim(dim, len(tensors[0].shape) + 1)
    return cat([unsqueeze(x, dim) for x in tensors], dim)


@decomp("repeat.default")
def repeat(x: Any, repeats: Any) -> Any:
    rule.repeat(x, repeats)
    old = (1,) * (len(repeats) - len(x.shape)) + tuple(x.shape)
    new = tuple([n * r for n, r in zip(old, repeats)])
    if all(strides.is_int(r, 1) for r in repeats):
        return reshape(x, new)
    if all(strides.is_int(r, 1) or strides.is_int(n, 1) for n, r in zip(old, repeats)):
        return broadcast(reshape(x, old), new)
    wide, dims = [], []
    for n, r in zip(old, repeats):
        if not strides.is_int(r, 1):
            wide.append(r)
        dims.append(len(wide))
        wide.append(n)
    return reshape(p.broadcast_in_dim(reshape(x, old), tuple(wide), tuple(dims)), new)


@decomp("constant_pad_nd.default")
def constant_pad_nd(x: Any, pad: Any, value: Any = 0) -> Any:
    rank = len(x.shape)
    if len(pad) % 2 or len(pad) > 2 * rank or not isinstance(value, (int, float, bool)):
        raise NotImplementedError
    low, high = [0] * rank, [0] * rank
    for k in range(len(pad) // 2):
        low[rank - 1 - k], high[rank - 1 - k] = pad[2 * k], pad[2 * k + 1]
    for n, a, b in zip(x.shape, low, high):
        if type(n) is int and type(a) is int and type(b) is int and n + a + b < 0:
            raise NotImplementedError
    if all(strides.is_int(n, 0) for n in (*low, *high)):
        return x
    if any(type(n) is int and n < 0 for n in (*low, *high)):
        for d in range(rank):
            lo, hi = max(0, -low[d]), max(0, -high[d])
            if lo + hi > x.shape[d]:
                raise NotImplementedError
            x = narrow(x, d, lo, x.shape[d] - hi)
        low, high = [max(n, 0) for n in low], [max(n, 0) for n in high]
        if not any(low) and not any(high):
            return x
    return p.pad(x, to(value, x.dtype), tuple(low), tuple(high))


@decomp("flip.default")
def flip(x: Any, dims: Any) -> Any:
    rule.flip(x, dims)
    rank = len(x.shape)
    return p.flip(x, tuple(sorted(strides.wrap_dim(d, rank) for d in dims))) if dims and rank else x


@decomp("roll.default")
def roll(x: Any, shifts: Any, dims: Any = ()) -> Any:
    shape = tuple(x.shape)
    if not dims:
        if len(shifts) != 1 or strides.has_zero(shape):
            raise NotImplementedError
        return reshape(roll(reshape(x, (strides.numel(shape),)), shifts, (0,)), shape)
    if len(shifts) != len(dims) or strides.has_zero(shape) or not shape:
        raise NotImplementedError
    for shift, dim in zip(shifts, dims):
        dim = strides.wrap_dim(dim, len(shape))
        n = shape[dim]
        if type(n) is not int or type(shift) is not int:
            raise NotImplementedError
        cut = (n - shift) % n
        if cut:
            x = p.cat([narrow(x, dim, cut, n), narrow(x, dim, 0, cut)], dim)
    return x


def _between(n: Any, dim: int, shape: tuple, lo: Any, hi: Any, step: int, device: Any) -> Any:
    """Mask of positions lo, lo+step, ... below hi along ``dim``, shaped like ``shape``."""
    at = p.iota(n, 0, 1, torch.int64, device)
    mask = p.bitwise_and(p.ge(at, lo), p.lt(at, hi))
    if step != 1:
        mask = p.bitwise_and(mask, p.eq(p.remainder(p.sub(at, lo), step), 0))
    return p.broadcast_in_dim(mask, shape, (dim,))


@decomp("slice_backward.default")
def slice_backward(grad: Any, sizes: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    sizes = tuple(sizes)
    dim = strides.wrap_dim(dim, len(sizes))
    n = sizes[dim]
    start, end = slice_bounds(n, start, end)
    if step != 1:
        count = grad.shape[dim]
        if type(count) is not int or type(n) is not int or type(start) is not int:
            raise NotImplementedError
        if count == 0:
            return full(sizes, 0, grad.dtype, grad.device)
        shape = tuple(grad.shape)
        spaced = p.pad(
            reshape(grad, (*shape[: dim + 1], 1, *shape[dim + 1 :])),
            to(0, grad.dtype),
            (0,) * (len(shape) + 1),
            (*(0,) * (dim + 1), step - 1, *(0,) * (len(shape) - dim - 1)),
        )
        grad = reshape(spaced, (*shape[:dim], count * step, *shape[dim + 1 :]))
        extra = start + count * step - n
        if extra > 0:
            grad = narrow(grad, dim, 0, count * step - extra)
        end = start + grad.shape[dim]
    rank = len(sizes)
    if strides.is_int(start, 0) and end is n:
        return grad
    low = (*(0,) * dim, start, *(0,) * (rank - dim - 1))
    high = (*(0,) * dim, n - end, *(0,) * (rank - dim - 1))
    if not any(type(v) is not int or v for v in (*low, *high)):
        return grad
    return p.pad(grad, to(0, grad.dtype), low, high)


@decomp("select_backward.default")
def select_backward(grad: Any, sizes: Any, dim: int, index: Any) -> Any:
    sizes = tuple(sizes)
    dim = strides.wrap_dim(dim, len(sizes))
    n = sizes[dim]
    if type(index) is not int:
        raise NotImplementedError
    at = index if index >= 0 else n + index
    return slice_backward(unsqueeze(grad, dim), sizes, dim, at, at + 1, 1)


@decomp("slice_scatter.default")
def slice_scatter(x: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    rank = len(x.shape)
    shape = tuple(x.shape)
    dim = strides.wrap_dim(dim, rank)
    n = shape[dim]
    start, end = slice_bounds(n, start, end)
    if src.dtype is not x.dtype:
        src = to(src, x.dtype)
    count = end - start if step == 1 else (end - start + step - 1) // step
    src = broadcast(src, shape[:dim] + (count,) + shape[dim + 1 :])
    if step == 1:
        if strides.is_int(start, 0) and (end is n or (type(end) is int and end == n)):
            return src
        parts = [] if strides.is_int(start, 0) else [narrow(x, dim, 0, start)]
        parts.append(src)
        if not (type(end) is int and type(n) is int and end == n):
            parts.append(narrow(x, dim, end, n))
        return p.cat(parts, dim) if len(parts) > 1 else parts[0]
    if type(n) is not int or type(start) is not int or type(end) is not int:
        raise NotImplementedError
    mask = _between(n, dim, shape, start, end, step, x.device)
    return p.where(mask, slice_backward(src, shape, dim, start, end, step), x)


@decomp("select_scatter.default")
def select_scatter(x: Any, src: Any, dim: int, index: Any) -> Any:
    dim = strides.wrap_dim(dim, len(x.shape))
    n = x.shape[dim]
    if type(index) is not int or type(n) is int and not -n <= index < n:
        raise NotImplementedError
    at = index if index >= 0 else n + index
    return slice_scatter(x, unsqueeze(src, dim), dim, at, at + 1, 1)


def triangle(rows: Any, cols: Any, diagonal: int, upper: bool, device: Any) -> Any:
    """Bool (rows, cols): on and below (above) the diagonal."""
    r = p.broadcast_in_dim(p.iota(rows, 0, 1, torch.int64, device), (rows, cols), (0,))
    c = p.broadcast_in_dim(p.iota(cols, 0, 1, torch.int64, device), (rows, cols), (1,))
    d = p.sub(c, r)
    return p.ge(d, diagonal) if upper else p.le(d, diagonal)


@decomp("tril.default")
def tril(x: Any, diagonal: int = 0) -> Any:
    shape = tuple(x.shape)
    if len(shape) < 2:
        raise NotImplementedError
    return p.where(broadcast(triangle(shape[-2], shape[-1], diagonal, False, x.device), shape), x, to(0, x.dtype))


@decomp("triu.default")
def triu(x: Any, diagonal: int = 0) -> Any:
    shape = tuple(x.shape)
    if len(shape) < 2:
        raise NotImplementedError
    return p.where(broadcast(triangle(shape[-2], shape[-1], diagonal, True, x.device), shape), x, to(0, x.dtype))


@decomp("pixel_shuffle.default")
def pixel_shuffle(x: Any, r: int) -> Any:
    *batch, c, h, w = tuple(x.shape)
    k = len(batch)
    wide = reshape(x, (*batch, c // (r * r), r, r, h, w))
    order = (*range(k), k, k + 3, k + 1, k + 4, k + 2)
    return reshape(permute(wide, order), (*batch, c // (r * r), h * r, w * r))


@decomp("channel_shuffle.default", "native_channel_shuffle.default")
def channel_shuffle(x: Any, groups: int) -> Any:
    meta = rule.channel_shuffle(x, groups)
    n, c, *rest = meta.shape
    wide = reshape(x, (n, groups, c // groups, *rest))
    out = reshape(permute(wide, (0, 2, 1, *range(3, len(wide.shape)))), meta.shape)
    return p.restride(out, meta.stride)


@decomp("pixel_unshuffle.default")
def pixel_unshuffle(x: Any, r: int) -> Any:
    *batch, c, h, w = tuple(x.shape)
    k = len(batch)
    wide = reshape(x, (*batch, c, h // r, r, w // r, r))
    order = (*range(k), k, k + 2, k + 4, k + 1, k + 3)
    return reshape(permute(wide, order), (*batch, c * r * r, h // r, w // r))
