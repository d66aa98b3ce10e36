"""Classes: existing ones, and those made inside the region by a class statement or `type(...)`.

A class made inside gets a real stand-in class with the same bases and an empty body, so that the MRO, `isinstance` and
the object layout are Python's own; its attributes live in the overlay of class attributes.  The stand-in never leaves
the translation: generated code makes the real class.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from .attributes import (
    DELETED,
    SLOT_TYPES,
    bind,
    find_in_mro,
    find_in_type,
    guard_special,
    is_data_descriptor,
    is_generic_slot,
    raise_attribute_error,
)
from .base import ObservedException, VariableTracker
from .builder import wraps_if
from .constant import is_none
from .descriptors import WrappedDescriptorVariable
from .finalizers import check_making

if TYPE_CHECKING:
    from .class_making import MadeClass


def class_of(tx: Any, vt: VariableTracker) -> VariableTracker:
    """Tracker of `type(vt)`; a class reached this way needs no guard of its own: the object has a TYPE guard."""
    cls = vt.python_type()
    made = tx.output.side_effects.made_classes.get(cls)
    if made is not None:
        return made
    builder = tx.output.builder
    known = builder.by_id.get(id(cls))
    if known is not None:
        return known[1]
    source = None
    if vt.source is not None and cls.__flags__ & (1 << 9):
        from ..source import TypeSource

        source = TypeSource(vt.source)
    if source is None:
        return tx.wrap(cls, None)
    made = make_class_vt(tx, cls, source)
    builder.remember(cls, made)
    return made


def make_class_vt(tx: Any, cls: type, source: Any) -> VariableTracker:
    for predicate, factory in CLASS_FACTORIES:
        if predicate(cls):
            return factory(cls, source)
    return ClassVariable(cls, source)


#: (predicate on the class, factory(cls, source)): families of classes with their own tracker (torch classes, enums)
CLASS_FACTORIES: list[tuple[Any, Any]] = []


class ClassVariable(VariableTracker):
    """A class.  `made` holds what is needed to build it again if the class was made inside the region."""

    __slots__ = ("made", "meta_vt", "value")
    is_class_like = True
    is_mutable = True

    def __init__(self, value: type, source: Any = None, made: MadeClass | None = None):
        super().__init__(source)
        self.value = value
        self.made = made
        self.meta_vt: VariableTracker | None = None

    def describe(self) -> str:
        return f"class {self.value.__qualname__}"

    @property
    def class_name(self) -> str:
        return self.value.__name__

    def python_type(self) -> type:
        return type(self.value)

    def is_python_constant(self) -> bool:
        return self.made is None

    def as_python_constant(self) -> Any:
        if self.made is not None:
            return super().as_python_constant()
        return self.value

    def truth(self, tx: Any) -> bool | None:
        if type(self.value) is type or find_in_mro(tx, type(self.value), "__bool__") is None:
            if find_in_mro(tx, type(self.value), "__len__") is None:
                return True
        return super().truth(tx)

    def hash_key(self, tx: Any) -> Any:
        from .keys import ConstantKey, IdentityKey

        if self.made is not None:
            return IdentityKey(self)
        return ConstantKey(self.value)

    # -- attributes ----------------------------------------------------------------------------------------------

    def instance_attr(self, tx: Any, name: str, shadowing: bool) -> VariableTracker | None:
        """Marker only: object_getattribute of classes goes through get_attr below."""
        found = find_in_mro(tx, self.value, name, self)
        return None if found is None else found.value(tx)

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        getattribute = find_in_type(tx, self, "__getattribute__")
        try:
            if getattribute is None or is_generic_slot(getattribute, "__getattribute__"):
                return self.generic_get(tx, name)
            return bind(tx, getattribute, self, None).call_function(tx, [tx.const(name)], {})  # type: ignore[arg-type]
        except ObservedException as e:
            if not e.matches(AttributeError):
                raise
            fallback = find_in_type(tx, self, "__getattr__")
            if fallback is None:
                raise
        return bind(tx, fallback, self, None).call_function(tx, [tx.const(name)], {})  # type: ignore[arg-type]

    def generic_get(self, tx: Any, name: str) -> VariableTracker:
        """What `type.__getattribute__` does."""
        special = self.special_attr(tx, name)
        if special is not None:
            return special
        meta_found = find_in_type(tx, self, name)
        if meta_found is not None and is_data_descriptor(tx, meta_found):
            if name not in ("__doc__", "__module__", "__dict__") or type(self.value) is not type:
                if type(meta_found.real) is not types.GetSetDescriptorType:
                    return bind(tx, meta_found, self, self.class_vt(tx))
        found = find_in_mro(tx, self.value, name, self)
        if found is not None:
            return bind(tx, found, None, self)
        overlays = tx.output.side_effects.class_attrs
        if self.source is not None and not any(name in overlays.get(k, ()) for k in self.value.__mro__ or ()):
            tx.output.guard(self.source, "NO_CLASS_ATTR", name)
        if meta_found is not None:
            return bind(tx, meta_found, self, self.class_vt(tx))
        raise_attribute_error(tx, self, name)

    def special_attr(self, tx: Any, name: str) -> VariableTracker | None:
        from .container import TupleVariable

        if name == "__class__":
            return self.class_vt(tx)
        if name == "__mro__":
            return TupleVariable([class_vt_of(tx, c) for c in (self.value.__mro__ or ())])
        if name == "__bases__":
            return TupleVariable([class_vt_of(tx, c) for c in self.value.__bases__])
        if name == "__base__":
            return class_vt_of(tx, self.value.__base__) if self.value.__base__ else tx.const(None)
        if name in ("__name__", "__qualname__"):
            if name == "__qualname__" and self.made is not None:
                return self.made.namespace.get("__qualname__") or tx.const(self.value.__qualname__)
            return tx.const(getattr(self.value, name))
        if name in ("__module__", "__doc__"):
            found = find_in_mro(tx, self.value, name) if name == "__module__" else None
            if self.made is not None or found is not None and found.vt is not None:
                value = self.made.namespace.get(name) if self.made is not None else found.vt  # type: ignore[union-attr]
                if value is not None:
                    return value
                return tx.const(None)
            value = getattr(self.value, name)
            return tx.const(value) if isinstance(value, (str, type(None))) else None
        if name == "__dict__":
            from .dict_views import MappingProxyVariable

            return MappingProxyVariable(self.namespace_dict(tx))
        if name in ("__flags__", "__basicsize__", "__itemsize__", "__dictoffset__", "__weakrefoffset__"):
            return tx.const(getattr(self.value, name))
        if name == "__abstractmethods__" and self.made is not None:
            return self.made.namespace.get(name)
        if name == "__annotations__":
            own = self.value.__dict__.get(name)
            overlay = tx.output.side_effects.class_attrs.get(self.value, {})
            if name in overlay:
                return overlay[name]
            if own is None:
                from .dicts import DictVariable

                fresh = DictVariable.from_pairs(tx, [])
                if self.made is not None:
                    tx.output.side_effects.class_attrs[self.value][name] = fresh
                return fresh
            return tx.wrap(own, self.attr_source(name))
        return None

    def attr_source(self, name: str) -> Any:
        from ..source import ClassAttrSource

        return None if self.source is None else ClassAttrSource(self.source, name)

    def namespace_dict(self, tx: Any) -> VariableTracker:
        from .builder import wrap_lazy
        from .dicts import DictVariable

        pairs: list[tuple[VariableTracker, VariableTracker]] = []
        overlay = tx.output.side_effects.class_attrs.get(self.value, {})
        if self.made is None:
            if self.source is not None:
                from ..source import PythonSource

                names = PythonSource(self.source, namespace_names)
                tx.output.guard(names, "CONSTANT", namespace_names(self.value))
            for key, value in self.value.__dict__.items():
                if overlay.get(key) is not DELETED:
                    vt = overlay.get(key) or wrap_lazy(tx, value, self.attr_source(key))
                    pairs.append((tx.const(key), vt))
        for key, value in overlay.items():
            if value is not DELETED and (self.made is not None or key not in self.value.__dict__):
                pairs.append((tx.const(key), value))
        return DictVariable.from_pairs(tx, pairs)

    def set_attr(self, tx: Any, name: str, value: VariableTracker) -> None:
        setter = find_in_type(tx, self, "__setattr__")
        if setter is not None and not is_generic_slot(setter, "__setattr__"):
            bind(tx, setter, self, None).call_function(tx, [tx.const(name), value], {})  # type: ignore[arg-type]
            return
        self.generic_set(tx, name, value)

    def generic_set(self, tx: Any, name: str, value: Any) -> None:
        """What `type.__setattr__` does (value DELETED: `type.__delattr__`)."""
        meta_found = find_in_type(tx, self, name)
        if meta_found is not None and meta_found.owner is not type and is_data_descriptor(tx, meta_found):
            from .attributes import descriptor_set

            if value is DELETED:
                tx.graph_break("descriptor", type="metaclass attribute", attribute=name)
            descriptor_set(tx, meta_found, self, value)
            return
        if name in ("__name__", "__bases__", "__dict__", "__mro__", "__class__", "__abstractmethods__") and (
            name != "__abstractmethods__" or self.made is None
        ):
            tx.graph_break("side_effect", operation=f"assignment to {name} of a class")
        if not self.value.__flags__ & (1 << 9):
            tx.raise_exception(TypeError, f"cannot set '{name}' attribute of immutable type '{self.value.__name__}'")
        if name.startswith("__") and name.endswith("__") and name[2:-2] in _SLOT_SENSITIVE and self.made is None:
            tx.graph_break("side_effect", operation=f"assignment to {name} of a class")
        overlay = tx.output.side_effects.class_attrs.setdefault(self.value, {})
        if value is DELETED:
            present = overlay.get(name) if name in overlay else self.value.__dict__.get(name)
            if present is None and name not in self.value.__dict__ or present is DELETED:
                raise_attribute_error(tx, self, name)
            overlay.pop(name, None)
            if self.made is not None or name not in self.value.__dict__:
                return
        tx.output.side_effects.mutation(self)
        overlay[name] = value

    def store_attr(self, tx: Any, name: str, value: Any, shadowing: bool = False) -> None:
        self.generic_set(tx, name, value)

    def del_attr(self, tx: Any, name: str) -> None:
        deleter = find_in_type(tx, self, "__delattr__")
        if deleter is not None and not is_generic_slot(deleter, "__delattr__"):
            bind(tx, deleter, self, None).call_function(tx, [tx.const(name)], {})  # type: ignore[arg-type]
            return
        self.generic_set(tx, name, DELETED)

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        if find_in_mro(tx, type(self.value), "__getitem__") is not None:
            return super().get_item(tx, key)
        found = find_in_mro(tx, self.value, "__class_getitem__", self)
        if found is None:
            tx.raise_exception(TypeError, f"type '{self.value.__qualname__}' is not subscriptable")
        if self.made is None and key.realize().is_python_constant():
            from .constant import fold

            return fold(tx, _subscript, [self, key.realize()], {})
        return bind(tx, found, None, self).call_function(tx, [key], {})

    # -- calls --------------------------------------------------------------------------------------------------

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        meta = type(self.value)
        if meta is not type:
            found = find_in_type(tx, self, "__call__")
            if found is not None and type(found.real) not in SLOT_TYPES:
                return bind(tx, found, self, None).call_function(tx, args, kwargs)  # type: ignore[arg-type]
        return type_call(tx, self, args, kwargs)

    def binary_op(self, tx: Any, op: Any, other: VariableTracker, reflected: bool = False) -> Any:
        import operator

        from .operators import is_same

        if op in (operator.eq, operator.ne) and type(self.value).__eq__ is type.__eq__:
            if is_same(tx, self, other):
                return tx.const(op is operator.eq)
            return NotImplemented
        other = other.realize()
        if op is operator.or_ and self.is_python_constant() and other.is_python_constant():
            from .constant import fold

            pair = [other, self] if reflected else [self, other]
            return fold(tx, op, pair, {})
        return super().binary_op(tx, op, other, reflected)

    def children(self) -> Any:
        if self.made is None:
            return
        yield from self.made.bases
        for value in self.made.namespace.values():
            if isinstance(value, VariableTracker):
                yield value
        if self.made.meta is not None:
            yield self.made.meta

    def reconstruct(self, codegen: Any) -> None:
        if self.made is None:
            if self.source is None:
                codegen.load_global_alias("cls", self.value)
                return
            self.source.reconstruct(codegen)
            return
        self.made.reconstruct(codegen, self)

    def replay(self, codegen: Any) -> None:
        """Stores of class attributes, for classes that existed before."""
        overlay = codegen.output.side_effects.class_attrs.get(self.value, {})
        for name, value in overlay.items():
            codegen.push_function(type.__delattr__ if value is DELETED else type.__setattr__)
            codegen(self)
            codegen.load_const(name)
            if value is not DELETED:
                codegen(value)
            codegen.call_function(2 if value is DELETED else 3)
            codegen.pop()


_SLOT_SENSITIVE = frozenset({"getattribute", "new", "init_subclass", "slots"})


def _subscript(cls: Any, key: Any) -> Any:
    return cls[key]


def class_vt_of(tx: Any, cls: type) -> VariableTracker:
    """Tracker of a class reached through another class (a base): guarded by the class it was reached through."""
    made = tx.output.side_effects.made_classes.get(cls)
    return made if made is not None else tx.wrap(cls, None)


@wraps_if(lambda v: issubclass(type(v), type), priority=-50)
def wrap_class(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return make_class_vt(tx, value, source)


def type_call(
    tx: Any, cls: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """What `type.__call__(cls, *args, **kwargs)` does: `__new__`, then `__init__`."""
    from .builtin import CONSTRUCTORS
    from .constant import fold
    from .numpy_ import is_numpy_number_type

    real: type = cls.value  # type: ignore[attr-defined]
    constructor = CONSTRUCTORS.get(real)
    if constructor is not None:
        from .builtin import call_handler

        return call_handler(tx, constructor, real.__name__, args, kwargs)
    if real.__module__ == "numpy" and is_numpy_number_type(real):
        return fold(tx, real, [a.realize() for a in args], {k: v.realize() for k, v in kwargs.items()})
    new = find_in_mro(tx, real, "__new__", cls)
    assert new is not None
    guard_special(tx, cls.source, real, "__new__", new)
    if new.vt is None and isinstance(new.real, types.BuiltinFunctionType):
        obj = new_object(tx, new.owner, cls, args, kwargs)
    else:
        fn = new.value(tx).realize()
        if isinstance(fn, WrappedDescriptorVariable):
            fn = fn.fn_vt
        obj = fn.call_function(tx, [cls, *args], kwargs)
    obj = obj.realize()
    if not issubclass(obj.python_type(), real):
        return obj
    init = find_in_type(tx, obj, "__init__")
    if obj.python_type() is real:
        guard_special(tx, cls.source, real, "__init__", init)
    if init is None or init.vt is None and init.real is object.__init__ and not args and not kwargs:
        return obj
    if init.vt is None and type(init.real) in SLOT_TYPES:
        from .slots import call_slot

        call_slot(tx, init.real, obj, args, kwargs)
        return obj
    result = bind(tx, init, obj, cls).call_function(tx, args, kwargs)
    if not is_none(result):
        tx.raise_exception(TypeError, f"__init__() should return None, not '{result.python_type().__name__}'")
    return obj


def new_object(
    tx: Any, owner: type, cls: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """What the C function `owner.__new__(cls, *args, **kwargs)` does."""

    from .builtin import CONSTRUCTORS, NEW_STORAGE, call_handler
    from .class_making import make_class
    from .user_object import UserObjectVariable

    cls = cls.realize()
    if not issubclass(cls.python_type(), type):
        name, kind = owner.__name__, cls.python_type().__name__
        tx.raise_exception(TypeError, f"{name}.__new__(X): X is not a type object ({kind})")
    real: type = cls.value  # type: ignore[attr-defined]
    check_making(tx, real, cls)
    if not issubclass(real, owner):
        tx.raise_exception(
            TypeError,
            f"{owner.__name__}.__new__({real.__name__}): {real.__name__} is not a subtype of {owner.__name__}",
        )
    if owner is object:
        check_not_abstract(tx, cls)
        if args or kwargs:
            new, init = find_in_mro(tx, real, "__new__"), find_in_mro(tx, real, "__init__")
            if new is None or new.real is not object.__new__:
                tx.raise_exception(TypeError, "object.__new__() takes exactly one argument (the type to instantiate)")
            if init is None or init.real is object.__init__:
                tx.raise_exception(TypeError, f"{real.__name__}() takes no arguments")
        from .user_object import has_foreign_layout, solid_builtin_base

        if has_foreign_layout(real) or solid_builtin_base(real) is not object:
            tx.graph_break("unknown_object", type=f"{real.__module__}.{real.__qualname__}", operation="__new__")
        return UserObjectVariable(None, None, real, None, cls)
    if issubclass(owner, BaseException):
        from .exception import new_exception

        return new_exception(tx, cls, args)
    if owner is type:
        return make_class(tx, cls, args, kwargs)
    if real in CONSTRUCTORS and real is owner and owner not in NEW_STORAGE:
        return call_handler(tx, CONSTRUCTORS[real], real.__name__, args, kwargs)
    maker = NEW_STORAGE.get(owner)
    if maker is None:
        tx.graph_break("unknown_object", type=f"{owner.__module__}.{owner.__qualname__}", operation="__new__")
    storage = maker(tx, args, kwargs)
    if real is owner:
        return storage
    check_not_abstract(tx, cls)
    return UserObjectVariable(None, None, real, storage, cls)


def check_not_abstract(tx: Any, cls: VariableTracker) -> None:
    real: type = cls.value  # type: ignore[attr-defined]
    abstract = getattr(real, "__abstractmethods__", None) if real.__flags__ & (1 << 20) else None
    if abstract:
        tx.graph_break("unknown_object", type=real.__name__, operation="instantiating an abstract class")


def namespace_names(cls: type) -> tuple[str, ...]:
    """Names in the class's own namespace, in its order."""
    return tuple(type.__dict__["__dict__"].__get__(cls))
