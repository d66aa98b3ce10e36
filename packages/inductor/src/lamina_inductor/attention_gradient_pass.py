"""The backward of attention that is written out, in a graph of prims.

Two products have the size of the scores: the scores themselves, computed again (``q @ k``), and the gradient of the
weights (``grad @ v``). From them follow, element by element, the weights and the gradient of the scores, with the row's
sum of weights times gradients in between (the softmax's backward); and these are multiplied with what gives the
gradients of query, key and value. `find_gradients` sees the whole where nothing else wants a part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch.fx import Graph, Node

from .attention_pass import MOST_NODES, inlined_sources, is_inlined, name_of, nodes_between, row_reduction, softmax_of


@dataclass(frozen=True)
class Result:
    """A product behind the scores: `node` sums over a dimension of them; `side` (0 or 1) is its operand that has their
    size, perhaps turned."""

    node: Node
    side: int


@dataclass(frozen=True)
class AttentionGradient:
    """The backward of one attention.

    `product`, `gradient`: the two products of the scores' size; `scores` is what the softmax takes and `weights` what
    it gives. `row_sum`: the sum over each row of weights times their gradients. `results`: the products behind, in the
    graph's order. `between`: all nodes that are computed from the two products, without the results. `inlined`: what is
    computed for a position, in order. `safe`: rows of nothing but -inf have weights of zero.
    """

    product: Node
    gradient: Node
    scores: Node
    weights: Node
    row_sum: Node
    results: tuple[Result, ...]
    between: tuple[Node, ...]
    inlined: tuple[Node, ...]
    safe: bool


def find_gradients(graph: Graph) -> list[AttentionGradient]:
    """The backwards of attention in a graph, in order; none shares a node with another."""
    products = [n for n in graph.nodes if name_of(n) == "bmm"]
    if len(products) < 3:
        return []
    place = {n: k for k, n in enumerate(graph.nodes)}
    taken: set[Node] = set()
    out = []
    for product in products:
        found = None if product in taken else _match(product, place)
        if found is not None and not taken & {found.product, found.gradient, *found.between}:
            taken |= {found.product, found.gradient, *found.between, *(r.node for r in found.results)}
            out.append(found)
    return out


def _reached(start: list[Node]) -> tuple[dict[Node, None], dict[Node, None]] | None:
    """(nodes computed from `start`, products that end it); None where the graph's results are among them."""
    found: dict[Node, None] = {}
    ends: dict[Node, None] = {}
    stack = list(start)
    while stack:
        for user in stack.pop().users:
            if user in found or user in ends:
                continue
            if user.op != "call_function" or len(found) > 2 * MOST_NODES:
                return None
            if name_of(user) == "bmm":
                ends[user] = None
            else:
                found[user] = None
                stack.append(user)
    return found, ends


def _match(product: Node, place: dict[Node, int]) -> AttentionGradient | None:
    size = tuple(product.meta["val"].shape)
    reached = _reached([product])
    if reached is None or not reached[1]:
        return None
    softmax = [(n, *s) for n in reached[0] if (s := softmax_of(n)) is not None]
    if not softmax:
        return None
    weights, x, safe = next((s for s in softmax if s[2]), softmax[0])
    if product not in (inlined_sources(x, MOST_NODES) or ()):
        return None
    gradient = _other_product(reached[0], product, size)
    if gradient is None:
        return None
    reached = _reached([product, gradient])
    if reached is None or not reached[1] or gradient in reached[1] or product in reached[1]:
        return None
    between, ends = reached
    inside = nodes_between(weights, x)
    sums = [n for n in between if n not in inside and not is_inlined(n)]
    if len(sums) != 1 or name_of(sums[0]) != "sum" or row_reduction(sums[0], "sum") is None:
        return None
    results = []
    for end in sorted(ends, key=place.__getitem__):
        sides = [k for k in (0, 1) if end.args[k] in between]
        if len(sides) != 1:
            return None
        results.append(Result(end, sides[0]))
    roots = [x, sums[0].args[0], *(r.node.args[r.side] for r in results)]
    leaves = {product, gradient, weights, sums[0]}
    inlined = _inlined(roots, leaves)
    if inlined is None or not set(inlined).isdisjoint(ends):
        return None
    order = sorted(between, key=place.__getitem__)
    return AttentionGradient(
        product, gradient, x, weights, sums[0], tuple(results), tuple(order),
        tuple(sorted(inlined, key=place.__getitem__)), safe,
    )  # fmt: skip


def _other_product(reached: dict[Node, None], product: Node, size: tuple[int, ...]) -> Node | None:
    """The one other product of the scores' size that is combined with what follows from `product`."""
    found: set[Node] = set()
    seen: set[Node] = set(reached)
    stack = [n for r in reached for n in r.all_input_nodes if n not in seen]
    while stack:
        n = stack.pop()
        if n in seen or n is product:
            continue
        seen.add(n)
        if name_of(n) == "bmm":
            if tuple(n.meta["val"].shape) == size:
                found.add(n)
        elif is_inlined(n) and len(seen) < len(reached) + 2 * MOST_NODES:
            stack.extend(n.all_input_nodes)
    return found.pop() if len(found) == 1 else None


def _inlined(roots: list[Node], leaves: set[Node]) -> list[Node] | None:
    """What `roots` are computed from element by element, down to `leaves` and to values that are stored."""
    found: dict[Node, None] = {}
    stack = list(roots)
    while stack:
        n = stack.pop()
        if n in found or n in leaves or not is_inlined(n):
            continue
        found[n] = None
        if len(found) > 3 * MOST_NODES:
            return None
        stack.extend(n.all_input_nodes)
    return list(found)


def gather_results(graph: Graph, found: AttentionGradient) -> bool:
    """Moves what needs an earlier result behind the last one, where all are computed; False: a part needs it."""
    first, last = found.results[0].node, found.results[-1].node
    own = {found.product, found.gradient, *found.between, *(r.node for r in found.results)}
    results = {r.node for r in found.results}
    late: dict[Node, None] = {}
    node = first
    while node is not last:
        node = node.next
        if any(n in late or n in results for n in node.all_input_nodes):
            if node in own:
                return False
            late[node] = None
    behind = last
    for n in late:
        behind.append(n)
        behind = n
    return True


__all__ = ["AttentionGradient", "Result", "find_gradients", "gather_results"]
