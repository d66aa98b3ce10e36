"""Prims that have a lowering and are still called as ATen operators where the library's kernel is the faster one.

One table: prim -> (rule `(g, *args) -> bool`, the operator, which takes the same arguments). The figures behind a row
are in its comment (time of ATen / time of the loop, one thread, float32).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ..ir.tensor import TensorValue


def _along_memory(g: Any, x: TensorValue, dim: int, *rest: Any) -> bool:
    return bool(x.shape) and x.stride is not None and x.stride[dim % len(x.shape)] == 1


def _large_along_memory(g: Any, x: TensorValue, dim: int, *rest: Any) -> bool:
    """A call through the dispatcher takes 3 µs longer than a loop."""
    return math.prod(s.lo for s in x.shape) >= _LARGE and _along_memory(g, x, dim)


def _halves_along_memory(g: Any, x: TensorValue, dim: int, *rest: Any) -> bool:
    """Vectors of 16-bit floats cannot be gathered."""
    return x.dtype.itemsize == 2 and _large_along_memory(g, x, dim)


_LARGE = 1 << 16

aten = torch.ops.aten


class Left(NamedTuple):
    """When a prim is left to an operator of ATen, which then is called through the dispatcher and not from Python."""

    rule: Callable[..., bool]
    operator: Any


LIBRARY: dict[str, Left] = {
    # one chain of comparisons a row, nothing to vectorise: 1024 x 1024 0.33
    "cummax": Left(_along_memory, aten.cummax.default),
    "cummin": Left(_along_memory, aten.cummin.default),
    # bfloat16 1024 x 512 0.54
    "gather": Left(_halves_along_memory, aten.gather.default),
    # one element at a time on both sides, and ATen checks each index once for all rows: 1024 x 512 0.54, 0.82, 0.60
    "index_select": Left(_large_along_memory, aten.index_select.default),
    "scatter": Left(_large_along_memory, aten.scatter.src),
    "scatter_add": Left(_large_along_memory, aten.scatter_add.default),
}


def operator_for(g: Any, name: str | None, args: tuple) -> Any:
    """The operator that a call of prim `name` on a CPU is left to; None where it is lowered."""
    left = LIBRARY.get(name) if name is not None and g.device.type == "cpu" else None
    if left is None or not left.rule(g, *args):
        return None
    if name == "scatter" and not isinstance(args[3], TensorValue):
        return aten.scatter.value
    return left.operator


__all__ = ["LIBRARY", "Left", "operator_for"]
