"""Methods of `type`."""

from __future__ import annotations

from typing import Any

from .attributes import DELETED
from .base import VariableTracker
from .user_class import ClassVariable, class_vt_of, type_call


def _type_call(tx: Any, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    return type_call(tx, cls, list(args), kwargs)


def _type_init(tx: Any, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    return tx.const(None)


def _type_getattribute(tx: Any, cls: VariableTracker, name: VariableTracker) -> VariableTracker:
    return cls.generic_get(tx, name.realize().as_python_constant())  # type: ignore[attr-defined]


def _type_setattr(tx: Any, cls: VariableTracker, name: VariableTracker, value: VariableTracker) -> VariableTracker:
    cls.generic_set(tx, name.realize().as_python_constant(), value)  # type: ignore[attr-defined]
    return tx.const(None)


def _type_delattr(tx: Any, cls: VariableTracker, name: VariableTracker) -> VariableTracker:
    cls.generic_set(tx, name.realize().as_python_constant(), DELETED)  # type: ignore[attr-defined]
    return tx.const(None)


def class_repr(tx: Any, cls: VariableTracker) -> VariableTracker:
    real: type = cls.value  # type: ignore[attr-defined]
    if real.__flags__ & (1 << 9) or real.__module__ != "builtins":
        module = cls.get_attr(tx, "__module__").realize()
        qualname = cls.get_attr(tx, "__qualname__").realize()
        if module.is_python_constant() and module.as_python_constant() != "builtins":
            return tx.const(f"<class '{module.as_python_constant()}.{qualname.as_python_constant()}'>")
        return tx.const(f"<class '{qualname.as_python_constant()}'>")
    return tx.const(type.__repr__(real))


def _type_instancecheck(tx: Any, cls: VariableTracker, obj: VariableTracker) -> VariableTracker:
    from .reflection import plain_isinstance

    return tx.const(plain_isinstance(tx, obj, cls))


def _type_subclasscheck(tx: Any, cls: VariableTracker, sub: VariableTracker) -> VariableTracker:
    sub = sub.realize()
    if not isinstance(sub, ClassVariable):
        tx.raise_exception(TypeError, "issubclass() arg 1 must be a class")
    return tx.const(cls.value in (sub.value.__mro__ or ()))  # type: ignore[attr-defined]


def _type_mro(tx: Any, cls: VariableTracker) -> VariableTracker:
    from .container import ListVariable

    mro = cls.value.__mro__  # type: ignore[attr-defined]
    if mro is None:  # a metaclass' own mro() runs
        tx.graph_break("class_statement", method="mro")
    return ListVariable([class_vt_of(tx, c) for c in mro])  # type: ignore[attr-defined]


def _type_subclasses(tx: Any, cls: VariableTracker) -> VariableTracker:
    tx.graph_break("unsupported_builtin_method", type="type", method="__subclasses__")


def _type_or(tx: Any, cls: VariableTracker, other: VariableTracker) -> VariableTracker:
    import operator

    result = cls.binary_op(tx, operator.or_, other)
    return tx.const(NotImplemented) if result is NotImplemented else result


def _type_dir(tx: Any, cls: VariableTracker) -> VariableTracker:
    from .container import ListVariable

    names = set(dir(cls.value))  # type: ignore[attr-defined]
    for klass in cls.value.__mro__ or ():  # type: ignore[attr-defined]
        names |= set(tx.output.side_effects.class_attrs.get(klass, ()))
    return ListVariable([tx.const(n) for n in sorted(names)])


TYPE_SLOTS: dict[str, Any] = {
    "__call__": _type_call,
    "__init__": _type_init,
    "__getattribute__": _type_getattribute,
    "__setattr__": _type_setattr,
    "__delattr__": _type_delattr,
    "__repr__": class_repr,
    "__instancecheck__": _type_instancecheck,
    "__subclasscheck__": _type_subclasscheck,
    "mro": _type_mro,
    "__subclasses__": _type_subclasses,
    "__or__": _type_or,
    "__dir__": _type_dir,
}
