"""Gradients of gradients: a backward that autograd records.

When a backward runs with grad mode on (`create_graph=True`), the captured program runs again in eager, on the same
inputs and from the same random state, and autograd differentiates it. So every formula is eager's. Inputs that the
compiled backward does not save are held as well while that keeps no more memory than eager's graph would; larger ones
are held weakly, and if one of them is gone or was written to since, an error says so. Of an input that the program
writes to, and whose earlier values count, a small one is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.fx as fx

from .errors import AotError
from .joint import autocast_state
from .partition import Partition
from .partition.cost import bytes_of
from .schemas import JointGraph
from .wrappers.dedup import AliasGroup


def placeholders_of(joint: JointGraph) -> list[fx.Node]:
    """Input nodes of a joint graph, tangents included."""
    return [n for n in joint.graph.nodes if n.op == "placeholder"]


def tensor_inputs(joint: JointGraph) -> list[bool]:
    """For each forward input, whether it is a tensor."""
    count = joint.metadata.num_forward_inputs
    return [isinstance(n.meta["val"], torch.Tensor) for n in placeholders_of(joint)[:count]]


SMALL = 1 << 20
"""Bytes up to which an input is held, or copied before it is written to, whatever eager would hold."""


def inputs_to_hold(joint: JointGraph, parts: Partition) -> set[int]:
    """The forward inputs, besides the saved ones, that the autograd graph may keep alive: leaves with gradients, which
    it keeps alive anyway, small ones, and others as long as no more is held than by eager.
    """
    saved = {v.position for v in parts.saved if v.kind == "input"}
    written = written_inputs(joint)
    left = parts.report.eager_bytes - parts.report.saved_bytes
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


def forward_infos(joint: JointGraph) -> list[Any]:
    """The InputInfo of each forward input; None for the base of a group of inputs."""
    infos: list[Any] = [i for i in joint.metadata.inputs if i.group < 0]
    return infos + [None] * (joint.metadata.num_forward_inputs - len(infos))


def written_inputs(joint: JointGraph) -> set[int]:
    """Forward inputs that the program writes to."""
    return set(joint.metadata.mutated)


def inputs_to_copy(joint: JointGraph) -> dict[int, int]:
    """Forward inputs without gradients that the program writes to and whose values before that lead to a result with
    gradients: their sizes in bytes.
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
        stack.extend(node.all_input_nodes)
    return found


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
        self.earlier = inputs_to_copy(joint)

    def _refuse(self, why: str) -> AotError:
        return AotError(
            f"a gradient of a gradient needs the program to run again, but {why}",
            hint="keep the inputs alive and unchanged until the second backward",
        )

    def _inputs(self, ctx: Any, saved: Sequence[Any]) -> list[Any]:
        inputs: list[Any] = [None] * self.metadata.num_forward_inputs
        for position, tensor in zip(self.saved_inputs, saved, strict=True):
            if position >= 0:
                inputs[position] = tensor
        for position, (ref, version) in zip(self.loose, getattr(ctx, "loose", ()), strict=True):
            if position in self.earlier:
                inputs[position] = self._earlier(ctx, position)
                continue
            tensor = ref()
            if tensor is None:
                raise self._refuse(f"input {position} is gone")
            if tensor._version != version and not self.metadata.inputs[position].mutates_data:
                raise self._refuse(f"input {position} was modified by an inplace operation")
            inputs[position] = tensor
        for position, value in zip(self.rigid, getattr(ctx, "numbers", ()), strict=True):
            inputs[position] = value
        return inputs

    def _earlier(self, ctx: Any, position: int) -> torch.Tensor:
        """An input's values from before the program wrote to it."""
        value = getattr(ctx, "earlier", {}).get(position)
        if value is None:
            raise self._refuse(f"the values of input {position} from before it was written to are gone")
        return value

    def __call__(self, ctx: Any, saved: Sequence[Any], grads: Sequence[Any]) -> tuple:
        meta = self.metadata
        if self.groups or any(i.mutates_data and i.requires_grad for i in meta.inputs):
            raise self._refuse("the program writes to an input that carries gradients")
        inputs = self._inputs(ctx, saved)
        # values written outside autograd (running statistics) go to copies: they must not move twice
        feed = [
            v.detach().clone() if isinstance(v, torch.Tensor) and meta.inputs[i].mutates_data else v
            for i, v in enumerate(inputs)
        ]
        outputs = self._forward_outputs(self._run(ctx, feed))
        wanted = meta.grad_inputs
        pairs = [
            (outputs[k], g)
            for k, g in enumerate(grads)
            if g is not None and isinstance(outputs[k], torch.Tensor) and outputs[k].requires_grad
        ]
        found = torch.autograd.grad(
            [o for o, _ in pairs],
            [feed[i] for i in wanted],
            [g for _, g in pairs],
            create_graph=True,
            allow_unused=True,
        )
        result: list[Any] = [None] * meta.num_forward_inputs
        for i, grad in zip(wanted, found, strict=True):
            result[i] = grad
        return tuple(result)

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

    def _forward_outputs(self, results: Any) -> list[Any]:
        meta = self.metadata
        if not meta.output_is_tuple:
            results = (results,)
        outputs: list[Any] = [None] * meta.num_forward_outputs
        for info, value in zip(meta.outputs, results, strict=True):
            if info.kind == "value":
                outputs[meta.num_mutated + info.slot] = value
            elif info.kind == "base_view":
                outputs[meta.num_mutated + meta.num_values + info.source] = value._base
        return outputs
