"""Callables that become sub-graphs: bodies of torch.func transforms, control-flow operators and checkpoints.

A body is translated like any other code, into a graph of its own. Outer values that it uses are *lifted*: they become
extra inputs of the body and extra arguments of the node that runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..graph_break import GraphBreak, ObservedException
from .base import VariableTracker
from .container import ListVariable, TupleVariable
from .dicts import DictVariable
from .subclass_storage import NamedTupleVariable
from .tensor import StructSequenceVariable, TensorVariable


class BodyGraph(torch.fx.Graph):
    """The graph of a body. Nodes of the graphs around it are replaced by placeholders where they are used."""

    def __init__(self, outer: torch.fx.Graph, before: dict[int, int]) -> None:
        super().__init__()
        self.outer = outer
        #: id of a fake from outside -> how often it had been written to; 0 for those that are not in it
        self.before = before
        self.lifted: dict[torch.fx.Node, torch.fx.Node] = {}
        self.last_input: torch.fx.Node | None = None
        self.versions: dict[torch.fx.Node, int] = {}

    def create_node(self, op: str, target: Any, args: Any = None, kwargs: Any = None, *rest: Any, **more: Any) -> Any:
        if op == "placeholder":
            return super().create_node(op, target, args, kwargs, *rest, **more)
        args = torch.fx.map_arg(args or (), self.lift)
        kwargs = torch.fx.map_arg(kwargs or {}, self.lift)
        return super().create_node(op, target, args, kwargs, *rest, **more)

    def add_input(self, name: str, value: Any) -> torch.fx.Node:
        """A placeholder after those that there are."""
        if self.last_input is None:
            first = next(iter(self.nodes), None)
            place = self.inserting_before(first) if first is not None else self.inserting_before(None)
        else:
            place = self.inserting_after(self.last_input)
        with place:
            node = self.placeholder(name)
        node.target = node.name  # a body in a body lifts inputs whose name it has given away itself
        node.meta["val"] = value
        node.meta["stack_trace"] = ""
        self.last_input = node
        return node

    def written(self) -> list[torch.fx.Node]:
        """The inputs that the body wrote to."""
        return [node for node, version in self.versions.items() if node.meta["val"]._version != version]

    def lift(self, node: torch.fx.Node) -> torch.fx.Node:
        if node.graph is self:
            return node
        found = self.lifted.get(node)
        if found is None:
            value = node.meta.get("val")
            found = self.lifted[node] = self.add_input(node.name, value)
            if isinstance(value, torch.Tensor) and not value.is_inference():
                self.versions[found] = self.before.get(id(value), 0)
        return found


class Body:
    """A translated body: its module, the flat result, and the outer values that it uses."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        result: VariableTracker,
        leaves: list[Any],
        graph: BodyGraph,
        entered: list[tuple[Any, Any]],
    ):
        self.module = module
        self.result = result
        self.leaves = leaves
        #: the trackers of its inputs: outside, and in it
        self.entered = entered
        self.lifted = list(graph.lifted)
        self.impure = any("impure" in n.meta for n in graph.nodes)
        written = graph.written()
        lifted = set(graph.lifted.values())
        #: does it write to tensors that it was given, or to others from outside?
        self.writes_to_arguments = any(node not in lifted for node in written)
        self.writes_to_others = any(node in lifted for node in written)


def is_leaf(vt: VariableTracker) -> bool:
    return isinstance(vt, TensorVariable) or getattr(vt, "is_symbolic_number", False)


def map_leaves(tx: Any, vt: VariableTracker, change: Callable[[VariableTracker], VariableTracker]) -> VariableTracker:
    """``vt`` with its tensors replaced; containers are made anew."""
    vt = vt.realize()
    if isinstance(vt, TensorVariable):
        return change(vt)
    kind = type(vt)
    if kind is TupleVariable:
        return TupleVariable([map_leaves(tx, i, change) for i in vt.items])
    if kind is ListVariable:
        return ListVariable([map_leaves(tx, i, change) for i in vt.items])
    storage = getattr(vt, "storage", None)
    if type(storage) is TupleVariable and hasattr(vt.python_type(), "_fields"):
        return NamedTupleVariable([map_leaves(tx, i, change) for i in storage.items], vt.python_type())
    if isinstance(vt, StructSequenceVariable):
        return StructSequenceVariable([map_leaves(tx, i, change) for i in vt.items], vt.struct)
    if isinstance(vt, DictVariable):
        vt.guard_all_keys(tx)
        fresh = kind()
        for key, (k, v) in vt.entries.items():
            fresh.insert(key, k, map_leaves(tx, v, change))
        return fresh
    return vt


def leaves_of(tx: Any, vt: VariableTracker) -> list[VariableTracker]:
    """The tensors in ``vt``, in order."""
    found: list[VariableTracker] = []

    def note(leaf: VariableTracker) -> VariableTracker:
        found.append(leaf)
        return leaf

    map_leaves(tx, vt, note)
    return found


def translate_body(
    tx: Any,
    fn: VariableTracker,
    args: list[VariableTracker],
    kwargs: dict[str, VariableTracker] | None = None,
    *,
    fake_of: Callable[[Any], Any] | None = None,
    first: list[VariableTracker] | None = None,
    pure: bool = False,
) -> Body:
    """Translate a call of ``fn`` into a graph of its own.

    The tensors of ``first`` and then those in ``args`` and ``kwargs`` become the body's inputs. ``fake_of``: the fake
    that the body sees for each. ``pure``: break if the body changes anything outside itself.
    """
    output = tx.output
    outer = output.graph
    mark = ("body", output.count)
    if output.decisions.get(mark):
        raise GraphBreak("higher_order", reason="a tensor made inside the called function is used outside it")
    graph = BodyGraph(outer, {id(fake): fake._version for fake in output._tracked if not fake.is_inference()})
    inputs: dict[int, VariableTracker] = {}
    entered: list[tuple[Any, Any]] = []

    def enter(leaf: Any) -> VariableTracker:
        found = inputs.get(id(leaf))
        if found is None:
            leaf.as_proxy()  # an outer input exists before the body does
            fake = leaf.fake if fake_of is None else fake_of(leaf)
            if fake is leaf.fake or fake.vt is not None:
                fake = _copy(fake)
            node = graph.add_input(f"arg{len(inputs)}", fake)
            if not fake.is_inference():
                graph.versions[node] = fake._version
            found = inputs[id(leaf)] = TensorVariable(node, fake, None, torch.Tensor)
            output.track(fake, found)
            entered.append((leaf, found))
        return found

    for leaf in first or ():
        enter(leaf)
    inner_args = [map_leaves(tx, a, enter) for a in args]
    inner_kwargs = {k: map_leaves(tx, a, enter) for k, a in (kwargs or {}).items()}
    attributes, output.module_attributes = output.module_attributes, {}
    before = output.side_effects.state_of_changes() if pure else None
    output.graph = graph
    output.body_marks.append(mark)
    direct, tx.direct_call = tx.direct_call, False
    grad_mode = torch.is_grad_enabled()
    try:
        result = fn.call_function(tx, inner_args, inner_kwargs)
        leaves = leaves_of(tx, result)
        graph.output(tuple(graph.lift(leaf.as_proxy()) for leaf in leaves))
    except ObservedException as e:
        raise GraphBreak("higher_order", reason=f"{e.vt.python_type().__name__} is raised in the body") from None
    finally:
        output.body_marks.pop()
        output.graph = outer
        inner_attributes, output.module_attributes = output.module_attributes, attributes
        tx.direct_call = direct
    if torch.is_grad_enabled() != grad_mode:
        raise GraphBreak("higher_order", reason="the body changes the grad mode")
    if pure and output.side_effects.state_of_changes() != before:
        raise GraphBreak("higher_order", reason="the body changes something outside itself")
    output.bodies[graph] = mark
    root: Any = torch.nn.Module() if inner_attributes else {}
    for name, value in inner_attributes.items():
        setattr(root, name, value)
    _remove_unused(graph)
    module = torch.fx.GraphModule(root, graph, "Body")
    return Body(module, result, leaves, graph, entered)


def _remove_unused(graph: torch.fx.Graph) -> None:
    for node in reversed(graph.nodes):
        if not node.users and node.op not in ("placeholder", "output") and "impure" not in node.meta:
            graph.erase_node(node)


def _copy(fake: Any) -> Any:
    """Another fake with the same metadata."""
    from ..fake import Fake

    shape, stride, dtype, device, offset = fake.mk
    return Fake.make(shape, stride, dtype, device, offset, fake.requires_grad)


def body_node(tx: Any, body: Body) -> torch.fx.Node:
    """The node that gives the body's module."""
    output = tx.output
    name = f"body_{len(output.module_attributes)}"
    output.module_attributes[name] = body.module
    node = output.graph.create_node("get_attr", name, (), {})
    node.meta.update(val=body.module, stack_trace=tx.stack_trace())
    return node


def call_with_body(tx: Any, target: Any, bodies: list[Body], args: tuple[Any, ...], kwargs: Any = None) -> list[Any]:
    """The node ``target(*args)``: trackers of its flat results."""
    output = tx.output
    impure = any(b.impure for b in bodies)
    try:
        vt = output.create_node("call_function", target, args, kwargs or {}, impure=impure)
    except GraphBreak as e:
        if e.kind.id not in ("torch_unsupported", "torch_call_failed"):
            raise
        # Rules of functorch change metadata in place, which fakes cannot follow; plain meta tensors can.
        try:
            results = _on_meta_tensors(target, args, kwargs or {})
        except Exception:
            raise e from None
        node = output.graph.create_node("call_function", target, args, kwargs or {})
        output.op_count += 1
        node.meta.update(val=results, stack_trace=tx.stack_trace())
        if impure:
            node.meta["impure"] = True
        vt = output.wrap_result(node, results)
    return list(vt.realize().items)


def _on_meta_tensors(target: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
    from ..fake import Fake

    device: Any = None

    def value(node: torch.fx.Node) -> Any:
        nonlocal device
        fake = node.meta["val"]
        if type(fake) is not Fake:
            return fake
        shape, stride, dtype, fake_device, _ = fake.mk
        device = device or fake_device
        made = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        return made.requires_grad_() if fake.requires_grad else made

    found = []
    for t in target(*torch.fx.map_arg(args, value), **torch.fx.map_arg(kwargs, value)):
        fake = Fake.make(tuple(t.shape), tuple(t.stride()), t.dtype, device, 0, t.requires_grad)
        found.append(fake.view_as_fake() if t.requires_grad else fake)  # type: ignore[attr-defined]
    return tuple(found)


def rebuild(tx: Any, structure: VariableTracker, values: list[VariableTracker]) -> VariableTracker:
    """``structure`` with its tensors replaced by ``values``, in order."""
    feed = iter(values)
    return map_leaves(tx, structure, lambda leaf: next(feed))


__all__ = [
    "Body",
    "BodyGraph",
    "body_node",
    "call_with_body",
    "is_leaf",
    "leaves_of",
    "map_leaves",
    "rebuild",
    "translate_body",
]
