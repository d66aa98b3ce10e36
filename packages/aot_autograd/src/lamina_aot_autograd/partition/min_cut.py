"""The min-cut policy: save the cheapest set of values from which the backward can be computed.

A value may be recomputed when its op is cheap (pointwise, views, conversions), never when it draws random numbers,
reduces,
multiplies matrices or convolves (unless a memory budget asks for it). Saving a value costs its bytes written and
read again.
Inputs that eager saves are free. Inputs that eager does not save are not saved either, nor are outputs: the caller
may write to them later, which eager allows. Recomputation that the program asks for (a memory budget below eager's, a
checkpoint) may use them, since it cannot do without the biases: parameters and buffers for nothing, others at their
size. The result never holds more bytes than eager; if it would, eager's choice is taken.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload

from .. import config
from ..schemas import JointGraph
from .cost import bytes_moved, bytes_of, flops_of
from .default import eager_saved, is_alias, is_free, may_recompute, used_by_backward
from .extract import Partition, extract, is_forward, is_random, split_outputs
from .flow import INFINITE, Network
from .replay import READS, is_replayed

aten = torch.ops.aten

# Ops that are not tagged pointwise but cost no more than reading their inputs once.
_CHEAP = {
    aten._to_copy.default,
    aten.clone.default,
    aten.cat.default,
    aten.masked_fill.Scalar,
    aten.where.self,
    aten.ones_like.default,
    aten.zeros_like.default,
    aten.full_like.default,
    aten.empty_like.default,
    aten.copy.default,
    aten.slice_scatter.default,
    aten.select_scatter.default,
    aten.constant_pad_nd.default,
    aten.expand.default,
    aten.stack.default,
    aten.triu.default,
    aten.tril.default,
    aten.eq.Scalar,
    aten.native_dropout_backward.default,
}
# A chain of recomputed ops longer than this is cut: it would cost more time than the memory traffic that it saves.
LONGEST_CHAIN = 24


def is_cheap(node: fx.Node) -> bool:
    """True for ops whose recomputation costs about one pass over their inputs."""
    target: Any = node.target
    if is_free(node) or target in _CHEAP:
        return True
    if target is operator.getitem:
        return False
    return isinstance(target, OpOverload) and torch.Tag.pointwise in target.tags and not is_random(node)


def never_recomputed(node: fx.Node) -> bool:
    """Random results, and numbers: sizes are saved as they are."""
    source = node.args[0] if node.target is operator.getitem and isinstance(node.args[0], fx.Node) else node
    return is_random(source) and not is_replayed(source)


class _Problem:
    """One joint graph's network. `heavy_allowed`: ops beyond the cheap ones that a memory budget lets be recomputed."""

    # kinds of inputs that the caller keeps alive
    KEPT_KINDS = ("parameter", "buffer")

    def __init__(self, joint: JointGraph, heavy_allowed: set[fx.Node]) -> None:
        self.joint = joint
        self.heavy_allowed = heavy_allowed
        self.eager = eager_saved(joint)
        self.users = used_by_backward(joint)
        outputs, _ = split_outputs(joint)
        self.outputs = {n for n in outputs[joint.metadata.num_mutated :] if isinstance(n, fx.Node)}
        inputs = [n for n in joint.graph.nodes if n.op == "placeholder"]
        self.written = {inputs[i] for i in joint.metadata.mutated}

    def save_cost(self, node: fx.Node) -> int:
        """Capacity of a value: what saving it costs."""
        wish = node.meta.get("recompute")
        if wish == "must_save":
            return 1
        val = node.meta.get("val")
        if not isinstance(val, torch.Tensor):
            return 1 if not isinstance(val, (list, tuple)) else INFINITE
        if node.op == "placeholder":
            if node in self.eager or config.get().save_extra_inputs:
                return 1
            if not self.heavy_allowed and not any(may_recompute(user) for user in node.users):
                return INFINITE
            if node in self.written and not all(_only_moves(user, node) for user in node.users if is_forward(user)):
                return INFINITE  # its values are gone by then
            return 1 if self.is_kept(node) else 2 * bytes_of(node) + 2
        if node in self.outputs and node not in self.eager:
            return INFINITE
        if may_recompute(node) or is_alias(node):
            return INFINITE
        cost = 2 * bytes_of(node) + 2
        if wish == "prefer_recompute":
            cost *= 4
        elif node in self.outputs:
            cost = 2  # it is alive anyway
        return cost

    def is_kept(self, node: fx.Node) -> bool:
        """True for an input that holding costs nothing: eager's graph, or the program, holds it."""
        return node in self.eager or getattr(node.meta.get("desc"), "kind", "") in self.KEPT_KINDS

    def own_bytes(self, saved: set[fx.Node]) -> int:
        """Bytes that saving these values keeps alive."""
        return sum(
            bytes_of(n)
            for n in saved
            if n not in self.outputs and (n.op != "placeholder" or not self.is_kept(n) and _is_tensor(n))
        )

    def may_be_recomputed(self, node: fx.Node) -> bool:
        if node.op == "placeholder" or never_recomputed(node):
            return False
        if node.meta.get("recompute") == "must_save":
            return False
        if may_recompute(node) or node in self.heavy_allowed:
            return True
        if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
            source = node.args[0]
            return is_alias(node) or source in self.heavy_allowed or may_recompute(source)
        if isinstance(node.meta.get("val"), (list, tuple)) and not is_alias(node):
            return node in self.heavy_allowed or may_recompute(node) or _is_view_list(node)
        return is_cheap(node)

    def solve(self) -> set[fx.Node]:
        network = Network()
        source, sink = network.add_vertex(), network.add_vertex()
        entry: dict[fx.Node, int] = {}
        leave: dict[fx.Node, int] = {}
        depth: dict[fx.Node, int] = {}
        relevant = self._relevant()
        for node in self.joint.graph.nodes:
            if node not in relevant:
                continue
            entry[node], leave[node] = network.add_vertex(), network.add_vertex()
            network.add_edge(entry[node], leave[node], self.save_cost(node))
            recompute = self.may_be_recomputed(node)
            depth[node] = 0
            if recompute:
                inputs = [n for n in node.all_input_nodes if n in relevant]
                depth[node] = 1 + max((depth[n] for n in inputs), default=0)
                if depth[node] > LONGEST_CHAIN and not is_free(node) and not may_recompute(node):
                    recompute = False
                    depth[node] = 0
            if not recompute:
                network.add_edge(source, entry[node], INFINITE)
                continue
            for n in node.all_input_nodes:
                if n in relevant:
                    network.add_edge(leave[n], entry[node], INFINITE)
        for node in self.users:
            if node in entry:
                network.add_edge(leave[node], sink, INFINITE)
        side = network.late_cut(source, sink)  # of equal cuts the one that recomputes least
        return {n for n in entry if entry[n] in side and leave[n] not in side}

    def _relevant(self) -> set[fx.Node]:
        found: set[fx.Node] = set()
        stack = list(self.users)
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                stack.extend(n for n in node.all_input_nodes if is_forward(n))
        return found


def _is_view_list(node: fx.Node) -> bool:
    from ..trace.op_info import VIEW, lookup

    return isinstance(node.target, OpOverload) and lookup(node.target).kind == VIEW


def _only_moves(user: fx.Node, statistic: fx.Node) -> bool:
    """True for a batch norm in training that moves a running statistic: nothing else it computes depends on it."""
    training = user.target is aten._native_batch_norm_legit_functional.default and user.args[5] is True
    return training and statistic not in user.args[:3]


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def partition_min_cut(joint: JointGraph, memory_budget: float = 1.0) -> Partition:
    """Split `joint` by a minimum cut. memory_budget: bytes allowed, or a share of eager's when at most 1."""
    problem = _Problem(joint, set())
    eager_bytes = problem.own_bytes(problem.eager)
    saved = problem.solve()
    notes: list[str] = []
    if any(_is_impossible(n, problem) for n in saved) or problem.own_bytes(saved) > eager_bytes:
        notes.append("the cut would hold more than eager: eager's choice is taken")
        saved = {n for n in problem.eager if not may_recompute(n)}
    limit = memory_budget * eager_bytes if memory_budget <= 1 else memory_budget
    if problem.own_bytes(saved) > limit:
        saved, more = _fit_budget(joint, problem, saved, limit)
        notes += more
    why = {n: _why(n, problem) for n in saved}
    return extract(joint, saved, "min_cut", why, eager_bytes, notes)


def _is_impossible(node: fx.Node, problem: _Problem) -> bool:
    return problem.save_cost(node) >= INFINITE


def _fit_budget(
    joint: JointGraph, problem: _Problem, saved: set[fx.Node], limit: float
) -> tuple[set[fx.Node], list[str]]:
    """Let ops beyond the cheap ones be recomputed, cheapest time per byte first, until the budget is met."""
    notes = []
    allowed: set[fx.Node] = set()
    best = saved
    frontier = saved
    while problem.own_bytes(best) > limit:
        problem = _Problem(joint, allowed)
        candidates = _heavy_behind([n for n in frontier if n not in problem.outputs], problem)
        if not candidates:
            notes.append(f"the budget of {int(limit)} bytes cannot be met")
            break
        candidates.sort(key=lambda n: (flops_of(_producer(n)) + bytes_moved(_producer(n))) / max(bytes_of(n), 1))
        allowed |= {m for n in candidates[: max(1, len(candidates) // 8)] for m in (n, _producer(n))}
        problem = _Problem(joint, allowed)
        frontier = problem.solve()
        if any(_is_impossible(n, problem) for n in frontier):
            continue  # what stands in the way is among the next candidates
        if problem.own_bytes(frontier) <= problem.own_bytes(best):
            best = frontier
    return best, notes


def _heavy_behind(saved: list[fx.Node], problem: _Problem) -> list[fx.Node]:
    """The values that are too expensive to recompute so far and keep what is saved from moving towards the inputs."""
    found: list[fx.Node] = []
    seen: set[fx.Node] = set()
    stack = list(saved)
    while stack:
        node = stack.pop()
        if node in seen or node.op == "placeholder" or node.meta.get("recompute") == "must_save":
            continue
        seen.add(node)
        if problem.may_be_recomputed(node):
            stack.extend(n for n in node.all_input_nodes if is_forward(n))
        elif not never_recomputed(node):
            found.append(node)
    return found


def _producer(node: fx.Node) -> fx.Node:
    source = node.args[0] if node.target is operator.getitem else node
    return source if isinstance(source, fx.Node) else node


def _why(node: fx.Node, problem: _Problem) -> str:
    if node.op == "placeholder":
        return "an input that eager saves too" if node in problem.eager else "an input that recomputation needs"
    if node.target in READS:
        return "state of the generator, for drawing again"
    if never_recomputed(node):
        return "random: never drawn twice"
    if node in problem.outputs:
        return "an output, alive anyway"
    if not problem.may_be_recomputed(node):
        return "too expensive to recompute"
    return "the narrowest place of a cheap chain"
