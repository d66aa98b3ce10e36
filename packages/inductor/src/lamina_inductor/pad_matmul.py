"""Matrix products of half precision whose rows do not start at multiples of 16 bytes, made to.

A GPU's matrix units are fed by wide copies that need such rows; without them the library falls back to kernels five
times slower (a vocabulary of 50257 columns is the usual case). The pass pads the sizes that stand in the way with zeros
and cuts the result down again. A padded operand that is computed anyway (a cast of a weight, a gradient) is written
padded at once, the cut is a view; what is left as cost is counted, and the pass does nothing where it does not pay.

Invariant: values, shapes and ``meta["val"]`` of every node that was there before stay what they were.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lamina_primtorch.prims import PRIMS
from lamina_primtorch.value import Value

MULTIPLE = 8  # elements of two bytes in 16 bytes
SECONDS_PER_FLOP = 9e-15  # what an unaligned product takes longer (measured on an H200: 90 against 580 TFLOP/s)
SECONDS_PER_BYTE = 3e-13  # reading or writing
SECONDS_PER_KERNEL = 5e-6
_MATRICES = {"mm": (0, 1), "addmm": (1, 2)}


def pad_matrix_products(gm: GraphModule) -> GraphModule:
    """`gm` or, where padding pays, a changed copy of it."""
    if not any(_pads_of(n) for n in gm.graph.nodes):
        return gm
    graph = Graph()
    env: dict[Node, Node] = {}
    out = graph.graph_copy(gm.graph, env)
    last = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
    graph.output(out).meta.update(last.meta)
    maker = _Maker(graph)
    for node in list(graph.nodes):
        pads = _pads_of(node)
        if pads is not None:
            maker.rewrite(node, *pads)
    return GraphModule(gm, graph)


def _val(node: Any) -> Any:
    return node.meta.get("val") if isinstance(node, Node) else None


def _round_up(n: int) -> int:
    return -(-n // MULTIPLE) * MULTIPLE


def _runs_along(val: Any) -> int | None:
    """The dimension along which the rows of a matrix lie in memory."""
    stride = val.stride()
    return 1 if stride[1] == 1 else 0 if stride[0] == 1 else None


def _pads_of(node: Node) -> tuple[int, int, int] | None:
    """Elements to add to M, K and N of a matrix product, or None where nothing is gained."""
    places = _MATRICES.get(getattr(node.target, "name", "")) if node.op == "call_function" else None
    if places is None:
        return None
    a, b = (_val(node.args[k]) for k in places)
    if a is None or b is None or a.device.type != "cuda" or a.dtype not in (torch.bfloat16, torch.float16):
        return None
    if not all(isinstance(n, int) and n > 0 for n in (*a.shape, *b.shape)):
        return None
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    along_a, along_b = _runs_along(a), _runs_along(b)
    pad_n = _round_up(n) - n
    pad_k = _round_up(k) - k if along_a == 1 or along_b == 0 else 0
    pad_m = _round_up(m) - m if along_a == 0 else 0
    if not (pad_m or pad_k or pad_n):
        return None
    size = a.dtype.itemsize
    moved = copies = 0
    for padded, elements in ((pad_m or pad_k, m * k), (pad_k or pad_n, k * n), (pad_n, m * n)):
        if padded:
            moved += 2 * elements * size
            copies += 1
    gain = 2 * m * k * n * SECONDS_PER_FLOP
    return (pad_m, pad_k, pad_n) if gain > moved * SECONDS_PER_BYTE + copies * SECONDS_PER_KERNEL else None


class _Maker:
    """Adds nodes to a graph of prims."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.padded: dict[tuple[Node, tuple[int, ...]], Node] = {}

    def call(self, name: str, *args: Any, like: Node | None = None) -> Node:
        """One prim call before the current insertion point. `like`: where its origin is taken from."""
        prim = PRIMS[name]
        node = self.graph.call_function(prim, args)
        values = [a.meta["val"] if isinstance(a, Node) else a for a in args]
        meta = prim.meta(*values)
        node.meta["val"] = Value(meta.shape, meta.stride, meta.dtype, meta.device)
        for key in ("stack_trace", "nn_module_stack", "seq_nr", "partitioner_tag"):
            if like is not None and key in like.meta:
                node.meta[key] = like.meta[key]
        return node

    def pad(self, x: Node, high: tuple[int, ...]) -> Node:
        """`x` with zeros behind; made where x is made, so that all who need it share it."""
        if not any(high):
            return x
        found = self.padded.get((x, high))
        if found is None:
            if getattr(x.target, "name", "") == "permute":
                source, dims = x.args  # the padding goes to what lies in memory
                back = [0] * len(high)
                for k, d in enumerate(dims):  # type: ignore[arg-type,var-annotated]
                    back[d] = high[k]
                inner = self.pad(source, tuple(back))  # type: ignore[arg-type]
                with self.graph.inserting_after(inner):
                    found = self.call("permute", inner, dims, like=x)
            else:
                with self.graph.inserting_after(x if x.op != "placeholder" else self._last_placeholder()):
                    found = self.call("pad", x, 0.0, (0,) * len(high), high, like=x)
            self.padded[x, high] = found
        return found

    def _last_placeholder(self) -> Node:
        return [n for n in self.graph.nodes if n.op == "placeholder"][-1]

    def rewrite(self, node: Node, m: int, k: int, n: int) -> None:
        """Replace one product by the padded one and its cut."""
        at = _MATRICES[node.target.name]  # type: ignore[union-attr]
        args = list(node.args)
        args[at[0]] = self.pad(args[at[0]], (m, k))  # type: ignore[arg-type]
        args[at[1]] = self.pad(args[at[1]], (k, n))  # type: ignore[arg-type]
        rows, columns = node.meta["val"].shape
        if at[0] == 1:  # addmm: what is added must fit, too
            bias = args[0]
            shape = _val(bias).shape
            high = [0] * len(shape)
            if len(shape) and shape[-1] == columns and columns != 1:
                high[-1] = n
            if len(shape) == 2 and shape[0] == rows and rows != 1:
                high[0] = m
            args[0] = self.pad(bias, tuple(high))  # type: ignore[arg-type]
        with self.graph.inserting_before(node):
            full = self.graph.call_function(node.target, tuple(args), dict(node.kwargs))  # type: ignore[arg-type]
            full.meta.update(node.meta)
            old = node.meta["val"]
            full.meta["val"] = Value((rows + m, columns + n), (columns + n, 1), old.dtype, old.device)
            cut = full
            if m or n:
                cut = self.call("slice", full, (0, 0), (rows, columns), (1, 1), like=node)
                cut.meta["val"] = old
            node.replace_all_uses_with(cut)
        self.graph.erase_node(node)


__all__ = ["pad_matrix_products"]
