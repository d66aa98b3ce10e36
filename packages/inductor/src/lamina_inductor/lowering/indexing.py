"""Reads and writes at positions given by integer tensors, with eager's bounds checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import LoweringError
from ..index import ZERO, Expr, is_equal
from ..ir.loops import Builder, Index
from ..ir.tensor import BROADCAST_OPS, TensorValue
from ..ops import Op
from .accumulate import addend_of_only_use
from .registry import lowering


def _bounds(dim: int, size: Expr) -> str:
    return f"index out of bounds for dimension {dim} with size {size}"


def _source(g: Any, x: TensorValue) -> None:
    """A tensor read at arbitrary positions: cheap lazy values stay inlined."""
    if not x.try_store() and x.cost > BROADCAST_OPS and not g.inlines:
        g.realize(x)


@lowering("gather")
def _gather(g: Any, x: TensorValue, dim: int, index: TensorValue) -> TensorValue:
    if not x.shape:
        return g.lazy(g.result(), lambda b, i: x.load(b, ()), reads=1)
    _source(g, x)
    dim = dim % len(x.shape)
    size = x.shape[dim]

    def inner(b: Builder, position: Index) -> Op:
        at: list[Expr] = list(position) or [ZERO]
        picked = b.checked_index(index.load(b, position), size, _bounds(dim, size), wrap=False, kind="RuntimeError")
        at[dim] = picked
        return x.load(b, tuple(at))

    return g.lazy(g.result(), inner, cost=4 + x.weight()[0] + index.weight()[0], reads=1 + index.weight()[1])


@lowering("index_select")
def _index_select(g: Any, x: TensorValue, dim: int, index: TensorValue) -> TensorValue:
    if not x.shape:
        return g.lazy(g.result(), lambda b, i: x.load(b, ()), reads=1)
    _source(g, x)
    dim = dim % len(x.shape)

    def inner(b: Builder, position: Index) -> Op:
        row = index.load(b, (position[dim],) if index.shape else ())
        picked = b.checked_index(row, x.shape[dim], "index out of range in self", wrap=False)
        return x.load(b, (*position[:dim], picked, *position[dim + 1 :]))

    return g.lazy(g.result(), inner, cost=4 + x.weight()[0] + index.weight()[0], reads=1 + index.weight()[1])


@lowering("take_rows")
def _take_rows(g: Any, x: TensorValue, index: TensorValue) -> TensorValue:
    _source(g, x)
    rank = len(index.shape)

    def inner(b: Builder, position: Index) -> Op:
        picked = b.checked_index(index.load(b, position[:rank]), x.shape[0], "index out of range in self", wrap=False)
        return x.load(b, (picked, *position[rank:]))

    return g.lazy(g.result(), inner, cost=4 + x.weight()[0] + index.weight()[0], reads=1 + index.weight()[1])


class IndexPlan:
    """Where the dimensions of ``x[indices]`` come from."""

    def __init__(self, x: TensorValue, indices: Sequence[TensorValue | None]) -> None:
        self.indices = list(indices) + [None] * (len(x.shape) - len(indices))
        self.used = [d for d, i in enumerate(self.indices) if i is not None]
        tensors = [self.indices[d] for d in self.used]
        if any(t.dtype in (torch.bool, torch.uint8) for t in tensors):
            raise LoweringError("boolean index")
        rank = max((len(t.shape) for t in tensors), default=0)
        common: list[Expr] = [None] * rank  # type: ignore[list-item]
        for t in tensors:
            for k, size in enumerate(t.shape, rank - len(t.shape)):
                if common[k] is None or is_equal(common[k], 1):
                    common[k] = size
        self.common = tuple(common)
        adjacent = bool(self.used) and self.used == list(range(self.used[0], self.used[-1] + 1))
        self.start = self.used[0] if adjacent else 0
        self.rest = [d for d in range(len(x.shape)) if d not in self.used]
        self.x = x

    def shape(self) -> tuple[Expr, ...]:
        """Shape of ``x[indices]``."""
        rest = [self.x.shape[d] for d in self.rest]
        return (*rest[: self.start], *self.common, *rest[self.start :])

    def source(self, b: Builder, position: Index) -> Index:
        """The index into x for a position of the result."""
        rank = len(self.common)
        at_common = position[self.start : self.start + rank]
        at_rest = position[: self.start] + position[self.start + rank :]
        out: list[Expr] = [None] * len(self.x.shape)  # type: ignore[list-item]
        for d, e in zip(self.rest, at_rest, strict=True):
            out[d] = e
        for d in self.used:
            t = self.indices[d]
            shift = rank - len(t.shape)
            at = tuple(at_common[k + shift] if not is_equal(s, 1) else ZERO for k, s in enumerate(t.shape))
            out[d] = b.checked_index(t.load(b, at), self.x.shape[d], _bounds(d, self.x.shape[d]))
        return tuple(out)


@lowering("index")
def _index(g: Any, x: TensorValue, indices: Sequence[TensorValue | None]) -> TensorValue:
    plan = IndexPlan(x, indices)
    _source(g, x)
    cost, reads = x.weight()
    for d in plan.used:
        c, r = plan.indices[d].weight()
        cost, reads = cost + c + 4, reads + r
    return g.lazy(g.result(), lambda b, position: x.load(b, plan.source(b, position)), cost=cost, reads=reads)


@lowering("index_put")
def _index_put(
    g: Any, x: TensorValue, indices: Sequence[TensorValue | None], values: TensorValue, accumulate: bool
) -> TensorValue:
    plan = IndexPlan(x, indices)
    if accumulate and x.dtype == torch.bool:
        raise LoweringError("accumulation in bool")
    shape = plan.shape()
    shift = len(shape) - len(values.shape)

    def body(b: Builder, position: Index) -> tuple[Index, Op]:
        at = tuple(ZERO if is_equal(s, 1) else position[k + shift] for k, s in enumerate(values.shape))
        return plan.source(b, position), values.load(b, at)

    if shift < 0:
        raise LoweringError("values of higher rank than the indexed tensor")
    rank = len(plan.common)
    serial = range(plan.start, plan.start + rank)
    return g.scatter_node(x, shape, serial, body, "add" if accumulate else None)


def _scatter(mode_of: Any) -> Any:
    def lower(g: Any, x: TensorValue, dim: int, index: TensorValue, src: Any, *rest: Any) -> TensorValue:
        mode = mode_of(x, *rest)
        if not x.shape or not index.shape:
            raise LoweringError("scatter of a scalar")
        dim = dim % len(x.shape)
        size = x.shape[dim]

        def body(b: Builder, position: Index) -> tuple[Index, Op]:
            picked = b.checked_index(index.load(b, position), size, _bounds(dim, size), wrap=False, kind="RuntimeError")
            value = src.load(b, position) if isinstance(src, TensorValue) else b.constant(src, x.dtype)
            return (*position[:dim], picked, *position[dim + 1 :]), value

        return g.scatter_node(x, index.shape, [dim], body, mode)

    return lower


def _reduce_mode(x: TensorValue, reduce: str, include_self: bool) -> str:
    modes = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
    if not include_self or reduce not in modes or x.dtype == torch.bool:
        raise LoweringError(f"scatter_reduce {reduce}, include_self={include_self}")
    return modes[reduce]


def _add_mode(x: TensorValue) -> str:
    if x.dtype == torch.bool:
        raise LoweringError("accumulation in bool")
    return "add"


lowering("scatter")(_scatter(lambda x: None))
lowering("scatter_add")(_scatter(_add_mode))
lowering("scatter_reduce")(_scatter(_reduce_mode))


@lowering("index_add")
def _index_add(g: Any, x: TensorValue, dim: int, index: TensorValue, src: TensorValue) -> TensorValue:
    mode = _add_mode(x)
    if not x.shape or len(src.shape) != len(x.shape) or len(index.shape) != 1:
        raise LoweringError("index_add of scalars")
    dim = dim % len(x.shape)
    # eager has two kernels with two kinds of errors
    message, kind = ("index out of range in self", "IndexError") if len(x.shape) == 1 else (
        _bounds(dim, x.shape[dim]), "RuntimeError"
    )  # fmt: skip

    def body(b: Builder, position: Index) -> tuple[Index, Op]:
        row = index.load(b, (position[dim],))
        picked = b.checked_index(row, x.shape[dim], message, wrap=False, kind=kind)
        return (*position[:dim], picked, *position[dim + 1 :]), src.load(b, position)

    return g.scatter_node(x, src.shape, [dim], body, mode)


@lowering("embedding_dense_backward")
def _embedding_dense_backward(
    g: Any, grad: TensorValue, indices: TensorValue, num: Expr, padding_idx: int, scale: bool
) -> TensorValue:
    """Rows of `grad` added into a table of zeros, or straight into what the table is added to: the gradient of a weight
    that is an embedding and the last layer at once needs no table of its own then."""
    if g.device.type != "cpu" or scale or grad.dtype not in (torch.float32, torch.float64):
        raise LoweringError("left to the library: another device or dtype, or scaled by frequency")
    meta = g.result()
    rank = len(indices.shape)
    rows = meta.shape[0]

    def body(b: Builder, position: Index) -> tuple[Index, Op]:
        row = indices.load(b, position[:rank])
        value = grad.load(b, position)
        if padding_idx >= 0:
            value = b.where(b.eq(row, b.constant(padding_idx, row.dtype)), b.constant(0.0, value.dtype), value)
        picked = b.checked_index(row, rows, "index out of range in self", wrap=False)
        return (picked, position[rank]), value

    base, _, total = addend_of_only_use(g)
    zeros = g.lazy(meta, lambda b, index: b.constant(0.0, meta.dtype))
    out = g.scatter_node(zeros if base is None else base, grad.shape, range(rank), body, "add", reuse=base is not None)
    if total is not None:
        g.ready[total] = out
    return out
