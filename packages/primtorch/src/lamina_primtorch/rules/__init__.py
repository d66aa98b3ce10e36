"""Shape rules by family. Each family module fills ``BY_NAME``: short ATen overload name -> rule(args, kwargs)."""

from . import creation as _creation  # noqa: F401
from . import indexing as _indexing  # noqa: F401
from . import nn as _nn  # noqa: F401
from . import pointwise as _pointwise  # noqa: F401
from . import reductions as _reductions  # noqa: F401
from . import views as _views  # noqa: F401
from ._table import BY_NAME

__all__ = ["BY_NAME"]
