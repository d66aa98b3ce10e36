"""The contract between this stage and the compilers below it, and the check that tests run after every pass."""

from __future__ import annotations

from typing import Any

import torch.fx as fx
from torch._ops import OpOverload

from .errors import ContractError

CONTRACT_VERSION = 1

META_KEYS = {
    "val": "metadata of the value: a tensor that must not be read, a number or SymInt, or a tuple/list of these",
    "desc": "InputDesc on placeholders; a list of OutputDesc on the output node",
    "stack_trace": "the user's file and line",
    "nn_module_stack": "the modules the op was called in",
    "seq_nr": "number of the autograd node; a backward op carries the number of its forward op",
    "partition": '"forward" or "backward" in a joint graph',
    "recompute": '"must_save", "must_recompute" or "prefer_recompute": a wish that partitioners honour',
}


def require_graph(gm: Any, example_inputs: Any = ()) -> None:
    """TypeError unless these are a graph and a sequence of inputs."""
    if not isinstance(gm, fx.GraphModule):
        raise TypeError(f"the graph is a torch.fx.GraphModule, not {type(gm).__name__}")
    if not isinstance(example_inputs, list | tuple):
        raise TypeError(f"example_inputs is a list of tensors and numbers, not {type(example_inputs).__name__}")


def check_graph(gm: fx.GraphModule, *, allow_prims: bool = True) -> None:
    """Raise ContractError naming the first node that breaks the contract.

    A graph of this stage is flat and functional: placeholders first, then call_function nodes (functional OpOverloads,
    prims, or scalar functions of Python) and get_attr nodes of tensor constants, one output node with a flat tuple,
    `desc` at both ends and `val` at every node.
    """
    require_graph(gm)
    seen_body = False
    defined: set[fx.Node] = set()
    nodes = list(gm.graph.nodes)
    if not nodes or nodes[-1].op != "output":
        raise ContractError("the last node must be the output")
    for node in nodes:
        for used in node.all_input_nodes:
            if used not in defined:
                raise ContractError(f"'{used.name}' is used before it is computed", node=node)
        defined.add(node)
        if node.op == "placeholder":
            if seen_body:
                raise ContractError("a placeholder comes after a computing node", node=node)
            if "desc" not in node.meta:
                raise ContractError("a placeholder without desc", node=node)
        elif node.op == "output":
            _check_output(node)
            continue
        elif node.op == "get_attr":
            seen_body = True
        elif node.op == "call_function":
            seen_body = True
            _check_call(node, allow_prims)
        else:
            raise ContractError(f"op '{node.op}' does not belong in a flat graph", node=node)
        if "val" not in node.meta:
            raise ContractError("a node without val", node=node)


def _check_call(node: fx.Node, allow_prims: bool) -> None:
    target: Any = node.target
    if isinstance(target, OpOverload):
        if target._schema.is_mutable:
            raise ContractError(f"{target} mutates", node=node)
    elif not callable(target):
        raise ContractError(f"target {target!r} is not callable", node=node)
    elif not allow_prims and type(target).__name__ == "Prim":
        raise ContractError(f"prim {target} before decomposition", node=node)


def _check_output(node: fx.Node) -> None:
    values = node.args[0]
    if not isinstance(values, (tuple, list)):
        raise ContractError("the output must be one flat tuple", node=node)
    descs = node.meta.get("desc")
    if descs is None or len(descs) != len(values):
        raise ContractError("the output node needs one desc for each value", node=node)
    for value in values:
        if isinstance(value, (tuple, list, dict)):
            raise ContractError("the output must be flat", node=node)
