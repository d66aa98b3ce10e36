"""Factories, copies and conversions."""

from __future__ import annotations

from typing import Any

import torch

from .. import prims as p
from .. import strides
from ..operands import broadcast, full, full_like, is_tensor, to
from ..promotion import dtype_of_number
from ..rules import creation as rule
from ..rules.creation import _device
from ._table import decomp


def _plain(kwargs: dict) -> None:
    if kwargs.get("layout") not in (None, torch.strided) or kwargs.get("pin_memory"):
        raise NotImplementedError


@decomp("full.default")
def full_(size: Any, value: Any, **kw: Any) -> Any:
    _plain(kw)
    return full(size, value, kw.get("dtype") or dtype_of_number(value), _device(kw))


@decomp("zeros.default")
def zeros(size: Any, **kw: Any) -> Any:
    _plain(kw)
    return full(size, 0, kw.get("dtype") or torch.get_default_dtype(), _device(kw))


@decomp("ones.default")
def ones(size: Any, **kw: Any) -> Any:
    _plain(kw)
    return full(size, 1, kw.get("dtype") or torch.get_default_dtype(), _device(kw))


@decomp("scalar_tensor.default")
def scalar_tensor(value: Any, **kw: Any) -> Any:
    _plain(kw)
    return full((), value, kw.get("dtype") or torch.get_default_dtype(), _device(kw))


@decomp("full_like.default")
def full_like_(x: Any, value: Any, **kw: Any) -> Any:
    _plain(kw)
    return full(x.shape, value, kw.get("dtype") or x.dtype, _device(kw, x.device))


@decomp("zeros_like.default")
def zeros_like(x: Any, **kw: Any) -> Any:
    return full_like_(x, 0, **kw)


@decomp("ones_like.default")
def ones_like(x: Any, **kw: Any) -> Any:
    return full_like_(x, 1, **kw)


@decomp("new_full.default")
def new_full(x: Any, size: Any, value: Any, **kw: Any) -> Any:
    _plain(kw)
    return full(size, value, kw.get("dtype") or x.dtype, _device(kw, x.device))


@decomp("new_zeros.default")
def new_zeros(x: Any, size: Any, **kw: Any) -> Any:
    return new_full(x, size, 0, **kw)


@decomp("new_ones.default")
def new_ones(x: Any, size: Any, **kw: Any) -> Any:
    return new_full(x, size, 1, **kw)


@decomp("empty.memory_format")
def empty(size: Any, **kw: Any) -> Any:
    _plain(kw)
    m = rule.empty((size,), kw)
    return p.empty_strided(m.shape, m.stride, m.dtype, m.device)


@decomp("empty_strided.default")
def empty_strided(size: Any, stride: Any, **kw: Any) -> Any:
    _plain(kw)
    return p.empty_strided(tuple(size), tuple(stride), kw.get("dtype") or torch.get_default_dtype(), _device(kw))


@decomp("empty_like.default")
def empty_like(x: Any, **kw: Any) -> Any:
    _plain(kw)
    m = rule.like((x,), kw)
    return p.empty_strided(m.shape, m.stride, m.dtype, m.device)


@decomp("new_empty.default")
def new_empty(x: Any, size: Any, **kw: Any) -> Any:
    _plain(kw)
    m = rule.new((x, size), kw)
    return p.empty_strided(m.shape, m.stride, m.dtype, m.device)


@decomp("new_empty_strided.default")
def new_empty_strided(x: Any, size: Any, stride: Any, **kw: Any) -> Any:
    _plain(kw)
    return p.empty_strided(tuple(size), tuple(stride), kw.get("dtype") or x.dtype, _device(kw, x.device))


@decomp("arange.default", "arange.start", "arange.start_step")
def arange(*args: Any, **kw: Any) -> Any:
    _plain(kw)
    m = rule.arange(*args, **kw)
    start, _, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if not isinstance(start, (int, torch.SymInt)) or not isinstance(step, int):
        raise NotImplementedError("fractional arange")
    return p.iota(m.shape[0], start, step, m.dtype, m.device)


@decomp("eye.default", "eye.m")
def eye(n: Any, m: Any = None, **kw: Any) -> Any:
    _plain(kw)
    cols = n if m is None else m
    device = _device(kw)
    r = p.broadcast_in_dim(p.iota(n, 0, 1, torch.int64, device), (n, cols), (0,))
    c = p.broadcast_in_dim(p.iota(cols, 0, 1, torch.int64, device), (n, cols), (1,))
    return to(p.eq(r, c), kw.get("dtype") or torch.get_default_dtype())


@decomp("clone.default")
def clone(x: Any, memory_format: Any = None) -> Any:
    shape = tuple(x.shape)
    stride = strides.with_format(shape, x.stride(), memory_format)
    if stride == tuple(x.stride()):
        return x
    return p.restride(x, stride)


@decomp("_to_copy.default")
def to_copy(x: Any, **kw: Any) -> Any:
    _plain(kw)
    if _device(kw, x.device) != x.device:
        raise NotImplementedError("copy between devices")
    dtype = kw.get("dtype") or x.dtype
    return clone(to(x, dtype), kw.get("memory_format"))


@decomp("copy.default")
def copy(x: Any, src: Any, non_blocking: bool = False) -> Any:
    if x.device != src.device:
        raise NotImplementedError("copy between devices")
    return broadcast(to(src, x.dtype), tuple(x.shape))


@decomp("fill.Scalar", "fill.Tensor")
def fill(x: Any, value: Any) -> Any:
    if is_tensor(value):
        if len(value.shape) or value.device != x.device:
            raise NotImplementedError
        return broadcast(to(value, x.dtype), tuple(x.shape))
    return full_like(x, value)


@decomp("zero.default")
def zero(x: Any) -> Any:
    return full_like(x, 0)


@decomp("native_dropout.default")
def native_dropout(x: Any, prob: float, train: Any) -> Any:
    if train or not isinstance(train, bool) and train is not None:
        raise NotImplementedError("draws random numbers")
    return x, full(x.shape, True, torch.bool, x.device)
