"""``_grouped_mm`` (rows of a matrix in groups, a weight for each) as a kernel of ours with what follows it.

Elementwise nodes behind the product that lead to one value are computed on its tiles; the product itself may be wanted
elsewhere, too (by the backward). ATen has one kernel for all groups in bfloat16 on devices of capability 9; there a
product that nothing follows stays a call (H200, 8 groups of 8192 rows and silu: 0.077 ms, call and silu 0.098).
Elsewhere it computes one group after the other and asks the device for their sizes first; those calls are kernels of
ours. Rows behind the last group are not written, as with ATen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from ..codegen.grouped_kernel import GroupedKernel
from ..codegen.kernel import BufferArg, LoopVar
from ..codegen.native_kernel import NativeOp
from ..index import ONE, ZERO, symbol, to_expr
from ..ir.loops import Builder, Index
from ..ir.tensor import TensorValue, is_tensor_value
from ..passes import is_on
from .traced import Body, Refused, attempt, evaluate, is_kept, lazy_leaf, not_called

MOST_NODES = 24  # behind a product that are computed with it
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_NAME = "aten::_grouped_mm"


@dataclass(frozen=True)
class Grouped:
    """A product of row groups, what is computed on its tiles (in the graph's order), the last of it (the product itself
    where there is nothing), and whether others want the product."""

    product: Node
    behind: tuple[Node, ...]
    last: Node
    wanted: bool


def _schema_name(node: Node) -> str:
    schema = getattr(node.target, "_schema", None)
    return "" if node.op != "call_function" or schema is None else schema.name


def _is_elementwise(node: Node, shape: tuple) -> bool:
    tags = getattr(getattr(node.target, "spec", None), "tags", ())
    val = node.meta.get("val")
    return node.op == "call_function" and "elementwise" in tags and tuple(getattr(val, "shape", ())) == shape


def _behind(product: Node, place: dict[Node, int]) -> tuple[tuple[Node, ...], bool]:
    """(nodes that may be computed on the product's tiles, is the product wanted elsewhere)."""
    shape = tuple(product.meta["val"].shape)
    inside, best = {product}, ((), len(product.users) > 0)
    while len(inside) <= MOST_NODES:
        users = {u for n in inside for u in n.users if u not in inside}
        following = [u for u in users if _is_elementwise(u, shape)]
        if not following:
            break
        last = min(following, key=place.__getitem__)
        inside.add(last)
        leaving = {n for n in inside if any(u not in inside for u in n.users)}
        if leaving <= {product, last}:
            best = tuple(sorted(inside - {product}, key=place.__getitem__)), product in leaving
    return best


def plan_grouped(g: Any) -> list[Grouped]:
    """The products of row groups of the graph that `g` lowers which are to be kernels of ours."""
    nodes = [n for n in g.gm.graph.nodes if _schema_name(n) == _NAME and _is_wanted(g, n)]
    if not nodes or not is_on("products"):
        return []
    place = {n: k for k, n in enumerate(g.gm.graph.nodes)}
    found: list[Grouped] = []
    taken: set[Node] = set()
    for node in nodes:
        behind, wanted = _behind(node, place)
        one = Grouped(node, behind, behind[-1], wanted) if behind else Grouped(node, (), node, False)
        if taken.intersection(behind) or _uses_between(one, place):
            one = Grouped(node, (), node, False)
        if not one.behind and _has_kernel(g, node.meta["val"].dtype):
            continue
        taken.update((node, *one.behind))
        found.append(one)
    return found


def _uses_between(one: Grouped, place: dict[Node, int]) -> bool:
    """True if somebody reads the product before the last node, which makes both, is there."""
    users = [u for u in one.product.users if u not in one.behind]
    return any(place[u] < place[one.last] for u in users)


def _arguments(node: Node) -> tuple[Any, Any, Any, Any, Any]:
    args = [*node.args, *[None] * (5 - len(node.args))]
    for k, name in enumerate(("offs", "bias", "out_dtype"), 2):
        args[k] = node.kwargs.get(name, args[k])
    return tuple(args[:5])  # type: ignore[return-value]


def _is_wanted(g: Any, node: Node) -> bool:
    x, w, ends, bias, dtype = _arguments(node)
    if not all(isinstance(a, Node) for a in (x, w, ends)) or bias is not None or len(node.args) > 5:
        return False
    a, b, e, out = (n.meta["val"] for n in (x, w, ends, node))
    if a.dim() != 2 or b.dim() != 3 or dtype not in (None, a.dtype) or out.dtype != a.dtype or b.dtype != a.dtype:
        return False
    if any(not isinstance(n, int) or n == 0 for n in (*a.shape, *b.shape)) or a.dtype not in _DTYPES:
        return False
    if any(v.device.type != g.device.type for v in (a, b, e)) or e.stride() != (1,) or b.shape[0] > 1024:
        return False
    return g.can_lower("attention", a.dtype) is None


def _has_kernel(g: Any, dtype: torch.dtype) -> bool:
    """True where ATen computes all groups in one kernel."""
    if dtype != torch.bfloat16 or g.device.type != "cuda" or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_capability(g.device)[0] == 9


def lower_grouped(g: Any, one: Grouped) -> TensorValue | None:
    """The value of `one.last`, the current node; None where the parts have to be lowered one by one."""
    operands = [g.env[n] for n in _arguments(one.product)[:3]]
    if not all(is_tensor_value(v) for v in operands):
        return None
    for v in operands[:2]:
        cost, reads = v.weight()
        if cost > 1 or reads > 1:
            g.store_deep(v)
    g.store_as_eager(operands[2])
    if not operands[2].layout.offset == ZERO:
        return None
    results: list[TensorValue] = []
    with attempt(g, one.last, "a product of groups with what follows it", ("product",)):
        results = _lower(g, one, *operands)
    if not results:
        return None
    if one.wanted:
        g.env[one.product] = results[0]
    return results[-1]


def _lower(g: Any, one: Grouped, x: TensorValue, w: TensorValue, ends: TensorValue) -> list[TensorValue]:
    val = one.product.meta["val"]
    extents = (int(w.shape[0]), *val.shape, int(x.shape[1]))
    loops = {k: LoopVar(k, to_expr(v)) for k, v in zip("zmnd", extents, strict=True)}
    at = {k: symbol(k, v.size) if not v.size == ONE else ZERO for k, v in loops.items()}
    body = Body(g, {"product": val.dtype})
    b = body.b
    phases = [
        body.end("left", x.load(b, (at["m"], at["d"])), (loops["m"], loops["d"])),
        body.end("right", w.load(b, (at["z"], at["d"], at["n"])), (loops["d"], loops["n"])),
    ]
    wrong: list[Index] = []

    def note(builder: Builder, index: Index) -> None:
        if index != (at["m"], at["n"]) or builder.mask is not None:
            wrong.append(index)

    known = len(g.nodes)
    g.env[one.product] = lazy_leaf(g, val, "product", note)
    evaluate(g, one.behind)
    made: list[tuple[str, Any, Any]] = []
    results: list[TensorValue] = []
    for node in [one.product, one.last] if one.wanted else [one.last]:
        value = g.env[node].load(b, (at["m"], at["n"]))
        meta = g.meta_of(node.meta["val"])
        name, layout = g.new_buffer(meta)
        index = layout.index((at["m"], at["n"]))
        phases.append(body.end(name, value, (loops["m"], loops["n"]), index))
        made.append((name, layout, meta))
        results.append(g.stored(meta, name, layout))
    if wrong:
        raise Refused(f"an element takes part at {wrong[0]}, not at its own place")
    if is_kept(g, known, ("product",)):
        raise Refused("part of it has to be stored")
    body.loads.setdefault(str(ends.buffer))
    arguments = [BufferArg(n, g.buffers[n].layout.dtype, "in", g.buffers[n].layout.span) for n in body.loads]
    arguments += [BufferArg(n, layout.dtype, "out", layout.span) for n, layout, _ in made]
    scratch = [BufferArg(n, val.dtype if n == "product" else torch.float32, "scratch", ONE)
               for n in ("left", "right", "product")]  # fmt: skip
    half = val.dtype != torch.float32
    kernel = GroupedKernel(
        "k_grouped_mm", (loops["z"],), tuple(phases), (*arguments, *scratch), device=g.device.type,
        origins=(one.product.name, *(n.name for n in one.behind)), extents=extents, ends=str(ends.buffer),
        rounds=val.dtype if half else torch.float32,
    )  # fmt: skip
    g.kernel_call(NativeOp(kernel, not_called), list(body.loads), [n for n, _, _ in made])
    return results


__all__ = ["Grouped", "lower_grouped", "plan_grouped"]
