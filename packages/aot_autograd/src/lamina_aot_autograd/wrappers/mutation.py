"""Writing new values into inputs that the program mutated; version counters as in eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._torch import set_version_counter


def write_back(tensor: torch.Tensor, value: torch.Tensor, bumps: int) -> None:
    """`tensor.copy_(value)`, recorded by autograd when grad mode is on; the version counter moves by `bumps` in all."""
    if bumps == 1 or tensor.is_inference():
        tensor.copy_(value)
        return
    before = tensor._version
    tensor.copy_(value)
    set_version_counter((tensor,), (before + bumps,))


def write_back_untracked(tensor: torch.Tensor, value: torch.Tensor, bumps: int) -> None:
    """The same outside autograd."""
    with torch.no_grad():
        write_back(tensor, value, bumps)


def write_back_many(tensors: list[torch.Tensor], values: list[torch.Tensor], bumps: tuple[int, ...]) -> None:
    """Many writes outside autograd in one call; on a device, one for each dtype: a list of several is copied there
    tensor by tensor (statistics of batch norms, and how many batches they have seen)."""
    with torch.no_grad():
        counted = not any(t.is_inference() for t in tensors)
        versions = tuple(t._version + b for t, b in zip(tensors, bumps, strict=True)) if counted else ()
        if tensors[0].is_cpu:
            torch._foreach_copy_(tensors, values)
        else:
            groups: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
            for t, v in zip(tensors, values, strict=True):
                ours, theirs = groups.setdefault(t.dtype, ([], []))
                ours.append(t)
                theirs.append(v)
            for ours, theirs in groups.values():
                torch._foreach_copy_(ours, theirs)
        if counted:
            set_version_counter(tuple(tensors), versions)


def counting_first(call: Callable[..., Any], bumps: Sequence[tuple[int, int]]) -> Callable[..., Any]:
    """`call`, its writes to inputs counted before it runs and not after. `bumps`: (input, number of writes).

    For inputs that are separate parts of one memory: a write to one raises the version of all, and what the call saves
    of the others is of the version after it, as in eager.
    """

    def run(*args: Any) -> Any:
        written = [args[i] for i, _ in bumps]
        if any(t.is_inference() for t in written):
            return call(*args)
        before = tuple(t._version for t in written)
        for tensor, (_, count) in zip(written, bumps, strict=True):
            set_version_counter((tensor,), (tensor._version + count,))
        after = tuple(t._version for t in written)
        try:
            return call(*args)
        except BaseException:
            after = before
            raise
        finally:
            set_version_counter(tuple(written), after)

    return run


def count_writes(tensors: tuple[torch.Tensor, ...], versions: tuple[int, ...]) -> None:
    """Fresh results get the version counters that eager's have."""
    if not tensors[0].is_inference():
        set_version_counter(tensors, versions)
