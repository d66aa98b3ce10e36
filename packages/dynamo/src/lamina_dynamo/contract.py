"""What a backend may rely on in a captured graph, and the check of it."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from .errors import ContractError

CONTRACT_VERSION = 1

META_KEYS = {
    "val": "fake tensor, symbolic or plain number, tuple of these; None for calls without a result",
    "stack_trace": "the user's frames, outermost first, as Python prints them",
    "source": "on placeholders: where the value comes from (``.name`` is the user's expression)",
    "nn_module_stack": "path of the module -> (path, class), outermost first; absent outside modules",
}


class Backend(Protocol):
    """``backend(gm, example_inputs) -> callable(*inputs) -> tuple``."""

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any: ...


def check_graph(gm: torch.fx.GraphModule) -> None:
    """Raise ContractError naming the first node that breaks the contract."""
    seen_other = False
    nodes = list(gm.graph.nodes)
    for node in nodes:
        if node.op == "placeholder":
            if seen_other:
                _fail(node, "a placeholder stands behind another node")
            if "source" not in node.meta:
                _fail(node, "a placeholder has no source")
        elif node.op != "get_attr":
            seen_other = True
        if node.op == "output":
            (values,) = node.args
            if not isinstance(values, tuple) or not all(isinstance(v, torch.fx.Node) for v in values):
                _fail(node, "the output is not one flat tuple of nodes")
            continue
        if "val" not in node.meta:
            _fail(node, "meta has no val")
        if "stack_trace" not in node.meta:
            _fail(node, "meta has no stack_trace")
        if node.op == "call_module":
            _fail(node, "modules are not called")
        if node.op == "call_method" and not hasattr(torch.Tensor, node.target):
            _fail(node, f"{node.target} is no method of Tensor")
        if node.op == "get_attr" and not isinstance(getattr(gm, node.target, None), torch.fx.GraphModule):
            _fail(node, "get_attr of something that is no sub-graph")
    if not nodes or nodes[-1].op != "output":
        raise ContractError("the graph has no output")


def _fail(node: torch.fx.Node, what: str) -> None:
    line = (node.meta.get("stack_trace") or "").strip().split("\n")
    raise ContractError(what, node=node.name, user_line=" ".join(p.strip() for p in line[-2:]) or None)
