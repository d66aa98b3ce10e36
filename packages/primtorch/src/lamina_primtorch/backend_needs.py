"""``completeness(graphs, implemented)``: what a backend must implement to run a set of models, and what it lacks.

``collect_graphs()`` gathers the graphs of models that run through any front end.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.fx as fx

from .contract import require_graph
from .decompose import decompose
from .observe import Event, on_event
from .spec import Prim

KINDS = {
    "prim": "one of lamina_primtorch.PRIMS: small, and its definition is complete",
    "extern": "a prim that keeps the semantics of an ATen overload: call a library, or lower it",
    "random": "an extern prim that draws from the device's generator",
    "call": "an ATen overload that is kept as it is: call it, or let torch run it",
    "number": "Python arithmetic on sizes",
}


class Need(NamedTuple):
    """One operation: its name (as in ``PRIMS`` or ``str(overload)``), its kind (a key of KINDS), how often it occurs,
    the graphs that have it, whether the backend has it, and what it computes.
    """

    name: str
    kind: str
    calls: int
    graphs: tuple[str, ...]
    have: bool
    definition: str


@dataclass
class Completeness:
    """``needs``: the operations, the missing ones first, of these the ones first that most graphs wait for.
    ``missing``: graph -> names that it lacks (empty: it runs). ``str()`` is the report.
    """

    needs: list[Need] = field(default_factory=list)
    missing: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Every graph runs."""
        return not any(self.missing.values())

    def __str__(self) -> str:
        lacking = [n for n in self.needs if not n.have]
        runs = [g for g, names in self.missing.items() if not names]
        lines = [
            f"{len(self.needs)} operations in {len(self.missing)} graphs; {len(lacking)} not implemented;"
            f" {len(runs)} graphs run",
            "",
        ]
        width = max([len(n.name) for n in self.needs], default=4)
        for need in self.needs:
            mark = "have   " if need.have else "MISSING"
            where = f"{need.calls:>5} calls in {len(need.graphs)} graphs"
            lines.append(f"{mark}  {need.name:<{width}}  {need.kind:<6}  {where}  {need.definition}".rstrip())
        if self.missing:
            lines.append("")
        for graph, names in self.missing.items():
            lines.append(f"{graph}: {'lacks ' + ', '.join(names) if names else 'runs'}")
        used = {n.kind for n in self.needs}
        lines += ["", *(f"{kind:<6}  {text}" for kind, text in KINDS.items() if kind in used)]
        return "\n".join(lines)

    __repr__ = __str__


def name_of(target: Any) -> str:
    """The name under which a backend implements a node's target."""
    if isinstance(target, Prim):
        return target.name
    return str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))


def completeness(
    graphs: Mapping[str, fx.GraphModule] | Sequence[fx.GraphModule],
    implemented: Collection[str] | Callable[[str], bool] = (),
) -> Completeness:
    """What a backend needs for ``graphs``, flat ATen graphs or graphs of prims, by name or in a list.

    implemented: names that the backend has ("add", "convolution", "aten.sort.stable"), or a predicate. Taking an item
    of a tuple (``operator.getitem``) is not counted.
    """
    if not isinstance(graphs, Mapping | list | tuple):
        raise TypeError(f"graphs is a list of GraphModules or a dict of them by name, not {type(graphs).__name__}")
    for gm in graphs.values() if isinstance(graphs, Mapping) else graphs:
        require_graph(gm)
    if isinstance(implemented, str) or not (callable(implemented) or hasattr(implemented, "__contains__")):
        raise TypeError(f"implemented is a collection of names or a predicate, not {implemented!r}")
    named = dict(graphs) if isinstance(graphs, Mapping) else {f"graph {i}": gm for i, gm in enumerate(graphs)}
    has = implemented if callable(implemented) else implemented.__contains__
    calls: dict[str, int] = {}
    found: dict[str, Any] = {}
    where: dict[str, list[str]] = {}
    for graph, gm in named.items():
        for target in _targets(gm if _is_low(gm) else decompose(gm)):
            name = name_of(target)
            found[name] = target
            calls[name] = calls.get(name, 0) + 1
            if graph not in where.setdefault(name, []):
                where[name].append(graph)
    needs = [
        Need(name, _kind(target), calls[name], tuple(where[name]), bool(has(name)), _definition(target))
        for name, target in found.items()
    ]
    needs.sort(key=lambda n: (n.have, -len(n.graphs), -n.calls, n.name))
    lacking = {n.name for n in needs if not n.have}
    return Completeness(needs, {g: sorted(n for n in lacking if g in where[n]) for g in named})


@contextmanager
def collect_graphs() -> Iterator[dict[str, fx.GraphModule]]:
    """Inside the block every graph that is decomposed, by whatever front end, goes into the dict, by number."""
    graphs: dict[str, fx.GraphModule] = {}

    def keep(event: Event) -> None:
        if event.name == "decomposed":
            graphs[f"graph {len(graphs)}"] = event.payload["graph"]

    remove = on_event(keep)
    try:
        yield graphs
    finally:
        remove()


def _is_low(gm: fx.GraphModule) -> bool:
    return any(isinstance(n.target, Prim) for n in gm.graph.nodes)


def _targets(gm: fx.GraphModule) -> Iterator[Any]:
    """The targets of all calls, those of regions (graphs that are called) as often as they are called."""
    for node in gm.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        inner = getattr(node.target, "graph_module", None)
        if inner is not None:
            yield from _targets(inner)
        else:
            yield node.target


def _kind(target: Any) -> str:
    if isinstance(target, Prim):
        return "random" if target.is_random else "extern" if "extern" in target.spec.tags else "prim"
    return "call" if isinstance(target, torch._ops.OpOverload) else "number"


def _definition(target: Any) -> str:
    if isinstance(target, Prim):
        aten = f" ({target.spec.aten_name})" if target.spec.aten_name else ""
        return target.spec.doc + aten
    if isinstance(target, torch._ops.OpOverload):
        from .report import classify

        if target.namespace == "aten":
            overload = target._overloadname
            return classify(target._schema.name + ("" if overload == "default" else f".{overload}"))[1]
        return "an operator of another library"
    return ""
