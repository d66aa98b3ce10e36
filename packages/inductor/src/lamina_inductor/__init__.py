"""Lowers prim graphs to a loop-level IR and generates C++ and Triton."""

from .__about__ import __version__

__all__ = ["__version__"]
