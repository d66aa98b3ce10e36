"""Linear layers whose weight is kept in int8 and widened where it is used (weight-only quantization), on a CPU.

Written out, the widened weight goes through memory once more in each call: four bytes written and read for each byte of
the weight. For few rows, where reading the weight is what a product costs, two ways avoid that: ATen's
``_weight_int8pack_mm`` (bfloat16; it takes the scale of each output channel, too) and a sum in a loop kernel that
widens as it reads. Measured with one thread, 1024x1024: bfloat16 3.3 times as fast with one row, 1.9 with four, 1.1
with eight; float32 2.5, 1.9 and 1.8 times with one, two and three rows.

The scale may be applied to the weight before the product or to the result behind it. Sums are in float32 and rounded
once, so that the result is never less exact than what is written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.fx import Node

from ..ir.layout import Layout
from ..ir.loops import Builder, Index
from ..ir.tensor import TensorValue, is_tensor_value
from ..ops import Op

MOST_PACKED_ROWS = 8
MOST_LOOP_ROWS = {torch.float32: 3, torch.bfloat16: 1, torch.float16: 1}
_BLOCK = 32  # sizes that are no multiple of it make ATen's kernel read beyond its operands
_NARROW = (torch.int8, torch.uint8)
_OPERANDS = {"aten::mm": (None, 0, 1), "aten::addmm": (0, 1, 2)}


class Widened(NamedTuple):
    """A weight ``[n, k]`` in a narrow dtype, and what its rows are multiplied with (``[n]`` or ``[n, 1]``), or None."""

    weight: Node
    scale: Node | None


def _name(node: Any) -> str:
    return getattr(node.target, "name", "") if isinstance(node, Node) and node.op == "call_function" else ""


def _shape(node: Any) -> tuple[Any, ...]:
    val = node.meta.get("val") if isinstance(node, Node) else None
    return tuple(val.shape) if hasattr(val, "shape") else ()


def _row_scale(node: Any, rows: int) -> Node | None:
    """What a broadcast multiplies each row of a matrix with; None if it is no such broadcast."""
    if _name(node) != "broadcast_in_dim":
        return None
    source, _, dims = node.args[:3]
    shape, dims = _shape(source), tuple(dims)
    return source if (shape, dims) in (((rows,), (0,)), ((rows, 1), (0, 1))) else None


def widened(node: Any) -> Widened | None:
    """The narrow weight behind the second operand ``[k, n]`` of a product; None where there is none."""
    if _name(node) != "permute" or tuple(node.args[1]) != (1, 0):
        return None
    node, scale = node.args[0], None
    if _name(node) == "mul" and len(_shape(node)) == 2:
        for here, other in (node.args, node.args[::-1]):
            if _name(here) == "convert_element_type":
                scale = _row_scale(other, _shape(node)[0])
                node = here
                break
        if scale is None:
            return None
    if _name(node) != "convert_element_type":
        return None
    weight = node.args[0]
    val = weight.meta.get("val")
    return Widened(weight, scale) if getattr(val, "dtype", None) in _NARROW and len(val.shape) == 2 else None


def _scaled_behind(node: Node, columns: int) -> tuple[Node, Node] | None:
    """(scale of the columns, multiplication by it) where that is all that is done with a product."""
    last = node
    while len(last.users) == 1:
        user = next(iter(last.users))
        if _name(user) == "reshape" and _shape(user)[-1:] == (columns,):
            last = user
            continue
        if _name(user) != "mul" or len(user.args) != 2:
            return None
        other = user.args[1] if user.args[0] is last else user.args[0]
        if _name(other) != "broadcast_in_dim" or tuple(other.args[2]) != (len(_shape(user)) - 1,):  # type: ignore[union-attr]
            return None
        scale = other.args[0]  # type: ignore[union-attr]
        return (scale, user) if _shape(scale) == (columns,) else None
    return None


def is_widened_as_read(g: Any, overload: Any, args: tuple) -> bool:
    """Whether a product of few rows becomes a loop kernel that widens its weight."""
    schema = getattr(overload, "_schema", None)
    places = _OPERANDS.get(schema.name) if schema is not None and not schema.overload_name else None
    if places is None or g.device.type != "cpu" or g.node is None:
        return False
    a, b = args[places[1]], args[places[2]]
    if not is_tensor_value(a) or not is_tensor_value(b) or b.is_stored or a.dtype not in MOST_LOOP_ROWS:
        return False
    if g.can_lower("product", a.dtype) is None or not all(e.is_const for e in (*a.shape, *b.shape)):
        return False
    found = widened(g.node.args[places[2]])
    # in halves each widened element would be rounded to what it is in memory
    return (
        found is not None
        and 0 < int(a.shape[0]) <= MOST_LOOP_ROWS[a.dtype]
        and (found.scale is None or a.dtype is torch.float32)
    )


def as_packed_product(g: Any, overload: Any, args: tuple, kwargs: dict[str, Any]) -> TensorValue | None:
    """A product with a widened int8 weight as one call on the weight as it is; None where it stays."""
    schema = getattr(overload, "_schema", None)
    places = _OPERANDS.get(schema.name) if schema is not None and not schema.overload_name else None
    op = getattr(torch.ops.aten, "_weight_int8pack_mm", None)
    if places is None or op is None or g.device.type != "cpu" or any(v != 1 for v in kwargs.values()):
        return None
    bias, x, b = (None if p is None else args[p] for p in places)
    if not is_tensor_value(x) or not is_tensor_value(b) or x.dtype is not torch.bfloat16 or g.node is None:
        return None
    found = widened(g.node.args[places[2]])
    if found is None or found.weight.meta["val"].dtype is not torch.int8:
        return None
    if g.can_lower("product", x.dtype) is None or not all(e.is_const for e in (*x.shape, *b.shape)):
        return None
    (m, k), n = (int(e) for e in x.shape), int(b.shape[1])
    weight = found.weight.meta["val"]
    if not 0 < m <= MOST_PACKED_ROWS or n % _BLOCK or k % _BLOCK or tuple(weight.stride()) != (k, 1):
        return None
    if x.stride is None or [int(s) if s.is_const else -1 for s in x.stride] != [k, 1]:
        return None
    if bias is not None and (not is_tensor_value(bias) or len(bias.shape) != 1 or bias.dtype != x.dtype):
        return None
    scale, multiplied = found.scale, None
    if scale is None and bias is None:
        behind = _scaled_behind(g.node, n)
        scale, multiplied = behind if behind is not None else (None, None)
    if scale is None or scale not in g.env or scale.meta["val"].dtype != x.dtype or scale.meta["val"].stride()[0] != 1:
        return None
    factors = g.store_as_eager(g.env[scale])
    at: Layout = factors.layout
    vector = Layout(at.dtype, at.device, b.shape[1:], at.stride[:1], at.offset)
    if not at.stride[0] == 1:
        return None
    if multiplied is not None:  # its other operand is its result
        g.ready[multiplied] = next(a for a in multiplied.args if _name(a) != "broadcast_in_dim")
    meta = g.result()
    given = (x, g.env[found.weight], g.stored(vector, factors.buffer, vector))
    out = g.extern(given, {}, g.node.meta["val"], op.default)
    if bias is None:
        return out

    def add(builder: Builder, index: Index) -> Op:
        at = 0 if bias.shape[0] == 1 else index[1]
        wide = builder.to_dtype(out.load(builder, index), torch.float32)
        added = builder.to_dtype(bias.load(builder, (at,)), torch.float32)
        return builder.to_dtype(builder.add(wide, added), meta.dtype)

    return g.lazy(meta, add, cost=3, reads=2)


__all__ = ["as_packed_product", "is_widened_as_read", "widened"]
