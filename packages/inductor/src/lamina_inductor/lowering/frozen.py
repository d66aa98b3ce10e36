"""Convolutions and linear layers with constant weights: oneDNN's own weight layout, chosen once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from .._torch import has_onednn
from ..ir.tensor import TensorValue
from ..layout_pass import channels_last_strides

EPILOGUE = "epilogue"
"""`node.meta` key of a convolution: what is applied to its result ("relu")."""


@cache
def _ops() -> Any:
    return torch.ops.mkldnn if has_onednn() and hasattr(torch.ops.mkldnn, "_convolution_pointwise") else None


def constant_of(g: Any, x: Any) -> torch.Tensor | None:
    """The tensor behind a value that is a constant of the graph, laid out like the value; else None."""
    if not isinstance(x, TensorValue) or x.buffer is None or x.layout is None:
        return None
    decl = g.buffers[x.buffer]
    layout = x.layout
    numbers = (*layout.shape, *layout.stride, layout.offset)
    if decl.kind != "constant" or not all(e.is_const for e in numbers):
        return None
    shape, stride = [int(e) for e in layout.shape], [int(e) for e in layout.stride]
    whole = g.constants[decl.index]
    return whole.as_strided(shape, stride, whole.storage_offset() + int(layout.offset))


def pack_convolution(g: Any, args: Sequence[Any]) -> tuple[Any, tuple] | None:
    """(op, arguments) of the call with a packed weight; None where it stays as it is."""
    x, weight, bias, stride, padding, dilation, transposed, _, groups = args
    ops = _ops()
    tensor = constant_of(g, weight) if ops is not None and g.device.type == "cpu" else None
    if tensor is None or transposed or tensor.dim() != 4 or tensor.dtype != torch.float32:
        return None
    if not all(e.is_const for e in x.shape) or x.dtype != torch.float32:
        return None
    stride, padding, dilation = ([int(v) for v in pair] * (2 // len(pair)) for pair in (stride, padding, dilation))
    shape = [int(e) for e in x.shape]
    meta = g.result()
    expected = [int(e) for e in (meta.physical or meta.stride)]
    turned = g.layouts is not None and 0 in g.layouts.externs.get(g.node, ())
    example = torch.zeros(shape)
    if turned:
        example = torch.empty_strided(shape, channels_last_strides(shape)).zero_()
    attr = g.node.meta.get(EPILOGUE, "none")
    try:
        packed = ops._reorder_convolution_weight(tensor, padding, stride, dilation, groups, shape)
        got = ops._convolution_pointwise(example, packed, None, padding, stride, dilation, groups, attr, [], "")
    except RuntimeError:
        return None  # a shape that the library does not take
    if list(got.shape) != [int(e) for e in meta.shape] or list(got.stride()) != expected:
        return None
    value = g.constant(packed)
    return ops._convolution_pointwise.default, (
        x, value, bias, padding, stride, dilation, groups, attr, [], "",
    )  # fmt: skip


def pack_linear(g: Any, weight: TensorValue) -> TensorValue | None:
    """The weight ``[n, k]`` of a linear layer in the library's layout, or None."""
    tensor = constant_of(g, weight)
    if tensor is None or _ops() is None or tensor.dtype not in (torch.float32, torch.bfloat16):
        return None
    try:
        return g.constant(_ops()._reorder_linear_weight(tensor.contiguous()))
    except RuntimeError:
        return None


__all__ = ["EPILOGUE", "constant_of", "pack_convolution", "pack_linear"]
