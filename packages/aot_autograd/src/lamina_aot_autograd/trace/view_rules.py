"""Views of tensors with symbolic sizes by shape rule: torch's fake tensors take milliseconds for each of them.

A rule tells shape and strides. It takes symbolic sizes to be neither 0 nor 1, so it is asked only where the shape
environment knows that, and only for strides made of the tensor's own sizes: others would be compared with these, and
the answer, which is one of chance, become a guard. Where the view begins is told here. What does not fit goes to the
fake tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .op_info import find_rule

aten = torch.ops.aten


class ViewMeta:
    """Metadata of one view, read as a tensor's; the offset counts from the parent."""

    __slots__ = ("dtype", "shape", "_offset", "_stride")

    def __init__(self, shape: Any, stride: Any, dtype: torch.dtype, offset: Any) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self._stride = tuple(stride)
        self._offset = offset

    def stride(self) -> tuple[Any, ...]:
        return self._stride

    def storage_offset(self) -> Any:
        return self._offset


def _at_start(args: tuple, metas: Sequence[tuple]) -> list[Any] | None:
    return [0 for _ in metas]


def _of_slice(args: tuple, metas: Sequence[tuple]) -> list[Any] | None:
    start = args[2] if len(args) > 2 else None
    return [0] if start is None or (type(start) is int and start == 0) else None


def _of_pieces(args: tuple, metas: Sequence[tuple]) -> list[Any] | None:
    """Pieces that lie one behind the other along a dimension."""
    parent = args[0]
    dim = args[2] if len(args) > 2 else 0
    step = parent.stride()[dim]
    offsets, at = [], 0
    for shape, *_ in metas:
        offsets.append(at * step)
        at = at + shape[dim]
    return offsets


# where each view of an op begins, given its arguments and the metadata of its results; None: not known here
_OFFSETS: dict[Any, Callable[[tuple, Sequence[tuple]], list[Any] | None]] = {
    **dict.fromkeys(
        (
            aten.view.default, aten.permute.default, aten.transpose.int, aten.t.default, aten.unsqueeze.default,
            aten.squeeze.dim, aten.squeeze.dims, aten.expand.default, aten.detach.default, aten.alias.default,
        ),
        _at_start,
    ),
    aten.slice.Tensor: _of_slice,
    aten.split.Tensor: _of_pieces,
    aten.split_with_sizes.default: _of_pieces,
}  # fmt: skip


def view_by_rule(func: Any, args: tuple, kwargs: dict) -> Any:
    """`ViewMeta` (a list of them) of a view of `args[0]`; None where the general way has to be taken."""
    offsets_of = _OFFSETS.get(func)
    parent = args[0]
    if offsets_of is None or kwargs:
        return None
    env = _environment(parent)
    if env is None:
        return None
    rule = find_rule(func)
    if rule is None or not _are_at_least(env, 2, parent.shape) or not _strides_follow(parent):
        return None
    try:
        found = rule(args, kwargs)
    except Exception:  # also what a rule refuses: the fake tensors have the last word, and the words of eager
        return None
    single = isinstance(found, tuple) and len(found) == 4 and isinstance(found[2], torch.dtype)
    metas = [found] if single else list(found)
    if not all(m is not None and m[1] is not None and _are_at_least(env, 1, m[0]) for m in metas):
        return None
    offsets = offsets_of(args, metas)
    if offsets is None:
        return None
    views = [ViewMeta(m[0], m[1], m[2], offset) for m, offset in zip(metas, offsets, strict=True)]
    return views[0] if single else views


def _environment(tensor: Any) -> Any:
    for n in tensor.shape:
        if type(n) is not int:
            return n.node.shape_env
    return None


def _are_at_least(env: Any, low: int, sizes: Any) -> bool:
    known = env.__dict__.setdefault("_lamina_lowest", {})  # lives as long as its symbols
    for n in sizes:
        if type(n) is int:
            continue
        expr = n.node.expr
        lowest = known.get(expr)
        if lowest is None:
            bound = env.bound_sympy(expr).lower
            lowest = known[expr] = int(bound) if bound.is_Integer else 0
        if lowest < low:
            return False
    return True


def _strides_follow(tensor: Any) -> bool:
    own: set[Any] | None = None
    for n in tensor.stride():
        if type(n) is not int:
            if own is None:
                own = {s for size in tensor.shape if type(size) is not int for s in size.node.expr.free_symbols}
            if not n.node.expr.free_symbols <= own:
                return False
    return True


__all__ = ["ViewMeta", "view_by_rule"]
