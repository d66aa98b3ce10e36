"""All prims as attributes: ``lamina_primtorch.prims.add``. The families are the submodules."""

from ..spec import PRIMS
from . import creation as _creation  # noqa: F401
from . import elementwise as _elementwise  # noqa: F401
from . import extern as _extern  # noqa: F401
from . import indexing as _indexing  # noqa: F401
from . import reduction as _reduction  # noqa: F401
from . import shape as _shape  # noqa: F401
from . import view as _view  # noqa: F401

for _clash in PRIMS.keys() & {"creation", "elementwise", "extern", "indexing", "reduction", "shape", "view"}:
    raise ValueError(f"prim {_clash!r} has the name of a family module")
globals().update(PRIMS)
