"""Activation functions and their backward formulas. Half precision is computed in float32 and rounded once, as
eager's kernels do.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from .. import prims as p
from ..operands import align, is_tensor, narrow, to, widened
from ..promotion import COMPLEX, INEXACT, compute_type
from ..strides import wrap_dim
from ._table import decomp

SQRT1_2 = math.sqrt(0.5)
SIXTH = 0.1666666716337204  # eager holds one sixth in float32, also for float64 tensors
TANH_SCALE = math.sqrt(2.0 / math.pi)


def _floats(*xs: Any) -> Any:
    """Operands of one floating type, widened; and their type."""
    dtype = xs[0].dtype
    if not dtype.is_floating_point or any(is_tensor(x) and x.dtype is not dtype for x in xs):
        raise NotImplementedError
    return (*align(xs, compute_type(dtype)), dtype)


@decomp("relu.default")
def relu(x: Any) -> Any:
    if x.dtype in COMPLEX or x.dtype is torch.bool:
        raise NotImplementedError
    return p.maximum(x, to(0, x.dtype))


@decomp("threshold.default")
def threshold(x: Any, limit: Any, value: Any) -> Any:
    if x.dtype not in INEXACT or x.dtype in COMPLEX:
        raise NotImplementedError
    return p.where(p.le(x, to(limit, x.dtype)), to(value, x.dtype), x)


@decomp("threshold_backward.default")
def threshold_backward(grad: Any, x: Any, limit: Any) -> Any:
    if grad.dtype is not x.dtype or x.dtype not in INEXACT:
        raise NotImplementedError
    grad, x = align((grad, x), x.dtype)
    return p.where(p.le(x, to(limit, x.dtype)), 0.0, grad)


@decomp("gelu.default")
def gelu(x: Any, approximate: str = "none") -> Any:
    if approximate not in ("none", "tanh"):
        raise NotImplementedError
    y, dtype = _floats(x)
    if approximate == "tanh":
        inner = p.mul(p.add(y, p.mul(p.mul(p.mul(y, y), y), 0.044715)), TANH_SCALE)
        return to(p.mul(p.mul(y, 0.5), p.add(p.tanh(inner), 1.0)), dtype)
    return to(p.mul(p.mul(y, 0.5), p.add(p.erf(p.mul(y, SQRT1_2)), 1.0)), dtype)


@decomp("gelu_backward.default")
def gelu_backward(grad: Any, x: Any, approximate: str = "none") -> Any:
    if approximate not in ("none", "tanh"):
        raise NotImplementedError
    g, y, dtype = _floats(grad, x)
    if approximate == "tanh":
        square = p.mul(y, y)
        inner = p.mul(p.add(y, p.mul(p.mul(square, y), 0.044715)), TANH_SCALE)
        t = p.tanh(inner)
        left = p.mul(p.add(t, 1.0), 0.5)
        slope = p.mul(p.add(p.mul(square, 3 * 0.044715), 1.0), TANH_SCALE)
        right = p.mul(p.mul(p.mul(y, 0.5), p.sub(1.0, p.mul(t, t))), slope)
        return to(p.mul(g, p.add(left, right)), dtype)
    cdf = p.mul(p.add(p.erf(p.mul(y, SQRT1_2)), 1.0), 0.5)
    pdf = p.mul(p.exp(p.mul(p.mul(y, y), -0.5)), 1.0 / math.sqrt(2.0 * math.pi))
    return to(p.mul(g, p.add(cdf, p.mul(y, pdf))), dtype)


@decomp("silu.default")
def silu(x: Any) -> Any:
    y, dtype = _floats(x)
    return to(p.div(y, p.add(p.exp(p.neg(y)), 1.0)), dtype)


@decomp("silu_backward.default")
def silu_backward(grad: Any, x: Any) -> Any:
    g, y, dtype = _floats(grad, x)
    s = p.sigmoid(y)
    return to(p.mul(p.mul(g, s), p.add(p.mul(y, p.sub(1.0, s)), 1.0)), dtype)


@decomp("sigmoid_backward.default")
def sigmoid_backward(grad: Any, y: Any) -> Any:
    (g, y), dtype = widened((grad, y))
    if dtype in COMPLEX:
        raise NotImplementedError
    return to(p.mul(p.mul(g, p.sub(1.0, y)), y), dtype)


@decomp("tanh_backward.default")
def tanh_backward(grad: Any, y: Any) -> Any:
    (g, y), dtype = widened((grad, y))
    if dtype in COMPLEX:
        raise NotImplementedError
    return to(p.mul(g, p.sub(1.0, p.mul(y, y))), dtype)


@decomp("hardtanh.default")
def hardtanh(x: Any, lo: Any = -1, hi: Any = 1) -> Any:
    if x.dtype in COMPLEX or not x.dtype.is_floating_point:
        raise NotImplementedError
    return p.minimum(p.maximum(x, to(lo, x.dtype)), to(hi, x.dtype))


@decomp("hardtanh_backward.default")
def hardtanh_backward(grad: Any, x: Any, lo: Any, hi: Any) -> Any:
    if grad.dtype is not x.dtype or not x.dtype.is_floating_point:
        raise NotImplementedError
    grad, x = align((grad, x), x.dtype)
    return p.where(p.bitwise_or(p.le(x, to(lo, x.dtype)), p.ge(x, to(hi, x.dtype))), 0.0, grad)


def _six(y: Any) -> Any:
    return p.minimum(p.maximum(p.add(y, 3.0), 0.0), 6.0)


@decomp("hardsigmoid.default")
def hardsigmoid(x: Any) -> Any:
    y, dtype = _floats(x)
    return to(p.div(_six(y), 6.0), dtype)


@decomp("hardsigmoid_backward.default")
def hardsigmoid_backward(grad: Any, x: Any) -> Any:
    g, y, dtype = _floats(grad, x)
    return to(p.where(p.bitwise_and(p.gt(y, -3.0), p.lt(y, 3.0)), p.mul(g, SIXTH), 0.0), dtype)


@decomp("hardswish.default")
def hardswish(x: Any) -> Any:
    y, dtype = _floats(x)
    return to(p.div(p.mul(y, _six(y)), 6.0), dtype)


@decomp("hardswish_backward.default")
def hardswish_backward(grad: Any, x: Any) -> Any:
    g, y, dtype = _floats(grad, x)
    mid = p.mul(g, p.add(p.div(y, 3.0), 0.5))
    return to(p.where(p.le(y, -3.0), 0.0, p.where(p.ge(y, 3.0), g, mid)), dtype)  # NaN goes through mid


@decomp("leaky_relu.default")
def leaky_relu(x: Any, slope: Any = 0.01) -> Any:
    y, dtype = _floats(x)
    return to(p.where(p.gt(y, 0.0), y, p.mul(y, float(slope))), dtype)


@decomp("leaky_relu_backward.default")
def leaky_relu_backward(grad: Any, x: Any, slope: Any, is_result: bool) -> Any:
    g, y, dtype = _floats(grad, x)
    return to(p.where(p.gt(y, 0.0), g, p.mul(g, float(slope))), dtype)


@decomp("elu.default")
def elu(x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    y, dtype = _floats(x)
    negative = p.mul(p.expm1(y if input_scale == 1 else p.mul(y, float(input_scale))), float(alpha) * float(scale))
    return to(p.where(p.lt(y, 0.0), negative, y if scale == 1 else p.mul(y, float(scale))), dtype)


@decomp("celu.default")
def celu(x: Any, alpha: Any = 1.0) -> Any:
    if not isinstance(alpha, (int, float)) or alpha == 0:
        raise NotImplementedError("celu refuses alpha 0")
    return elu(x, alpha, 1.0, 1.0 / float(alpha))


@decomp("selu.default")
def selu(x: Any) -> Any:
    return elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0)


@decomp("elu_backward.default")
def elu_backward(grad: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any) -> Any:
    g, y, dtype = _floats(grad, x)
    coef, slope = float(alpha) * float(scale), float(input_scale)
    if is_result:
        negative = p.mul(p.mul(g, slope), p.add(y, coef))
    else:
        negative = p.mul(p.mul(g, slope * coef), p.exp(p.mul(y, slope)))
    return to(p.where(p.le(y, 0.0), negative, p.mul(g, float(scale))), dtype)


@decomp("softplus.default")
def softplus(x: Any, beta: Any = 1, limit: Any = 20) -> Any:
    y, dtype = _floats(x)
    z = p.mul(y, float(beta))
    return to(p.where(p.gt(z, float(limit)), y, p.div(p.log1p(p.exp(z)), float(beta))), dtype)


@decomp("softplus_backward.default")
def softplus_backward(grad: Any, x: Any, beta: Any, limit: Any) -> Any:
    g, y, dtype = _floats(grad, x)
    z = p.mul(y, float(beta))
    e = p.exp(z)
    return to(p.where(p.gt(z, float(limit)), g, p.div(p.mul(g, e), p.add(e, 1.0))), dtype)


@decomp("mish.default")
def mish(x: Any) -> Any:
    y, dtype = _floats(x)
    return to(p.mul(y, p.tanh(p.log1p(p.exp(y)))), dtype)


@decomp("mish_backward.default")
def mish_backward(grad: Any, x: Any) -> Any:
    g, y, dtype = _floats(grad, x)
    s = p.sigmoid(y)
    t = p.tanh(p.log1p(p.exp(y)))
    return to(p.mul(g, p.add(t, p.mul(p.mul(y, s), p.sub(1.0, p.mul(t, t))))), dtype)


@decomp("glu.default")
def glu(x: Any, dim: int = -1) -> Any:
    dim = wrap_dim(dim, len(x.shape))
    n = x.shape[dim]
    if type(n) is not int or n % 2 or not x.dtype.is_floating_point:
        raise NotImplementedError
    a, b = narrow(x, dim, 0, n // 2), narrow(x, dim, n // 2, n)
    a, b, dtype = _floats(a, b)
    return to(p.mul(a, p.sigmoid(b)), dtype)


@decomp("glu_backward.default")
def glu_backward(grad: Any, x: Any, dim: int) -> Any:
    dim = wrap_dim(dim, len(x.shape))
    n = x.shape[dim]
    if type(n) is not int or not x.dtype.is_floating_point:
        raise NotImplementedError
    a, b = narrow(x, dim, 0, n // 2), narrow(x, dim, n // 2, n)
    a, b, g, dtype = _floats(a, b, grad)
    s = p.sigmoid(b)
    first = p.mul(s, g)
    second = p.mul(p.mul(p.mul(p.sub(1.0, s), s), g), a)
    return p.cat([to(first, dtype), to(second, dtype)], dim)


@decomp("hardshrink.default")
def hardshrink(x: Any, lambd: Any = 0.5) -> Any:
    if not x.dtype.is_floating_point:
        raise NotImplementedError
    return p.where(p.bitwise_and(p.ge(x, -float(lambd)), p.le(x, float(lambd))), 0.0, x)


@decomp("hardshrink_backward.default", "softshrink_backward.default")
def hardshrink_backward(grad: Any, x: Any, lambd: Any) -> Any:
    if not x.dtype.is_floating_point or grad.dtype is not x.dtype:
        raise NotImplementedError
    grad, x = align((grad, x), x.dtype)
    return p.where(p.bitwise_and(p.ge(x, -float(lambd)), p.le(x, float(lambd))), 0.0, grad)


@decomp("softshrink.default")
def softshrink(x: Any, lambd: Any = 0.5) -> Any:
    if lambd < 0:
        raise NotImplementedError
    y, dtype = _floats(x)
    k = float(lambd)
    out = p.where(p.gt(y, k), p.sub(y, k), p.where(p.lt(y, -k), p.add(y, k), p.mul(y, 0.0)))
    return to(out, dtype)


@decomp("_prelu_kernel.default")
def prelu(x: Any, weight: Any) -> Any:
    y, w, dtype = _floats(x, weight)
    return to(p.where(p.gt(y, 0.0), y, p.mul(w, y)), dtype)


@decomp("_prelu_kernel_backward.default")
def prelu_backward(grad: Any, x: Any, weight: Any) -> Any:
    g, y, w, dtype = _floats(grad, x, weight)
    positive = p.gt(y, 0.0)
    return to(p.where(positive, g, p.mul(w, g)), dtype), to(p.where(positive, 0.0, p.mul(y, g)), dtype)


@decomp("logit.default")
def logit(x: Any, eps: Any = None) -> Any:
    y, dtype = _floats(x)
    if eps is not None:
        y = p.minimum(p.maximum(y, float(eps)), 1.0 - float(eps))
    return to(p.log(p.div(y, p.sub(1.0, y))), dtype)


@decomp("native_dropout_backward.default")
def native_dropout_backward(grad: Any, mask: Any, scale: float) -> Any:
    g, dtype = _floats(grad)
    return to(p.mul(p.mul(g, to(mask, g.dtype)), float(scale)), dtype)
