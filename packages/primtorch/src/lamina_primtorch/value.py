"""``Value``: the metadata of a tensor result, without data and without torch's dispatcher.

It is what decompositions compute with while recording, and what ``node.meta["val"]`` of a decomposed graph holds: an
object with ``shape``
(tuple of int or SymInt), ``stride()``, ``dtype``, ``device``, ``layout``, ``requires_grad`` (False), ``dim()``,
``ndim``, ``numel()``,
``size()``, ``element_size()``, ``storage_offset()`` (0), ``is_contiguous()``, ``is_complex()`` and
``is_floating_point()``.
"""

from __future__ import annotations

from typing import Any

import torch

from . import strides


class Value:
    """Metadata of one tensor and, while recording, the row that computes it."""

    __slots__ = ("shape", "_stride", "dtype", "device", "row")

    def __init__(
        self,
        shape: tuple[Any, ...],
        stride: tuple[Any, ...],
        dtype: torch.dtype,
        device: torch.device,
        row: Any = None,
    ) -> None:
        self.shape = shape
        self._stride = stride
        self.dtype = dtype
        self.device = device
        self.row = row

    layout = torch.strided
    requires_grad = False
    is_sparse = False
    is_quantized = False
    grad_fn = None

    def stride(self, dim: int | None = None) -> Any:
        return self._stride if dim is None else self._stride[dim]

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return len(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def numel(self) -> Any:
        return strides.numel(self.shape)

    def element_size(self) -> int:
        return self.dtype.itemsize

    def storage_offset(self) -> int:
        return 0

    def is_contiguous(self, memory_format: Any = torch.contiguous_format) -> bool:
        if memory_format is torch.contiguous_format:
            return strides.is_contiguous(self.shape, self._stride)
        return strides.is_channels_last(self.shape, self._stride)

    def is_complex(self) -> bool:
        return self.dtype.is_complex

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def __getstate__(self) -> Any:
        return (self.shape, self._stride, self.dtype, self.device)

    def __setstate__(self, state: Any) -> None:
        self.shape, self._stride, self.dtype, self.device = state
        self.row = None

    def __deepcopy__(self, memo: Any) -> Value:
        return Value(self.shape, self._stride, self.dtype, self.device)

    def __repr__(self) -> str:
        return f"{str(self.dtype)[6:]}{list(self.shape)}{'' if self.is_contiguous() else list(self._stride)}"
