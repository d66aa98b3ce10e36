"""What a compiler returned, held to the graph that it was given: a callable whose results are as many as the graph's,
tensors where the graph has tensors.

Wrong results would otherwise show up as an index out of range in generated code, or as an error of the autograd engine.
Compilers that say so (attribute ``keeps_contract``) are not looked at; a call of the others costs one comparison a
result more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx

from ..errors import CompilerResultError


def held_to_graph(compiled: Any, gm: fx.GraphModule, compiler: Callable[..., Any], role: str) -> Any:
    """`compiled`, whose results are compared with the outputs of `gm` at each call. CompilerResultError, now or then,
    names the compiler and what was expected."""
    who = f"the {role} compiler {getattr(compiler, '__name__', type(compiler).__name__)!r}"
    if hasattr(compiled, "complete"):  # it returned early
        return compiled
    if not callable(compiled):
        raise CompilerResultError(
            f"{who} returned {_described(compiled)}; expected a callable that computes the graph",
            hint="return gm.forward, or a function of the graph's inputs",
        )
    if getattr(compiler, "keeps_contract", False):
        return compiled
    return CheckedGraph(compiled, gm, who)


class CheckedGraph:
    """A compiled graph whose results are looked at; everything else of it shows through."""

    def __init__(self, compiled: Callable[..., Any], gm: fx.GraphModule, who: str) -> None:
        self._compiled, self._who = compiled, who
        self._nodes: Any = gm.graph.output_node().args[0]
        self._tensors = [
            isinstance(n, fx.Node) and isinstance(n.meta.get("val"), torch.Tensor) for n in self._nodes
        ]
        direct = getattr(compiled, "unboxed", None)
        if direct is not None:
            self.unboxed = lambda *args: self.check(direct(*args))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def __call__(self, *args: Any) -> Any:
        return self.check(self._compiled(*args))

    def check(self, results: Any) -> Any:
        """`results`, or CompilerResultError."""
        if isinstance(results, torch.Tensor) and len(self._tensors) == 1:
            results = (results,)
        if not isinstance(results, (tuple, list)):
            raise CompilerResultError(
                f"{self._who} made a graph that returned {_described(results)}; expected a tuple or list"
            )
        if len(results) != len(self._tensors):
            raise CompilerResultError(
                f"{self._who} made a graph that returned {len(results)} results; expected {len(self._tensors)}: "
                + ", ".join(str(n) for n in self._nodes)
            )
        for k, (result, wanted) in enumerate(zip(results, self._tensors, strict=True)):
            if wanted and not isinstance(result, torch.Tensor):
                raise CompilerResultError(
                    f"{self._who} made a graph that returned {_described(result)} as result {k}; expected a tensor",
                    node=self._nodes[k],
                )
        return results


def _described(value: Any) -> str:
    """A value in a message, without its data."""
    if value is None:
        return "None"
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"the {kind} {value!r}" if isinstance(value, (bool, int, float)) else f"an object of class {kind}"
