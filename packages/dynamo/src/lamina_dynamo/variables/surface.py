"""This package's own surface met inside a captured region: marks on callables, compiled and disabled callables,
`graph_break`, `is_compiling`.
"""

from __future__ import annotations

import types
from typing import Any

from .. import _eval_frame, eval_frame, marks
from ..graph_break import GraphBreak
from ..roots import ConstantSource
from ..source import AttrSource
from .base import VariableTracker
from .builder import wraps_if
from .constant import wrap_result
from .methods import BoundMethodVariable
from .torch_api import TorchFunctionVariable, handles


@handles(eval_frame.graph_break)
def _graph_break(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    given = [*args, *kwargs.values()]
    if given and given[0].is_python_constant() and given[0].as_python_constant():
        raise GraphBreak("user_request", message=given[0].as_python_constant())
    raise GraphBreak("user_request")


@handles(eval_frame.is_compiling)
def _is_compiling(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    return tx.const(True)


class MarkedVariable(TorchFunctionVariable):
    """A callable that the user put a mark on; ``what`` is the mark."""

    __slots__ = ("what",)

    def __init__(self, value: Any, source: Any, what: str):
        super().__init__(value, source)
        self.what = what

    def describe(self) -> str:
        return f"function {getattr(self.value, '__name__', self.value)} ({self.what})"

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        name = getattr(self.value, "__qualname__", repr(self.value))
        if self.what == marks.ALLOW:
            tx.direct_call = False
            return tx.output.create_call(
                "call_function", self.value, [a.realize() for a in args], {k: a.realize() for k, a in kwargs.items()}
            )
        if self.what == marks.CONSTANT_RESULT:
            return self.constant_result(tx, args, kwargs, name)
        raise GraphBreak("skipped_callable", function=name, mark=self.what)

    def constant_result(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker], name: str
    ) -> VariableTracker:
        """The function is called now, on constants or on objects that come from outside, and never again for this
        graph.
        """
        import torch

        result = self.value(*[_real(a, name) for a in args], **{k: _real(a, name) for k, a in kwargs.items()})
        if isinstance(result, torch.Tensor):
            return tx.wrap(result, ConstantSource(f"{name}()", result))
        return wrap_result(tx, result)


def _real(vt: VariableTracker, name: str) -> Any:
    vt = vt.realize()
    if vt.is_python_constant():
        return vt.as_python_constant()
    value = getattr(vt, "value", None)
    if vt.source is None or value is None:
        raise GraphBreak("not_a_constant", function=name, value=vt.describe())
    return value


class DisabledVariable(TorchFunctionVariable):
    """What `disable` made: called in eager, with all that it calls."""

    __slots__ = ()

    def describe(self) -> str:
        return f"disabled {getattr(self.value, '__name__', 'callable')}"

    def descriptor_get(self, tx: Any, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        """A disabled function in a class is a method, as its original is."""
        if obj is None or not hasattr(type(self.value.__wrapped__), "__get__"):
            return self
        return BoundMethodVariable(self, obj)

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        raise GraphBreak(
            "skipped_callable", function=getattr(self.value, "__qualname__", repr(self.value)), mark=marks.DISABLE
        )


@wraps_if(lambda v: issubclass(type(v), _eval_frame.Wrapper), priority=200)
def wrap_wrapper(tx: Any, value: Any, source: Any) -> VariableTracker:
    """A compiled callable is followed as its original: it is being compiled already."""
    if source is not None:
        tx.output.guard(source, "ID", value)
    if value.owner is None:
        return DisabledVariable(value, source)
    return tx.wrap(value.__wrapped__, None if source is None else AttrSource(source, "__wrapped__"))  # type: ignore[no-any-return]


def wrap_marked(tx: Any, value: Any, source: Any) -> VariableTracker | None:
    """Tracker of a callable with a mark, or None."""
    what = marks.mark_of(value)
    if what is None:
        return None
    if source is not None:
        tx.output.guard(source, "ID", value)
    return MarkedVariable(value, source, what)


def wrap_front(tx: Any, value: Any, source: Any) -> VariableTracker | None:
    """What stands in front of an original in a compiler built on this package (``__lamina_original__`` of a function,
    ``_lamina_state.original`` of a
    module): the original is followed. None if the value is no such thing."""
    if type(value) is types.FunctionType:
        original = value.__dict__.get("__lamina_original__")
        if original is None:
            return None
        if source is not None:
            tx.output.guard(source, "ID", value)
            source = AttrSource(source, "__lamina_original__")
        return tx.wrap(original, source)  # type: ignore[no-any-return]
    state = getattr(value, "_lamina_state", None)
    if state is None:
        return None
    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
        source = AttrSource(AttrSource(source, "_lamina_state"), "original")
    return tx.wrap(state.original, source)  # type: ignore[no-any-return]
