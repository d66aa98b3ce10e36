"""operator.itemgetter, attrgetter and methodcaller."""

from __future__ import annotations

import operator
from typing import Any

from .base import VariableTracker
from .builder import wraps_type
from .constant import wrap_result
from .container import TupleVariable


class GetterVariable(VariableTracker):
    """operator.itemgetter, attrgetter, methodcaller."""

    __slots__ = ("args", "kind", "kwargs")

    def __init__(self, kind: type, args: list[VariableTracker], kwargs: dict[str, VariableTracker], source: Any = None):
        super().__init__(source)
        self.kind = kind
        self.args = args
        self.kwargs = kwargs

    def python_type(self) -> type:
        return self.kind

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if len(args) != 1 or kwargs:
            tx.graph_break("bad_builtin_arguments", function=self.kind.__name__)
        obj = args[0].realize()
        if self.kind is operator.methodcaller:
            return obj.call_method(tx, self.args[0].as_python_constant(), self.args[1:], self.kwargs)
        if self.kind is operator.itemgetter:
            parts = [obj.get_item(tx, key) for key in self.args]
        else:
            parts = []
            for name in self.args:
                value = obj
                for piece in name.as_python_constant().split("."):
                    value = value.realize().get_attr(tx, piece)
                parts.append(value)
        return parts[0] if len(parts) == 1 else TupleVariable(parts)

    def children(self) -> Any:
        return (*self.args, *self.kwargs.values())

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(self.kind)
        for arg in (*self.args, *self.kwargs.values()):
            codegen(arg)
        codegen.call_kw(len(self.args) + len(self.kwargs), tuple(self.kwargs))


def _getter(kind: type) -> Any:
    def construct(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        return GetterVariable(kind, [a.realize() for a in args], kwargs)

    return construct


def _register_getters() -> None:
    from .builtin import CONSTRUCTORS

    for kind in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
        CONSTRUCTORS[kind] = _getter(kind)


_register_getters()


@wraps_type(operator.itemgetter, operator.attrgetter, operator.methodcaller)
def wrap_getter(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    _, args = value.__reduce__()[:2]
    kwargs: dict[str, VariableTracker] = {}
    if not isinstance(args, tuple):
        tx.graph_break("unknown_object", type=type(value).__name__)
    return GetterVariable(type(value), [wrap_result(tx, a) for a in args], kwargs, source)
