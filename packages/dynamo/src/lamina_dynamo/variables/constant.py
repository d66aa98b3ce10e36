"""Constants: immutable values known during translation."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

from .. import interruption
from .base import ObservedException, VariableTracker
from .known import KnownVariable

#: Types whose values may be baked into the translation (after a CONSTANT guard when they come from outside).
CONSTANT_TYPES: tuple[type, ...] = (
    int,
    float,
    bool,
    str,
    bytes,
    complex,
    type(None),
    type(Ellipsis),
    type(NotImplemented),
)

_FOLD_ERRORS = (Exception,)


def is_constant_value(value: object) -> bool:
    return type(value) in CONSTANT_TYPES


class ConstantVariable(KnownVariable):
    """An immutable value; folding runs the real operation on it."""

    __slots__ = ()

    def describe(self) -> str:
        return f"constant {self.value!r}"

    def as_proxy(self) -> Any:
        return self.value

    def truth(self, tx: Any) -> bool | None:
        return bool(self.value)

    def length(self, tx: Any) -> VariableTracker:
        return fold(tx, len, [self], {})

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        key = key.realize()
        if key.is_python_constant():
            return fold(tx, operator.getitem, [self, key], {})
        if isinstance(self.value, (str, bytes)):
            from .operators import index_value

            return fold(tx, operator.getitem, [self, tx.const(index_value(tx, key))], {})
        return super().get_item(tx, key)

    def contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        item = item.realize()
        if isinstance(self.value, (str, bytes)) and item.is_python_constant():
            return fold(tx, operator.contains, [self, item], {})
        return super().contains(tx, item)

    def iterate(self, tx: Any) -> VariableTracker:
        if isinstance(self.value, (str, bytes)):
            from .container import TupleVariable
            from .iterators import StrIterator

            return StrIterator(TupleVariable([tx.const(v) for v in self.value]), type(iter(self.value)))
        return super().iterate(tx)

    def unpack(self, tx: Any) -> list[VariableTracker]:
        if isinstance(self.value, (str, bytes)):
            return [tx.const(v) for v in self.value]
        return super().unpack(tx)

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        other = other.realize()
        if isinstance(other, ConstantVariable):
            pair = [other, self] if reflected else [self, other]
            return fold(tx, op, pair, {})
        if isinstance(self.value, str) and op is operator.mod and not reflected:
            from .formatting import percent_format

            return percent_format(tx, self.value, other)
        return NotImplemented

    def unary_op(self, tx: Any, op: Callable[..., Any]) -> VariableTracker:
        if op is operator.not_:
            return tx.const(not self.value)
        return fold(tx, op, [self], {})

    def call_builtin_method(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        args = [a.realize() for a in args]
        method = getattr(type(self.value), name, None)
        if method is None:
            tx.graph_break("unsupported_builtin_method", type=type(self.value).__name__, method=name)
        value = self.value
        if isinstance(value, (str, bytes)):
            if name in ("format", "format_map"):
                from .formatting import str_format

                return str_format(tx, value, args, kwargs, name)
            if name == "join" and len(args) == 1:
                return fold(tx, method, [self, ListOf.make(args[0].unpack(tx))], {})
        if name in RAW_OPERATIONS:
            # C reads the number or text in an instance of a subclass
            args = [getattr(a, "storage", None) or a for a in args]
        return fold(tx, method, [self, *args], kwargs)


#: special methods of builtin types that look at the value of their operands and call nothing of theirs
RAW_OPERATIONS = frozenset(
    f"__{prefix}{name}__"
    for prefix in ("", "r")
    for name in ("add", "sub", "mul", "truediv", "floordiv", "divmod", "pow", "and", "or", "xor", "lshift", "rshift")
) | {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__", "__contains__", "__mod__"} - {"__rmod__"}


class ListOf:
    """Makes the list tracker for folding without importing containers at module level."""

    @staticmethod
    def make(items: list[VariableTracker]) -> VariableTracker:
        from .container import ListVariable

        return ListVariable(items)


class EnumConstant(ConstantVariable):
    """A singleton-like immutable object known by identity (enum member, torch.dtype, ...), guarded by ID."""

    __slots__ = ()

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        return VariableTracker.get_attr(self, tx, name)


def fold(
    tx: Any, fn: Callable[..., Any], args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """Runs the real, pure `fn` on constant arguments; its exception becomes an exception of the traced program.

    Breaks the graph if an argument is not a constant or the result cannot be tracked.
    """
    real_args = [a.as_python_constant() for a in args]
    real_kwargs = {k: v.as_python_constant() for k, v in kwargs.items()}
    _check_size(tx, fn, real_args)
    try:
        result = fn(*real_args, **real_kwargs)
    except _FOLD_ERRORS as e:
        raise_real(tx, e)
    return wrap_result(tx, result)


def _check_size(tx: Any, fn: Callable[..., Any], args: list[Any]) -> None:
    """Folding must not hang or fill memory where eager would only do so if it got there."""
    if len(args) == 2 and all(type(a) is int for a in args):
        a, b = args
        if fn in (operator.pow, pow, operator.ipow) and b > 0 and a.bit_length() * b > 1 << 20:
            tx.graph_break("fold_too_large", operation="pow")
        if fn in (operator.lshift, operator.ilshift) and b > 1 << 20:
            tx.graph_break("fold_too_large", operation="lshift")
    if fn in (operator.mul, operator.imul) and len(args) == 2:
        a, b = args
        if type(a) is int:
            a, b = b, a
        if type(b) is int and isinstance(a, (str, bytes, tuple, list)) and len(a) * b > 1 << 22:
            tx.graph_break("fold_too_large", operation="repeat")


def raise_real(tx: Any, error: BaseException) -> Any:
    """Raises, in the traced program, an exception equal to the real one that a folded call raised."""
    from .exception import exception_from_real

    interruption.pass_on(error)
    raise ObservedException(exception_from_real(tx, error)) from None


def is_none(vt: VariableTracker) -> bool:
    """Whether a tracker is that of None."""
    vt = vt.realize()
    return vt.is_python_constant() and vt.as_python_constant() is None


def wrap_result(tx: Any, value: Any) -> VariableTracker:
    """Tracker of a value made by folding: constants and fresh builtin containers of them."""
    t = type(value)
    if t in CONSTANT_TYPES:
        return tx.const(value)
    from . import container, dicts, sets, slices

    if t is tuple:
        return container.TupleVariable([wrap_result(tx, v) for v in value])
    if t is list:
        return container.ListVariable([wrap_result(tx, v) for v in value])
    if t is dict:
        return dicts.DictVariable.from_pairs(tx, [(wrap_result(tx, k), wrap_result(tx, v)) for k, v in value.items()])
    if t is set:
        return sets.SetVariable.from_items(tx, [wrap_result(tx, v) for v in value])
    if t is frozenset:
        return sets.FrozenSetVariable.from_items(tx, [wrap_result(tx, v) for v in value])
    if t is slice:
        return slices.SliceVariable([wrap_result(tx, v) for v in (value.start, value.stop, value.step)])
    if t is range:
        return slices.RangeVariable(value)
    if isinstance(value, (type, types.BuiltinFunctionType, types.FunctionType, types.ModuleType)):
        return tx.wrap(value, None)
    return tx.wrap(value, None)
