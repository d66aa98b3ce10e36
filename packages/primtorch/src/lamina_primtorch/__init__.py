"""Decomposes ATen operators into a small closed set of prims."""

from .__about__ import __version__

__all__ = ["__version__"]
