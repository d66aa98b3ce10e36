"""`lamina.bisect(model)(*args)`: from "wrong result" to stage, graph, operator, pass and kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import config, events
from .accuracy import STAGE_OF_RUNG, Outcome, as_seen, check, copy_tree, differences
from .backends import LADDER
from .errors import LaminaError
from .failures import line_of_stack
from .options import check_arguments
from .pipeline import bind
from .recording import leaves, plain, record
from .reduction import calls, keep_outputs


@dataclass
class Culprit:
    """Where a program first goes wrong. Parts that could not be narrowed down are None."""

    stage: str
    rung: str
    difference: str
    graph: int | None = None
    node: str | None = None
    operator: str | None = None
    user_line: str | None = None
    lowered_operator: str | None = None
    pass_name: str | None = None
    kernel: str | None = None

    def __str__(self) -> str:
        rows = [("stage", self.stage), ("backend", self.rung), ("graph", self.graph), ("node", self.node),
                ("operator", self.operator), ("your code", self.user_line), ("operator in the stage",
                self.lowered_operator), ("pass", self.pass_name), ("kernel", self.kernel),
                ("difference", self.difference)]
        return "\n".join(f"{label}: {value}" for label, value in rows if value is not None)


def bisect(
    model: Any, *, backends: Sequence[str] = LADDER, backward: bool = True, **options: Any
) -> Callable[..., Culprit | None]:
    """Find the first stage, then the graph, then the operator that makes a program differ from eager.

    Returns a function to call with the program's arguments; it returns a Culprit, or None if nothing differs.
    """
    model = plain(model)

    def run(*args: Any, **kwargs: Any) -> Culprit | None:
        report = check(model, backends=backends, backward=backward, **options)(*args, **kwargs)
        rung = report.first
        if rung is None:
            return None
        culprit = Culprit(STAGE_OF_RUNG.get(rung, rung), rung, report.differences[rung][0])
        if rung not in LADDER or rung == "eager":
            return culprit
        own_args, own_kwargs = copy_tree((tuple(args), dict(kwargs)))
        settings = check_arguments(**{"mode": "default", "dynamic": None, "fullgraph": False, "options": None,
                                      **options, "backend": "eager"})
        with config.patch(failure_script=False):
            graphs = record(model, settings, own_args, own_kwargs, backward=False).graphs
        for number, graph in enumerate(graphs):
            found = first_wrong_node(graph.gm, graph.inputs, rung)
            if found is not None:
                node, why = found
                culprit.graph, culprit.node, culprit.difference = number, node.name, why
                culprit.operator = target_name(node)
                culprit.user_line = line_of_stack(node.meta.get("stack_trace"))
                narrow(culprit, graph.gm, graph.inputs, node.name, rung)
                break
        return culprit

    return run


def target_name(node: torch.fx.Node) -> str:
    """Return the printed name of what a node calls."""
    if isinstance(node.target, str):
        return f"Tensor.{node.target}"
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    module = getattr(node.target, "__module__", "") or ""
    name = getattr(node.target, "__qualname__", None) or getattr(node.target, "name", None) or str(node.target)
    return f"{module}.{name}".removeprefix("builtins.").strip(".")


def compare(gm: torch.fx.GraphModule, inputs: Sequence[Any], rung: str) -> str | None:
    """Compile one graph with a rung and compare values and gradients with eager; the first difference, or None."""
    want = outcome_of(gm.forward, inputs)
    exact = outcome_of(gm.forward, inputs, torch.float64)
    try:
        with config.patch(strict=True, failure_script=False):
            got = outcome_of(bind(rung)(gm, copy_tree(list(inputs))), inputs)
    except Exception as error:
        got = Outcome(error=error)
    found = differences(want, got, exact)
    return found[0] if found else None


def outcome_of(fn: Callable[..., Any], inputs: Sequence[Any], dtype: torch.dtype | None = None) -> Outcome:
    """Run `fn` on copies of the inputs, with gradients of the leaf inputs."""
    own = copy_tree(list(inputs), dtype)
    torch.manual_seed(0)
    try:
        result = fn(*own)
        result = tuple(result) if isinstance(result, list | tuple) else (result,)
        outs = [o for o in leaves(result) if o.requires_grad and o.is_floating_point()]
        wanted = [t for t in leaves(own) if t.requires_grad and t.is_leaf]
        grads: list[Any] = []
        if outs and wanted:
            grads = list(torch.autograd.grad([o.sum() for o in outs], wanted, allow_unused=True))
    except Exception as error:
        return Outcome(error=error)
    return Outcome(values=[as_seen(t) for t in leaves(result)],
                   gradients=[None if g is None else as_seen(g) for g in grads],
                   arguments=[as_seen(t) for t in leaves(own)])


def first_wrong_node(gm: torch.fx.GraphModule, inputs: Sequence[Any], rung: str) -> tuple[torch.fx.Node, str] | None:
    """Return the first node such that the graph cut after it differs from eager, and how; None if the graph agrees.

    Cuts are halved, as errors carry on downstream; a last walk upwards makes sure that no earlier node is wrong alone.
    """
    whole = compare(gm, inputs, rung)
    if whole is None:
        return None
    nodes = [n for n in calls(gm) if has_tensor_value(n)]

    def wrong(i: int) -> str | None:
        try:
            cut, left = keep_outputs(gm, inputs, [nodes[i].name])
        except Exception:  # a node whose value cannot be an output, such as a context manager's
            return None
        return compare(cut, left, rung)

    low, high = 0, len(nodes) - 1
    while low < high:
        middle = (low + high) // 2
        if wrong(middle) is not None:
            high = middle
        else:
            low = middle + 1
    if not nodes:
        return None
    why = wrong(low)
    if why is None:  # only several outputs together, or the gradient of the whole, differ
        return nodes[-1], whole
    return nodes[low], why


def has_tensor_value(node: torch.fx.Node) -> bool:
    """Tell whether a node's value can be a graph output of its own."""
    value = node.meta.get("val", node.meta.get("example_value"))
    return value is None or isinstance(value, torch.Tensor)


def narrow(culprit: Culprit, gm: torch.fx.GraphModule, inputs: Sequence[Any], name: str, rung: str) -> None:
    """Add what the stage itself did to the graph cut after the wrong node: operator, pass and kernel."""
    cut, left = keep_outputs(gm, inputs, [name])
    seen: list[Any] = []
    with events.listening(seen.append), config.patch(strict=True, failure_script=False):
        try:
            outcome_of(bind(rung)(cut, copy_tree(list(left))), left)
        except LaminaError as error:
            culprit.lowered_operator = culprit.lowered_operator or error.node
    kernels, passes = [], []
    for event in seen:
        payload = event.payload
        if event.name == "kernel":
            kernels.append(payload.get("name") if isinstance(payload, dict) else getattr(payload, "name", str(payload)))
        if event.name == "pass" and not isinstance(event, events.Event):
            passes.append(str(payload.get("name") if isinstance(payload, dict) else payload))
    if rung in ("inductor",) and kernels:
        culprit.kernel = str(kernels[-1])
    if passes:
        culprit.pass_name = passes[-1]
    culprit.lowered_operator = culprit.lowered_operator or last_lowered(cut, left, rung)


def last_lowered(gm: torch.fx.GraphModule, inputs: Sequence[Any], rung: str) -> str | None:
    """Return the last ATen operator that the graph became, which is where its one output comes from."""
    if rung == "aot_eager":
        return None
    from .pipeline import import_stage

    graphs: list[torch.fx.GraphModule] = []

    aot = import_stage("aot")

    def keep(flat: torch.fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        graphs.append(flat)
        return aot.run_eagerly(flat)

    try:
        aot.aot_compile(gm, copy_tree(list(inputs)), forward_compiler=keep, backward_compiler=keep,
                                        inference_compiler=keep)
    except Exception:
        return None
    ops = [n for n in calls(graphs[0]) if isinstance(n.target, torch._ops.OpOverload)] if graphs else []
    return str(ops[-1].target) if ops else None
