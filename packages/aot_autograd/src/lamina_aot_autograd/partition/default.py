"""The default and the save-everything policies."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload

from ..schemas import JointGraph
from .cost import bytes_of
from .extract import Partition, _ancestors, extract, is_forward, is_random, split_outputs
from .replay import STATE, is_replayed

aten = torch.ops.aten


def is_alias(node: fx.Node) -> bool:
    """True for a view of another value: it is made again for nothing."""
    from ..trace.op_info import VIEW, lookup

    target: Any = node.target
    if isinstance(target, OpOverload):
        return lookup(target).kind == VIEW or target is aten._unsafe_view.default
    if target is operator.getitem:
        source: Any = node.args[0]
        return (
            isinstance(source, fx.Node)
            and isinstance(source.target, OpOverload)
            and (lookup(source.target).kind == VIEW)
        )
    return False


def is_free(node: fx.Node) -> bool:
    """True for a value that is made again for nothing: a view, a size, or a constant without tensor inputs."""
    if is_alias(node):
        return True
    if node.op == "get_attr":
        return True
    target = node.target
    if target in (aten.sym_size.int, aten.sym_stride.int, aten.sym_numel.default):
        return False
    return (
        node.op == "call_function"
        and not node.all_input_nodes
        and isinstance(target, OpOverload)
        and not is_random(node)
    )


def used_by_backward(joint: JointGraph) -> list[fx.Node]:
    """Forward values that the backward reads: what eager's autograd would save."""
    _, gradients = split_outputs(joint)
    needed = _ancestors([g for g in gradients if isinstance(g, fx.Node)], set())
    found: list[fx.Node] = []
    seen: set[fx.Node] = set()
    direct = {g for g in gradients if isinstance(g, fx.Node) and is_forward(g)}
    for node in joint.graph.nodes:
        if is_forward(node) and node.op != "output" and node in needed:
            if node in direct or any(not is_forward(u) and u in needed for u in node.users):
                if node not in seen:
                    seen.add(node)
                    found.append(node)
    return found


def eager_saved(joint: JointGraph) -> set[fx.Node]:
    """What eager's autograd would hold, views replaced by the values that they are views of."""
    saved: set[fx.Node] = set()
    seen: set[fx.Node] = set()
    stack = used_by_backward(joint)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if is_free(node) or may_recompute(node):
            stack.extend(n for n in node.all_input_nodes if is_forward(n))
            if is_replayed(node):
                saved.add(node.meta[STATE])
        elif _is_multi(node):
            saved.update(u for u in node.users if is_forward(u))
        else:
            saved.add(node)
    return saved


def _is_multi(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (list, tuple))


def eager_saved_bytes(joint: JointGraph) -> int:
    """Bytes that eager would hold for the backward, inputs not counted."""
    return sum(bytes_of(n) for n in eager_saved(joint) if n.op != "placeholder")


def partition_default(joint: JointGraph, **_: Any) -> Partition:
    """Save what eager saves; honour the wishes of `meta["recompute"]`."""
    eager = eager_saved(joint)
    saved = {n for n in eager if not may_recompute(n)}
    why = {n: "the backward reads it, as in eager" for n in saved}
    return extract(joint, saved, "default", why, sum(bytes_of(n) for n in eager if n.op != "placeholder"))


def may_recompute(node: fx.Node) -> bool:
    """True where the program asked for recomputation (checkpoint) and it is allowed."""
    if node.meta.get("recompute") != "must_recompute":
        return False
    return is_replayed(node) or not is_random(node) and not _of_random(node)


def _of_random(node: fx.Node) -> bool:
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, fx.Node) and is_random(source) and not is_replayed(source)


def partition_save_everything(joint: JointGraph, **_: Any) -> Partition:
    """Save every forward value that leads to a gradient: nothing is recomputed but views."""
    _, gradients = split_outputs(joint)
    needed = _ancestors([g for g in gradients if isinstance(g, fx.Node)], set())
    saved = {n for n in needed if is_forward(n) and n.op != "output" and not _is_multi(n) and not is_free(n)}
    why = {n: "everything is saved" for n in saved}
    return extract(joint, saved, "save_everything", why, eager_saved_bytes(joint))
