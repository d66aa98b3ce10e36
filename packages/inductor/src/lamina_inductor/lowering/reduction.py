"""Reductions and scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import LoweringError
from ..index import product
from ..ir.loops import Builder, Index
from ..ir.tensor import TensorValue
from ..ops import Op, compute_dtype
from .registry import add_lowering, lowering

Finish = Callable[[Builder, list[Op]], Op]


def reduce_to(
    g: Any,
    x: TensorValue,
    dims: Sequence[int],
    kind: str,
    compute: torch.dtype,
    finish: Sequence[Finish],
    *,
    prepare: Callable[[Builder, Op], Op] | None = None,
    position: Callable[[Index], Any] | None = None,
) -> tuple[TensorValue, ...]:
    """One reduction node; `finish[k]` makes result k from the reduction's results. `position` gives argmax its
    index."""
    g.require(f"reduction:{kind}", compute)
    reduced = sorted({d % max(len(x.shape), 1) for d in dims}) if x.shape else []
    kept = [d for d in range(len(x.shape)) if d not in reduced]
    metas = [g.result(k) for k in range(len(finish))]

    def body(b: Builder, outer: Index, inner: Index) -> list[Op]:
        index: list[Any] = [None] * len(x.shape)
        for d, e in zip(kept, outer, strict=True):
            index[d] = e
        for d, e in zip(reduced, inner, strict=True):
            index[d] = e
        value = x.load(b, tuple(index))
        value = prepare(b, value) if prepare is not None else b.to_dtype(value, compute)
        where = b.index_expr(position(tuple(index))) if position is not None else None
        return b.reduction(value, kind, where, value.dtype if kind not in ("argmax", "argmin") else torch.int64)

    return g.reduction_node([x.shape[d] for d in kept], [x.shape[d] for d in reduced], body, finish, metas, x)


def _first(b: Builder, results: list[Op]) -> Op:
    return results[0]


def _typed(kind: str) -> Callable[..., TensorValue]:
    def lower(g: Any, x: TensorValue, dims: Sequence[int], dtype: torch.dtype) -> TensorValue:
        if dtype == torch.bool:
            raise LoweringError(f"{kind} in bool")
        half = dtype in (torch.float16, torch.bfloat16)

        def prepare(b: Builder, v: Op) -> Op:
            v = b.to_dtype(v, dtype)
            return b.to_dtype(v, compute_dtype(dtype)) if half else v

        return reduce_to(g, x, dims, kind, compute_dtype(dtype), [_first], prepare=prepare)[0]

    return lower


def _extreme(kind: str) -> Callable[..., TensorValue]:
    def lower(g: Any, x: TensorValue, dims: Sequence[int]) -> TensorValue:
        if x.dtype == torch.bool:
            kind_of_bool = "any" if kind == "max" else "all"
            return reduce_to(g, x, dims, kind_of_bool, torch.bool, [_first])[0]
        return reduce_to(g, x, dims, kind, compute_dtype(x.dtype), [_first])[0]

    return lower


def _truth(kind: str) -> Callable[..., TensorValue]:
    def lower(g: Any, x: TensorValue, dims: Sequence[int]) -> TensorValue:
        return reduce_to(
            g,
            x,
            dims,
            kind,
            torch.bool,
            [_first],
            prepare=lambda b, v: v if v.dtype == torch.bool else b.ne(v, b.constant(0, v.dtype)),
        )[0]

    return lower


def _arg(kind: str) -> Callable[..., TensorValue]:
    def lower(g: Any, x: TensorValue, dim: int | None) -> TensorValue:
        if x.dtype == torch.bool:
            raise LoweringError(f"{kind} of bool")
        if not x.shape:
            return g.lazy(g.result(), lambda b, index: b.constant(0, torch.int64))
        if dim is None:
            dims: Sequence[int] = range(len(x.shape))

            def position(index: Index) -> Any:
                flat: Any = 0
                for e, size in zip(index, x.shape, strict=True):
                    flat = e + size * flat
                return flat
        else:
            axis = dim % len(x.shape)
            dims = (axis,)

            def position(index: Index) -> Any:
                return index[axis]

        return reduce_to(g, x, dims, kind, compute_dtype(x.dtype), [_first], position=position)[0]

    return lower


for _name in ("sum", "prod"):
    add_lowering(_name, _typed(_name))
add_lowering("amax", _extreme("max"))
add_lowering("amin", _extreme("min"))
add_lowering("any", _truth("any"))
add_lowering("all", _truth("all"))
add_lowering("argmax", _arg("argmax"))
add_lowering("argmin", _arg("argmin"))


@lowering("var_mean")
def _var_mean(g: Any, x: TensorValue, dims: Sequence[int], correction: float) -> tuple[TensorValue, ...]:
    if x.dtype.is_complex:
        raise LoweringError("var_mean of complex")
    rank = max(len(x.shape), 1)
    count = product(x.shape[d] for d in {d % rank for d in dims}) if x.shape else product(())

    def variance(b: Builder, results: list[Op]) -> Op:
        m2 = results[1]
        if count.is_const:
            return b.truediv(m2, b.constant(max(float(int(count)) - float(correction), 0.0), m2.dtype))
        n = b.to_dtype(b.index_expr(count), m2.dtype)
        n = b.maximum(b.sub(n, b.constant(float(correction), m2.dtype)), b.constant(0.0, m2.dtype))
        return b.truediv(m2, n)

    if count == 0:
        raise LoweringError("variance of nothing")
    return reduce_to(g, x, dims, "welford", compute_dtype(x.dtype), [variance, _first])


def _scan(kind: str, results: int) -> Callable[..., Any]:
    def lower(g: Any, x: TensorValue, dim: int) -> Any:
        if not x.shape or x.dtype == torch.bool:
            raise LoweringError(f"{kind} of a scalar or bool")
        compute = compute_dtype(x.dtype)
        g.require(f"scan:{kind}", compute)
        axis = dim % len(x.shape)

        def body(b: Builder, index: Index) -> list[Op]:
            where = b.index_expr(index[axis]) if results == 2 else None
            return b.scan(x.load(b, index), kind, where, compute)

        out = g.scan_node(x.shape, axis, body, [g.result(k) for k in range(results)], x)
        return out[0] if results == 1 else out

    return lower


add_lowering("cumsum", _scan("sum", 1))
add_lowering("cumprod", _scan("prod", 1))
add_lowering("logcumsumexp", _scan("logcumsumexp", 1))
add_lowering("cummax", _scan("cummax", 2))
add_lowering("cummin", _scan("cummin", 2))
