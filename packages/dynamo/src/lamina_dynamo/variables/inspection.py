"""The modules inspect, sys and warnings."""

from __future__ import annotations

import inspect
import sys
import types
import typing
import warnings
from typing import Any

from .base import VariableTracker
from .builtin import FOLDABLE, HANDLERS, handles
from .constant import fold
from .container import TupleVariable
from .formatting import call_real

FOLDABLE.update((inspect.getfullargspec, typing.get_type_hints, typing.get_origin, typing.get_args))


@handles(inspect.isfunction)
def _isfunction(tx: Any, obj: VariableTracker) -> VariableTracker:
    return tx.const(obj.realize().python_type() is types.FunctionType)


@handles(inspect.ismethod)
def _ismethod(tx: Any, obj: VariableTracker) -> VariableTracker:
    return tx.const(obj.realize().python_type() is types.MethodType)


@handles(inspect.isclass)
def _isclass(tx: Any, obj: VariableTracker) -> VariableTracker:
    return tx.const(issubclass(obj.realize().python_type(), type))


@handles(inspect.ismodule)
def _ismodule(tx: Any, obj: VariableTracker) -> VariableTracker:
    return tx.const(issubclass(obj.realize().python_type(), types.ModuleType))


@handles(inspect.isbuiltin)
def _isbuiltin(tx: Any, obj: VariableTracker) -> VariableTracker:
    return tx.const(issubclass(obj.realize().python_type(), types.BuiltinFunctionType))


def _code_flag(flag: int) -> Any:
    def handler(tx: Any, obj: VariableTracker) -> VariableTracker:
        from .function import FunctionVariable
        from .methods import BoundMethodVariable

        obj = obj.realize()
        while isinstance(obj, BoundMethodVariable):
            obj = obj.fn_vt.realize()
        if not isinstance(obj, FunctionVariable):
            return tx.const(False)
        return tx.const(bool(obj.get_code().co_flags & flag))

    return handler


HANDLERS[inspect.iscoroutinefunction] = _code_flag(inspect.CO_COROUTINE)
HANDLERS[inspect.isgeneratorfunction] = _code_flag(inspect.CO_GENERATOR)


@handles(inspect.signature)
def _signature(tx: Any, fn: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    from .function import UserFunctionVariable
    from .methods import BoundMethodVariable
    from .user_class import ClassVariable

    fn = fn.realize()
    if isinstance(fn, BoundMethodVariable) and isinstance(fn.fn_vt.realize(), UserFunctionVariable):
        # the signature of a bound method does not depend on the object
        function = fn.fn_vt.realize().as_python_constant()
        return call_real(tx, lambda: inspect.signature(types.MethodType(function, object())))
    if isinstance(fn, (UserFunctionVariable, ClassVariable)) and fn.is_python_constant():
        return fold(tx, inspect.signature, [fn], {})
    tx.graph_break("unknown_builtin", function="inspect.signature")


# -- sys, warnings, logging --------------------------------------------------------------------------------------------


@handles(sys.exc_info)
def _exc_info(tx: Any) -> VariableTracker:
    none = tx.const(None)
    exc = current_exception(tx)
    if exc is None:
        return TupleVariable([none, none, none])
    return TupleVariable([exc.class_vt(tx), exc, exc.get_attr(tx, "__traceback__")])


def current_exception(tx: Any) -> VariableTracker | None:
    """The exception being handled by the frame or its callers."""
    frame = tx
    while frame is not None:
        handled = getattr(frame, "handled_exception", None)
        if handled is not None:
            return handled
        frame = frame.parent
    return None


if hasattr(sys, "exception"):

    @handles(sys.exception)
    def _sys_exception(tx: Any) -> VariableTracker:
        return current_exception(tx) or tx.const(None)


@handles(sys.intern)
def _intern(tx: Any, text: VariableTracker) -> VariableTracker:
    return text


@handles(warnings.warn)
def _warn(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    # where a warning points to and whether it raises depends on the real stack and filters
    tx.graph_break("file_or_system", function="warnings.warn")
