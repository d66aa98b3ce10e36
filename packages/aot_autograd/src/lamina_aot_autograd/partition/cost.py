"""What values and ops cost: bytes of a value, bytes moved and FLOPs of an op. The only place with such numbers."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

aten = torch.ops.aten

# One byte moved to or from memory against one FLOP of a matrix product, on the machines we know (TB/s : TFLOP/s ~
# 1:100).
FLOPS_PER_BYTE = 100.0
UNKNOWN_SIZE = 64  # stands for a symbolic size without a hint


def size_hint(size: Any) -> int:
    """An int for a size; symbolic ones by their hint."""
    if isinstance(size, int):
        return size
    hint = getattr(getattr(size, "node", None), "hint", None)
    return int(hint) if hint is not None else UNKNOWN_SIZE


def numel(val: Any) -> int:
    """Number of elements of a tensor value."""
    total = 1
    for size in val.shape:
        total *= size_hint(size)
    return total


def bytes_of(node: fx.Node) -> int:
    """Bytes of a node's value (0 for numbers, the sum for several)."""
    return _bytes(node.meta.get("val"))


def _bytes(val: Any) -> int:
    if isinstance(val, torch.Tensor):
        return numel(val) * val.dtype.itemsize
    if isinstance(val, (list, tuple)):
        return sum(_bytes(item) for item in val)
    return 0


def flops_of(node: fx.Node) -> int:
    """FLOPs of an op: matrix products and convolutions exactly, one an element for the rest."""
    target: Any = node.target
    inputs = [n.meta.get("val") for n in node.all_input_nodes]
    out = node.meta.get("val")
    if target in (aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default):
        a = inputs[0] if target in (aten.mm.default, aten.bmm.default) else node.args[1].meta["val"]  # type: ignore
        return 2 * numel(out) * size_hint(a.shape[-1])
    if target is aten.convolution.default:
        weight = node.args[1].meta["val"]  # type: ignore[union-attr]
        return 2 * numel(out) * numel(weight) // max(size_hint(weight.shape[0]), 1)
    if getattr(target, "_schema", None) is not None and "attention" in target._schema.name:
        q, k = inputs[0], inputs[1]
        return 4 * numel(q) * size_hint(k.shape[-2])
    return _elements(out)


def _elements(val: Any) -> int:
    if isinstance(val, torch.Tensor):
        return numel(val)
    if isinstance(val, (list, tuple)):
        return sum(_elements(v) for v in val)
    return 0


def bytes_moved(node: fx.Node) -> int:
    """Bytes that an op reads and writes when it runs alone."""
    return bytes_of(node) + sum(bytes_of(n) for n in node.all_input_nodes)
