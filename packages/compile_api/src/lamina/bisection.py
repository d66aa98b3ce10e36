"""`lamina.bisect(model)(*args)`: from "wrong result" to stage, graph, operator, pass and kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from . import config, events
from .accuracy import STAGE_OF_RUNG, Outcome, as_seen, check, copy_tree, differences, shared_storage
from .backends import LADDER
from .errors import LaminaError
from .failures import line_of_stack
from .options import check_flag, check_model, check_rungs, settings_of
from .pipeline import bind, import_stage
from .recording import leaves, plain, record
from .reduction import calls, keep_outputs


@dataclass
class Culprit:
    """Where a program first goes wrong. Parts that could not be narrowed down are None.

    `stage` in words, `rung` the first backend that differs, `difference` what differs; `graph` the number of the
    captured graph, `node` and `operator` in it, `user_line` where the program has it; `lowered_operator` the ATen
    operator that it became, `pass_name` what the stage did to it, `kernel` the generated kernel.
    """

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
    """Find the first stage, then the graph, then the operator, pass and kernel that make a program differ from eager.

    Args:
        model: function or module, compiled or not. It and the arguments are copied for each try and stay as they are.
        backends: the rungs to try, in order.
        backward: also compare gradients.
        options: as for `lamina.compile`.

    Returns:
        A function to call with the program's arguments; it returns a Culprit, or None if nothing differs.

    Raises:
        OptionError: an unknown backend or option.
    """
    check_model("bisect", model)
    check_flag("bisect", "backward", backward)
    chosen = check_rungs("bisect", backends)
    settings = settings_of("bisect", options, backend="eager")
    model = plain(model)

    def run(*args: Any, **kwargs: Any) -> Culprit | None:
        report = check(model, backends=chosen, backward=backward, **options)(*args, **kwargs)
        rung = report.first
        if rung is None:
            return None
        culprit = Culprit(STAGE_OF_RUNG.get(rung, rung), rung, report.differences[rung][0])
        if rung not in LADDER or rung == "eager":
            return culprit
        own_args, own_kwargs = copy_tree((tuple(args), dict(kwargs)))
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
    name = getattr(node.target, "__name__", "")
    for public in (torch, torch.nn.functional, torch.Tensor):
        if name and getattr(public, name, None) is node.target:
            return f"{getattr(public, '__name__', 'Tensor')}.{name}"
    module = getattr(node.target, "__module__", "") or ""
    name = getattr(node.target, "__qualname__", None) or getattr(node.target, "name", None) or str(node.target)
    return f"{module}.{name}".removeprefix("builtins.").strip(".")


Context = Callable[[], contextlib.AbstractContextManager[Any]]


def compare(
    gm: torch.fx.GraphModule,
    inputs: Sequence[Any],
    rung: str | Callable[..., Any],
    context: Context = contextlib.nullcontext,
) -> str | None:
    """Compile one graph with a backend (a rung, or a callable) and compare values, gradients, strides, mutation,
    aliasing and random state with eager; the first difference, or None. Compiles and calls happen in `context`."""
    backend = bind(rung) if isinstance(rung, str) else rung
    want = outcome_of(gm.forward, inputs)
    exact = outcome_of(gm.forward, inputs, torch.float64)
    try:
        with config.patch(strict=True, failure_script=False), context():
            got = outcome_of(backend(gm, copy_tree(list(inputs))), inputs)
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
                   arguments=[as_seen(t) for t in leaves(own)],
                   aliases=shared_storage(leaves(result), leaves(own)),
                   random_state=torch.get_rng_state())


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
    difference = compare(cut, left, rung)
    if difference is None:  # the cut graph is right: what is wrong needs the whole
        cut, left, difference = gm, list(inputs), culprit.difference
    seen: list[Any] = []
    with events.listening(seen.append), config.patch(strict=True, failure_script=False):
        try:
            outcome = outcome_of(bind(rung)(cut, copy_tree(list(left))), left)
            error = outcome.error
        except LaminaError as raised:
            error = raised
        if isinstance(error, LaminaError):
            culprit.lowered_operator = error.node
    role = "backward" if difference.startswith("gradient") else "forward"
    flat = flat_graphs(cut, left)
    if rung == "inductor":
        culprit.kernel = last_kernel(seen, role)
    if rung != "aot_eager" and culprit.lowered_operator is None:
        ops = [n for n in calls(flat.get(role) or flat.get("forward") or cut)
               if isinstance(n.target, torch._ops.OpOverload)]
        culprit.lowered_operator = str(ops[-1].target) if ops else None
    culprit.pass_name = responsible_pass(cut, left, rung, flat)
    for op in (n.target for g in flat.values() for n in calls(g)):
        if culprit.pass_name == f"decomposition of {op}":
            culprit.lowered_operator = str(op)


def last_kernel(seen: Sequence[Any], role: str) -> str | None:
    """Return the name of the last kernel of the forward or backward graph in the events of one compile."""
    found: dict[str, list[str]] = {}
    current = "forward"
    for event in seen:
        if isinstance(event, events.Event) and event.name == "compile_graph started":
            current = "backward" if event.payload == "backward" else "forward"
        elif event.name == "kernel":
            payload = event.payload
            name = payload.get("name") if isinstance(payload, dict) else getattr(payload, "name", payload)
            found.setdefault(current, []).append(str(name))
    names = found.get(role) or found.get("forward") or found.get("backward")
    return names[-1] if names else None


def flat_graphs(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> dict[str, torch.fx.GraphModule]:
    """Return "forward" and "backward" (where there is one) of what aot_autograd makes of a graph."""
    aot = import_stage("aot")
    found: dict[str, torch.fx.GraphModule] = {}

    def keep(role: str) -> Callable[..., Any]:
        def compiler(flat: torch.fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
            found[role] = flat
            return aot.run_eagerly(flat)

        return compiler

    with contextlib.suppress(Exception):
        outcome_of(aot.aot_compile(gm, copy_tree(list(inputs)), forward_compiler=keep("forward"),
                                   backward_compiler=keep("backward"), inference_compiler=keep("forward")), inputs)
    return found


def responsible_pass(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], rung: str, flat: dict[str, torch.fx.GraphModule]
) -> str | None:
    """Return what the stage of `rung` does to a wrong graph that is right without it; else the step that all of the
    stage's work goes through."""
    for name, backend, context in alternatives(rung, flat):
        if compare(gm, inputs, backend, context) is None:
            return name
    if rung in ("reference", "inductor"):
        return "lowering and scheduling" if rung == "reference" else "code of the kernel or of its call"
    return None


def alternatives(
    rung: str, flat: dict[str, torch.fx.GraphModule]
) -> Iterator[tuple[str, str | Callable[..., Any], Context]]:
    """Yield (name, backend, context) for each part of a rung's stage that can be left out, and the rung without it."""
    if rung == "aot_eager":
        from lamina_aot_autograd import config as aot_config

        for name, changes in (
            ("partition (min_cut): what is saved and what is recomputed", {"partitioner": "save_everything"}),
            ("shape rules of lamina_aot_autograd", {"own_rules": False}),
            ("shape rules of lamina_primtorch", {"installed_rules": False}),
        ):
            yield name, rung, partial(aot_config.patch, **changes)
    elif rung == "aot_prims":
        prims = import_stage("prims")
        table = prims.decomposition_table("prims")
        ops = {n.target: None for g in flat.values() for n in calls(g) if table.find(n.target) is not None}
        for op in ops:
            yield f"decomposition of {op}", _prims_without(op), contextlib.nullcontext
    elif rung in ("reference", "inductor"):
        from lamina_inductor import passes

        for name, what in passes.PASSES.items():
            yield f"{name}: {what}", rung, partial(passes.without, name)
        from lamina_aot_autograd import config as aot_config

        yield "regions: equal stretches compiled once", rung, partial(aot_config.patch, regions=False)


class _Without:
    """A decomposition table with one operator left out."""

    def __init__(self, table: Any, op: Any) -> None:
        self.table, self.op = table, op

    def find(self, op: Any) -> Any:
        """The decomposition of an operator, or None."""
        return None if op is self.op else self.table.find(op)


def _prims_without(op: Any) -> Callable[..., Any]:
    aot, prims = import_stage("aot"), import_stage("prims")
    table = _Without(prims.decomposition_table("prims"), op)

    def lower(flat: torch.fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        return aot.run_eagerly(prims.decompose(flat, "prims", table))

    return lambda gm, inputs: aot.aot_compile(gm, inputs, forward_compiler=lower)
