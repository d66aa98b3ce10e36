"""Sources: how a value can be reached again from the inputs of a frame (where paths start: `roots`).

A source is a path: a root (an argument, a cell, a global, a builtin, a module) and a chain of accesses. The same
path serves three ends:

* ``name``: the expression as the user would write it, for messages;
* ``eval(scope)``: the value now, in plain Python (`Scope` bundles the frame's inputs);
* ``reconstruct(codegen)``: bytecode that pushes the value when the compiled frame runs.

The guard program in C walks the same paths: ``access`` names the C accessor and its operand, ``base`` the value that
it is applied to.
Sources are immutable and hashable; two sources are equal if they spell the same path.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = [
    "AttrSource",
    "CallSource",
    "CellContentsSource",
    "ClassAttrSource",
    "DefaultsSource",
    "DictKeySource",
    "DictValueSource",
    "GradSource",
    "InstanceAttrSource",
    "ItemSource",
    "ModuleMemberSource",
    "PythonSource",
    "Scope",
    "SelfDictSource",
    "Source",
    "StoredItemSource",
    "SuperSource",
    "TensorMetaSource",
    "TypeSource",
    "WeakRefCallSource",
    "item_source",
]


class Scope(NamedTuple):
    """The inputs of a frame: what every source starts from."""

    f_locals: dict[str, Any]
    """Arguments by name (``*args`` and ``**kwargs`` under their names) and the contents of bound free variables."""
    f_globals: dict[str, Any]
    f_builtins: dict[str, Any]
    closure: tuple[types.CellType, ...] = ()
    free_names: tuple[str, ...] = ()


#: class of sources -> the slots that say what its step is
_OWN_SLOTS: dict[type, tuple[str, ...]] = {}


class Source:
    """A path to a value. ``fields`` are what the path step is made of; equality and hash follow from them."""

    __slots__ = ("_hash", "_key", "_name", "base")
    access_op: str = "PYTHON"

    def __init__(self, base: Source | None, *fields: Any) -> None:
        self.base = base
        # Types are part of the key: True, 1 and 1.0 are different dict keys to a guard, if not to a dict.
        self._key = (type(self), base, fields, tuple(map(type, fields)))
        self._hash = hash(self._key)
        self._name: str | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Source) and self._hash == other._hash and self._key == other._key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    @property
    def name(self) -> str:
        """The value as an expression of the user's program."""
        if self._name is None:
            self._name = self.spell()
        return self._name

    def with_base(self, base: Source) -> Source:
        """The same step on another path. Its name stays: both paths lead to one object."""
        clone = self.on_base(base)
        clone._name = self.name
        return clone

    def on_base(self, base: Source) -> Source:
        """The same step on the path to another object."""
        cls = type(self)
        clone = object.__new__(cls)
        own = _OWN_SLOTS.get(cls)
        if own is None:
            slots = [slot for klass in cls.__mro__ for slot in getattr(klass, "__slots__", ())]
            own = _OWN_SLOTS[cls] = tuple(slot for slot in slots if slot not in Source.__slots__)
        for slot in own:
            setattr(clone, slot, getattr(self, slot))
        clone.base = base
        key = self._key
        clone._key = key = (cls, base, key[2], key[3])
        clone._hash = hash(key)
        clone._name = None
        return clone

    def root(self) -> Source:
        """First step of the path."""
        source = self
        while source.base is not None:
            source = source.base
        return source

    # Each kind of source gives the next four.
    def spell(self) -> str:
        raise NotImplementedError

    def step(self, value: Any, scope: Scope) -> Any:
        """The value, given the base's value (None for roots)."""
        raise NotImplementedError

    def operand(self) -> Any:
        """What the C accessor named by ``access_op`` takes besides the base's value."""
        return None

    def emit(self, codegen: Any) -> None:
        """Bytecode of this step alone, the base's value being on the stack."""
        raise NotImplementedError

    def eval(self, scope: Scope) -> Any:
        """The value now. Raises whatever the access raises (KeyError, AttributeError, ...)."""
        base = None if self.base is None else self.base.eval(scope)
        return self.step(base, scope)

    def reconstruct(self, codegen: Any) -> None:
        """Push the value in the compiled frame.

        Needs of ``codegen``: ``push_source(src)`` (another source, possibly from a temp), ``load_local(name)``,
        ``load_deref(name)`` (contents of a
        cell), ``load_closure(name)`` (the cell), ``load_global(name)``, ``load_const(value)`` (any object),
        ``load_attr(name)``, ``binary_subscr()``,
        ``store_temp() -> name`` / ``load_temp(name)``, ``call_function(n)`` (callable below n arguments;
        ``push_function(obj)`` pushes it).
        """
        if self.base is not None:
            codegen.push_source(self.base)
        self.emit(codegen)

    def _emit_through(self, codegen: Any, function: Any, *extra: Any) -> None:
        """``function(value, *extra)`` where the value is already on the stack: swap it under the callable by a temp."""
        temp = codegen.store_temp()
        codegen.push_function(function)
        codegen.load_temp(temp)
        for item in extra:
            codegen.load_const(item)
        codegen.call_function(1 + len(extra))


class CellContentsSource(Source):
    """What a cell holds. ``label`` is the variable's name, for messages."""

    __slots__ = ("label",)
    access_op = "CELL_CONTENTS"

    def __init__(self, base: Source, label: str | None = None) -> None:
        super().__init__(base)
        self.label = label

    def spell(self) -> str:
        assert self.base is not None
        return self.label or f"{self.base.name}.cell_contents"

    def step(self, value: Any, scope: Scope) -> Any:
        return value.cell_contents

    def emit(self, codegen: Any) -> None:
        codegen.load_attr("cell_contents")


class AttrSource(Source):
    """``getattr(base, name)``."""

    __slots__ = ("attr",)
    access_op = "ATTR"

    def __init__(self, base: Source, attr: str) -> None:
        super().__init__(base, attr)
        self.attr = attr

    def spell(self) -> str:
        assert self.base is not None
        return f"{self.base.name}.{self.attr}"

    def step(self, value: Any, scope: Scope) -> Any:
        return getattr(value, self.attr)

    def operand(self) -> Any:
        return self.attr

    def emit(self, codegen: Any) -> None:
        codegen.load_attr(self.attr)


class SelfDictSource(Source):
    """``base.__dict__``, the real one (no user ``__getattribute__``)."""

    __slots__ = ()
    access_op = "SELF_DICT"

    def __init__(self, base: Source) -> None:
        super().__init__(base)

    def spell(self) -> str:
        assert self.base is not None
        return f"{self.base.name}.__dict__"

    def step(self, value: Any, scope: Scope) -> Any:
        return object.__getattribute__(value, "__dict__")

    def emit(self, codegen: Any) -> None:
        codegen.load_attr("__dict__")


class InstanceAttrSource(Source):
    """``base.__dict__[name]``, spelled ``base.name``: an instance attribute, read without descriptors or
    ``__getattr__``. ``is_plain``: ``base.name`` gives it, since neither a descriptor of the class nor its
    ``__getattribute__`` comes first.
    """

    __slots__ = ("attr", "is_plain")
    access_op = "INSTANCE_ATTR"

    def __init__(self, base: Source, attr: str, is_plain: bool = True) -> None:
        super().__init__(base, attr, is_plain)
        self.attr, self.is_plain = attr, is_plain

    def spell(self) -> str:
        assert self.base is not None
        return f"{self.base.name}.{self.attr}"

    def step(self, value: Any, scope: Scope) -> Any:
        return instance_attribute(value, self.attr)

    def operand(self) -> Any:
        return self.attr

    def emit(self, codegen: Any) -> None:
        if self.is_plain:
            codegen.load_attr(self.attr)
        else:
            self._emit_through(codegen, instance_attribute, self.attr)


def instance_attribute(obj: Any, name: str) -> Any:
    """What the instance dict of an object has under a name; KeyError if nothing."""
    return object.__getattribute__(obj, "__dict__")[name]


class ModuleMemberSource(Source):
    """A parameter, buffer or submodule of an ``nn.Module``: ``base._parameters[name]`` and the like, spelled
    ``base.name``.
    """

    __slots__ = ("attr", "kind")
    access_op = "MODULE_MEMBER"

    def __init__(self, base: Source, kind: str, attr: str) -> None:
        """``kind``: ``"_parameters"``, ``"_buffers"`` or ``"_modules"``."""
        super().__init__(base, kind, attr)
        self.kind, self.attr = kind, attr

    def spell(self) -> str:
        assert self.base is not None
        return f"{self.base.name}[{self.attr}]" if self.attr.isdigit() else f"{self.base.name}.{self.attr}"

    def step(self, value: Any, scope: Scope) -> Any:
        return object.__getattribute__(value, "__dict__")[self.kind][self.attr]

    def operand(self) -> Any:
        return (self.kind, self.attr)

    def emit(self, codegen: Any) -> None:
        codegen.load_attr(self.kind)
        codegen.load_const(self.attr)
        codegen.binary_subscr()


class ItemSource(Source):
    """``base[key]`` with a constant key. Exact lists, tuples and all dicts are read directly, other types through
    ``__getitem__``.
    """

    __slots__ = ("key",)
    access_op = "ITEM"

    def __init__(self, base: Source, key: Any) -> None:
        super().__init__(base, key)
        self.key = key

    def spell(self) -> str:
        assert self.base is not None
        return f"{self.base.name}[{self.key!r}]"

    def step(self, value: Any, scope: Scope) -> Any:
        if isinstance(value, dict):
            return dict.__getitem__(value, self.key)
        if isinstance(value, list):
            return list.__getitem__(value, self.key)
        if isinstance(value, tuple):
            return tuple.__getitem__(value, self.key)
        return value[self.key]

    def operand(self) -> Any:
        return self.key

    def emit(self, codegen: Any) -> None:
        codegen.load_const(self.key)
        codegen.binary_subscr()


class StoredItemSource(ItemSource):
    """An item of a container whose class has a ``__getitem__`` of its own, past which the item is read."""

    __slots__ = ()

    def step(self, value: Any, scope: Scope) -> Any:
        return _stored_item(value, self.key)

    def emit(self, codegen: Any) -> None:
        self._emit_through(codegen, _stored_item, self.key)


def _stored_item(container: Any, key: Any) -> Any:
    plain = next(kind for kind in _CONTAINERS if isinstance(container, kind))
    return plain.__getitem__(container, key)


_CONTAINERS: tuple[Any, ...] = (dict, list, tuple, collections.deque)
_PLAIN_READERS = tuple(kind.__getitem__ for kind in _CONTAINERS)


def item_source(container: Any) -> Callable[[Source, Any], ItemSource]:
    """The class of sources for the items of a dict, list, tuple or deque."""
    return ItemSource if type(container).__getitem__ in _PLAIN_READERS else StoredItemSource


def _table_keys(value: dict[Any, Any]) -> list[Any]:
    return list(dict.keys(value))


class DictKeySource(Source):
    """Key number ``index`` of a dict, in order."""

    __slots__ = ("index",)
    access_op = "DICT_KEY"

    def __init__(self, base: Source, index: int) -> None:
        super().__init__(base, index)
        self.index = index

    def spell(self) -> str:
        assert self.base is not None
        return f"list({self.base.name})[{self.index}]"

    def step(self, value: Any, scope: Scope) -> Any:
        return list(dict.keys(value))[self.index]

    def operand(self) -> Any:
        return self.index

    def emit(self, codegen: Any) -> None:
        self._emit_through(codegen, _table_keys)
        codegen.load_const(self.index)
        codegen.binary_subscr()


class DictValueSource(Source):
    """Value under key number ``index`` of a dict: for keys that are no constants."""

    __slots__ = ("index",)
    access_op = "DICT_VALUE"

    def __init__(self, base: Source, index: int) -> None:
        super().__init__(base, index)
        self.index = index

    def spell(self) -> str:
        assert self.base is not None
        return f"list({self.base.name}.values())[{self.index}]"

    def step(self, value: Any, scope: Scope) -> Any:
        return list(dict.values(value))[self.index]

    def operand(self) -> Any:
        return self.index

    def emit(self, codegen: Any) -> None:
        self._emit_through(codegen, _dict_value, self.index)


def _dict_value(mapping: dict[Any, Any], index: int) -> Any:
    return list(dict.values(mapping))[index]


class DefaultsSource(Source):
    """A default of a function: by position in ``__defaults__`` or by name in ``__kwdefaults__``."""

    __slots__ = ("index",)

    def __init__(self, base: Source, index: int | str) -> None:
        super().__init__(base, index)
        self.index = index

    @property
    def access_op(self) -> str:  # type: ignore[override]
        return "KWDEFAULT" if isinstance(self.index, str) else "DEFAULT"

    def _table(self) -> str:
        return "__kwdefaults__" if isinstance(self.index, str) else "__defaults__"

    def spell(self) -> str:
        assert self.base is not None
        return f"{self.base.name}.{self._table()}[{self.index!r}]"

    def step(self, value: Any, scope: Scope) -> Any:
        return getattr(value, self._table())[self.index]

    def operand(self) -> Any:
        return self.index

    def emit(self, codegen: Any) -> None:
        codegen.load_attr(self._table())
        codegen.load_const(self.index)
        codegen.binary_subscr()


class TypeSource(Source):
    """``type(base)``."""

    __slots__ = ()
    access_op = "TYPE"

    def __init__(self, base: Source) -> None:
        super().__init__(base)

    def spell(self) -> str:
        assert self.base is not None
        return f"type({self.base.name})"

    def step(self, value: Any, scope: Scope) -> Any:
        return type(value)

    def emit(self, codegen: Any) -> None:
        self._emit_through(codegen, type)


class ClassAttrSource(Source):
    """The raw attribute that a lookup along the MRO of a class finds (no descriptor is bound). ``base`` evaluates to
    the class.
    """

    __slots__ = ("attr",)
    access_op = "CLASS_ATTR"

    def __init__(self, base: Source, attr: str) -> None:
        super().__init__(base, attr)
        self.attr = attr

    def spell(self) -> str:
        assert self.base is not None
        return f"{self.base.name}.{self.attr}"

    def step(self, value: Any, scope: Scope) -> Any:
        return class_attribute(value, self.attr)

    def operand(self) -> Any:
        return self.attr

    def emit(self, codegen: Any) -> None:
        self._emit_through(codegen, class_attribute, self.attr)


def class_attribute(cls: type, name: str) -> Any:
    """The attribute ``name`` as stored in the first class of the MRO that has it. Raises AttributeError."""
    for klass in type.__dict__["__mro__"].__get__(cls):
        attributes = type.__dict__["__dict__"].__get__(klass)
        if name in attributes:
            return attributes[name]
    raise AttributeError(name)


class TensorMetaSource(Source):
    """One size or stride of a tensor, an int. ``what``: ``"size"``, ``"stride"`` or ``"storage_offset"`` (then
    ``dim`` is 0).
    """

    __slots__ = ("dim", "what")
    access_op = "TENSOR_META"

    def __init__(self, base: Source, what: str, dim: int) -> None:
        super().__init__(base, what, dim)
        self.what, self.dim = what, dim

    def spell(self) -> str:
        assert self.base is not None
        if self.what == "storage_offset":
            return f"{self.base.name}.storage_offset()"
        return f"{self.base.name}.{'shape' if self.what == 'size' else 'stride()'}[{self.dim}]"

    def step(self, value: Any, scope: Scope) -> Any:
        if self.what == "storage_offset":
            return value.storage_offset()
        return value.size(self.dim) if self.what == "size" else value.stride(self.dim)

    def operand(self) -> Any:
        return (self.what, self.dim)

    def emit(self, codegen: Any) -> None:
        if self.what == "storage_offset":
            codegen.load_attr("storage_offset")
            self._emit_through(codegen, _call)
            return
        self._emit_through(codegen, _size if self.what == "size" else _stride, self.dim)


def _call(function: Any) -> Any:
    return function()


def _size(tensor: Any, dim: int) -> int:
    return tensor.size(dim)


def _stride(tensor: Any, dim: int) -> int:
    return tensor.stride(dim)


class GradSource(Source):
    """``base.grad`` of a tensor (may be None)."""

    __slots__ = ()
    access_op = "GRAD"

    def __init__(self, base: Source) -> None:
        super().__init__(base)

    def spell(self) -> str:
        assert self.base is not None
        return f"{self.base.name}.grad"

    def step(self, value: Any, scope: Scope) -> Any:
        return value.grad

    def emit(self, codegen: Any) -> None:
        codegen.load_attr("grad")


class WeakRefCallSource(Source):
    """``base()`` where base is a ``weakref.ref``."""

    __slots__ = ()
    access_op = "WEAKREF"

    def __init__(self, base: Source) -> None:
        super().__init__(base)

    def spell(self) -> str:
        assert self.base is not None
        return f"{self.base.name}()"

    def step(self, value: Any, scope: Scope) -> Any:
        return value()

    def emit(self, codegen: Any) -> None:
        self._emit_through(codegen, _call)


class PythonSource(Source):
    """``function(base, *extra)`` run in Python: for the rare access that has no C accessor. ``function`` must be
    pure and cheap and
    must not run code of the user's program."""

    __slots__ = ("extra", "function")
    access_op = "PYTHON"

    def __init__(self, base: Source, function: Any, *extra: Any) -> None:
        super().__init__(base, function, *extra)
        self.function, self.extra = function, extra

    def spell(self) -> str:
        assert self.base is not None
        arguments = ", ".join([self.base.name, *map(repr, self.extra)])
        return f"{getattr(self.function, '__name__', self.function)}({arguments})"

    def step(self, value: Any, scope: Scope) -> Any:
        return self.function(value, *self.extra)

    def operand(self) -> Any:
        return (self.function, self.extra)

    def emit(self, codegen: Any) -> None:
        self._emit_through(codegen, self.function, *self.extra)


class SuperSource(PythonSource):
    """``super(cls, base).name`` with a known class: the raw attribute after ``cls`` in the MRO of ``type(base)``."""

    __slots__ = ()

    def __init__(self, base: Source, cls: type, attr: str) -> None:
        super().__init__(base, super_attribute, cls, attr)

    def spell(self) -> str:
        assert self.base is not None
        return f"super({self.extra[0].__name__}, {self.base.name}).{self.extra[1]}"


def super_attribute(value: Any, cls: type, name: str) -> Any:
    """The raw attribute that ``super(cls, value)`` finds (no descriptor is bound). Raises AttributeError."""
    mro = type(value).__mro__
    for klass in mro[mro.index(cls) + 1 :]:
        if name in klass.__dict__:
            return klass.__dict__[name]
    raise AttributeError(name)


class CallSource(PythonSource):
    """``base()`` for a callable known to be pure."""

    __slots__ = ()

    def __init__(self, base: Source) -> None:
        super().__init__(base, _call)

    def spell(self) -> str:
        assert self.base is not None
        return f"{self.base.name}()"
