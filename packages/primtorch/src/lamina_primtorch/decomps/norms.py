"""Layer, group and batch normalization, forward and backward. Statistics are computed in float32 for half precision."""

from __future__ import annotations

from typing import Any

import torch

from .. import prims as p
from .. import strides
from ..operands import broadcast, full, kept, reshape, spread, to
from ..promotion import compute_type
from ._table import decomp
from .reductions import running_mean_of


def _check(x: Any) -> Any:
    if not x.dtype.is_floating_point or strides.has_zero(x.shape):
        raise NotImplementedError
    return compute_type(x.dtype)


def _count(x: Any, dims: Any) -> Any:
    n: Any = 1
    for d in dims:
        n = n * x.shape[d]
    return float(n) if type(n) is int else n


@decomp("native_layer_norm.default")
def native_layer_norm(x: Any, normalized: Any, weight: Any, bias: Any, eps: float) -> Any:
    wide = _check(x)
    shape = tuple(x.shape)
    lead = len(shape) - len(normalized)
    dims = tuple(range(lead, len(shape)))
    if lead < 0 or not dims:
        raise NotImplementedError
    y = to(x, wide)
    var, mean = p.var_mean(y, dims, 0.0)
    rstd = p.rsqrt(p.add(var, float(eps)))
    out = p.mul(p.sub(y, spread(mean, shape, dims)), spread(rstd, shape, dims))
    if weight is not None:
        out = p.mul(out, broadcast(to(weight, wide), shape))
    if bias is not None:
        out = p.add(out, broadcast(to(bias, wide), shape))
    stat = x.dtype
    if weight is not None and weight.dtype is not x.dtype:
        stat = torch.float32
    if x.device.type != "cpu":
        stat = wide
    ones = kept(shape, dims)
    return to(out, x.dtype), reshape(to(running_mean_of(var, mean), stat), ones), reshape(to(rstd, stat), ones)


@decomp("native_layer_norm_backward.default")
def native_layer_norm_backward(
    grad: Any, x: Any, normalized: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any
) -> Any:
    wide = _check(x)
    shape = tuple(x.shape)
    lead = len(shape) - len(normalized)
    dims = tuple(range(lead, len(shape)))
    outer = tuple(range(lead))
    g, y = to(grad, wide), to(x, wide)
    mean, rstd = broadcast(to(mean, wide), shape), broadcast(to(rstd, wide), shape)
    hat = p.mul(p.sub(y, mean), rstd)
    gx = gw = gb = None
    if mask[0]:
        gy = g if weight is None else p.mul(g, broadcast(to(weight, wide), shape))
        n = _count(x, dims)
        a = spread(p.div(p.sum(gy, dims, wide), n), shape, dims)
        b = spread(p.div(p.sum(p.mul(gy, hat), dims, wide), n), shape, dims)
        gx = to(p.mul(p.sub(p.sub(gy, a), p.mul(hat, b)), rstd), x.dtype)
    if mask[1] and weight is not None:
        prod = p.mul(g, hat)
        gw = to(p.sum(prod, outer, wide) if outer else prod, weight.dtype)
    if mask[2] and bias is not None:
        gb = to(p.sum(g, outer, wide) if outer else g, bias.dtype)
    return gx, gw, gb


@decomp("_fused_rms_norm.default")
def fused_rms_norm(x: Any, normalized: Any, weight: Any, eps: Any) -> Any:
    wide = _check(x)
    shape = tuple(x.shape)
    lead = len(shape) - len(normalized)
    dims = tuple(range(lead, len(shape)))
    if lead < 0 or not dims:
        raise NotImplementedError
    y = to(x, wide)
    eps = torch.finfo(wide).eps if eps is None else float(eps)
    rstd = p.rsqrt(p.add(p.div(p.sum(p.mul(y, y), dims, wide), _count(x, dims)), eps))
    out = p.mul(y, spread(rstd, shape, dims))
    if weight is not None:
        out = p.mul(out, broadcast(to(weight, wide), shape))
    return to(out, x.dtype), reshape(rstd, kept(shape, dims))


@decomp("native_group_norm.default")
def native_group_norm(x: Any, weight: Any, bias: Any, n: Any, c: Any, hw: Any, group: int, eps: float) -> Any:
    wide = _check(x)
    shape = tuple(x.shape)
    grouped = (n, group, c // group, hw)
    y = reshape(to(x, wide), grouped)
    var, mean = p.var_mean(y, (2, 3), 0.0)
    rstd = p.rsqrt(p.add(var, float(eps)))
    out = p.mul(p.sub(y, spread(mean, grouped, (2, 3))), spread(rstd, grouped, (2, 3)))
    out = reshape(out, shape)
    if weight is not None:
        out = p.mul(out, p.broadcast_in_dim(to(weight, wide), shape, (1,)))
    if bias is not None:
        out = p.add(out, p.broadcast_in_dim(to(bias, wide), shape, (1,)))
    stat = x.dtype if weight is None or weight.dtype is x.dtype else weight.dtype
    return to(out, x.dtype), to(running_mean_of(var, mean), stat), to(rstd, stat)


@decomp("native_group_norm_backward.default")
def native_group_norm_backward(
    grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, n: Any, c: Any, hw: Any, group: int, mask: Any
) -> Any:
    wide = _check(x)
    shape = tuple(x.shape)
    grouped = (n, group, c // group, hw)
    g = reshape(to(grad, wide), grouped)
    y = reshape(to(x, wide), grouped)
    rs = p.broadcast_in_dim(to(rstd, wide), grouped, (0, 1))
    hat = p.mul(p.sub(y, p.broadcast_in_dim(to(mean, wide), grouped, (0, 1))), rs)
    gx = gw = gb = None
    if mask[0]:
        gy = g
        if weight is not None:
            gy = p.mul(g, p.broadcast_in_dim(reshape(to(weight, wide), (group, c // group)), grouped, (1, 2)))
        count = (c // group) * hw
        count = float(count) if type(count) is int else count
        a = spread(p.div(p.sum(gy, (2, 3), wide), count), grouped, (2, 3))
        b = spread(p.div(p.sum(p.mul(gy, hat), (2, 3), wide), count), grouped, (2, 3))
        gx = reshape(to(p.mul(p.sub(p.sub(gy, a), p.mul(hat, b)), rs), x.dtype), shape)
    param = x.dtype if weight is None else weight.dtype
    if mask[1]:
        gw = to(reshape(p.sum(p.mul(g, hat), (0, 3), wide), (c,)), param)
    if mask[2]:
        gb = to(reshape(p.sum(g, (0, 3), wide), (c,)), param)
    return gx, gw, gb


def _channels(x: Any) -> tuple[int, ...]:
    return tuple(d for d in range(len(x.shape)) if d != 1)


def _affine(x: Any, y: Any, mean: Any, rstd: Any, weight: Any, bias: Any) -> Any:
    shape = tuple(x.shape)
    wide = y.dtype
    out = p.mul(p.sub(y, p.broadcast_in_dim(mean, shape, (1,))), p.broadcast_in_dim(rstd, shape, (1,)))
    if weight is not None:
        out = p.mul(out, p.broadcast_in_dim(to(weight, wide), shape, (1,)))
    if bias is not None:
        out = p.add(out, p.broadcast_in_dim(to(bias, wide), shape, (1,)))
    return to(out, x.dtype)


def batch_norm_train(x: Any, weight: Any, bias: Any, eps: float) -> tuple:
    """Output, mean, rstd and biased variance of a training step, statistics in the computing type."""
    wide = _check(x)
    y = to(x, wide)
    var, mean = p.var_mean(y, _channels(x), 0.0)
    rstd = p.rsqrt(p.add(var, float(eps)))
    return _affine(x, y, mean, rstd, weight, bias), mean, rstd, var


def batch_norm_eval(x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, eps: float) -> Any:
    wide = _check(x)
    rstd = p.rsqrt(p.add(to(running_var, wide), float(eps)))
    return _affine(x, to(x, wide), to(running_mean, wide), rstd, weight, bias)


def _stat(x: Any, weight: Any) -> torch.dtype:
    if x.device.type != "cpu":
        return compute_type(x.dtype)
    return x.dtype if weight is None or weight.dtype is x.dtype else weight.dtype


def _moved(running: Any, new: Any, momentum: float) -> Any:
    if running is None:
        return None
    wide = compute_type(running.dtype)
    return to(
        p.add(p.mul(to(new, wide), float(momentum)), p.mul(to(running, wide), 1.0 - float(momentum))), running.dtype
    )


@decomp("_native_batch_norm_legit_functional.default")
def batch_norm_functional(
    x: Any, weight: Any, bias: Any, rm: Any, rv: Any, training: bool, momentum: float, eps: float
) -> Any:
    if not training:
        nothing = full((0,), 0, _stat(x, weight), x.device)
        return batch_norm_eval(x, weight, bias, rm, rv, eps), nothing, nothing, rm, rv
    out, mean, rstd, var = batch_norm_train(x, weight, bias, eps)
    n = _count(x, _channels(x))
    unbiased = p.mul(var, n / (n - 1.0) if isinstance(n, float) and n != 1.0 else n / (n - 1)) if n != 1.0 else None
    if unbiased is None:
        raise NotImplementedError
    stat = _stat(x, weight)
    return out, to(mean, stat), to(rstd, stat), _moved(rm, mean, momentum), _moved(rv, unbiased, momentum)


@decomp("_batch_norm_with_update_functional.default")
def batch_norm_with_update(x: Any, weight: Any, bias: Any, rm: Any, rv: Any, momentum: float, eps: float) -> Any:
    if x.device.type != "cpu":
        raise NotImplementedError("the reserved space belongs to a vendor kernel")
    out, mean, rstd, rm, rv = batch_norm_functional(x, weight, bias, rm, rv, True, momentum, eps)
    return out, mean, rstd, full((0,), 0, torch.uint8, x.device), rm, rv


@decomp("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
    if not training:
        raise NotImplementedError
    out, mean, rstd, _ = batch_norm_train(x, weight, bias, eps)
    stat = _stat(x, weight)
    return out, to(mean, stat), to(rstd, stat)


@decomp("_native_batch_norm_legit_no_training.default")
def batch_norm_no_training(x: Any, weight: Any, bias: Any, rm: Any, rv: Any, momentum: float, eps: float) -> Any:
    nothing = full((0,), 0, _stat(x, weight), x.device)
    return batch_norm_eval(x, weight, bias, rm, rv, eps), nothing, nothing


@decomp("native_batch_norm.default", "_native_batch_norm_legit.default")
def native_batch_norm(
    x: Any, weight: Any, bias: Any, rm: Any, rv: Any, training: bool, momentum: float, eps: float
) -> Any:
    if training:
        if rm is not None or rv is not None:
            raise NotImplementedError("updates its running statistics in place")
        return batch_norm_no_stats(x, weight, bias, True, momentum, eps)
    return batch_norm_no_training(x, weight, bias, rm, rv, momentum, eps)


@decomp("native_batch_norm_backward.default")
def native_batch_norm_backward(
    grad: Any, x: Any, weight: Any, rm: Any, rv: Any, mean: Any, rstd: Any, train: bool, eps: float, mask: Any
) -> Any:
    wide = _check(x)
    shape = tuple(x.shape)
    dims = _channels(x)
    g, y = to(grad, wide), to(x, wide)
    if train:
        m, r = to(mean, wide), to(rstd, wide)
    else:
        m, r = to(rm, wide), p.rsqrt(p.add(to(rv, wide), float(eps)))

    def wide_of(v: Any) -> Any:
        return p.broadcast_in_dim(v, shape, (1,))

    centered = p.sub(y, wide_of(m))
    total = p.sum(g, dims, wide)
    dot = p.sum(p.mul(g, centered), dims, wide)
    scale = r if weight is None else p.mul(r, to(weight, wide))
    gx = gw = gb = None
    if mask[0]:
        if train:
            n = _count(x, dims)
            proj = p.mul(p.div(dot, n), p.mul(r, r))
            inner = p.sub(p.sub(g, wide_of(p.div(total, n))), p.mul(centered, wide_of(proj)))
            gx = p.mul(inner, wide_of(scale))
        else:
            gx = p.mul(g, wide_of(scale))
        gx = to(gx, x.dtype)
    param = x.dtype if weight is None else weight.dtype
    if mask[1]:
        gw = to(p.mul(dot, r), param)
    if mask[2]:
        gb = to(total, param)
    return gx, gw, gb


@decomp("batch_norm_backward.default")
def batch_norm_backward(
    grad: Any,
    x: Any,
    weight: Any,
    rm: Any,
    rv: Any,
    mean: Any,
    rstd: Any,
    update: bool,
    eps: float,
    mask: Any,
    reserve: Any,
) -> Any:
    if x.device.type != "cpu":
        raise NotImplementedError
    return native_batch_norm_backward(grad, x, weight, rm, rv, mean, rstd, update, eps, mask)
