"""Decomposes ATen operators into a small closed set of prims."""

from . import prims
from .__about__ import __version__
from .spec import PRIMS, OpSpec, Prim, TensorMeta

__all__ = ["PRIMS", "OpSpec", "Prim", "TensorMeta", "__version__", "prims"]
