"""The table of lowerings: name of a prim -> function that makes its loop-level IR.

A lowering is ``fn(g, *args, **kwargs)`` with the prim's own arguments (tensors as `TensorValue`, sizes as Expr or
int) and returns a TensorValue or a tuple of
them; `g` is the `lamina_inductor.graph.GraphLowering`, whose `g.result(k)` tells the metadata of the node's k-th
result. A lowering raises LoweringError to leave the node to
the extern call, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LOWERINGS: dict[str, Callable[..., Any]] = {}


def lowering(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function for these prims; a second registration of a name raises ValueError."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            add_lowering(name, fn)
        return fn

    return register


def add_lowering(name: str, fn: Callable[..., Any]) -> None:
    """Adds one row."""
    if name in LOWERINGS:
        raise ValueError(f"prim {name!r} has two lowerings")
    LOWERINGS[name] = fn


def load_lowerings() -> dict[str, Callable[..., Any]]:
    """The whole table (imports the families on first use)."""
    from . import convolution, creation, indexing, pointwise, pooling, reduction, shape, view  # noqa: F401

    return LOWERINGS
