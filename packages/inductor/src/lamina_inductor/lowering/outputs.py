"""What leaves a graph: values with eager's strides, in memory that is shared only where eager shares it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from ..errors import UnsupportedGraph
from ..index import ONE, Expr, unwrap
from ..ir.layout import Layout, contiguous_strides, same_strides
from ..ir.program import Output
from ..ir.tensor import TensorValue

# views in eager too: a graph output that is one of these may share memory with an input or another output
ALIASING = {"broadcast_in_dim", "permute", "reshape", "slice", "as_strided", "diagonal", "unfold"}


def output_of(g: Any, a: Any, taken: set[str], free: bool = False) -> Output:
    """The output that a graph's result `a` is. `taken`: buffers that earlier outputs are in; `free`: strides may be
    those in memory."""
    value = g.env[a] if isinstance(a, Node) else a
    if not isinstance(value, TensorValue):
        return _number(value)
    assert isinstance(a, Node)
    if a.op == "placeholder" and "physical_stride" not in a.meta:
        return Output("input", index=g.buffers[value.buffer].index)
    stride = g.meta_of(a.meta["val"]).stride if a.meta.get("val") is not None else value.stride
    g.store_deep(value)
    assert value.layout is not None and value.buffer is not None and stride is not None
    own = value.layout.stride
    if free and not same_strides(value.shape, own, stride) and is_dense(value.shape, own):
        if all(e.is_const for e in own):
            stride = own
            g.output_strides[-1] = tuple(int(e) for e in own)
    name, decl = getattr(a.target, "name", ""), g.buffers[value.buffer]
    alone = name == "restride"  # in eager a tensor of its own: it may be what it is a copy of, if nobody else has that
    if alone:
        may_alias = decl.kind == "temp" and value.buffer not in g.pinned and decl.layout.span == value.layout.span
    else:
        may_alias = decl.kind == "temp" or (name in ALIASING and value.buffer not in g.alone)
    fits = same_strides(value.shape, value.layout.stride, stride)
    if value.layout.dtype not in g.supported:
        fits = may_alias = True
    if not fits or not may_alias:
        overlapping = any(s == 0 and not n == 1 for n, s in zip(value.shape, stride, strict=True))
        value = g.copy_of(value, contiguous_strides(value.shape) if overlapping else stride)
    assert value.layout is not None and value.buffer is not None
    decl = g.buffers[value.buffer]
    stride = stride if fits or not overlapping else value.layout.stride
    layout = Layout(value.dtype, value.device, value.shape, stride, value.layout.offset)
    shared = decl.kind in ("input", "constant") or value.buffer in taken
    taken.add(value.buffer)
    if alone:
        g.alone.add(value.buffer)
    if decl.kind == "temp":
        decl.kind = "output"
    return Output("view" if shared else "buffer", name=value.buffer, layout=layout)


def _number(value: Any) -> Output:
    if value is None:
        return Output("none")
    if isinstance(value, (Expr, bool, int, float, complex, str, torch.dtype, torch.device)):
        return Output("scalar", value=unwrap(value) if isinstance(value, Expr) else value)
    raise UnsupportedGraph(f"output of type {type(value).__name__}")


def is_dense(shape: Sequence[Expr], stride: Sequence[Expr]) -> bool:
    """True when the strides fill memory without gaps or overlap, in some order of the dimensions."""
    left = [(n, s) for n, s in zip(shape, stride, strict=True) if not n == 1]
    if any(n == 0 for n, _ in left):
        return True
    step = ONE
    while left:
        for k, (n, s) in enumerate(left):
            if s == step:
                step = step * n
                del left[k]
                break
        else:
            return False
    return True


__all__ = ["ALIASING", "is_dense", "output_of"]
