"""Nodes that are not loops: calls of ATen ops or other callables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class ExternNode:
    """One call. `args`/`kwargs` as in `lamina_inductor.ir.program.ExternCall`; `reads` and `writes` are buffer names;
    `effect` keeps the
    order of all nodes that have it (random numbers, data-dependent errors)."""

    index: int
    target: Callable[..., Any]
    args: tuple
    kwargs: dict[str, Any]
    outputs: tuple[str | None, ...]
    reads: dict[str, list] = field(default_factory=dict)
    writes: dict[str, list] = field(default_factory=dict)
    effect: bool = False
    scalars: tuple[tuple[int, str], ...] = ()
    binds: tuple[tuple[str, str, int], ...] = ()
    origins: tuple[str, ...] = ()
    out: bool = False
    reason: str = ""
    form: str = ""
    """How a product is to be computed: "library", "inline", or as the rules say."""
