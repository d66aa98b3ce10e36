"""Decompositions, by family. Each is written once, over prims, and runs on real tensors as well as on recorded
``Value``s.

``DECOMPOSITIONS``: short ATen overload name ("add.Tensor") -> function with the overload's own arguments. A function
raises
NotImplementedError for arguments it does not treat; the ATen call is then kept.
"""

from . import activations as _activations  # noqa: F401
from . import creation as _creation  # noqa: F401
from . import indexing as _indexing  # noqa: F401
from . import losses as _losses  # noqa: F401
from . import norms as _norms  # noqa: F401
from . import pointwise as _pointwise  # noqa: F401
from . import reductions as _reductions  # noqa: F401
from . import views as _views  # noqa: F401
from ._table import DECOMPOSITIONS

__all__ = ["DECOMPOSITIONS"]
