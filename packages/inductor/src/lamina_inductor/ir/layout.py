"""Where the elements of a tensor lie: sizes and strides as expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from ..index import ONE, ZERO, Expr, IntLike, product, to_expr, unwrap


@dataclass(frozen=True)
class Layout:
    """dtype, device, shape, stride and offset (elements, from the data pointer of the buffer) of a strided tensor."""

    dtype: torch.dtype
    device: torch.device
    shape: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    offset: Expr = ZERO

    @property
    def numel(self) -> Expr:
        """Number of elements."""
        return product(self.shape)

    @cached_property
    def span(self) -> Expr:
        """Number of elements from the pointer to behind the last element: what has to be allocated."""
        if all([e.op == "const" for e in (*self.shape, *self.stride, self.offset)]):  # the usual case: plain numbers
            end = 1 + self.offset.args[0]
            for size, stride in zip(self.shape, self.stride, strict=True):
                if size.args[0] == 0:
                    return ZERO
                end += (size.args[0] - 1) * stride.args[0]
            return to_expr(end)
        last = ONE + self.offset
        for size, stride in zip(self.shape, self.stride, strict=True):
            if size == 0:
                return ZERO
            last = last + (size - 1) * stride
        return last

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    def index(self, position: Sequence[IntLike]) -> Expr:
        """Element index of `position`."""
        out = self.offset
        for p, stride in zip(position, self.stride, strict=True):
            out = out + to_expr(p) * stride
        return out

    def is_contiguous(self) -> bool:
        """True when the strides are those of a freshly made tensor (sizes of one ignored)."""
        return same_strides(self.shape, self.stride, contiguous_strides(self.shape))

    def __repr__(self) -> str:
        shape, stride = ([unwrap(e) for e in t] for t in (self.shape, self.stride))
        dtype = str(self.dtype).removeprefix("torch.")
        tail = "" if self.offset is ZERO else f", offset={self.offset}"
        return f"Layout({dtype}, {str(self.device)!r}, {shape}, {stride}{tail})"


def contiguous_strides(shape: Sequence[IntLike]) -> tuple[Expr, ...]:
    """Strides of a contiguous tensor as torch computes them (a size of zero counts as one)."""
    out: list[Expr] = []
    step = ONE
    for size in reversed(shape):
        out.append(step)
        size = to_expr(size)
        step = step * (ONE if size == 0 else size)
    return tuple(reversed(out))


def strides_in_order(shape: Sequence[IntLike], order: Sequence[int]) -> tuple[Expr, ...]:
    """Dense strides where `order` lists the dimensions from the outermost to the innermost."""
    out: list[Expr] = [ONE] * len(shape)
    step = ONE
    for dim in reversed(order):
        out[dim] = step
        size = to_expr(shape[dim])
        step = step * (ONE if size == 0 else size)
    return tuple(out)


def same_strides(shape: Sequence[Expr], a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    """True when both strides address the same elements: dimensions of size one do not count."""
    return all(s == 1 or x == y for s, x, y in zip(shape, a, b, strict=True)) or any(s == 0 for s in shape)
