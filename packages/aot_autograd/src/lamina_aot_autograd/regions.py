"""Repeated structure of a captured graph, found and rolled up.

A model of forty equal layers is captured as forty equal stretches of nodes. `roll_repeats` finds them by structure (op,
arguments, metadata of every value, wiring) and writes each stretch as one call of a `Region`, all of one run calling
the
same one. Tracing, partitioning and everything below then work once for a region and once for each call, not once for
each node of each layer (see `trace.region_calls`).

What is read from outside of a stretch is an argument, whatever it is in each call: parameters, a mask, what the layer
before left. Nothing else may differ. A stretch holds no node whose meaning depends on more than its arguments: no
change of a mode, no sub-graph, no attribute, no write to a tensor that the stretch did not make, unless that is an
input without gradient (running statistics).

A region is either called (`Region.is_copied` False: one node of the traced graph) or copied: traced once, its nodes
written out for each call, where a call would hide what the compiler must see (see `trace.region_copies`).
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F

from ._torch import append_node, copy_node, lazy_graph_module, register_names, set_grad_enabled

FEWEST_REPEATS = 3
FEWEST_NODES = 64
"""Nodes that rolling up must save: below that, compiling them costs less than a region's own overhead."""

REGION_POSITION = "region_position"
"""Key in the meta of a region's nodes, and of those traced from them: which node of the stretch it is."""

STANDS_FOR = "stands_for"
"""Key in the meta of a call of a copied region: the meta of the captured nodes that it stands for."""

_TRIED_PERIODS = 8

# Results of these are in memory whatever comes next, so a cut behind one separates nothing that would be fused.
_HEAVY = {
    F.linear, F.scaled_dot_product_attention, torch.matmul, torch.bmm, torch.addmm, torch.baddbmm, torch.mm,
    operator.matmul, "matmul",
}  # fmt: skip

# Where images lie in memory is chosen for a whole graph: regions with these are copied, not called.
_WHOLE_GRAPH = {F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d}

_STATEFUL = {
    set_grad_enabled,
    torch.amp.autocast_mode._enter_autocast,
    torch.amp.autocast_mode._exit_autocast,
}


class Region:
    """A graph that is called as one node: `region(*tensors) -> list of tensors`.

    graph_module: what it computes, positional tensors in, a flat tuple out. It is an FX `call_function` target; two
    nodes with the same target are two calls of the same region. Whoever rewrites a graph rewrites `graph_module` of
    each
    distinct region and puts `with_graph(new)` in its place. is_copied: it is traced once and leaves no call behind.
    """

    def __init__(self, name: str, graph_module: fx.GraphModule, is_copied: bool = False) -> None:
        self.graph_module = graph_module
        self.is_copied = is_copied
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__
        self._targets: frozenset[Any] | None = None

    def __call__(self, *args: Any) -> list[Any]:
        return list(self.graph_module(*args))

    def __repr__(self) -> str:
        return self.__name__

    def with_graph(self, graph_module: fx.GraphModule) -> Region:
        """A region of the same name that computes `graph_module`."""
        return Region(self.__name__, graph_module, self.is_copied)

    def targets(self) -> frozenset[Any]:
        """Targets of the calls inside."""
        if self._targets is None:
            self._targets = frozenset(n.target for n in self.graph_module.graph.nodes if n.op == "call_function")
        return self._targets


# -- structure ------------------------------------------------------------------------------------------------------


class _Plain(Exception):
    """Private: a node that no region may hold."""


class _Signatures:
    """Small numbers for nodes, equal for nodes that differ in nothing but which values they read; -1: never equal."""

    def __init__(self) -> None:
        self._values: dict[fx.Node, Any] = {}
        self._numbers: dict[Any, int] = {}

    def number(self, node: fx.Node) -> int:
        """The number of one node."""
        try:
            key = self._key(node)
            return self._numbers.setdefault(key, len(self._numbers))
        except (_Plain, TypeError):
            return -1

    def _key(self, node: fx.Node) -> Any:
        target: Any = node.target
        if node.op not in ("call_function", "call_method") or target in _STATEFUL:
            raise _Plain
        return (
            node.op,
            target,
            self._arguments(node.args),
            self._arguments(node.kwargs) if node.kwargs else None,
            self.value(node),
        )

    def _arguments(self, x: Any) -> Any:
        kind = type(x)
        if kind is fx.Node:
            return (fx.Node, self.value(x))
        if isinstance(x, (tuple, list)):
            return (kind, *[self._arguments(y) for y in x])
        if isinstance(x, dict):
            return (kind, *[(k, self._arguments(v)) for k, v in x.items()])
        if kind is slice:
            return (kind, self._arguments(x.start), self._arguments(x.stop), self._arguments(x.step))
        return _constant(x)

    def value(self, node: fx.Node) -> Any:
        """Metadata of a node's value, comparable."""
        found = self._values.get(node)
        if found is None:
            found = self._values[node] = describe(node.meta.get("val", node.meta.get("example_value")))
        if found is _UNKNOWN:
            raise _Plain
        return found


_UNKNOWN = object()
_CONSTANTS = (int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


def _constant(x: Any) -> Any:
    if not isinstance(x, _CONSTANTS):
        raise _Plain
    return (type(x), repr(x)) if isinstance(x, (float, complex)) else (type(x), x)


def describe(val: Any) -> Any:
    """Metadata of a value as a hashable key, symbolic sizes by their expressions; a private mark where it has none."""
    if isinstance(val, torch.Tensor):
        if val.layout is not torch.strided:
            return _UNKNOWN
        shape, stride, offset = tuple(val.shape), val.stride(), val.storage_offset()
        if not all(type(n) is int for n in (*shape, *stride, offset)):
            shape, stride = tuple(map(_size, shape)), tuple(map(_size, stride))
            offset = _size(offset)
        return ("tensor", shape, stride, offset, val.dtype, val.device, val.requires_grad)
    if isinstance(val, (tuple, list)):
        parts = tuple(describe(v) for v in val)
        return _UNKNOWN if any(p is _UNKNOWN for p in parts) else (type(val), parts)
    if val is None:
        return _UNKNOWN
    if isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return _Symbolic(val)
    try:
        return _constant(val)
    except _Plain:
        return _UNKNOWN


class _Symbolic:
    """A symbolic number in a key, equal where its expression is."""

    __slots__ = ("expression", "kind")

    def __init__(self, value: Any) -> None:
        self.expression, self.kind = value.node.expr, type(value)

    def __eq__(self, other: object) -> bool:
        return type(other) is _Symbolic and (self.expression, self.kind) == (other.expression, other.kind)

    def __hash__(self) -> int:
        return hash((self.expression, self.kind))


def _size(n: Any) -> Any:
    return n if type(n) is int else _Symbolic(n)


def has_symbols(key: Any) -> bool:
    """Is there a symbolic number in a key of `describe`?"""
    return type(key) is _Symbolic or (isinstance(key, tuple) and any(map(has_symbols, key)))


def is_described(key: Any) -> bool:
    """False for `describe`'s private mark."""
    return key is not _UNKNOWN


def _argument(node: fx.Node, position: int, name: str) -> Any:
    return node.kwargs.get(name, node.args[position] if position < len(node.args) else None)


def _writes_first_argument(node: fx.Node) -> bool:
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    name = str(name)
    if name.endswith("_") and not name.endswith("__"):
        return True
    return bool(node.kwargs.get("inplace")) or "out" in node.kwargs or name in _IN_PLACE_OPERATORS


_IN_PLACE_OPERATORS = frozenset(n for n in dir(operator) if n.startswith("i") and f"__{n}__" in dir(operator))


# -- runs -----------------------------------------------------------------------------------------------------------


class _Run:
    """Nodes [start, start + period * repeats) repeat with this period; `slots` and `outputs` as `_wiring` gives."""

    def __init__(
        self, start: int, period: int, repeats: int, inputs: list[list[fx.Node]], outputs: list[int], is_copied: bool
    ) -> None:
        self.start, self.period, self.repeats = start, period, repeats
        self.inputs = inputs  # per repeat: the values read from outside, in one order
        self.outputs = outputs  # positions in a repeat of the values that are read outside of it
        self.is_copied = is_copied


class _Finder:
    def __init__(self, gm: fx.GraphModule, with_calls: bool) -> None:
        self.with_calls = with_calls
        self.nodes = [n for n in gm.graph.nodes if n.op not in ("placeholder", "output")]
        self.signatures = signatures = _Signatures()
        self.numbers = [signatures.number(n) for n in self.nodes]
        self.at = {n: i for i, n in enumerate(self.nodes)}

    def find(self, low: int, high: int) -> list[_Run]:
        """Disjoint runs in nodes [low, high), in order."""
        if high - low <= FEWEST_NODES:
            return []
        run = self._longest(low, high)
        if run is None:
            return []
        end = run.start + run.period * run.repeats
        return [*self.find(low, run.start), run, *self.find(end, high)]

    def _longest(self, low: int, high: int) -> _Run | None:
        numbers = self.numbers
        gaps: Counter[int] = Counter()
        last: dict[int, int] = {}
        for i in range(low, high):
            number = numbers[i]
            if number < 0:
                continue
            if number in last:
                gaps[i - last[number]] += 1
            last[number] = i
        found = []
        for period, _ in gaps.most_common(_TRIED_PERIODS):
            i = low
            while i + period < high:
                j = i
                while j + period < high and numbers[j] >= 0 and numbers[j] == numbers[j + period]:
                    j += 1
                repeats = (j - i) // period + 1
                if repeats >= FEWEST_REPEATS and (repeats - 1) * period >= FEWEST_NODES:
                    found.append(((repeats - 1) * period, -period, i, j + period))
                i = max(j, i + 1)
        for _, negative, start, end in sorted(found, reverse=True):
            run = self._cut(start, end, -negative)
            if run is not None:
                return run
        return None

    def _cut(self, start: int, end: int, period: int) -> _Run | None:
        """Where to begin a repeat: behind an op whose result is in memory anyway, with few values crossing."""
        spare = (end - start) % period
        repeats = (end - start) // period
        best = None
        for shift in range(period):
            first = start + shift
            count = repeats if shift <= spare else repeats - 1
            if count < FEWEST_REPEATS or (count - 1) * period < FEWEST_NODES:
                break
            score = self._score(first, period)
            if best is None or score < best[0]:
                best = (score, first, count)
        return None if best is None else self._wiring(best[1], period, best[2])

    def _score(self, start: int, period: int) -> tuple[int, int]:
        nodes, at = self.nodes, self.at
        middle = start + period
        crossing = set()
        for i in range(middle, middle + period):
            for used in nodes[i].all_input_nodes:
                if start <= at.get(used, -1) < middle:
                    crossing.add(used)
        views = sum(1 for n in crossing if _is_view(n))
        elements = sum(n.meta["val"].numel() for n in crossing if isinstance(n.meta.get("val"), torch.Tensor))
        return len(crossing) + 20 * views + (0 if nodes[middle - 1].target in _HEAVY else 10), elements

    def _wiring(self, start: int, period: int, repeats: int) -> _Run | None:
        """The longest stretch of repeats that are wired alike."""
        shapes = [self._shape(start + k * period, period) for k in range(repeats)]
        first = 0
        best = (0, 0)
        for k in range(1, repeats + 1):
            if k == repeats or shapes[k] is None or shapes[first] is None or shapes[k][0] != shapes[first][0]:
                if shapes[first] is not None and k - first > best[1]:
                    best = (first, k - first)
                first = k
        first, count = best
        if count < FEWEST_REPEATS or (count - 1) * period < FEWEST_NODES:
            return None
        outputs: set[int] = set()
        for k in range(first, first + count):
            low = start + k * period
            for j in range(period):
                if any(not low <= self.at.get(user, -1) < low + period for user in self.nodes[low + j].users):
                    outputs.add(j)
        inputs = [shapes[k][1] for k in range(first, first + count)]  # type: ignore[index]
        start += first * period
        is_copied = not self.with_calls or self._must_be_copied(start, period)
        return _Run(start, period, count, inputs, sorted(outputs), is_copied)

    def _must_be_copied(self, start: int, period: int) -> bool:
        """Whether a stretch holds what a call would hide, or what a call cannot hold."""
        for node in self.nodes[start : start + period]:
            if node.target in _WHOLE_GRAPH or _outside_written(node, self.at, start) or self._is_symbolic(node):
                return True
        return False

    def _is_symbolic(self, node: fx.Node) -> bool:
        return any(has_symbols(self.signatures.value(n)) for n in (node, *node.all_input_nodes))

    def _shape(self, start: int, period: int) -> tuple[tuple, list[fx.Node]] | None:
        """(what each argument refers to, values read from outside) of one repeat; None where it writes to those."""
        slots: dict[fx.Node, int] = {}
        wires: list[tuple] = []
        for node in self.nodes[start : start + period]:
            for used in _nodes_in(node.args, node.kwargs):
                k = self.at.get(used, -1)
                if start <= k < start + period:
                    wires.append(("in", k - start))
                else:
                    wires.append(("out", slots.setdefault(used, len(slots))))
            if _writes_first_argument(node):
                written = _argument(node, 0, "input")
                if "out" in node.kwargs or not isinstance(written, fx.Node):
                    return None
            if any(not _is_plain_input(n) for n in _outside_written(node, self.at, start)):
                return None
        return tuple(wires), list(slots)


def _outside_written(node: fx.Node, at: dict[fx.Node, int], start: int) -> list[fx.Node]:
    """What a node writes to and a stretch that begins at `start` did not make."""
    written = []
    if _writes_first_argument(node):
        written.append(_argument(node, 0, "input"))
    if node.target is F.batch_norm and _argument(node, 5, "training") is not False:
        written += [_argument(node, 1, "running_mean"), _argument(node, 2, "running_var")]
    return [n for n in written if isinstance(n, fx.Node) and at.get(n, -1) < start]


def _is_plain_input(node: fx.Node) -> bool:
    """An input of the graph that carries no gradient."""
    val = node.meta.get("val", node.meta.get("example_value"))
    return node.op == "placeholder" and isinstance(val, torch.Tensor) and not val.requires_grad


def _nodes_in(*containers: Any) -> Iterator[fx.Node]:
    for x in containers:
        if isinstance(x, fx.Node):
            yield x
        elif isinstance(x, (tuple, list)):
            yield from _nodes_in(*x)
        elif isinstance(x, dict):
            yield from _nodes_in(*x.values())
        elif isinstance(x, slice):
            yield from _nodes_in(x.start, x.stop, x.step)


def _is_view(node: fx.Node) -> bool:
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    return name in (
        "view", "reshape", "transpose", "permute", "expand", "unsqueeze", "squeeze", "getitem", "chunk", "split", "t",
        "flatten", "unflatten", "narrow", "select", "contiguous", "view_as", "expand_as", "getattr", "unbind", "size",
    )  # fmt: skip


# -- rolling up -----------------------------------------------------------------------------------------------------


def roll_repeats(gm: fx.GraphModule, with_calls: bool = True) -> fx.GraphModule | None:
    """`gm` with each run of equal stretches as calls of a Region, or None when there is none worth it.
    with_calls=False: all regions are copied when they are traced."""
    finder = _Finder(gm, with_calls)
    runs = finder.find(0, len(finder.nodes))
    if not runs:
        return None
    starts = {run.start: run for run in runs}
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            env[node] = copy_node(graph, node, env)
    i = 0
    while i < len(finder.nodes):
        run = starts.get(i)
        if run is None:
            env[finder.nodes[i]] = copy_node(graph, finder.nodes[i], env)
            i += 1
            continue
        region = _make_region(finder, run, gm, f"region_{runs.index(run)}")
        for k in range(run.repeats):
            _append_call(graph, region, finder, run, k, env)
        i += run.period * run.repeats
    output = gm.graph.output_node()
    graph.output(fx.node.map_arg(output.args[0], env.__getitem__)).meta.update(output.meta)
    register_names(graph)
    rolled = lazy_graph_module(gm, graph)
    rolled.meta.update(gm.meta)
    return rolled


def _append_call(
    graph: fx.Graph, region: Region, finder: _Finder, run: _Run, k: int, env: dict[fx.Node, fx.Node]
) -> None:
    start = run.start + k * run.period
    own = [finder.nodes[start + j] for j in run.outputs]
    call = append_node(graph, f"{region.__name__}_call_{k}", region, tuple(env[n] for n in run.inputs[k]), {})
    call.meta = {
        key: v for key, v in finder.nodes[start].meta.items() if key in ("stack_trace", "nn_module_stack")
    }
    call.meta["val"] = [n.meta.get("val") for n in own]
    if region.is_copied:
        call.meta[STANDS_FOR] = [n.meta for n in finder.nodes[start : start + run.period]]
    for position, node in enumerate(own):
        item = append_node(graph, f"{call.name}_{position}", operator.getitem, (call, position), {})
        item.meta = dict(call.meta, val=node.meta.get("val"))
        env[node] = item


def _make_region(finder: _Finder, run: _Run, gm: fx.GraphModule, name: str) -> Region:
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for k, node in enumerate(run.inputs[0]):
        env[node] = append_node(graph, f"region_arg_{k}", f"region_arg_{k}", (), {}, "placeholder")
        env[node].meta["val"] = node.meta.get("val")
    for position, node in enumerate(finder.nodes[run.start : run.start + run.period]):
        env[node] = copy_node(graph, node, env)
        env[node].meta[REGION_POSITION] = position
    graph.output(tuple(env[finder.nodes[run.start + j]] for j in run.outputs))
    register_names(graph)
    return Region(name, lazy_graph_module(torch.nn.Module(), graph), run.is_copied)


def reach(graph: fx.Graph, bits: dict[fx.Node, int]) -> dict[fx.Node, int]:
    """Per value of a graph the union of the bits that its inputs carry (`bits`) and it depends on. Results of a called
    region depend on what they are computed from, not on all that the call is given."""
    bits = dict(bits)
    calls: dict[fx.Node, list[int]] = {}
    for node in graph.nodes:
        if node.op == "output":
            break
        if isinstance(node.target, Region):
            inner = node.target.graph_module.graph
            given = [n for n in inner.nodes if n.op == "placeholder"]
            calls[node] = reached_results(inner, {p: bits.get(a, 0) for p, a in zip(given, node.args)})  # type: ignore
        elif node.target is operator.getitem and node.args[0] in calls:
            bits[node] = calls[node.args[0]][node.args[1]]  # type: ignore[index]
            continue
        for feeding in node.all_input_nodes:
            bits[node] = bits.get(node, 0) | bits.get(feeding, 0)
    return bits


def reached_results(graph: fx.Graph, bits: dict[fx.Node, int]) -> list[int]:
    """`reach` of each result of a graph."""
    reached = reach(graph, bits)
    results: Any = graph.output_node().args[0]
    return [reached.get(v, 0) if isinstance(v, fx.Node) else 0 for v in results]


def needed_for(graph: fx.Graph, given: set[fx.Node], missing: set[fx.Node]) -> set[fx.Node]:
    """The values of a backward graph that the gradients need when the tangents `missing` are zero: what depends on
    those alone is zero."""
    reached = reach(graph, {**dict.fromkeys(given, 1), **dict.fromkeys(missing, 2)})
    stack = [node for node in graph.output_node().all_input_nodes if reached.get(node, 0) & 1]
    needed: set[fx.Node] = set()
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack.extend(n for n in node.all_input_nodes if reached.get(n, 0) != 2)
    return needed


__all__ = ["Region", "needed_for", "reach", "reached_results", "roll_repeats"]
