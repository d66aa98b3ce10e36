"""Matrix products on a CPU: which library function computes them.

``mm`` and ``addmm`` call MKL in float32. oneDNN's linear layer takes the second matrix in the order of a weight,
``[n, k]`` with any strides, and is faster where its fixed cost of about 10 µs does not count: by 3 to 15 % in
products that fit the caches, up to 1.7 times with a long `n` (the last layer of a language model). In bfloat16 eager
calls oneDNN as well, with the bias as one more pass; the linear layer adds it at once. A transposed first matrix (the
gradient of a weight) would have to be copied: those products stay as they are.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from .._torch import has_onednn
from ..index import Expr
from ..ir.layout import Layout
from ..ir.tensor import is_tensor_value
from .frozen import pack_linear

# m * n * k from which on the linear layer is the faster one, by dtype: (without, with bias)
_LEAST_WORK: dict[torch.dtype, tuple[float, float]] = {
    torch.float32: (1.2e7, 1.2e7),
    torch.bfloat16: (float("inf"), 2e6),
}
_USUAL_ROWS = 64  # assumed where the number of rows is not known

_OPERANDS = {"aten::mm": (None, 0, 1), "aten::addmm": (0, 1, 2)}


@cache
def linear_op() -> Any:
    """oneDNN's linear layer, or None where torch has none."""
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None) if has_onednn() else None


def as_linear(g: Any, overload: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, tuple] | None:
    """(op, arguments) of the linear layer that computes a call of ``mm`` or ``addmm``; None where the call should stay
    as it is."""
    schema = getattr(overload, "_schema", None)
    places = _OPERANDS.get(schema.name) if schema is not None and not schema.overload_name else None
    if places is None or g.device.type != "cpu" or any(v != 1 for v in kwargs.values()):
        return None
    bias, a, b = (None if p is None else args[p] for p in places)
    if not is_tensor_value(a) or not is_tensor_value(b) or a.dtype not in _LEAST_WORK or linear_op() is None:
        return None
    m, k = a.shape
    n = b.shape[1]
    if bias is not None and (not is_tensor_value(bias) or len(bias.shape) != 1 or not bias.shape[0] == n):
        return None
    if a.stride is None or not (a.stride[1] == 1 and a.stride[0] == k):
        return None
    if not (k.is_const and n.is_const) or (m.is_const and int(m) < 2):
        return None
    work = (int(m) if m.is_const else _USUAL_ROWS) * int(k) * int(n)
    if work < _LEAST_WORK[a.dtype][bias is not None]:
        return None
    g.store_as_eager(b)
    at: Layout = b.layout
    shape: tuple[Expr, ...] = (at.shape[1], at.shape[0])
    turned = Layout(at.dtype, at.device, shape, (at.stride[1], at.stride[0]), at.offset)
    weight = g.stored(turned, b.buffer, turned)
    weight = pack_linear(g, weight) or weight
    return linear_op().default, (a, weight, bias, "none", [], "")


__all__ = ["as_linear", "linear_op"]
