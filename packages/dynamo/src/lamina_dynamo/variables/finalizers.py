"""Objects whose end runs code of their class (`__del__`): the one rule for where they may be made, passed and dropped.

Where such an object dies is for the program to see, and generated code holds references a little longer than the frame
it stands for. So a frame that makes one is left to eager as a whole; what it calls is captured. Classes of installed
packages finalise what has no meaning to the program (progress bars, pools): making one only breaks the graph. One that
comes from outside is captured, and the graph breaks where its name is bound anew or deleted.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from ..graph_break import leave_whole
from .attributes import find_in_mro
from .base import VariableTracker
from .lazy import LazyVariable

_HEAP_TYPE = 1 << 9  # made by a class statement


def has_finalizer(vt: VariableTracker) -> bool:
    """Is it an object from outside that runs code of its class when it dies, or one that a weak reference of the region
    looks at? Records no guard.
    """
    if getattr(vt, "is_watched", False):
        return True
    if vt.source is None:
        return False
    if type(vt) is LazyVariable and not vt.is_realized:
        kind = vt.peek_type()
    else:
        kind = type(getattr(vt.realize(), "value", None))
    return bool(kind.__flags__ & _HEAP_TYPE) and hasattr(kind, "__del__")


def check_making(tx: Any, cls: type, cls_vt: VariableTracker) -> None:
    """Breaks the graph where an instance of a class with a finalizer is about to be made."""
    if find_in_mro(tx, cls, "__del__", cls_vt) is not None:
        _refuse(tx, cls)


def _refuse(tx: Any, cls: type) -> NoReturn:
    module = sys.modules.get(cls.__module__)
    is_of_a_library = "site-packages" in (getattr(module, "__file__", None) or "")
    leave = tx.graph_break if is_of_a_library else leave_whole
    leave("weak_reference", type=cls.__qualname__, reason="its __del__ runs where the last reference goes")
