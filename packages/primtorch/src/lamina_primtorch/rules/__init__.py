"""Shape rules by family. Each family module fills ``BY_NAME``: short ATen overload name -> rule(args, kwargs)."""

from ._table import BY_NAME
from . import indexing as _indexing  # noqa: F401

__all__ = ["BY_NAME"]
