"""Sizes that only the run knows, inside a small function that returns nothing.

``torch.where(mask)`` and its like break the graph unless the settings ask for symbols. Where a called function finds
rows and writes to them, the size does not outlive the call: then it is captured all the same, and the caller stays in
one graph. A function in which more hangs on the size (another break) is left to break.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from .bytecode import decode

_SMALL_CODE = 1024
_LET_GO = "sizes leave"

_returns_nothing: dict[int, tuple[CodeType, bool]] = {}


def returns_nothing(code: CodeType) -> bool:
    """Does every ``return`` of it give None?"""
    found = _returns_nothing.get(id(code))
    if found is None or found[0] is not code:
        if len(_returns_nothing) > 512:
            _returns_nothing.clear()
        found = _returns_nothing[id(code)] = (code, _every_return_is_none(code))
    return found[1]


def _every_return_is_none(code: CodeType) -> bool:
    if len(code.co_code) > _SMALL_CODE or code.co_flags & 0x2A0:  # generators and coroutines
        return False
    previous = None
    for inst in decode(code):
        if inst.opname == "RETURN_CONST" and inst.argval is not None:
            return False
        if inst.opname == "RETURN_VALUE":
            if previous is None or previous.opname != "LOAD_CONST" or previous.argval is not None:
                return False
        previous = inst
    return True


def keeps_sizes(output: Any) -> CodeType | None:
    """The function being followed that sizes made now do not leave, or None."""
    tx = output.current_tx
    while tx is not None and tx.parent is not None:
        code: CodeType = tx.f_code
        if returns_nothing(code):
            return None if output.decisions.get((_LET_GO, id(code))) else code
        tx = tx.parent
    return None


def lets_sizes_go(output: Any, broken: Any) -> bool:
    """The graph breaks in a function in which such sizes were captured: is it to be translated again, without them?"""
    if not output.sizes_kept:
        return False
    codes = [id(code) for code, _ in broken.user_stack]
    inside = output.sizes_kept.intersection(codes)
    if not inside:
        return False
    output.decisions.update(((_LET_GO, code), True) for code in inside)
    return True
