"""Prims that join or pad tensors."""

from __future__ import annotations

from typing import Any

import torch

from .. import strides
from ..spec import TensorMeta, define


def _cat_meta(tensors: Any, dim: int) -> TensorMeta:
    first = tensors[0]
    shape = list(first.shape)
    for t in tensors[1:]:
        shape[dim] = shape[dim] + t.shape[dim]
    out = tuple(shape)
    every = all(strides.suggests_channels_last(t.shape, t.stride()) for t in tensors)
    return TensorMeta(out, strides.channels_last(out) if every else strides.contiguous(out), first.dtype, first.device)


define(
    "cat",
    "(Tensor[] tensors, int dim) -> Tensor",
    lambda tensors, dim: torch.cat(list(tensors), dim),
    _cat_meta,
    ["shape"],
    "tensors of one dtype and rank joined along dim; the other sizes agree",
)


def _pad(x: torch.Tensor, value: Any, low: tuple, high: tuple) -> torch.Tensor:
    flat = [n for pair in zip(reversed(low), reversed(high)) for n in pair]
    return torch.constant_pad_nd(x, flat, value)


def _pad_meta(x: Any, value: Any, low: tuple, high: tuple) -> TensorMeta:
    shape = tuple(lo + n + hi for n, lo, hi in zip(x.shape, low, high))
    last = strides.suggests_channels_last(x.shape, x.stride())
    return TensorMeta(shape, strides.channels_last(shape) if last else strides.contiguous(shape), x.dtype, x.device)


define(
    "pad",
    "(Tensor x, Number value, int[] low, int[] high) -> Tensor",
    _pad,
    _pad_meta,
    ["shape"],
    "low[d] elements of `value` before and high[d] after each dimension; negative amounts crop",
)
