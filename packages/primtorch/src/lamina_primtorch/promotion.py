"""Type promotion by eager's rules: tensors with dimensions outrank 0-dim tensors, which outrank Python numbers,
within one kind of type.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import torch

BCOMPLEX32 = getattr(torch, "bcomplex32", None)  # complex numbers of bfloat16 parts: torch 2.14 and later
FLOATS = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
COMPLEX = frozenset({torch.complex32, torch.complex64, torch.complex128, BCOMPLEX32} - {None})
INEXACT = FLOATS | COMPLEX
INTEGERS = frozenset(
    {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64}
)
HALF = frozenset({torch.float16, torch.bfloat16})
REAL_OF = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}
if BCOMPLEX32 is not None:
    REAL_OF[BCOMPLEX32] = torch.bfloat16
COMPLEX_OF = {
    torch.float16: torch.complex32,
    torch.float32: torch.complex64,
    torch.float64: torch.complex128,
    torch.bfloat16: BCOMPLEX32 or torch.complex64,
}


@lru_cache(None)
def promote(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    """The smallest type that holds both, by torch's lattice."""
    return torch.promote_types(a, b)


def dtype_of_number(x: Any) -> torch.dtype:
    """The type a Python number counts as: bool, int64, the default float type, or its complex."""
    if isinstance(x, (bool, torch.SymBool)):
        return torch.bool
    if isinstance(x, (int, torch.SymInt)):
        return torch.int64
    default = torch.get_default_dtype()
    if isinstance(x, complex):
        return COMPLEX_OF[default]
    return default


@lru_cache(None)
def _combine(high: torch.dtype | None, low: torch.dtype | None) -> torch.dtype | None:
    if high is None or high in COMPLEX:
        return low if high is None else high
    if low is None:
        return high
    if high in FLOATS or high.is_floating_point:
        return COMPLEX_OF.get(high, high) if low in COMPLEX else high
    if high is torch.bool or low.is_floating_point or low in COMPLEX:
        return promote(high, low)
    return high


def result_type(operands: Iterable[Any]) -> torch.dtype:
    """The type of an elementwise result of tensors (any object with .dtype and .shape) and Python numbers; None is
    skipped.
    """
    dim = zero = number = None
    for x in operands:
        if x is None:
            continue
        dtype = getattr(x, "dtype", None)
        if dtype is None:
            n = dtype_of_number(x)
            number = n if number is None else promote(number, n)
        elif len(x.shape):
            dim = dtype if dim is None or dim is dtype else promote(dim, dtype)
        else:
            zero = dtype if zero is None or zero is dtype else promote(zero, dtype)
    if number is None:
        if zero is None:
            return dim  # type: ignore[return-value]
        if dim is None:
            return zero
    return _combine(dim, _combine(zero, number))  # type: ignore[return-value]


def to_inexact(dtype: torch.dtype) -> torch.dtype:
    """Integers and bool to the default float type, the rest unchanged."""
    return dtype if dtype in INEXACT or dtype.is_floating_point else torch.get_default_dtype()


def compute_type(dtype: torch.dtype) -> torch.dtype:
    """The type eager computes in: float32 for half precision."""
    return torch.float32 if dtype in HALF else dtype


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """The type of a sum or product without dtype argument: int64 for integers and bool."""
    return dtype if dtype in INEXACT or dtype.is_floating_point else torch.int64
