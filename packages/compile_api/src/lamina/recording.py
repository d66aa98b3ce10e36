"""One run of a compiled program and what its stages reported: the base of explain, check, bisect, minify."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from . import events
from .compile import captured, resolve_backend
from .module import CompiledModule, original_of
from .options import CompileOptions


@dataclass
class Graph:
    """One captured graph: the graph of torch calls, its example inputs, and the flat graphs made from it."""

    gm: torch.fx.GraphModule
    inputs: list[Any]
    lowered: list[Any] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class Recording:
    """What one run gave: result or exception, graphs in the order they were captured, all events."""

    graphs: list[Graph] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    result: Any = None
    gradients: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    compiled: Callable[..., Any] | None = None


def plain(model: Any) -> Any:
    """Return the uncompiled function or module behind a compiled one."""
    if isinstance(model, CompiledModule):
        return original_of(model)
    return getattr(model, "__lamina_original__", model)


def leaves(tree: Any) -> list[torch.Tensor]:
    """Return the tensors in nested containers, in order; objects with attributes are looked into one level deep."""
    found = []
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif hasattr(leaf, "to_tuple"):
            found += leaves(leaf.to_tuple())
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, torch.nn.Module) and not callable(leaf):
            found += [v for v in vars(leaf).values() if isinstance(v, torch.Tensor)]
    return found


def gradient_inputs(model: Any, args: Any) -> list[torch.Tensor]:
    """Return the tensors whose gradients a training step of the call would fill."""
    own = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    return [t for t in [*own, *leaves(args)] if t.requires_grad and t.is_leaf]


def gradients(result: Any, wanted: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """Return gradients of the sum of all floating outputs; nothing is accumulated into `.grad`."""
    parts = [torch.view_as_real(o) if o.is_complex() else o for o in leaves(result) if o.requires_grad]
    if not parts or not wanted:
        return []
    total = sum((p.sum() for p in parts), torch.zeros((), device=parts[0].device))
    return list(torch.autograd.grad(total, wanted, allow_unused=True))


def record(
    model: Any,
    settings: CompileOptions,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *,
    backward: bool = True,
    backend: Callable[..., Any] | None = None,
    calls: int = 1,
) -> Recording:
    """Compile `model` afresh, call it, and return the recording. An exception is kept, not raised."""
    recording = Recording()
    model = plain(model)
    inner = backend or resolve_backend(settings)

    def observed(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        graph = Graph(copy_of(gm), list(example_inputs))
        recording.graphs.append(graph)
        return inner(gm, example_inputs)

    observed.__name__ = getattr(inner, "__name__", "backend")
    observed.keeps_contract = getattr(inner, "keeps_contract", False)  # type: ignore[attr-defined]
    fresh = CompileOptions(settings.mode, settings.dynamic, settings.fullgraph, observed, dict(settings.options))
    with events.listening(recording.events.append):
        try:
            compiled = recording.compiled = captured(model, fresh)
            for _ in range(calls):
                recording.result = compiled(*args, **kwargs)
            if backward:
                recording.gradients = gradients(recording.result, gradient_inputs(model, (args, kwargs)))
        except Exception as error:
            recording.error = error
    return recording


def copy_of(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return a copy of a graph that shares no node with it, node meta kept."""
    fresh = torch.fx.Graph()
    mapping: dict[Any, Any] = {}
    output = fresh.graph_copy(gm.graph, mapping)
    fresh.output(output)
    for old, new in mapping.items():
        new.meta = copy.copy(old.meta)
    return torch.fx.GraphModule(gm, fresh)
