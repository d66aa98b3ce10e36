"""Values of graph nodes while a graph is lowered.

A `TensorValue` is *stored* (a layout over a buffer) or *lazy* (a function from index to op that consumers inline). A
view of a stored value
is stored again, over the same buffer; a view of a lazy one is lazy, and remembers how to become a strided view in
case its base gets stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..index import Expr, product
from ..ops import Op
from .layout import Layout
from .loops import Builder, Index, Inner

Restride = Callable[[Layout], "Layout | None"]

BROADCAST_OPS = 3
"""Arithmetic ops that may be repeated for every element of a broadcast or gather; dearer values are stored first."""


class TensorValue:
    """See the module's docstring. `cost` counts arithmetic ops and `reads` the loads that inlining would repeat."""

    __slots__ = (
        "dtype", "device", "shape", "stride", "inner", "buffer", "layout", "cost", "reads", "base", "restride",
        "origins", "fresh", "physical",
    )  # fmt: skip

    def __init__(
        self,
        dtype: torch.dtype,
        device: torch.device,
        shape: tuple[Expr, ...],
        *,
        inner: Inner | None = None,
        buffer: str | None = None,
        layout: Layout | None = None,
        cost: int = 0,
        reads: int = 0,
        origins: tuple[str, ...] = (),
    ) -> None:
        self.dtype, self.device, self.shape = dtype, device, shape
        self.inner, self.buffer, self.layout = inner, buffer, layout
        self.cost, self.reads = cost, reads
        self.stride: tuple[Expr, ...] | None = None  # eager's strides
        self.physical: tuple[Expr, ...] | None = None  # strides to store it with, where not eager's
        self.base: TensorValue | None = None
        self.restride: Restride | None = None
        self.origins = origins
        self.fresh = False  # True for a copy that must not alias its source

    @property
    def is_stored(self) -> bool:
        """True when the elements are (or will be) in a buffer."""
        return self.buffer is not None

    @property
    def numel(self) -> Expr:
        """Number of elements."""
        return product(self.shape)

    def load(self, b: Builder, index: Index) -> Op:
        """The element at `index` inside the body that `b` builds."""
        if self.buffer is not None:
            assert self.layout is not None
            return b.load(self.buffer, self.layout.index(index))
        key = (id(self), index, b.mask)
        found = b.memo.get(key)
        if found is None:
            assert self.inner is not None
            found = b.memo[key] = self.inner(b, index)
        return found

    def weight(self) -> tuple[int, int]:
        """(arithmetic ops, loads) that a consumer takes over by inlining."""
        return (0, 1) if self.buffer is not None else (self.cost, self.reads)

    def try_store(self) -> bool:
        """Become stored if the base has been stored meanwhile (for views)."""
        if self.buffer is None and self.base is not None and self.restride is not None and self.base.try_store():
            assert self.base.layout is not None
            layout = self.restride(self.base.layout)
            if layout is not None:
                self.buffer, self.layout, self.inner = self.base.buffer, layout, None
        return self.buffer is not None

    def __repr__(self) -> str:
        where = f"{self.buffer}: {self.layout}" if self.buffer else f"lazy, {self.cost} ops, {self.reads} loads"
        return f"TensorValue({self.dtype}, {list(self.shape)}, {where})"


def is_tensor_value(a: Any) -> bool:
    """True for a TensorValue."""
    return isinstance(a, TensorValue)
