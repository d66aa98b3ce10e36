"""Classes: existing ones, and those made inside the region by a class statement or `type(...)`.

A class made inside gets a real stand-in class with the same bases and an empty body, so that the MRO, `isinstance` and
the object layout are Python's own; its attributes live in the overlay of class attributes.  The stand-in never leaves
the translation: generated code makes the real class.
"""

from __future__ import annotations

import abc
import sys
import types
from typing import Any

from ..graph_break import leave_whole
from .attributes import (
    DELETED,
    SLOT_TYPES,
    bind,
    find_in_mro,
    find_in_type,
    is_data_descriptor,
    is_generic_slot,
    raise_attribute_error,
)
from .base import ObservedException, VariableTracker
from .builder import wraps_if
from .cells import CellVariable
from .constant import is_none
from .descriptors import WrappedDescriptorVariable
from .function import FunctionVariable


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
        if meta_found is not None:
            return bind(tx, meta_found, self, self.class_vt(tx))
        overlays = tx.output.side_effects.class_attrs
        if self.source is not None and not any(name in overlays.get(k, ()) for k in self.value.__mro__ or ()):
            tx.output.guard(self.source, "NO_CLASS_ATTR", name)
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
            found = find_in_mro(tx, meta, "__call__")
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
    from .user_object import UserObjectVariable

    cls = cls.realize()
    if not issubclass(cls.python_type(), type):
        name, kind = owner.__name__, cls.python_type().__name__
        tx.raise_exception(TypeError, f"{name}.__new__(X): X is not a type object ({kind})")
    real: type = cls.value  # type: ignore[attr-defined]
    if find_in_mro(tx, real, "__del__", cls) is not None:
        leave = tx.graph_break if _is_of_a_library(real) else leave_whole
        leave("weak_reference", type=real.__qualname__, reason="its __del__ runs where the last reference goes")
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


def _is_of_a_library(cls: type) -> bool:
    """Installed packages finalise what has no meaning to the program (progress bars, pools)."""
    module = sys.modules.get(cls.__module__)
    return "site-packages" in (getattr(module, "__file__", None) or "")


def check_not_abstract(tx: Any, cls: VariableTracker) -> None:
    real: type = cls.value  # type: ignore[attr-defined]
    abstract = getattr(real, "__abstractmethods__", None) if real.__flags__ & (1 << 20) else None
    if abstract:
        tx.graph_break("unknown_object", type=real.__name__, operation="instantiating an abstract class")


# -- classes made inside -----------------------------------------------------------------------------------------------


class MadeClass:
    """How a class made inside the region is built again."""

    __slots__ = ("bases", "cell", "kwds", "meta", "name", "namespace")

    def __init__(self, name: str, bases: list[VariableTracker], namespace: dict[str, Any], meta: Any):
        self.name = name
        self.bases = bases
        self.namespace = namespace
        self.meta = meta
        self.cell: VariableTracker | None = None

    def reconstruct(self, codegen: Any, vt: ClassVariable) -> None:
        attrs = codegen.output.side_effects.class_attrs[vt.value]
        codegen.push_function(build_real_class)
        if self.meta is None:
            codegen.load_const(None)
        else:
            codegen(self.meta)
        codegen.load_const(self.name)
        for base in self.bases:
            codegen(base)
        codegen.build("BUILD_TUPLE", len(self.bases))
        slots = attrs.get("__slots__")
        first = {"__slots__": slots} if slots is not None else {}
        if "__qualname__" in attrs:
            first["__qualname__"] = attrs["__qualname__"]
        if "__module__" in attrs:
            first["__module__"] = attrs["__module__"]
        codegen.load_const(tuple(first))
        for value in first.values():
            codegen(value)
        codegen.build("BUILD_TUPLE", len(first))
        codegen.call_function(5)
        codegen.remember(vt)
        codegen.output.side_effects.pending_fill.append(vt)

    def fill(self, codegen: Any, vt: ClassVariable) -> None:
        attrs = codegen.output.side_effects.class_attrs[vt.value]
        skip = {"__slots__", "__qualname__", "__module__", "__classcell__"}
        for name, value in attrs.items():
            if name in skip or value is DELETED or type(value) is SlotMember:
                continue
            codegen.push_function(type.__setattr__)
            codegen(vt)
            codegen.load_const(name)
            codegen(value)
            codegen.call_function(3)
            codegen.pop()


class SlotMember:
    """Marks a `__slots__` entry of a class made inside; the descriptor is that of the stand-in class."""


def build_real_class(
    meta: Any, name: str, bases: tuple[Any, ...], keys: tuple[str, ...], values: tuple[Any, ...]
) -> Any:
    """Makes a class of the traced program in generated code; hooks of its bases ran during translation already."""
    kind = meta or type
    for base in bases:
        if issubclass(type(base), kind):
            kind = type(base)
    return new_quiet_class(kind, name, bases, dict(zip(keys, values)))


def new_quiet_class(kind: type, name: str, bases: tuple[Any, ...], namespace: dict[str, Any]) -> Any:
    """`type.__new__` that runs no `__init_subclass__`: a first base of ours swallows the call and is then removed."""
    if not any("__init_subclass__" in k.__dict__ for b in bases for k in b.__mro__ if k is not object):
        return type.__new__(kind, name, bases, namespace)
    layout = object
    for base in bases:
        for klass in base.__mro__ or ():
            if not klass.__flags__ & (1 << 9) and klass is not object:
                layout = klass
                break
    quiet = type.__new__(
        type(bases[0]) if layout is object else kind,
        "quiet",
        (layout,) if layout is not object else (),
        {"__init_subclass__": classmethod(_ignore), "__slots__": ()},
    )
    cls = type.__new__(kind, name, (quiet, *bases), namespace)
    cls.__bases__ = bases
    return cls


def build_class(
    tx: Any,
    func_vt: VariableTracker,
    name_vt: VariableTracker,
    bases: list[VariableTracker],
    kwargs: dict[str, VariableTracker],
) -> VariableTracker:
    """`__build_class__(func, name, *bases, **kwargs)`: a class statement."""
    bases = [b.realize() for b in bases]
    meta_vt = kwargs.pop("metaclass", None) if kwargs else None
    for base in bases:
        if not isinstance(base, ClassVariable):
            tx.graph_break("class_statement", base=base.describe())
    meta = type if meta_vt is None else meta_vt.realize()
    if isinstance(meta, ClassVariable):
        meta = meta.value
    if not isinstance(meta, type):
        tx.graph_break("class_statement", metaclass="not a class")
    for base in bases:
        if issubclass(type(base.value), meta):  # type: ignore[attr-defined]
            meta = type(base.value)  # type: ignore[attr-defined]
    from .container import TupleVariable
    from .dicts import DictVariable

    meta_class = class_vt_of(tx, meta)
    base_tuple = TupleVariable(list(bases))
    namespace: VariableTracker = DictVariable()
    prepare = find_in_mro(tx, meta, "__prepare__", meta_class)
    if prepare is not None and prepare.owner is not type:
        maker = meta_class.get_attr(tx, "__prepare__")
        namespace = maker.call_function(tx, [name_vt, base_tuple], dict(kwargs)).realize()
        if find_in_type(tx, namespace, "__getitem__") is None:
            kind = namespace.python_type().__name__
            tx.raise_exception(TypeError, f"{meta.__name__}.__prepare__() must return a mapping, not {kind}")
    cell = tx.run_class_body(func_vt, namespace).realize()
    cls = meta_class.call_function(tx, [name_vt, base_tuple, namespace], kwargs).realize()
    if isinstance(cell, CellVariable) and isinstance(cls, ClassVariable):
        check_class_cell(tx, cell, cls, name_vt)
    return cls


def check_class_cell(tx: Any, cell: VariableTracker, cls: ClassVariable, name: VariableTracker) -> None:
    """The metaclass must have handed the `__class__` cell on to `type.__new__`."""
    held = tx.output.side_effects.load_cell(cell)
    held = None if held is None else held.realize()
    if held is cls:
        return
    shown = f"{name.realize().as_python_constant()!r} as {class_repr(tx, cls).as_python_constant()}"
    if held is None:
        tx.raise_exception(
            RuntimeError, f"__class__ not set defining {shown}. Was __classcell__ propagated to type.__new__?"
        )
    if isinstance(held, ClassVariable):
        tx.raise_exception(TypeError, f"__class__ set to {class_repr(tx, held).as_python_constant()} defining {shown}")


def make_class(
    tx: Any, meta: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """What `type.__new__(meta, name, bases, namespace, **kwargs)` does."""
    from .container import content
    from .dicts import DictVariable

    if len(args) != 3:
        tx.graph_break("class_statement", reason="arguments of type()")
    name = args[0].realize().as_python_constant()
    bases = [b.realize() for b in args[1].unpack(tx)]
    namespace: dict[str, Any] = {}
    mapping = content(args[2])
    if not isinstance(mapping, DictVariable):
        kind = mapping.python_type().__name__
        tx.raise_exception(TypeError, f"type.__new__() argument 3 must be dict, not {kind}")
    for key, value in mapping.pairs(tx):
        namespace[key.realize().as_python_constant()] = value
    for base in bases:
        if not isinstance(base, ClassVariable):
            tx.graph_break("class_statement", base=base.describe())
    real_meta: type = meta.value  # type: ignore[attr-defined]
    real_bases = tuple(b.value for b in bases)  # type: ignore[attr-defined]
    for base in real_bases:
        if not issubclass(real_meta, type(base)):
            winner = type(base)
            if issubclass(winner, real_meta):
                real_meta = winner
    body: dict[str, Any] = {}
    slots_vt = namespace.get("__slots__")
    if slots_vt is not None:
        slots_vt = slots_vt.realize()
        if slots_vt.is_python_constant() and isinstance(slots_vt.as_python_constant(), str):
            body["__slots__"] = (slots_vt.as_python_constant(),)
        else:
            body["__slots__"] = tuple(s.realize().as_python_constant() for s in slots_vt.unpack(tx))
    if "__qualname__" in namespace:
        body["__qualname__"] = namespace["__qualname__"].realize().as_python_constant()
    if "__module__" in namespace and namespace["__module__"].realize().is_python_constant():
        body["__module__"] = namespace["__module__"].realize().as_python_constant()
    if real_meta.mro is not type.mro:
        tx.graph_break("class_statement", method="mro")  # making the stand-in would run it
    try:
        stand_in = new_quiet_class(real_meta, name, real_bases, body)
    except TypeError as e:
        tx.raise_exception(TypeError, str(e))
    made = MadeClass(name, bases, namespace, meta if real_meta is not type else None)
    vt = ClassVariable(stand_in, None, made)
    effects = tx.output.side_effects
    effects.made_classes[stand_in] = vt
    attrs = {k: v for k, v in namespace.items() if k != "__classcell__"}
    new = attrs.get("__new__")
    if isinstance(new, FunctionVariable):
        attrs["__new__"] = WrappedDescriptorVariable(staticmethod, new)
    for hook in ("__init_subclass__", "__class_getitem__"):
        if isinstance(attrs.get(hook), FunctionVariable):
            attrs[hook] = WrappedDescriptorVariable(classmethod, attrs[hook])
    if "__eq__" in attrs and "__hash__" not in attrs:
        attrs["__hash__"] = tx.const(None)
    if "__doc__" not in attrs:
        attrs["__doc__"] = tx.const(None)
    if "__module__" not in attrs:
        attrs["__module__"] = tx.const(tx.f_globals.get("__name__"))
    effects.class_attrs[stand_in] = attrs
    made.namespace = attrs
    cell = namespace.get("__classcell__")
    if cell is not None:
        if not isinstance(cell.realize(), CellVariable):
            tx.raise_exception(
                TypeError,
                f"type.__new__() argument 4: __classcell__ must be a cell, not {cell.realize().python_type()}",
            )
        effects.store_cell(cell.realize(), vt)
    for key, value in list(attrs.items()):
        value = value.realize() if isinstance(value, VariableTracker) else value
        kind = value.python_type()
        if kind in (types.FunctionType, property, staticmethod, classmethod, int, str, float):
            continue
        if find_in_mro(tx, kind, "__set_name__") is not None:
            value.call_special(tx, "__set_name__", [vt, tx.const(key)])
    found = find_in_mro(tx, stand_in, "__init_subclass__", vt, after=stand_in)
    if found is not None and found.owner is not object:
        bind(tx, found, None, vt).call_function(tx, [], kwargs)
    elif kwargs:
        tx.raise_exception(TypeError, f"{name}.__init_subclass__() takes no keyword arguments")
    if issubclass(real_meta, abc.ABCMeta):
        _compute_abstract(tx, vt, attrs)
    return vt


def _ignore(cls: type, **kwargs: Any) -> None:
    return None


def _compute_abstract(tx: Any, vt: ClassVariable, attrs: dict[str, Any]) -> None:
    names = []
    for key, value in attrs.items():
        if isinstance(value, VariableTracker) and not value.is_python_constant():
            if value.has_attr(tx, "__isabstractmethod__") and tx.truth(value.get_attr(tx, "__isabstractmethod__")):
                names.append(key)
    for base in vt.value.__mro__[1:]:
        for key in getattr(base, "__abstractmethods__", ()):
            found = find_in_mro(tx, vt.value, key, vt)
            if found is not None and key not in names:
                value = found.value(tx)
                if value.has_attr(tx, "__isabstractmethod__") and tx.truth(value.get_attr(tx, "__isabstractmethod__")):
                    names.append(key)
    if names:
        vt.value.__abstractmethods__ = frozenset(names)  # type: ignore[attr-defined]


# -- methods of type ---------------------------------------------------------------------------------------------------


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
