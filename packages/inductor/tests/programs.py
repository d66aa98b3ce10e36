"""Small prim graphs for tests: built by calling prims on real tensors, so that the expected result comes for free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lamina_primtorch import prims


class Tracer:
    """Calls prims eagerly and records them; `t.add(x, y)` calls the prim "add"."""

    def __init__(self, *inputs: Any) -> None:
        self.graph = Graph()
        self.nodes: dict[int, Node] = {}
        self.keep: list[Any] = list(inputs)
        for k, value in enumerate(inputs):
            node = self.graph.placeholder(f"arg{k}")
            node.meta["val"] = value
            self.nodes[id(value)] = node

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls any callable and records it."""
        out = target(*args, **kwargs)
        node = self.graph.call_function(target, self._nodes(args), self._nodes(kwargs))
        node.meta["val"] = out
        self.keep.append(out)
        if isinstance(out, (tuple, list)):
            import operator

            for k, part in enumerate(out):
                item = self.graph.call_function(operator.getitem, (node, k))
                item.meta["val"] = part
                self.nodes[id(part)] = item
        else:
            self.nodes[id(out)] = node
        return out

    def _nodes(self, a: Any) -> Any:
        if isinstance(a, torch.Tensor):
            return self.nodes[id(a)]
        if isinstance(a, (tuple, list)):
            return tuple(self._nodes(x) for x in a)
        if isinstance(a, dict):
            return {k: self._nodes(v) for k, v in a.items()}
        return a

    def __getattr__(self, name: str) -> Callable[..., Any]:
        prim = getattr(prims, name)
        return lambda *args, **kwargs: self.call(prim, *args, **kwargs)

    def finish(self, *outputs: Any) -> GraphModule:
        """The graph with these outputs."""
        self.graph.output(self._nodes(outputs))
        return GraphModule({}, self.graph)

    def broadcast(self, x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """x expanded to shape by numpy's rules."""
        lead = len(shape) - x.dim()
        return self.broadcast_in_dim(x, tuple(shape), tuple(range(lead, len(shape))))
