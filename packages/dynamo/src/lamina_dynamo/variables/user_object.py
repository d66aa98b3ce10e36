"""Instances of Python classes, from outside or made inside the region."""

from __future__ import annotations

import sys
import types
from typing import Any

from .attributes import DELETED, NO_INSTANCE_DICT, find_in_mro, find_in_type
from .base import VariableTracker
from .builder import wrap_lazy, wraps_if

HEAP_TYPE = 1 << 9


def real_instance_dict(value: Any) -> dict[str, Any] | None:
    """The object's own `__dict__`, read without running code of its class; None if it has none."""
    cls = type(value)
    if not cls.__dictoffset__:
        return None
    for klass in cls.__mro__ or ():
        descriptor = klass.__dict__.get("__dict__")
        if type(descriptor) in (types.GetSetDescriptorType, types.MemberDescriptorType):
            try:
                return descriptor.__get__(value)
            except (AttributeError, TypeError):
                return None
    return None


class UserObjectVariable(VariableTracker):
    """An object with attributes.

    `value` is the real object (None: made inside), `cls` its class (for classes made inside: the stand-in class),
    `storage` the tracker of the builtin part of a list/dict/str/... subclass.
    """

    __slots__ = (
        "attrs", "changed_slots", "cls", "cls_vt", "dict_assigned", "is_watched", "read", "readded", "shared", "slots",
        "storage", "value",
    )  # fmt: skip
    is_mutable = True

    def __init__(
        self,
        value: Any = None,
        source: Any = None,
        cls: type | None = None,
        storage: VariableTracker | None = None,
        cls_vt: VariableTracker | None = None,
    ):
        super().__init__(source)
        self.value = value
        self.cls = type(value) if cls is None else cls
        self.cls_vt = cls_vt
        self.storage = storage
        if storage is not None and hasattr(storage, "owner"):
            storage.owner = self
        #: attributes that the program stored (or DELETED), in order
        self.attrs: dict[str, Any] = {}
        #: names deleted from the real object and stored again (they move to the end of its dict)
        self.readded: set[str] = set()
        #: attributes read from the real object
        self.read: dict[str, VariableTracker] = {}
        #: the tracker of the instance dict, where that is an object of its own to the program (`self.__dict__ = self`,
        #: a dict that several objects share); whether the program assigned it
        self.shared: Any = None
        self.dict_assigned = False
        #: whether the region made a weak reference to it: a name that holds it is not let go early
        self.is_watched = False
        #: __slots__ entries by descriptor
        self.slots: dict[Any, Any] = {}
        self.changed_slots: set[Any] = set()

    def describe(self) -> str:
        where = f" from {self.source.name}" if self.source is not None else ""
        return f"{self.cls.__qualname__} object{where}"

    def python_type(self) -> type:
        return self.cls

    def class_vt(self, tx: Any) -> VariableTracker:
        if self.cls_vt is None:
            self.cls_vt = super().class_vt(tx)
        return self.cls_vt

    def is_python_constant(self) -> bool:
        return False

    @property
    def is_existing(self) -> bool:
        return self.value is not None

    # -- attributes ----------------------------------------------------------------------------------------------

    def has_instance_dict(self) -> bool:
        return bool(self.cls.__dictoffset__)

    def instance_attr(self, tx: Any, name: str, shadowing: bool) -> VariableTracker | None:
        """The entry of the instance dict, or None.  `shadowing`: the type has an attribute of this name, too."""
        if self.shared is not None:
            if self.source is not None and not shadowing:
                self.guard_class_lacks(tx, name)
            return self.shared.find(tx, tx.const(name))
        value = self.attrs.get(name)
        if value is not None:
            return None if value is DELETED else value
        known = self.read.get(name)
        if known is not None:
            return known
        if self.value is None:
            return None
        real = real_instance_dict(self.value)
        if real is None:
            return None
        if name in real:
            source = None
            if self.source is not None:
                from lamina_dynamo.source import InstanceAttrSource

                is_plain = not shadowing and type(self.value).__getattribute__ is object.__getattribute__
                source = InstanceAttrSource(self.source, name, is_plain)
                if not shadowing:
                    self.guard_class_lacks(tx, name)
            vt = self.read[name] = wrap_lazy(tx, real[name], source)
            return vt
        if self.source is not None and shadowing:
            tx.output.guard(self.source, "NO_INSTANCE_ATTR", name)
        return None

    def guard_class_lacks(self, tx: Any, name: str) -> None:
        cls_source = self.class_vt(tx).source
        if cls_source is not None:
            tx.output.guard(cls_source, "NO_CLASS_ATTR", name)

    def store_attr(self, tx: Any, name: str, value: Any, shadowing: bool = False) -> None:
        """Writes the instance dict (value DELETED: deletes)."""
        if not self.has_instance_dict():
            text = f"'{self.cls.__name__}' object has no attribute '{name}'{NO_INSTANCE_DICT}"
            if shadowing:
                text = f"'{self.cls.__name__}' object attribute '{name}' is read-only"
            tx.raise_exception(AttributeError, text)
        if self.shared is not None:
            if value is DELETED:
                self.shared.remove(tx, tx.const(name))
            else:
                self.shared.put(tx, tx.const(name), value)
            return
        tx.output.side_effects.mutation(self)
        if value is not DELETED and self.attrs.get(name) is DELETED:
            self.attrs.pop(name)
            self.readded.add(name)
        if value is DELETED and not self.in_real_dict(name):
            self.attrs.pop(name, None)
            if self.value is None:
                return
        self.attrs[name] = value

    def in_real_dict(self, name: str) -> bool:
        real = None if self.value is None else real_instance_dict(self.value)
        return real is not None and name in real

    def attr_names(self, tx: Any) -> list[str]:
        """Names in the instance dict, in its order."""
        if self.shared is not None:
            return [k.realize().as_python_constant() for k, _ in self.shared.pairs(tx)]
        names: list[str] = []
        real = None if self.value is None else real_instance_dict(self.value)
        if real is not None:
            if self.source is not None:
                from ..source import SelfDictSource

                tx.output.guard(SelfDictSource(self.source), "DICT_KEYS", list(real))
            names = [n for n in real if self.attrs.get(n) is not DELETED and n not in self.readded]
        seen = set(names)
        names += [n for n, v in self.attrs.items() if v is not DELETED and n not in seen]
        return names

    def instance_dict(self, tx: Any) -> VariableTracker:
        from .instance_dict import InstanceDictVariable

        if not self.has_instance_dict():
            from .attributes import raise_attribute_error

            raise_attribute_error(tx, self, "__dict__")
        if self.shared is not None:
            return self.shared if self.shared.owner is None else self.shared.owner
        return InstanceDictVariable(self)

    def get_slot(self, tx: Any, descriptor: Any) -> VariableTracker | None:
        value = self.slots.get(descriptor)
        if value is not None:
            return None if value is DELETED else value
        if self.value is None:
            return None
        try:
            real = descriptor.__get__(self.value)
        except AttributeError:
            if self.source is not None:
                from ..source import PythonSource

                tx.output.guard(PythonSource(self.source, read_slot, descriptor), "ABSENT")
            return None
        source = None
        if self.source is not None:
            from ..source import PythonSource

            source = PythonSource(self.source, read_slot, descriptor)
            tx.output.guard(source, "PYTHON", is_there)
        vt = wrap_lazy(tx, real, source)
        self.slots[descriptor] = vt
        return vt

    def set_slot(self, tx: Any, descriptor: Any, value: Any) -> None:
        tx.output.side_effects.mutation(self)
        self.slots[descriptor] = value
        self.changed_slots.add(descriptor)

    def set_member(self, tx: Any, name: str, value: VariableTracker) -> bool:
        if name == "__dict__":
            self.assign_dict(tx, value.realize())
            return True
        if name == "__class__":
            new = value.realize()
            cls = getattr(new, "value", None)
            if not new.is_class_like or not isinstance(cls, type):
                kind = new.python_type().__name__
                tx.raise_exception(TypeError, f"__class__ must be set to a class, not '{kind}' object")
            if solid_builtin_base(self.cls) is not object or solid_builtin_base(cls) is not object:
                tx.graph_break("side_effect", operation="__class__ assignment")
            if bool(self.cls.__dictoffset__) != bool(cls.__dictoffset__) or has_slots(self.cls) or has_slots(cls):
                tx.graph_break("side_effect", operation="__class__ assignment")
            tx.output.side_effects.mutation(self)
            self.cls, self.cls_vt = cls, new
            return True
        if self.storage is not None and hasattr(self.storage, "set_member"):
            return self.storage.set_member(tx, name, value)
        return False

    def assign_dict(self, tx: Any, new: VariableTracker) -> None:
        """`obj.__dict__ = new`: from now on the two are one."""
        from .dicts import DictVariable

        if not issubclass(new.python_type(), dict):
            kind = new.python_type().__name__
            tx.raise_exception(TypeError, f"__dict__ must be set to a dictionary, not a '{kind}'")
        table = new if isinstance(new, DictVariable) else getattr(new, "storage", None)
        if not isinstance(table, DictVariable):
            tx.graph_break("side_effect", operation="__dict__ assignment")
        tx.output.side_effects.mutation(self)
        self.attrs.clear()
        self.read.clear()
        self.readded.clear()
        self.shared = table
        self.dict_assigned = True

    def get_member(self, tx: Any, name: str) -> VariableTracker | None:
        if self.storage is not None:
            getter = getattr(self.storage, "get_member", None)
            if getter is not None:
                value = getter(tx, name)
                if value is not None:
                    return value
            if self.storage.is_python_constant():
                from .constant import wrap_result

                return wrap_result(tx, getattr(self.storage.as_python_constant(), name))
        return None

    # -- protocols ----------------------------------------------------------------------------------------------

    def truth(self, tx: Any) -> bool | None:
        if self.storage is not None:
            method = find_in_type(tx, self, "__bool__")
            if method is None:
                method = find_in_type(tx, self, "__len__")
            if method is not None and method.vt is None and not isinstance(method.real, types.FunctionType):
                return self.storage.truth(tx)
        return super().truth(tx)

    def hash_key(self, tx: Any) -> Any:
        if self.storage is not None:
            found = find_in_type(tx, self, "__hash__")
            if found is not None and found.vt is None and not found.is_none:
                if not isinstance(found.real, types.FunctionType) and found.owner is not object:
                    return self.storage.hash_key(tx)
        return super().hash_key(tx)

    def as_proxy(self) -> Any:
        if self.storage is not None:
            return self.storage.as_proxy()
        return super().as_proxy()

    # -- leaving the region -------------------------------------------------------------------------------------

    def children(self) -> Any:
        for value in self.attrs.values():
            if isinstance(value, VariableTracker):
                yield value
        for value in self.slots.values():
            if isinstance(value, VariableTracker):
                yield value
        if self.storage is not None:
            yield from self.storage.children()
        if self.shared is not None and self.shared is not self.storage:
            yield self.shared if self.shared.owner is None else self.shared.owner
        if self.cls_vt is not None and self.value is None:
            yield self.cls_vt

    def reconstruct(self, codegen: Any) -> None:
        """A new object: `__new__` of the builtin base, remembered at once; side_effects fills it in."""
        if self.value is not None:  # a real object that translation met or folded
            codegen.load_global_alias("obj", self.value)
            return
        self.reconstruct_empty(codegen)
        codegen.remember(self)
        codegen.output.side_effects.pending_fill.append(self)

    def push_class(self, codegen: Any) -> None:
        if self.cls_vt is not None:
            codegen(self.cls_vt)
        else:
            codegen.load_global_alias("cls", self.cls)

    def reconstruct_empty(self, codegen: Any) -> None:
        base = solid_builtin_base(self.cls)
        codegen.push_function(base.__new__)
        self.push_class(codegen)
        n = 1
        if self.storage is not None and not self.storage.is_mutable:
            push_content = getattr(self.storage, "push_new_arguments", None)
            if push_content is None:
                self.storage.reconstruct(codegen)
                n = 2
            else:
                n = 1 + push_content(codegen)
        codegen.call_function(n)

    def fill(self, codegen: Any) -> None:
        """Emits the stores that bring the real object to the state of this tracker."""
        if self.value is not None and self.cls is not type(self.value):
            codegen.push_function(set_class)
            codegen(self)
            self.push_class(codegen)
            codegen.call_function(2)
            codegen.pop()
        if self.storage is not None and self.storage.is_mutable:
            if self.value is None or codegen.output.side_effects.is_modified(self.storage):
                self.storage.replay_into(codegen, self)
        for descriptor in sorted(self.slots, key=lambda d: d.__name__):
            value = self.slots[descriptor]
            if self.value is not None and descriptor not in self.changed_slots:
                continue
            if value is DELETED:
                if self.value is not None:
                    codegen.push_function(delete_slot)
                    codegen(self)
                    push_slot_descriptor(codegen, descriptor)
                    codegen.call_function(2)
                    codegen.pop()
                continue
            codegen.push_function(write_slot)
            codegen(self)
            push_slot_descriptor(codegen, descriptor)
            codegen(value)
            codegen.call_function(3)
            codegen.pop()
        if self.dict_assigned:
            codegen.push_function(set_instance_dict)
            codegen(self)
            codegen(self.shared if self.shared.owner is None else self.shared.owner)
            codegen.call_function(2)
            codegen.pop()
        for name in list(self.attrs):
            value = self.attrs[name]
            if value is DELETED or name in self.readded:
                codegen.push_function(delete_from_instance)
                codegen(self)
                codegen.load_const(name)
                codegen.call_function(2)
                codegen.pop()
            if value is not DELETED:
                codegen.push_function(store_in_instance)
                codegen(self)
                codegen.load_const(name)
                codegen(value)
                codegen.call_function(3)
                codegen.pop()


def has_slots(cls: type) -> bool:
    """Whether a class or a base has `__slots__` entries of its own."""
    return any(
        type(v) is types.MemberDescriptorType
        for klass in (cls.__mro__ or ())
        if klass.__flags__ & HEAP_TYPE
        for v in klass.__dict__.values()
    )


def set_class(obj: Any, cls: type) -> None:
    """`obj.__class__ = cls` without running `__setattr__`, for generated code."""
    object.__setattr__(obj, "__class__", cls)


def set_instance_dict(obj: Any, table: Any) -> None:
    """`obj.__dict__ = table` without running `__setattr__`, for generated code."""
    object.__setattr__(obj, "__dict__", table)


def is_there(value: Any) -> bool:
    """The guard of what was found: reading it again must succeed."""
    return True


def read_slot(obj: Any, descriptor: Any) -> Any:
    """Value of a `__slots__` entry."""
    return descriptor.__get__(obj)


def push_slot_descriptor(codegen: Any, descriptor: Any) -> None:
    """Pushes the descriptor of a `__slots__` entry; that of a class made inside is the real class' own."""
    made = codegen.output.side_effects.made_classes.get(descriptor.__objclass__)
    if made is None:
        codegen.load_global_alias("slot", descriptor)
        return
    codegen.push_function(own_attribute)
    codegen(made)
    codegen.load_const(descriptor.__name__)
    codegen.call_function(2)


def own_attribute(cls: type, name: str) -> Any:
    """The raw attribute of a class, for generated code."""
    return cls.__dict__[name]


def write_slot(obj: Any, descriptor: Any, value: Any) -> None:
    """Stores a `__slots__` entry without running `__setattr__`, for generated code."""
    descriptor.__set__(obj, value)


def delete_slot(obj: Any, descriptor: Any) -> None:
    """Empties a `__slots__` entry without running `__delattr__`, for generated code. It may be empty: the region
    filled it and emptied it again.
    """
    try:
        descriptor.__delete__(obj)
    except AttributeError:
        pass


def store_in_instance(obj: Any, name: str, value: Any) -> None:
    """Stores into the instance dict; the program's own `__setattr__` ran during translation already."""
    found = getattr(type(obj), name, None)
    if found is not None and hasattr(type(found), "__set__"):
        real = real_instance_dict(obj)
        if real is not None:
            real[name] = value
            return
    object.__setattr__(obj, name, value)


def delete_from_instance(obj: Any, name: str) -> None:
    """Deletes from the instance dict, for generated code."""
    real = real_instance_dict(obj)
    if real is not None:
        real.pop(name, None)


def solid_builtin_base(cls: type) -> type:
    """The builtin class whose C layout instances of `cls` have: object, list, dict, BaseException, ..."""
    for klass in cls.__mro__ or ():
        if not klass.__flags__ & HEAP_TYPE:
            return klass
    return object


def solid_new_base(cls: type) -> type:
    """The class whose C `__new__` makes instances of `cls`."""
    found = None
    for klass in cls.__mro__ or ():
        if "__new__" in klass.__dict__ and isinstance(klass.__dict__["__new__"], types.BuiltinFunctionType):
            found = klass
            break
    return found or object


@wraps_if(lambda v: True, priority=-100)
def wrap_user_object(tx: Any, value: Any, source: Any) -> VariableTracker:
    """The catch-all: any object whose class is written in Python (over object or a known builtin)."""
    cls = type(value)
    if source is not None:
        tx.output.guard(source, "TYPE", cls)
    base = solid_builtin_base(cls)
    if not cls.__flags__ & HEAP_TYPE or base not in STORAGE_WRAPPERS and base is not object:
        return OpaqueObjectVariable(value, source)
    if base is object:
        if has_foreign_layout(cls):
            return OpaqueObjectVariable(value, source)
        vt = UserObjectVariable(value, source)
        tx.output.builder.remember(value, vt)
        find_shared_dict(tx, vt)
        return vt
    vt = UserObjectVariable(value, source)
    # remembered before its contents are wrapped: they may lead back to it
    tx.output.builder.remember(value, vt)
    vt.storage = STORAGE_WRAPPERS[base](tx, value, source)
    if hasattr(vt.storage, "owner"):
        vt.storage.owner = vt
    find_shared_dict(tx, vt)
    return vt


# An instance dict that only its object refers to: by the object, the variable here and the argument of the call.
_OWN_REFERENCES = 3


def find_shared_dict(tx: Any, vt: UserObjectVariable) -> None:
    """Look whether the program can reach the instance dict of an outside object by another way."""
    from ..source import SelfDictSource
    from .dicts import DictVariable

    table = real_instance_dict(vt.value)
    if table is None:
        return
    if table is vt.value:
        if vt.source is not None:
            tx.output.guard((vt.source, SelfDictSource(vt.source)), "SAME_OBJECT")
        vt.shared = vt.storage
    elif sys.getrefcount(table) > _OWN_REFERENCES and vt.source is not None:
        found = tx.wrap(table, SelfDictSource(vt.source)).realize()
        if isinstance(found, DictVariable):
            vt.shared = found
        elif isinstance(getattr(found, "storage", None), DictVariable):
            vt.shared = found.storage


def has_foreign_layout(cls: type) -> bool:
    """Whether a C extension's heap type is among the bases (its state is invisible to attribute tracking)."""
    for klass in cls.__mro__ or ():
        if klass is object or not klass.__flags__ & HEAP_TYPE:
            continue
        new = klass.__dict__.get("__new__")
        if isinstance(new, types.BuiltinFunctionType):
            return True
    return False


#: builtin base -> function(tx, value, source) that makes the tracker of the builtin part of an existing object
STORAGE_WRAPPERS: dict[type, Any] = {}


class OpaqueObjectVariable(UserObjectVariable):
    """An object implemented in C that capture has no model of: it can be passed on, compared by `is`, and given to the
    graph's surroundings; touching it breaks the graph."""

    __slots__ = ()
    is_mutable = False

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "__class__":
            return self.class_vt(tx)
        found = find_in_mro(tx, self.cls, name)
        if found is None:
            real = real_instance_dict(self.value)
            if (real is None or name not in real) and find_in_mro(tx, self.cls, "__getattr__") is None:
                if type(self.cls.__dict__.get("__getattribute__")) is not types.FunctionType and not hasattr(
                    self.value, name
                ):
                    return super().get_attr(tx, name)
        if found is not None and isinstance(found.real, types.FunctionType):
            return super().get_attr(tx, name)
        tx.graph_break("unknown_attribute", type=f"{self.cls.__module__}.{self.cls.__qualname__}", attribute=name)

    def set_attr(self, tx: Any, name: str, value: VariableTracker) -> None:
        tx.graph_break("unknown_attribute", type=f"{self.cls.__module__}.{self.cls.__qualname__}", attribute=name)

    def call_builtin_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        tx.graph_break("unsupported_builtin_method", type=f"{self.cls.__module__}.{self.cls.__qualname__}", method=name)

    def call_function(self, tx: Any, args: Any, kwargs: Any) -> VariableTracker:
        found = find_in_mro(tx, self.cls, "__call__")
        if found is not None and isinstance(found.real, types.FunctionType):
            return super().call_function(tx, args, kwargs)
        if found is None:
            tx.raise_exception(TypeError, f"'{self.cls.__name__}' object is not callable")
        tx.graph_break("unknown_call", type=f"{self.cls.__module__}.{self.cls.__qualname__}")

    def hash_key(self, tx: Any) -> Any:
        from .keys import IdentityKey

        if self.cls.__hash__ is object.__hash__:
            return IdentityKey(self)
        tx.graph_break("unknown_object", type=f"{self.cls.__module__}.{self.cls.__qualname__}", operation="hash")

    def reconstruct(self, codegen: Any) -> None:
        if self.value is None:
            super().reconstruct(codegen)
        else:
            codegen.load_global_alias("object", self.value)
