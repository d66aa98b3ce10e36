"""Calls of C-implemented methods found on types: `object.__setattr__`, `type.__call__`, `list.append`."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from .base import VariableTracker, is_argument_error

#: special method -> (protocol method of the tracker, caller)
PROTOCOL: dict[str, tuple[str, Callable[..., Any]]] = {
    "__getitem__": ("get_item", lambda tx, o, k: o.get_item(tx, k)),
    "__setitem__": ("set_item", lambda tx, o, k, v: o.set_item(tx, k, v)),
    "__delitem__": ("del_item", lambda tx, o, k: o.del_item(tx, k)),
    "__contains__": ("contains", lambda tx, o, k: o.contains(tx, k)),
    "__len__": ("length", lambda tx, o: o.length(tx)),
    "__iter__": ("iterate", lambda tx, o: o.iterate(tx)),
    "__next__": ("next", lambda tx, o: o.next(tx)),
    "__bool__": ("truth", lambda tx, o: tx.const(tx.truth(o))),
    "__hash__": ("hash_key", lambda tx, o: hash_value(tx, o)),
    "__call__": ("call_function", lambda tx, o, *a, **k: o.call_function(tx, list(a), k)),
    "__setattr__": ("set_attr", lambda tx, o, n, v: o.set_attr(tx, n.as_python_constant(), v)),
    "__delattr__": ("del_attr", lambda tx, o, n: o.del_attr(tx, n.as_python_constant())),
    "__getattribute__": ("get_attr", lambda tx, o, n: o.get_attr(tx, n.as_python_constant())),
}


def hash_value(tx: Any, vt: VariableTracker) -> VariableTracker:
    """`hash(vt)` where it does not depend on addresses or on the process's string hash seed being another one."""
    from .keys import ConstantKey, TracedKey, TupleKey

    key = vt.hash_key(tx)
    if isinstance(key, (ConstantKey, TracedKey)):
        return tx.const(hash(key))
    if isinstance(key, TupleKey) and vt.is_python_constant():
        return tx.const(hash(vt.as_python_constant()))
    tx.graph_break("object_identity", operation="hash")


def _binary_rows() -> None:
    from .operators import BINARY_SPECIAL, INPLACE_SPECIAL, UNARY_SPECIAL

    for op, (name, rname) in BINARY_SPECIAL.items():
        PROTOCOL[name] = ("binary_op", lambda tx, o, x, op=op: o.binary_op(tx, op, x))
        if rname != name and rname not in PROTOCOL:
            PROTOCOL[rname] = ("binary_op", lambda tx, o, x, op=op: o.binary_op(tx, op, x, reflected=True))
    for op, name in INPLACE_SPECIAL.items():
        PROTOCOL[name] = ("binary_op", lambda tx, o, x, op=op: o.binary_op(tx, op, x))
    for op, (name, _) in UNARY_SPECIAL.items():
        PROTOCOL[name] = ("unary_op", lambda tx, o, op=op: o.unary_op(tx, op))


def call_protocol(tx: Any, obj: VariableTracker, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The tracker's own implementation of a special method of a builtin type; None if it has none."""
    if "__add__" not in PROTOCOL:
        _binary_rows()
    row = PROTOCOL.get(name)
    if row is None or getattr(type(obj), row[0]) is getattr(VariableTracker, row[0]):
        return None
    try:
        result = row[1](tx, obj, *args, **kwargs)
    except TypeError as e:
        if is_argument_error(e):
            tx.graph_break("bad_builtin_arguments", type=obj.python_type().__name__, method=name, error=str(e))
        raise
    if result is NotImplemented:
        return tx.const(NotImplemented)
    return tx.const(None) if result is None else result


def call_slot(
    tx: Any,
    descriptor: Any,
    obj: VariableTracker,
    args: list[VariableTracker],
    kwargs: dict[str, VariableTracker],
) -> VariableTracker:
    """Calls the C method `descriptor` with `obj` as its first argument."""
    owner, name = descriptor.__objclass__, descriptor.__name__
    obj = obj.realize()
    if type(descriptor) is types.ClassMethodDescriptorType:
        from .builtin import call_class_method

        return call_class_method(tx, descriptor, obj, args, kwargs)
    if name == "__get__" and type(descriptor) is types.WrapperDescriptorType and hasattr(obj, "descriptor_get"):
        from .constant import is_none

        instance = None if is_none(args[0]) else args[0].realize()
        cls = args[1] if len(args) > 1 and not is_none(args[1]) else args[0].class_vt(tx)
        return obj.descriptor_get(tx, instance, cls)
    if owner is object:
        handler = OBJECT_SLOTS.get(name)
        if handler is None:
            tx.graph_break("unsupported_builtin_method", type="object", method=name)
        return handler(tx, obj, *args, **kwargs)
    if owner is type:
        from .type_methods import TYPE_SLOTS

        handler = TYPE_SLOTS.get(name)
        if handler is None:
            tx.graph_break("unsupported_builtin_method", type="type", method=name)
        return handler(tx, obj, *args, **kwargs)
    if not issubclass(obj.python_type(), owner):
        what = "requires" if type(descriptor) is types.WrapperDescriptorType else "for"
        text = (
            f"descriptor '{name}' requires a '{owner.__name__}' object but received a '{obj.python_type().__name__}'"
            if what == "requires"
            else f"descriptor '{name}' for '{owner.__name__}' objects doesn't apply to a "
            f"'{obj.python_type().__name__}' object"
        )
        tx.raise_exception(TypeError, text)
    storage = getattr(obj, "storage", None)
    target = obj if storage is None else storage
    result = target.call_builtin_method(tx, name, args, kwargs)
    return obj if result is target else result


# -- methods of object -------------------------------------------------------------------------------------------------


def _object_init(tx: Any, obj: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    from .attributes import find_in_type

    if args or kwargs:
        init, new = find_in_type(tx, obj, "__init__"), find_in_type(tx, obj, "__new__")
        if init is None or init.real is not object.__init__:
            tx.raise_exception(TypeError, "object.__init__() takes exactly one argument (the instance to initialize)")
        if new is None or new.real is object.__new__:
            tx.raise_exception(TypeError, f"{obj.python_type().__name__}() takes no arguments")
    return tx.const(None)


def _name_argument(tx: Any, name: VariableTracker) -> str:
    name = name.realize()
    if name.python_type() is not str and not issubclass(name.python_type(), str):
        tx.raise_exception(TypeError, f"attribute name must be string, not '{name.python_type().__name__}'")
    return str(name.as_python_constant())


def _object_getattribute(tx: Any, obj: VariableTracker, name: VariableTracker) -> VariableTracker:
    from .attributes import generic_getattr

    if not hasattr(obj, "instance_attr") and type(obj).get_attr is not VariableTracker.get_attr:
        return obj.get_attr(tx, _name_argument(tx, name))
    return generic_getattr(tx, obj, _name_argument(tx, name))


def _object_setattr(tx: Any, obj: VariableTracker, name: VariableTracker, value: VariableTracker) -> VariableTracker:
    from .attributes import generic_setattr

    generic_setattr(tx, obj, _name_argument(tx, name), value)
    return tx.const(None)


def _object_delattr(tx: Any, obj: VariableTracker, name: VariableTracker) -> VariableTracker:
    from .attributes import generic_delattr

    generic_delattr(tx, obj, _name_argument(tx, name))
    return tx.const(None)


def _object_eq(tx: Any, obj: VariableTracker, other: VariableTracker) -> VariableTracker:
    from .operators import is_same

    return tx.const(True if is_same(tx, obj, other) else NotImplemented)


def _object_ne(tx: Any, obj: VariableTracker, other: VariableTracker) -> VariableTracker:
    result = obj.call_special(tx, "__eq__", [other]).realize()
    if result.is_python_constant() and result.as_python_constant() is NotImplemented:
        return result
    return tx.const(not tx.truth(result))


def _object_format(tx: Any, obj: VariableTracker, spec: VariableTracker) -> VariableTracker:
    from .formatting import text_of

    if spec.as_python_constant():
        tx.raise_exception(TypeError, f"unsupported format string passed to {obj.python_type().__name__}.__format__")
    return tx.const(text_of(tx, obj))


def _object_str(tx: Any, obj: VariableTracker) -> VariableTracker:
    from .formatting import repr_of

    return tx.const(repr_of(tx, obj))


def _object_repr(tx: Any, obj: VariableTracker) -> VariableTracker:
    tx.graph_break("object_identity", operation="repr", type=obj.python_type().__name__)


def _object_not_implemented(tx: Any, obj: VariableTracker, other: VariableTracker) -> VariableTracker:
    return tx.const(NotImplemented)


def _object_dir(tx: Any, obj: VariableTracker) -> VariableTracker:
    from .container import ListVariable

    names = set(dir(obj.python_type()))
    for klass in obj.python_type().__mro__ or ():
        overlay = tx.output.side_effects.class_attrs.get(klass)
        if overlay:
            names |= set(overlay)
    if hasattr(obj, "attr_names"):
        names |= set(obj.attr_names(tx))
    return ListVariable([tx.const(n) for n in sorted(names)])


def _object_reduce_ex(tx: Any, obj: VariableTracker, protocol: VariableTracker | None = None) -> VariableTracker:
    tx.graph_break("copying", type=obj.python_type().__name__)


OBJECT_SLOTS: dict[str, Callable[..., VariableTracker]] = {
    "__init__": _object_init,
    "__getattribute__": _object_getattribute,
    "__setattr__": _object_setattr,
    "__delattr__": _object_delattr,
    "__eq__": _object_eq,
    "__ne__": _object_ne,
    "__lt__": _object_not_implemented,
    "__le__": _object_not_implemented,
    "__gt__": _object_not_implemented,
    "__ge__": _object_not_implemented,
    "__hash__": lambda tx, obj: tx.graph_break("object_identity", operation="hash"),
    "__format__": _object_format,
    "__str__": _object_str,
    "__repr__": _object_repr,
    "__dir__": _object_dir,
    "__reduce_ex__": _object_reduce_ex,
    "__reduce__": _object_reduce_ex,
}
