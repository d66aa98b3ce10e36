"""Reads and writes at positions given by tensors."""

from __future__ import annotations

from typing import Any

import torch

from .. import prims as p
from .. import strides
from ..operands import broadcast, to
from ..rules.indexing import INDEX, index_shape
from ._table import decomp


def _need(condition: bool) -> None:
    if not condition:
        raise NotImplementedError


@decomp("index.Tensor", "_unsafe_index.Tensor")
def index(x: Any, indices: Any) -> Any:
    shape, used, _ = index_shape(x, indices)
    if not used:
        return x
    if strides.has_zero(shape) or strides.has_zero(x.shape):
        raise NotImplementedError
    return p.index(x, list(indices))


@decomp("gather.default")
def gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    dim = strides.wrap_dim(dim, len(x.shape))
    _need(len(x.shape) == len(index.shape) and index.dtype is torch.int64 and bool(len(x.shape)))
    for d, (a, b) in enumerate(zip(x.shape, index.shape)):
        if d != dim and type(a) is int and type(b) is int and b > a:
            raise NotImplementedError
    return p.gather(x, dim, index)


@decomp("index_select.default")
def index_select(x: Any, dim: int, index: Any) -> Any:
    dim = strides.wrap_dim(dim, len(x.shape))
    _need(len(index.shape) == 1 and index.dtype in INDEX and bool(len(x.shape)))
    return p.index_select(x, dim, index)


@decomp("embedding.default")
def embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    _need(len(weight.shape) == 2 and indices.dtype in INDEX)
    return p.take_rows(weight, indices)


@decomp("index_put.default", "_unsafe_index_put.default")
def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    index_shape(x, indices)
    _need(values.dtype is x.dtype and values.device == x.device)
    return p.index_put(x, list(indices), values, accumulate)


def _scatter_ok(x: Any, index: Any, src: Any = None) -> None:
    _need(
        index.dtype is torch.int64
        and len(index.shape) == len(x.shape)
        and bool(len(x.shape))
        and not strides.has_zero(index.shape)
    )
    if src is not None:
        _need(src.dtype is x.dtype and len(src.shape) == len(x.shape))


@decomp("scatter.src")
def scatter_src(x: Any, dim: int, index: Any, src: Any) -> Any:
    _scatter_ok(x, index, src)
    return p.scatter(x, strides.wrap_dim(dim, len(x.shape)), index, src)


@decomp("scatter.value")
def scatter_value(x: Any, dim: int, index: Any, value: Any) -> Any:
    _scatter_ok(x, index)
    return p.scatter(x, strides.wrap_dim(dim, len(x.shape)), index, to(value, x.dtype))


@decomp("scatter_add.default")
def scatter_add(x: Any, dim: int, index: Any, src: Any) -> Any:
    _scatter_ok(x, index, src)
    return p.scatter_add(x, strides.wrap_dim(dim, len(x.shape)), index, src)


@decomp("scatter_reduce.two")
def scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    _scatter_ok(x, index, src)
    return p.scatter_reduce(x, strides.wrap_dim(dim, len(x.shape)), index, src, reduce, include_self)


@decomp("index_add.default")
def index_add(x: Any, dim: int, index: Any, src: Any, *, alpha: Any = 1) -> Any:
    dim = strides.wrap_dim(dim, len(x.shape))
    _need(len(x.shape) > 0 and len(index.shape) == 1 and src.dtype is x.dtype and len(src.shape) == len(x.shape))
    _need(alpha == 1 or (x.dtype is not torch.bool and x.dtype not in (torch.float16, torch.bfloat16)))
    _need(isinstance(alpha, int) or x.dtype.is_floating_point)
    return p.index_add(x, dim, index, src if alpha == 1 else p.mul(src, to(alpha, x.dtype)))


@decomp("index_fill.int_Scalar")
def index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    rank = len(x.shape)
    dim = strides.wrap_dim(dim, rank)
    _need(rank > 0 and len(index.shape) == 1 and index.dtype is torch.int64 and isinstance(value, (int, float)))
    _need(not isinstance(value, float) or x.dtype.is_floating_point)
    shape = tuple(x.shape)
    indices: list = [None] * dim + [index]
    value = p.full((), to(value, x.dtype), x.dtype, x.device)
    return p.index_put(x, indices, broadcast(value, shape[:dim] + tuple(index.shape) + shape[dim + 1 :]), False)
