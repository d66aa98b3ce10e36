"""Iterators of ``for`` loops that a frame goes on with after a break.

A frame that is left inside a loop has the loop's iterator on its stack. A real generator (or ``zip`` of generators)
would be opaque to the capture of what follows: every step of the loop would have to run in eager. Nobody but the loop
can see that iterator, so its place is taken by a ``Parked`` one, which says how the real one would be made. The resumed
frame translates it back; where eager meets it instead, it makes the real one and steps that.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any


class Parked:
    """An iterator not made yet: ``fn(*parts)``. ``primed``: a generator that first runs up to where it stopped;
    ``ends``: dropping it there runs code of the program."""

    __slots__ = ("ends", "fn", "parts", "primed", "real")

    def __init__(self, fn: Any, parts: tuple[Any, ...], primed: bool = False, ends: bool = False):
        self.fn, self.parts, self.primed, self.ends = fn, parts, primed, ends
        self.real: Any = None

    def __iter__(self) -> Parked:
        return self

    def __next__(self) -> Any:
        self.start()
        return next(self.real)

    # ``yield from`` asks for these.
    def send(self, value: Any) -> Any:
        self.start()
        return self.real.send(value)

    def throw(self, error: BaseException) -> Any:
        self.start()
        if hasattr(self.real, "throw"):
            return self.real.throw(error)
        raise error

    def close(self) -> None:
        self.start()
        if hasattr(self.real, "close"):
            self.real.close()

    def start(self) -> None:
        if self.fn is None:
            return
        fn, parts = self.fn, self.parts
        take(self)
        self.real = fn(*parts)
        if self.primed:
            next(self.real)

    def __del__(self) -> None:
        if self.ends:
            self.start()


def is_untouched(parked: Parked) -> bool:
    """Whether the real iterator was not made."""
    return parked.fn is not None


def take(parked: Parked) -> None:
    """Whoever calls this goes on with the iterator."""
    parked.fn, parked.parts, parked.ends = None, (), False


def park_generator(code: Any, f_globals: dict[str, Any], state: Any, ends: bool) -> Parked:
    """For generated code; ``state`` is (cells, arguments of ``code``)."""
    cells, args = state
    return Parked(FunctionType(code, f_globals, code.co_name, None, cells or None), args, True, ends)


# ------------------------------------------------------------------------------------------- leaving a loop (codegen)
def push_slot(cg: Any, tx: Any, depth: int, live: tuple[str, ...]) -> None:
    """Push what the stack of ``tx`` holds at ``depth``; the iterator of a running loop that only the loop knows goes on
    parked. ``live``: the locals that will be read again."""
    dead = sum(vt is tx.stack[depth] for name, vt in tx.symbolic_locals.items() if name not in live)
    if tx.looping.get(depth) is tx.stack[depth] and _can_park(cg, tx.stack, depth, 2 + dead):
        _emit(cg, tx.stack[depth])
    else:
        cg(tx.stack[depth])


def _can_park(cg: Any, holder: list[Any], at: int, references: int) -> bool:
    """Is ``holder[at]`` an iterator that can be parked, with no more than so many references to it?"""
    from .translator.generator import GeneratorVariable

    found = sys.getrefcount(holder[at]) - 1  # of which one is this call's
    vt = holder[at]
    if vt.source is not None or id(vt) in cg.known:
        return False
    if isinstance(vt, GeneratorVariable):
        if not vt.started or vt.finished or vt.running or vt.handled is not None or vt.child.f_code.co_cellvars:
            return False
        if vt.child.blocks:
            return False
        references += 1  # the output's list of generators
    elif vt.parked_parts() is None:
        return False
    return found <= references or cg.output.builder.is_known(vt)  # it was parked when the region started


def _emit(cg: Any, vt: Any) -> None:
    from .resume import emit_generator
    from .translator.generator import GeneratorVariable

    if isinstance(vt, GeneratorVariable):
        vt.rebuilt = True
        emit_generator(cg, vt, parked=True)
        return
    fn, parts, references = vt.parked_parts()
    cg.push_function(Parked)
    cg.load_const(fn)
    for i in range(len(parts)):
        if _can_park(cg, parts, i, references):
            _emit(cg, parts[i])
        else:
            cg(parts[i])
    cg.build("BUILD_TUPLE", len(parts))
    cg.call_function(2)
