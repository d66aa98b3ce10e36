"""Inputs that share memory: finding them, and the one base tensor that stands for them in a traced graph.

Only groups with a written member matter. Such a group enters the graph as one input, its synthetic base; the members
are
views of it. Where autograd is involved the base must be a tensor that autograd already knows (a member, or the members'
own `_base`), because only then does a write to it reach every member's history.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from .._torch import storage_address
from ..errors import UnsupportedError


@dataclasses.dataclass(frozen=True)
class AliasGroup:
    """members: placeholder positions. kind: "member" (the base is input `source`), "base" (it is that input's
    `_base`) or
    "flat" (a 1-d view of that input's storage). views: position -> None (is the base) or (size, stride, offset)."""

    members: tuple[int, ...]
    kind: str
    source: int
    views: dict[int, tuple | None] = dataclasses.field(hash=False)

    def base_of(self, args: Sequence[Any]) -> torch.Tensor:
        """The base for actual inputs."""
        tensor = args[self.source]
        if self.kind == "member":
            return tensor
        if self.kind == "base":
            return tensor._base
        return flat_base(tensor)

    def key(self) -> tuple:
        """Identity of the aliasing pattern."""
        return (self.members, self.kind, self.source, tuple(sorted(self.views.items())))


def flat_base(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's whole storage as one dimension, outside autograd."""
    count = tensor.untyped_storage().nbytes() // tensor.dtype.itemsize
    with torch.no_grad():
        return torch.as_strided(tensor.detach(), (count,), (1,), 0)


def span_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Byte range (start, end) that a tensor touches in its storage."""
    start = tensor.storage_offset()
    end = start
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if size == 0:
            return (start, start)
        end += (size - 1) * stride
    item = tensor.dtype.itemsize
    return (start * item, (end + 1) * item)


def shared_storages(args: Sequence[Any]) -> list[list[int]]:
    """Positions of tensors that overlap in memory, grouped (transitively); groups of one are left out."""
    return [group for members in _by_storage(args) for group in _overlapping(args, members)]


def _by_storage(args: Sequence[Any]) -> list[list[int]]:
    """Positions of tensors of one storage; storages of one tensor are left out."""
    by_storage: dict[int, list[int]] = {}
    for i, value in enumerate(args):
        if isinstance(value, torch.Tensor):
            address = storage_address(value)
            if address:
                by_storage.setdefault(address, []).append(i)
    return [members for members in by_storage.values() if len(members) > 1]


def overlaps_itself(t: Any) -> bool:
    """May two elements of a tensor share memory?"""
    return strides_overlap(t.shape, t.stride())


def strides_overlap(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """May two elements share memory? Always True where they do; symbolic sizes are judged by strides of 0 alone."""
    pairs = [(stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1]
    if any(type(n) is not int for pair in pairs for n in pair):
        return any(type(stride) is int and stride == 0 for stride, _ in pairs)
    if any(size == 0 for _, size in pairs):
        return False
    reach = 0  # of the dimensions so far, in elements
    for stride, size in sorted(pairs):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _overlapping(args: Sequence[Any], members: list[int]) -> list[list[int]]:
    spans = sorted((span_of(args[i]), i) for i in members)
    groups: list[list[int]] = []
    end = -1
    for (start, stop), i in spans:
        if start == stop:
            continue
        if start >= end or not groups:
            groups.append([i])
        else:
            groups[-1].append(i)
        end = max(end, stop)
    return [sorted(g) for g in groups if len(g) > 1]


def find_groups(args: Sequence[Any], mutated: set[int]) -> list[AliasGroup]:
    """The groups that need a synthetic base: overlapping inputs of which one is in `mutated`.

    A base may reach beyond its members, and it is written as a whole: so all inputs of its storage are members.
    Raises UnsupportedError where no base exists that autograd would accept.
    """
    found = []
    for members in _by_storage(args):
        if any(mutated.intersection(group) for group in _overlapping(args, members)):
            found.append(_make_group(args, [i for i in members if args[i].numel()]))
    return found


def _make_group(args: Sequence[Any], members: list[int]) -> AliasGroup:
    tensors = [args[i] for i in members]
    if len({t.dtype for t in tensors}) != 1:
        raise UnsupportedError("overlapping inputs of different dtypes, one of them written")
    first = tensors[0]
    if all(t is first for t in tensors):
        return AliasGroup(tuple(members), "member", members[0], dict.fromkeys(members))
    tracked = any(t.requires_grad for t in tensors)
    if not tracked or not torch.is_grad_enabled() and all(t.is_leaf for t in tensors):
        if tracked:
            raise UnsupportedError("overlapping inputs with gradients, one of them written outside autograd")
        return AliasGroup(tuple(members), "flat", members[0], {i: _geometry(args[i]) for i in members})
    for i in members:
        root = args[i]
        if all(t is root or t._base is root for t in tensors):
            return AliasGroup(
                tuple(members), "member", i, {j: None if args[j] is root else _geometry(args[j]) for j in members}
            )
    root = first._base
    if root is not None and all(t._base is root for t in tensors):
        return AliasGroup(tuple(members), "base", members[0], {j: _geometry(args[j]) for j in members})
    raise UnsupportedError("overlapping inputs with gradients that autograd does not relate, one of them written")


def _geometry(tensor: torch.Tensor) -> tuple:
    return (tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())
