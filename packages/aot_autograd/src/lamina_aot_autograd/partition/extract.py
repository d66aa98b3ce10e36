"""Cutting a joint graph in two, given the forward values to save.

Invariants: both halves compute what the joint graph computes; a random op runs exactly once, in the forward;
whatever the backward needs and is neither saved nor a tangent is recomputed there from what is saved.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload

from .._torch import append_node, lazy_graph_module, register_names
from ..descriptors import InputDesc, OutputDesc
from ..errors import PartitionError
from ..joint import is_kept_when_unused
from ..regions import Region
from ..schemas import JointGraph
from .cost import bytes_of
from .replay import PREVIOUS, STATE, Replays, is_replayed, replay_needs
from .sizes import sizes_to_save


@dataclasses.dataclass(frozen=True)
class SavedValue:
    """One value that crosses from forward to backward.

    kind: "input" (forward input `position`) or "output" (output `position` of the forward graph). is_tensor: False
    for a symbolic int. name, bytes, why: for the report.
    """

    kind: str
    position: int
    is_tensor: bool
    name: str
    bytes: int
    why: str


@dataclasses.dataclass
class PartitionReport:
    """What is saved, what is recomputed, and why. Bytes count tensors that are not inputs of the forward graph."""

    policy: str
    saved: list[SavedValue]
    recomputed: list[str]
    saved_bytes: int
    eager_bytes: int
    notes: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"partition by {self.policy}: {self.saved_bytes} bytes saved, eager saves {self.eager_bytes}"]
        lines += [f"  save {s.name} ({s.bytes} bytes): {s.why}" for s in self.saved]
        lines += [f"  recompute {name}" for name in self.recomputed]
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)


@dataclasses.dataclass
class Partition:
    """forward(*inputs) -> (*forward_outputs, *saved); backward(*saved, *tangents) -> gradients.

    `saved` lists the backward's first inputs in order. gradient_slots: per entry of `metadata.grad_inputs` the
    position in the backward's outputs, or None. Unpacks as (forward, backward).
    """

    forward: fx.GraphModule
    backward: fx.GraphModule
    saved: list[SavedValue]
    tangents: list[int]
    gradient_slots: list[int | None]
    report: PartitionReport

    def __iter__(self) -> Any:
        return iter((self.forward, self.backward))


def is_forward(node: fx.Node) -> bool:
    """True for nodes of the forward phase."""
    return node.meta.get("partition") != "backward"


def _ancestors(roots: Iterable[fx.Node], stop: set[fx.Node], replays: bool = False) -> set[fx.Node]:
    """Nodes that `roots` need, not looking behind `stop` (its members are included). replays: draws that are not in
    `stop` are made again."""
    found: set[fx.Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in found:
            continue
        found.add(node)
        if node not in stop:
            stack.extend(node.all_input_nodes)
            if replays and is_replayed(node):
                stack.extend(replay_needs(node))
    return found


def split_outputs(joint: JointGraph) -> tuple[list[Any], list[Any]]:
    """(forward outputs, gradients) of a joint graph, as graph arguments."""
    values = list(joint.graph.output_node().args[0])  # type: ignore[arg-type]
    count = joint.metadata.num_forward_outputs
    return values[:count], values[count:]


def is_random(node: fx.Node) -> bool:
    """True for ops that draw random numbers; backwards of attention carry the tag but only replay their forward's."""
    target = node.target
    return any(map(_draws, target.targets())) if isinstance(target, Region) else _draws(target)


def _draws(target: Any) -> bool:
    return (
        isinstance(target, OpOverload)
        and torch.Tag.nondeterministic_seeded in target.tags
        and not target._schema.name.endswith("_backward")
    )


# Ops whose kernels keep what their backward needs only while gradient mode is on. A custom autograd function runs its
# forward with it off.
GRAD_MODE_OPS = frozenset({"aten::mkldnn_rnn_layer"})


def is_grad_mode_read(node: fx.Node) -> bool:
    """True for ops whose kernels look at the gradient mode."""
    target: Any = node.target
    targets = target.targets() if isinstance(target, Region) else (target,)
    return any(isinstance(t, OpOverload) and t._schema.name in GRAD_MODE_OPS for t in targets)


def extract(
    joint: JointGraph,
    saved: Iterable[fx.Node],
    policy: str,
    why: dict[fx.Node, str] | None = None,
    eager_bytes: int = 0,
    notes: list[str] | None = None,
) -> Partition:
    """Cut `joint` so that exactly the values of `saved` (forward nodes) cross, plus what cannot be recomputed."""
    forward_outputs, gradients = split_outputs(joint)
    saved_set = complete_saved(joint, set(saved))
    why = why or {}
    gradient_nodes = [g for g in gradients if isinstance(g, fx.Node)]
    needed = _ancestors(gradient_nodes, saved_set, True)
    tangents = [n for n in joint.graph.nodes if n.op == "placeholder" and not is_forward(n)]
    sizes = sizes_to_save(joint, [*(saved_set & needed), *tangents], [*needed, *tangents])
    saved_set.update(sizes)
    needed.update(sizes)
    nodes = list(joint.graph.nodes)
    ordered = [n for n in nodes if n in saved_set and n in needed]
    ordered.sort(key=lambda n: isinstance(n.meta.get("val"), torch.Tensor))  # symbolic ints first; the sort is stable
    packed = packed_strides([n for n in ordered if n not in forward_outputs], needed - saved_set)
    forward, values = _forward_graph(joint, nodes, forward_outputs, ordered, why, packed)
    backward, slots, recomputed = _backward_graph(joint, nodes, needed, saved_set, ordered, gradients, values, packed)
    own = sum(v.bytes for v in values if v.kind == "output")
    report = PartitionReport(policy, values, recomputed, own, eager_bytes, list(notes or ()))
    return Partition(forward, backward, values, list(joint.tangents), slots, report)


def complete_saved(joint: JointGraph, saved: set[fx.Node]) -> set[fx.Node]:
    """`saved` and whatever else must cross for the backward to be computable: inputs and random results in reach."""
    _, gradients = split_outputs(joint)
    tangents = {n for n in joint.graph.nodes if n.op == "placeholder" and not is_forward(n)}
    changed = True
    saved = set(saved) - tangents
    while changed:
        changed = False
        for node in _ancestors([g for g in gradients if isinstance(g, fx.Node)], saved, True):
            if node in saved or node in tangents or not is_forward(node):
                continue
            if node.op == "placeholder":
                saved.add(node)
                changed = True
            elif is_random(node) and not is_replayed(node):
                users = [u for u in node.users if u.target is operator.getitem and is_forward(u)]
                if isinstance(node.meta.get("val"), torch.Tensor) or not users:
                    saved.add(node)
                else:
                    saved.update(users)
                changed = True
    return saved


# Operators, besides the pointwise ones, whose results have the same strides whether an operand has gaps or not.
_BLIND_TO_GAPS = frozenset({"aten::_to_copy", "aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"})


def packed_strides(saved: Iterable[fx.Node], backward: set[fx.Node]) -> dict[fx.Node, tuple]:
    """Saved values with gaps between their elements (a part of a tensor that was written to in place) which the
    backward takes as well without: their strides then."""
    from ..functionalize import preserved_strides

    found = {}
    for node in saved:
        val = node.meta.get("val")
        if node.op == "placeholder" or not isinstance(val, torch.Tensor) or not val.shape:
            continue
        if any(type(n) is not int for n in (*val.shape, *val.stride())) or not _has_gaps(val):
            continue
        if all(_is_blind_to_gaps(user) for user in node.users if user in backward):
            found[node] = preserved_strides(val)
    return found


def _has_gaps(val: Any) -> bool:
    """True where a tensor reaches over more memory than its elements fill."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(val.shape, val.stride(), strict=True))
    return bool(reach > val.numel() > 0)


def _is_blind_to_gaps(user: fx.Node) -> bool:
    target = user.target
    if not isinstance(target, OpOverload) or user.kwargs.get("memory_format") is not None:
        return False
    return torch.Tag.pointwise in target.tags or target._schema.name in _BLIND_TO_GAPS


def _with_strides(val: Any, strides: tuple) -> Any:
    from ..trace.tensor import make_value

    return make_value(val.shape, strides, val.dtype, val.device)


def _packed_copy(graph: fx.Graph, node: fx.Node, strides: tuple) -> fx.Node:
    copy = append_node(graph, f"{node.name}_packed", torch.ops.aten.clone.default, (node,), {})
    copy.meta = {key: v for key, v in node.meta.items() if key != "recompute"}
    copy.meta["val"] = _with_strides(node.meta["val"], strides)
    return copy


def note_saved_strides(parts: Partition, forward: Any) -> None:
    """Tell the backward graph how the saved tensors lie in memory where the compiled forward chose other strides than
    eager's.

    `forward.output_strides` (optional): for each output of the forward graph None or the strides; only saved tensors
    may have any. The placeholder's `meta["val"]` keeps eager's, `meta["physical_stride"]` has the real ones.
    """
    strides = getattr(forward, "output_strides", None)
    if not strides:
        return
    placeholders = [n for n in parts.backward.graph.nodes if n.op == "placeholder"]
    for node, value in zip(placeholders, parts.saved, strict=False):
        if value.kind == "output" and value.is_tensor and strides[value.position] is not None:
            node.meta["physical_stride"] = tuple(strides[value.position])


def _copy_into(graph: fx.Graph, node: fx.Node, env: dict[fx.Node, fx.Node]) -> fx.Node:
    args = fx.node.map_arg(node.args, env.__getitem__)
    if node.op == "call_function":
        kwargs = fx.node.map_arg(node.kwargs, env.__getitem__) if node.kwargs else {}
        copy = append_node(graph, node.name, node.target, args, kwargs)
    else:
        copy = graph.create_node(node.op, node.target, args, dict(node.kwargs), name=node.name)
    copy.meta = {key: v for key, v in node.meta.items() if key not in (STATE, PREVIOUS, "checkpoint")}
    env[node] = copy
    return copy


def _constants_of(joint: JointGraph) -> torch.nn.Module:
    return joint.gm


def _forward_graph(
    joint: JointGraph,
    nodes: list[fx.Node],
    outputs: list[Any],
    saved: list[fx.Node],
    why: dict[fx.Node, str],
    packed: dict[fx.Node, tuple],
) -> tuple[fx.GraphModule, list[SavedValue]]:
    kept = [
        n
        for n in nodes
        if is_forward(n) and n.op == "call_function" and (is_random(n) or not n.users and is_kept_when_unused(n))
    ]
    needed = _ancestors([n for n in (*outputs, *saved, *kept) if isinstance(n, fx.Node)], set())
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    inputs: dict[fx.Node, int] = {}
    for node in nodes:
        if not is_forward(node) or node.op == "output":
            continue
        if node.op == "placeholder":
            inputs[node] = len(inputs)
        elif node not in needed:
            continue
        _copy_into(graph, node, env)
    for node in needed:
        if node not in env:
            raise PartitionError("a forward value depends on the backward", node=node)
    position = {}
    for i, out in enumerate(outputs):
        if isinstance(out, fx.Node):
            position.setdefault(out, i)
    results: list[Any] = [env[o] if isinstance(o, fx.Node) else o for o in outputs]
    descs = list(joint.outputs[: len(outputs)])
    values = []
    for k, node in enumerate(saved):
        is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
        size = bytes_of(node)
        reason = why.get(node, "the backward uses it")
        if node in inputs:
            values.append(SavedValue("input", inputs[node], is_tensor, node.name, size, reason))
        elif node in position and position[node] >= joint.metadata.num_mutated:
            values.append(SavedValue("output", position[node], is_tensor, node.name, 0, reason + "; it is an output"))
        else:
            values.append(SavedValue("output", len(results), is_tensor, node.name, size, reason))
            descs.append(OutputDesc("saved_tensor" if is_tensor else "saved_symint", k, node.name))
            results.append(_packed_copy(graph, env[node], packed[node]) if node in packed else env[node])
    out_node = graph.output(tuple(results))
    out_node.meta["desc"] = descs
    register_names(graph)
    return lazy_graph_module(joint.gm, graph), values


def _backward_graph(
    joint: JointGraph,
    nodes: list[fx.Node],
    needed: set[fx.Node],
    saved_set: set[fx.Node],
    saved: list[fx.Node],
    gradients: list[Any],
    values: list[SavedValue],
    packed: dict[fx.Node, tuple],
) -> tuple[fx.GraphModule, list[int | None], list[str]]:
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for k, node in enumerate(saved):
        env[node] = graph.placeholder(node.name)
        env[node].meta = {key: v for key, v in node.meta.items() if key not in ("desc", "recompute", STATE, PREVIOUS)}
        if node in packed:
            env[node].meta["val"] = _with_strides(node.meta["val"], packed[node])
        kind = "saved_tensor" if values[k].is_tensor else "saved_symint"
        env[node].meta["desc"] = InputDesc(kind, k, node.name)  # type: ignore[arg-type]
    for node in nodes:
        if node.op == "placeholder" and not is_forward(node):
            _copy_into(graph, node, env)
    recomputed = []
    replays = Replays(graph, env)
    for node in _by_backward_order(nodes, needed, env):
        if is_replayed(node):
            replays.put(node, lambda node=node: _copy_into(graph, node, env))
        else:
            _copy_into(graph, node, env)
        if is_forward(node):
            env[node].meta["recomputed"] = True
            recomputed.append(node.name)
    slots: list[int | None] = []
    results: list[fx.Node] = []
    descs: list[OutputDesc] = []
    at: dict[fx.Node, int] = {}
    for grad, position in zip(gradients, joint.metadata.grad_inputs, strict=False):
        if not isinstance(grad, fx.Node):
            slots.append(None)
            continue
        if grad not in at:
            at[grad] = len(results)
            results.append(env[grad])
            descs.append(OutputDesc("gradient", position))
        slots.append(at[grad])
    out_node = graph.output(tuple(results))
    out_node.meta["desc"] = descs
    register_names(graph)
    return lazy_graph_module(joint.gm, graph), slots, recomputed


def _by_backward_order(nodes: list[fx.Node], needed: set[fx.Node], env: dict[fx.Node, fx.Node]) -> list[fx.Node]:
    """Backward nodes in their order, each recomputed forward value just before its first use (so that it lives
    shortly)."""
    order: list[fx.Node] = []
    done: set[fx.Node] = set(env)

    def place(node: fx.Node) -> None:
        stack = [node]
        while stack:
            top = stack[-1]
            if top in done:
                stack.pop()
                continue
            needs = [*top.all_input_nodes, *(replay_needs(top) if is_replayed(top) else ())]
            waiting = [n for n in needs if n not in done]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            done.add(top)
            order.append(top)
            stack.pop()

    for node in nodes:
        if node in needed and not is_forward(node) and node.op != "output":
            place(node)
    for node in nodes:
        if node in needed and node not in done and node.op != "output":
            place(node)
    return order
