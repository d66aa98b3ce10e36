"""Reads and writes at positions given by integer tensors. An index out of range raises, as eager does."""

from __future__ import annotations

from typing import Any

import torch

from .. import strides
from ..spec import TensorMeta, define

aten = torch.ops.aten


def _fresh(x: Any, shape: tuple, dtype: torch.dtype | None = None) -> TensorMeta:
    return TensorMeta(shape, strides.contiguous(shape), dtype or x.dtype, x.device)


def _gather_meta(x: Any, dim: int, index: Any) -> TensorMeta:
    return _fresh(x, tuple(index.shape))


define(
    "gather",
    "(Tensor x, int dim, Tensor index) -> Tensor",
    lambda x, dim, index: torch.gather(x, dim, index),
    _gather_meta,
    ["indexing"],
    "element i of the result is x at i with coordinate dim replaced by index[i]; 0 <= index < size",
)


def _select_meta(x: Any, dim: int, index: Any) -> TensorMeta:
    shape = tuple(x.shape)
    n = index.shape[0] if len(index.shape) else 1
    return _fresh(x, shape[:dim] + (n,) + shape[dim + 1 :] if shape else shape)


define(
    "index_select",
    "(Tensor x, int dim, Tensor index) -> Tensor",
    lambda x, dim, index: torch.index_select(x, dim, index),
    _select_meta,
    ["indexing"],
    "the slices of x along dim at the positions of the 1-d index; 0 <= index < size",
)


def _take_rows(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return torch.index_select(x, 0, index.reshape(-1)).reshape(tuple(index.shape) + tuple(x.shape[1:]))


def _take_rows_meta(x: Any, index: Any) -> TensorMeta:
    return _fresh(x, tuple(index.shape) + tuple(x.shape[1:]))


define(
    "take_rows",
    "(Tensor x, Tensor index) -> Tensor",
    _take_rows,
    _take_rows_meta,
    ["indexing"],
    "x[index]: rows of x (dimension 0) at an index of any rank, as an embedding does; 0 <= index < size",
)


def _index_shape(x: Any, indices: Any) -> tuple:
    used = [d for d, i in enumerate(indices) if i is not None]
    if any(indices[d].dtype in (torch.bool, torch.uint8) for d in used):
        raise NotImplementedError("boolean index")
    common = strides.broadcast(*(tuple(indices[d].shape) for d in used)) if used else ()
    shape = tuple(x.shape)
    if not used:
        return shape
    adjacent = used == list(range(used[0], used[-1] + 1))
    rest = [d for d in range(len(shape)) if d not in used]
    if adjacent:
        return shape[: used[0]] + common + shape[used[-1] + 1 :]
    return common + tuple(shape[d] for d in rest)


def _index_meta(x: Any, indices: Any) -> TensorMeta:
    from ..rules.indexing import index_strides

    shape = _index_shape(x, indices)
    return TensorMeta(shape, index_strides(x, indices, shape), x.dtype, x.device)


define(
    "index",
    "(Tensor x, Tensor?[] indices) -> Tensor",
    lambda x, indices: aten.index.Tensor(x, list(indices)),
    _index_meta,
    ["indexing"],
    "x[indices] with broadcasting integer index tensors, None for a whole dimension; -size <= index < size."
    " The broadcast dimensions take the place of the indexed ones if these are adjacent, else come first",
)


def _like_meta(x: Any, *_: Any, **__: Any) -> TensorMeta:
    shape = tuple(x.shape)
    return TensorMeta(shape, strides.like(shape, x.stride()), x.dtype, x.device)


define(
    "index_put",
    "(Tensor x, Tensor?[] indices, Tensor values, bool accumulate) -> Tensor",
    lambda x, indices, values, accumulate: aten.index_put.default(x, list(indices), values, accumulate),
    _like_meta,
    ["indexing"],
    "x with x[indices] replaced by values (added to, if accumulate; repeats add up); without accumulate the"
    " last of repeated positions"
    " is unspecified",
)


def _fresh_meta(x: Any, *_: Any, **__: Any) -> TensorMeta:
    return _fresh(x, tuple(x.shape))


define(
    "scatter",
    "(Tensor x, int dim, Tensor index, Tensor|Number src) -> Tensor",
    lambda x, dim, index, src: torch.scatter(x, dim, index, src),
    _fresh_meta,
    ["indexing"],
    "x with the element at i (coordinate dim replaced by index[i]) set to src[i]; 0 <= index < size",
)
define(
    "scatter_add",
    "(Tensor x, int dim, Tensor index, Tensor src) -> Tensor",
    lambda x, dim, index, src: torch.scatter_add(x, dim, index, src),
    _fresh_meta,
    ["indexing"],
    "x with src[i] added to the element at i (coordinate dim replaced by index[i]); repeats add up",
)
define(
    "scatter_reduce",
    "(Tensor x, int dim, Tensor index, Tensor src, str reduce, bool include_self) -> Tensor",
    lambda x, dim, index, src, reduce, include_self: torch.scatter_reduce(
        x, dim, index, src, reduce, include_self=include_self
    ),
    _fresh_meta,
    ["indexing"],
    "as scatter, combining by sum, prod, mean, amax or amin; include_self=False leaves x's own value out where"
    " something is written",
)
define(
    "index_add",
    "(Tensor x, int dim, Tensor index, Tensor src) -> Tensor",
    lambda x, dim, index, src: torch.index_add(x, dim, index, src),
    _fresh_meta,
    ["indexing"],
    "x with slice i of src added to slice index[i] of x along dim; repeats add up; 0 <= index < size",
)
