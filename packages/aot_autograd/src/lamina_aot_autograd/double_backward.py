"""Gradients of gradients: a backward that autograd records.

When a backward runs with grad mode on (`create_graph=True`), the captured program runs again in eager, on the same
inputs and from the same random state, and autograd differentiates it. So every formula is eager's. Inputs that the
compiled backward does not save are held as well while that keeps no more memory than eager's graph would; larger ones
are held weakly, and if one of them is gone or was written to since, an error says so. Of an input that the program
writes to, a copy from before is kept, in the autograd graph of its time, within the same limits; where its earlier
values do not count, its place in that graph alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.fx as fx

from . import config
from .errors import AotError
from .joint import autocast_state
from .partition import Partition
from .partition.cost import bytes_of
from .schemas import JointGraph
from .trace.rules import is_dense
from .wrappers.dedup import AliasGroup


def placeholders_of(joint: JointGraph) -> list[fx.Node]:
    """Input nodes of a joint graph, tangents included."""
    return [n for n in joint.graph.nodes if n.op == "placeholder"]


def tensor_inputs(joint: JointGraph) -> list[bool]:
    """For each forward input, whether it is a tensor."""
    count = joint.metadata.num_forward_inputs
    return [isinstance(n.meta["val"], torch.Tensor) for n in placeholders_of(joint)[:count]]


SMALL = 1 << 20
"""Bytes up to which an input is held, whatever eager would hold."""


def inputs_to_hold(joint: JointGraph, parts: Partition, left: int) -> set[int]:
    """The forward inputs, besides the saved ones, that the autograd graph may keep alive: leaves with gradients, which
    it keeps alive anyway, small ones, and others of `left` bytes in all: no more is held than by eager.
    """
    saved = {v.position for v in parts.saved if v.kind == "input"}
    written = written_inputs(joint)
    infos = forward_infos(joint)
    found = set()
    for i, node in enumerate(placeholders_of(joint)[: joint.metadata.num_forward_inputs]):
        if not isinstance(node.meta["val"], torch.Tensor) or i in saved or i in written:
            continue
        size = bytes_of(node)
        info = infos[i]
        if size > SMALL and not (info is not None and info.requires_grad and info.is_leaf):
            if size > left:
                continue
            left -= size
        found.add(i)
    return found


def unreached_inputs(joint: JointGraph, parts: Partition) -> list[int]:
    """Forward inputs that require gradients and get none, whatever flows in: the graph's node is not to be tied to
    theirs, or autograd would run what lies behind them, and free it. (Not those that are held weakly.)
    """
    meta = joint.metadata
    slots = dict(zip(meta.grad_inputs, parts.gradient_slots, strict=True))
    if all(slot is None for slot in slots.values()):
        return []
    saved = {v.position for v in parts.saved if v.kind == "input"}
    held = inputs_to_hold(joint, parts, Written(joint, parts).left)
    if meta.keeps_inputs:
        held = set(slots)
    return [i for i, slot in slots.items() if slot is None and (i in saved or i in held or i in meta.mutated)]


def forward_infos(joint: JointGraph) -> list[Any]:
    """The InputInfo of each forward input; None for the base of a group of inputs."""
    infos: list[Any] = [i for i in joint.metadata.inputs if i.group < 0]
    return infos + [None] * (joint.metadata.num_forward_inputs - len(infos))


def written_inputs(joint: JointGraph) -> set[int]:
    """Forward inputs that the program writes to."""
    return set(joint.metadata.mutated)


def inputs_to_copy(joint: JointGraph) -> dict[int, int]:
    """Forward inputs that the program writes to and whose values before that lead to a result with gradients: their
    sizes in bytes.
    """
    meta = joint.metadata
    nodes = placeholders_of(joint)
    watched = {nodes[i]: i for i in meta.mutated if isinstance(nodes[i].meta["val"], torch.Tensor)}
    outputs = joint.graph.output_node().args[0][: meta.num_forward_outputs]  # type: ignore[index]
    stack = [o for o, flag in zip(outputs, meta.differentiable, strict=True) if flag and isinstance(o, fx.Node)]
    seen: set[fx.Node] = set()
    found: dict[int, int] = {}
    while stack and watched:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in watched:
            found[watched[node]] = bytes_of(node)
        stack.extend(_read_for_results(node))
    return found


def _read_for_results(node: fx.Node) -> list[fx.Node]:
    """The nodes that a node's results depend on. A batch norm in training only moves its running statistics, which are
    no results with gradients."""
    schema = getattr(node.target, "_schema", None)
    names = [a.name for a in schema.arguments] if schema is not None else []
    if "running_mean" not in names or "training" not in names:
        return node.all_input_nodes
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if given.get("training") is not True:
        return node.all_input_nodes
    kept = [v for name, v in given.items() if name not in ("running_mean", "running_var")]
    return [n for n in node.all_input_nodes if any(n is v for v in kept)]


class Written:
    """What the forward keeps of the inputs that the program writes to. copied: positions of those whose values from
    before are copied; tracked: those of them, and of the rest, that carry gradients; lost: too large to copy.
    """

    def __init__(self, joint: JointGraph, parts: Partition) -> None:
        meta = joint.metadata
        nodes = placeholders_of(joint)
        self.tracked = set(meta.mutated) & set(meta.grad_inputs)
        self.copied: list[int] = []
        self.lost: set[int] = set()
        left = parts.report.eager_bytes - parts.report.saved_bytes
        limit = config.get().copy_limit
        infos = forward_infos(joint)
        for i, size in sorted(inputs_to_copy(joint).items()):
            is_base_with_holes = infos[i] is None and not _is_packed(nodes[i].meta["val"])
            if size > max(limit, left) or is_base_with_holes:
                self.lost.add(i)
                continue
            if size > limit:
                left -= size
            self.copied.append(i)
        self.places = sorted(self.tracked - set(self.copied) - self.lost)
        self.left = left  # bytes that may be held besides, if no more is to be held than by eager


def _is_packed(value: torch.Tensor) -> bool:
    """True when a clone has the same strides."""
    return is_dense(tuple(value.shape), value.stride())


class _Place(torch.autograd.Function):
    """Zeros of a tensor's shape that take one element of memory and stand where the tensor stands in the autograd
    graph."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.new_zeros(()).expand(tensor.shape)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


def place_of(tensor: torch.Tensor) -> torch.Tensor:
    """See `_Place`."""
    with torch.enable_grad():
        return _Place.apply(tensor)


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor about to be written to, in the autograd graph."""
    with torch.enable_grad():
        return tensor.clone()


def rng_state(args: Sequence[Any]) -> tuple:
    """State of the generators that a graph on these inputs may draw from: (CPU, device, device state)."""
    device = next((a.device for a in args if isinstance(a, torch.Tensor) and a.device.type == "cuda"), None)
    return (torch.get_rng_state(), device, torch.cuda.get_rng_state(device) if device is not None else None)


class DoubleBackward:
    """Called as `(ctx, saved tensors, output gradients)`; gives one gradient per forward input, recorded by
    autograd."""

    def __init__(self, joint: JointGraph, parts: Partition, eager: Callable, groups: Sequence[AliasGroup]) -> None:
        self.metadata = joint.metadata
        self.eager = eager
        self.groups = groups
        self.autocast = autocast_state()
        self.saved_inputs = [v.position if v.kind == "input" else -1 for v in parts.saved if v.is_tensor]
        held = set(self.saved_inputs)
        count = joint.metadata.num_forward_inputs
        tensors = tensor_inputs(joint)
        self.loose = [i for i in range(count) if tensors[i] and i not in held]
        self.rigid = [i for i in range(count) if not tensors[i]]
        self.written = Written(joint, parts)
        self.mutated = set(joint.metadata.mutated)
        self.offsets = {
            i: placeholders_of(joint)[i].meta["val"].storage_offset() for i in range(count - len(groups), count)
        }

    def _refuse(self, why: str, hint: str = "") -> AotError:
        return AotError(
            f"a gradient of a gradient needs the program to run again, but {why}",
            hint=hint or "keep the inputs alive and unchanged until the second backward",
        )

    def _inputs(self, ctx: Any, saved: Sequence[Any]) -> list[Any]:
        """The forward's inputs, those that the program writes to as they were before; the actual tensors, or what
        stands for them in the autograd graph."""
        inputs: list[Any] = [None] * self.metadata.num_forward_inputs
        for position, tensor in zip(self.saved_inputs, saved, strict=True):
            if position >= 0:
                inputs[position] = tensor
        earlier = getattr(ctx, "earlier", {})
        held = getattr(ctx, "loose", ())  # input or weak reference, version, and so on
        for position, ref, version in zip(self.loose, held[::2], held[1::2], strict=True):
            if position in self.written.lost:
                why = f"input {position} was written to and is too large to be copied before"
                raise self._refuse(why, "raise copy_limit in lamina_aot_autograd.config")
            if position in earlier:
                inputs[position] = earlier[position]
                continue
            tensor = ref if isinstance(ref, torch.Tensor) else ref()
            if tensor is None:
                raise self._refuse(f"input {position} is gone")
            if tensor._version != version and position not in self.mutated:
                raise self._refuse(f"input {position} was modified by an inplace operation")
            inputs[position] = tensor
        for position, value in zip(self.rigid, getattr(ctx, "numbers", ()), strict=True):
            inputs[position] = value
        return inputs

    def __call__(self, ctx: Any, saved: Sequence[Any], grads: Sequence[Any]) -> tuple:
        meta = self.metadata
        inputs = self._inputs(ctx, saved)
        with torch.enable_grad():
            # what is written to are copies: the caller's tensors must not move twice
            feed = [
                (v.clone() if i in self.written.tracked else v.detach().clone()) if i in self.mutated else v
                for i, v in enumerate(inputs)
            ]
            args = self._captured_inputs(feed)
        outputs = self._forward_outputs(self._run(ctx, args), feed)
        wanted = [i for i in meta.grad_inputs if inputs[i].requires_grad]
        pairs = [
            (outputs[k], g)
            for k, g in enumerate(grads)
            if g is not None and isinstance(outputs[k], torch.Tensor) and outputs[k].requires_grad
        ]
        found = torch.autograd.grad(
            [o for o, _ in pairs],
            [inputs[i] for i in wanted],
            [g for _, g in pairs],
            create_graph=True,
            allow_unused=True,
        )
        result: list[Any] = [None] * meta.num_forward_inputs
        for i, grad in zip(wanted, found, strict=True):
            result[i] = grad
        return tuple(result)

    def _captured_inputs(self, feed: list[Any]) -> list[Any]:
        """The captured graph's inputs: those that share memory are views of their base's copy."""
        if not self.groups:
            return feed
        infos = self.metadata.inputs
        plain = iter(feed)
        args = [None if info.group >= 0 else next(plain) for info in infos]
        first = len(feed) - len(self.groups)
        for number, group in enumerate(self.groups):
            base, start = feed[first + number], self.offsets[first + number]
            for member in group.members:
                spec = group.views[member]
                value = base if spec is None else base.as_strided(spec[0], spec[1], spec[2] - start)
                args[member] = value if infos[member].requires_grad else value.detach()
        return args

    def _run(self, ctx: Any, feed: list[Any]) -> Any:
        with ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            for kind, (enabled, dtype) in zip(("cpu", "cuda"), self.autocast, strict=True):
                if enabled or torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))
            rng = getattr(ctx, "rng", None)
            if rng is not None:
                state, device, device_state = rng
                stack.enter_context(torch.random.fork_rng([device] if device is not None else []))
                torch.set_rng_state(state)
                if device is not None:
                    torch.cuda.set_rng_state(device_state, device)
            return self.eager(*feed)

    def _forward_outputs(self, results: Any, feed: list[Any]) -> list[Any]:
        meta = self.metadata
        if not meta.output_is_tuple:
            results = (results,)
        outputs: list[Any] = [None] * meta.num_forward_outputs
        for k, position in enumerate(meta.mutated):
            if meta.differentiable[k]:
                outputs[k] = feed[position]
        for info, value in zip(meta.outputs, results, strict=True):
            if info.kind == "value":
                outputs[meta.num_mutated + info.slot] = value
            elif info.kind == "base_view":
                outputs[meta.num_mutated + meta.num_values + info.source] = value._base
        return outputs
