"""Rules of matrix products, convolutions, pools, norms, losses, embeddings and attention."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from .. import strides
from ..spec import TensorMeta
from ._table import rule, signed


def _fresh(x: Any, shape: tuple, dtype: torch.dtype | None = None) -> TensorMeta:
    return TensorMeta(shape, strides.contiguous(shape), dtype or x.dtype, x.device)


def _of(x: Any) -> TensorMeta:
    shape = tuple(x.shape)
    return TensorMeta(shape, strides.contiguous(shape), x.dtype, x.device)


def _same_dtype(a: Any, b: Any) -> None:
    if a.dtype is not b.dtype or a.device != b.device:
        raise NotImplementedError


@signed("mm.default")
def mm(a: Any, b: Any) -> TensorMeta:
    sa, sb = a.shape, b.shape
    if len(sa) != 2 or len(sb) != 2:
        raise NotImplementedError
    if sa[1] != sb[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({sa[0]}x{sa[1]} and {sb[0]}x{sb[1]})")
    _same_dtype(a, b)
    return _fresh(a, (sa[0], sb[1]))


@signed("bmm.default")
def bmm(a: Any, b: Any) -> TensorMeta:
    sa, sb = a.shape, b.shape
    if len(sa) != 3 or len(sb) != 3 or sa[0] != sb[0] or sa[2] != sb[1]:
        raise NotImplementedError
    _same_dtype(a, b)
    return _fresh(a, (sa[0], sa[1], sb[2]))


@signed("_grouped_mm.default")
def grouped_mm(a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> TensorMeta:
    """Groups of rows of `a`, a matrix for each. (The meta kernel of torch 2.11 refuses dtypes that eager takes.)"""
    sa, sb = a.shape, b.shape
    if len(sa) != 2 or len(sb) != 3 or sa[1] != sb[1] or bias is not None or out_dtype not in (None, a.dtype):
        raise NotImplementedError
    if offs is None or len(offs.shape) != 1 or offs.shape[0] != sb[0] or offs.dtype != torch.int32:
        raise NotImplementedError
    if not isinstance(sb[2], int) or sb[2] * a.dtype.itemsize % 16:  # eager pads rows to multiples of 16 bytes
        raise NotImplementedError
    if a.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise NotImplementedError
    _same_dtype(a, b)
    return _fresh(a, (sa[0], sb[2]))


@signed("addmm.default")
def addmm(bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> TensorMeta:
    out = mm(a, b)
    _same_dtype(bias, a)
    if strides.broadcast(tuple(bias.shape), out.shape) != out.shape:
        raise NotImplementedError
    return out


@signed("baddbmm.default")
def baddbmm(bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> TensorMeta:
    out = bmm(a, b)
    _same_dtype(bias, a)
    if strides.broadcast(tuple(bias.shape), out.shape) != out.shape:
        raise NotImplementedError
    return out


@signed("mv.default")
def mv(a: Any, b: Any) -> TensorMeta:
    if len(a.shape) != 2 or len(b.shape) != 1 or a.shape[1] != b.shape[0]:
        raise NotImplementedError
    _same_dtype(a, b)
    return _fresh(a, (a.shape[0],))


@signed("dot.default", "vdot.default")
def dot(a: Any, b: Any) -> TensorMeta:
    if len(a.shape) != 1 or tuple(a.shape) != tuple(b.shape):
        raise NotImplementedError
    _same_dtype(a, b)
    return _fresh(a, ())


def _conv_last(x: Any, weight: Any) -> bool:
    """True if eager's CPU convolution answers in channels-last; 1-d convolutions are run as 2-d ones of height 1,
    with a contiguous input.
    """
    if len(x.shape) not in (3, 4, 5):
        return False
    for t in (x, weight):
        shape, stride = tuple(t.shape), tuple(t.stride())
        if len(shape) == 3:
            if t is x and not strides.is_contiguous(shape, stride):
                continue
            shape, stride = (*shape[:2], 1, shape[2]), (*stride[:2], shape[2] * stride[2], stride[2])
        if strides.suggests_channels_last(shape, stride):
            if len(shape) == 5:
                if x.dtype is torch.float64:
                    return False
                raise NotImplementedError  # depends on the library that eager chooses by sizes and threads
            return True
    return False


def _conv_stride(shape: tuple, last: bool) -> tuple:
    if not last:
        return strides.contiguous(shape)
    if len(shape) == 3:
        return (shape[1] * shape[2], 1, shape[1])
    return strides.channels_last(shape)


@signed("convolution.default")
def convolution(
    x: Any,
    w: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> TensorMeta:
    rank = len(w.shape) - 2
    if len(x.shape) != rank + 2 or x.dtype is not w.dtype or strides.has_zero(x.shape) or strides.has_zero(w.shape):
        raise NotImplementedError
    if bias is not None and bias.dtype is not x.dtype:
        raise NotImplementedError

    def at(v: Any, i: int) -> Any:
        return v[i] if len(v) > 1 else v[0]

    if transposed:
        if x.shape[1] != w.shape[0]:
            raise NotImplementedError
        out = [x.shape[0], w.shape[1] * groups]
        for i in range(rank):
            n = (x.shape[i + 2] - 1) * at(stride, i) - 2 * at(padding, i) + at(dilation, i) * (w.shape[i + 2] - 1)
            out.append(n + at(output_padding, i) + 1)
    else:
        if x.shape[1] != w.shape[1] * groups:
            raise NotImplementedError
        out = [x.shape[0], w.shape[0]]
        for i in range(rank):
            span = at(dilation, i) * (w.shape[i + 2] - 1) + 1
            out.append((x.shape[i + 2] + 2 * at(padding, i) - span) // at(stride, i) + 1)
    if any(type(n) is int and n <= 0 for n in out):
        raise NotImplementedError
    shape = tuple(out)
    if groups != 1 and rank == 1 and _conv_last(x, w):
        raise NotImplementedError
    return TensorMeta(shape, _conv_stride(shape, _conv_last(x, w)), x.dtype, x.device)


@signed("convolution_backward.default")
def convolution_backward(
    grad: Any,
    x: Any,
    w: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Any,
) -> tuple:
    if x.device.type != "cpu" or strides.has_zero(x.shape):
        raise NotImplementedError
    if _conv_last(x, w):
        raise NotImplementedError
    gb = None
    if mask[2]:
        n = w.shape[1] * groups if transposed else w.shape[0]
        gb = TensorMeta((n,), (1,), x.dtype, x.device)
    return (_of(x) if mask[0] else None, _of(w) if mask[1] else None, gb)


def _pair(v: Any, n: int = 2) -> tuple:
    if isinstance(v, int):
        return (v,) * n
    return tuple(v) * n if len(v) == 1 else tuple(v)


def pooled(size: Any, kernel: Any, pad: Any, step: Any, dilation: Any, ceil_mode: bool) -> Any:
    """Output length of a pooling window; with ceil_mode a last window must start inside the input or its left
    padding.
    """
    span = size + 2 * pad - dilation * (kernel - 1) - 1
    out = (span + (step - 1 if ceil_mode else 0)) // step + 1
    if ceil_mode and (out - 1) * step >= size + pad:
        out = out - 1
    return out


def _pool(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> TensorMeta:
    k = _pair(kernel)
    s = _pair(stride) if stride else k
    p, d = _pair(padding), _pair(dilation)
    rank = len(x.shape)
    if rank not in (3, 4) or strides.has_zero(x.shape) or any(p[i] * 2 > k[i] for i in (0, 1)):
        raise NotImplementedError
    shape = tuple(x.shape[:-2]) + tuple(
        pooled(x.shape[rank - 2 + i], k[i], p[i], s[i], d[i], ceil_mode) for i in (0, 1)
    )
    if any(type(n) is int and n <= 0 for n in shape):
        raise NotImplementedError
    last = strides.suggests_channels_last(x.shape, x.stride())
    return TensorMeta(shape, strides.channels_last(shape) if last else strides.contiguous(shape), x.dtype, x.device)


RESIZED = (
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d"
    " _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d"
    " _upsample_bilinear2d_aa _upsample_bicubic2d_aa"
)


KEEPS_FORMAT = (
    "upsample_nearest2d _upsample_nearest_exact2d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d"
)


def _resize_backward(keeps_format: bool, args: tuple) -> TensorMeta:
    """The gradient has the input's size and, for some modes, the memory format of the gradient that comes in."""
    grad, output_size, input_size = args[:3]
    shape = tuple(input_size)
    if tuple(grad.shape[2:]) != tuple(output_size) or tuple(grad.shape[:2]) != shape[:2] or strides.has_zero(shape):
        raise NotImplementedError
    if grad.device.type != "cpu":
        raise NotImplementedError
    last = keeps_format and strides.suggests_channels_last(grad.shape, grad.stride())
    stride = strides.channels_last(shape) if last else strides.contiguous(shape)
    return TensorMeta(shape, stride, grad.dtype, grad.device)


for _name in RESIZED.split():
    _keeps = _name in KEEPS_FORMAT.split()
    rule(f"{_name}_backward.default")(lambda args, kwargs, _keeps=_keeps: _resize_backward(_keeps, args))


@signed("max_unpool2d.default")
def max_unpool2d(x: Any, indices: Any, output_size: Any) -> TensorMeta:
    if x.device.type != "cpu" or len(x.shape) not in (3, 4) or tuple(x.shape) != tuple(indices.shape):
        raise NotImplementedError
    if len(output_size) != 2 or strides.has_zero(x.shape) or indices.dtype is not torch.int64:
        raise NotImplementedError
    shape = (*x.shape[:-2], *output_size)
    last = strides.suggests_channels_last(x.shape, x.stride())
    return TensorMeta(shape, strides.channels_last(shape) if last else strides.contiguous(shape), x.dtype, x.device)


@signed("max_pool2d_with_indices.default")
def max_pool2d(
    x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple:
    m = _pool(x, kernel, stride, padding, dilation, ceil_mode)
    return m, m._replace(dtype=torch.int64)


@signed("avg_pool2d.default")
def avg_pool2d(
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> TensorMeta:
    if divisor_override == 0:
        raise NotImplementedError("eager refuses it")
    return _pool(x, kernel, stride, padding, 1, ceil_mode)


@signed(
    "max_pool2d_with_indices_backward.default", "avg_pool2d_backward.default", "_adaptive_avg_pool2d_backward.default"
)
def pool_backward(grad: Any, x: Any, *_: Any, **__: Any) -> TensorMeta:
    shape = tuple(x.shape)
    last = strides.suggests_channels_last(shape, x.stride())
    return TensorMeta(shape, strides.channels_last(shape) if last else strides.contiguous(shape), x.dtype, x.device)


@signed("_adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(x: Any, size: Any) -> TensorMeta:
    if strides.has_zero(x.shape[1:]) or any(n is None for n in size):
        raise NotImplementedError
    shape = tuple(x.shape[:-2]) + tuple(size)
    last = strides.suggests_channels_last(x.shape, x.stride())
    return TensorMeta(shape, strides.channels_last(shape) if last else strides.contiguous(shape), x.dtype, x.device)


@signed("native_layer_norm.default")
def native_layer_norm(x: Any, normalized: Any, weight: Any, bias: Any, eps: float) -> tuple:
    shape = tuple(x.shape)
    n = len(normalized)
    if n < 1 or len(shape) < n or any(a is not b and a != b for a, b in zip(shape[len(shape) - n :], normalized)):
        raise NotImplementedError
    if x.device.type != "cpu":
        raise NotImplementedError
    if weight is not None and tuple(weight.shape) != tuple(normalized):
        raise NotImplementedError
    stat = shape[: len(shape) - n] + (1,) * n
    # A half-precision input with float32 weights (autocast): the statistics have the precision of the weights.
    m = TensorMeta(stat, strides.contiguous(stat), x.dtype if weight is None else weight.dtype, x.device)
    return _of(x), m, m


@signed("native_layer_norm_backward.default")
def native_layer_norm_backward(
    grad: Any, x: Any, normalized: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any
) -> tuple:
    if x.device.type != "cpu":
        raise NotImplementedError
    shape = tuple(normalized)
    stride = strides.contiguous(shape)
    return (
        _of(x) if mask[0] else None,
        TensorMeta(shape, stride, weight.dtype, x.device) if mask[1] and weight is not None else None,
        TensorMeta(shape, stride, bias.dtype, x.device) if mask[2] and bias is not None else None,
    )


@signed("native_group_norm.default")
def native_group_norm(x: Any, weight: Any, bias: Any, n: Any, c: Any, hw: Any, group: int, eps: float) -> tuple:
    if x.device.type != "cpu":
        raise NotImplementedError
    kept = next((p.dtype for p in (weight, bias) if p is not None), x.dtype)
    if kept is not x.dtype and not (x.dtype in (torch.float16, torch.bfloat16) and kept is torch.float32):
        raise NotImplementedError
    # half precision with float32 parameters (autocast) has statistics in float32; torch's meta kernel says otherwise
    stat = TensorMeta((n, group), (group, 1), kept, x.device)
    out = _of(x)
    if strides.suggests_channels_last(x.shape, x.stride()):  # torch's own meta kernel loses this from 2.14 on
        out = out._replace(stride=strides.channels_last(x.shape))
    return out, stat, stat


@signed("native_group_norm_backward.default")
def native_group_norm_backward(
    grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, n: Any, c: Any, *rest: Any
) -> tuple:
    if x.device.type != "cpu":
        raise NotImplementedError
    mask = rest[-1]
    gx = _of(x)
    if strides.suggests_channels_last(x.shape, x.stride()):
        gx = gx._replace(stride=strides.channels_last(x.shape))
    param = TensorMeta((c,), (1,), x.dtype if weight is None else weight.dtype, x.device)
    return gx if mask[0] else None, param if mask[1] else None, param if mask[2] else None


@signed("mkldnn_rnn_layer_backward.default")
def rnn_layer_backward(x: Any, w1: Any, w2: Any, w3: Any, w4: Any, hx: Any, cx: Any, *_: Any) -> tuple:
    """The kernel adds up in float32 and answers in it, whatever the inputs are; torch's meta kernel says otherwise. A
    layer without biases is given matrices of zeros in their place; the gradients are those of biases."""
    bias = TensorMeta((w1.shape[0],), (1,), torch.float32, x.device)
    gx, g1, g2, ghx, gcx = (_of(t)._replace(dtype=torch.float32) for t in (x, w1, w2, hx, cx))
    return gx, g1, g2, bias, bias, ghx, gcx


def _batch_norm(x: Any, params: tuple, training: bool) -> tuple:
    """Half precision with float32 parameters or running statistics keeps its own statistics in float32 (torch's meta
    kernel says otherwise).
    """
    if x.device.type != "cpu":
        raise NotImplementedError
    shape = tuple(x.shape)
    dtype = x.dtype
    kept = next((p.dtype for p in params if p is not None), dtype)
    is_mixed = dtype in (torch.float16, torch.bfloat16) and kept is torch.float32
    if (kept is not dtype and not is_mixed) or len(shape) < 2:
        raise NotImplementedError
    n = shape[1] if training else 0
    stat = TensorMeta((n,), (1,), kept, x.device)
    last = strides.suggests_channels_last(shape, x.stride())
    return (
        TensorMeta(shape, strides.channels_last(shape) if last else strides.contiguous(shape), dtype, x.device),
        stat,
        stat,
    )


@signed("native_batch_norm.default")
def native_batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple:
    return _batch_norm(x, (weight, bias, mean, var), training)


@signed("_native_batch_norm_legit.default")
def native_batch_norm_legit(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple:
    return _batch_norm(x, (weight, bias, mean, var), training)


@signed("_native_batch_norm_legit.no_stats")
def native_batch_norm_no_stats(x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> tuple:
    return _batch_norm(x, (weight, bias), training)


@signed("_native_batch_norm_legit_functional.default")
def native_batch_norm_functional(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple:
    return (*_batch_norm(x, (weight, bias, mean, var), training), _of(mean), _of(var))


@signed("_batch_norm_with_update_functional.default")
def batch_norm_with_update_functional(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> tuple:
    reserve = TensorMeta((0,), (1,), torch.uint8, x.device)
    return (*_batch_norm(x, (weight, bias, mean, var), True), reserve, _of(mean), _of(var))


@signed("_batch_norm_no_update.default")
def batch_norm_no_update(x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> tuple:
    reserve = TensorMeta((0,), (1,), torch.uint8, x.device)
    return (*_batch_norm(x, (weight, bias, mean, var), False), reserve)


@signed("native_batch_norm_backward.default")
def native_batch_norm_backward(
    grad: Any, x: Any, weight: Any, rm: Any, rv: Any, mean: Any, inv: Any, train: bool, eps: float, mask: Any
) -> tuple:
    if x.device.type != "cpu" or x.dtype in (torch.float16, torch.bfloat16):
        raise NotImplementedError
    shape = tuple(x.shape)
    last = strides.suggests_channels_last(shape, x.stride())
    gx = TensorMeta(shape, strides.channels_last(shape) if last else strides.contiguous(shape), x.dtype, x.device)
    stat = TensorMeta((shape[1],), (1,), x.dtype if weight is None else weight.dtype, x.device)
    return gx if mask[0] else None, stat if mask[1] else None, stat if mask[2] else None


@signed("embedding.default")
def embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale: bool = False, sparse: bool = False
) -> TensorMeta:
    if len(weight.shape) != 2 or indices.dtype not in (torch.int64, torch.int32):
        raise NotImplementedError
    return _fresh(weight, tuple(indices.shape) + (weight.shape[1],))


@signed("embedding_dense_backward.default")
def embedding_dense_backward(grad: Any, indices: Any, num: Any, padding_idx: int, scale: bool) -> TensorMeta:
    return _fresh(grad, (num, grad.shape[-1]))


@signed("nll_loss_forward.default")
def nll_loss_forward(x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> tuple:
    if len(x.shape) not in (1, 2) or len(target.shape) > 1 or target.dtype is not torch.int64:
        raise NotImplementedError
    if len(x.shape) == 2 and (len(target.shape) != 1 or x.shape[0] != target.shape[0]):
        raise NotImplementedError
    shape = (x.shape[0],) if reduction == 0 and len(x.shape) == 2 else ()
    return _fresh(x, shape), _fresh(x, ())


@signed("nll_loss_backward.default", "nll_loss2d_backward.default")
def nll_loss_backward(grad: Any, x: Any, *_: Any) -> TensorMeta:
    return _of(x)


@signed("nll_loss2d_forward.default")
def nll_loss2d_forward(x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> tuple:
    if len(x.shape) != 4 or target.dtype is not torch.int64:
        raise NotImplementedError
    return _fresh(x, tuple(target.shape) if reduction == 0 else ()), _fresh(x, ())


@lru_cache(None)
def _sdpa_keeps_layout() -> bool:
    """Whether this torch gives attention outputs the layout of the query (older ones always transpose); asked once,
    of torch.
    """
    q = torch.zeros(1, 2, 3, 1)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(q, q, q)[0].stride() == q.stride()


@rule("_scaled_dot_product_flash_attention_for_cpu.default")
def sdpa_cpu(args: tuple, kwargs: dict) -> tuple:
    q, k, v = args[:3]
    if len(q.shape) != 4 or q.shape[3] != v.shape[3] or q.device.type != "cpu":
        raise NotImplementedError
    b, h, n, d = shape = tuple(q.shape)
    keep = _sdpa_keeps_layout()
    out = TensorMeta(shape, strides.like(shape, q.stride()) if keep else (n * h * d, d, h * d, 1), q.dtype, q.device)
    acc = torch.float32 if q.dtype in (torch.float16, torch.bfloat16) else q.dtype
    return out, TensorMeta((b, h, n), (n * h, 1, h), acc, q.device)


@rule("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def sdpa_cpu_backward(args: tuple, kwargs: dict) -> tuple:
    out = []
    for t in args[1:4]:
        b, h, n, d = t.shape
        out.append(TensorMeta((b, h, n, d), (n * h * d, d, h * d, 1), t.dtype, t.device))
    return tuple(out)
