"""Symbolic sizes that the metadata of a backward speak of must reach it, also where no operator takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.fx as fx

from ..schemas import JointGraph

aten = torch.ops.aten


def _numbers(node: fx.Node) -> list[torch.SymInt]:
    """The symbolic numbers in a node's metadata: itself, or sizes and strides."""
    found = []
    values = node.meta.get("val")
    for val in values if isinstance(values, (list, tuple)) else (values,):
        if isinstance(val, torch.SymInt):
            found.append(val)
        elif isinstance(val, torch.Tensor):
            found += [n for n in (*val.shape, *val.stride()) if isinstance(n, torch.SymInt)]
    return found


def sizes_to_save(joint: JointGraph, inputs: Iterable[fx.Node], backward: Iterable[fx.Node]) -> list[fx.Node]:
    """Nodes of `joint` for the symbols in the metadata of the `backward` nodes that cannot be read off its `inputs`
    (a gradient of size s + 1 does not tell s); made where there is none yet.
    """
    given = {n.node.expr for node in inputs for n in _numbers(node) if n.node.expr.is_Symbol}
    wanted: dict[Any, None] = {}
    for node in backward:
        for n in _numbers(node):
            wanted.update((s, None) for s in sorted(n.node.expr.free_symbols, key=str) if s not in given)
    if not wanted:
        return []
    made = []
    for node in [n for n in joint.graph.nodes if n.op == "placeholder" and n.meta.get("partition") != "backward"]:
        val = node.meta.get("val")
        if isinstance(val, torch.SymInt):
            if val.node.expr in wanted:
                del wanted[val.node.expr]
                made.append(node)
        elif isinstance(val, torch.Tensor):
            for dim, n in enumerate(val.shape):
                if isinstance(n, torch.SymInt) and n.node.expr in wanted:
                    del wanted[n.node.expr]
                    made.append(_size_node(joint.graph, node, dim, n))
    return made


def _size_node(graph: fx.Graph, tensor: fx.Node, dim: int, size: torch.SymInt) -> fx.Node:
    for user in tensor.users:
        if user.target is aten.sym_size.int and user.args == (tensor, dim):
            return user
    first = next(n for n in graph.nodes if n.op != "placeholder")
    with graph.inserting_before(first):
        node = graph.call_function(aten.sym_size.int, (tensor, dim))
    node.meta.update(val=size, partition="forward", seq_nr=-1)
    return node
