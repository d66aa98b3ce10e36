"""A backward that is called while autocast is on.

Eager's formulas then run under that autocast: a product of float32 gradients is computed in bfloat16, and what comes
out goes on in the dtype that autograd knows for the forward's value. The backward graph was traced without autocast;
here it is traced again under the state of the call, the casts written out. Forward values that the backward computes
again keep the state of the forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.fx as fx

from ._torch import DisableAutocast, lazy_graph_module
from .joint import autocast_state, trace_joint
from .regions import Region


class UnderAutocast:
    """Called with a backward graph's inputs while autocast is on. `backward` has `gm`, `compile() -> callable` and
    `compile_other(gm) -> callable`; one graph is kept for each autocast state."""

    def __init__(self, backward: Any) -> None:
        self.backward = backward
        self.calls: dict[tuple, Callable] = {}

    def __call__(self, *args: Any) -> Any:
        state = autocast_state()
        call = self.calls.get(state)
        if call is None:
            call = self.calls[state] = self._compile()
        return call(*args)

    def _compile(self) -> Callable:
        try:
            gm = _trace_again(self.backward.gm)
        except Exception:  # what cannot be traced a second time runs op by op
            return lambda *args: run_graph(self.backward.gm, args)
        call = self.backward.compile() if _is_same(gm, self.backward.gm) else self.backward.compile_other(gm)

        def run(*args: Any) -> Any:
            with DisableAutocast():
                return call(*args)

        return run


def _trace_again(gm: fx.GraphModule) -> fx.GraphModule:
    """The backward graph under the current autocast state, its casts written out."""

    def backward(*args: Any) -> Any:
        return run_graph(gm, args)

    graph = fx.Graph()
    inputs = []
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            inputs.append(graph.placeholder(node.name))
            inputs[-1].meta = dict(node.meta)
    graph.output(graph.call_function(backward, tuple(inputs)))
    once = lazy_graph_module(torch.nn.Module(), graph)
    with torch.no_grad():
        joint = trace_joint(once, [n.meta["val"] for n in inputs], with_backward=False, observed=False)
    return joint.gm


def _is_same(gm: fx.GraphModule, other: fx.GraphModule) -> bool:
    """Do two graphs make the same calls in the same order?"""
    calls = [[n.target for n in g.graph.nodes if n.op == "call_function"] for g in (gm, other)]
    return calls[0] == calls[1]


def run_graph(gm: fx.GraphModule, args: Sequence[Any]) -> Any:
    """A backward graph op by op under the current autocast state, each result in the dtype that it was traced with."""
    env: dict[fx.Node, Any] = {}
    feed = iter(args)
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            env[node] = next(feed)
        elif node.op == "output":
            return fx.node.map_arg(node.args[0], env.__getitem__)
        elif node.op == "get_attr":
            env[node] = getattr(gm, str(node.target))
        else:
            env[node] = _step(node, env)
    raise AssertionError("a graph without output")


def _step(node: fx.Node, env: dict[fx.Node, Any]) -> Any:
    inputs: Any = fx.node.map_arg(node.args, env.__getitem__)
    kwargs = fx.node.map_arg(node.kwargs, env.__getitem__)
    target: Any = node.target
    is_forward = node.meta.get("recomputed") or node.meta.get("partition") == "forward"
    with DisableAutocast() if is_forward else nullcontext():
        if isinstance(target, Region):
            result = run_graph(target.graph_module, inputs)
        else:
            result = target(*inputs, **kwargs)
    return result if is_forward else _in_dtype(result, node.meta.get("val"))


def _in_dtype(result: Any, val: Any) -> Any:
    if isinstance(result, torch.Tensor):
        differs = isinstance(val, torch.Tensor) and val.dtype is not result.dtype
        return result.to(val.dtype) if differs else result
    if isinstance(result, (tuple, list)) and isinstance(val, (tuple, list)):
        return type(result)(map(_in_dtype, result, val))
    return result
