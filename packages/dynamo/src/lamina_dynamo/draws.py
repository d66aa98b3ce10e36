"""Random numbers of Python and of numpy, drawn where they belong: at each call, in program order.

A draw is a call that compiled code makes before its graph: nothing that the region does stands between (effects are
replayed behind the graph, and arguments of draws are constants), so that the real generator sees what it would have
seen. What was drawn is an input of the graph whose value only the run knows.
"""

from __future__ import annotations

from typing import Any

from . import _eval_frame
from .errors import InternalError
from .source import Scope, Source


class DrawSource(Source):
    """What the draw number ``index`` of this call gave."""

    __slots__ = ("index", "label")

    def __init__(self, index: int, label: str) -> None:
        super().__init__(None, index, label)
        self.index, self.label = index, label

    def spell(self) -> str:
        return f"{self.label}_{self.index}"

    def step(self, value: Any, scope: Scope) -> Any:
        raise InternalError(f"a guard asks for what {self.label} will give", stage="guards")

    def emit(self, codegen: Any) -> None:
        codegen.push_draw(self)


class Draw:
    """One call: ``method`` pushes the bound method, ``args`` and ``kwargs`` are constants or sources of draws.
    ``fresh``: the generator was made by an earlier draw."""

    __slots__ = ("args", "fresh", "kwargs", "method", "source")

    def __init__(self, source: DrawSource, method: Any, args: list[Any], kwargs: dict[str, Any], fresh: bool) -> None:
        self.source, self.method, self.args, self.kwargs, self.fresh = source, method, args, kwargs, fresh

    def emit(self, codegen: Any) -> None:
        codegen.push_function(call_drawing)
        self.method(codegen)
        for arg in self.args:
            if isinstance(arg, Source):
                codegen.push_source(arg)
            else:
                codegen.load_const(arg)
        codegen.build("BUILD_TUPLE", len(self.args))
        codegen.load_const(self.kwargs)
        codegen.call_function(3)


def is_drawn(source: Any) -> bool:
    """Does the path start from a draw?"""
    return isinstance(source, Source) and type(source.root()) is DrawSource


def _call(method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return method(*args, **kwargs)


def _save(*methods: Any) -> list[tuple[Any, Any]]:
    found = {id(m.__self__): m.__self__ for m in methods}
    return [(stream, state_of(stream)) for stream in found.values()]


def _restore(saved: list[tuple[Any, Any]]) -> None:
    for stream, state in saved:
        set_state(stream, state)


def state_of(stream: Any) -> Any:
    """The state of a generator of Python or numpy."""
    for name in ("getstate", "get_state"):
        getter = getattr(stream, name, None)
        if getter is not None:
            return getter()
    return stream.bit_generator.state


def set_state(stream: Any, state: Any) -> None:
    """Bring a generator to what `state_of` gave."""
    for name in ("setstate", "set_state"):
        setter = getattr(stream, name, None)
        if setter is not None:
            setter(state)
            return
    stream.bit_generator.state = state


# Called by generated code; nothing below them is captured.
call_drawing = _eval_frame.Disabled(_call)
save_streams = _eval_frame.Disabled(_save)
restore_streams = _eval_frame.Disabled(_restore)
