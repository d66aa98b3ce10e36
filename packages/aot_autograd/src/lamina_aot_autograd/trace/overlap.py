"""Ops that read memory which they write at other places: eager refuses them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import UnsupportedError
from ..wrappers.dedup import span_of
from .rules import is_dense
from .tensor import TraceTensor

# They refuse what is read to share memory with what is written at all, even element by element.
_NAMES = "index_add index_copy index_put _index_put_impl index_reduce put scatter scatter_add scatter_reduce addr"
NO_SHARING = frozenset(f"aten::{name}_" for name in _NAMES.split())


def refuse_overlap(target: TraceTensor, others: Iterable[Any], at_all: bool = False) -> None:
    """Raise UnsupportedError where one of `others` is in the memory of `target`, but not element by element (`at_all`:
    in whatever way).

    As in eager, which then says so, this is known for tensors without gaps only; for others the op goes ahead.
    """
    if target._s is None:
        return
    for other in others:
        if isinstance(other, (list, tuple)):
            refuse_overlap(target, other, at_all)
        if type(other) is not TraceTensor or other._s is not target._s or (other._v is target._v and not at_all):
            continue
        sizes = (*target.shape, *target.stride(), *other.shape, *other.stride())
        if any(type(n) is not int for n in sizes) or not target.numel() or not other.numel():
            continue
        if not (is_dense(target.shape, target.stride()) and is_dense(other.shape, other.stride())):
            continue
        (start, end), (low, high) = span_of(target), span_of(other)
        same = (start, end) == (low, high) and target.stride() == other.stride() and not at_all
        if start < high and low < end and not same:
            raise UnsupportedError("a write to memory that the op also reads at other places: eager refuses it")


def _may_overlap(a: TraceTensor, b: TraceTensor) -> bool:
    if any(type(n) is not int for t in (a, b) for n in (*t.shape, *t.stride(), t.storage_offset())):
        return True
    (start, end), (low, high) = span_of(a), span_of(b)
    return start < high and low < end


def refuse_overlaps(targets: Sequence[Any], args: Iterable[Any]) -> None:
    """`refuse_overlap` for an op on lists, each element with those at its place in the others. The tensors written to
    must be separate: eager writes one after the other."""
    traced = [t for t in targets if type(t) is TraceTensor]
    if len({id(t._s) for t in traced}) < len(traced):
        for k, target in enumerate(traced):
            if any(other._s is target._s and _may_overlap(target, other) for other in traced[:k]):
                raise UnsupportedError("tensors of one list that are written to and share memory")
    for values in args:
        if isinstance(values, (list, tuple)) and len(values) == len(targets):
            for target, other in zip(targets, values, strict=True):
                if type(target) is TraceTensor:
                    refuse_overlap(target, (other,))
