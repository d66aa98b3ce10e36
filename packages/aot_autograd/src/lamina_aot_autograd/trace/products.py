"""The gradient of a product as eager takes it.

Autograd divides the product by each factor where no factor is zero, and multiplies the other factors only where one is.
On tensors without data it cannot look, and always multiplies: that differs from eager where a factor is infinite or
NaN, where the product overflows, and in the layout of the result. Here both are computed and one is chosen by the
number of zeros.
"""

from __future__ import annotations

from typing import Any

import torch

from .tensor import TraceTensor


def prod(interpreter: Any, args: Any, kwargs: Any) -> Any:
    """`torch.prod` while tracing."""
    x = args[0] if args else kwargs.get("input")
    if type(x) is not TraceTensor or not x.requires_grad or not x.dim() or not torch.is_grad_enabled():
        return torch.prod(*args, **kwargs)
    given = {**dict(zip(("input", "dim", "keepdim"), args)), **kwargs}
    dim, keepdim, dtype = given.get("dim"), given.get("keepdim", False), given.get("dtype")
    if set(given) - {"input", "dim", "keepdim", "dtype"} or not isinstance(dim, (int, type(None))):
        return torch.prod(*args, **kwargs)  # out=, names
    if any(type(n) is int and n == 0 for n in x.shape) or not (x.is_floating_point() or x.is_complex()):
        return torch.prod(*args, **kwargs)
    return _Prod.apply(x, dim, keepdim, dtype)


class _Prod(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, dim: int | None, keepdim: bool, dtype: Any) -> Any:  # type: ignore[override]
        result = torch.prod(x, dtype=dtype) if dim is None else torch.prod(x, dim, keepdim, dtype=dtype)
        ctx.save_for_backward(x, result)
        ctx.dim, ctx.keepdim = dim, keepdim
        return result

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple:  # type: ignore[override]
        x, result = ctx.saved_tensors
        dim = ctx.dim
        wide = x.to(grad.dtype)
        zeros = (wide == 0).sum()
        if dim is not None and not ctx.keepdim:
            grad, result = grad.unsqueeze(dim), result.unsqueeze(dim)
        plain = grad * (result / wide).conj()
        if dim is None:
            others = (grad * _of_others(wide.contiguous().view(-1), 0)).view_as(wide)
            others = torch.where(zeros > 1, 0, others)
        else:
            others = grad * _of_others(wide, dim)
        return torch.where(zeros == 0, plain, others).to(x.dtype), None, None, None


def _of_others(x: Any, dim: int) -> Any:
    """For each factor along `dim` the product of all others, conjugated."""
    size = x.shape[dim]
    one = torch.ones_like(x.narrow(dim, 0, 1))
    before = torch.cat([one, x.narrow(dim, 0, size - 1)], dim).cumprod(dim)
    behind = torch.cat([one, x.narrow(dim, 1, size - 1).flip(dim)], dim).cumprod(dim).flip(dim)
    return (before * behind).conj()


__all__ = ["prod"]
