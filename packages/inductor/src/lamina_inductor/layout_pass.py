"""Which values of a graph lie channels-last in memory.

Convolutions read and write rows of channels fastest; between two of them nothing has to be turned around. The pass
looks at the whole graph: it marks convolutions that gain (`prefers_channels_last`, one row per device), carries the
mark through elementwise ops, pools and joins, forwards and backwards, and gives the plan up when turning values round
at the borders would cost more than the convolutions gain.

Invariant: the plan says where elements lie, never what they are; `meta["val"]` keeps eager's strides, and whatever
leaves the graph for a user has them.

Values that go from a forward graph to its backward graph need not have eager's strides: the forward graph tells the
strides it chose (`GraphLowering.output_strides`), and the placeholders of the backward graph carry them as
``meta["physical_stride"]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, Node

Strides = tuple[Any, ...]


@dataclass
class LayoutPlan:
    """`strides`: node -> strides of its result in memory, or a tuple of these (None where eager's stay) for a node with
    several results. `externs`: extern call -> positions of the tensor arguments that it gets channels-last. `free`:
    positions of graph outputs whose strides nobody relies on."""

    strides: dict[Node, Any] = field(default_factory=dict)
    externs: dict[Node, tuple[int, ...]] = field(default_factory=dict)
    free: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Extern:
    """How an extern op treats layouts: tensor arguments that decide, results that follow the first of them (or, given
    as (result, argument), another one), and how many passes over its operands eager's layout costs more."""

    arguments: tuple[int, ...]
    results: tuple[tuple[int, int], ...] = ((0, 0),)
    gain: float = 0.0


EXTERNS: dict[str, _Extern] = {
    "convolution": _Extern((0,), gain=1.0),
    "convolution_backward": _Extern((0, 1), ((0, 1), (1, 2)), gain=2.0),
    "max_pool2d": _Extern((0,), ((0, 0), (1, 0)), gain=4.0),
    "max_pool2d_backward": _Extern((0, 1, 7), ((0, 1),)),
    "avg_pool2d": _Extern((0,), gain=1.0),
    "avg_pool2d_backward": _Extern((0, 1), ((0, 1),)),
    "adaptive_avg_pool2d": _Extern((0,)),
    "upsample_nearest2d": _Extern((0,)),
    "upsample_bilinear2d": _Extern((0,)),
}
"""Extern prims that have kernels for channels-last operands. `convolution` decides for itself (`prefers`); the others
follow their operands."""

DEPTHWISE_TAPS = 25
"""Largest window of the depthwise convolutions that `lowering.depthwise` writes itself."""

_CONVOLUTIONS = ("convolution", "convolution_backward")
_FOLLOW = frozenset({"cat", "pad", "slice", "flip", "restride"})
_LEAST_GAIN = 1.25  # elements whose turning the convolutions save, for each element that the plan turns


def cpu_prefers(x: Any, weight: Any, groups: int) -> bool:
    """oneDNN's kernels for rows of channels beat its blocked ones, except where the weights are most of the memory:
    these have to be rearranged at each call, which takes longer towards the row kernels' format."""
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    taps = weight.shape[2] * weight.shape[3]
    batch = x.shape[0] if isinstance(x.shape[0], int) else 16
    moved = batch * x.shape[2] * x.shape[3] * (weight.shape[0] + x.shape[1])
    return taps == 1 or weight.shape[0] * weight.shape[1] * taps <= 4 * moved


def cuda_prefers(x: Any, weight: Any, groups: int) -> bool:
    """cuDNN's matrix-unit kernels read rows of channels and turn everything else round at each call; its kernels for
    groups do so in half precision only. Depthwise ones are kernels of ours that read along the channels."""
    if x.dtype in (torch.float16, torch.bfloat16):
        return True
    taps = weight.shape[2] * weight.shape[3]
    ours = groups == x.shape[1] == weight.shape[0] and taps <= DEPTHWISE_TAPS
    return x.dtype is torch.float32 and (groups == 1 or ours)


def writes_past_memory(x: Any, weight: Any, stride: Any) -> bool:
    """oneDNN's gradient of the weights writes past its memory for few channels-last channels into a strided 1x1
    window."""
    few = weight.shape[2] * weight.shape[3] == 1 and weight.shape[1] < 16
    return x.device.type == "cpu" and few and any(s != 1 for s in stride)


PREFERS: dict[str, Callable[[Any, Any, int], bool]] = {"cpu": cpu_prefers, "cuda": cuda_prefers}
"""Device -> does a convolution of (input, weight, groups) gain from channels-last."""

WEIGHTS = {"cuda": {"convolution": 1, "convolution_backward": 2}}
"""Device -> extern -> position of the weights, where these have to be channels-last, too (cuDNN: or it copies them)."""


def prefers_channels_last(x: Any, weight: Any, groups: int) -> bool:
    """True when a 2-d convolution of these operands is to run channels-last on their device."""
    rule = PREFERS.get(x.device.type)
    if rule is None or len(x.shape) != 4 or not all(isinstance(n, int) and n > 0 for n in x.shape[1:]):
        return False
    if not all(isinstance(n, int) and n > 0 for n in weight.shape) or isinstance(x.shape[0], int) and x.shape[0] == 0:
        return False
    # torch tells the layouts apart by strides: with one channel it cannot
    if x.shape[1] == 1 and x.shape[2] * x.shape[3] != 1:
        return False
    return rule(x, weight, groups)


def channels_last_strides(shape: Any) -> Strides:
    """Strides of a dense (n, c, h, w) tensor whose channels are innermost."""
    _, c, h, w = shape
    return (h * w * c, 1, w * c, c)


def choose_layouts(graph: Graph) -> LayoutPlan | None:
    """The plan of a graph of prims; None when everything keeps eager's layout."""
    if not any(_name(n) in _CONVOLUTIONS for n in graph.nodes):
        return None
    return _Chooser(graph).run()


def _name(node: Node) -> str:
    name = getattr(node.target, "name", "")
    return name if isinstance(name, str) else ""


def _val(node: Any) -> Any:
    val = node.meta.get("val") if isinstance(node, Node) else None
    return val if hasattr(val, "stride") and hasattr(val, "dtype") else None


def _is_image(val: Any) -> bool:
    return val is not None and len(val.shape) == 4 and all(isinstance(n, int) and n > 0 for n in val.shape[1:])


def _is_elementwise(node: Node) -> bool:
    spec = getattr(node.target, "spec", None)
    return spec is not None and "elementwise" in spec.tags


def _size(val: Any) -> int:
    n = 1
    for s in val.shape:
        n *= s if isinstance(s, int) else 16
    return n


class _Chooser:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.marked: set[Node] = set()  # single results that are to lie channels-last
        self.externs: dict[Node, tuple[int, ...]] = {}
        self.results: dict[Node, dict[int, int]] = {}  # extern with several results -> result -> argument it follows
        self.output = next(n for n in reversed(graph.nodes) if n.op == "output")
        self.free = self._free_outputs()

    def run(self) -> LayoutPlan | None:
        self._forwards()
        if not self.externs:
            return None
        self._backwards()
        self._forwards()
        self._drop_tails()
        if not self._pays():
            return None
        plan = LayoutPlan(externs=self.externs, free=self.free)
        for node in self.marked:
            if node.op == "call_function":
                plan.strides[node] = channels_last_strides(_val(node).shape)
        for node, follows in self.results.items():
            vals = node.meta["val"]
            plan.strides[node] = tuple(
                channels_last_strides(v.shape) if k in follows and v is not None else None for k, v in enumerate(vals)
            )
        return plan

    def _free_outputs(self) -> frozenset[int]:
        descs = self.output.meta.get("desc") or ()
        return frozenset(k for k, d in enumerate(descs) if getattr(d, "kind", "") == "saved_tensor")

    def _is_last(self, a: Any) -> bool:
        return isinstance(a, Node) and a in self.marked

    # ---- marks

    def _forwards(self) -> None:
        for node in self.graph.nodes:
            if node.op == "placeholder":
                stride = node.meta.get("physical_stride")
                val = _val(node)
                if stride is not None and _is_image(val) and tuple(stride) == channels_last_strides(val.shape):
                    self.marked.add(node)
            elif node.op == "call_function" and node not in self.marked and node not in self.externs:
                self._visit(node)

    def _visit(self, node: Node) -> None:
        name = _name(node)
        row = EXTERNS.get(name)
        if row is not None:
            if self._wants(node, name):
                self._mark_extern(node, row)
        elif name == "" and getattr(node.target, "__name__", "") == "getitem":
            follows = self.results.get(node.args[0])  # type: ignore[arg-type]
            if follows is not None and node.args[1] in follows and _is_image(_val(node)):
                self.marked.add(node)
        elif _is_image(_val(node)) and (name in _FOLLOW or _is_elementwise(node)):
            val = _val(node)
            for a in _operands(node):
                if self._is_last(a) and (name in ("cat", "pad", "slice") or tuple(_val(a).shape) == tuple(val.shape)):
                    self.marked.add(node)
                    break

    def _wants(self, node: Node, name: str) -> bool:
        if name in _CONVOLUTIONS:
            x, weight = (node.args[0], node.args[1]) if name == "convolution" else (node.args[1], node.args[2])
            vx, vw = _val(x), _val(weight)
            groups = node.args[8] if name == "convolution" else node.args[9]
            if vx is None or vw is None or not isinstance(groups, int):
                return False
            if len(vw.shape) == 4 and writes_past_memory(vx, vw, node.args[3 if name == "convolution" else 4]):
                return False
            val = node.meta.get("val")
            first = val[0] if isinstance(val, (tuple, list)) else val
            return (first is None or _is_image(first)) and prefers_channels_last(vx, vw, groups)
        first = node.args[EXTERNS[name].arguments[0]]
        val = node.meta.get("val")
        result = val[0] if isinstance(val, (tuple, list)) else val
        shapes_fit = all(_is_image(_val(node.args[k])) for k in EXTERNS[name].arguments) and _is_image(result)
        # torch's kernels find the layout by strides, which do not tell with one channel
        return self._is_last(first) and shapes_fit and _val(first).shape[1] > 1

    def _mark_extern(self, node: Node, row: _Extern) -> None:
        places = row.arguments
        first = _val(node.args[places[0]])
        weights = WEIGHTS.get(first.device.type, {}).get(_name(node))
        self.externs[node] = places if weights is None else (*places, weights)
        val = node.meta.get("val")
        if isinstance(val, (tuple, list)):
            self.results[node] = {k: a for k, a in row.results if k < len(val) and val[k] is not None}
        else:
            self.marked.add(node)

    def _backwards(self) -> None:
        """Producers whose readers all want the layout get it."""
        for node in reversed(self.graph.nodes):
            if node.op != "call_function" or node in self.marked or not _is_image(_val(node)):
                continue
            if not (_name(node) in _FOLLOW or _name(node) == "broadcast_in_dim" or _is_elementwise(node)):
                continue
            if node.users and all(self._takes(u, node) for u in node.users):
                self.marked.add(node)

    def _takes(self, user: Node, node: Node) -> bool:
        if user.op == "output":
            return False
        if user in self.externs:
            return any(user.args[k] is node for k in self.externs[user])
        return user in self.marked

    def _drop_tails(self) -> None:
        """Elementwise results that only leave the graph are written as they leave it."""
        for node in reversed(self.graph.nodes):
            if node in self.marked and _is_elementwise(node) and node.users and not self._leaves_free(node):
                if all(u.op == "output" or (u.op == "call_function" and self._is_plain_end(u)) for u in node.users):
                    self.marked.discard(node)

    def _is_plain_end(self, user: Node) -> bool:
        return _name(user) == "restride" and user not in self.marked

    def _leaves_free(self, node: Node) -> bool:
        outs = self.output.args[0]
        return any(o is node and k in self.free for k, o in enumerate(outs))  # type: ignore[arg-type]

    # ---- does it pay

    def _pays(self) -> bool:
        gain = cost = 0.0
        for node, places in self.externs.items():
            row = EXTERNS[_name(node)]
            moved = sum(_size(_val(node.args[k])) for k in row.arguments if _val(node.args[k]) is not None)
            val = node.meta.get("val")
            first = val[0] if isinstance(val, (tuple, list)) else val
            moved += _size(first) if first is not None and _name(node) == "convolution" else 0
            gain += row.gain * moved / len(row.arguments)
            cost += sum(_size(_val(a)) for k in places if not self._is_last(a := node.args[k]) and self._turns(a))
        outs = self.output.args[0]
        for k, o in enumerate(outs if isinstance(outs, (tuple, list)) else (outs,)):
            turned = self._is_last(o) and tuple(_val(o).stride()) != channels_last_strides(_val(o).shape)
            if turned and k not in self.free:
                cost += _size(_val(o))
        return gain >= _LEAST_GAIN * cost

    def _turns(self, a: Any) -> bool:
        """True when giving `a` to a channels-last call takes a copy."""
        val = _val(a)
        if val is None or a.op != "placeholder":
            return val is not None and _name(a) in EXTERNS
        return tuple(val.stride()) != channels_last_strides(val.shape)


def _operands(node: Node) -> Iterator[Node]:
    for a in node.args:
        if isinstance(a, Node):
            yield a
        elif isinstance(a, (tuple, list)):
            yield from (x for x in a if isinstance(x, Node))


__all__ = ["EXTERNS", "PREFERS", "LayoutPlan", "channels_last_strides", "choose_layouts", "prefers_channels_last"]
