"""Prims that have a lowering and are still called as ATen operators where the library's kernel is the faster one.

One table: prim -> rule `(g, *args) -> bool`. The figures behind a row are in its comment (time of ATen / time of the
loop, one thread, float32).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

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

LIBRARY: dict[str, Callable[..., bool]] = {
    # one chain of comparisons a row, nothing to vectorise: 1024 x 1024 0.33
    "cummax": _along_memory,
    "cummin": _along_memory,
    # bfloat16 1024 x 512 0.54
    "gather": _halves_along_memory,
    # one element at a time on both sides, and ATen checks each index once for all rows: 1024 x 512 0.54, 0.82, 0.60
    "index_select": _large_along_memory,
    "scatter": _large_along_memory,
    "scatter_add": _large_along_memory,
}


def is_left(g: Any, name: str | None, args: tuple) -> bool:
    """True when a call of prim `name` on a CPU is to stay an extern call."""
    rule = LIBRARY.get(name) if name is not None and g.device.type == "cpu" else None
    return rule is not None and rule(g, *args)


__all__ = ["LIBRARY", "is_left"]
