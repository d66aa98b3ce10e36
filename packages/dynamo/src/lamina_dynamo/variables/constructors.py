"""Calls of builtin classes: numbers, text, containers, `type`, `object` and descriptors."""

from __future__ import annotations

import collections
import types
from typing import Any

from .attributes import find_in_mro, find_in_type, lookup_special
from .base import VariableTracker
from .builtin import NEW_STORAGE, constructs
from .cells import CellVariable
from .constant import fold, is_none
from .container import ListVariable, TupleVariable, content
from .deques import DequeVariable
from .descriptors import PropertyVariable, WrappedDescriptorVariable
from .dict_kinds import DefaultDictVariable, OrderedDictVariable
from .dict_views import MappingProxyVariable
from .dicts import DictVariable
from .methods import BoundMethodVariable
from .operators import index_value
from .reflection import is_callable
from .sets import FrozenSetVariable, SetVariable
from .slices import RangeVariable, SliceVariable
from .user_class import ClassVariable


@constructs(int)
def _int(tx: Any, x: VariableTracker | None = None, base: VariableTracker | None = None) -> VariableTracker:
    if x is None:
        return tx.const(0)
    x = x.realize()
    if base is not None:
        return fold(tx, int, [content(x), tx.const(index_value(tx, base))], {})
    hook = getattr(x, "convert_number", None)
    if hook is not None:
        return hook(tx, int)
    if x.is_python_constant() and isinstance(x.as_python_constant(), (int, float, str, bytes, complex, type(None))):
        return fold(tx, int, [x], {})
    return _number_by_special(tx, x, int, ("__int__", "__index__", "__trunc__"))


@constructs(float)
def make_float(tx: Any, x: VariableTracker | None = None) -> VariableTracker:
    if x is None:
        return tx.const(0.0)
    x = x.realize()
    hook = getattr(x, "convert_number", None)
    if hook is not None:
        return hook(tx, float)
    if x.is_python_constant() and isinstance(x.as_python_constant(), (int, float, str, bytes, complex, type(None))):
        return fold(tx, float, [x], {})
    return _number_by_special(tx, x, float, ("__float__", "__index__"))


def _number_by_special(tx: Any, x: VariableTracker, kind: type, names: tuple[str, ...]) -> VariableTracker:
    storage = getattr(x, "storage", None)
    for name in names:
        found = find_in_type(tx, x, name)
        if found is None or found.is_none:
            continue
        if storage is not None and found.vt is None and not isinstance(found.real, types.FunctionType):
            return fold(tx, kind, [storage], {})
        result = x.call_special(tx, name, []).realize()
        inner = content(result)
        if not inner.is_python_constant() or not isinstance(inner.as_python_constant(), kind):
            if name == "__index__" and inner.is_python_constant() and isinstance(inner.as_python_constant(), int):
                return fold(tx, kind, [inner], {})
            if inner.is_python_constant():
                tx.raise_exception(
                    TypeError,
                    f"{x.python_type().__name__}.{name} returned non-{kind.__name__} "
                    f"(type {result.python_type().__name__})"
                    if kind is float
                    else f"{name} returned non-int (type {result.python_type().__name__})",
                )
            return result
        return fold(tx, kind, [inner], {})
    if storage is not None and storage.is_python_constant():
        return fold(tx, kind, [storage], {})
    if kind is int:
        text = "int() argument must be a string, a bytes-like object or a real number, not "
    else:
        text = "float() argument must be a string or a real number, not "
    tx.raise_exception(TypeError, f"{text}'{x.python_type().__name__}'")


@constructs(bool)
def _bool(tx: Any, x: VariableTracker | None = None) -> VariableTracker:
    if x is None:
        return tx.const(False)
    hook = getattr(x.realize(), "convert_number", None)
    if hook is not None:
        return hook(tx, bool)
    return tx.const(tx.truth(x))


@constructs(complex)
def _complex(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    plain = [content(a) for a in args]
    if len(plain) == 1 and not kwargs and not plain[0].is_python_constant():
        for name in ("__complex__", "__float__", "__index__"):
            method = lookup_special(tx, plain[0], name)
            if method is not None:
                plain = [method.call_function(tx, [], {}).realize()]
                wanted = {"__complex__": complex, "__float__": float, "__index__": int}[name]
                if not issubclass(plain[0].python_type(), wanted):
                    kind = plain[0].python_type().__name__
                    start = args[0].python_type().__name__ + "." if name == "__float__" else ""
                    tx.raise_exception(TypeError, f"{start}{name} returned non-{wanted.__name__} (type {kind})")
                break
    return fold(tx, complex, plain, {k: v.realize() for k, v in kwargs.items()})


@constructs(str)
def _str(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    from .formatting import text_of

    if not args:
        if kwargs:
            return fold(tx, str, [], {k: v.realize() for k, v in kwargs.items()})
        return tx.const("")
    if len(args) > 1 or kwargs:
        return fold(tx, str, [content(a) for a in args], {k: v.realize() for k, v in kwargs.items()})
    return tx.const(text_of(tx, args[0]))


@constructs(bytes)
def _bytes(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    from .mirrors import MirrorVariable

    if args:
        first = args[0].realize()
        if len(args) == 1 and not kwargs and isinstance(first, MirrorVariable):
            return first.run(tx, bytes, [], {})
        if isinstance(content(first), (ListVariable, TupleVariable)):
            return fold(tx, bytes, [TupleVariable(first.unpack(tx))], {})
    return fold(tx, bytes, [content(a) for a in args], {k: v.realize() for k, v in kwargs.items()})


# -- containers --------------------------------------------------------------------------------------------------------


@constructs(list)
def _list(tx: Any, iterable: VariableTracker | None = None) -> VariableTracker:
    return ListVariable([] if iterable is None else iterable.realize().unpack(tx))


@constructs(tuple)
def _tuple(tx: Any, iterable: VariableTracker | None = None) -> VariableTracker:
    if iterable is None:
        return TupleVariable([])
    iterable = iterable.realize()
    if type(iterable) is TupleVariable:
        return iterable
    return TupleVariable(iterable.unpack(tx))


@constructs(dict)
def _dict(tx: Any, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    vt = DictVariable()
    if len(args) > 1:
        tx.raise_exception(TypeError, f"dict expected at most 1 argument, got {len(args)}")
    vt.method_update(tx, *args, **kwargs)
    return vt


@constructs(set)
def _set(tx: Any, iterable: VariableTracker | None = None) -> VariableTracker:
    vt = SetVariable()
    vt.method_init(tx, iterable)
    return vt


@constructs(frozenset)
def _frozenset(tx: Any, iterable: VariableTracker | None = None) -> VariableTracker:
    from .sets import elements

    if iterable is None:
        return FrozenSetVariable()
    iterable = iterable.realize()
    if type(iterable) is FrozenSetVariable:
        return iterable
    return FrozenSetVariable.from_items(tx, elements(tx, iterable))


@constructs(collections.OrderedDict)
def _ordered_dict(tx: Any, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    vt = OrderedDictVariable()
    vt.method_update(tx, *args, **kwargs)
    return vt


@constructs(collections.defaultdict)
def _default_dict(tx: Any, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    vt = DefaultDictVariable()
    if args and not is_none(args[0]) and not is_callable(tx, args[0]).as_python_constant():
        tx.raise_exception(TypeError, "first argument must be callable or None")
    vt.method_init(tx, *args, **kwargs)
    return vt


@constructs(collections.deque)
def _deque(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    vt = DequeVariable()
    vt.method_init(tx, *args, **kwargs)
    return vt


@constructs(types.MappingProxyType)
def _mapping_proxy(tx: Any, mapping: VariableTracker) -> VariableTracker:
    return MappingProxyVariable(mapping.realize())


@constructs(range)
def _range(tx: Any, *args: VariableTracker) -> VariableTracker:
    if not args:
        tx.raise_exception(TypeError, "range expected at least 1 argument, got 0")
    values = [tx.const(index_value(tx, a)) for a in args]
    try:
        return RangeVariable(range(*[v.value for v in values]))
    except (TypeError, ValueError) as e:
        from .constant import raise_real

        raise_real(tx, e)


@constructs(slice)
def _slice(tx: Any, *args: VariableTracker) -> VariableTracker:
    none = tx.const(None)
    if len(args) == 1:
        return SliceVariable([none, args[0], none])
    return SliceVariable([*args, none][:3])


for _base, _factory in (
    (list, lambda tx, a, k: ListVariable()),
    (dict, lambda tx, a, k: DictVariable()),
    (set, lambda tx, a, k: SetVariable()),
    (collections.OrderedDict, lambda tx, a, k: OrderedDictVariable()),
    (collections.defaultdict, lambda tx, a, k: DefaultDictVariable()),
    (collections.deque, lambda tx, a, k: DequeVariable()),
    (tuple, lambda tx, a, k: _tuple(tx, *a[:1])),
    (frozenset, lambda tx, a, k: _frozenset(tx, *a[:1])),
    (str, lambda tx, a, k: _str(tx, *a, **k)),
    (int, lambda tx, a, k: _int(tx, *a, **k)),
    (float, lambda tx, a, k: make_float(tx, *a)),
    (bytes, lambda tx, a, k: _bytes(tx, *a, **k)),
    (complex, lambda tx, a, k: _complex(tx, *a, **k)),
):
    NEW_STORAGE[_base] = _factory  # type: ignore[assignment]


# -- objects and classes -----------------------------------------------------------------------------------------------


@constructs(type)
def _type(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    if len(args) == 1 and not kwargs:
        return args[0].realize().class_vt(tx)
    from .class_making import make_class

    if len(args) != 3:
        tx.raise_exception(TypeError, "type() takes 1 or 3 arguments")
    meta = type
    for base in args[1].unpack(tx):
        base = base.realize()
        if isinstance(base, ClassVariable) and issubclass(type(base.value), meta):
            meta = type(base.value)
    if meta is not type:
        found = find_in_mro(tx, meta, "__new__")
        if found is not None and found.owner is not type:
            fn = tx.wrap(meta, None).get_attr(tx, "__new__")
            return fn.call_function(tx, [tx.wrap(meta, None), *args], kwargs)
    return make_class(tx, tx.wrap(meta, None), list(args), kwargs)


@constructs(object)
def _object(tx: Any, *args: VariableTracker) -> VariableTracker:
    from .user_object import UserObjectVariable

    if args:
        tx.raise_exception(TypeError, "object() takes no arguments")
    return UserObjectVariable(None, None, object)


@constructs(property)
def _property(
    tx: Any,
    fget: VariableTracker | None = None,
    fset: VariableTracker | None = None,
    fdel: VariableTracker | None = None,
    doc: VariableTracker | None = None,
) -> VariableTracker:
    return PropertyVariable([p if p is not None else tx.const(None) for p in (fget, fset, fdel)], doc)


@constructs(staticmethod)
def _staticmethod(tx: Any, fn: VariableTracker) -> VariableTracker:
    return WrappedDescriptorVariable(staticmethod, fn)


@constructs(classmethod)
def _classmethod(tx: Any, fn: VariableTracker) -> VariableTracker:
    return WrappedDescriptorVariable(classmethod, fn)


@constructs(types.MethodType)
def _method(tx: Any, fn: VariableTracker, obj: VariableTracker) -> VariableTracker:
    return BoundMethodVariable(fn, obj)


@constructs(types.CellType)
def _cell(tx: Any, value: VariableTracker | None = None) -> VariableTracker:
    return CellVariable(value)
