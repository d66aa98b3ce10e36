"""Attribute look-up by Python's rules: type MRO, descriptors, instance dict, `__getattr__` and their setting twins.

The look-up walks the real classes' dicts (read without running anything) below an overlay of class attributes that the
traced program itself stored; classes made inside the region have nothing but the overlay.
"""

from __future__ import annotations

import collections
import types
from typing import Any

from ..bytecode.versions import PY313
from .base import ObservedException, VariableTracker, break_graph

HEAP_TYPE = 1 << 9

#: Marks an attribute, global or cell that the program deleted.
DELETED = object()

FUNCTION_TYPES = (types.FunctionType,)
#: C-implemented methods and slots of a type: `list.append`, `object.__init__`, `dict.fromkeys`.
SLOT_TYPES = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)
_METHOD_CLASSMETHOD = types.ClassMethodDescriptorType


class Found:
    """An attribute found on a type: a real value of an existing class, or a tracker from the overlay."""

    __slots__ = ("name", "owner", "real", "start", "via", "vt")

    def __init__(self, name: str, owner: type, real: Any, vt: VariableTracker | None, via: Any, start: int = 0):
        self.start = start
        self.name = name
        self.owner = owner
        self.real = real
        self.vt = vt
        self.via = via

    @property
    def is_none(self) -> bool:
        """`__hash__ = None` and the like: the protocol is switched off."""
        if self.vt is not None:
            return self.vt.is_python_constant() and self.vt.as_python_constant() is None
        return self.real is None

    def value(self, tx: Any) -> VariableTracker:
        """Tracker of the raw class attribute (no descriptor protocol)."""
        if self.vt is not None:
            return self.vt
        return tx.wrap(self.real, self.source(tx))

    def source(self, tx: Any) -> Any:
        from lamina_dynamo.source import ClassAttrSource, PythonSource

        if self.via is None:
            return None
        if self.via.source is None:
            base = self.base_from_outside(tx)
            return None if base is None else ClassAttrSource(base, self.name)
        if self.start:
            return PythonSource(self.via.source, attribute_from, self.start, self.name)
        return ClassAttrSource(self.via.source, self.name)

    def base_from_outside(self, tx: Any) -> Any:
        """Where a class made inside inherits the attribute from: its first base from outside that has it."""
        via = self.via.real() if type(self.via) is LazyClass else self.via.realize()
        made = getattr(via, "value", None)
        if not isinstance(made, type) or made not in tx.output.side_effects.made_classes:
            return None
        for klass in made.__mro__:
            source = tx.output.builder.source_of(klass)
            if source is not None and (_look_up_class(klass, self.name) or (None,))[0] is self.owner:
                return source
        return None


def attribute_from(cls: type, start: int, name: str) -> Any:
    """The raw attribute of the first class of the MRO, from position `start` on, that has it (a look-up by super)."""
    for klass in (cls.__mro__ or ())[start:]:
        if name in klass.__dict__:
            return klass.__dict__[name]
    raise AttributeError(name)


def class_overlay(tx: Any, cls: type) -> dict[str, Any] | None:
    return tx.output.side_effects.class_attrs.get(cls)


def find_in_mro(
    tx: Any, cls: type, name: str, via: VariableTracker | None = None, after: type | None = None
) -> Found | None:
    """The first class of `cls.__mro__` (behind `after`, for super) that has the attribute; None if there is none."""
    if after is None and not tx.output.side_effects.class_attrs:
        known = tx.output.class_lookups
        key = (cls, name)
        if key in known:
            place = known[key]
        else:
            place = known[key] = _look_up_class(cls, name)
        return None if place is None else Found(name, place[0], place[1], None, via, 0)
    mro = cls.__mro__ or ()  # None while a metaclass' own mro() runs
    start = 0 if after is None else mro.index(after) + 1
    overlays = tx.output.side_effects.class_attrs
    for klass in mro[start:]:
        if overlays and klass in overlays:
            value = overlays[klass].get(name)
            if value is DELETED:
                continue
            if value is not None:
                return Found(name, klass, None, value, via, start)
        raw = type.__dict__["__dict__"].__get__(klass)
        if name in raw:
            return Found(name, klass, raw[name], None, via, start)
    return None


def _look_up_class(cls: type, name: str) -> tuple[type, Any] | None:
    for klass in cls.__mro__ or ():
        attributes = type.__dict__["__dict__"].__get__(klass)
        if name in attributes:
            return klass, attributes[name]
    return None


def find_in_type(tx: Any, vt: VariableTracker, name: str) -> Found | None:
    """Looks `name` up on the type of the object, as the interpreter does for special methods."""
    cls = vt.python_type()
    found = find_in_mro(tx, cls, name, LazyClass(tx, vt))  # type: ignore[arg-type]
    if vt.source is not None and name.startswith("__") and cls.__flags__ & HEAP_TYPE:
        from ..source import TypeSource

        guard_special(tx, TypeSource(vt.source), cls, name, found)
    return found


def guard_no_data_descriptor(tx: Any, obj: VariableTracker, found: Found) -> None:
    """What the class has under the name stands behind the instance's own attribute, as long as it is of this kind."""
    cls = obj.python_type()
    key = (cls, f"behind {found.name}")
    if key in tx.output.special_lookups or _is_of_torch(cls):
        return
    from ..source import ClassAttrSource, TypeSource

    tx.output.special_lookups.add(key)
    tx.output.guard(ClassAttrSource(TypeSource(obj.source), found.name), "TYPE", type(found.real))


def _is_of_torch(cls: type) -> bool:
    module = getattr(cls, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] == "torch"


def guard_plain_store(tx: Any, obj: VariableTracker, name: str, found: Found | None) -> None:
    """The class has no descriptor that would take what is stored."""
    cls = obj.python_type()
    if obj.source is None or not cls.__flags__ & HEAP_TYPE or _is_of_torch(cls) or found is not None and found.vt:
        return
    if found is not None:
        guard_no_data_descriptor(tx, obj, found)
    elif (cls, name) not in tx.output.special_lookups:
        from ..source import TypeSource

        tx.output.special_lookups.add((cls, name))
        tx.output.guard(TypeSource(obj.source), "NO_CLASS_ATTR", name)


def note_presence(vt: VariableTracker) -> None:
    """The program learns that the attribute is there, and need not look at it."""
    from .lazy import LazyVariable

    if isinstance(vt, LazyVariable):
        vt.guard_presence()


def guard_special(tx: Any, source: Any, cls: type, name: str, found: Found | None) -> None:
    """A class of the program has no special method of its own under the name. It may get one later (`__bool__`,
    `__getattribute__`), and what builtin classes offer is not looked at any more then."""
    known = tx.output.special_lookups
    if source is None or (cls, name) in known:
        return
    known.add((cls, name))
    if found is not None and (found.vt is not None or found.owner.__flags__ & HEAP_TYPE):
        return  # guarded where it is used
    if not _is_of_torch(cls):
        tx.output.guard(source, "CLASS_ATTR", (name,) if found is None else (name, found.real))


class LazyClass:
    """Stands for `class_of(vt)` until somebody needs the tracker or its source."""

    __slots__ = ("_real", "tx", "vt")

    def __init__(self, tx: Any, vt: VariableTracker):
        self.tx = tx
        self.vt = vt
        self._real: VariableTracker | None = None

    def real(self) -> VariableTracker:
        if self._real is None:
            self._real = self.vt.class_vt(self.tx)
        return self._real

    @property
    def source(self) -> Any:
        return self.real().source


# -- the descriptor protocol -----------------------------------------------------------------------------------------


def is_data_descriptor(tx: Any, found: Found) -> bool:
    if found.vt is not None:
        vt = found.vt.realize()
        kind = vt.python_type()
        if kind is property:
            return True
    else:
        kind = type(found.real)
        if kind in FUNCTION_TYPES or kind in SLOT_TYPES:
            return False
        if kind is property or kind in (types.GetSetDescriptorType, types.MemberDescriptorType):
            return True
    return find_in_mro(tx, kind, "__set__") is not None or find_in_mro(tx, kind, "__delete__") is not None


def bind(tx: Any, found: Found, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
    """What `type(attr).__get__(attr, obj, cls)` gives; the attribute itself if it is no descriptor."""
    from . import methods

    if found.vt is None:
        real = found.real
        kind = type(real)
        if kind in FUNCTION_TYPES:
            fn = found.value(tx)
            return fn if obj is None else methods.BoundMethodVariable(fn, obj)
        if kind in SLOT_TYPES:
            if obj is None:
                return found.value(tx)
            return methods.BuiltinMethodVariable(obj, real)
        if kind is _METHOD_CLASSMETHOD:
            return methods.BuiltinMethodVariable(cls, real)
        if kind in (types.GetSetDescriptorType, types.MemberDescriptorType):
            if obj is None:
                return found.value(tx)
            return get_c_member(tx, obj, real)
        if kind is types.BuiltinFunctionType:
            return found.value(tx)
        if kind in (int, str, float, bool, type(None), tuple, dict, list, set):
            return found.value(tx)
    return bind_vt(tx, found.value(tx), obj, cls)


def bind_vt(tx: Any, attr: VariableTracker, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
    """Descriptor protocol for an attribute given as tracker."""
    attr = attr.realize()
    getter = getattr(attr, "descriptor_get", None)
    if getter is not None:
        return getter(tx, obj, cls)
    kind = attr.python_type()
    get = find_in_type(tx, attr, "__get__")
    if get is None:
        return attr
    if get.vt is None and type(get.real) in SLOT_TYPES:
        tx.graph_break("descriptor", type=f"{kind.__module__}.{kind.__qualname__}")
    none = tx.const(None)
    return attr.call_special(tx, "__get__", [none if obj is None else obj, cls])


def get_c_member(tx: Any, obj: VariableTracker, descriptor: Any) -> VariableTracker:
    """Reads a slot or a C getter."""
    name = descriptor.__name__
    if type(descriptor) is types.MemberDescriptorType:
        slot = getattr(obj, "get_slot", None)
        if slot is not None and is_python_slot(descriptor):
            value = slot(tx, descriptor)
            if value is None:
                raise_attribute_error(tx, obj, name, type_name=_name_for_slots(obj.python_type()))
            return value
    if name == "__class__":
        return obj.class_vt(tx)
    if name == "__dict__":
        return obj.instance_dict(tx) if hasattr(obj, "instance_dict") else raise_attribute_error(tx, obj, name)
    if name == "__weakref__":
        tx.graph_break("weak_reference", attribute="__weakref__")
    getter = getattr(obj, "get_member", None)
    if getter is not None:
        value = getter(tx, name)
        if value is not None:
            return value
    if obj.is_python_constant():
        from .constant import raise_real, wrap_result

        try:
            return wrap_result(tx, getattr(obj.as_python_constant(), name))
        except AttributeError as e:
            raise_real(tx, e)
    tx.graph_break("unknown_attribute", type=obj.python_type().__name__, attribute=name)


def is_python_slot(descriptor: Any) -> bool:
    """Whether a member descriptor is a `__slots__` entry of a Python class (and not a field of a C struct)."""
    return bool(descriptor.__objclass__.__flags__ & (1 << 9))


def _name_for_slots(kind: type) -> str:
    """How an empty slot calls the class: by its whole name from Python 3.13 on."""
    if not PY313 or kind.__module__ in ("builtins", "__main__"):
        return kind.__name__ if not PY313 else kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def raise_attribute_error(tx: Any, obj: VariableTracker, name: str, type_name: str = "") -> Any:
    from .exception import make_exception

    kind = obj.python_type()
    if isinstance(kind, type) and issubclass(kind, type) and obj.is_class_like:
        text = f"type object '{obj.class_name}' has no attribute '{name}'"
    elif kind is types.ModuleType:
        own = obj.value.__dict__.get("__name__")
        text = f"module has no attribute '{name}'" if own is None else f"module '{own}' has no attribute '{name}'"
    else:
        text = f"'{type_name or kind.__name__}' object has no attribute '{name}'"
    error = make_exception(tx, AttributeError, [tx.const(text)])
    error.set_field("name", tx.const(name))
    error.set_field("obj", obj)
    raise ObservedException(error)


# -- object.__getattribute__ and friends -----------------------------------------------------------------------------


def lookup_special(tx: Any, vt: VariableTracker, name: str) -> VariableTracker | None:
    """The bound special method of the object's type, or None."""
    found = find_in_type(tx, vt, name)
    if found is None or found.is_none:
        return None
    return bind(tx, found, vt, LazyClass(tx, vt).real() if found.vt is not None else vt_class(tx, vt, found))


def vt_class(tx: Any, vt: VariableTracker, found: Found) -> VariableTracker:
    if type(found.real) in FUNCTION_TYPES or type(found.real) in SLOT_TYPES:
        return None  # type: ignore[return-value]  # bind() does not use it
    return vt.class_vt(tx)


def object_getattribute(tx: Any, obj: VariableTracker, name: str) -> VariableTracker:
    """`getattr(obj, name)`: the type's `__getattribute__`, then its `__getattr__` if that raised AttributeError."""
    getattribute = find_in_type(tx, obj, "__getattribute__")
    try:
        if getattribute is None or is_generic_slot(getattribute, "__getattribute__"):
            return generic_getattr(tx, obj, name)
        method = bind(tx, getattribute, obj, None)  # type: ignore[arg-type]
        return method.call_function(tx, [tx.const(name)], {})
    except ObservedException as e:
        if not e.matches(AttributeError):
            raise
        fallback = find_in_type(tx, obj, "__getattr__")
        if fallback is None:
            raise
    method = bind(tx, fallback, obj, None)  # type: ignore[arg-type]
    return method.call_function(tx, [tx.const(name)], {})


def is_generic_slot(found: Found, name: str) -> bool:
    """Whether a special method of attribute access is the C one of that name (and not, say, `dict.__setitem__`)."""
    return found.vt is None and type(found.real) in SLOT_TYPES and found.real.__name__ == name


def generic_getattr(tx: Any, obj: VariableTracker, name: str) -> VariableTracker:
    """What `object.__getattribute__(obj, name)` does."""
    found = find_in_type(tx, obj, name)
    has_dict = hasattr(obj, "instance_attr")
    if found is not None:
        if not has_dict or is_data_descriptor(tx, found):
            return bind(tx, found, obj, _class_for(tx, obj, found))
    if has_dict:
        value = obj.instance_attr(tx, name, found is not None)
        if value is not None:
            if found is not None and found.vt is None and obj.source is not None:
                guard_no_data_descriptor(tx, obj, found)
            return value
    if found is not None:
        return bind(tx, found, obj, _class_for(tx, obj, found))
    if obj.source is not None and name not in getattr(obj, "attrs", ()):
        real = getattr(obj, "real", None)
        if isinstance(real, collections.OrderedDict) and name in real.__dict__:
            from ..source import AttrSource

            return tx.lazy(real.__dict__[name], AttrSource(obj.source, name))
        overlays = tx.output.side_effects.class_attrs
        if any(overlays[k].get(name) is DELETED for k in obj.python_type().__mro__ or () if k in overlays):
            if getattr(real, "__dict__", None) is not None:  # the region deleted that of the class
                tx.output.guard(obj.source, "NO_INSTANCE_ATTR", name)
        else:
            tx.output.guard(obj.source, "NO_ATTR", name)
        if not isinstance(real, type) and find_in_mro(tx, obj.python_type(), "__getattr__") is None:
            from ..source import TypeSource

            tx.output.guard(TypeSource(obj.source), "NO_CLASS_ATTR", "__getattr__")
    raise_attribute_error(tx, obj, name)


def _class_for(tx: Any, obj: VariableTracker, found: Found) -> VariableTracker:
    if found.vt is None and (type(found.real) in FUNCTION_TYPES or type(found.real) in SLOT_TYPES):
        return None  # type: ignore[return-value]
    return obj.class_vt(tx)


def object_setattr(tx: Any, obj: VariableTracker, name: str, value: VariableTracker) -> None:
    """`setattr(obj, name, value)`."""
    setter = find_in_type(tx, obj, "__setattr__")
    if setter is not None and not is_generic_slot(setter, "__setattr__"):
        bind(tx, setter, obj, None).call_function(tx, [tx.const(name), value], {})  # type: ignore[arg-type]
        return
    generic_setattr(tx, obj, name, value)


def _words_without_dict() -> str:
    """What this Python appends to the error of storing on an object without a dict."""
    try:
        setattr(object(), "x", None)  # noqa: B010
    except AttributeError as e:
        return str(e).removeprefix("'object' object has no attribute 'x'")
    return ""


NO_INSTANCE_DICT = _words_without_dict()


def generic_setattr(tx: Any, obj: VariableTracker, name: str, value: VariableTracker) -> None:
    """What `object.__setattr__(obj, name, value)` does."""
    found = find_in_type(tx, obj, name)
    if found is not None and descriptor_set(tx, found, obj, value):
        return
    guard_plain_store(tx, obj, name, found)
    if not hasattr(obj, "store_attr"):
        if found is None and obj.python_type().__dictoffset__:
            tx.graph_break("side_effect", operation=f"attribute {name} stored on a {obj.python_type().__name__}")
        if found is None:
            text = f"'{obj.python_type().__name__}' object has no attribute '{name}'{NO_INSTANCE_DICT}"
        else:
            text = f"'{obj.python_type().__name__}' object attribute '{name}' is read-only"
        tx.raise_exception(AttributeError, text)
    obj.store_attr(tx, name, value, found is not None)


def descriptor_set(tx: Any, found: Found, obj: VariableTracker, value: VariableTracker) -> bool:
    """Runs the attribute's `__set__`, if it has one; says whether it did."""
    if found.vt is None:
        real = found.real
        if type(real) in FUNCTION_TYPES or type(real) in SLOT_TYPES:
            return False
        if type(real) is types.MemberDescriptorType and is_python_slot(real) and hasattr(obj, "set_slot"):
            obj.set_slot(tx, real, value)
            return True
        if type(real) in (types.MemberDescriptorType, types.GetSetDescriptorType):
            set_member = getattr(obj, "set_member", None)
            if set_member is None or not set_member(tx, real.__name__, value):
                tx.graph_break("unknown_attribute", type=obj.python_type().__name__, attribute=real.__name__)
            return True
        kind = type(real)
        if kind is not property and find_in_mro(tx, kind, "__set__") is None:
            return False
    attr = found.value(tx).realize()
    if attr.python_type() is property:
        attr.property_set(tx, obj, value, found.name)
        return True
    if find_in_mro(tx, attr.python_type(), "__set__") is None:
        return False
    attr.call_special(tx, "__set__", [obj, value])
    return True


def object_delattr(tx: Any, obj: VariableTracker, name: str) -> None:
    """`delattr(obj, name)`."""
    deleter = find_in_type(tx, obj, "__delattr__")
    if deleter is not None and not is_generic_slot(deleter, "__delattr__"):
        bind(tx, deleter, obj, None).call_function(tx, [tx.const(name)], {})  # type: ignore[arg-type]
        return
    generic_delattr(tx, obj, name)


def generic_delattr(tx: Any, obj: VariableTracker, name: str) -> None:
    """What `object.__delattr__(obj, name)` does."""
    found = find_in_type(tx, obj, name)
    if found is not None:
        real = found.real if found.vt is None else None
        if type(real) is types.MemberDescriptorType and is_python_slot(real) and hasattr(obj, "set_slot"):
            if obj.get_slot(tx, real) is None:
                tx.raise_exception(AttributeError, name)
            obj.set_slot(tx, real, DELETED)
            return
        if is_data_descriptor(tx, found):
            attr = found.value(tx).realize()
            if attr.python_type() is property:
                attr.property_delete(tx, obj, name)
                return
            if find_in_mro(tx, attr.python_type(), "__delete__") is None:
                tx.raise_exception(AttributeError, "__delete__")
            attr.call_special(tx, "__delete__", [obj])
            return
    if not hasattr(obj, "store_attr") or obj.instance_attr(tx, name, found is not None) is None:
        raise_attribute_error(tx, obj, name)
    obj.store_attr(tx, name, DELETED, found is not None)


def unknown(tx: Any, vt: VariableTracker, name: str) -> Any:
    break_graph("unknown_attribute", type=vt.python_type().__name__, attribute=name)
