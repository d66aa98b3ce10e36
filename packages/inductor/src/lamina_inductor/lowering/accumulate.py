"""Sums of matrix products that are added up where the sum lies.

The gradient of a weight that is used again and again (the steps of a recurrent network) is a sum of products. As
products and one sum behind them, all of them are in memory at once; eager adds each and lets it go. On a CPU
``add(total, mm(a, b))`` becomes ``addmm(total, a, b)``, written over `total`: one matrix, and a pass less over each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from ..ir.layout import same_strides
from ..ir.tensor import TensorValue, is_tensor_value
from .outputs import ALIASING

_ADDING = {"aten::mm": torch.ops.aten.addmm.default, "aten::bmm": torch.ops.aten.baddbmm.default}
_MADE_BY = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"})
_DTYPES = (torch.float32, torch.float64)  # narrower sums are rounded between the additions in eager


_VIEWS = ALIASING | {"flip", "restride"}


def _undo_each_other(first: Node, second: Node) -> bool:
    """True for a transposition of another one that has no other user, which gives what the first was given."""
    for node in (first, second):
        if node.op != "call_function" or getattr(node.target, "name", "") != "permute":
            return False
    turns: Any = first.args[1]
    back: Any = second.args[1]
    return len(first.users) == 1 and [turns[d] for d in back] == list(range(len(turns)))


def _after_turns(node: Node) -> Node:
    """`node`, or the last of the pairs of transpositions behind it that undo each other and are its only use."""
    while len(node.users) == 1:
        first = next(iter(node.users))
        second = next(iter(first.users)) if len(first.users) == 1 else first
        if not _undo_each_other(first, second):
            break
        node = second
    return node


def _before_turns(node: Node) -> Node:
    """`node`, or what stands before the pairs of transpositions that lead to it."""
    while isinstance(first := node.args[0] if node.args else None, Node) and _undo_each_other(first, node):
        source = first.args[0]
        if not isinstance(source, Node):
            break
        node = source
    return node


def addend_of_only_use(g: Any) -> tuple[TensorValue | None, Node | None, Node | None]:
    """(other operand, its node, sum) when the current node of a lowering is used once, by an addition whose other
    operand is a tensor of the same kind that is known already and used nowhere else; else None for each.
    Transpositions that undo each other are looked through."""
    last = _after_turns(g.node)
    users = list(last.users)
    if len(users) != 1 or getattr(users[0].target, "name", "") != "add" or len(users[0].all_input_nodes) != 2:
        return None, None, None
    other = next(a for a in users[0].all_input_nodes if a is not last)
    if len(other.users) != 1:
        return None, None, None
    other = _before_turns(other)
    value = g.env.get(other)
    if not isinstance(value, TensorValue) or len(other.users) != 1 or other.op != "call_function":
        return None, None, None
    if getattr(other.target, "name", "") in _VIEWS:
        return None, None, None
    meta = g.result()
    same = value.dtype == meta.dtype and value.shape == meta.shape and value.device == meta.device
    return (value, other, users[0]) if same else (None, None, None)


def _schema_name(node: Any) -> str:
    """The ATen operator that a node calls; "" for others."""
    if not isinstance(node, Node) or node.op != "call_function":
        return ""
    target = getattr(getattr(node.target, "spec", None), "aten", None) or node.target
    schema = getattr(target, "_schema", None)
    return schema.name if schema is not None and not schema.overload_name else ""


def add_to_sum(g: Any, overload: Any, args: tuple, kwargs: dict[str, Any]) -> TensorValue | None:
    """The sum of the current product and the product (or sum of products) that its only user adds it to, written over
    that one; None where the product stays on its own."""
    schema = getattr(overload, "_schema", None)
    op = _ADDING.get(schema.name) if schema is not None and not schema.overload_name else None
    if op is None or kwargs or g.device.type != "cpu" or not all(map(is_tensor_value, args)):
        return None
    meta = g.result()
    if meta.dtype not in _DTYPES or any(x.dtype != meta.dtype for x in args):
        return None
    base, other, total = addend_of_only_use(g)
    if base is None or base.buffer is None or not g.owns_memory(base):
        return None
    if _schema_name(other) not in _MADE_BY and other not in g.ready:  # nobody else has its memory
        return None
    if not same_strides(meta.shape, base.layout.stride, meta.stride):
        return None
    out = g.update_node(op, base, args)
    g.ready[total] = out
    return out


__all__ = ["add_to_sum", "addend_of_only_use"]
