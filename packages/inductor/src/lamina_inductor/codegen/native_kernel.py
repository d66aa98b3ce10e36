"""Kernels that are written by hand in the C++ header and only instantiated: a `KernelSpec` without loops of its own.

The scheduler treats the graph's node as an opaque call; its target is a `NativeOp`, whose kernel then runs like any
generated one: on planned memory, without a tensor object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from .kernel import KernelSpec


@dataclass(frozen=True, eq=False)
class NativeKernel(KernelSpec):
    """`template`: C++ text of the function ``int f(void* const* B, const i64* S)`` with ``{N}`` for the number of float
    lanes; `numbers`: the values of S; `run`: the same on flat tensors (elements from the buffers' pointers), for
    targets that interpret."""

    template: str = ""
    numbers: tuple[int, ...] = ()
    run: Callable[[Sequence[torch.Tensor]], None] = field(default=lambda buffers: None)

    def key(self) -> str:
        """Equal for kernels that one instantiation with the same numbers serves."""
        return f"native {self.template} {self.numbers}"

    def text(self) -> str:
        """What runs, for reading."""
        names = ", ".join(f"{b.name}: {str(b.dtype).removeprefix('torch.')}" for b in self.arguments)
        return f"# {self.name}({names}): {self.template} with {self.numbers}\n"


class NativeOp:
    """Target of an extern node that a hand-written kernel computes. Called with tensors it returns the result."""

    def __init__(self, kernel: NativeKernel, function: Callable[..., torch.Tensor]) -> None:
        self.kernel = kernel
        self.function = function

    def __call__(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)

    def __repr__(self) -> str:
        return self.kernel.name


__all__ = ["NativeKernel", "NativeOp"]
