"""Classes made inside the region: how they come about while it is translated, and how they are made again for real."""

from __future__ import annotations

import abc
import types
from typing import Any

from .attributes import DELETED, bind, find_in_mro, find_in_type
from .base import VariableTracker
from .cells import CellVariable
from .descriptors import WrappedDescriptorVariable
from .function import FunctionVariable
from .type_methods import class_repr
from .user_class import ClassVariable, class_vt_of


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
