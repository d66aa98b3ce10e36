"""Turns an FX graph into functional forward and backward graphs."""

from .__about__ import __version__

__all__ = ["__version__"]
