"""Convolutions: calls of the library, with the parts that it does slowly taken out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..codegen.cpp_ops import ELEMENT
from ..codegen.kernel import BufferArg
from ..codegen.native_kernel import NativeKernel, NativeOp
from ..errors import LoweringError
from ..index import Expr
from ..ir.loops import Builder, Index
from ..ir.tensor import TensorValue
from ..layout_pass import channels_last_strides
from ..ops import Op, compute_dtype
from . import depthwise
from .frozen import EPILOGUE, pack_convolution
from .pointwise import pointwise
from .registry import lowering

_MOST_TAPS = 13  # of a row: they stay in registers
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def _fixed(values: Sequence[Any]) -> tuple[int, ...] | None:
    out = []
    for v in values:
        if isinstance(v, Expr):
            if not v.is_const:
                return None
            v = int(v)
        out.append(v)
    return tuple(out)


def _turns(g: Any) -> bool:
    """True if the current convolution is to run channels-last."""
    return g.layouts is not None and g.node in g.layouts.externs


@lowering("convolution")
def _convolution(
    g: Any, x: TensorValue, weight: TensorValue, bias: TensorValue | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> TensorValue:  # fmt: skip
    """Depthwise, channels-last, on a device: a kernel of ours. Otherwise a call of the library; with a constant weight,
    in the library's own layout of it."""
    win = None
    if _turns(g) and g.can_lower("depthwise", x.dtype) is None:
        win = depthwise.window_of(x, weight, g.result(), stride, padding, dilation, transposed, groups)
    args = (x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    packed = pack_convolution(g, args) if win is None else None
    if packed is not None:
        return g.extern(packed[1], {}, g.node.meta["val"], packed[0])
    if win is None and EPILOGUE not in g.node.meta:
        raise LoweringError("")
    out = depthwise.forward(g, win, x, weight, bias) if win is not None else g.extern(args, {}, g.node.meta["val"])
    if g.node.meta.get(EPILOGUE) == "relu":
        return pointwise(g, "maximum", lambda b, p, q: b.maximum(p, q), (out, 0.0))
    return out


def _depthwise_backward(
    g: Any, win: depthwise.Window, grad: TensorValue, x: TensorValue, weight: TensorValue, mask: Sequence[bool]
) -> tuple[TensorValue | None, ...]:
    grad = g.store_with_strides(grad, g.exprs(channels_last_strides(grad.shape)))
    x = g.store_with_strides(x, g.exprs(channels_last_strides(x.shape)))
    gx = depthwise.input_gradient(g, win, grad, weight, g.result(0)) if mask[0] else None
    gw = depthwise.weight_gradient(g, win, grad, x, g.result(1)) if mask[1] else None
    gb = channel_sum(g, grad, g.result(2)) if mask[2] else None
    return gx, gw, gb


@lowering("convolution_backward")
def _convolution_backward(
    g: Any, grad: TensorValue, x: TensorValue, weight: TensorValue, bias_sizes: Any, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
    mask: Sequence[bool],
) -> tuple[TensorValue | None, ...]:  # fmt: skip
    """Depthwise, channels-last: the weight gradient is a kernel of ours, the bias gradient a sum; on a device the
    input's gradient is one, too."""
    if _turns(g) and g.can_lower("depthwise", x.dtype) is None:
        win = depthwise.window_of(x, weight, grad, stride, padding, dilation, transposed, groups)
        if win is not None:
            return _depthwise_backward(g, win, grad, x, weight, mask)
    if not mask[1] or g.layouts is None or g.node not in g.layouts.externs or g.device.type != "cpu":
        raise LoweringError("")
    sizes = [_fixed(t.shape) for t in (grad, x, weight)]
    if transposed or any(s is None for s in sizes) or x.dtype not in _FLOATS or len(weight.shape) != 4:
        raise LoweringError("")
    (n, c, oh, ow), (_, _, h, w), (_, inner, kh, kw) = sizes  # type: ignore[misc]
    if groups == 1 or groups != c or inner != 1 or x.shape[1] != c or kw > _MOST_TAPS:
        raise LoweringError("")
    pairs = [tuple(p) * (2 // len(p)) for p in (stride, padding, dilation)]
    numbers = (n, c, h, w, oh, ow, kh, *(k for pair in pairs for k in pair))
    grad = g.store_with_strides(grad, g.exprs(channels_last_strides(grad.shape)))
    x = g.store_with_strides(x, g.exprs(channels_last_strides(x.shape)))
    gx = None
    if mask[0]:
        args = (grad, x, weight, None, stride, padding, dilation, transposed, output_padding, groups)
        val = g.node.meta["val"]
        gx = g.extern((*args, [True, False, False]), {}, (val[0], None, None))[0]
    meta = g.result(1)
    name = f"depthwise_weight_grad_{kh}x{kw}"
    kernel = NativeKernel(
        name, (), (),
        (
            BufferArg("grad", x.dtype, "in", grad.numel), BufferArg("x", x.dtype, "in", x.numel),
            BufferArg("out", x.dtype, "out", weight.numel),
        ),
        origins=(g.node.name,), template=f"depthwise_weight_grad<{ELEMENT[x.dtype]}, {kw}, {{N}}>", numbers=numbers,
        run=lambda buffers: _weight_grad_of(buffers, numbers, pairs, kw),
    )  # fmt: skip

    def compute(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        like = torch.empty(c, 1, kh, kw, dtype=a.dtype)
        one, two, three = (list(p) for p in pairs)
        return torch.ops.aten.convolution_backward(
            a, b, like, None, one, two, three, False, [0, 0], c, [False, True, False]
        )[1]

    gw = g.native_node(NativeOp(kernel, compute), (grad, x), meta)
    gb = channel_sum(g, grad, g.result(2)) if mask[2] else None
    return gx, gw, gb


def _weight_grad_of(
    buffers: Sequence[torch.Tensor], numbers: tuple[int, ...], pairs: Sequence[tuple[int, ...]], kw: int
) -> None:
    n, c, h, w, oh, ow, kh = numbers[:7]
    grad = buffers[0].as_strided((n, c, oh, ow), channels_last_strides((n, c, oh, ow)))
    x = buffers[1].as_strided((n, c, h, w), channels_last_strides((n, c, h, w)))
    like = torch.empty(c, 1, kh, kw, dtype=x.dtype)
    stride, padding, dilation = (list(p) for p in pairs)
    got = torch.ops.aten.convolution_backward(
        grad, x, like, None, stride, padding, dilation, False, [0, 0], c, [False, True, False]
    )[1]
    buffers[2].copy_(got.contiguous().reshape(-1))


def channel_sum(g: Any, x: TensorValue, meta: Any) -> TensorValue:
    """The sum of an image over everything but its channels, accumulated in the computing type."""
    compute = compute_dtype(x.dtype)
    g.require("reduction:sum", compute)

    def body(b: Builder, outer: Index, inner: Index) -> list[Op]:
        value = x.load(b, (inner[0], outer[0], inner[1], inner[2]))
        return b.reduction(b.to_dtype(value, compute), "sum", None, compute)

    n, c, h, w = x.shape
    return g.reduction_node([c], [n, h, w], body, [lambda b, results: results[0]], [meta], x)[0]
