"""Elementwise ops that read memory which they write at other places: eager refuses them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import UnsupportedError
from ..wrappers.dedup import span_of
from .rules import is_dense
from .tensor import TraceTensor


def refuse_overlap(target: TraceTensor, others: Iterable[Any]) -> None:
    """Raise UnsupportedError where one of `others` is in the memory of `target`, but not element by element.

    As in eager, which then says so, this is known for tensors without gaps only; for others the op goes ahead.
    """
    if target._s is None:
        return
    for other in others:
        if type(other) is not TraceTensor or other._s is not target._s or other._v is target._v:
            continue
        sizes = (*target.shape, *target.stride(), *other.shape, *other.stride())
        if any(type(n) is not int for n in sizes) or not target.numel() or not other.numel():
            continue
        if not (is_dense(target.shape, target.stride()) and is_dense(other.shape, other.stride())):
            continue
        (start, end), (low, high) = span_of(target), span_of(other)
        same = (start, end) == (low, high) and target.stride() == other.stride()
        if start < high and low < end and not same:
            raise UnsupportedError("a write to memory that the op also reads at other places: eager refuses it")
