"""Tracing a captured graph into one functional graph of forward and backward."""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload

from . import printing
from ._torch import (
    DisableAutocast,
    DispatchMode,
    append_node,
    lazy_graph_module,
    register_names,
    run_backward,
    without_saved_tensor_hooks,
)
from .collect_metadata import classify_outputs, describe_inputs, mutation_of
from .contract import require_graph
from .descriptors import InputDesc, OutputDesc
from .errors import UnsupportedError
from .interpret import Interpreter
from .observe import is_observed, report
from .regions import Region
from .schemas import GraphMetadata, JointGraph
from .trace.rules import contiguous, is_dense
from .trace.tensor import Storage, TraceTensor, make_root, make_value
from .trace.tracer import Tracer
from .wrappers.dedup import AliasGroup

aten = torch.ops.aten

# What autograd says in a backward that eager cannot run either.
_OWN_MISTAKES = {
    "modified by an inplace operation": "a tensor that the backward needs is overwritten",
    "has been modified inplace": "a view whose gradient eager refuses",
    "returned an invalid gradient": "an operator whose gradient has another shape than its input",
    "derivative for": "an operator without a derivative",
    "is not differentiable": "an operator without a derivative",
    "on tensor with symbolic sizes": "a derivative of torch's that takes no symbolic sizes",
}
_NOT_IN_NAMES = re.compile(r"\W", re.ASCII)


def trace_joint(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    decompositions: dict | None = None,
    groups: Sequence[AliasGroup] = (),
    with_backward: bool = True,
    regions: Any = None,
    observed: bool = True,
    sizes: Any = None,
) -> JointGraph:
    """Trace `gm` on tensors like `example_inputs` (real tensors, fakes, ints) into a JointGraph.

    decompositions: overload -> Python function traced in its place. groups: inputs that share memory and are written
    (see `wrappers.dedup`). with_backward=False leaves gradients out. regions: traces the calls of regions in `gm`
    (`trace.region_calls.RegionTracer`); None: they are traced as if written out. observed: tell listeners, write
    dumps. sizes: symbolic sizes known outside (`trace.sizes.SizeNodes`), for a part of a graph.
    Runs under the current grad mode and autocast state.
    Raises TraceError (or what the program itself raises).
    """
    start = time.perf_counter()
    with _ambient_state_kept():
        joint = _Trace(gm, example_inputs, decompositions, groups, with_backward, regions, sizes).run()
    joint.seconds = time.perf_counter() - start
    if not observed:
        return joint
    if is_observed():
        report("joint_graph", joint, joint.seconds)
    printing.dump(joint.gm, "joint", joint.seconds)
    return joint


@contextmanager
def _ambient_state_kept() -> Any:
    grad = torch.is_grad_enabled()
    torch.clear_autocast_cache()
    multithreading = torch.autograd.set_multithreading_enabled(False)
    multithreading.__enter__()
    try:
        with without_saved_tensor_hooks():
            yield
    finally:
        multithreading.__exit__(None, None, None)
        torch._C._set_grad_enabled(grad)
        torch.clear_autocast_cache()


def autocast_state() -> tuple:
    """What autocast does now, for comparison."""
    kinds = ("cpu", "cuda")
    return tuple((torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in kinds)


class _Trace:
    """One run of trace_joint."""

    def __init__(
        self,
        gm: fx.GraphModule,
        example_inputs: Sequence[Any],
        decompositions: dict | None,
        groups: Sequence[AliasGroup],
        with_backward: bool,
        regions: Any,
        sizes: Any,
    ) -> None:
        require_graph(gm, example_inputs)
        self.gm = gm
        self.examples = list(example_inputs)
        self.groups = list(groups)
        self.with_backward = with_backward
        self.regions = regions
        self.graph = fx.Graph()
        self.tracer = Tracer(self.graph, decompositions)
        self.tracer.sizes.outer = sizes
        self.input_descs: list[InputDesc] = []
        self.leaves: list[Any] = []  # per forward input: the tensor that gradients are taken for, or None
        self.roots: list[Any] = []  # per forward input: trace tensor or number
        self.start_grad_fn: dict[int, Any] = {}

    def run(self) -> JointGraph:
        placeholders = [n for n in self.gm.graph.nodes if n.op == "placeholder"]
        if len(placeholders) != len(self.examples):
            raise TypeError(f"the graph takes {len(placeholders)} inputs, {len(self.examples)} were given")
        grad_enabled = torch.is_grad_enabled()
        autocast = autocast_state()
        infos = describe_inputs(placeholders, self.examples, self.groups)
        values = self._make_inputs(placeholders, infos)
        with self.tracer:
            result = Interpreter(self.gm, self.tracer, self.regions).run(*values)
        if autocast_state() != autocast:
            raise UnsupportedError("the graph leaves autocast in another state")
        final_grad_enabled = torch.is_grad_enabled()
        is_tuple = isinstance(result, (tuple, list))
        flat = list(result) if is_tuple else [result]
        if any(isinstance(item, (tuple, list, dict)) for item in flat):
            raise UnsupportedError("outputs inside containers")
        _check_views(flat)
        if self.tracer.changed_constants():
            raise UnsupportedError("a write to a tensor that is not an input")
        return self._finish(flat, values, infos, grad_enabled, final_grad_enabled, is_tuple)

    # -- inputs -----------------------------------------------------------------------------------------------------

    def _make_inputs(self, placeholders: list[fx.Node], infos: list) -> list[Any]:
        grouped = {i: group for group in self.groups for i in group.members}
        values: list[Any] = [None] * len(placeholders)
        for i, node in enumerate(placeholders):
            if i not in grouped:
                values[i] = self._make_input(node, self.examples[i], infos[i], _kind_of(node, self.examples[i]), i)
        for number, group in enumerate(self.groups):
            base = self._make_base(group, number)
            with self.tracer:
                for member in group.members:
                    infos[member].group = number
                    spec = group.views[member]
                    values[member] = base if spec is None else base.as_strided(*spec)
                    if infos[member].requires_grad is False and values[member].requires_grad:
                        values[member] = values[member].detach()
        return values

    def _placeholder(self, name: str, val: Any, desc: InputDesc) -> fx.Node:
        name = self.tracer.name(name)
        node = append_node(self.graph, name, name, (), {}, "placeholder")
        node.meta["val"] = val
        node.meta["desc"] = desc
        node.meta["partition"] = "forward"
        self.input_descs.append(desc)
        return node

    def _make_input(self, captured: fx.Node, example: Any, info: Any, kind: str, index: int) -> Any:
        name = _plain_name(captured.name)
        desc = InputDesc(kind, index, str(captured.target))  # type: ignore[arg-type]
        if not info.is_tensor:
            fake = captured.meta.get("val")
            value = fake if isinstance(fake, torch.SymInt) else example
            node = self._placeholder(name, value, desc)
            self.tracer.sizes.add_source(value, node)
            self.leaves.append(None)
            self.roots.append(value)
            return value
        like = _symbolic_like(captured, example)
        return self._add_tensor(name, like, example, info.requires_grad, info.is_leaf, desc, captured)

    def _make_base(self, group: AliasGroup, number: int) -> Any:
        real = group.base_of(self.examples)
        desc = InputDesc("synthetic_base", number, f"of inputs {sorted(group.members)}")
        return self._add_tensor(f"base_{number}", real, real, real.requires_grad, real.is_leaf, desc, None)

    def _add_tensor(
        self,
        name: str,
        like: Any,
        example: Any,
        requires_grad: bool,
        is_leaf: bool,
        desc: InputDesc,
        captured: fx.Node | None,
    ) -> TraceTensor:
        shape, stride, offset = tuple(like.shape), like.stride(), like.storage_offset()
        val = make_value(shape, stride, example.dtype, example.device, requires_grad, offset)
        node = self._placeholder(name, val, desc)
        if captured is not None:
            for key in ("source", "nn_module_stack", "stack_trace", "tensor_dict"):
                if key in captured.meta:
                    node.meta[key] = captured.meta[key]
        for dim, size in enumerate(shape):
            self.tracer.sizes.add_source(size, node, dim)
        storage = Storage(node, shape, stride, example.dtype, example.device, offset)
        storage.input_index = len(self.roots)
        tensor = make_root(storage, requires_grad)
        leaf = tensor if requires_grad else None
        if requires_grad and not is_leaf:
            tensor = self._non_leaf(tensor)
        storage.root = tensor
        self.leaves.append(leaf)
        self.roots.append(tensor)
        self.start_grad_fn[len(self.roots) - 1] = tensor.grad_fn
        return tensor

    def _non_leaf(self, leaf: TraceTensor) -> TraceTensor:
        """A non-leaf tensor of the same storage: writes to it are allowed, gradients go to `leaf`."""
        with torch.enable_grad(), _SameValue(leaf._s):
            return torch.ops.aten.clone.default(leaf)

    # -- outputs ----------------------------------------------------------------------------------------------------

    def _finish(
        self, flat: list, values: list, infos: list, grad_enabled: bool, final_grad: bool, is_tuple: bool
    ) -> JointGraph:
        tracer = self.tracer
        mutated = [i for i, root in enumerate(self.roots) if isinstance(root, TraceTensor) and root._s.gen > 0]
        mutation_of(infos, self.groups, mutated, self.roots, self.start_grad_fn)
        outputs, slots, bases = classify_outputs(flat, values, self.roots)
        forward_tensors: list[Any] = []
        forward_nodes: list[fx.Node] = []
        differentiable: list[bool] = []
        for i in mutated:
            root = self.roots[i]
            forward_tensors.append(root)
            forward_nodes.append(root._s.node)
            differentiable.append(
                root.requires_grad and root.grad_fn is not None and root.grad_fn is not self.start_grad_fn[i]
            )
        for tensor in (*slots, *bases):
            forward_tensors.append(tensor)
            forward_nodes.append(tracer.lower(tensor))
            differentiable.append(isinstance(tensor, TraceTensor) and tensor.requires_grad)
        self._separate(forward_nodes, len(mutated), {self.roots[i]._s.input_index for i in mutated})
        grad_inputs = [i for i, leaf in enumerate(self.leaves) if leaf is not None]
        if not any(differentiable):
            grad_inputs = []
        tangents = [i for i, flag in enumerate(differentiable) if flag] if grad_inputs else []
        grads: list[Any] = []
        frees = True
        if tangents and self.with_backward:
            grads = self._trace_backward(forward_tensors, tangents, grad_inputs)
            frees = self._frees(forward_tensors, tangents, grad_inputs)
        meta = GraphMetadata(
            infos, outputs, mutated, len(slots), len(bases), differentiable, grad_inputs, grad_enabled, len(self.roots)
        )
        meta.final_grad_enabled = final_grad
        meta.frees = frees
        fresh = forward_tensors[len(mutated) :]
        meta.versions = [0] * len(mutated) + [_writes_to(t) for t in fresh]
        meta.output_is_tuple = is_tuple
        descs = [OutputDesc("mutated_input", i, str(self.input_descs[i].name)) for i in mutated]
        at = {o.slot: j for j, o in enumerate(outputs) if o.kind == "value"}
        descs += [
            OutputDesc("user_output", at[k]) if k in at else OutputDesc("view_size", k) for k in range(len(slots))
        ]
        descs += [OutputDesc("intermediate_base", k) for k in range(len(bases))]
        descs += [OutputDesc("gradient", i) for i in (grad_inputs if grads else [])]
        node = self.graph.output(tuple(forward_nodes + grads))
        node.meta["desc"] = descs
        register_names(self.graph)
        remove_dead_nodes(self.graph)
        module = lazy_graph_module(self._constants(), self.graph)
        return JointGraph(module, meta, self.input_descs, descs, tangents)

    def _constants(self) -> torch.nn.Module:
        root = torch.nn.Module()
        for name, value in self.tracer.constants.items():
            root.register_buffer(name, value, persistent=False)
        return root

    def _separate(self, nodes: list[Any], num_mutated: int, mutated_inputs: set) -> None:
        """Copy outputs that would share memory with an input or with an output of another storage."""
        seen: set[fx.Node] = set()
        for i, node in enumerate(nodes):
            if not isinstance(node, fx.Node) or not isinstance(node.meta["val"], torch.Tensor):
                continue
            origin = origin_of(node)
            is_input = origin.op in ("placeholder", "get_attr")
            if i < num_mutated:
                if not is_input:
                    continue
            elif not is_input and origin not in seen:
                seen.add(origin)
                continue
            val = node.meta["val"]
            nodes[i] = self.tracer.record(
                "clone", aten.clone.default, (node,), {}, make_value(val.shape, val.stride(), val.dtype, val.device)
            )

    def _trace_backward(self, tensors: list, tangents: list[int], grad_inputs: list[int]) -> list[Any]:
        tracer = self.tracer
        tracer.phase = "backward"
        grad_outputs = []
        for i in tangents:
            like = tensors[i]
            shape, stride = tuple(like.shape), like.stride()
            is_empty = any(type(size) is int and size == 0 for size in shape)
            if not is_empty and not is_dense(shape, stride):
                stride = contiguous(shape)
            desc = InputDesc("tangent", i)
            node = self._placeholder(f"tangent_{i}", make_value(shape, stride, like.dtype, like.device), desc)
            node.meta["partition"] = "backward"
            storage = Storage(node, shape, stride, like.dtype, like.device)
            storage.root = root = make_root(storage)
            grad_outputs.append(root)
        _move_placeholders_first(self.graph)
        with DisableAutocast(), tracer:
            try:
                results = run_backward(
                    tuple(tensors[i] for i in tangents), tuple(grad_outputs), tuple(self.leaves[i] for i in grad_inputs)
                )
            except RuntimeError as error:
                why = next((why for text, why in _OWN_MISTAKES.items() if text in str(error)), None)
                if why is None:
                    raise
                # the program's own mistake, and no mistake at all if it never calls backward
                raise UnsupportedError(why) from error
        return [None if grad is None else tracer.lower(grad) for grad in results]


    def _frees(self, tensors: list, tangents: list[int], grad_inputs: list[int]) -> bool:
        """Whether eager's backward frees what it saved, so that it cannot run again; asked where nothing is saved
        here."""
        for node in self.graph.nodes:
            if node.meta["partition"] == "backward" and any(map(_is_forward_value, node.all_input_nodes)):
                return True
        outputs = tuple(tensors[i] for i in tangents)
        with DisableAutocast(), self.tracer:
            try:
                run_backward(
                    outputs, tuple(torch.zeros_like(o) for o in outputs), tuple(self.leaves[i] for i in grad_inputs)
                )
            except RuntimeError:
                return True
        return False


def _is_forward_value(node: fx.Node) -> bool:
    return node.meta["partition"] != "backward" and isinstance(node.meta.get("val"), torch.Tensor)


def _writes_to(value: Any) -> int:
    """What the version counter of a traced value counts."""
    return value._version if isinstance(value, TraceTensor) and not value.is_inference() else 0


def _check_views(outputs: list[Any]) -> None:
    """Refuses outputs whose place in the autograd graph eager refuses to tell: views from an op with several views,
    whose base was written to since."""
    for out in outputs:
        if isinstance(out, TraceTensor) and out.requires_grad and out._is_view():
            try:
                out.grad_fn  # noqa: B018
            except RuntimeError as error:
                raise UnsupportedError(f"eager refuses the gradient of an output: {error}") from error


class _SameValue(DispatchMode):
    """Runs one clone as an alias: a new tensor object of the same storage, no graph node."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self.storage = storage

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return make_root(self.storage)


def _kind_of(node: fx.Node, example: Any) -> str:
    kind = node.meta.get("desc")
    if isinstance(kind, InputDesc):
        return kind.kind
    if isinstance(example, torch.nn.Parameter):
        return "parameter"
    if type(example).__name__ == "Buffer" or node.meta.get("is_buffer"):
        return "buffer"
    return "user_input"


def _plain_name(name: str) -> str:
    text = _NOT_IN_NAMES.sub("_", name)
    base, _, number = text.rpartition("_")
    return f"{text}_in" if number.isdigit() and base else text


def _symbolic_like(node: fx.Node, example: Any) -> Any:
    """The captured fake when it has symbolic sizes, else the example."""
    fake = node.meta.get("val", node.meta.get("example_value"))
    if isinstance(fake, torch.Tensor) and any(isinstance(s, torch.SymInt) for s in (*fake.shape, *fake.stride())):
        return fake
    return example


def origin_of(node: fx.Node) -> fx.Node:
    """The node whose memory this value would share when views are run as views."""
    from .trace.op_info import VIEW, lookup

    while True:
        target: Any = node.target
        if target is operator.getitem and isinstance(node.args[0], fx.Node):
            inner = node.args[0]
            if isinstance(inner.target, OpOverload) and lookup(inner.target).kind == VIEW:
                node = inner.args[0]  # type: ignore[assignment]
                continue
            return node
        if (
            isinstance(target, OpOverload)
            and node.args
            and isinstance(node.args[0], fx.Node)
            and (lookup(target).kind == VIEW or target is aten._unsafe_view.default)
        ):
            node = node.args[0]
            continue
        return node


def _move_placeholders_first(graph: fx.Graph) -> None:
    """Tangents are made after the forward's nodes but belong before them."""
    nodes = list(graph.nodes)
    last = None
    for node in nodes:
        if node.op == "placeholder":
            if last is not None and node.prev is not last:
                last.append(node)
            elif last is None and node.prev.op != "root":
                nodes[0].prepend(node)
            last = node


def is_kept_when_unused(node: fx.Node) -> bool:
    """Random ops stay, so that later draws are eager's; placeholders and the output stay."""
    from .trace.op_info import lookup

    if node.op in ("placeholder", "output"):
        return True
    target = node.target
    if isinstance(target, Region):
        return any(isinstance(t, OpOverload) and lookup(t).is_random for t in target.targets())
    return isinstance(target, OpOverload) and (
        lookup(target).is_random or target._schema.is_mutable or not target._schema.returns
    )


def remove_dead_nodes(graph: fx.Graph) -> None:
    """Erase nodes without users. Invariant: the values of the outputs and the random stream are the same."""
    for node in reversed(list(graph.nodes)):
        if not node.users and not is_kept_when_unused(node):
            graph.erase_node(node)


def check_traceable(examples: Sequence[Any]) -> None:
    """Raise UnsupportedError for inputs that only eager handles."""
    from ._torch import forward_mode, interpreter_stack, is_functorch_tensor

    if interpreter_stack() is not None:
        raise UnsupportedError("a torch.func transform is active")
    if forward_mode._current_level >= 0:
        raise UnsupportedError("forward-mode differentiation is active")
    for value in examples:
        if isinstance(value, torch.Tensor):
            kind = type(value)
            if (
                kind is not torch.Tensor
                and kind is not torch.nn.Parameter
                and kind.__name__ not in ("Buffer", "FakeTensor")
            ):
                raise UnsupportedError(f"an input of tensor class {kind.__name__}")
            if value.layout is not torch.strided or value.is_quantized:
                raise UnsupportedError(f"an input of layout {value.layout}")
            if is_functorch_tensor(value):
                raise UnsupportedError("an input that belongs to a torch.func transform")
            if value.is_inference() and torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
                raise UnsupportedError("an inference tensor in a graph that may record gradients")
            if value.is_conj() or value.is_neg():
                raise UnsupportedError("an input with a pending conjugation or negation")
