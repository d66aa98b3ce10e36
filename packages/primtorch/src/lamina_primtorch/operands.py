"""What nearly every decomposition does to its operands: convert, broadcast, reshape, fold with keepdim. All are
no-ops where nothing changes.
"""

from __future__ import annotations

from typing import Any

import torch

from . import strides
from .prims import PRIMS as _P
from .promotion import FLOATS, INEXACT, compute_type, result_type

convert_element_type = _P["convert_element_type"]
broadcast_in_dim = _P["broadcast_in_dim"]
reshape_prim = _P["reshape"]
permute_prim = _P["permute"]
slice_prim = _P["slice"]
full_prim = _P["full"]


def is_tensor(x: Any) -> bool:
    return hasattr(x, "dtype")


def to(x: Any, dtype: torch.dtype) -> Any:
    """``x`` in another type; a Python number becomes a number of that kind."""
    if hasattr(x, "dtype"):
        return x if x.dtype is dtype else convert_element_type(x, dtype)
    return number(x, dtype)


def number(x: Any, dtype: torch.dtype) -> Any:
    """A Python number as it takes part in arithmetic of ``dtype``."""
    if type(x) is int or type(x) is bool:
        if dtype in FLOATS:
            return float(x)
        return int(x) if dtype is not torch.bool else bool(x)
    if type(x) is float and dtype not in INEXACT:
        return bool(x) if dtype is torch.bool else int(x)
    return x


def broadcast(x: Any, shape: tuple) -> Any:
    """``x`` expanded to ``shape`` (dimensions aligned at the right); numbers pass."""
    if not hasattr(x, "dtype"):
        return x
    old = tuple(x.shape)
    if old is shape or old == shape:
        return x
    off = len(shape) - len(old)
    return broadcast_in_dim(x, shape, tuple(range(off, len(shape))))


def common_shape(*xs: Any) -> tuple:
    return strides.broadcast(*[tuple(x.shape) for x in xs if hasattr(x, "dtype")])


def align(xs: Any, dtype: torch.dtype) -> list:
    """Operands in one type and one shape; None stays None."""
    shape = None
    same = True
    for x in xs:
        if x is not None and hasattr(x, "dtype"):
            if shape is None:
                shape = tuple(x.shape)
            elif tuple(x.shape) != shape:
                same = False
    if not same:
        shape = common_shape(*[x for x in xs if x is not None])
        return [None if x is None else broadcast(to(x, dtype), shape) for x in xs]
    return [None if x is None else to(x, dtype) for x in xs]


def promoted(xs: Any, inexact: bool = False) -> tuple[list, torch.dtype]:
    """Operands in their common type (a float type, if ``inexact``) and shape, and that type."""
    dtype = result_type(xs)
    if inexact and dtype not in INEXACT:
        dtype = torch.get_default_dtype()
    return align(xs, dtype), dtype


def widened(xs: Any, inexact: bool = True) -> tuple[list, torch.dtype]:
    """As ``promoted``, but half precision operands come in float32: compute, then ``to(result, dtype)``."""
    dtype = result_type(xs)
    if inexact and dtype not in INEXACT:
        dtype = torch.get_default_dtype()
    return align(xs, compute_type(dtype)), dtype


def reshape(x: Any, shape: tuple) -> Any:
    return x if tuple(x.shape) == tuple(shape) else reshape_prim(x, tuple(shape))


def permute(x: Any, dims: tuple) -> Any:
    return x if tuple(dims) == tuple(range(len(dims))) else permute_prim(x, tuple(dims))


def kept(shape: Any, dims: Any) -> tuple:
    """``shape`` with the dimensions ``dims`` reduced to 1."""
    return tuple([1 if d in dims else n for d, n in enumerate(shape)])


def keep(x: Any, shape: Any, dims: Any) -> Any:
    """A reduction result with its dropped dimensions put back as size 1."""
    return reshape(x, kept(shape, dims))


def spread(x: Any, shape: tuple, dims: tuple) -> Any:
    """A result reduced over ``dims``, repeated along them again to ``shape``."""
    rest = tuple([d for d in range(len(shape)) if d not in dims])
    return broadcast_in_dim(x, tuple(shape), rest)


def narrow(x: Any, dim: int, start: Any, end: Any, step: int = 1) -> Any:
    """Elements start..end of one dimension."""
    shape = tuple(x.shape)
    if start is None or (strides.is_int(start, 0) and end is shape[dim] and step == 1):
        return x
    rank = len(shape)
    if type(start) is int and start == 0 and step == 1 and type(end) is int and end == shape[dim]:
        return x
    return slice_prim(
        x,
        (0,) * dim + (start,) + (0,) * (rank - dim - 1),
        shape[:dim] + (end,) + shape[dim + 1 :],
        (1,) * dim + (step,) + (1,) * (rank - dim - 1),
    )


def full(shape: Any, value: Any, dtype: torch.dtype, device: Any) -> Any:
    return full_prim(tuple(shape), number(value, dtype), dtype, torch.device(device))


def full_like(x: Any, value: Any, dtype: Any = None) -> Any:
    return full(x.shape, value, dtype or x.dtype, x.device)
