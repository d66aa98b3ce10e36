"""Lowering of the backward of attention (`attention_gradient_pass`) to one kernel, for targets that have the template.

As with the forward, what stands between the products is traced as any other arithmetic and evaluated at one position;
here the kernel's own values are the two products, the softmax's term and each row's sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from ..attention_gradient_pass import AttentionGradient, Result, find_gradients, gather_results
from ..codegen.attention_kernel import AttentionGradientKernel, Sum
from ..codegen.kernel import BufferArg, LoopVar, Phase
from ..codegen.native_kernel import NativeOp
from ..index import ONE, ZERO, symbol, to_expr
from ..ir.loops import Builder, Index
from ..ir.tensor import TensorValue
from ..ops import Op, compute_dtype
from ..passes import is_on
from .traced import Body, Refused, attempt, evaluate, is_kept, is_linear, lazy_leaf, not_called

LEAST = 16  # rows or columns: fewer leave most of a tile empty
LONGEST_HEAD = 256
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_LEAVES = frozenset(("product", "gradient", "softmax", "row_sum", "result"))


def plan_attention_gradients(g: Any) -> list[AttentionGradient]:
    """The backwards of attention in the graph that `g` lowers which are to be one kernel each."""
    if not is_on("attention") or g.can_lower("attention", torch.float32) is not None:
        return []
    found = [a for a in find_gradients(g.gm.graph) if is_wanted(g, a)]
    return [a for a in found if gather_results(g.gm.graph, a)]


def is_wanted(g: Any, found: AttentionGradient) -> bool:
    """True for sizes and dtypes that the template is for."""
    products = [found.product, found.gradient, *(r.node for r in found.results)]
    values = [n.meta["val"] for p in products for n in (p, *p.args[:2])]  # type: ignore[misc]
    if any(not isinstance(n, int) for v in values for n in v.shape):
        return False
    if any(v.dtype not in _DTYPES or v.device.type != g.device.type for v in values):
        return False
    if any(g.can_lower("attention", v.dtype) is not None for v in values):
        return False
    batch, rows, columns = found.product.meta["val"].shape
    return rows >= LEAST and columns >= LEAST and 0 < batch <= 65535 and all(
        0 < _width(r) <= LONGEST_HEAD for r in found.results
    ) and all(0 < p.args[0].meta["val"].shape[2] <= LONGEST_HEAD for p in (found.product, found.gradient))  # type: ignore[union-attr]


def _width(r: Result) -> int:
    """Elements of a row of a result."""
    return int(r.node.meta["val"].shape[2 - r.side])


def lower_attention_gradient(g: Any, found: AttentionGradient) -> TensorValue | None:
    """The last result, the current node; the others are noted as lowered. None where the parts have to be lowered one
    by one."""
    pairs = [p.args[:2] for p in (found.product, found.gradient)]
    pairs += [(r.node.args[1 - r.side],) for r in found.results]
    operands = [g.env[n] for pair in pairs for n in pair]
    if not all(isinstance(v, TensorValue) for v in operands):
        return None
    for v in operands:  # read in every tile, by two launches
        cost, reads = v.weight()
        if cost > 1 or reads > 1:
            g.store_deep(v)
    values: dict[Node, TensorValue] = {}
    with attempt(g, found.results[-1].node, "the backward of attention", _LEAVES):
        values = _lower(g, found)
    g.env.update(values)
    return values.get(found.results[-1].node)


def _lower(g: Any, found: AttentionGradient) -> dict[Node, TensorValue]:
    product, gradient = found.product.meta["val"], found.gradient.meta["val"]
    batch, rows, columns = product.shape
    depth, width = (p.args[0].meta["val"].shape[2] for p in (found.product, found.gradient))  # type: ignore[union-attr]
    sizes = {"z": batch, "m": rows, "n": columns, "d": depth, "e": width}
    sizes |= {f"f{k}": _width(r) for k, r in enumerate(found.results)}
    loops = {k: LoopVar(k, to_expr(v)) for k, v in sizes.items()}
    at = {k: symbol(k, v.size) if not v.size == ONE else ZERO for k, v in loops.items()}
    results = {f"result{k}": r.node.meta["val"].dtype for k, r in enumerate(found.results)}
    wide = torch.float32
    leaves = {"product": product.dtype, "gradient": gradient.dtype, "softmax": wide, "row_sum": wide, **results}
    body = Body(g, leaves)
    b = body.b
    phases: dict[str, Phase] = {}

    def operand(name: str, node: object, index: str) -> None:
        value = g.env[node].load(b, tuple(at[i] for i in index))
        phases[name] = body.end(name, value, tuple(loops[i] for i in index if i != "z"))

    operand("query", found.product.args[0], "zmd")
    operand("key", found.product.args[1], "zdn")
    operand("left", found.gradient.args[0], "zme")
    operand("right", found.gradient.args[1], "zen")

    known = len(g.nodes)
    others = [g.env[r.node.args[1 - r.side]] for r in found.results]
    seen: dict[str, list[Index]] = {}
    notes = {found.product: "product", found.gradient: "gradient", found.weights: "softmax", found.row_sum: "row_sum"}
    for node, name in notes.items():
        def note(builder: Builder, index: Index, name: str = name) -> None:
            seen.setdefault(name, []).append(index if builder.mask is None else ())

        g.env[node] = lazy_leaf(g, node.meta["val"], name, note)
    evaluate(g, found.inlined)

    sums: list[Sum] = []
    here, place = (at["z"], at["m"], at["n"]), None
    cell = (loops["m"], loops["n"])
    for k, r in enumerate(found.results):
        tile = g.env[r.node.args[r.side]]
        seen.clear()
        op = tile.load(b, here)
        turned = seen.get("softmax", [()])[0][-1:] != (at["n"],)
        if turned:
            b.next_phase()
            seen.clear()
            op = tile.load(b, (at["z"], at["n"], at["m"]))
        place = _check_places(seen, here, place)
        over_rows = turned == (r.side == 0)
        sums.append(Sum(over_rows, r.node.args[r.side].meta["val"].dtype))  # type: ignore[union-attr]
        phases[f"tile{k}"] = body.end(f"tile{k}", op, cell)
        inner, free = at["m" if over_rows else "n"], at[f"f{k}"]
        op = others[k].load(b, (at["z"], *((inner, free) if r.side == 0 else (free, inner))))
        phases[f"other{k}"] = body.end(f"other{k}", op, (loops["m" if over_rows else "n"], loops[f"f{k}"]))
    if place is None:
        raise Refused("no softmax among what the gradients follow from")
    seen.clear()
    term = g.env[found.row_sum.args[0]].load(b, place)
    _check_places(seen, here, place)
    if not is_linear(term, "softmax"):
        raise Refused("the sum of a row is more than the softmax times a factor")
    phases["term"] = body.end("term", b.to_dtype(term, wide), cell)
    seen.clear()
    score = g.env[found.scores].load(b, place)
    _check_places(seen, here, place)
    phases["score"] = body.end("score", b.to_dtype(score, wide), cell)
    if found.scores.meta["val"].dtype not in (wide, product.dtype):
        raise Refused(f"a softmax of {found.scores.meta['val'].dtype}")
    if is_kept(g, known, _LEAVES):
        raise Refused("part of the scores has to be stored")

    values, names, arguments = {}, [], []
    for k, r in enumerate(found.results):
        meta = g.meta_of(r.node.meta["val"])
        name, layout = g.new_buffer(meta)
        outer, free = at["n" if sums[k].over_rows else "m"], at[f"f{k}"]
        index = layout.index((at["z"], *((outer, free) if r.side == 0 else (free, outer))))
        out = Op("load", (f"result{k}", ZERO, None), compute_dtype(meta.dtype))
        store = Op("store", (name, index, out, None, None), out.dtype)
        phases[f"store{k}"] = Phase((loops["n" if sums[k].over_rows else "m"], loops[f"f{k}"]), (out, store))
        values[r.node] = g.stored(meta, name, layout)
        names.append(name)
        arguments.append(BufferArg(name, meta.dtype, "out", layout.span))
    arguments = [
        *(BufferArg(n, g.buffers[n].layout.dtype, "in", g.buffers[n].layout.span) for n in body.loads), *arguments
    ]
    scratch = [BufferArg(n, leaves.get(n, wide), "scratch", ONE)
               for n in (*(p for p in phases if not p.startswith("store")), *leaves)]  # fmt: skip
    kernel = AttentionGradientKernel(
        "k_attention_gradient", (loops["z"],), tuple(phases.values()), (*arguments, *scratch), device=g.device.type,
        origins=(found.product.name, found.weights.name, *(r.node.name for r in found.results)), names=tuple(phases),
        extents=(batch, rows, columns, depth, width), safe=found.safe, rounds=(product.dtype, gradient.dtype),
        sums=tuple(sums),
    )  # fmt: skip
    g.kernel_call(NativeOp(kernel, not_called), list(body.loads), names)
    return values


def _check_places(seen: dict[str, list[Index]], here: Index, place: Index | None) -> Index | None:
    """Where the softmax is read (the same place every time); Refused where a product or a row's sum takes part at
    another place than its own."""
    for index in seen.get("softmax", ()):
        if place is None:
            place = index
        if index != place or not index:
            raise Refused(f"weights take part at {index}, not at their own place")
    for name in ("product", "gradient"):
        wrong = [i for i in seen.get(name, ()) if i != here]
        if wrong:
            raise Refused(f"a {name} takes part at {wrong[0]}, not at its own place")
    for index in seen.get("row_sum", ()):
        if place is None or index[: len(place) - 1] != place[:-1]:
            raise Refused("the sum of another row takes part")
    return place


__all__ = ["is_wanted", "lower_attention_gradient", "plan_attention_gradients"]
