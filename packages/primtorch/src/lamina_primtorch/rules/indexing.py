"""Rules of ops that read and write at positions given by tensors."""

from __future__ import annotations

from typing import Any

import torch

from .. import strides
from ..spec import TensorMeta
from ._table import rule, signed

INDEX = (torch.int64, torch.int32)


def _fresh(x: Any, shape: tuple) -> TensorMeta:
    return TensorMeta(shape, strides.contiguous(shape), x.dtype, x.device)


def index_shape(x: Any, indices: Any) -> tuple[tuple, list[int], tuple]:
    """Shape of ``x[indices]`` for integer indices, the indexed dimensions, and the broadcast shape of the indices."""
    used = [d for d, i in enumerate(indices) if i is not None]
    shape = tuple(x.shape)
    for d in used:
        if indices[d].dtype not in INDEX:
            raise NotImplementedError("boolean index")
    if len(indices) > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    common: tuple = ()
    if used:
        try:
            common = strides.broadcast(*(tuple(indices[d].shape) for d in used))
        except RuntimeError:
            text = ", ".join(str(list(indices[d].shape)) for d in used)
            raise IndexError(
                f"shape mismatch: indexing tensors could not be broadcast together with shapes {text}"
            ) from None
    if used == list(range(used[0], used[-1] + 1)) if used else True:
        lo, hi = (used[0], used[-1] + 1) if used else (0, 0)
        return shape[:lo] + common + shape[hi:], used, common
    return common + tuple(n for d, n in enumerate(shape) if d not in used), used, common


def index_strides(x: Any, indices: Any, shape: tuple) -> tuple:
    """Strides of ``x[indices]``: eager's iterator sees x with the indexed dimensions collapsed to stride 0, and the
    indices.
    """
    used = [d for d, i in enumerate(indices) if i is not None]
    if not used:
        return strides.contiguous(shape)
    common = strides.broadcast(*(tuple(indices[d].shape) for d in used))
    adjacent = used == list(range(used[0], used[-1] + 1))
    full = tuple(x.stride())
    rest = [d for d in range(len(full)) if d not in used]
    if adjacent:
        before = used[0]
        after = len(full) - used[-1] - 1
        xs = full[:before] + (0,) * len(common) + full[used[-1] + 1 :]
    else:
        before, after = 0, len(rest)
        xs = (0,) * len(common) + tuple(full[d] for d in rest)
    operands: list = [(shape, xs)]
    for d in used:
        i = indices[d]
        s, st = tuple(i.shape), tuple(i.stride())
        pad = len(common) - len(s)
        s = (1,) * pad + s
        st = (0,) * pad + st
        wide = tuple(0 if strides.is_int(n, 1) and not strides.is_int(m, 1) else t for n, m, t in zip(s, common, st))
        operands.append((shape, (0,) * before + wide + (0,) * after))
    perm = strides._order(shape, [st for _, st in operands])
    if perm == list(range(len(shape) - 1, -1, -1)):
        return strides.contiguous(shape)
    return strides._from_order(shape, perm)


@signed("index.Tensor")
def index(x: Any, indices: Any) -> TensorMeta:
    shape, used, _ = index_shape(x, indices)
    if strides.has_zero(shape):
        raise NotImplementedError
    return TensorMeta(shape, index_strides(x, indices, shape), x.dtype, x.device)


@signed("gather.default")
def gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> TensorMeta:
    strides.wrap_dim(dim, len(x.shape))
    if len(x.shape) != len(index.shape) or index.dtype not in INDEX:
        raise NotImplementedError
    return _fresh(x, tuple(index.shape))


@signed("index_select.default")
def index_select(x: Any, dim: int, index: Any) -> TensorMeta:
    shape = tuple(x.shape)
    if len(index.shape) != 1 or index.dtype not in INDEX or not shape:
        raise NotImplementedError
    dim = strides.wrap_dim(dim, len(shape))
    return _fresh(x, shape[:dim] + (index.shape[0],) + shape[dim + 1 :])


@signed("nonzero_static.default")
def nonzero_static(x: Any, *, size: Any, fill_value: int = -1) -> TensorMeta:
    if x.device.type != "cpu":  # other devices answer transposed, as torch's meta kernel says
        raise NotImplementedError
    shape = (size, len(x.shape))
    return TensorMeta(shape, strides.contiguous(shape), torch.int64, x.device)


@rule("scatter.src", "scatter.value", "scatter_add.default", "scatter_reduce.two", "index_add.default")
def scatter(args: tuple, kwargs: dict) -> TensorMeta:
    x, dim, index = args[:3]
    strides.wrap_dim(dim, len(x.shape))
    shape = tuple(x.shape)
    if index.dtype not in INDEX:
        raise NotImplementedError
    if len(args) > 3 and hasattr(args[3], "dtype") and args[3].dtype is not x.dtype:
        raise NotImplementedError
    return _fresh(x, shape)


@rule("index_put.default", "_unsafe_index_put.default")
def index_put(args: tuple, kwargs: dict) -> TensorMeta:
    x = args[0]
    if args[2].dtype is not x.dtype:
        raise NotImplementedError
    shape = tuple(x.shape)
    return TensorMeta(shape, strides.like(shape, x.stride()), x.dtype, x.device)
