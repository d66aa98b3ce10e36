"""Rules of views, and of ops that make a differently shaped copy (cat, stack, repeat, pad, flip, roll, the backwards
of views).
"""

from __future__ import annotations

from typing import Any

import torch

from .. import strides
from ..promotion import result_type
from ..spec import TensorMeta
from ._table import rule, signed


def _like(x: Any, shape: tuple, stride: tuple) -> TensorMeta:
    return TensorMeta(shape, stride, x.dtype, x.device)


@rule("detach.default", "alias.default", "lift_fresh.default", "lift.default")
def _same(args: tuple, kwargs: dict) -> TensorMeta:
    x = args[0]
    return TensorMeta(tuple(x.shape), tuple(x.stride()), x.dtype, x.device)


@signed("view.default", "_unsafe_view.default")
def view(x: Any, size: Any) -> TensorMeta:
    shape = tuple(x.shape)
    stride = tuple(x.stride())
    new = strides.infer_view(size, strides.numel(shape))
    if strides.equal(stride, strides.contiguous(shape)) and not strides.has_zero(shape):
        return TensorMeta(new, stride if new == shape else strides.contiguous(new), x.dtype, x.device)
    got = strides.view(shape, stride, new)
    if got is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans"
            " across two contiguous"
            " subspaces). Use .reshape(...) instead."
        )
    return _like(x, new, got)


@signed("_reshape_alias.default")
def _reshape_alias(x: Any, size: Any, stride: Any) -> TensorMeta:
    return _like(x, tuple(size), tuple(stride))


@signed("permute.default")
def permute(x: Any, dims: Any) -> TensorMeta:
    shape, stride = x.shape, x.stride()
    rank = len(shape)
    if len(dims) != rank:
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the"
            f" desired ordering of"
            f" dimensions i.e. input.dim() = {rank} is not equal to len(dims) = {len(dims)}"
        )
    order = [strides.wrap_dim(d, rank) for d in dims]
    if len(set(order)) != rank:
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return _like(x, tuple([shape[d] for d in order]), tuple([stride[d] for d in order]))


@signed("transpose.int")
def transpose(x: Any, dim0: int, dim1: int) -> TensorMeta:
    shape, stride = list(x.shape), list(x.stride())
    a, b = strides.wrap_dim(dim0, len(shape)), strides.wrap_dim(dim1, len(shape))
    if shape:
        shape[a], shape[b] = shape[b], shape[a]
        stride[a], stride[b] = stride[b], stride[a]
    return _like(x, tuple(shape), tuple(stride))


@signed("t.default")
def t(x: Any) -> TensorMeta:
    rank = len(x.shape)
    if rank > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {rank}D")
    return _like(x, tuple(x.shape)[::-1], tuple(x.stride())[::-1])


def slice_bounds(n: Any, start: Any, end: Any) -> tuple[Any, Any]:
    """Start and end clamped into [0, n], as ``slice`` does."""
    start = 0 if start is None else start
    end = n if end is None else end
    if type(start) is int and type(end) is int and type(n) is int:
        if start < 0:
            start += n
        if end < 0:
            end += n
        start = 0 if start < 0 else n if start > n else start
        end = start if end < start else n if end > n else end
        return start, end
    if start < 0:
        start = start + n
    if type(start) is int and start < 0:
        start = 0
    if type(end) is int and end >= 2**62:
        end = n
    elif end < 0:
        end = end + n
    if not (type(start) is int and start == 0):
        if start < 0:
            start = 0
        elif start > n:
            start = n
    if end is not n:
        if end < start:
            end = start
        elif end > n:
            end = n
    return start, end


@signed("slice.Tensor")
def slice_(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> TensorMeta:
    shape, stride = list(x.shape), list(x.stride())
    if not shape:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    dim = strides.wrap_dim(dim, len(shape))
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    start, end = slice_bounds(shape[dim], start, end)
    shape[dim] = end - start if step == 1 else (end - start + step - 1) // step
    stride[dim] = stride[dim] * step
    return _like(x, tuple(shape), tuple(stride))


@signed("select.int")
def select(x: Any, dim: int, index: Any) -> TensorMeta:
    shape, stride = tuple(x.shape), tuple(x.stride())
    if not shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    rank = len(shape)
    given, dim = dim, strides.wrap_dim(dim, rank)
    n = shape[dim]
    if type(index) is int and type(n) is int and not -n <= index < n:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(shape)} at dimension"
            f" {given if given >= 0 else dim}"
        )
    return _like(x, shape[:dim] + shape[dim + 1 :], stride[:dim] + stride[dim + 1 :])


@signed("expand.default")
def expand(x: Any, size: Any, implicit: bool = False) -> TensorMeta:
    shape, stride = x.shape, x.stride()
    rank, old = len(size), len(shape)
    if rank < old:
        raise RuntimeError(
            f"expand(: the number of sizes provided ({rank}) must be greater or equal to the number of"
            f" dimensions in the tensor ({old}))"
        )
    out, steps = [0] * rank, [0] * rank
    for i in range(rank - 1, -1, -1):
        d = i - (rank - old)
        n = shape[d] if d >= 0 else 1
        if d >= 0:
            step = stride[d]
        else:  # of a 0-dim tensor all strides are 0, other new dimensions continue the layout
            step = out[i + 1] * steps[i + 1] if old else 0
        want = size[i]
        if type(want) is int and want == -1:
            if d < 0:
                raise RuntimeError(
                    f"The expanded size of the tensor ({want}) isn't allowed in a leading, non-existing dimension {i}"
                )
            want = n
        if n is not want and n != want:
            if not strides.is_int(n, 1):
                raise RuntimeError(
                    f"The expanded size of the tensor ({want}) must match the existing size ({n}) at"
                    f" non-singleton dimension {i}."
                    f"  Target sizes: {list(size)}.  Tensor sizes: {list(shape)}"
                )
            n, step = want, 0
        out[i], steps[i] = n, step
    return _like(x, tuple(out), tuple(steps))


def _squeezed(x: Any, dims: Any) -> TensorMeta:
    keep = [d for d, n in enumerate(x.shape) if d not in dims or not strides.is_int(n, 1)]
    stride = x.stride()
    return _like(x, tuple(x.shape[d] for d in keep), tuple(stride[d] for d in keep))


@signed("squeeze.default")
def squeeze(x: Any) -> TensorMeta:
    return _squeezed(x, range(len(x.shape)))


@signed("squeeze.dim", "squeeze.dims")
def squeeze_dims(x: Any, dim: Any) -> TensorMeta:
    dims = (dim,) if isinstance(dim, int) else dim
    return _squeezed(x, [strides.wrap_dim(d, len(x.shape)) for d in dims])


@signed("unsqueeze.default")
def unsqueeze(x: Any, dim: int) -> TensorMeta:
    shape, stride = tuple(x.shape), tuple(x.stride())
    dim = strides.wrap_dim(dim, len(shape) + 1)
    step = 1 if dim >= len(shape) else shape[dim] * stride[dim]
    return _like(x, shape[:dim] + (1,) + shape[dim:], stride[:dim] + (step,) + stride[dim:])


@signed("unfold.default")
def unfold(x: Any, dimension: int, size: int, step: int) -> TensorMeta:
    shape, stride = list(x.shape), list(x.stride())
    d = strides.wrap_dim(dimension, len(shape))
    n = shape[d] if shape else 1
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if size < 0 or n < size:
        raise NotImplementedError
    if not shape:
        return _like(x, (size,), (1,))
    unit = stride[d]
    shape[d] = (n - size) // step + 1
    stride[d] = unit * step
    return _like(x, (*shape, size), (*stride, unit))


@signed("as_strided.default")
def as_strided(x: Any, size: Any, stride: Any, storage_offset: Any = None) -> TensorMeta:
    return _like(x, tuple(size), tuple(stride))


def split_sizes(n: Any, size: Any) -> list:
    if size < 0 or (size == 0 and n != 0):
        raise NotImplementedError
    if type(n) is not int or type(size) is not int:
        n, size = int(n), int(size)
    if size == 0:
        return [0]
    count = max((n + size - 1) // size, 1)
    return [size] * (count - 1) + [n - size * (count - 1)]


@signed("split.Tensor")
def split(x: Any, split_size: Any, dim: int = 0) -> tuple:
    shape = tuple(x.shape)
    if not shape:
        raise NotImplementedError
    dim = strides.wrap_dim(dim, len(shape))
    stride = tuple(x.stride())
    return tuple(_like(x, shape[:dim] + (n,) + shape[dim + 1 :], stride) for n in split_sizes(shape[dim], split_size))


@signed("split_with_sizes.default")
def split_with_sizes(x: Any, sizes: Any, dim: int = 0) -> tuple:
    shape = tuple(x.shape)
    if not shape:
        raise NotImplementedError
    dim = strides.wrap_dim(dim, len(shape))
    if sum(sizes) != shape[dim] or any(n < 0 for n in sizes):
        raise NotImplementedError
    stride = tuple(x.stride())
    return tuple(_like(x, shape[:dim] + (n,) + shape[dim + 1 :], stride) for n in sizes)


@signed("unbind.int")
def unbind(x: Any, dim: int = 0) -> tuple:
    shape, stride = tuple(x.shape), tuple(x.stride())
    if not shape:
        raise NotImplementedError
    dim = strides.wrap_dim(dim, len(shape))
    one = _like(x, shape[:dim] + shape[dim + 1 :], stride[:dim] + stride[dim + 1 :])
    return (one,) * int(shape[dim])


@signed("diagonal.default")
def diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorMeta:
    rank = len(x.shape)
    a, b = strides.wrap_dim(dim1, rank), strides.wrap_dim(dim2, rank)
    if a == b:
        raise NotImplementedError
    n1, n2 = x.shape[a], x.shape[b]
    size = max(min(n1, n2 - offset) if offset >= 0 else min(n1 + offset, n2), 0)
    keep = [d for d in range(rank) if d not in (a, b)]
    stride = x.stride()
    return _like(
        x, tuple(x.shape[d] for d in keep) + (size,), tuple(stride[d] for d in keep) + (stride[a] + stride[b],)
    )


@signed("view_as_real.default")
def view_as_real(x: Any) -> TensorMeta:
    real = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}.get(
        x.dtype
    )
    if real is None:
        raise NotImplementedError
    return TensorMeta((*x.shape, 2), (*(2 * s for s in x.stride()), 1), real, x.device)


def _fresh(x: Any, shape: tuple) -> TensorMeta:
    return TensorMeta(shape, strides.contiguous(shape), x.dtype, x.device)


@signed("slice_backward.default", "select_backward.default")
def slice_backward(grad: Any, sizes: Any, *_: Any) -> TensorMeta:
    return _fresh(grad, tuple(sizes))


@signed("channel_shuffle.default", "native_channel_shuffle.default")
def channel_shuffle(x: Any, groups: int) -> TensorMeta:
    shape = tuple(x.shape)
    if len(shape) < 3:
        raise RuntimeError(f"channel_shuffle takes a tensor of at least three dimensions, not one of shape {shape}")
    if groups < 1 or shape[1] % groups:
        raise RuntimeError(f"channel_shuffle cannot part {shape[1]} channels into {groups} groups")
    if strides.has_zero(shape):
        return _like(x, shape, tuple(x.stride()))
    # eager keeps channels-last memory, where the shape rule that torch has for this operator forgets it
    last = strides.suggests_channels_last(shape, tuple(x.stride()))
    return _like(x, shape, strides.channels_last(shape) if last else strides.contiguous(shape))


@signed("diagonal_backward.default", "unfold_backward.default")
def diagonal_backward(grad: Any, sizes: Any, *_: Any) -> TensorMeta:
    return _fresh(grad, tuple(sizes))


@signed("cat.default")
def cat(tensors: Any, dim: int = 0) -> TensorMeta:
    if not tensors:
        raise NotImplementedError
    kept = [t for t in tensors if not (len(t.shape) == 1 and strides.is_int(t.shape[0], 0))]
    dtype = tensors[0].dtype
    for t in tensors:
        if t.dtype is not dtype:
            dtype = result_type(tensors)
            break
    if not kept:
        if len(tensors[0].shape) != 1:
            raise NotImplementedError
        return TensorMeta((0,), (1,), dtype, tensors[0].device)
    first = kept[0]
    rank = len(first.shape)
    if rank == 0:
        raise NotImplementedError
    dim = strides.wrap_dim(dim, rank)
    shape = list(first.shape)
    for t in kept[1:]:
        s = t.shape
        if len(s) != rank:
            raise NotImplementedError
        for d in range(rank):
            if d != dim and s[d] is not shape[d] and s[d] != shape[d]:
                raise NotImplementedError
        shape[dim] = shape[dim] + s[dim]
    out = tuple(shape)
    stride = strides.contiguous(out)
    if rank in (4, 5) and all(strides.suggests_channels_last(t.shape, t.stride()) for t in tensors):
        stride = strides.channels_last(out)
    return TensorMeta(out, stride, dtype, first.device)


@signed("stack.default")
def stack(tensors: Any, dim: int = 0) -> TensorMeta:
    if not tensors:
        raise NotImplementedError
    first = tensors[0]
    shape = tuple(first.shape)
    if any(tuple(t.shape) != shape for t in tensors):
        raise NotImplementedError
    dim = strides.wrap_dim(dim, len(shape) + 1)
    out = shape[:dim] + (len(tensors),) + shape[dim:]
    dtype = first.dtype if all(t.dtype is first.dtype for t in tensors) else result_type(tensors)
    stride = strides.contiguous(out)
    if dim < len(shape) and len(shape) in (4, 5):  # made by cat along the dimension, which is then split
        joined = cat(tensors, dim).stride
        stride = joined[:dim] + (joined[dim] * shape[dim],) + joined[dim:]
    return TensorMeta(out, stride, dtype, first.device)


@signed("constant_pad_nd.default")
def constant_pad_nd(x: Any, pad: Any, value: Any = 0) -> TensorMeta:
    shape = list(x.shape)
    if len(pad) % 2 or len(pad) > 2 * len(shape):
        raise NotImplementedError
    for k in range(len(pad) // 2):
        d = len(shape) - 1 - k
        shape[d] = shape[d] + pad[2 * k] + pad[2 * k + 1]
        if type(shape[d]) is int and shape[d] < 0:
            raise NotImplementedError
    out = tuple(shape)
    if all(type(p) is int and p <= 0 for p in pad):
        raise NotImplementedError
    last = strides.suggests_channels_last(x.shape, x.stride())
    return TensorMeta(out, strides.channels_last(out) if last else strides.contiguous(out), x.dtype, x.device)


@signed("reflection_pad3d.default", "replication_pad3d.default")
def pad3d(x: Any, pad: Any) -> TensorMeta:
    """The kernels keep channels-last; torch's meta functions do not."""
    if len(x.shape) != 5 or len(pad) != 6 or not strides.suggests_channels_last(x.shape, x.stride()):
        raise NotImplementedError
    shape = tuple(x.shape)
    if any(type(n) is not int or n <= 0 for n in shape) or any(type(n) is not int or n < 0 for n in pad):
        raise NotImplementedError
    if any(max(pad[2 * k : 2 * k + 2]) >= shape[4 - k] for k in range(3)):
        raise NotImplementedError
    out = shape[:2] + tuple(shape[d] + pad[2 * (4 - d)] + pad[2 * (4 - d) + 1] for d in (2, 3, 4))
    return TensorMeta(out, strides.channels_last(out), x.dtype, x.device)


@signed("roll.default")
def roll(x: Any, shifts: Any, dims: Any = ()) -> TensorMeta:
    """Dimension by dimension: by 0 a contiguous copy, else two slices joined, which keeps channels-last."""
    shape, stride = tuple(x.shape), tuple(x.stride())
    rank = len(shape)
    if not dims and len(shifts) == 1 and strides.has_zero(shape):
        return TensorMeta(shape, strides.contiguous(shape), x.dtype, x.device)  # a view of the flattened tensor
    if rank not in (4, 5) or not dims or len(shifts) != len(dims) or strides.has_zero(shape):
        raise NotImplementedError
    for shift, dim in zip(shifts, dims):
        dim = strides.wrap_dim(dim, rank)
        n = shape[dim]
        if type(n) is not int or type(shift) is not int:
            raise NotImplementedError
        cut = (n - shift) % n
        parts = [shape[:dim] + (k,) + shape[dim + 1 :] for k in (n - cut, cut)]
        if cut and all(strides.suggests_channels_last(part, stride) for part in parts):
            stride = strides.channels_last(shape)
        else:
            stride = strides.contiguous(shape)
    return TensorMeta(shape, stride, x.dtype, x.device)


@signed("flip.default")
def flip(x: Any, dims: Any) -> TensorMeta:
    shape = tuple(x.shape)
    if len({strides.wrap_dim(d, len(shape)) for d in dims}) != len(dims):
        raise NotImplementedError
    return _like(x, shape, strides.like(shape, x.stride()))


@signed("repeat.default")
def repeat(x: Any, repeats: Any) -> TensorMeta:
    shape = tuple(x.shape)
    if len(repeats) < len(shape) or any(type(r) is int and r < 0 for r in repeats):
        raise NotImplementedError
    shape = (1,) * (len(repeats) - len(shape)) + shape
    return _fresh(x, tuple(n * r for n, r in zip(shape, repeats)))


@signed("tril.default", "triu.default")
def tril(x: Any, diagonal: int = 0) -> TensorMeta:
    if len(x.shape) < 2:
        raise NotImplementedError
    return _fresh(x, tuple(x.shape))
