"""Attention masks whose values are known while tracing.

A program that must not read a mask's values builds it from sizes alone and passes it on: all positions allowed, or the
causal triangle. Fused attention is several times slower with a mask than without, or refuses it, and the mask is as
large as the attention itself. So a mask that follows from constants is computed here, once, and replaced by what it
says: nothing, or `is_causal`. Other masks are passed on; on CUDA in rows, since its fused kernels refuse a mask whose
last dimension is not contiguous and leave the case to plain matrix products in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx

from .._torch import DisableAutocast, below_autograd, disable_torch_dispatch
from .tensor import TraceTensor

attend: Callable[..., Any] = torch.nn.functional.scaled_dot_product_attention
MAX_ELEMENTS = 1 << 24  # a value larger than this is not computed
MAX_NODES = 200
HIDDEN = -1e30  # an additive mask at least this low leaves a probability of exactly zero
_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def scaled_dot_product_attention(interpreter: Any, args: Any, kwargs: Any) -> Any:
    """`torch.nn.functional.scaled_dot_product_attention` while tracing: see the module's docstring."""
    given = {**dict(zip(_PARAMETERS, args, strict=False)), **kwargs}
    if len(args) > len(_PARAMETERS):
        return attend(*args, **kwargs)
    mask, query, key = given.get("attn_mask"), given["query"], given["key"]
    if type(mask) is not TraceTensor or given.get("is_causal") or mask.ndim < 2:
        return attend(*args, **kwargs)
    if not all(isinstance(n, int) for t in (mask, query, key) for n in t.shape):
        return attend(*args, **kwargs)
    says = what_mask_says(interpreter.tracer, mask, query.shape[-2], key.shape[-2])
    if says == "all":
        given["attn_mask"] = None
    elif says == "causal":
        given["attn_mask"], given["is_causal"] = None, True
    elif query.device.type == "cuda":
        given["attn_mask"] = in_rows(mask)
    return attend(**given)


def in_rows(mask: torch.Tensor) -> torch.Tensor:
    """`mask` with a contiguous last dimension; repeated dimensions before it stay repeated."""
    if mask.stride(-1) == 1 or mask.shape[-1] == 1:
        return mask
    part = mask
    for dim in range(mask.ndim - 1):
        if mask.shape[dim] > 1 and mask.stride(dim) == 0:
            part = part.narrow(dim, 0, 1)
    return part.contiguous().expand(mask.shape)


def what_mask_says(tracer: Any, mask: TraceTensor, rows: int, columns: int) -> str | None:
    """ "all", "causal" (of a square), or None: anything else, or values that are not known."""
    if mask.requires_grad:
        return None
    node = tracer.read(mask)
    known: dict[fx.Node, str | None] = tracer.__dict__.setdefault("known_masks", {})
    if node not in known:
        value = known_value(node, tracer.__dict__.setdefault("known_values", {}))
        known[node] = None if value is None else _describe(value, rows, columns)
    return known[node]


def known_value(node: fx.Node, known: dict[fx.Node, torch.Tensor | None]) -> torch.Tensor | None:
    """The value of a node that depends on no input, as a CPU tensor; None if it does or is too large."""
    order = _needed(node, known)
    if order is None:
        return None
    with torch.no_grad(), disable_torch_dispatch(), below_autograd(), DisableAutocast():
        for each in order:
            known[each] = _compute(each, known)
            if known[each] is None:
                return None
    return known[node]


def _needed(node: fx.Node, known: dict[fx.Node, torch.Tensor | None]) -> list[fx.Node] | None:
    """Nodes to compute for `node`, in order; None as soon as one of them cannot be known."""
    seen: dict[fx.Node, None] = {}
    stack = [node]
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        if n in known:
            if known[n] is None:
                return None
            continue
        if not _can_know(n) or len(seen) >= MAX_NODES:
            known[n] = None
            return None
        seen[n] = None
        stack.extend(n.all_input_nodes)
    place = {n: k for k, n in enumerate(node.graph.nodes) if n in seen} if len(seen) > 1 else {}
    return sorted(seen, key=lambda n: place.get(n, 0))


def _can_know(node: fx.Node) -> bool:
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    if not all(isinstance(n, int) for n in value.shape):
        return False
    elements = 1
    for n, s in zip(value.shape, value.stride(), strict=True):
        elements *= n if s else 1
    if elements > MAX_ELEMENTS or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    schema = target._schema
    return not schema.is_mutable and "empty" not in schema.name and schema.name.startswith("aten::")


def _compute(node: fx.Node, known: dict[fx.Node, torch.Tensor | None]) -> torch.Tensor | None:
    def argument(a: Any) -> Any:
        if isinstance(a, fx.Node):
            return known[a]
        if isinstance(a, torch.device):
            return torch.device("cpu")
        if isinstance(a, (list, tuple)):
            return [argument(x) for x in a]
        return a

    kwargs = {k: False if k == "pin_memory" else argument(v) for k, v in node.kwargs.items()}
    try:
        value = node.target(*[argument(a) for a in node.args], **kwargs)  # type: ignore[operator]
    except Exception:  # whatever is wrong with it, it is not known
        return None
    return value if isinstance(value, torch.Tensor) else None


def _describe(mask: torch.Tensor, rows: int, columns: int) -> str | None:
    with torch.no_grad(), disable_torch_dispatch(), below_autograd():
        for dim in range(mask.ndim - 2):
            if mask.shape[dim] > 1 and mask.stride(dim) == 0:
                mask = mask.narrow(dim, 0, 1)
        if mask.dtype is torch.bool:
            shown, hidden = mask, mask.logical_not()
        elif mask.dtype.is_floating_point:
            shown, hidden = mask == 0, mask <= max(HIDDEN, torch.finfo(mask.dtype).min)
        else:
            return None
        if bool(shown.all()):
            return "all"
        if rows != columns or not rows or mask.shape[-2:] != (rows, columns):
            return None
        lower = torch.ones(rows, columns, dtype=torch.bool).tril()
        wrong = torch.where(lower, shown, hidden).logical_not()
        return None if bool(wrong.any()) else "causal"
