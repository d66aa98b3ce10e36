"""Who owns compiled frames.

The entries themselves hang on code objects, in C. An entry lives as long as an `Owner` that used it, and an owner
lives as long as what
was compiled: the function, the bound object or the module given to `optimize`. So compiled code goes with the
function it was made for, and
compiling the same function again finds what is there.
"""

from __future__ import annotations

import threading
import types
import weakref
from typing import Any

from . import _eval_frame

__all__ = [
    "anchor_of",
    "hit_count",
    "new_owner",
    "owner_for",
    "owners_of",
    "remember_marked",
    "reset",
    "reset_hit_count",
]

_lock = threading.RLock()
_owners: dict[int, tuple[Any, dict[Any, Any]]] = {}
_forever: dict[Any, Any] = {}
_marked: weakref.WeakSet[types.CodeType] = weakref.WeakSet()


def anchor_of(fn: Any) -> Any:
    """The object whose life bounds that of the compiled code: the object of a bound method, otherwise the callable
    itself.
    """
    return fn.__self__ if isinstance(fn, types.MethodType) else fn


def owner_for(anchor: Any, key: Any, callback: Any) -> Any:
    """The owner of ``anchor`` for this key (made if there is none). ``anchor`` None: one that lives forever."""
    with _lock:
        if anchor is None:
            table = _forever
        else:
            number = id(anchor)
            found = _owners.get(number)
            if found is not None and found[0]() is anchor:
                table = found[1]
            else:
                try:
                    reference = weakref.ref(anchor, lambda _: _owners.pop(number, None))
                except TypeError:
                    reference, table = None, _forever
                else:
                    table = {}
                    _owners[number] = (reference, table)
        owner = table.get(key)
        if owner is None:
            owner = table[key] = _eval_frame.Owner(key, callback)
        return owner


def new_owner(key: Any) -> Any:
    """An owner of its own, that lives as long as the caller keeps it."""
    return _eval_frame.Owner(key, key)


def owners_of(anchor: Any) -> list[Any]:
    """Owners of an anchor, oldest first."""
    found = _owners.get(id(anchor))
    return list(found[1].values()) if found is not None and found[0]() is anchor else []


def all_owners() -> list[Any]:
    """Every owner there is."""
    with _lock:
        return [owner for _, table in list(_owners.values()) for owner in table.values()] + list(_forever.values())


def remember_marked(code: types.CodeType) -> None:
    """``code`` was marked by the compiler (not by the user): `reset` takes the mark away."""
    _marked.add(code)


def reset() -> None:
    """Forget all compiled code, and which frames were not worth compiling."""
    with _lock:
        for owner in all_owners():
            owner.drop()
        for code in list(_marked):
            _eval_frame.mark_code(code, 0)
        _marked.clear()


def hit_count() -> int:
    """Calls of frames that found compiled code."""
    return int(_eval_frame.hit_count())


def reset_hit_count() -> None:
    """Set `hit_count` to 0."""
    _eval_frame.reset_hits()
