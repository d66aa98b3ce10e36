"""How large the values of a graph with constant weights can become.

oneDNN's rectifier makes NaN zero. It may stand in for ``maximum(x, 0)`` where no NaN can come: where the operands are
finite, and small enough that no sum overflows on the way to infinities that could meet. From the weights follows how
much a layer can enlarge what comes in. That bound grows from layer to layer; before it reaches `HUGE`, a value is
*looked at*: the compiled graph computes its largest magnitude, and a call in which one of these is above `LOOK`, or
NaN, is computed again by the ordinary graph. So from one look to the next everything is proved to be finite.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

LOOK = 1e6
"""Largest magnitude of a value that is looked at: what networks compute with is far below."""
HUGE = 1e30
"""What bounds must stay below; the room up to float32's largest number is for an algorithm's own intermediates."""

Interval = tuple[float, float]


def _size(i: Interval) -> float:
    return max(abs(i[0]), abs(i[1]))


def _around(size: float) -> Interval:
    return (-size, size)


def _mul(a: Interval, b: Interval) -> Interval:
    ends = [0.0 if 0.0 in (x, y) else x * y for x in a for y in b]
    return (min(ends), max(ends))


class ValueBounds:
    """Bounds of the nodes that `wanted` depend on. `constants`: nodes whose values are known.

    `of[node]` is an interval that holds all elements, or absent where nothing is known; `looked_at` lists the nodes
    whose bound is only true if their largest magnitude is at most `LOOK`.
    """

    def __init__(self, gm: GraphModule, constants: Mapping[Node, torch.Tensor], wanted: list[Node]) -> None:
        self.constants = constants
        self.of: dict[Node, Interval] = {}
        self.looked_at: list[Node] = []
        needed = _ancestors(wanted)
        for node in gm.graph.nodes:
            if node in needed:
                self._visit(node)

    def _visit(self, node: Node) -> None:
        val = node.meta.get("val")
        dtype = getattr(val[0] if isinstance(val, (tuple, list)) else val, "dtype", None)
        if dtype in (torch.float16, None) or dtype.is_complex:  # float16 ends at 65504
            return
        if node in self.constants:
            found = _of_tensor(self.constants[node])
            if found is not None:
                self.of[node] = found
        elif not dtype.is_floating_point:
            self.of[node] = (0.0, 1.0) if dtype is torch.bool else _around(float(torch.iinfo(dtype).max) + 1)
        elif node.op == "placeholder":
            self._look(node)
        elif node.op == "call_function":
            found = self._compute(node)
            if found is None or _size(found) < HUGE:
                pass
            else:
                for x in node.all_input_nodes:
                    if x in self.of and x not in self.constants and _size(self.of[x]) > LOOK and _is_float(x):
                        self._look(x)
                found = self._compute(node)
            if found is not None and _size(found) < HUGE:
                self.of[node] = found

    def _look(self, node: Node) -> None:
        shape = node.meta["val"].shape
        if not all(type(n) is int and n > 0 for n in shape):
            return
        low, high = self.of.get(node, _around(LOOK))
        self.of[node] = (max(low, -LOOK), min(high, LOOK))
        self.looked_at.append(node)

    def _compute(self, node: Node) -> Interval | None:
        if node.target is operator.getitem:
            return self.of.get(node.args[0])  # type: ignore[arg-type]
        rule = _RULES.get(getattr(node.target, "name", ""))
        if rule is None or node.kwargs:
            return None
        try:
            return rule(self, *node.args)
        except (KeyError, TypeError, OverflowError):  # an operand without a bound, or an argument of another kind
            return None

    def interval(self, a: Any) -> Interval:
        """The bound of an argument; KeyError where there is none."""
        if isinstance(a, Node):
            return self.of[a]
        value = float(a)
        if not math.isfinite(value):
            raise KeyError(a)
        return (value, value)

    def product(self, a: Any, b: Any) -> Interval:
        """Bound of a matrix product: exact sums where one side is constant."""
        if b in self.constants:
            return _around(_size(self.of[a]) * float(self.constants[b].double().abs().sum(-2).max()))
        if a in self.constants:
            return _around(_size(self.of[b]) * float(self.constants[a].double().abs().sum(-1).max()))
        return _around(_size(self.of[a]) * _size(self.of[b]) * _number(a.meta["val"].shape[-1]))


def _ancestors(nodes: list[Node]) -> set[Node]:
    found: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.all_input_nodes)
    return found


def _number(n: Any) -> int:
    if type(n) is not int:
        raise KeyError(n)
    return n


def _is_float(node: Node) -> bool:
    return getattr(node.meta.get("val"), "is_floating_point", lambda: False)()


def _of_tensor(tensor: torch.Tensor) -> Interval | None:
    if not tensor.numel():
        return (0.0, 0.0)
    low, high = (float(v) for v in torch.aminmax(tensor.to(torch.float64)))
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _convolution(g: ValueBounds, x: Node, weight: Node, bias: Any, *rest: Any) -> Interval:
    tensor = g.constants[weight].double().abs()
    transposed = rest[3]
    dims = [d for d in range(tensor.dim()) if d != (1 if transposed else 0)]
    size = _size(g.of[x]) * float(tensor.sum(dims).max())
    return _around(size + (0.0 if bias is None else _size(g.interval(bias))))


def _addmm(g: ValueBounds, bias: Node, a: Node, b: Node) -> Interval:
    return _around(_size(g.of[bias]) + _size(g.product(a, b)))


def _add(g: ValueBounds, a: Any, b: Any) -> Interval:
    (p, q), (r, s) = g.interval(a), g.interval(b)
    return (p + r, q + s)


def _sub(g: ValueBounds, a: Any, b: Any) -> Interval:
    (p, q), (r, s) = g.interval(a), g.interval(b)
    return (p - s, q - r)


def _div(g: ValueBounds, a: Any, b: Any) -> Interval:
    low, high = g.interval(b)
    if low <= 0 <= high:
        raise KeyError(b)
    return _mul(g.interval(a), (1 / high, 1 / low))


def _extreme(pick: Callable[[float, float], float]) -> Callable[..., Interval]:
    def rule(g: ValueBounds, a: Any, b: Any) -> Interval:
        (p, q), (r, s) = g.interval(a), g.interval(b)
        return (pick(p, r), pick(q, s))

    return rule


def _same(g: ValueBounds, a: Any, *rest: Any) -> Interval:
    return g.interval(a)


def _abs(g: ValueBounds, a: Any) -> Interval:
    return (0.0, _size(g.interval(a)))


def _joined(g: ValueBounds, parts: Any, *rest: Any) -> Interval:
    found = [g.interval(p) for p in parts]
    return (min(i[0] for i in found), max(i[1] for i in found))


def _where(g: ValueBounds, c: Any, a: Any, b: Any) -> Interval:
    return _joined(g, (a, b))


def _sum(g: ValueBounds, a: Node, dims: Any, *rest: Any) -> Interval:
    count = math.prod(_number(a.meta["val"].shape[d]) for d in dims)
    return _mul(g.of[a], (float(count), float(count)))


def _pad(g: ValueBounds, a: Node, value: Any, *rest: Any) -> Interval:
    return _joined(g, (a, value))


def _mean_of_window(g: ValueBounds, a: Node, kernel: Any, *rest: Any) -> Interval:
    # a divisor of one's own may be as small as one
    return _around(_size(g.of[a]) * math.prod(map(_number, kernel)) ** (2 if len(kernel) == 1 else 1))


def _up_to(low: float, high: float) -> Callable[..., Interval]:
    def rule(g: ValueBounds, a: Any) -> Interval:
        g.interval(a)
        return (low, high)

    return rule


_RULES: dict[str, Callable[..., Interval]] = {
    "convolution": _convolution,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "mm": lambda g, a, b: g.product(a, b),
    "bmm": lambda g, a, b: g.product(a, b),
    "add": _add,
    "sub": _sub,
    "mul": lambda g, a, b: _mul(g.interval(a), g.interval(b)),
    "div": _div,
    "neg": lambda g, a: (-g.interval(a)[1], -g.interval(a)[0]),
    "abs": _abs,
    "maximum": _extreme(max),
    "minimum": _extreme(min),
    "sum": _sum,
    "where": _where,
    "cat": _joined,
    "pad": _pad,
    "avg_pool2d": _mean_of_window,
    "adaptive_avg_pool2d": _same,
    "sigmoid": _up_to(0.0, 1.0),
    "tanh": _up_to(-1.0, 1.0),
    "erf": _up_to(-1.0, 1.0),
    **dict.fromkeys(
        "amax amin max_pool2d reshape permute slice broadcast_in_dim restride as_strided clone convert_element_type "
        "flip".split(),
        _same,
    ),
}
"""Prim -> bound of its result, for finite operands. A prim that can make NaN of finite numbers has no row."""


__all__ = ["HUGE", "LOOK", "ValueBounds"]
