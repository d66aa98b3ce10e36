"""numpy's scalars and the ufuncs on them: immutable numbers, folded like those of Python.

numpy is looked at only if the program has loaded it. Its arrays are left to eager.
"""

from __future__ import annotations

import sys
from typing import Any

from .base import VariableTracker
from .builder import wraps_if
from .constant import ConstantVariable, fold

_NUMBER_KINDS = "biufc"
#: Functions that are no ufuncs and have no effects.
_FOLDED_NAMES = ("prod", "sum", "round", "clip", "mean", "max", "min", "isclose", "ndim", "isscalar", "result_type")


def is_numpy_number(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(type(value), numpy.generic) and value.dtype.kind in _NUMBER_KINDS


def is_numpy_number_type(value: type) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(value, numpy.generic) and numpy.dtype(value).kind in _NUMBER_KINDS


def _is_folded_function(value: Any) -> bool:
    if type(value).__module__ != "numpy":
        return False
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    if isinstance(value, numpy.ufunc):
        return True
    name = getattr(value, "__name__", None)
    return name in _FOLDED_NAMES and getattr(numpy, name, None) is value


class NumpyNumber(ConstantVariable):
    """A numpy scalar; in graphs it is the Python number of its value."""

    __slots__ = ()

    def as_proxy(self) -> Any:
        return self.value.item()

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        found = getattr(type(self.value), name, None)
        if found is not None and not callable(found) and name in ("real", "imag", "ndim", "size", "itemsize", "nbytes"):
            return fold(tx, getattr, [self, tx.const(name)], {})
        return super().get_attr(tx, name)


class NumpyFunction(VariableTracker):
    """A ufunc or another pure function of numpy: run on numbers during translation."""

    __slots__ = ("value",)
    has_identity = False

    def __init__(self, value: Any, source: Any):
        self.value = value
        self.source = source

    def describe(self) -> str:
        return f"numpy function {self.value.__name__}"

    def python_type(self) -> type:
        return type(self.value)

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        args = [a.realize() for a in args]
        kwargs = {k: v.realize() for k, v in kwargs.items()}
        if all(a.is_python_constant() for a in (*args, *kwargs.values())):
            return fold(tx, self.value, args, kwargs)
        tx.graph_break("unknown_call", type=f"numpy.{self.value.__name__}")

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_global_alias("numpy_function", self.value)


@wraps_if(is_numpy_number, priority=30)
def wrap_number(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        if value != value or value == 0 and value.dtype.kind in "fc":
            # Comparing does not tell these from others.
            tx.graph_break("unknown_object", type=type(value).__name__, value="nan or zero")
        tx.output.guard(source, "CONSTANT", value)
    return NumpyNumber(value, source)


@wraps_if(_is_folded_function, priority=30)
def wrap_function(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return NumpyFunction(value, source)
