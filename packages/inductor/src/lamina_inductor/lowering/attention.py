"""Lowering of attention that is written out (`attention_pass`) to one kernel, for targets that have the template.

The score function is traced as any other arithmetic: its nodes are lowered once more with the product as a value that
the kernel provides, and evaluated at one position. Whatever does not come out as a function of that position (a shift
of the scores, a reduction of them) leaves the attention as it is written.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from ..attention_pass import Attention, find_attention
from ..codegen.attention_kernel import AttentionKernel
from ..codegen.kernel import BufferArg, LoopVar, Phase
from ..codegen.native_kernel import NativeOp
from ..index import ONE, ZERO, symbol, to_expr
from ..ir.loops import Builder, Index
from ..ir.tensor import TensorValue
from ..ops import Op, compute_dtype
from ..passes import is_on
from .traced import Body, Refused, attempt, evaluate, is_kept, is_linear, lazy_leaf, not_called

LEAST_ROWS = 16  # fewer rows of scores leave most of a tile empty
LONGEST_HEAD = 256
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_QUERY_COST = 4  # ops that may be computed anew for each tile of columns' reader (the query is read once)


def plan_attention(g: Any) -> list[Attention]:
    """The attentions of the graph that `g` lowers which are to be one kernel each."""
    if not is_on("attention") or g.can_lower("attention", torch.float32) is not None:
        return []
    return [a for a in find_attention(g.gm.graph) if is_wanted(g, a)]


def is_wanted(g: Any, found: Attention) -> bool:
    """True for an attention of sizes and dtypes that the template is for."""
    scores, result = found.product.meta["val"], found.last.meta["val"]
    if any(not isinstance(n, int) for n in (*scores.shape, *result.shape)):
        return False
    operands = [n.meta["val"] for n in (*found.product.args[:2], *found.last.args[:2]) if isinstance(n, Node)]
    if any(v.dtype not in _DTYPES or v.device.type != g.device.type for v in (*operands, scores, result)):
        return False
    depth = operands[0].shape[-1]
    batch, rows, columns = scores.shape
    return (
        rows >= LEAST_ROWS
        and columns >= LEAST_ROWS
        and 0 < depth <= LONGEST_HEAD
        and 0 < result.shape[-1] <= LONGEST_HEAD
        and 0 < batch <= 65535
        and all(g.can_lower("attention", v.dtype) is None for v in (*operands, result))
    )


def lower_attention(g: Any, found: Attention) -> TensorValue | None:
    """The result of `found.last`, the current node; None where the parts have to be lowered one by one."""
    operands = [g.env[n] for n in (found.product.args[0], found.product.args[1], found.last.args[1])]
    if not all(isinstance(v, TensorValue) for v in operands):
        return None
    for k, v in enumerate(operands):  # what each tile would compute anew is stored
        cost, reads = v.weight()
        if cost > (_QUERY_COST if k == 0 else 1) or reads > 1:
            g.store_deep(v)
    with attempt(g, found.last, "attention", _LEAVES):
        return _lower(g, found, operands)
    return None


def _lower(g: Any, found: Attention, operands: list[TensorValue]) -> TensorValue:
    product, x = found.product.meta["val"], found.scores.meta["val"]
    rows, columns = product.shape[1:]
    extents = (product.shape[0], rows, columns, found.product.args[0].meta["val"].shape[2],
               found.last.meta["val"].shape[2])  # fmt: skip
    loops = dict(zip("zmnde", (LoopVar(k, to_expr(v)) for k, v in zip("zmnde", extents, strict=True)), strict=True))
    at = {k: symbol(k, v.size) if not v.size == ONE else ZERO for k, v in loops.items()}
    half = product.dtype != torch.float32
    leaves = {"product": product.dtype, "softmax": torch.float32, "result": found.last.meta["val"].dtype}
    body = Body(g, leaves)
    b = body.b
    phases = {}
    query, key, value = operands
    for name, operand, index in (("query", query, "zmd"), ("key", key, "zdn"), ("value", value, "zne")):
        op = operand.load(b, tuple(at[i] for i in index))
        phases[name] = body.end(name, op, tuple(loops[i] for i in index[1:]))

    known = len(g.nodes)
    where: list[Index] = []  # behind the softmax: where its rows and columns are those of the scores
    g.env[found.weights] = lazy_leaf(g, found.weights.meta["val"], "softmax", lambda _, index: where.append(index))
    evaluate(g, found.after)
    weight = g.env[found.last.args[0]].load(b, (at["z"], at["m"], at["n"]))
    phases["weight"] = body.end("weight", weight, (loops["n"],))
    if not where or any(w != where[0] for w in where) or not is_linear(weight, "softmax"):
        raise Refused("the weights are more than the softmax times a factor")

    wrong: list[Index] = []

    def note(builder: Builder, index: Index) -> None:
        if index != (at["z"], at["m"], at["n"]) or builder.mask is not None:
            wrong.append(index)

    g.env[found.product] = lazy_leaf(g, product, "product", note)
    evaluate(g, found.before)
    score = g.env[found.scores].load(b, where[0])
    phases["score"] = body.end("score", b.to_dtype(score, torch.float32), (loops["n"],))
    if wrong:
        raise Refused(f"a score takes part at {wrong[0]}, not at its own place")
    if x.dtype not in (torch.float32, product.dtype):
        raise Refused(f"a softmax of {x.dtype}")
    if is_kept(g, known, _LEAVES):
        raise Refused("part of the scores has to be stored")

    meta = g.meta_of(found.last.meta["val"])
    name, layout = g.new_buffer(meta)
    out = Op("load", ("result", ZERO, None), compute_dtype(meta.dtype))
    store = Op("store", (name, layout.index((at["z"], at["m"], at["e"])), out, None, None), out.dtype)
    phases["store"] = Phase((loops["e"],), (out, store))
    arguments = [BufferArg(n, g.buffers[n].layout.dtype, "in", g.buffers[n].layout.span) for n in body.loads]
    arguments.append(BufferArg(name, meta.dtype, "out", layout.span))
    scratch = [BufferArg(n, leaves.get(n, torch.float32), "scratch", ONE)
               for n in ("query", "key", "score", "value", "weight", *leaves)]  # fmt: skip
    kernel = AttentionKernel(
        "k_attention", (loops["z"], loops["m"]), tuple(phases[p] for p in _ORDER), (*arguments, *scratch),
        device=g.device.type, origins=(found.product.name, found.weights.name, found.last.name), extents=extents,
        safe=found.safe, rounds=product.dtype if half else torch.float32,
    )  # fmt: skip
    g.kernel_call(NativeOp(kernel, not_called), list(body.loads), [name])
    return g.stored(meta, name, layout)


_LEAVES = frozenset(("product", "softmax", "result"))
_ORDER = ("query", "key", "score", "value", "weight", "store")


__all__ = ["is_wanted", "lower_attention", "plan_attention"]
