"""Rules of ops that read and write at positions given by tensors."""

from __future__ import annotations

from typing import Any

from .. import strides


def index_strides(x: Any, indices: Any, shape: tuple) -> tuple:
    """Strides of ``x[indices]``."""
    return strides.contiguous(shape)
