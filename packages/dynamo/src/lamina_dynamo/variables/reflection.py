"""Builtin functions that look at objects: their class, attributes, length, hash and identity."""

from __future__ import annotations

import abc
import builtins
import operator
import sys
import threading
import types
import weakref
from typing import Any

import torch

from ..source import TypeSource
from .attributes import HEAP_TYPE, bind, find_in_mro, find_in_type, lookup_special, note_presence
from .base import ObservedException, VariableTracker, break_graph
from .builtin import HANDLERS, handles
from .container import ListVariable, TupleVariable, content
from .dicts import DictVariable
from .operators import index_value, is_not_implemented, is_same
from .ordering import sort_trackers
from .user_class import ClassVariable


@handles(len)
def _len(tx: Any, obj: VariableTracker) -> VariableTracker:
    obj = obj.realize()
    result = obj.length(tx).realize()
    if result.is_python_constant():
        value = result.as_python_constant()
        if not isinstance(value, int):
            if find_in_mro(tx, result.python_type(), "__index__") is None:
                tx.raise_exception(TypeError, f"'{type(value).__name__}' object cannot be interpreted as an integer")
        elif value < 0:
            tx.raise_exception(ValueError, "__len__() should return >= 0")
        elif value > (1 << 63) - 1:
            tx.raise_exception(OverflowError, "cannot fit 'int' into an index-sized integer")
        if type(value) is bool:
            return tx.const(int(value))
    elif find_in_mro(tx, result.python_type(), "__index__") is not None and getattr(result, "storage", None) is None:
        if not hasattr(result, "as_index"):
            return tx.const(index_value(tx, result))
    return result


@handles(callable)
def is_callable(tx: Any, obj: VariableTracker) -> VariableTracker:
    return tx.const(find_in_mro(tx, obj.realize().python_type(), "__call__") is not None)


@handles(isinstance)
def _isinstance(tx: Any, obj: VariableTracker, classinfo: VariableTracker) -> VariableTracker:
    return tx.const(is_instance(tx, obj.realize(), classinfo.realize()))


def is_instance(tx: Any, obj: VariableTracker, info: VariableTracker) -> bool:
    """`isinstance(obj, info)` by Python's rules."""
    if isinstance(info, ClassVariable) or issubclass(type(getattr(info, "value", None)), type):
        cls: type = info.value  # type: ignore[attr-defined]
        if obj.python_type() is cls:
            return True
        meta = type(cls)
        check = find_in_type(tx, info, "__instancecheck__")
        if check is None or check.owner is type:
            return plain_isinstance(tx, obj, info)
        if (
            meta.__module__ == "abc"
            or meta.__module__.startswith(("torch.", "typing"))
            or check.owner.__module__
            in (
                "abc",
                "typing",
            )
        ):
            if cls in tx.output.side_effects.made_classes or obj.python_type() in tx.output.side_effects.made_classes:
                if isinstance(info, ClassVariable) and meta.__module__ == "abc":
                    return plain_isinstance(tx, obj, info) or _is_subclass(tx, obj.class_vt(tx), info)
                return plain_isinstance(tx, obj, info)
            if check.owner.__module__ == "typing":
                return _protocol_isinstance(tx, obj, cls)
            if meta.__module__.startswith("torch."):
                return issubclass(obj.python_type(), cls) or _is_marked_tensor(tx, obj, cls)
            guard_registration(tx, obj.source and TypeSource(obj.source), obj.python_type(), cls)
            if isinstance(cls, type) and issubclass(obj.python_type(), cls):
                return True
            return plain_isinstance(tx, obj, info)
        method = bind(tx, check, info, None)  # type: ignore[arg-type]
        return tx.truth(method.call_function(tx, [obj], {}))
    inner = content(info)
    if isinstance(inner, TupleVariable):
        return any(is_instance(tx, obj, item.realize()) for item in inner.items)
    if info.is_python_constant() and isinstance(info.as_python_constant(), types.UnionType):
        return any(is_instance(tx, obj, tx.wrap(t, None)) for t in info.as_python_constant().__args__)
    method2 = lookup_special(tx, info, "__instancecheck__")
    if method2 is not None:
        if info.is_python_constant():
            # typing objects: the text of the error, or the answer, is the real one's
            tx.graph_break("unknown_builtin", function="isinstance with a typing object")
        return tx.truth(method2.call_function(tx, [obj], {}))
    tx.raise_exception(TypeError, "isinstance() arg 2 must be a type, a tuple of types, or a union")


_TENSOR_MARKS = {torch.nn.Parameter: "_is_param", torch.nn.Buffer: "_is_buffer"}


def _is_marked_tensor(tx: Any, obj: VariableTracker, cls: type) -> bool:
    """Parameters and buffers are also known by an attribute of the tensor."""
    mark = _TENSOR_MARKS.get(cls)
    if mark is None or not issubclass(obj.python_type(), torch.Tensor) or not obj.has_attr(tx, mark):
        return False
    return tx.truth(obj.get_attr(tx, mark).realize())


def _protocol_isinstance(tx: Any, obj: VariableTracker, cls: type) -> bool:
    if not getattr(cls, "_is_protocol", False):
        return plain_isinstance(tx, obj, tx.wrap(cls, None))
    if not getattr(cls, "_is_runtime_protocol", False):
        tx.graph_break("unknown_builtin", function="isinstance with a protocol")
    if cls in (obj.python_type().__mro__ or ()):
        return True
    import typing

    names = getattr(cls, "__protocol_attrs__", None) or typing._get_protocol_attrs(cls)  # type: ignore[attr-defined]
    return all(obj.has_attr(tx, n) for n in names)


def plain_isinstance(tx: Any, obj: VariableTracker, cls: VariableTracker) -> bool:
    """`type.__instancecheck__`: by type, then by a `__class__` that says otherwise."""
    real: type = cls.value  # type: ignore[attr-defined]
    kind = obj.python_type()
    if real in (kind.__mro__ or ()):
        return True
    found = find_in_mro(tx, kind, "__class__")
    if found is not None and found.owner is not object:
        other = obj.get_attr(tx, "__class__").realize()
        if isinstance(other, ClassVariable):
            return real in (other.value.__mro__ or ())
    return False


@handles(issubclass)
def _issubclass(tx: Any, sub: VariableTracker, classinfo: VariableTracker) -> VariableTracker:
    return tx.const(_is_subclass(tx, sub.realize(), classinfo.realize()))


def _is_subclass(tx: Any, sub: VariableTracker, info: VariableTracker) -> bool:
    inner = content(info)
    if isinstance(inner, TupleVariable):
        return any(_is_subclass(tx, sub, item.realize()) for item in inner.items)
    if not isinstance(info, ClassVariable):
        if info.is_python_constant() and isinstance(info.as_python_constant(), types.UnionType):
            return any(_is_subclass(tx, sub, tx.wrap(t, None)) for t in info.as_python_constant().__args__)
        tx.raise_exception(TypeError, "issubclass() arg 2 must be a class, a tuple of classes, or a union")
    meta = type(info.value)
    check = find_in_type(tx, info, "__subclasscheck__")
    if check is not None and check.owner is not type and meta.__module__ not in ("abc", "typing"):
        if check.owner.__module__ not in ("abc", "typing"):
            return tx.truth(bind(tx, check, info, None).call_function(tx, [sub], {}))  # type: ignore[arg-type]
    if not isinstance(sub, ClassVariable):
        tx.raise_exception(TypeError, "issubclass() arg 1 must be a class")
    made = tx.output.side_effects.made_classes
    if check is None or check.owner is type:
        return info.value in (sub.value.__mro__ or ())
    if info.value in made or sub.value in made:
        # abc's own check: the hook first, then the MRO (nothing registers a class made inside with C state)
        verdict = info.get_attr(tx, "__subclasshook__").call_function(tx, [sub], {}).realize()
        if not is_not_implemented(verdict):
            return tx.truth(verdict)
        return info.value in (sub.value.__mro__ or ())
    guard_registration(tx, sub.source, sub.value, info.value)
    return issubclass(sub.value, info.value)


class _Registration:
    """For guards: whether a class counts as a subclass of an abstract one is what it was."""

    __slots__ = ("abstract", "answer", "token")

    def __init__(self, cls: type, abstract: type) -> None:
        self.abstract = weakref.ref(abstract)
        self.answer = issubclass(cls, abstract)
        self.token = abc.get_cache_token()

    def __call__(self, cls: type) -> bool:
        token = abc.get_cache_token()
        if token == self.token:
            return True
        abstract = self.abstract()
        if abstract is None or issubclass(cls, abstract) != self.answer:
            return False
        self.token = token
        return True


def guard_registration(tx: Any, source: Any, cls: type, abstract: type) -> None:
    """Classes of the program may be registered with an abstract class later on."""
    known = tx.output.special_lookups
    if source is None or not cls.__flags__ & HEAP_TYPE or (cls, abstract) in known or abstract in (cls.__mro__ or ()):
        return
    known.add((cls, abstract))
    module = getattr(cls, "__module__", None)
    if not isinstance(module, str) or module.partition(".")[0] != "torch":
        tx.output.guard(source, "PYTHON", _Registration(cls, abstract))


def attribute_name(tx: Any, name: VariableTracker, function: str) -> str:
    name = name.realize()
    if issubclass(name.python_type(), str):
        inner = content(name)
        if inner.is_python_constant():
            return str(inner.as_python_constant())
        break_graph("not_a_constant", tracker=name.describe())
    tx.raise_exception(TypeError, f"attribute name must be string, not '{name.python_type().__name__}'")


@handles(getattr)
def _getattr(
    tx: Any, obj: VariableTracker, name: VariableTracker, default: VariableTracker | None = None
) -> VariableTracker:
    key = attribute_name(tx, name, "getattr")
    try:
        found = obj.realize().get_attr(tx, key)
        if default is not None:
            note_presence(found)
        return found
    except ObservedException as e:
        if default is not None and e.matches(AttributeError):
            return default
        raise


@handles(hasattr)
def _hasattr(tx: Any, obj: VariableTracker, name: VariableTracker) -> VariableTracker:
    return tx.const(obj.realize().has_attr(tx, attribute_name(tx, name, "hasattr")))


@handles(setattr)
def _setattr(tx: Any, obj: VariableTracker, name: VariableTracker, value: VariableTracker) -> VariableTracker:
    obj.realize().set_attr(tx, attribute_name(tx, name, "setattr"), value)
    return tx.const(None)


@handles(delattr)
def _delattr(tx: Any, obj: VariableTracker, name: VariableTracker) -> VariableTracker:
    obj.realize().del_attr(tx, attribute_name(tx, name, "delattr"))
    return tx.const(None)


@handles(locals)
def _locals(tx: Any) -> VariableTracker:
    if tx.namespace is not None:
        return tx.namespace
    pairs = [(tx.const(name), vt) for name, vt in tx.bound_locals()]
    fresh = DictVariable.from_pairs(tx, pairs)
    if sys.version_info >= (3, 13):
        return fresh
    if tx.locals_vt is None:
        tx.locals_vt = fresh
    else:  # one dict a frame, brought up to date by each call; it keeps names that are no variables
        names = set(tx.f_code.co_varnames) | set(tx.f_code.co_cellvars) | set(tx.f_code.co_freevars)
        for key, (name, _) in list(tx.locals_vt.entries.items()):
            if name.as_python_constant() in names and key not in fresh.entries:
                del tx.locals_vt.entries[key]
        for key, (name, value) in fresh.entries.items():
            tx.locals_vt.insert(key, name, value)
    return tx.locals_vt


@handles(vars)
def _vars(tx: Any, obj: VariableTracker | None = None) -> VariableTracker:
    if obj is None:
        return _locals(tx)
    try:
        return obj.realize().get_attr(tx, "__dict__")
    except ObservedException as e:
        if e.matches(AttributeError):
            tx.raise_exception(TypeError, "vars() argument must have __dict__ attribute")
        raise


@handles(dir)
def _dir(tx: Any, obj: VariableTracker | None = None) -> VariableTracker:
    if obj is None:
        names = sorted(k.as_python_constant() for k in _locals(tx).unpack(tx))
        return ListVariable([tx.const(n) for n in names])
    result = obj.realize().call_special(tx, "__dir__", [])
    return ListVariable(sort_trackers(tx, result.unpack(tx), None, None))


@handles(id)
def _id(tx: Any, obj: VariableTracker) -> VariableTracker:
    return AddressVariable(obj.realize())


class AddressVariable(VariableTracker):
    """`id(obj)`: may be compared and used as a key; its number breaks the graph."""

    __slots__ = ("target",)
    has_identity = False

    def __init__(self, target: Any):
        super().__init__(None)
        self.target = target

    def python_type(self) -> type:
        return int

    def truth(self, tx: Any) -> bool:
        return True

    def hash_key(self, tx: Any) -> Any:
        from .keys import IdentityKey, TupleKey

        if isinstance(self.target, VariableTracker):
            if not self.target.has_identity and self.target.source is None:
                tx.graph_break("object_identity", function="id")
            return TupleKey(("id", IdentityKey(self.target)))
        return TupleKey((self.target,))

    def binary_op(self, tx: Any, op: Any, other: VariableTracker, reflected: bool = False) -> Any:
        other = other.realize()
        if op in (operator.eq, operator.ne) and isinstance(other, AddressVariable):
            if isinstance(self.target, VariableTracker) and isinstance(other.target, VariableTracker):
                return tx.const(is_same(tx, self.target, other.target) == (op is operator.eq))
            return tx.const((self.target == other.target) == (op is operator.eq))
        tx.graph_break("object_identity", function="id")

    def unary_op(self, tx: Any, op: Any) -> VariableTracker:
        tx.graph_break("object_identity", function="id")

    def children(self) -> Any:
        return (self.target,) if isinstance(self.target, VariableTracker) else ()

    def reconstruct(self, codegen: Any) -> None:
        if isinstance(self.target, VariableTracker):
            codegen.push_function(id)
            codegen(self.target)
            codegen.call_function(1)
        else:
            codegen.push_function(threading.get_ident)
            codegen.call_function(0)


@handles(threading.get_ident)
def _get_ident(tx: Any) -> VariableTracker:
    return AddressVariable("thread")


@handles(hash)
def _hash(tx: Any, obj: VariableTracker) -> VariableTracker:
    from .slots import hash_value

    obj = obj.realize()
    found = find_in_type(tx, obj, "__hash__")
    if found is not None and (found.vt is not None or isinstance(found.real, types.FunctionType)):
        if not found.is_none:
            result = obj.call_special(tx, "__hash__", []).realize()
            if not issubclass(result.python_type(), int):
                tx.raise_exception(TypeError, "__hash__ method should return an integer")
            return tx.const(_as_hash(result.as_python_constant()))
    return hash_value(tx, obj)


def _as_hash(value: Any) -> int:
    """What `hash()` makes of a `__hash__`'s result: taken as it is if it fits into a machine word."""
    if type(value) is int and -sys.maxsize - 1 <= value <= sys.maxsize:
        return -2 if value == -1 else value
    return hash(value)


@handles(builtins.__build_class__)
def _build_class(
    tx: Any, fn: VariableTracker, name: VariableTracker, *bases: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    from .class_making import build_class

    return build_class(tx, fn, name, list(bases), kwargs)


def _breaks(kind: str, *fns: Any) -> None:
    for fn in fns:

        def handler(tx: Any, *args: Any, fn: Any = fn, **kwargs: Any) -> VariableTracker:
            tx.graph_break(kind, function=fn.__name__)

        HANDLERS[fn] = handler


_breaks("frame_access", globals, eval, exec, compile, breakpoint)
_breaks("file_or_system", open, input, __import__)
