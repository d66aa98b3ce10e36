"""Rules of ops that make tensors: factories, the *_like and new_* families, clones and conversions."""

from __future__ import annotations

import math
from typing import Any

import torch

from .. import strides
from ..promotion import dtype_of_number
from ..spec import TensorMeta
from ._table import rule, signed

CPU = torch.device("cpu")


def _device(kwargs: dict, default: torch.device | None = None) -> torch.device:
    device = kwargs.get("device")
    if device is None:
        return default or torch.get_default_device()
    device = torch.device(device)
    if device.index is None and device.type != "cpu":
        device = torch.device(device.type, 0) if device.type == "cuda" else device
    return device


def _strided(kwargs: dict) -> None:
    if kwargs.get("layout") not in (None, torch.strided):
        raise NotImplementedError("sparse layout")


def _shape(size: Any) -> tuple:
    shape = tuple(size)
    for n in shape:
        if type(n) is int and n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(shape)}")
    return shape


@rule("empty.memory_format", "zeros.default", "ones.default", "rand.default", "randn.default")
def empty(args: tuple, kwargs: dict) -> TensorMeta:
    _strided(kwargs)
    shape = _shape(args[0])
    fmt = kwargs.get("memory_format")
    stride = strides.contiguous(shape)
    if fmt is not None and fmt is not torch.contiguous_format:
        stride = strides.with_format(shape, stride, fmt)
    return TensorMeta(shape, stride, kwargs.get("dtype") or torch.get_default_dtype(), _device(kwargs))


@signed("full.default")
def full(size: Any, value: Any, **kwargs: Any) -> TensorMeta:
    _strided(kwargs)
    shape = _shape(size)
    return TensorMeta(shape, strides.contiguous(shape), kwargs.get("dtype") or dtype_of_number(value), _device(kwargs))


@signed("scalar_tensor.default")
def scalar_tensor(value: Any, **kwargs: Any) -> TensorMeta:
    return TensorMeta((), (), kwargs.get("dtype") or torch.get_default_dtype(), _device(kwargs))


@signed("empty_strided.default")
def empty_strided(size: Any, stride: Any, **kwargs: Any) -> TensorMeta:
    return TensorMeta(_shape(size), tuple(stride), kwargs.get("dtype") or torch.get_default_dtype(), _device(kwargs))


@signed("arange.default", "arange.start", "arange.start_step")
def arange(*args: Any, **kwargs: Any) -> TensorMeta:
    start, end, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    dtype = kwargs.get("dtype")
    if dtype is None:
        whole = all(isinstance(n, (int, torch.SymInt)) for n in (start, end, step))
        dtype = torch.int64 if whole else torch.get_default_dtype()
    if type(start) is int and type(end) is int and type(step) is int:
        if step == 0 or (step > 0) != (end >= start) and end != start:
            raise NotImplementedError
        n = -((start - end) // step)
    elif all(isinstance(n, (int, float)) for n in (start, end, step)):
        if dtype not in (torch.float32, torch.float64, torch.float16, torch.bfloat16) or step == 0:
            raise NotImplementedError
        n = math.ceil((end - start) / step)
        if n < 0:
            raise NotImplementedError
    elif type(step) is int and step == 1 and not isinstance(start, float) and not isinstance(end, float):
        n = end - start if not strides.is_int(start, 0) else end
    else:
        raise NotImplementedError
    return TensorMeta((n,), (1,), dtype, _device(kwargs))


@signed("eye.default", "eye.m")
def eye(n: Any, m: Any = None, **kwargs: Any) -> TensorMeta:
    shape = (n, n if m is None else m)
    return TensorMeta(
        shape, strides.contiguous(shape), kwargs.get("dtype") or torch.get_default_dtype(), _device(kwargs)
    )


@rule(
    "zeros_like.default",
    "ones_like.default",
    "empty_like.default",
    "rand_like.default",
    "randn_like.default",
    "full_like.default",
)
def like(args: tuple, kwargs: dict) -> TensorMeta:
    x = args[0]
    _strided(kwargs)
    shape = tuple(x.shape)
    return TensorMeta(
        shape,
        strides.with_format(shape, x.stride(), kwargs.get("memory_format")),
        kwargs.get("dtype") or x.dtype,
        _device(kwargs, x.device),
    )


@rule("uniform.default", "exponential.default", "normal_functional.default")
def random_like(args: tuple, kwargs: dict) -> TensorMeta:
    x = args[0]
    shape = tuple(x.shape)
    return TensorMeta(shape, strides.like(shape, x.stride()), x.dtype, x.device)


@rule("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def normal(args: tuple, kwargs: dict) -> TensorMeta:
    """The mean decides the dtype, whatever the deviation's; the result is contiguous."""
    tensors = [a for a in args[:2] if hasattr(a, "dtype")]
    first = tensors[0]
    if not first.dtype.is_floating_point:
        raise NotImplementedError
    shape = strides.broadcast(*(tuple(t.shape) for t in tensors))
    return TensorMeta(shape, strides.contiguous(shape), first.dtype, first.device)


@rule("bernoulli.default", "bernoulli.p")
def bernoulli(args: tuple, kwargs: dict) -> TensorMeta:
    x = args[0]
    shape = tuple(x.shape)
    return TensorMeta(shape, strides.contiguous(shape), x.dtype, x.device)


@rule("new_zeros.default", "new_ones.default", "new_empty.default", "new_full.default")
def new(args: tuple, kwargs: dict) -> TensorMeta:
    x = args[0]
    _strided(kwargs)
    shape = _shape(args[1])
    return TensorMeta(shape, strides.contiguous(shape), kwargs.get("dtype") or x.dtype, _device(kwargs, x.device))


@signed("new_empty_strided.default")
def new_empty_strided(x: Any, size: Any, stride: Any, **kwargs: Any) -> TensorMeta:
    return TensorMeta(_shape(size), tuple(stride), kwargs.get("dtype") or x.dtype, _device(kwargs, x.device))


@signed("clone.default")
def clone(x: Any, memory_format: Any = None) -> TensorMeta:
    shape = tuple(x.shape)
    return TensorMeta(shape, strides.with_format(shape, x.stride(), memory_format), x.dtype, x.device)


@signed("_to_copy.default")
def to_copy(x: Any, **kwargs: Any) -> TensorMeta:
    _strided(kwargs)
    shape = tuple(x.shape)
    stride = strides.with_format(shape, x.stride(), kwargs.get("memory_format"))
    return TensorMeta(shape, stride, kwargs.get("dtype") or x.dtype, _device(kwargs, x.device))


@signed("copy.default")
def copy(x: Any, src: Any, non_blocking: bool = False) -> TensorMeta:
    shape = tuple(x.shape)
    if strides.broadcast(shape, tuple(src.shape)) != shape:
        raise NotImplementedError
    return TensorMeta(shape, strides.like(shape, x.stride()), x.dtype, x.device)


@signed("native_dropout.default")
def native_dropout(x: Any, p: float, train: Any) -> tuple:
    shape = tuple(x.shape)
    stride = strides.like(shape, x.stride())
    return TensorMeta(shape, stride, x.dtype, x.device), TensorMeta(shape, stride, torch.bool, x.device)


@signed("_c10d_functional.broadcast.default")
def broadcast_from_rank(x: Any, src: Any, group: Any) -> TensorMeta:
    """The kernel makes a contiguous copy; torch's registered fake keeps the strides of the input."""
    shape = tuple(x.shape)
    return TensorMeta(shape, strides.contiguous(shape), x.dtype, x.device)
