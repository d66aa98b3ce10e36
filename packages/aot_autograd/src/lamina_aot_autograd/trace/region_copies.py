"""Regions that leave no call behind: traced once, their nodes copied into the outer graph for each call.

A call of a region as one node (see `region_calls`) needs a compiler that knows regions, fixed sizes, and a stretch that
may be compiled on its own. Where one of these is missing (convolutions, whose layout is chosen for a whole graph;
training batch norm, which writes its running statistics; symbolic sizes; any other compiler) the region is still traced
only once. What every call costs then is one node for each node of the region's joint graph, which is a fraction of
what tracing it costs, and whoever takes the outer graph sees the graph that plain tracing gives.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload

from .._torch import append_node, increment_version
from ..errors import UnsupportedError
from . import op_info
from .tensor import TraceTensor


class RegionRefused(UnsupportedError):
    """The graph has to be traced without regions."""


class Copied:
    """A region's joint graph for one kind of arguments, and how a copy of it is wired into the outer graph."""

    def __init__(self, joint: Any) -> None:
        meta = joint.metadata
        if meta.num_bases or meta.final_grad_enabled != meta.grad_enabled:
            raise RegionRefused("a region that leaves another mode, or whose results share memory")
        if [o.slot for o in meta.outputs if o.kind == "value"] != list(range(len(meta.outputs))):
            raise RegionRefused("a result of a region that shares memory with another value")
        self.mutated = list(meta.mutated)
        self.inputs = meta.inputs
        if any(meta.differentiable[: len(self.mutated)]):
            raise RegionRefused("a region that writes to an argument with gradient")
        nodes = list(joint.gm.graph.nodes)
        results: Any = nodes[-1].args[0]
        self.constants = joint.gm
        self.count = len(meta.outputs)
        self.placeholders = [n for n in nodes if n.op == "placeholder"]
        given = meta.num_forward_inputs
        self.tangent_vals = [n.meta["val"] for n in self.placeholders[given:]]
        self.tangents = [p - len(self.mutated) for p in joint.tangents] if meta.needs_autograd else []
        body = [n for n in nodes if n.op in ("call_function", "get_attr")]
        self.forward = [n for n in body if n.meta["partition"] == "forward"]
        self.backward = [n for n in body if n.meta["partition"] != "forward"]
        self.written = results[: len(self.mutated)]
        self.results = results[len(self.mutated) : len(self.mutated) + self.count]
        if not all(_is_tensor(n) for n in (*self.written, *self.results)):
            raise RegionRefused("a result of a region that is no tensor")
        self.differentiable = meta.differentiable[len(self.mutated) :]
        self.has_backward = bool(meta.needs_autograd)
        grads = results[len(self.mutated) + self.count :]
        self.gradients = dict(zip(meta.grad_inputs, grads)) if self.has_backward else {}
        reached = tangents_behind(self.backward, self.placeholders[given:])
        self.behind = {i: reached.get(n, 0) for i, n in self.gradients.items() if n is not None}
        self.watched_arguments, self.watched_results = self._watched(given)

    def _watched(self, given: int) -> tuple[list[int], list[int]]:
        """Arguments and results that the backward reads: autograd watches them as eager's does."""
        read = {used for node in self.backward for used in node.all_input_nodes}
        read.update(n for n in self.gradients.values() if n is not None)
        arguments = [
            i for i, n in enumerate(self.placeholders[:given]) if n in read and _is_tensor(n) and i not in self.mutated
        ]
        return arguments, [k for k, n in enumerate(self.results) if n in read]

    def call(self, tracer: Any, args: Sequence[Any], metas: Sequence[dict]) -> list[Any]:
        """Copy the region for one call; its results as trace tensors. `metas`: of the captured nodes that it stands
        for."""
        self._check_apart(args)
        env = dict(zip(self.placeholders, [tracer.lower(a) for a in args]))
        if self.has_backward:
            results = list(_Copy.apply(tracer, self, env, metas, *args))
        else:
            self.copy_nodes(tracer, self.forward, env, metas, tracer.origin()[1])
            results = [fresh_of(tracer, env[n]) for n in self.results]
        for i, node in zip(self.mutated, self.written):
            value = env[node].meta["val"]
            with torch.set_grad_enabled(torch.is_grad_enabled() and not self.inputs[i].under_no_grad):
                tracer.store(args[i], env[node], (tuple(value.shape), value.stride(), value.dtype, value.device))
            for _ in range(self.inputs[i].version_bumps):
                increment_version([args[i]])
        return results

    def _check_apart(self, args: Sequence[Any]) -> None:
        """Refuses arguments that share memory with one that the region writes."""
        for i in self.mutated:
            if sum(isinstance(a, TraceTensor) and a._s is args[i]._s for a in args) > 1:
                raise RegionRefused("a region that writes to an argument which shares memory with another")

    def copy_nodes(
        self, tracer: Any, nodes: Sequence[fx.Node], env: dict, metas: Sequence[dict], number: int
    ) -> None:
        """Append copies of `nodes`, which read their values from `env` and put their own there."""
        phase = tracer.phase
        for node in nodes:
            val = node.meta["val"]
            if isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                env[node] = tracer.sizes.node_of(val)
                continue
            if node.op == "get_attr":
                env[node] = tracer.lower(getattr(self.constants, str(node.target)))
                continue
            args = fx.node.map_arg(node.args, env.__getitem__)
            kwargs = fx.node.map_arg(node.kwargs, env.__getitem__) if node.kwargs else {}
            copy = env[node] = append_node(tracer.graph, tracer.name(_base(node)), node.target, args, kwargs)
            position = node.meta.get("region_position")
            origin = metas[position] if position is not None else {}
            copy.meta = {"val": val, "seq_nr": number, "partition": phase}
            for key in ("stack_trace", "nn_module_stack"):
                if key in origin:
                    copy.meta[key] = origin[key]
            if tracer.recompute is not None and phase == "forward":
                copy.meta.update(recompute=tracer.recompute, checkpoint=tracer.checkpoint)


class _Copy(torch.autograd.Function):
    """One copy of a region with a backward, run on trace tensors."""

    @staticmethod
    def forward(ctx: Any, tracer: Any, region: Copied, env: dict, metas: Any, *args: Any) -> tuple:  # type: ignore[override]
        ctx.number = tracer.origin()[1]
        region.copy_nodes(tracer, region.forward, env, metas, ctx.number)
        results = tuple(fresh_of(tracer, env[n]) for n in region.results)
        ctx.tracer, ctx.region, ctx.env, ctx.metas = tracer, region, env, metas
        ctx.save_for_backward(
            *(args[i] for i in region.watched_arguments), *(results[k] for k in region.watched_results)
        )
        ctx.mark_non_differentiable(*(r for r, d in zip(results, region.differentiable) if not d))
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:  # type: ignore[override]
        tracer, region = ctx.tracer, ctx.region
        _ = ctx.saved_tensors
        env = dict(ctx.env)
        given = len(region.placeholders) - len(region.tangent_vals)
        for node, position, val in zip(region.placeholders[given:], region.tangents, region.tangent_vals):
            env[node] = tracer.lower(_fit(grads[position], val))
        region.copy_nodes(tracer, region.backward, env, ctx.metas, ctx.number)
        count = len(ctx.needs_input_grad) - 4
        present = sum(1 << k for k, p in enumerate(region.tangents) if grads[p] is not None)
        found = (region.gradients[i] if region.behind.get(i, 0) & present else None for i in range(count))
        return (None, None, None, None, *(None if n is None else fresh_of(tracer, env[n]) for n in found))


def tangents_behind(nodes: Sequence[fx.Node], tangents: Sequence[fx.Node]) -> dict[fx.Node, int]:
    """Per value of a backward the tangents it depends on, as bits. A gradient behind none that was given is None, as
    in eager."""
    bits = {node: 1 << k for k, node in enumerate(tangents)}
    for node in nodes:
        for used in node.all_input_nodes:
            bits[node] = bits.get(node, 0) | bits.get(used, 0)
    return bits


def fresh_of(tracer: Any, node: fx.Node) -> Any:
    """A trace tensor whose value is `node`."""
    val = node.meta["val"]
    return tracer.fresh(node, (tuple(val.shape), val.stride(), val.dtype, val.device))


def _fit(grad: Any, val: Any) -> Any:
    """The gradient, if it is laid out as the region was traced for."""
    if grad is None:
        zeros = torch.zeros(val.shape, dtype=val.dtype, device=val.device)
        return zeros if val.is_contiguous() else zeros.as_strided(val.shape, val.stride())
    if tuple(grad.shape) != tuple(val.shape) or grad.dtype is not val.dtype:
        raise RegionRefused("a gradient of a region of another kind")
    if tuple(grad.stride()) != tuple(val.stride()):
        if not val.is_contiguous():
            raise RegionRefused("a gradient of a region with other strides")
        return grad.contiguous()
    return grad


def _is_tensor(node: Any) -> bool:
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _base(node: fx.Node) -> str:
    if isinstance(node.target, OpOverload):
        return op_info.lookup(node.target).base
    return "getitem" if node.target is operator.getitem else getattr(node.target, "__name__", "value")


__all__ = ["Copied", "RegionRefused", "fresh_of", "tangents_behind"]
