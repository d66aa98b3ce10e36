"""Prims without tensor operands."""

from __future__ import annotations

from typing import Any

import torch

from .. import strides
from ..spec import TensorMeta, define


def _full(shape: tuple, value: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
    return torch.full(shape, value, dtype=dtype, device=device)


def _full_meta(shape: tuple, value: Any, dtype: torch.dtype, device: Any) -> TensorMeta:
    shape = tuple(shape)
    return TensorMeta(shape, strides.contiguous(shape), dtype, torch.device(device))


define(
    "full",
    "(int[] shape, Number value, dtype dtype, device device) -> Tensor",
    _full,
    _full_meta,
    ["creation"],
    "contiguous tensor of one value; a value that dtype cannot hold raises RuntimeError",
)


def _iota(length: int, start: int, step: int, dtype: torch.dtype, device: Any) -> torch.Tensor:
    return (torch.arange(length, dtype=torch.int64, device=device) * step + start).to(dtype)


def _iota_meta(length: int, start: int, step: int, dtype: torch.dtype, device: Any) -> TensorMeta:
    return TensorMeta((length,), (1,), dtype, torch.device(device))


define(
    "iota",
    "(int length, int start, int step, dtype dtype, device device) -> Tensor",
    _iota,
    _iota_meta,
    ["creation"],
    "start, start + step, ...: length whole numbers, computed in int64 and converted",
)


def _empty_meta(shape: tuple, stride: tuple, dtype: torch.dtype, device: Any) -> TensorMeta:
    return TensorMeta(tuple(shape), tuple(stride), dtype, torch.device(device))


define(
    "empty_strided",
    "(int[] shape, int[] stride, dtype dtype, device device) -> Tensor",
    lambda shape, stride, dtype, device: torch.empty_strided(shape, stride, dtype=dtype, device=device),
    _empty_meta,
    ["creation"],
    "tensor of unspecified values with these strides",
)
