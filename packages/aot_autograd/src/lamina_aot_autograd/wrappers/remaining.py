"""A backward for some of a graph's results, and what is left for the others.

In eager, results that share nothing have separate graphs, and the backward of one frees its own only. A compiled graph
is one node for autograd, freed as a whole: what results not asked for yet need, and eager would still have, is kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from ..partition import Partition
from ..regions import needed_for, reach

FREED = "backward through the graph a second time"


@dataclasses.dataclass
class _Plan:
    """What may still be asked for: bits of tangents; which saved tensors that needs."""

    servable: int
    positions: frozenset[int]


@dataclasses.dataclass
class _Left:
    """The kept tensors by position, with their versions; metadata of the others; bits of what has been asked for."""

    done: int
    kept: dict[int, tuple[torch.Tensor, int]]
    metas: list[tuple]


class Remaining:
    """For one backward graph. Bits stand for its tangents in their order."""

    def __init__(self, parts: Partition) -> None:
        graph = parts.backward.graph
        self.graph = graph
        nodes = [n for n in graph.nodes if n.op == "placeholder"]
        self.tangents = nodes[len(nodes) - len(parts.tangents) :]
        self.holders = [n for n, v in zip(nodes, parts.saved) if v.is_tensor]
        self.all = (1 << len(self.tangents)) - 1
        self.plans: dict[int, _Plan] = {}
        self.readers: list[int] | None = None

    def keep(self, given: int, saved: Sequence[torch.Tensor]) -> _Left | None:
        """What to hold after a backward for the tangents `given`; autograd may free all of `saved` then."""
        plan = self._plan(given)
        if not plan.servable:
            return None
        # without the place in autograd's graph: a saved result would hold its own node
        kept = {k: (t := saved[k].detach(), t._version) for k in plan.positions}
        return _Left(given, kept, [(tuple(t.shape), t.stride(), t.dtype, t.device) for t in saved])

    def serve(self, ctx: Any, given: int, error: RuntimeError) -> list[torch.Tensor] | None:
        """The saved tensors of a freed graph for tangents whose own part of it was not run yet; None: it was."""
        left: _Left | None = getattr(ctx, "remaining", None)
        if left is None or FREED not in str(error) or torch.is_grad_enabled():
            return None
        if given & ~self._plan(left.done).servable:
            return None
        needed = self._positions(given)
        for k in needed:
            tensor, version = left.kept[k]
            if tensor._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation:"
                    f" [{tuple(tensor.shape)}] is at version {tensor._version}; expected version {version} instead"
                )
        saved = [
            left.kept[k][0] if k in needed else torch.empty_strided(m[0], m[1], dtype=m[2], device=m[3]).zero_()
            for k, m in enumerate(left.metas)
        ]
        done = left.done | given
        positions = self._plan(done).positions
        ctx.remaining = _Left(done, {k: v for k, v in left.kept.items() if k in positions}, left.metas)
        return saved

    def _plan(self, done: int) -> _Plan:
        plan = self.plans.get(done)
        if plan is None:
            shared = 0
            for bits in self._readers():
                if bits & done:
                    shared |= bits
            servable = self.all & ~done & ~shared
            plan = self.plans[done] = _Plan(servable, self._positions(servable) if servable else frozenset())
        return plan

    def _readers(self) -> list[int]:
        """The tangents, as bits, of each node that reads a value of the forward: autograd's nodes that are freed."""
        if self.readers is None:
            reached = reach(self.graph, {node: 1 << k for k, node in enumerate(self.tangents)})
            self.readers = [
                reached[node]
                for node in self.graph.nodes
                if reached.get(node, 0) and any(not reached.get(n, 0) and _is_tensor(n) for n in node.all_input_nodes)
            ]
        return self.readers

    def _positions(self, given: int) -> frozenset[int]:
        asked = {n for k, n in enumerate(self.tangents) if given >> k & 1}
        needed = needed_for(self.graph, asked, set(self.tangents) - asked)
        return frozenset(k for k, n in enumerate(self.holders) if n in needed)


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)
