"""Rules of reductions, scans, softmax and sorts."""

from __future__ import annotations

from typing import Any

import torch

from .. import strides
from ..promotion import COMPLEX, INEXACT, REAL_OF, sum_type
from ..spec import TensorMeta
from ._table import rule, signed


def reduced(x: Any, dims: Any, keepdim: bool, dtype: torch.dtype) -> TensorMeta:
    """Metadata of a fold of ``dims`` (None or empty: all); contiguous."""
    shape = tuple(x.shape)
    rank = len(shape)
    fold = set(strides.wrap_dims(dims, rank))
    if keepdim:
        out = tuple([1 if d in fold else n for d, n in enumerate(shape)])
    else:
        out = tuple([n for d, n in enumerate(shape) if d not in fold])
    return TensorMeta(out, strides.contiguous(out), dtype, x.device)


@signed("sum.default", "prod.default")
def total(x: Any, *, dtype: Any = None) -> TensorMeta:
    return TensorMeta((), (), dtype or sum_type(x.dtype), x.device)


@signed("sum.dim_IntList")
def sum_dim(x: Any, dim: Any, keepdim: bool = False, *, dtype: Any = None) -> TensorMeta:
    return reduced(x, dim, keepdim, dtype or sum_type(x.dtype))


@signed("prod.dim_int")
def prod_dim(x: Any, dim: int, keepdim: bool = False, *, dtype: Any = None) -> TensorMeta:
    return reduced(x, (dim,), keepdim, dtype or sum_type(x.dtype))


@signed("mean.default")
def mean(x: Any, *, dtype: Any = None) -> TensorMeta:
    dtype = dtype or x.dtype
    if dtype not in INEXACT:
        raise NotImplementedError
    return TensorMeta((), (), dtype, x.device)


@signed("mean.dim")
def mean_dim(x: Any, dim: Any, keepdim: bool = False, *, dtype: Any = None) -> TensorMeta:
    dtype = dtype or x.dtype
    if dtype not in INEXACT:
        raise NotImplementedError
    return reduced(x, dim, keepdim, dtype)


@signed("amax.default", "amin.default")
def amax(x: Any, dim: Any = (), keepdim: bool = False) -> TensorMeta:
    if strides.has_zero(x.shape) or x.dtype in COMPLEX:
        raise NotImplementedError
    return reduced(x, dim, keepdim, x.dtype)


@signed("max.default", "min.default")
def max_all(x: Any) -> TensorMeta:
    if strides.has_zero(x.shape) or x.dtype in COMPLEX:
        raise NotImplementedError
    return TensorMeta((), (), x.dtype, x.device)


@signed("max.dim", "min.dim", "median.dim", "mode.default")
def max_dim(x: Any, dim: int = -1, keepdim: bool = False) -> tuple:
    if strides.has_zero(x.shape) or x.dtype in COMPLEX:
        raise NotImplementedError
    m = reduced(x, (dim,), keepdim, x.dtype)
    return m, m._replace(dtype=torch.int64)


@signed("argmax.default", "argmin.default")
def argmax(x: Any, dim: Any = None, keepdim: bool = False) -> TensorMeta:
    if strides.has_zero(x.shape) or x.dtype in COMPLEX or x.dtype is torch.bool:
        raise NotImplementedError
    return reduced(x, None if dim is None else (dim,), keepdim, torch.int64)


@signed("any.default", "all.default")
def any_all(x: Any) -> TensorMeta:
    return TensorMeta((), (), torch.uint8 if x.dtype is torch.uint8 else torch.bool, x.device)


@signed("any.dim", "all.dim")
def any_dim(x: Any, dim: int, keepdim: bool = False) -> TensorMeta:
    return reduced(x, (dim,), keepdim, torch.uint8 if x.dtype is torch.uint8 else torch.bool)


@signed("any.dims", "all.dims")
def any_dims(x: Any, dim: Any = None, keepdim: bool = False) -> TensorMeta:
    if dim is not None and not dim:
        raise NotImplementedError
    return reduced(x, dim, keepdim, torch.uint8 if x.dtype is torch.uint8 else torch.bool)


@signed("var.correction", "std.correction")
def var(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> TensorMeta:
    if x.dtype not in INEXACT:
        raise NotImplementedError
    return reduced(x, dim, keepdim, REAL_OF.get(x.dtype, x.dtype))


@signed("var_mean.correction", "std_mean.correction")
def var_mean(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> tuple:
    if x.dtype not in INEXACT:
        raise NotImplementedError
    m = reduced(x, dim, keepdim, x.dtype)
    return m._replace(dtype=REAL_OF.get(x.dtype, x.dtype)), m


@signed("logsumexp.default")
def logsumexp(x: Any, dim: Any, keepdim: bool = False) -> TensorMeta:
    if x.dtype not in INEXACT:
        raise NotImplementedError
    return reduced(x, dim, keepdim, x.dtype)


@signed("linalg_vector_norm.default")
def vector_norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> TensorMeta:
    if x.dtype not in INEXACT or strides.has_zero(x.shape):
        raise NotImplementedError
    dtype = dtype or x.dtype
    return reduced(x, dim, keepdim, REAL_OF.get(dtype, dtype))


@signed("cumsum.default", "cumprod.default")
def cumsum(x: Any, dim: int, *, dtype: Any = None) -> TensorMeta:
    strides.wrap_dim(dim, len(x.shape))
    shape = tuple(x.shape)
    return TensorMeta(shape, strides.contiguous(shape), dtype or sum_type(x.dtype), x.device)


@signed("_softmax.default", "_log_softmax.default")
def softmax(x: Any, dim: int, half_to_float: bool) -> TensorMeta:
    strides.wrap_dim(dim, len(x.shape))
    if not x.dtype.is_floating_point or half_to_float:
        raise NotImplementedError
    shape = tuple(x.shape)
    return TensorMeta(shape, strides.contiguous(shape), x.dtype, x.device)


@signed("_softmax_backward_data.default", "_log_softmax_backward_data.default")
def softmax_backward(grad: Any, output: Any, dim: int, input_dtype: Any) -> TensorMeta:
    if grad.dtype is not input_dtype:
        raise NotImplementedError
    shape = tuple(grad.shape)
    return TensorMeta(shape, strides.contiguous(shape), input_dtype, grad.device)


@rule("topk.default")
def topk(args: tuple, kwargs: dict) -> tuple:
    x, k = args[0], args[1]
    dim = args[2] if len(args) > 2 else kwargs.get("dim", -1)
    shape = list(x.shape)
    dim = strides.wrap_dim(dim, len(shape))
    if shape:
        if k < 0 or k > shape[dim]:
            raise RuntimeError("selected index k out of range")
        shape[dim] = k
    out = tuple(shape)
    m = TensorMeta(out, strides.contiguous(out), x.dtype, x.device)
    return m, m._replace(dtype=torch.int64)


@rule("sort.default")
def sort(args: tuple, kwargs: dict) -> tuple:
    x = args[0]
    shape = tuple(x.shape)
    stride = strides.like(shape, x.stride())
    m = TensorMeta(shape, stride, x.dtype, x.device)
    return m, m._replace(dtype=torch.int64)


@rule("sort.stable")
def sort_stable(args: tuple, kwargs: dict) -> tuple:
    return sort(args, kwargs)
