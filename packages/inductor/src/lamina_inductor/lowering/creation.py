"""Prims without tensor operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import LoweringError
from ..index import Expr
from ..ir.loops import Builder, Index
from ..ir.tensor import TensorValue
from ..ops import Op
from .registry import lowering


@lowering("full")
def _full(g: Any, shape: Sequence[Any], value: Any, dtype: torch.dtype, device: Any) -> TensorValue:
    if not isinstance(value, (bool, int, float, Expr)):
        raise LoweringError(f"fill value {value!r}")

    def inner(b: Builder, index: Index) -> Op:
        return b.to_dtype(b.index_expr(value), dtype) if isinstance(value, Expr) else b.constant(value, dtype)

    return g.lazy(g.result(), inner)


@lowering("iota")
def _iota(g: Any, length: Any, start: Any, step: Any, dtype: torch.dtype, device: Any) -> TensorValue:
    start, step = g.expr(start), g.expr(step)
    return g.lazy(g.result(), lambda b, index: b.to_dtype(b.index_expr(index[0] * step + start), dtype), cost=1)


@lowering("empty_strided")
def _empty_strided(g: Any, shape: Sequence[Any], stride: Sequence[Any], dtype: torch.dtype, device: Any) -> TensorValue:
    return g.lazy(g.result(), lambda b, index: b.constant(0, dtype))
