"""Decomposes ATen operators into a small closed set of prims."""

from . import prims
from .__about__ import __version__
from .decompose import decompose
from .spec import PRIMS, OpSpec, Prim, TensorMeta
from .tables import decomposition_table
from .value import Value

__all__ = ["PRIMS", "OpSpec", "Prim", "TensorMeta", "Value", "__version__", "decompose", "decomposition_table", "prims"]
