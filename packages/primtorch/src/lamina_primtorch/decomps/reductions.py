"""Reductions, scans, softmax."""

from __future__ import annotations

from typing import Any

import torch

from .. import prims as p
from .. import strides
from ..operands import full, kept, reshape, spread, to
from ..promotion import COMPLEX, INEXACT, REAL_OF, compute_type, sum_type
from ._table import decomp

Dims = Any


def _dims(x: Any, dim: Dims) -> tuple[int, ...]:
    return strides.wrap_dims(dim, len(x.shape))


def _one(x: Any, dim: int) -> tuple[int, ...]:
    """One dimension of a reduction; of a 0-dim tensor none."""
    d = strides.wrap_dim(dim, len(x.shape))
    return (d,) if len(x.shape) else ()


def _shaped(out: Any, x: Any, dims: tuple, keepdim: bool) -> Any:
    return reshape(out, kept(x.shape, dims)) if keepdim else out


@decomp("sum.default", "sum.dim_IntList")
def sum_(x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    dims = _dims(x, dim)
    dtype = dtype or sum_type(x.dtype)
    return _shaped(p.sum(to(x, dtype), dims, dtype) if dims else to(x, dtype), x, dims, keepdim)


@decomp("nansum.default")
def nansum(x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if x.dtype in COMPLEX:
        raise NotImplementedError
    if x.dtype in INEXACT:
        x = p.where(p.isnan(x), 0.0, x)
    return sum_(x, dim, keepdim, dtype=dtype)


@decomp("mean.default", "mean.dim")
def mean(x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    dtype = dtype or x.dtype
    if dtype not in INEXACT:
        raise NotImplementedError
    dims = _dims(x, dim)
    wide = compute_type(dtype)
    y = to(to(x, dtype), wide)
    count: Any = 1
    for d in dims:
        count = count * x.shape[d]
    total = p.sum(y, dims, wide) if dims else y
    if type(count) is int and count == 0:
        if wide in COMPLEX:
            raise NotImplementedError("both parts are nan, a number that graphs cannot spell")
        total = full(total.shape, float("nan"), wide, x.device)
    elif not (type(count) is int and count == 1):
        total = p.div(total, float(count) if type(count) is int else count)
    return _shaped(to(total, dtype), x, dims, keepdim)


@decomp("prod.default")
def prod(x: Any, *, dtype: Any = None) -> Any:
    dtype = dtype or sum_type(x.dtype)
    return p.prod(to(x, dtype), tuple(range(len(x.shape))), dtype)


@decomp("prod.dim_int")
def prod_dim(x: Any, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Any:
    dims = _one(x, dim)
    dtype = dtype or sum_type(x.dtype)
    return _shaped(p.prod(to(x, dtype), dims, dtype), x, dims, keepdim)


def _foldable(x: Any) -> None:
    if strides.has_zero(x.shape) or x.dtype in COMPLEX:
        raise NotImplementedError("of nothing, or complex")


@decomp("amax.default")
def amax(x: Any, dim: Dims = (), keepdim: bool = False) -> Any:
    _foldable(x)
    dims = _dims(x, dim)
    return _shaped(p.amax(x, dims) if dims else x, x, dims, keepdim)


@decomp("amin.default")
def amin(x: Any, dim: Dims = (), keepdim: bool = False) -> Any:
    _foldable(x)
    dims = _dims(x, dim)
    return _shaped(p.amin(x, dims) if dims else x, x, dims, keepdim)


@decomp("max.default")
def max_(x: Any) -> Any:
    return amax(x)


@decomp("min.default")
def min_(x: Any) -> Any:
    return amin(x)


@decomp("aminmax.default")
def aminmax(x: Any, *, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is not None and not len(x.shape):
        return x, x
    dims = () if dim is None else (dim,)
    return amin(x, dims, keepdim), amax(x, dims, keepdim)


def _arg(prim: Any, x: Any, dim: Any, keepdim: bool) -> Any:
    _foldable(x)
    if x.dtype is torch.bool:
        x = to(x, torch.uint8)
    if not len(x.shape):
        if dim is not None:
            strides.wrap_dim(dim, 0)
        return full((), 0, torch.int64, x.device)
    if dim is None:
        out = prim(x, None)
        return reshape(out, (1,) * len(x.shape)) if keepdim else out
    dims = _one(x, dim)
    return _shaped(prim(x, dims[0]), x, dims, keepdim)


@decomp("argmax.default")
def argmax(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if x.dtype is torch.bool:
        raise NotImplementedError
    return _arg(p.argmax, x, dim, keepdim)


@decomp("argmin.default")
def argmin(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if x.dtype is torch.bool:
        raise NotImplementedError
    return _arg(p.argmin, x, dim, keepdim)


@decomp("max.dim")
def max_dim(x: Any, dim: int, keepdim: bool = False) -> Any:
    dims = _one(x, dim)
    if not dims:
        return x, full((), 0, torch.int64, x.device)
    return amax(x, dims, keepdim), _arg(p.argmax, x, dims[0], keepdim)


@decomp("min.dim")
def min_dim(x: Any, dim: int, keepdim: bool = False) -> Any:
    dims = _one(x, dim)
    if not dims:
        return x, full((), 0, torch.int64, x.device)
    return amin(x, dims, keepdim), _arg(p.argmin, x, dims[0], keepdim)


def _truth(prim: Any, x: Any, dims: tuple, keepdim: bool) -> Any:
    out = _shaped(prim(x, dims), x, dims, keepdim)
    return to(out, torch.uint8) if x.dtype is torch.uint8 else out


@decomp("any.default", "any.dims")
def any_(x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    if dim is not None and not len(dim):
        raise NotImplementedError
    return _truth(p.any, x, _dims(x, dim), keepdim)


@decomp("any.dim")
def any_dim(x: Any, dim: int, keepdim: bool = False) -> Any:
    return _truth(p.any, x, _one(x, dim), keepdim)


@decomp("all.default", "all.dims")
def all_(x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    if dim is not None and not len(dim):
        raise NotImplementedError
    return _truth(p.all, x, _dims(x, dim), keepdim)


@decomp("all.dim")
def all_dim(x: Any, dim: int, keepdim: bool = False) -> Any:
    return _truth(p.all, x, _one(x, dim), keepdim)


def variance(x: Any, dims: tuple, correction: Any) -> tuple:
    """Variance and mean over dims in the type eager computes in, without keepdim."""
    if x.dtype not in INEXACT or x.dtype in COMPLEX:
        raise NotImplementedError
    if not dims:
        raise NotImplementedError
    correction = 1.0 if correction is None else float(correction)
    return p.var_mean(to(x, compute_type(x.dtype)), dims, correction)


def running_mean_of(var: Any, mean: Any) -> Any:
    """The mean as eager's kernels keep it beside the variance, element by element: NaN once it was infinite and another
    element came."""
    gone = p.bitwise_and(p.ne(var, var), p.eq(p.abs(mean), float("inf")))
    return p.where(gone, float("nan"), mean)


@decomp("var.correction")
def var(x: Any, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    dims = _dims(x, dim)
    return _shaped(to(variance(x, dims, correction)[0], x.dtype), x, dims, keepdim)


@decomp("std.correction")
def std(x: Any, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    dims = _dims(x, dim)
    return _shaped(to(p.sqrt(variance(x, dims, correction)[0]), x.dtype), x, dims, keepdim)


@decomp("var_mean.correction")
def var_mean(x: Any, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    dims = _dims(x, dim)
    v, m = variance(x, dims, correction)
    m = running_mean_of(v, m)
    return _shaped(to(v, x.dtype), x, dims, keepdim), _shaped(to(m, x.dtype), x, dims, keepdim)


@decomp("std_mean.correction")
def std_mean(x: Any, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    dims = _dims(x, dim)
    v, m = variance(x, dims, correction)
    m = running_mean_of(v, m)
    return _shaped(to(p.sqrt(v), x.dtype), x, dims, keepdim), _shaped(to(m, x.dtype), x, dims, keepdim)


@decomp("logsumexp.default")
def logsumexp(x: Any, dim: Dims, keepdim: bool = False) -> Any:
    if x.dtype not in INEXACT or x.dtype in COMPLEX or strides.has_zero(x.shape):
        raise NotImplementedError
    dims = _dims(x, dim)
    if not dims:
        return p.add(x, 0.0)  # log(exp(x - x)) + x
    y = to(x, compute_type(x.dtype))
    top = p.amax(y, dims)
    top = p.where(p.eq(p.abs(top), float("inf")), 0.0, top)
    total = p.sum(p.exp(p.sub(y, spread(top, tuple(x.shape), dims))), dims, y.dtype)
    return _shaped(to(p.add(p.log(total), top), x.dtype), x, dims, keepdim)


@decomp("count_nonzero.dim_IntList", "count_nonzero.default")
def count_nonzero(x: Any, dim: Any = None) -> Any:
    dims = _dims(x, dim) if not isinstance(dim, int) else _one(x, dim)
    hit = p.ne(x, to(0, x.dtype)) if x.dtype is not torch.bool else x
    return p.sum(to(hit, torch.int64), dims, torch.int64)


@decomp("linalg_vector_norm.default")
def vector_norm(x: Any, ord: Any = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if x.dtype not in INEXACT or strides.has_zero(x.shape) or isinstance(ord, complex) or not len(x.shape):
        raise NotImplementedError
    dims = _dims(x, dim)
    final = dtype or x.dtype
    final = REAL_OF.get(final, final)
    if x.dtype in COMPLEX or (dtype is not None and dtype in COMPLEX):
        raise NotImplementedError
    y = to(to(x, final), compute_type(final))
    ord = float(ord)
    if ord == float("inf"):
        out = p.amax(p.abs(y), dims)
    elif ord == float("-inf"):
        out = p.amin(p.abs(y), dims)
    elif ord == 0:
        out = p.sum(to(p.ne(y, 0.0), y.dtype), dims, y.dtype)
    elif ord == 1:
        out = p.sum(p.abs(y), dims, y.dtype)
    elif ord == 2:
        out = p.sqrt(p.sum(p.mul(y, y), dims, y.dtype))
    else:
        out = p.pow(p.sum(p.pow(p.abs(y), ord), dims, y.dtype), 1.0 / ord)
    return _shaped(to(out, final), x, dims, keepdim)


@decomp("norm.ScalarOpt_dim")
def norm(x: Any, ord: Any, dim: Dims, keepdim: bool = False) -> Any:
    return vector_norm(x, 2 if ord is None else ord, dim, keepdim)


# -- scans
# ------------------------------------------------------------------------------------------------------------------


def _scan(prim: Any, x: Any, dim: int) -> Any:
    d = strides.wrap_dim(dim, len(x.shape))
    return prim(x, d) if len(x.shape) else x


@decomp("cumsum.default")
def cumsum(x: Any, dim: int, *, dtype: Any = None) -> Any:
    return _scan(p.cumsum, to(x, dtype or sum_type(x.dtype)), dim)


@decomp("cumprod.default")
def cumprod(x: Any, dim: int, *, dtype: Any = None) -> Any:
    return _scan(p.cumprod, to(x, dtype or sum_type(x.dtype)), dim)


@decomp("logcumsumexp.default")
def logcumsumexp(x: Any, dim: int) -> Any:
    if x.dtype not in INEXACT:
        raise NotImplementedError("eager has no kernel")
    return _scan(p.logcumsumexp, x, dim)


@decomp("cummax.default")
def cummax(x: Any, dim: int) -> Any:
    d = strides.wrap_dim(dim, len(x.shape))
    if not len(x.shape):
        return x, full((), 0, torch.int64, x.device)
    return p.cummax(x, d)


@decomp("cummin.default")
def cummin(x: Any, dim: int) -> Any:
    d = strides.wrap_dim(dim, len(x.shape))
    if not len(x.shape):
        return x, full((), 0, torch.int64, x.device)
    return p.cummin(x, d)


# -- softmax
# ----------------------------------------------------------------------------------------------------------------


def _softmax_input(x: Any, dim: int, half_to_float: bool) -> tuple:
    if not x.dtype.is_floating_point or strides.has_zero(x.shape):
        raise NotImplementedError
    dims = _one(x, dim)
    final = torch.float32 if half_to_float else x.dtype
    y = to(x, compute_type(x.dtype))
    shape = tuple(x.shape)
    if not dims:
        y = reshape(y, (1,))
        return y, (0,), (1,), final
    return y, dims, shape, final


@decomp("_softmax.default")
def softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    y, dims, shape, final = _softmax_input(x, dim, half_to_float)
    e = p.exp(p.sub(y, spread(p.amax(y, dims), shape, dims)))
    out = p.div(e, spread(p.sum(e, dims, y.dtype), shape, dims))
    return reshape(to(out, final), tuple(x.shape))


@decomp("_log_softmax.default")
def log_softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    y, dims, shape, final = _softmax_input(x, dim, half_to_float)
    z = p.sub(y, spread(p.amax(y, dims), shape, dims))
    out = p.sub(z, spread(p.log(p.sum(p.exp(z), dims, y.dtype)), shape, dims))
    return reshape(to(out, final), tuple(x.shape))


def _softmax_grads(grad: Any, out: Any, dim: int, input_dtype: Any) -> tuple:
    if strides.has_zero(out.shape) or not len(out.shape):
        raise NotImplementedError
    wide = compute_type(grad.dtype)
    return to(grad, wide), to(out, wide), _one(out, dim), tuple(out.shape)


@decomp("_softmax_backward_data.default")
def softmax_backward(grad: Any, out: Any, dim: int, input_dtype: Any) -> Any:
    g, y, dims, shape = _softmax_grads(grad, out, dim, input_dtype)
    gy = p.mul(g, y)
    return to(p.sub(gy, p.mul(y, spread(p.sum(gy, dims, gy.dtype), shape, dims))), input_dtype)


@decomp("_log_softmax_backward_data.default")
def log_softmax_backward(grad: Any, out: Any, dim: int, input_dtype: Any) -> Any:
    g, y, dims, shape = _softmax_grads(grad, out, dim, input_dtype)
    return to(p.sub(g, p.mul(p.exp(y), spread(p.sum(g, dims, g.dtype), shape, dims))), input_dtype)


@decomp("_safe_softmax.default")
def safe_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    y = to(x, dtype or x.dtype)
    dims = _one(x, dim)
    if not dims or strides.has_zero(x.shape):
        raise NotImplementedError
    masked = spread(p.all(p.eq(y, float("-inf")), dims), tuple(x.shape), dims)
    return p.where(masked, 0.0, softmax(y, dim, False))
