"""Attention written out: ``softmax(f(q @ k), -1) @ v`` in a graph of prims.

`find_attention` sees two batched products with a softmax between them. What stands between the first product and the
softmax may be any elementwise arithmetic (scale, mask, bias, a score function of the positions); what stands between
the softmax and the second product may convert it, view it, or multiply it (dropout). Nothing of it may be wanted
elsewhere: in a training step, where the backward saves the weights, the parts stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch.fx import Graph, Node

MOST_NODES = 120
"""Nodes of a score function (with what its masks are made of); a larger one is left alone."""

_VIEWS = frozenset("broadcast_in_dim permute reshape slice restride flip".split())
_READS = frozenset("gather index index_select".split())
_CREATION = frozenset(("full", "iota"))


@dataclass(frozen=True)
class Attention:
    """One attention of a graph.

    `product` and `last` are the products; `scores` is what the softmax takes and `weights` what it gives. `between`:
    the nodes behind `product` that only lead to `last`, in the graph's order. `sources`: what else `scores` is computed
    from by elementwise ops and views. `safe`: rows of nothing but -inf give zeros and not NaN.
    """

    product: Node
    scores: Node
    weights: Node
    last: Node
    between: tuple[Node, ...]
    before: tuple[Node, ...]
    after: tuple[Node, ...]
    safe: bool


def name_of(node: object) -> str:
    """The name of a prim that `node` calls; "" of any other node."""
    if not isinstance(node, Node) or node.op != "call_function":
        return ""
    name = getattr(node.target, "name", "")
    return name if isinstance(name, str) else ""


def _tags(node: Node) -> tuple[str, ...]:
    return tuple(getattr(getattr(node.target, "spec", None), "tags", ()))


def is_inlined(node: Node) -> bool:
    """True for a node that each element of the scores may compute anew."""
    name = name_of(node)
    return name in _VIEWS or name in _READS or name in _CREATION or (bool(name) and "elementwise" in _tags(node))


def _through(node: object, *names: str) -> object:
    while name_of(node) in names:
        node = node.args[0]  # type: ignore[attr-defined]
    return node


def row_reduction(node: object, name: str) -> Node | None:
    """The operand of a reduction over the last dimension that is spread over its row again."""
    node = _through(node, "broadcast_in_dim", "reshape")
    if name_of(node) != name:
        return None
    source, dims = node.args[0], node.args[1]  # type: ignore[attr-defined]
    if not isinstance(source, Node) or tuple(dims) != (source.meta["val"].dim() - 1,):
        return None
    return source


def _softmax_input(node: Node) -> Node | None:
    """X of ``exp(x - max x) / sum exp(x - max x)``."""
    if name_of(node) != "div" or name_of(node.args[0]) != "exp":
        return None
    if row_reduction(node.args[1], "sum") is not node.args[0]:
        return None
    shifted = node.args[0].args[0]  # type: ignore[union-attr]
    if name_of(shifted) != "sub":
        return None
    x = shifted.args[0]  # type: ignore[union-attr]
    return x if isinstance(x, Node) and row_reduction(shifted.args[1], "amax") is x else None  # type: ignore[union-attr]


def _safe_softmax_input(node: Node) -> Node | None:
    """The same with zeros where all of a row is -inf."""
    if name_of(node) != "where" or node.args[1] != 0.0 or not isinstance(node.args[2], Node):
        return None
    x = _softmax_input(node.args[2])
    masked = row_reduction(node.args[0], "all")
    if x is None or masked is None or name_of(masked) != "eq":
        return None
    return x if masked.args[0] is x and masked.args[1] == float("-inf") else None


def softmax_of(node: Node) -> tuple[Node, bool] | None:
    """(input, is it the safe kind) of a softmax over the last dimension that `node` is the result of."""
    for find, safe in ((_softmax_input, False), (_safe_softmax_input, True)):
        x = find(node)
        if x is not None:
            return x, safe
    return None


def _find_softmax(node: object, depth: int = 0) -> tuple[Node, Node, bool] | None:
    """(result, input, is it the safe kind) of the softmax behind views, conversions and products."""
    if not isinstance(node, Node) or depth > 12:
        return None
    found = softmax_of(node)
    if found is not None:
        return node, *found
    name = name_of(node)
    if name in ("reshape", "permute", "restride", "convert_element_type"):
        return _find_softmax(node.args[0], depth + 1)
    if name == "mul":
        return _find_softmax(node.args[0], depth + 1) or _find_softmax(node.args[1], depth + 1)
    return None


def nodes_between(node: Node, stop: Node) -> set[Node]:
    """`node` and all that it is computed from, up to `stop`."""
    found: set[Node] = set()
    stack = [node]
    while stack:
        n = stack.pop()
        if n in found:
            continue
        found.add(n)
        if n is not stop:
            stack.extend(n.all_input_nodes)
    return found


def inlined_sources(x: Node, limit: int) -> set[Node] | None:
    """Nodes that `x` inlines, and the products at their end; None: too many."""
    found: set[Node] = set()
    stack = [x]
    while stack:
        n = stack.pop()
        if n in found or not (is_inlined(n) or name_of(n) == "bmm"):
            continue
        found.add(n)
        if len(found) > limit:
            return None
        if name_of(n) != "bmm":
            stack.extend(n.all_input_nodes)
    return found


def _match(last: Node, place: dict[Node, int]) -> Attention | None:
    softmax = _find_softmax(last.args[0])
    if softmax is None:
        return None
    weights, x, safe = softmax
    sources = inlined_sources(x, MOST_NODES)
    if sources is None:
        return None
    size = tuple(last.args[0].meta["val"].shape)  # type: ignore[union-attr]
    for product in sorted((n for n in sources if name_of(n) == "bmm"), key=lambda n: -place[n]):
        if tuple(product.meta["val"].shape) != size:
            continue
        between = _only_between(product, last, place)
        if between is not None:
            inlined = (n for n in sources if n is not product and name_of(n) != "bmm")
            before = tuple(sorted(inlined, key=place.__getitem__))
            after = tuple(n for n in between if place[n] > place[weights] and weights in nodes_between(n, weights))
            return Attention(product, x, weights, last, between, before, after, safe)
    return None


def _only_between(product: Node, last: Node, place: dict[Node, int]) -> tuple[Node, ...] | None:
    """What is computed from `product`, if all of it only leads to `last`."""
    found: set[Node] = set()
    stack = [product]
    while stack:
        for user in stack.pop().users:
            if user is last or user in found:
                continue
            if user.op != "call_function" or place[user] > place[last] or len(found) > MOST_NODES:
                return None
            found.add(user)
            stack.append(user)
    return tuple(sorted(found, key=place.__getitem__)) if found else None


def find_attention(graph: Graph) -> list[Attention]:
    """All attentions of a graph, in order; none shares a node with another."""
    nodes: Iterable[Node] = graph.nodes
    products = [n for n in nodes if name_of(n) == "bmm"]
    if len(products) < 2:
        return []
    place = {n: k for k, n in enumerate(graph.nodes)}
    found = [a for a in (_match(n, place) for n in products) if a is not None]
    taken: set[Node] = set()
    out = []
    for a in found:
        own = {a.product, a.last, *a.between}
        if not own & taken:
            taken |= own
            out.append(a)
    return out


__all__ = [
    "MOST_NODES", "Attention", "find_attention", "inlined_sources", "is_inlined", "name_of", "nodes_between",
    "row_reduction", "softmax_of",
]  # fmt: skip
