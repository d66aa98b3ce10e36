"""Graphs called from a graph: repeated structure that is lowered once and called for every repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .program import GraphProgram


class RegionCallee:
    """Target of an `ExternCall` that calls a lowered graph: tensors in, a flat list of tensors out.

    `program` computes it; `region` is the FX call target it was made from and runs it in eager (the reference target
    does that). Equal calls share one callee.
    """

    def __init__(self, name: str, program: GraphProgram, region: Callable[..., Any]) -> None:
        self.name = name
        self.program = program
        self.region = region

    def __call__(self, *args: Any) -> Any:
        return self.region(*args)

    def __repr__(self) -> str:
        return self.name


def is_region(target: Any) -> bool:
    """True for an FX call target that is a graph: it has `graph_module` and `with_graph`."""
    return hasattr(target, "with_graph")


__all__ = ["RegionCallee", "is_region"]
