"""Matrix products on a CPU: which library function computes them.

``mm`` and ``addmm`` call MKL in float32. oneDNN's linear layer takes the second matrix in the order of a weight,
``[n, k]`` with any strides, and is faster where its fixed cost of about 10 µs does not count: by 3 to 15 % in
products that fit the caches, up to 1.7 times with a long `n` (the last layer of a language model). In bfloat16 eager
calls oneDNN as well, with the bias as one more pass; the linear layer adds it at once. A transposed first matrix (the
gradient of a weight) would have to be copied: those products stay as they are.

That is the rule. Under ``mode="max-autotune"`` the ways are measured (`codegen.cpu_choice`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from .. import toolchain
from .._torch import has_onednn
from ..codegen.cpu_choice import MOST_LOOP_WORK, MOST_ROWS, Problem, fastest_form, forced_form
from ..codegen.small_gemm import MOST_MEASURED, is_small_enough
from ..index import Expr
from ..ir.layout import Layout
from ..ir.tensor import TensorValue, is_tensor_value
from ..passes import is_on
from .accumulate import add_to_sum
from .frozen import pack_linear
from .products import as_loops
from .quantized import as_packed_product, is_widened_as_read

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


def as_linear(
    g: Any, overload: Any, args: tuple, kwargs: dict[str, Any], form: str = ""
) -> tuple[Any, tuple] | None:
    """(op, arguments) of the linear layer that computes a call of ``mm`` or ``addmm``; None where the call should stay
    as it is. `form`: what `product_form` says."""
    if form not in ("", "linear"):
        return None
    work = _linear_work(g, overload, args, kwargs)
    if work is None or form == "" and work[0] < work[1]:
        return None
    bias, a, b = _operands(overload, args)
    g.store_as_eager(b)
    at: Layout = b.layout
    shape: tuple[Expr, ...] = (at.shape[1], at.shape[0])
    turned = Layout(at.dtype, at.device, shape, (at.stride[1], at.stride[0]), at.offset)
    weight = g.stored(turned, b.buffer, turned)
    weight = pack_linear(g, weight) or weight
    return linear_op().default, (a, weight, bias, "none", [], "")


def _operands(overload: Any, args: tuple) -> tuple[Any, Any, Any]:
    bias, a, b = (None if p is None else args[p] for p in _OPERANDS[overload._schema.name])
    return bias, a, b


def _linear_work(g: Any, overload: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[float, float] | None:
    """(m * n * k, what it must reach for the linear layer to be chosen by rule); None where it cannot be."""
    schema = getattr(overload, "_schema", None)
    places = _OPERANDS.get(schema.name) if schema is not None and not schema.overload_name else None
    if places is None or g.device.type != "cpu" or any(v != 1 for v in kwargs.values()):
        return None
    bias, a, b = _operands(overload, args)
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
    return work, _LEAST_WORK[a.dtype][bias is not None]


def choose_product(
    g: Any, overload: Any, args: tuple, kwargs: dict[str, Any]
) -> tuple[TensorValue | None, tuple[Any, tuple] | None, str]:
    """(value, linear layer, form) of a call: computed by another call or kernel; or (op, arguments) to call in its
    place; or the call itself, in the form that measuring found. Calls that are no products: (None, None, "")."""
    value = as_packed_product(g, overload, args, kwargs) if is_on("linear") else None
    if value is not None:
        return value, None, ""
    form = product_form(g, overload, args, kwargs)
    value = as_loops(g, overload, args, kwargs, form) if is_on("products") else None
    if value is not None:
        return value, None, ""
    linear = as_linear(g, overload, args, kwargs, form) if is_on("linear") else None
    if linear is not None:
        return None, linear, ""
    return add_to_sum(g, overload, args, kwargs) if is_on("accumulate") else None, None, form


def product_form(g: Any, overload: Any, args: tuple, kwargs: dict[str, Any]) -> str:
    """How a call of ``mm`` or ``addmm`` is computed, found by measuring; "" where the rules decide."""
    forced = forced_form()
    if is_widened_as_read(g, overload, args):
        return "loops"
    if not (g.config.max_autotune or forced) or g.device.type != "cpu":
        return ""
    schema = getattr(overload, "_schema", None)
    if schema is None or schema.overload_name or schema.name not in _OPERANDS or any(v != 1 for v in kwargs.values()):
        return ""
    bias, a, b = _operands(overload, args)
    given = [a, b] if bias is None else [a, b, bias]
    if not all(map(is_tensor_value, given)) or len({x.dtype for x in given}) > 1 or a.dtype not in _LEAST_WORK:
        return ""
    found = [_numbers(x) for x in given]
    if None in found or g.can_lower("product", a.dtype) is None:  # such a target has products of its own
        return ""
    if forced:
        return forced
    (a_shape, a_stride), (b_shape, b_stride) = found[:2]  # type: ignore[misc]
    (m, k), n = a_shape, b_shape[1]
    if 0 in (m, n, k):
        return ""
    lanes = toolchain.vector_bytes() // 4
    forms = ["library"]
    work = _linear_work(g, overload, args, kwargs)
    if work is not None:
        forms.insert(0 if work[0] >= work[1] else 1, "linear")
    if a.dtype is torch.float32 and lanes >= 4 and is_small_enough(m, n, k, lanes, MOST_MEASURED):
        forms.insert(0 if is_small_enough(m, n, k, lanes) and forms[0] != "linear" else len(forms), "inline")
    if m <= MOST_ROWS and m * n * k <= MOST_LOOP_WORK:
        forms.append("loops")
    problem = Problem(a.dtype, m, n, k, a_stride, b_stride, None if bias is None else found[2])
    return fastest_form(problem, forms, g.config)


def _numbers(x: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shape and strides where they are known; None for a value that is not in memory and will lie as it pleases."""
    stride = x.layout.stride if x.layout is not None else x.stride
    if stride is None or not all(e.is_const for e in (*x.shape, *stride)):
        return None
    return tuple(int(e) for e in x.shape), tuple(int(e) for e in stride)


__all__ = ["as_linear", "choose_product", "linear_op", "product_form"]
