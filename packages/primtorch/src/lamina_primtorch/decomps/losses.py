"""Losses, forward and backward. ``reduction``: 0 none, 1 mean, 2 sum."""

from __future__ import annotations

from typing import Any

import torch

from .. import prims as p
from .. import strides
from ..operands import align, broadcast, full, promoted, reshape, spread, to, widened
from ..promotion import compute_type
from ._table import decomp
from .reductions import mean as mean_of
from .reductions import sum_


def _reduce(loss: Any, reduction: int, dtype: torch.dtype) -> Any:
    if reduction == 0:
        return to(loss, dtype)
    return to(mean_of(loss) if reduction == 1 else sum_(loss), dtype)


def _pair(a: Any, b: Any) -> tuple:
    (a, b), dtype = widened((a, b))
    if not dtype.is_floating_point:
        raise NotImplementedError
    return a, b, dtype


@decomp("mse_loss.default")
def mse_loss(x: Any, target: Any, reduction: int = 1) -> Any:
    a, b, dtype = _pair(x, target)
    d = p.sub(a, b)
    return _reduce(p.mul(d, d), reduction, dtype)


def _grads(grad: Any, x: Any, target: Any, reduction: int) -> tuple:
    if not x.dtype.is_floating_point or grad.dtype is not x.dtype or target.dtype is not x.dtype:
        raise NotImplementedError
    g, a, b = align((grad, x, target), compute_type(x.dtype))
    n = strides.numel(a.shape)
    return g, a, b, (1.0 / n if reduction == 1 and n != 0 else 1.0)


@decomp("mse_loss_backward.default")
def mse_loss_backward(grad: Any, x: Any, target: Any, reduction: int) -> Any:
    g, a, b, norm = _grads(grad, x, target, reduction)
    return to(p.mul(p.mul(p.sub(a, b), 2.0 * norm), g), x.dtype)


@decomp("smooth_l1_loss.default")
def smooth_l1_loss(x: Any, target: Any, reduction: int = 1, beta: float = 1.0) -> Any:
    if beta <= 0:
        raise NotImplementedError
    a, b, dtype = _pair(x, target)
    d = p.abs(p.sub(a, b))
    loss = p.where(p.lt(d, float(beta)), p.div(p.mul(p.mul(d, d), 0.5), float(beta)), p.sub(d, 0.5 * float(beta)))
    return _reduce(loss, reduction, dtype)


@decomp("smooth_l1_loss_backward.default")
def smooth_l1_loss_backward(grad: Any, x: Any, target: Any, reduction: int, beta: float) -> Any:
    if beta <= 0:
        raise NotImplementedError
    g, a, b, norm = _grads(grad, x, target, reduction)
    d = p.sub(a, b)
    beta = float(beta)
    slope = p.where(p.le(d, -beta), -norm, p.where(p.ge(d, beta), norm, p.mul(d, norm / beta)))
    return to(p.mul(slope, g), x.dtype)


@decomp("huber_loss.default")
def huber_loss(x: Any, target: Any, reduction: int = 1, delta: float = 1.0) -> Any:
    if delta <= 0:
        raise NotImplementedError
    a, b, dtype = _pair(x, target)
    d = p.abs(p.sub(a, b))
    delta = float(delta)
    loss = p.where(p.lt(d, delta), p.mul(p.mul(d, d), 0.5), p.mul(p.sub(d, 0.5 * delta), delta))
    return _reduce(loss, reduction, dtype)


@decomp("huber_loss_backward.default")
def huber_loss_backward(grad: Any, x: Any, target: Any, reduction: int, delta: float) -> Any:
    g, a, b, norm = _grads(grad, x, target, reduction)
    d = p.sub(a, b)
    delta = float(delta)
    mid = p.mul(p.mul(d, norm), g)
    out = p.where(p.le(d, -delta), p.mul(g, -norm * delta), p.where(p.ge(d, delta), p.mul(g, norm * delta), mid))
    return to(out, x.dtype)


@decomp("binary_cross_entropy_backward.default")
def binary_cross_entropy_backward(grad: Any, x: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    g, a, b, norm = _grads(grad, x, target, reduction)
    out = p.mul(p.div(p.sub(a, b), p.maximum(p.mul(p.sub(1.0, a), a), 1e-12)), g)
    if weight is not None:
        out = p.mul(out, broadcast(to(weight, a.dtype), tuple(a.shape)))
    return to(p.mul(out, norm) if norm != 1.0 else out, x.dtype)


@decomp("binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(
    x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Any:
    a, b, dtype = _pair(x, target)
    shape = tuple(a.shape)
    if tuple(x.shape) != tuple(target.shape):
        raise NotImplementedError
    # log(sigmoid(a)) = min(a, 0) - log1p(exp(-|a|))
    log_sigmoid = p.sub(p.minimum(a, 0.0), p.log1p(p.exp(p.neg(p.abs(a)))))
    if pos_weight is None:
        loss = p.sub(p.mul(p.sub(1.0, b), a), log_sigmoid)
    else:
        factor = p.add(p.mul(p.sub(broadcast(to(pos_weight, a.dtype), shape), 1.0), b), 1.0)
        loss = p.sub(p.mul(p.sub(1.0, b), a), p.mul(log_sigmoid, factor))
    if weight is not None:
        loss = p.mul(loss, broadcast(to(weight, a.dtype), shape))
    return _reduce(loss, reduction, dtype)


@decomp("soft_margin_loss.default")
def soft_margin_loss(x: Any, target: Any, reduction: int = 1) -> Any:
    (a, b), dtype = promoted((x, target))  # eager chains whole-tensor operations here: half precision rounds after each
    if not dtype.is_floating_point:
        raise NotImplementedError
    return _reduce(p.log1p(p.exp(p.neg(p.mul(a, b)))), reduction, dtype)


def _nll_parts(x: Any, target: Any, weight: Any, ignore: int) -> tuple:
    """Class dimension 1: safe target, whether it counts, and its weight; all shaped like target."""
    if target.dtype is not torch.int64 or tuple(target.shape) != (x.shape[0], *x.shape[2:]):
        raise NotImplementedError("eager refuses the target")
    if weight is not None and (tuple(weight.shape) != (x.shape[1],) or weight.dtype is not x.dtype):
        raise NotImplementedError("eager refuses the weight")
    counts = p.ne(target, ignore)
    safe = p.where(counts, target, 0)
    wide = compute_type(x.dtype)
    if weight is None:
        w = to(counts, wide)
    else:
        w = p.where(counts, p.take_rows(to(weight, wide), safe), 0.0)
    return counts, safe, w


def _nll(x: Any, target: Any, weight: Any, reduction: int, ignore: int) -> tuple:
    wide = compute_type(x.dtype)
    counts, safe, w = _nll_parts(x, target, weight, ignore)
    shape = tuple(target.shape)
    if weight is None:  # a target out of range is an IndexError, as reading its weight would be; gather's is another
        safe = p.take_rows(p.iota(x.shape[1], 0, 1, torch.int64, x.device), safe)
    at = reshape(safe, (shape[0], 1, *shape[1:]))
    picked = reshape(p.gather(to(x, wide), 1, at), shape)
    loss = p.where(counts, p.neg(picked) if weight is None else p.mul(p.neg(picked), w), 0.0)
    if reduction == 0:
        return to(loss, x.dtype), full((), 0, x.dtype, x.device)
    dims = tuple(range(len(shape)))
    total = p.sum(w, dims, wide)
    out = p.sum(loss, dims, wide)
    if reduction == 1:
        out = p.div(out, total)
    return to(out, x.dtype), to(total, x.dtype)


@decomp("nll_loss_forward.default")
def nll_loss_forward(x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    if not x.dtype.is_floating_point or strides.has_zero(x.shape):
        raise NotImplementedError
    if len(x.shape) == 1:
        if tuple(target.shape) not in ((), (1,)):
            raise NotImplementedError("eager refuses the target")
        loss, total = _nll(reshape(x, (1, x.shape[0])), reshape(target, (1,)), weight, reduction, ignore_index)
        return reshape(loss, ()), total
    if len(x.shape) != 2 or len(target.shape) != 1 or x.shape[0] != target.shape[0]:
        raise NotImplementedError
    return _nll(x, target, weight, reduction, ignore_index)


@decomp("nll_loss2d_forward.default")
def nll_loss2d_forward(x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    if len(x.shape) != 4 or len(target.shape) != 3 or strides.has_zero(x.shape):
        raise NotImplementedError
    return _nll(x, target, weight, reduction, ignore_index)


def _nll_backward(grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignore: int, total: Any) -> Any:
    wide = compute_type(x.dtype)
    shape = tuple(x.shape)
    counts, safe, w = _nll_parts(x, target, weight, ignore)
    g = to(grad, wide)
    if reduction == 1:
        g = p.div(g, to(total, wide))
    g = broadcast(g, tuple(target.shape))
    g = p.where(counts, p.neg(p.mul(g, w)) if weight is not None else p.neg(g), 0.0)
    classes = p.broadcast_in_dim(p.iota(shape[1], 0, 1, torch.int64, x.device), shape, (1,))
    hit = p.eq(classes, spread(safe, shape, (1,)))
    return to(p.where(hit, spread(g, shape, (1,)), 0.0), x.dtype)


@decomp("nll_loss_backward.default")
def nll_loss_backward(
    grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total_weight: Any
) -> Any:
    if not x.dtype.is_floating_point or strides.has_zero(x.shape):
        raise NotImplementedError
    if len(x.shape) == 1:
        row = _nll_backward(
            reshape(grad, (1,) if reduction == 0 else ()),
            reshape(x, (1, x.shape[0])),
            reshape(target, (1,)),
            weight,
            reduction,
            ignore_index,
            total_weight,
        )
        return reshape(row, tuple(x.shape))
    return _nll_backward(grad, x, target, weight, reduction, ignore_index, total_weight)


@decomp("nll_loss2d_backward.default")
def nll_loss2d_backward(
    grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total_weight: Any
) -> Any:
    if len(x.shape) != 4 or strides.has_zero(x.shape):
        raise NotImplementedError
    return _nll_backward(grad, x, target, weight, reduction, ignore_index, total_weight)
