"""Small matrix products as loops, for targets that turn a sum of products into their matrix instructions.

A library call costs a launch of its own and hands its result to the next kernel through memory; as a loop node, a
product takes whatever follows it (bias, activation, residual, scale, cast) into its own kernel. Where the product is
large the library's kernels win by more than that: those calls stay (`is_small`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from ..ir.layout import contiguous_strides
from ..ir.loops import Builder, Index
from ..ir.tensor import TensorValue, is_tensor_value
from ..ops import Op

MOST_WORK = {torch.float32: 1 << 22, torch.bfloat16: 1 << 25, torch.float16: 1 << 25}
"""Largest m*n*k (of all batches together) by dtype; above it a library's kernel is the faster one."""

_LONGEST_SUM = 4096
_MOST_WIDENING = 4  # operations on an element of a weight that a loop kernel widens as it reads
_OPERANDS = {"aten::mm": (None, 0, 1), "aten::addmm": (0, 1, 2), "aten::bmm": (None, 0, 1), "aten::baddbmm": (0, 1, 2)}


def is_small(batch: int, m: int, n: int, k: int, dtype: torch.dtype) -> bool:
    """True for products that are mostly launch: a kernel of our own computes them."""
    most = MOST_WORK.get(dtype)
    return most is not None and 0 < batch * m * n * k <= most and k <= _LONGEST_SUM and k >= 8


_all: ContextVar[bool] = ContextVar("all_products", default=False)


@contextmanager
def all_products() -> Iterator[None]:
    """Inside, every product becomes loops (to measure it)."""
    token = _all.set(True)
    try:
        yield
    finally:
        _all.reset(token)


def _is_measured_faster(g: Any, a: TensorValue, b: TensorValue) -> bool:
    if not g.config.max_autotune or a.device.type != "cuda" or a.dtype not in MOST_WORK:
        return False
    strides = [x.layout.stride if x.layout is not None else x.stride for x in (a, b)]
    if any(s is None or not all(e.is_const for e in s) for s in strides):
        return False
    from ..codegen.product_choice import Problem, is_own_faster

    *lead, m, k = (int(e) for e in a.shape)
    a_stride, b_stride = (tuple(int(e) for e in s) for s in strides)
    n = int(b.shape[-1])
    if 0 in (*lead, m, n, k):
        return False
    return is_own_faster(Problem(a.dtype, lead[0] if lead else 0, m, n, k, a_stride, b_stride, a.device), g.config)


def as_loops(g: Any, overload: Any, args: tuple, kwargs: dict[str, Any], form: str = "") -> TensorValue | None:
    """A call of mm, addmm, bmm or baddbmm as a loop node; None where it stays a call of the library. `form`: what was
    found by measuring on a CPU."""
    schema = getattr(overload, "_schema", None)
    places = _OPERANDS.get(schema.name) if schema is not None and not schema.overload_name else None
    if places is None or len(args) <= places[2] or not all(type(v) in (int, float) for v in kwargs.values()):
        return None
    start, a, b = (None if p is None else args[p] for p in places)
    meta = g.result()
    if not is_tensor_value(a) or not is_tensor_value(b) or a.dtype != b.dtype or meta.dtype != a.dtype:
        return None
    if start is not None and (not is_tensor_value(start) or start.dtype != a.dtype):
        return None
    if not all(e.is_const for x in (a, b) for e in x.shape):
        return None
    (m, k), n = (int(e) for e in a.shape[-2:]), int(b.shape[-1])
    batch = int(a.shape[0]) if len(a.shape) == 3 else 1
    if form != "loops":
        if g.can_lower("product", a.dtype) is not None:
            return None
        if not (_all.get() or is_small(batch, m, n, k, a.dtype) or _is_measured_faster(g, a, b)):
            return None
    for x in (a, b):
        if not _is_cast(x) and not (x is b and form == "loops" and not x.is_stored and x.weight()[0] <= _MOST_WIDENING):
            g.store_as_eager(x)
    partial = type(meta)(torch.float32, meta.device, meta.shape, contiguous_strides(meta.shape))
    total = product_node(g, a, b, meta if start is None else partial)
    if start is None:
        return total
    beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
    missing = len(meta.shape) - len(start.shape)

    def finish(b_: Builder, index: Index) -> Op:
        value = total.load(b_, index)
        if alpha != 1:
            value = b_.mul(value, b_.constant(float(alpha), torch.float32))
        if beta != 0:
            at = tuple(0 if e == 1 else i for e, i in zip(start.shape, index[missing:], strict=True))
            bias = b_.to_dtype(start.load(b_, at), torch.float32)
            if beta != 1:
                bias = b_.mul(bias, b_.constant(float(beta), torch.float32))
            value = b_.add(value, bias)
        return b_.to_dtype(value, meta.dtype)

    return g.lazy(meta, finish, cost=3, reads=1 + start.weight()[1])


def _is_cast(x: TensorValue) -> bool:
    """True for a value that is hardly more than one of another dtype in memory (a weight under autocast): the product
    reads that one."""
    cost, reads = x.weight()
    return not x.is_stored and cost <= 1 and reads <= 1


def product_node(g: Any, a: TensorValue, b: TensorValue, meta: Any) -> TensorValue:
    """The node itself: ``[..., m, k] @ [..., k, n]``, stored with `meta`."""

    def body(builder: Builder, outer: Index, inner: Index) -> list[Op]:
        *batch, i, j = outer
        left = builder.to_dtype(a.load(builder, (*batch, i, inner[0])), torch.float32)
        right = builder.to_dtype(b.load(builder, (*batch, inner[0], j)), torch.float32)
        return builder.reduction(builder.mul(left, right), "sum", None, torch.float32)

    outer = [*a.shape[:-1], b.shape[-1]]

    def finish(builder: Builder, results: list[Op]) -> Op:
        return builder.to_dtype(results[0], meta.dtype)  # readers in the same kernel get the rounded value, too

    return g.reduction_node(outer, [a.shape[-1]], body, [finish], [meta], a)[0]


__all__ = ["MOST_WORK", "as_loops", "is_small", "product_node"]
