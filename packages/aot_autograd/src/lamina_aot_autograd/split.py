"""Graphs with nodes that need real tensors: everything between such nodes is compiled, the nodes themselves run in
eager.

What needs real tensors acts on a tensor object (retain_grad, hooks, resize_, set_, leaf tensors that are made) or on
values
(item, nonzero). Changes of grad mode and autocast run between the compiled pieces too, so that each piece has one
state.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload
from torch.utils.checkpoint import checkpoint

from ._torch import lazy_graph_module
from .interpret import KEEPS_INPUTS
from .observe import report
from .refusals import Refusals, find_refusals


def lift_attributes(gm: fx.GraphModule) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """A graph in which tensors read by get_attr are placeholders (appended), and these tensors. Unchanged without
    any."""
    found: dict[str, torch.Tensor] = {}
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            value: Any = gm
            for part in str(node.target).split("."):
                value = getattr(value, part)
            if isinstance(value, torch.Tensor):
                found[str(node.target)] = value
    if not found:
        return gm, []
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    inputs: dict[str, fx.Node] = {}
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for node in placeholders:
        env[node] = graph.node_copy(node, env.__getitem__)
    for target in found:
        inputs[target] = graph.placeholder("attr_" + target.replace(".", "_"))
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            continue
        if node.op == "get_attr" and str(node.target) in found:
            env[node] = inputs[str(node.target)]
        else:
            env[node] = graph.node_copy(node, env.__getitem__)
    return lazy_graph_module(gm, graph), list(found.values())


_STATE_SETTERS = {
    "_set_grad_enabled",
    "_enter_autocast",
    "_exit_autocast",
    "set_grad_enabled",
    "_enter_inference_mode",
    "_exit_inference_mode",
}


def is_state_setter(node: fx.Node) -> bool:
    """True for calls that change grad mode, autocast or inference mode."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") in _STATE_SETTERS


def has_unknown_size(value: Any) -> bool:
    """Does the metadata of a value hold symbols that only the run gives a value (sizes after nonzero, items)?"""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return _is_unknown(value)
    if isinstance(value, (list, tuple)):
        return any(has_unknown_size(v) for v in value)
    if isinstance(value, torch.Tensor):
        return any(isinstance(n, torch.SymInt) and _is_unknown(n) for n in (*value.shape, *value.stride()))
    return False


def _is_unknown(number: Any) -> bool:
    symbols = getattr(getattr(number.node, "expr", None), "free_symbols", ())
    return any(str(s).startswith(("u", "zu")) for s in symbols)


class _Piece:
    """A run of nodes that is compiled as one graph, at its first call."""

    def __init__(self, gm: fx.GraphModule, inputs: list[fx.Node], outputs: list[fx.Node]) -> None:
        self.gm = gm
        self.inputs = inputs
        self.outputs = outputs
        self.call: Callable[..., Any] | None = None
        # Sizes that only the run knows differ from call to call: such a piece runs in eager.
        self.varies = any(has_unknown_size(n.meta.get("val")) for n in inputs)

    def run(self, env: dict[fx.Node, Any], options: Any) -> None:
        args = [env[n] for n in self.inputs]
        if self.call is None and self.varies:
            self.call = self.gm.forward
        if self.call is None:
            from .api import compile_graph

            self.call = compile_graph(self.gm, args, options)
        for node, value in zip(self.outputs, self.call(*args), strict=True):
            env[node] = value


def compile_split(gm: fx.GraphModule, barriers: dict[fx.Node, str], options: Any) -> Callable[..., Any]:
    """Callable for `gm` with the nodes of `barriers` run in eager and the pieces between them compiled on first use."""
    report("split", {"graph": gm, "nodes": [(n.name, why) for n, why in barriers.items()]})
    mark_retaining(gm.graph)
    steps = _make_steps(gm, barriers)
    if any(takes_gradients(node) for node in barriers):
        for step in steps:
            if isinstance(step, _Piece):
                step.gm.meta[KEEPS_INPUTS] = True
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    result = gm.graph.output_node().args[0]
    last_use = _last_uses(steps)
    refusals: Refusals | None = None

    def call(*args: Any) -> Any:
        nonlocal refusals
        if refusals is None:
            refusals = find_refusals(gm, args)
        env: dict[fx.Node, Any] = dict(zip(placeholders, args, strict=True))
        for i, step in enumerate(steps):
            if isinstance(step, _Piece):
                step.run(env, options)
            else:
                refusals.check(step)
                env[step] = run_node(gm, step, env)
            for node in last_use[i]:
                env.pop(node, None)
        results = fx.node.map_arg(result, env.__getitem__)
        refusals.mark(results)
        return results

    call.reason = "; ".join(f"{n.name}: {why}" for n, why in barriers.items())  # type: ignore[attr-defined]
    call.aliasing_assumptions = ()  # type: ignore[attr-defined]
    call.steps = steps  # type: ignore[attr-defined]
    return call


def run_node(gm: fx.GraphModule, node: fx.Node, env: dict[fx.Node, Any]) -> Any:
    """One node in eager."""
    args = fx.node.map_arg(node.args, env.__getitem__)
    kwargs = fx.node.map_arg(node.kwargs, env.__getitem__)
    if node.target is checkpoint and kwargs.get("use_reentrant") is False:
        return _checkpoint_over_state(args, kwargs)
    if takes_gradients(node) and len(args) > 3:  # (outputs, inputs, grad_outputs, retain_graph, ...)
        # what are several graphs in eager may have become one piece: the next such call needs it too
        args = (*args[:3], True, *args[4:])
    if RETAINS in node.meta:
        args = (*args[:2], True, *args[3:])
    if node.op == "call_function":
        return node.target(*args, **kwargs)  # type: ignore[operator]
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)  # type: ignore[arg-type]
    value: Any = gm
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value if node.op == "get_attr" else value(*args, **kwargs)


def _checkpoint_over_state(args: Any, kwargs: dict[str, Any]) -> Any:
    """A checkpoint whose function closes over the tensors without gradients, as it did before capture made inputs of
    them: it may write to buffers, which must not count as a change of what was saved.
    """
    function, *inputs = args
    state = {i: t for i, t in enumerate(inputs) if isinstance(t, torch.Tensor) and not t.requires_grad}

    def run(*rest: Any) -> Any:
        given = iter(rest)
        return function(*(state[i] if i in state else next(given) for i in range(len(inputs))))

    return checkpoint(run, *(t for i, t in enumerate(inputs) if i not in state), **kwargs)


def _make_steps(gm: fx.GraphModule, barriers: dict[fx.Node, str]) -> list[Any]:
    ends = _ends_of_pieces(gm, barriers)
    steps: list[Any] = []
    run: list[fx.Node] = []
    nodes = [n for n in gm.graph.nodes if n.op not in ("placeholder", "output")]
    for node in nodes:
        if node.op == "get_attr" and any(user in barriers for user in node.users):
            steps.append(node)  # a body that a node run in eager needs
        elif node in barriers or is_state_setter(node) or _takes_apart(node, barriers):
            if run:
                steps += _cut_where_sizes_settle(run)
                run = []
            steps.append(node)
        else:
            run.append(node)
            if node in ends:
                steps += _cut_where_sizes_settle(run)
                run = []
    if run:
        steps += _cut_where_sizes_settle(run)
    return [_make_piece(gm, step) if isinstance(step, list) else step for step in steps]


#: Nodes that are worth a piece of their own.
_WORTH_A_PIECE = 8


def _cut_where_sizes_settle(run: list[fx.Node]) -> list[list[fx.Node]]:
    """A piece that is given sizes that only the run knows runs in eager: the nodes before and behind those that meet
    such sizes are pieces of their own, where they are not few."""
    unknown: set[fx.Node] = set()
    meets = []
    for node in run:
        given = any(n in unknown or has_unknown_size(n.meta.get("val")) for n in node.all_input_nodes)
        if given and node.meta.get("val") is None:
            unknown.add(node)
        meets.append(given or has_unknown_size(node.meta.get("val")))
    if True not in meets:
        return [run]
    first = meets.index(True)
    last = len(meets) - 1 - meets[::-1].index(True)
    parts = [run[:first], run[first : last + 1], run[last + 1 :]]
    if len(parts[0]) < _WORTH_A_PIECE:
        parts[:2] = [[], parts[0] + parts[1]]
    if len(parts[2]) < _WORTH_A_PIECE:
        parts[1:] = [parts[1] + parts[2]]
    return [part for part in parts if part]


def takes_gradients(node: fx.Node) -> bool:
    """A call of autograd inside the graph, whose result may be differentiated again."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "autograd_grad"


RETAINS = "retains graph"
"""Mark of a call of backward behind which other results of its pieces may be differentiated."""


def mark_retaining(graph: fx.Graph) -> None:
    """Marks the calls of backward, ``(tensors, seeds, retain_graph, ...)``, that must leave saved tensors alone: a
    piece is one function for autograd, so that what backward frees for one of its results is gone for all."""
    nodes = list(graph.nodes)
    for at, node in enumerate(nodes):
        if node.op != "call_function" or getattr(node.target, "__name__", "") != "run_backward":
            continue
        roots = set(node.args[0])  # type: ignore[arg-type]
        behind = set(nodes[at:])
        for made in nodes[:at]:
            if made.op == "placeholder" or made in roots or behind.isdisjoint(made.users):
                continue
            val = made.meta.get("val")
            if isinstance(val, torch.Tensor) and val.requires_grad and not val.is_leaf:
                node.meta[RETAINS] = True
                break


def _ends_of_pieces(gm: fx.GraphModule, barriers: dict[fx.Node, str]) -> set[fx.Node]:
    """Nodes after which a piece ends, so that a tensor whose gradient is watched is the one its earlier uses read.

    A hook, `retain_grad` or a gradient with respect to a tensor sees what flows into the tensor's place in the autograd
    graph, also from uses before the call: those must not lie in the piece that makes the tensor. Writes give it a new
    place.
    """
    ends: set[fx.Node] = set()
    nodes = list(gm.graph.nodes)
    at = {node: i for i, node in enumerate(nodes)}
    for barrier in barriers:
        for watched in _watched_tensors(barrier):
            ends.add(watched)
            ends.update(node for node in nodes[at[watched] : at[barrier]] if _may_write(node))
    return ends


def _watched_tensors(node: fx.Node) -> list[fx.Node]:
    """The tensors whose gradients a node run in eager asks for."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name in ("register_hook", "register_hook_later", "retain_grad"):
        found: Any = node.args[:1]
    elif takes_gradients(node):
        found = node.args[1:2] or node.kwargs.get("inputs", ())
    else:
        return []
    result: list[fx.Node] = []
    fx.node.map_arg(found, result.append)
    return result


def _may_write(node: fx.Node) -> bool:
    """Is this a call by whose name a tensor is written in place?"""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if isinstance(node.target, OpOverload):
        return node.target._schema.is_mutable
    return (
        name == "setitem"
        or name.endswith("_")
        or "out" in node.kwargs
        or bool(node.kwargs.get("inplace"))
        or (name.startswith("i") and getattr(node.target, "__module__", "") == "_operator")
    )


def _takes_apart(node: fx.Node, barriers: dict[fx.Node, str]) -> bool:
    """An item of the list that a node run in eager gave: pieces take tensors only."""
    return (
        node.op == "call_function"
        and node.target is operator.getitem
        and node.args[0] in barriers
        and (
            isinstance(node.args[0].meta.get("val"), (list, tuple))  # type: ignore[union-attr]
        )
    )


def _make_piece(gm: fx.GraphModule, nodes: list[fx.Node]) -> _Piece:
    inside = set(nodes)
    inputs: list[fx.Node] = []
    outputs: list[fx.Node] = []
    for node in nodes:
        for used in node.all_input_nodes:
            if used not in inside and used not in inputs:
                inputs.append(used)
        if any(user not in inside for user in node.users):
            outputs.append(node)
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        env[node] = graph.placeholder(node.name)
        if node.op == "placeholder" or isinstance(node.meta.get("val"), (torch.Tensor, torch.SymInt)):
            env[node].meta = dict(node.meta)
    for node in nodes:
        env[node] = graph.node_copy(node, env.__getitem__)
    graph.output(tuple(env[n] for n in outputs))
    return _Piece(lazy_graph_module(gm, graph), inputs, outputs)


def _last_uses(steps: list[Any]) -> list[list[fx.Node]]:
    """Per step, the values that no later step and not the output needs."""
    last: dict[fx.Node, int] = {}
    kept: set[fx.Node] = set()
    for i, step in enumerate(steps):
        used = step.inputs if isinstance(step, _Piece) else step.all_input_nodes
        made = step.outputs if isinstance(step, _Piece) else [step]
        for node in (*used, *made):
            last[node] = i
            if any(user.op == "output" for user in node.users):
                kept.add(node)
    result: list[list[fx.Node]] = [[] for _ in steps]
    for node, i in last.items():
        if node not in kept:
            result[i].append(node)
    return result
