"""Gradients that are added to `.grad` while the backward graph runs.

Eager's engine adds each parameter's gradient to `.grad` as soon as it is made and lets go of it. A compiled backward
hands out all gradients at its end: for a program that keeps `.grad` between steps (`zero_grad(set_to_none=False)`,
accumulation over batches), a whole copy of the parameters would be alive there. Where the engine would do nothing else
with a gradient, the graph adds it itself, by the parameter's own node of the autograd graph: the same sum of the same
two tensors, under the lock that keeps the backwards of several threads apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._torch import will_engine_run

LARGE = 1 << 18
"""Bytes from which on a gradient is worth it; smaller ones are handed out."""

_TYPES = (torch.Tensor, torch.nn.Parameter)


class _Adder:
    """What a result is added to: looks like the `.grad` that it ends in."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node

    def add_(self, gradient: torch.Tensor) -> None:
        self.node(gradient)


class GradientSinks:
    """The large gradients of one backward graph. `values`: forward inputs' fake values by position among the tensor
    inputs, `slots`: (position among the tensor inputs, result of the backward graph) of each gradient, `count`: number
    of results."""

    def __init__(self, values: Sequence[Any], slots: Sequence[tuple[int, int]], count: int) -> None:
        self.count = count
        self.reached: Callable[[], Sequence[int]] | None = None  # per result the tangents it depends on, as bits
        self.wanted: list[tuple[int, int, torch.Size, torch.dtype]] = []
        for edge, slot in slots:
            val = values[edge]
            if all(isinstance(n, int) for n in val.shape) and val.device.type == "cpu":
                if val.numel() * val.dtype.itemsize >= LARGE:
                    self.wanted.append((edge, slot, val.shape, val.dtype))

    @property
    def total_bytes(self) -> int:
        """Bytes of the gradients that may be added early."""
        return sum(shape.numel() * dtype.itemsize for _, _, shape, dtype in self.wanted)

    def find(self, edges: Sequence[tuple[Any, int]], missing: int = 0) -> list[Any] | None:
        """Per result None or an object whose `add_` adds it to its `.grad`; None when there are none. `edges`:
        `next_functions` of the graph's autograd node, for the backward that is running; `missing`: bits of the tangents
        that are not there: a gradient that hangs on these alone is none."""
        if torch.is_anomaly_enabled():
            return None
        sinks: list[Any] = [None] * self.count
        found = False
        reached = self.reached() if missing and self.reached is not None else None
        for edge, slot, shape, dtype in self.wanted:
            node = edges[edge][0]
            if type(node).__name__ != "AccumulateGrad":
                continue
            if reached is not None and not reached[slot] & ~missing:
                continue
            variable = node.variable
            grad = variable.grad
            if (
                grad is None
                or type(grad) not in _TYPES
                or type(variable) not in _TYPES
                or grad.layout is not torch.strided
                or grad.dtype is not dtype
                or grad.shape != shape
                or grad.device.type != "cpu"
                or grad.requires_grad
                or variable._backward_hooks
                or getattr(variable, "_post_accumulate_grad_hooks", None)
                or not will_engine_run(node)
            ):
                continue
            sinks[slot] = _Adder(node)
            found = True
        return sinks if found else None
