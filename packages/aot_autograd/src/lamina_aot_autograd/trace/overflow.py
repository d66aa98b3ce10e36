"""Python numbers that a dtype cannot hold: some of eager's kernels refuse them, others take them as infinity or wrap
around. Eager decides; a graph has the op outside.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.fx as fx

from ..errors import UnsupportedError

aten = torch.ops.aten

HALF_MAX = 65504.0
"""Numbers up to this fit any floating dtype that programs compute in."""

# Arithmetic and comparisons that take any number as an operand (not as a factor).
_TAKE_ANY = frozenset(
    getattr(aten, name).Tensor for name in ("add", "sub", "mul", "div")
) | frozenset(
    getattr(getattr(aten, name), overload)
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for overload in ("Scalar", "Tensor")
) | {aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar, aten.where.self}  # fmt: skip

# Ops that write a number into a tensor of any dtype.
FILLS = frozenset(
    {
        aten.full.default, aten.full_like.default, aten.new_full.default, aten.fill.Scalar, aten.masked_fill.Scalar,
        aten.index_fill.int_Scalar, aten.scatter.value, aten.constant_pad_nd.default, aten.clamp.default,
        aten.scalar_tensor.default,
    }
)  # fmt: skip


def is_large(value: float) -> bool:
    """True for a finite number that some floating dtype cannot hold."""
    return not -HALF_MAX <= value <= HALF_MAX and math.isfinite(value)


def check_numbers(func: Any, args: tuple, kwargs: dict, val: Any) -> None:
    """Raise UnsupportedError if a number among the arguments does not fit the dtype of a tensor beside it."""
    numbers = [*kwargs.values()] if func in _TAKE_ANY else [*args, *kwargs.values()]
    numbers = [n for n in numbers if type(n) in (int, float) and math.isfinite(n)]
    if not numbers:
        return
    largest = max(map(abs, numbers))
    values = [a.meta.get("val") for a in args if isinstance(a, fx.Node)]
    for value in (*values, val):
        dtype = getattr(value, "dtype", None)
        if dtype is None or dtype is torch.bool:
            continue
        if dtype.is_floating_point or dtype.is_complex:
            limit = torch.finfo(dtype).max
        else:
            limit = torch.iinfo(dtype).max if func in FILLS else math.inf
        if largest > limit:
            raise UnsupportedError(f"{func} with the number {largest:g}, which {dtype} does not hold")
