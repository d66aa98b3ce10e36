"""Builtin functions on numbers and text, and the modules operator and math."""

from __future__ import annotations

import operator
import types
from typing import Any

from .attributes import find_in_type, lookup_special
from .base import VariableTracker
from .builtin import FOLDABLE, HANDLERS, Handler, handles
from .constant import fold, is_none
from .constructors import make_float
from .container import TupleVariable
from .operators import BINARY_SPECIAL, INPLACE_SPECIAL, binary, index_value, inplace, is_not_implemented, is_same, unary


@handles(abs)
def _abs(tx: Any, x: VariableTracker) -> VariableTracker:
    return unary(tx, abs, x)


@handles(round)
def _round(tx: Any, number: VariableTracker, ndigits: VariableTracker | None = None) -> VariableTracker:
    number = number.realize()
    args = [] if ndigits is None or is_none(ndigits) else [ndigits.realize()]
    if number.is_python_constant() and type(number.as_python_constant()) in (int, float, bool):
        return fold(tx, round, [number, *args], {})
    hook = getattr(number, "fold_call", None)
    if hook is not None:
        return hook(tx, round, [number, *args], {})
    return number.call_special(tx, "__round__", args, "type {type} doesn't define __round__ method")


@handles(divmod)
def _divmod(tx: Any, a: VariableTracker, b: VariableTracker) -> VariableTracker:
    a, b = a.realize(), b.realize()
    if hasattr(a, "fold_call") or hasattr(b, "fold_call"):
        return TupleVariable([binary(tx, operator.floordiv, a, b), binary(tx, operator.mod, a, b)])
    return binary(tx, divmod, a, b)


@handles(pow)
def _pow(tx: Any, base: VariableTracker, exp: VariableTracker, mod: VariableTracker | None = None) -> VariableTracker:
    if mod is None or is_none(mod):
        return binary(tx, operator.pow, base, exp)
    return fold(tx, pow, [base.realize(), exp.realize(), mod.realize()], {})


for _fn in (chr, ord, bin, oct, hex, ascii):
    FOLDABLE.add(_fn)


@handles(repr)
def _repr(tx: Any, obj: VariableTracker) -> VariableTracker:
    from .formatting import repr_of

    return tx.const(repr_of(tx, obj))


@handles(format)
def _format(tx: Any, obj: VariableTracker, spec: VariableTracker | None = None) -> VariableTracker:
    from .formatting import format_value

    return tx.const(format_value(tx, obj, "" if spec is None else spec.realize().as_python_constant()))


@handles(print)
def _print(tx: Any, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    from .formatting import text_of
    from .mirrors import MirrorVariable, print_to_mirror
    from .text import formatted

    file = kwargs.pop("file", None)
    if file is not None and not is_none(file) and not isinstance(file.realize(), MirrorVariable):
        tx.graph_break("print", reason="file argument")
    texts = [formatted(a.realize(), tx.const("")) or tx.const(text_of(tx, a)) for a in args]
    if not all(v.realize().is_python_constant() for v in kwargs.values()):
        tx.graph_break("print", reason="keyword arguments")
    if file is not None and not is_none(file):  # a buffer made inside
        return print_to_mirror(tx, file.realize(), texts, kwargs)
    tx.output.side_effects.record_call(print, texts, kwargs)
    return tx.const(None)


# -- the operator module -----------------------------------------------------------------------------------------------


def _operator_rows() -> None:
    for op in BINARY_SPECIAL:
        if op is divmod:
            continue
        HANDLERS[op] = lambda tx, a, b, op=op: binary(tx, op, a, b)
    for op in INPLACE_SPECIAL:
        HANDLERS[op] = lambda tx, a, b, op=op: inplace(tx, op, a, b)
    for op in (operator.neg, operator.pos, operator.invert, operator.not_):
        HANDLERS[op] = lambda tx, a, op=op: unary(tx, op, a)
    HANDLERS[operator.abs] = _abs
    HANDLERS[operator.truth] = lambda tx, a: tx.const(tx.truth(a))
    HANDLERS[operator.is_] = lambda tx, a, b: tx.const(is_same(tx, a, b))
    HANDLERS[operator.is_not] = lambda tx, a, b: tx.const(not is_same(tx, a, b))
    HANDLERS[operator.contains] = lambda tx, a, b: a.realize().contains(tx, b)
    HANDLERS[operator.getitem] = lambda tx, a, b: a.realize().get_item(tx, b)
    HANDLERS[operator.index] = lambda tx, a: (
        a.realize() if hasattr(a.realize(), "fold_call") else tx.const(index_value(tx, a))
    )
    HANDLERS[operator.concat] = lambda tx, a, b: binary(tx, operator.add, a, b)
    HANDLERS[operator.iconcat] = lambda tx, a, b: inplace(tx, operator.iadd, a, b)
    HANDLERS[operator.length_hint] = _length_hint
    HANDLERS[operator.countOf] = lambda tx, a, b: TupleVariable(a.realize().unpack(tx)).method_count(tx, b)
    HANDLERS[operator.indexOf] = lambda tx, a, b: TupleVariable(a.realize().unpack(tx)).method_index(tx, b)
    if hasattr(operator, "call"):
        HANDLERS[operator.call] = lambda tx, fn, *a, **k: fn.call_function(tx, list(a), k)

    def setitem(tx: Any, a: VariableTracker, key: VariableTracker, value: VariableTracker) -> VariableTracker:
        a.realize().set_item(tx, key, value)
        return tx.const(None)

    def delitem(tx: Any, a: VariableTracker, key: VariableTracker) -> VariableTracker:
        a.realize().del_item(tx, key)
        return tx.const(None)

    HANDLERS[operator.setitem] = setitem
    HANDLERS[operator.delitem] = delitem


def _length_hint(tx: Any, obj: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
    obj = obj.realize()
    for name in ("__len__", "__length_hint__"):
        if find_in_type(tx, obj, name) is not None:
            result = obj.call_special(tx, name, [])
            if not is_not_implemented(result):
                return result
    return tx.const(0) if default is None else default


_operator_rows()


def _math_rows() -> None:
    import cmath
    import math
    import struct
    import unicodedata

    for module in (math, cmath):
        for value in vars(module).values():
            if isinstance(value, types.BuiltinFunctionType):
                FOLDABLE.add(value)
    for fn in (struct.pack, struct.unpack, struct.calcsize, unicodedata.normalize, unicodedata.category):
        FOLDABLE.add(fn)
    for name in ("ceil", "floor", "trunc"):
        fn = getattr(math, name)

        def rounding(tx: Any, x: VariableTracker, fn: Any = fn, name: str = name) -> VariableTracker:
            x = x.realize()
            if x.is_python_constant() and type(x.as_python_constant()) in (int, float, bool):
                return fold(tx, fn, [x], {})
            hook = getattr(x, "fold_call", None)
            if hook is not None:
                return hook(tx, fn, [x], {})
            method = lookup_special(tx, x, f"__{name}__")
            if method is not None:
                return method.call_function(tx, [], {})
            return fold(tx, fn, [make_float(tx, x)], {})

        HANDLERS[fn] = rounding

    def numbers(fn: Any) -> Handler:
        def handler(tx: Any, iterable: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
            return fold(tx, fn, [TupleVariable(iterable.realize().unpack(tx))], kwargs)

        return handler

    HANDLERS[math.fsum] = numbers(math.fsum)
    HANDLERS[math.dist] = lambda tx, p, q: fold(
        tx, math.dist, [TupleVariable(p.realize().unpack(tx)), TupleVariable(q.realize().unpack(tx))], {}
    )

    def prod(tx: Any, iterable: VariableTracker, *, start: VariableTracker | None = None) -> VariableTracker:
        total = tx.const(1) if start is None else start
        for item in iterable.realize().unpack(tx):
            total = binary(tx, operator.mul, total, item)
        return total

    HANDLERS[math.prod] = prod


_math_rows()
