"""lamina.compile(model): a compiler for PyTorch programs."""

from .__about__ import __version__

__all__ = ["__version__"]
