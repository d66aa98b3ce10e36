"""Calls of a region while a graph is traced: the region is traced and partitioned once for each kind of arguments.

The first call with given metadata of its arguments (shapes, strides, dtypes, which of them carry gradient), grad mode
and
autocast state traces the region's own joint graph and cuts it in two. Every call then is one node in the forward of the
outer graph and, where gradients flow, one in its backward: what a custom autograd function would do at run time, at
trace time.

Whatever a region cannot express raises `RegionRefused`: results that share memory with arguments or with each other,
writes to arguments, another mode at the end. The graph is then traced without regions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..regions import STANDS_FOR, Region, describe, has_symbols, is_described
from .region_copies import Copied, RegionRefused, tangents_behind
from .rules import contiguous
from .tensor import TraceTensor, make_value


class Traced:
    """A region as compiled for one kind of arguments: its forward and backward halves, and how they connect."""

    def __init__(self, name: str, joint: Any, partition: Callable[..., Any] | None) -> None:
        meta = joint.metadata
        if meta.mutated or meta.num_bases or meta.final_grad_enabled != meta.grad_enabled:
            raise RegionRefused("a region that writes to its arguments or leaves another mode")
        if [o.slot for o in meta.outputs if o.kind == "value"] != list(range(len(meta.outputs))):
            raise RegionRefused("a result of a region that shares memory with another value")
        self.count = len(meta.outputs)
        self.differentiable = [o.differentiable for o in meta.outputs]
        self.has_backward = meta.needs_autograd
        if not self.has_backward:
            self.forward = Region(name, joint.gm)
            self.forward_vals = _output_vals(joint.gm)[: self.count]
            return
        assert partition is not None
        parts = partition(joint)
        if not all(v.is_tensor for v in parts.saved):
            raise RegionRefused("a region that saves sizes")
        self.forward = Region(name, parts.forward)
        self.backward = Region(f"{name}_backward", parts.backward)
        self.forward_vals = _output_vals(parts.forward)
        self.backward_vals = _output_vals(parts.backward)
        self.saved = [(v.kind, v.position) for v in parts.saved]
        self.tangents = list(parts.tangents)
        self.slots = dict(zip(meta.grad_inputs, parts.gradient_slots, strict=True))
        placeholders = [n for n in parts.backward.graph.nodes if n.op == "placeholder"]
        self.tangent_vals = [n.meta["val"] for n in placeholders[len(self.saved) :]]
        reached = tangents_behind(list(parts.backward.graph.nodes)[:-1], placeholders[len(self.saved) :])
        results: Any = parts.backward.graph.output_node().args[0]
        self.behind = {s: reached.get(results[s], 0) for s in self.slots.values() if s is not None}


def _output_vals(gm: fx.GraphModule) -> list[Any]:
    vals = [n.meta["val"] if isinstance(n, fx.Node) else None for n in gm.graph.output_node().args[0]]
    if not all(isinstance(v, torch.Tensor) for v in vals):
        raise RegionRefused("a result of a region that is no tensor")
    return vals


class RegionTracer:
    """Traces the regions of one compilation, each kind of call once. `partition(joint)` cuts a joint graph."""

    def __init__(self, partition: Callable[..., Any], decompositions: dict | None) -> None:
        self.partition = partition
        self.decompositions = decompositions
        self.known: dict[tuple, Traced | Copied] = {}

    def call(self, tracer: Any, region: Region, args: Sequence[Any], meta: dict) -> list[Any]:
        """Trace one call; results as trace tensors. `meta`: of the node that calls."""
        for a in args:
            if isinstance(a, torch.SymInt) and region.is_copied:
                continue
            if type(a) is not TraceTensor or a._s is None or a._s.real is not None:
                raise RegionRefused("an argument of a region that is no traced tensor")
        traced = self._find(tracer, region, args)
        if isinstance(traced, Copied):
            return traced.call(tracer, args, meta[STANDS_FOR])
        nodes = tuple(tracer.lower(a) for a in args)
        if traced.has_backward:
            return list(_Call.apply(tracer, traced, nodes, *args))
        return _record(tracer, traced.forward, nodes, traced.forward_vals, range(traced.count))[0]

    def _find(self, tracer: Any, region: Region, args: Sequence[Any]) -> Traced | Copied:
        from ..joint import autocast_state, trace_joint

        key = (region, tuple(describe(a) for a in args), torch.is_grad_enabled(), autocast_state())
        known = self.known.get(key)
        if known is None:
            if not all(map(is_described, key[1])) or (has_symbols(key[1]) and not region.is_copied):
                raise RegionRefused("an argument of a region with symbolic sizes")
            examples = [
                make_value(tuple(a.shape), a.stride(), a.dtype, a.device, a.requires_grad, a.storage_offset())
                if isinstance(a, torch.Tensor)
                else a
                for a in args
            ]
            name = region.__name__ if not self.known else f"{region.__name__}_{len(self.known)}"
            tracer.__exit__(None, None, None)  # what tracing the region runs is no part of the outer graph
            try:
                joint = trace_joint(
                    region.graph_module,
                    examples,
                    decompositions=self.decompositions,
                    observed=False,
                    sizes=tracer.sizes,
                )
                known = Copied(joint) if region.is_copied else Traced(name, joint, self.partition)
            except RegionRefused:
                raise
            except Exception as error:  # the program's own error or ours: tracing without regions decides
                raise RegionRefused(f"a region could not be traced: {error}") from error
            finally:
                tracer.__enter__()
            self.known[key] = known
        return known


def _record(
    tracer: Any, region: Region, nodes: tuple, vals: Sequence[Any], wanted: Sequence[int]
) -> tuple[list[Any], dict[int, fx.Node]]:
    """Append a call; (tensors of the wanted results, their nodes by position)."""
    copies = [make_value(v.shape, v.stride(), v.dtype, v.device) for v in vals]
    call = tracer.record(region.__name__, region, nodes, {}, copies)
    items: dict[int, fx.Node] = {}
    tensors = []
    for i in wanted:
        val = copies[i]
        items[i] = tracer.record("getitem", operator.getitem, (call, i), {}, val)
        tensors.append(tracer.fresh(items[i], (tuple(val.shape), val.stride(), val.dtype, val.device)))
    return tensors, items


class _Call(torch.autograd.Function):
    """One call of a region with a backward, run on trace tensors."""

    @staticmethod
    def forward(ctx: Any, tracer: Any, traced: Traced, nodes: tuple, *args: Any) -> tuple:  # type: ignore[override]
        count = traced.count
        saved = [p for kind, p in traced.saved if kind == "output"]
        wanted = [*range(count), *(p for p in dict.fromkeys(saved) if p >= count)]
        results, items = _record(tracer, traced.forward, nodes, traced.forward_vals, wanted)
        ctx.tracer, ctx.traced = tracer, traced
        ctx.saved_nodes = [nodes[p] if kind == "input" else items[p] for kind, p in traced.saved]
        # autograd watches these as eager's does: a later write to one is an error in the backward
        ctx.save_for_backward(
            *(args[p] for kind, p in traced.saved if kind == "input"), *(results[p] for p in saved if p < count)
        )
        ctx.mark_non_differentiable(*(r for r, d in zip(results, traced.differentiable) if not d))
        ctx.set_materialize_grads(False)
        return tuple(results[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:  # type: ignore[override]
        tracer, traced = ctx.tracer, ctx.traced
        _ = ctx.saved_tensors
        tangents = [_fit(grads[p], v) for p, v in zip(traced.tangents, traced.tangent_vals, strict=True)]
        nodes = (*ctx.saved_nodes, *(tracer.lower(t) for t in tangents))
        present = sum(1 << k for k, p in enumerate(traced.tangents) if grads[p] is not None)
        slots = sorted(s for s, bits in traced.behind.items() if bits & present)
        tensors, _ = _record(tracer, traced.backward, nodes, traced.backward_vals, slots)
        by_slot = dict(zip(slots, tensors))
        count = len(ctx.needs_input_grad) - 3
        return (None, None, None, *(by_slot.get(traced.slots.get(i)) for i in range(count)))


def _fit(grad: Any, val: Any) -> Any:
    """The gradient with the strides that the backward half was traced for."""
    shape, stride = tuple(val.shape), tuple(val.stride())
    if grad is not None and tuple(grad.stride()) == stride and grad.dtype is val.dtype:
        return grad
    if stride != tuple(contiguous(shape)):
        raise RegionRefused("a gradient of a region with other strides")
    if grad is None:
        return torch.zeros(shape, dtype=val.dtype, device=val.device)
    return grad.to(val.dtype).contiguous()


__all__ = ["RegionRefused", "RegionTracer", "Traced"]
