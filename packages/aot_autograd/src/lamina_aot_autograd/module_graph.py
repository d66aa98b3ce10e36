"""A module as a graph: its parameters and buffers become inputs, since gradients are taken for inputs alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from ._torch import lazy_graph_module


def parameters_as_inputs(module: torch.nn.Module, example_inputs: Sequence[Any]) -> tuple[fx.GraphModule, list[Any]]:
    """A graph of one node that calls `module`, and its inputs: parameters, buffers, then `example_inputs` (the module's
    positional arguments), in this order. Its result is a flat tuple of what the module returns.

    For `trace_joint` and `aot_compile`, which look into the call. The module must not branch on values: no front end
    stands between.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"parameters_as_inputs takes a torch.nn.Module, not {type(module).__name__}")
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    names = list(state)

    def call(*flat: Any) -> tuple[Any, ...]:
        given = dict(zip(names, flat, strict=False))
        result = torch.func.functional_call(module, given, tuple(flat[len(names) :]))
        return tuple(torch.utils._pytree.tree_leaves(result))

    graph = fx.Graph()
    placeholders = [graph.placeholder(name.replace(".", "_")) for name in names]
    placeholders += [graph.placeholder(f"input_{k}") for k in range(len(example_inputs))]
    graph.output(graph.call_function(call, tuple(placeholders)))
    return lazy_graph_module(torch.nn.Module(), graph), [*state.values(), *example_inputs]
