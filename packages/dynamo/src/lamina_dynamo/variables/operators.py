"""Operators by Python's rules: reflected methods, subclass priority, comparison fall-backs, in-place variants."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from .base import ObservedException, VariableTracker

#: operator function -> (special method, reflected special method)
BINARY_SPECIAL: dict[Callable[..., Any], tuple[str, str]] = {
    operator.add: ("__add__", "__radd__"),
    operator.sub: ("__sub__", "__rsub__"),
    operator.mul: ("__mul__", "__rmul__"),
    operator.matmul: ("__matmul__", "__rmatmul__"),
    operator.truediv: ("__truediv__", "__rtruediv__"),
    operator.floordiv: ("__floordiv__", "__rfloordiv__"),
    operator.mod: ("__mod__", "__rmod__"),
    divmod: ("__divmod__", "__rdivmod__"),
    operator.pow: ("__pow__", "__rpow__"),
    operator.lshift: ("__lshift__", "__rlshift__"),
    operator.rshift: ("__rshift__", "__rrshift__"),
    operator.and_: ("__and__", "__rand__"),
    operator.xor: ("__xor__", "__rxor__"),
    operator.or_: ("__or__", "__ror__"),
    operator.lt: ("__lt__", "__gt__"),
    operator.le: ("__le__", "__ge__"),
    operator.eq: ("__eq__", "__eq__"),
    operator.ne: ("__ne__", "__ne__"),
    operator.gt: ("__gt__", "__lt__"),
    operator.ge: ("__ge__", "__le__"),
}

#: comparison -> the comparison that the reflected operand computes
SWAPPED: dict[Callable[..., Any], Callable[..., Any]] = {
    operator.lt: operator.gt,
    operator.gt: operator.lt,
    operator.le: operator.ge,
    operator.ge: operator.le,
    operator.eq: operator.eq,
    operator.ne: operator.ne,
}

#: in-place operator -> special method
INPLACE_SPECIAL: dict[Callable[..., Any], str] = {
    operator.iadd: "__iadd__",
    operator.isub: "__isub__",
    operator.imul: "__imul__",
    operator.imatmul: "__imatmul__",
    operator.itruediv: "__itruediv__",
    operator.ifloordiv: "__ifloordiv__",
    operator.imod: "__imod__",
    operator.ipow: "__ipow__",
    operator.ilshift: "__ilshift__",
    operator.irshift: "__irshift__",
    operator.iand: "__iand__",
    operator.ixor: "__ixor__",
    operator.ior: "__ior__",
}

#: in-place operator -> plain operator
PLAIN: dict[Callable[..., Any], Callable[..., Any]] = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.imatmul: operator.matmul,
    operator.itruediv: operator.truediv,
    operator.ifloordiv: operator.floordiv,
    operator.imod: operator.mod,
    operator.ipow: operator.pow,
    operator.ilshift: operator.lshift,
    operator.irshift: operator.rshift,
    operator.iand: operator.and_,
    operator.ixor: operator.xor,
    operator.ior: operator.or_,
}

#: unary operator -> (special method, symbol for messages)
UNARY_SPECIAL: dict[Callable[..., Any], tuple[str, str]] = {
    operator.neg: ("__neg__", "-"),
    operator.pos: ("__pos__", "+"),
    operator.invert: ("__invert__", "~"),
    abs: ("__abs__", "abs()"),
    operator.abs: ("__abs__", "abs()"),
}

SYMBOLS: dict[Callable[..., Any], str] = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.matmul: "@",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    divmod: "divmod()",
    operator.pow: "** or pow()",
    operator.lshift: "<<",
    operator.rshift: ">>",
    operator.and_: "&",
    operator.xor: "^",
    operator.or_: "|",
    operator.lt: "<",
    operator.le: "<=",
    operator.eq: "==",
    operator.ne: "!=",
    operator.gt: ">",
    operator.ge: ">=",
}


def is_not_implemented(vt: Any) -> bool:
    """Whether a result is NotImplemented, as tracker or as itself."""
    if vt is NotImplemented:
        return True
    from lamina_dynamo.variables.constant import ConstantVariable

    vt = vt.realize()
    return isinstance(vt, ConstantVariable) and vt.value is NotImplemented


def binary(tx: Any, op: Callable[..., Any], a: VariableTracker, b: VariableTracker) -> VariableTracker:
    """`op(a, b)` for arithmetic and comparison operators."""
    a, b = a.realize(), b.realize()
    if op in SWAPPED:
        return compare(tx, op, a, b)
    if _reflected_first(tx, op, a, b):
        result = b.binary_op(tx, op, a, reflected=True)
        if not is_not_implemented(result):
            return result
        result = a.binary_op(tx, op, b)
    else:
        result = a.binary_op(tx, op, b)
        if is_not_implemented(result):
            result = b.binary_op(tx, op, a, reflected=True)
    if is_not_implemented(result):
        sequence = _sequence_op(tx, op, a, b)
        if sequence is not None:
            return sequence
        raise_unsupported(tx, SYMBOLS[op], a, b)
    return result


def _reflected_first(tx: Any, op: Callable[..., Any], a: VariableTracker, b: VariableTracker) -> bool:
    """The right operand goes first if its type is a proper subclass that provides another reflected method."""
    ta, tb = a.python_type(), b.python_type()
    if ta is tb or not issubclass(tb, ta):
        return False
    if op in SWAPPED:
        return True
    from .attributes import find_in_mro, find_in_type

    name = BINARY_SPECIAL[op][1]
    mine, theirs = find_in_mro(tx, ta, name), find_in_type(tx, b, name)
    if theirs is not None and theirs.vt is None and b.source is not None and theirs.owner.__flags__ & 1 << 9:
        from ..source import ClassAttrSource, TypeSource

        tx.output.guard(ClassAttrSource(TypeSource(b.source), name), "ID", theirs.real)
    if theirs is None:
        return False
    return mine is None or mine.real is not theirs.real or mine.vt is not theirs.vt


def _sequence_op(tx: Any, op: Callable[..., Any], a: VariableTracker, b: VariableTracker) -> VariableTracker | None:
    """Types whose `+` and `*` are sequence slots have no NotImplemented: they raise their own texts."""
    if op is operator.add and a.python_type() in (list, tuple, str, bytes):
        name = a.python_type().__name__
        other = b.python_type().__name__
        if name == "bytes":
            tx.raise_exception(TypeError, f"can't concat {other} to bytes")
        tx.raise_exception(TypeError, f'can only concatenate {name} (not "{other}") to {name}')
    if op is operator.mul:
        for seq, n in ((a, b), (b, a)):
            if seq.python_type() in (list, tuple, str, bytes):
                tx.raise_exception(
                    TypeError, f"can't multiply sequence by non-int of type '{n.python_type().__name__}'"
                )
    return None


def raise_unsupported(tx: Any, symbol: str, a: VariableTracker, b: VariableTracker) -> Any:
    tx.raise_exception(
        TypeError,
        f"unsupported operand type(s) for {symbol}: '{a.python_type().__name__}' and '{b.python_type().__name__}'",
    )


def compare(tx: Any, op: Callable[..., Any], a: VariableTracker, b: VariableTracker) -> VariableTracker:
    """Rich comparison with fall-back to identity for == and !=."""
    a, b = a.realize(), b.realize()
    if _reflected_first(tx, op, a, b):
        result = b.binary_op(tx, SWAPPED[op], a)
        if not is_not_implemented(result):
            return result
        result = a.binary_op(tx, op, b)
    else:
        result = a.binary_op(tx, op, b)
        if is_not_implemented(result):
            result = b.binary_op(tx, SWAPPED[op], a)
    if is_not_implemented(result):
        if op is operator.eq:
            return tx.const(is_same(tx, a, b))
        if op is operator.ne:
            return tx.const(not is_same(tx, a, b))
        tx.raise_exception(
            TypeError,
            f"'{SYMBOLS[op]}' not supported between instances of '{a.python_type().__name__}' and "
            f"'{b.python_type().__name__}'",
        )
    return result


def inplace(tx: Any, op: Callable[..., Any], a: VariableTracker, b: VariableTracker) -> VariableTracker:
    """`a op= b`; gives the object to store."""
    a, b = a.realize(), b.realize()
    handler = getattr(a, "inplace_op", None)
    if handler is not None:
        result = handler(tx, op, b)
        if not is_not_implemented(result):
            return result
    elif a.has_identity:
        from .attributes import find_in_type, lookup_special

        found = find_in_type(tx, a, INPLACE_SPECIAL[op])
        if found is not None and not found.is_none:
            method = lookup_special(tx, a, INPLACE_SPECIAL[op])
            result = method.call_function(tx, [b], {})  # type: ignore[union-attr]
            if not is_not_implemented(result):
                return result
    try:
        return binary(tx, PLAIN[op], a, b)
    except ObservedException as e:
        # the interpreter names the in-place operator in its message
        _rename_operator(tx, e, PLAIN[op])
        raise


def _rename_operator(tx: Any, e: ObservedException, op: Callable[..., Any]) -> None:
    if not e.matches(TypeError):
        return
    args = getattr(e.vt, "args_vts", None)
    if not args or not args[0].is_python_constant():
        return
    text = args[0].as_python_constant()
    prefix = f"unsupported operand type(s) for {SYMBOLS[op]}:"
    if isinstance(text, str) and text.startswith(prefix):
        symbol = "**=" if op is operator.pow else SYMBOLS[op] + "="
        args[0] = tx.const(f"unsupported operand type(s) for {symbol}:" + text[len(prefix) :])


def unary(tx: Any, op: Callable[..., Any], a: VariableTracker) -> VariableTracker:
    """`op(a)`."""
    a = a.realize()
    if op is operator.not_:
        truth = a.truth(tx)
        if truth is not None:
            return tx.const(not truth)
    return a.unary_op(tx, op)


def special_binary(tx: Any, a: VariableTracker, op: Callable[..., Any], b: VariableTracker, reflected: bool) -> Any:
    """One side of a binary operation through the special method of `a`'s type; NotImplemented if there is none."""
    from .attributes import find_in_type, lookup_special

    name = BINARY_SPECIAL[op][1 if reflected else 0]
    found = find_in_type(tx, a, name)
    if found is None or found.is_none:
        return NotImplemented
    if found.vt is None and found.owner is object:
        if op is operator.ne and not reflected:
            eq = find_in_type(tx, a, "__eq__")
            if eq is None or eq.real is object.__eq__:
                return NotImplemented
            result = special_binary(tx, a, operator.eq, b, False)
            if is_not_implemented(result):
                return NotImplemented
            return tx.const(not tx.truth(result))
        return NotImplemented
    method = lookup_special(tx, a, name)
    return method.call_function(tx, [b], {})  # type: ignore[union-attr]


# -- identity and equality ---------------------------------------------------------------------------------------------


def is_same(tx: Any, a: VariableTracker, b: VariableTracker) -> bool:
    """`a is b`."""
    a, b = a.realize(), b.realize()
    if a is b:
        return True
    same = _is_same(tx, a, b)
    if not same and a.source is not None and b.source is not None and a.source != b.source:
        if not (a.is_python_constant() or b.is_python_constant()):  # those are guarded by value or identity
            tx.output.guard((a.source, b.source), "NOT_SAME")
    return same


def _is_same(tx: Any, a: VariableTracker, b: VariableTracker) -> bool:
    same = getattr(a, "same_object", None) or getattr(b, "same_object", None)
    if same is not None:
        other = b if hasattr(a, "same_object") else a
        known = same(tx, other)
        if known is not None:
            return known
    if a.has_identity and b.has_identity and not (a.is_python_constant() and b.is_python_constant()):
        return False
    if a.is_python_constant() and b.is_python_constant():
        x, y = a.as_python_constant(), b.as_python_constant()
        if type(x) is not type(y):
            return False
        if isinstance(x, (bool, type(None), type, type(Ellipsis))):
            return x is y
        if type(x) in (int, str, bytes, float, complex):
            if x is y:
                return True
            # equal immutable values: one object or two depends on how eager made them
            if type(x) is int and x == y and -5 <= x <= 256:
                return True
            if x == y:
                tx.graph_break("object_identity", operation="is", values=repr(x)[:40])
            return False
        return x is y
    return False


def values_equal(tx: Any, a: VariableTracker, b: VariableTracker) -> bool:
    """Truth of `a == b`."""
    return tx.truth(compare(tx, operator.eq, a, b))


def same_or_equal(tx: Any, a: VariableTracker, b: VariableTracker) -> bool:
    """What containers ask: `a is b or a == b`."""
    a, b = a.realize(), b.realize()
    if a is b:
        return True
    if a.is_python_constant() and b.is_python_constant():
        x, y = a.as_python_constant(), b.as_python_constant()
        if x is y:
            return True
        if type(x) in (int, str, float, bool, bytes) and type(y) in (int, str, float, bool, bytes):
            return x == y
    equal = values_equal(tx, a, b)
    if not equal and a.source is not None and b.source is not None and a.python_type() is b.python_type():
        if a.python_type().__flags__ & 1 << 9 and a.source != b.source and not a.is_python_constant():
            tx.output.guard((a.source, b.source), "NOT_SAME")  # `__eq__` may say no to the object itself
    return equal


def contains(tx: Any, container: VariableTracker, item: VariableTracker) -> VariableTracker:
    """`item in container`."""
    return container.realize().contains(tx, item)


def contains_by_iteration(tx: Any, container: VariableTracker, item: VariableTracker) -> VariableTracker:
    """`in` for objects that are only iterable."""
    try:
        iterator = container.iterate(tx)
    except ObservedException as e:
        if e.matches(TypeError):
            tx.raise_exception(TypeError, f"argument of type '{container.python_type().__name__}' is not iterable")
        raise
    while True:
        try:
            element = iterator.next(tx)
        except ObservedException as e:
            if e.matches(StopIteration):
                return tx.const(False)
            raise
        if same_or_equal(tx, element, item):
            return tx.const(True)


def index_value(tx: Any, vt: VariableTracker, what: str | None = None) -> int:
    """`operator.index(vt)` as a real int."""
    vt = vt.realize()
    if vt.is_python_constant():
        value = vt.as_python_constant()
        if isinstance(value, int):
            return int(value)
    as_index = getattr(vt, "as_index", None)
    if as_index is not None:
        return as_index(tx)
    from .attributes import lookup_special

    method = lookup_special(tx, vt, "__index__")
    if method is None:
        name = vt.python_type().__name__
        tx.raise_exception(
            TypeError, what.format(type=name) if what else f"'{name}' object cannot be interpreted as an integer"
        )
    result = method.call_function(tx, [], {}).realize()
    value = result.as_python_constant()
    if not isinstance(value, int):
        tx.raise_exception(TypeError, f"__index__ returned non-int (type {type(value).__name__})")
    return int(value)
