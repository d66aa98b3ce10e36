"""What a target is: one class that turns kernels into something callable.

Third parties register their class under the entry point group ``lamina.targets``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from ..ir.program import GraphProgram
from .kernel import KernelSpec


class Compiled(Protocol):
    """A program that a target has built. Call it with the graph's inputs as positional arguments."""

    source: str

    def __call__(self, *inputs: Any) -> Sequence[Any]: ...


class Target(Protocol):
    """One device's code generator.

    `name` is the entry point's name. `unavailable()` returns None, or the reason why the target cannot work here (no
    compiler, no device).
    `can_lower(op, dtype)` answers None, or the reason why an op of `lamina_inductor.ops.TABLE` (or "reduction:kind",
    "scan:kind") cannot be generated in
    that dtype; the compiler then keeps the ATen op.
    `build(program, config)` generates code for all kernels of the program and its wrapper, compiles it, and returns a
    `Compiled`. It never
    changes the program.
    A target may have `prepare(gm, config)`, called before a graph is lowered: what it starts there runs meanwhile. It
    may have `begin(program, config)`: `build` in two steps, which starts its compilers and returns a function that
    waits for them and returns the `Compiled`.
    """

    name: str

    def unavailable(self) -> str | None: ...

    def can_lower(self, op: str, dtype: torch.dtype) -> str | None: ...

    def build(self, program: GraphProgram, config: Any) -> Compiled: ...


KernelFunction = Callable[..., None]
__all__ = ["Compiled", "KernelFunction", "KernelSpec", "Target"]
