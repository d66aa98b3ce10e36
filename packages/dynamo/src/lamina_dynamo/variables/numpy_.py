"""numpy's scalars and the ufuncs on them: immutable numbers, folded like those of Python.

numpy is looked at only if the program has loaded it. Its arrays: see `numpy_arrays`.
"""

from __future__ import annotations

import operator
import sys
from typing import Any

from .base import VariableTracker
from .builder import wraps_if
from .constant import ConstantVariable, fold
from .known import KnownVariable

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
    from .numpy_arrays import is_taken

    name = getattr(value, "__name__", None)
    return name in _FOLDED_NAMES and getattr(numpy, name, None) is value or is_taken(value) is not None


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


class NumpyFunction(KnownVariable):
    """A ufunc or another pure function of numpy, run on numbers during translation; or a dtype."""

    __slots__ = ()

    @property
    def makes_arrays(self) -> bool:
        return not isinstance(self.value, sys.modules["numpy"].ufunc) and self.value.__name__ not in _FOLDED_NAMES

    def describe(self) -> str:
        return f"numpy function {self.value.__name__}"

    def binary_op(self, tx: Any, op: Any, other: VariableTracker, reflected: bool = False) -> Any:
        other = other.realize()
        if op not in (operator.eq, operator.ne) or not other.is_python_constant():
            return super().binary_op(tx, op, other, reflected)
        return tx.const(bool(op(self.value, other.as_python_constant())))

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        args = [a.realize() for a in args]
        kwargs = {k: v.realize() for k, v in kwargs.items()}
        from .numpy_arrays import call_numpy, is_taken

        constant = all(a.is_python_constant() for a in (*args, *kwargs.values()))
        taken = is_taken(self.value)
        if constant and not (taken and self.makes_arrays):
            return fold(tx, self.value, args, kwargs)
        if taken:
            return call_numpy(tx, taken, args, kwargs)
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
