"""Cutting graphs: the moves that bisect and minify make. Every function returns a new graph and its inputs.

The invariant: a cut graph computes, for its own inputs, what the same nodes compute in the original.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .accuracy import copy_in_layout
from .recording import copy_of


def calls(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Return the nodes that compute something."""
    return [n for n in gm.graph.nodes if n.op.startswith("call_")]


def output_nodes(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Return the distinct nodes that the graph returns, in order."""
    found: dict[torch.fx.Node, None] = {}
    torch.fx.map_arg(next(iter(gm.graph.find_nodes(op="output"))).args[0], lambda n: found.setdefault(n))
    return list(found)


def keep_outputs(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], names: Sequence[str]
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """Return the graph that computes only the named nodes; inputs that are no longer used are dropped."""
    cut = copy_of(gm)
    by_name = {n.name: n for n in cut.graph.nodes}
    output = next(iter(cut.graph.find_nodes(op="output")))
    output.args = (tuple(by_name[name] for name in names),)
    return drop_unused(cut, inputs)


def drop_unused(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> tuple[torch.fx.GraphModule, list[Any]]:
    """Remove nodes whose results nobody reads (in-place calls on a value that is read stay) and unused inputs."""
    keep = needed_nodes(gm)
    for node in reversed(list(gm.graph.nodes)):
        if node.op.startswith("call_") or node.op == "get_attr":
            if node not in keep:
                gm.graph.erase_node(node)
    left = []
    for node, value in zip(list(gm.graph.find_nodes(op="placeholder")), inputs, strict=True):
        if node.users:
            left.append(value)
        else:
            gm.graph.erase_node(node)
    gm.graph.lint()
    gm.recompile()
    return gm, left


def needed_nodes(gm: torch.fx.GraphModule) -> set[torch.fx.Node]:
    """Return the nodes that the output depends on, through data or through a mutation."""
    keep = set(output_nodes(gm))
    grew = True
    while grew:
        grew = False
        for node in reversed(list(gm.graph.nodes)):
            if node not in keep and is_mutating(node) and keep & set(node.all_input_nodes):
                keep.add(node)
                grew = True
            if node in keep and not set(node.all_input_nodes) <= keep:
                keep |= set(node.all_input_nodes)
                grew = True
    return keep


WRITERS = {"setitem", "iadd", "imul", "isub", "itruediv", "_enter_autocast", "_exit_autocast", "_set_grad_enabled"}
"""Functions without a trailing underscore that change an argument or a global state."""


def is_mutating(node: torch.fx.Node) -> bool:
    """Tell whether a call writes to one of its arguments, by its schema or by its name."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable
    if node.op == "call_method":
        return str(node.target).endswith("_") and not str(node.target).endswith("__")
    name = getattr(node.target, "__name__", "")
    return (
        name.endswith("_") and not name.endswith("__")
        or name in WRITERS
        or bool(node.kwargs.get("inplace") or node.kwargs.get("out") is not None)
    )


def replace_with_inputs(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], values: dict[str, Any], names: Sequence[str]
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """Return the graph in which the named nodes are inputs with the recorded `values`."""
    cut = copy_of(gm)
    left = list(inputs)
    last = list(cut.graph.find_nodes(op="placeholder"))
    for node in list(cut.graph.nodes):
        if node.name in names and node.op.startswith("call_"):
            with cut.graph.inserting_before(next(iter(cut.graph.nodes)) if not last else last[-1].next):
                fresh = cut.graph.placeholder(f"in_{node.name}")
            fresh.meta = dict(node.meta)
            node.replace_all_uses_with(fresh)
            last.append(fresh)
            left.append(values[node.name])
    return drop_unused(cut, left)


def values_in_meta(gm: torch.fx.GraphModule) -> dict[str, Any]:
    """Return the metadata of every node that has some: what `replace_with_inputs` takes where nothing may run."""
    return {n.name: n.meta["val"] for n in gm.graph.nodes if n.meta.get("val") is not None}


class Recorder(torch.fx.Interpreter):
    """Runs a graph in eager and keeps the value of every node."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.values: dict[str, Any] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node; a tensor is kept as a detached copy, since a later node may write to it."""
        value = super().run_node(n)
        self.values[n.name] = snapshot(value)
        return value


def snapshot(value: Any) -> Any:
    """Return a copy of a tensor with its strides and flags; anything else as it is."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return value
    return copy_in_layout(value).requires_grad_(value.requires_grad)
