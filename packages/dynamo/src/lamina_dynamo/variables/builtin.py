"""Builtin functions and constructors.

`HANDLERS` maps a real callable to its model `handler(tx, *args, **kwargs)`; `CONSTRUCTORS` does so for exact builtin
classes; `FOLDABLE` lists pure C functions that are simply run on constants.  Anything else breaks the graph.
"""

from __future__ import annotations

import builtins
import collections
import operator
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import torch

from . import iterators
from .attributes import bind, find_in_mro, find_in_type, lookup_special, raise_attribute_error
from .base import ObservedException, VariableTracker, break_graph, is_argument_error
from .builder import wraps_type
from .constant import fold
from .container import DequeVariable, ListVariable, RangeVariable, SliceVariable, TupleVariable, content, sort_trackers
from .dicts import DefaultDictVariable, DictVariable, MappingProxyVariable, OrderedDictVariable
from .function import BoundMethodVariable, CellVariable, PropertyVariable, WrappedDescriptorVariable, is_none
from .operators import (
    BINARY_SPECIAL,
    INPLACE_SPECIAL,
    binary,
    compare,
    index_value,
    inplace,
    is_not_implemented,
    is_same,
    unary,
)
from .sets import FrozenSetVariable, SetVariable
from .user_class import ClassVariable

Handler = Callable[..., VariableTracker]

HANDLERS: dict[Any, Handler] = {}
CONSTRUCTORS: dict[type, Handler] = {}
#: builtin base -> maker(tx, args, kwargs) of the builtin part of a new instance (`list.__new__`, `str.__new__`, ...)
NEW_STORAGE: dict[type, Callable[..., VariableTracker]] = {}
#: pure functions that are run at translation when all arguments are constants
FOLDABLE: set[Any] = set()


def handles(*fns: Any) -> Callable[[Handler], Handler]:
    """Registers the model of builtin functions."""

    def register(handler: Handler) -> Handler:
        for fn in fns:
            HANDLERS[fn] = handler
        return handler

    return register


def constructs(*types_: type) -> Callable[[Handler], Handler]:
    """Registers the model of a builtin constructor."""

    def register(handler: Handler) -> Handler:
        for t in types_:
            CONSTRUCTORS[t] = handler
        return handler

    return register


def call_handler(
    tx: Any, handler: Handler, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """Calls a model; a wrong number of arguments is the program's own error, whose text eager gives."""
    try:
        return handler(tx, *args, **kwargs)
    except TypeError as e:
        if is_argument_error(e):
            tx.graph_break("bad_builtin_arguments", function=name, error=str(e))
        raise


class BuiltinVariable(VariableTracker):
    """A function implemented in C (or a Python function that is modelled as one)."""

    __slots__ = ("fn",)
    has_identity = False

    def __init__(self, fn: Any, source: Any = None):
        super().__init__(source)
        self.fn = fn

    def describe(self) -> str:
        return f"builtin {getattr(self.fn, '__qualname__', self.fn)}"

    def python_type(self) -> type:
        return type(self.fn)

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.fn

    def truth(self, tx: Any) -> bool:
        return True

    def hash_key(self, tx: Any) -> Any:
        from .keys import ConstantKey

        return ConstantKey(self.fn)

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name in ("__name__", "__qualname__", "__module__", "__doc__", "__text_signature__"):
            return tx.const(getattr(self.fn, name))
        if name == "__self__":
            return tx.wrap(self.fn.__self__, None)
        if name == "__call__":
            return self
        if name == "__class__":
            return self.class_vt(tx)
        if isinstance(self.fn, types.FunctionType) and hasattr(self.fn, name):
            return tx.wrap(getattr(self.fn, name), None)
        if not hasattr(self.fn, name):
            raise_attribute_error(tx, self, name)
        return super().get_attr(tx, name)

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        if op not in (operator.eq, operator.ne):
            return super().binary_op(tx, op, other, reflected)
        other = other.realize()
        if not isinstance(other, BuiltinVariable):
            return NotImplemented
        return tx.const((self.fn == other.fn) == (op is operator.eq))

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        fn = self.fn
        handler = HANDLERS.get(fn)
        if handler is not None:
            return call_handler(tx, handler, fn.__name__, args, kwargs)
        if isinstance(fn, types.BuiltinFunctionType) and fn.__name__ == "__new__" and isinstance(fn.__self__, type):
            from .user_class import new_object

            if not args:
                tx.raise_exception(TypeError, f"{fn.__self__.__name__}.__new__(): not enough arguments")
            return new_object(tx, fn.__self__, args[0], args[1:], kwargs)
        if fn in FOLDABLE:
            args = [a.realize() for a in args]
            if all(a.is_python_constant() for a in args) and all(
                v.realize().is_python_constant() for v in kwargs.values()
            ):
                return fold(tx, fn, args, kwargs)
            numbers = fold_with_special(tx, fn, args, kwargs)
            if numbers is not None:
                return numbers
        owner = getattr(fn, "__self__", None)
        if isinstance(owner, type) and isinstance(fn, types.BuiltinFunctionType):
            # classmethod in C, bound already: dict.fromkeys read from outside
            descriptor = find_in_mro(tx, owner, fn.__name__)
            if descriptor is not None and type(descriptor.real) is types.ClassMethodDescriptorType:
                from ..source import AttrSource

                source = None if self.source is None else AttrSource(self.source, "__self__")
                return call_class_method(tx, descriptor.real, tx.wrap(owner, source), args, kwargs)
        from .numpy_arrays import call_numpy, is_taken

        taken = is_taken(fn)
        if taken is not None:
            return call_numpy(tx, taken, args, kwargs)
        tx.graph_break("unknown_builtin", function=f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', fn)}")


def fold_with_special(tx: Any, fn: Any, args: list[VariableTracker], kwargs: Any) -> VariableTracker | None:
    """math functions on symbolic numbers and the like: T's number trackers answer `fold_call`."""
    for arg in args:
        hook = getattr(arg, "fold_call", None)
        if hook is not None:
            return hook(tx, fn, args, kwargs)
    if kwargs:
        return None
    plain: list[VariableTracker] = []
    for arg in args:
        if arg.is_python_constant():
            plain.append(arg)
            continue
        method = None
        if not isinstance(arg, (ListVariable, DictVariable, SetVariable, TupleVariable)):
            method = lookup_special(tx, arg, "__float__") or lookup_special(tx, arg, "__index__")
        if method is None:
            return None
        plain.append(method.call_function(tx, [], {}))
    if all(p.is_python_constant() for p in plain):
        return fold(tx, fn, plain, {})
    return None


@wraps_type(types.BuiltinFunctionType)
def wrap_builtin(tx: Any, value: Any, source: Any) -> VariableTracker:
    owner = value.__self__
    if owner is not None and not isinstance(owner, (types.ModuleType, type)):
        # a bound method of a real object: list.append of an outside list
        from ..source import AttrSource
        from .function import BuiltinMethodVariable

        if source is not None:
            tx.output.guard(source, "TYPE", type(value))
        descriptor = find_in_mro(tx, type(owner), value.__name__)
        if descriptor is None or descriptor.vt is not None:
            tx.graph_break("unknown_builtin", function=value.__qualname__)
        self_vt = tx.wrap(owner, None if source is None else AttrSource(source, "__self__"))
        return BuiltinMethodVariable(self_vt, descriptor.real, source)
    if source is not None:
        tx.output.guard(source, "ID", value)
    return BuiltinVariable(value, source)


# -- looking at objects ------------------------------------------------------------------------------------------------


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
def _callable(tx: Any, obj: VariableTracker) -> VariableTracker:
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
        check = find_in_mro(tx, meta, "__instancecheck__")
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
    check = find_in_mro(tx, meta, "__subclasscheck__")
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
    return issubclass(sub.value, info.value)


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
        return obj.realize().get_attr(tx, key)
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


# -- iteration ---------------------------------------------------------------------------------------------------------


@handles(iter)
def _iter(tx: Any, obj: VariableTracker, sentinel: VariableTracker | None = None) -> VariableTracker:
    if sentinel is not None:
        if find_in_mro(tx, obj.realize().python_type(), "__call__") is None:
            tx.raise_exception(TypeError, "iter(v, w): v must be callable")
        return iterators.CallIterator(obj, sentinel)
    result = obj.realize().iterate(tx).realize()
    if find_in_mro(tx, result.python_type(), "__next__") is None:
        tx.raise_exception(TypeError, f"iter() returned non-iterator of type '{result.python_type().__name__}'")
    return result


@handles(next)
def _next(tx: Any, iterator: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
    iterator = iterator.realize()
    if find_in_mro(tx, iterator.python_type(), "__next__") is None:
        tx.raise_exception(TypeError, f"'{iterator.python_type().__name__}' object is not an iterator")
    try:
        return iterator.next(tx)
    except ObservedException as e:
        if default is not None and e.matches(StopIteration):
            return default
        raise


CONSTRUCTORS[map] = iterators.make_map
CONSTRUCTORS[filter] = iterators.make_filter
CONSTRUCTORS[zip] = iterators.make_zip
CONSTRUCTORS[enumerate] = iterators.make_enumerate
CONSTRUCTORS[reversed] = iterators.make_reversed


def _each(tx: Any, iterable: VariableTracker) -> Any:
    """Elements of an iterable, one at a time."""
    iterator = iterable.realize().iterate(tx)
    while True:
        try:
            item = iterator.next(tx)
        except ObservedException as e:
            if e.matches(StopIteration):
                return
            raise
        yield item


@handles(any)
def _any(tx: Any, iterable: VariableTracker) -> VariableTracker:
    return tx.const(any(tx.truth(item) for item in _each(tx, iterable)))


@handles(all)
def _all(tx: Any, iterable: VariableTracker) -> VariableTracker:
    return tx.const(all(tx.truth(item) for item in _each(tx, iterable)))


@handles(sum)
def _sum(tx: Any, iterable: VariableTracker, start: VariableTracker | None = None) -> VariableTracker:
    total = tx.const(0) if start is None else start
    if start is not None and start.realize().python_type() in (str, bytes, bytearray):
        hint = {str: "strings [use ''.join(seq) instead]", bytes: "bytes [use b''.join(seq) instead]"}
        kind = start.realize().python_type()
        tx.raise_exception(TypeError, f"sum() can't sum {hint.get(kind, 'bytearray [use b.join(seq) instead]')}")
    items = list(_each(tx, iterable))
    if all(i.realize().is_python_constant() for i in items) and total.realize().is_python_constant():
        values = [i.as_python_constant() for i in items]
        if all(type(v) in (int, float, bool) for v in values):
            return fold(tx, sum, [ListVariable(items), total.realize()], {})
    for item in items:
        total = binary(tx, operator.add, total, item)
    return total


def _extreme(
    op: Any, name: str, tx: Any, args: tuple[VariableTracker, ...], key: VariableTracker | None, default: Any
) -> VariableTracker:
    if not args:
        tx.raise_exception(TypeError, f"{name} expected at least 1 argument, got 0")
    if len(args) > 1 and default is not None:
        tx.raise_exception(TypeError, f"Cannot specify a default for {name}() with multiple positional arguments")
    items = list(args) if len(args) > 1 else list(_each(tx, args[0]))
    if key is not None and is_none(key):
        key = None
    if not items:
        if default is not None:
            return default
        tx.raise_exception(ValueError, f"{name}(){_EMPTY_TEXT}")
    best = items[0]
    best_key = best if key is None else key.call_function(tx, [best], {})
    for item in items[1:]:
        item_key = item if key is None else key.call_function(tx, [item], {})
        special = getattr(item_key.realize(), "pick_extreme", None) or getattr(best_key.realize(), "pick_extreme", None)
        if special is not None and key is None:
            picked = special(tx, name, best_key.realize(), item_key.realize())
            if picked is not None:
                best = best_key = picked
                continue
        if tx.truth(compare(tx, op, item_key, best_key)):
            best, best_key = item, item_key
    return best


def _empty_text() -> str:
    try:
        min(())
    except ValueError as e:
        return str(e)[len("min()") :]
    return ""


_EMPTY_TEXT = _empty_text()


@handles(min)
def _min(
    tx: Any,
    *args: VariableTracker,
    key: VariableTracker | None = None,
    default: VariableTracker | None = None,
) -> VariableTracker:
    return _extreme(operator.lt, "min", tx, args, key, default)


@handles(max)
def _max(
    tx: Any,
    *args: VariableTracker,
    key: VariableTracker | None = None,
    default: VariableTracker | None = None,
) -> VariableTracker:
    return _extreme(operator.gt, "max", tx, args, key, default)


@handles(sorted)
def _sorted(
    tx: Any,
    iterable: VariableTracker,
    /,
    *,
    key: VariableTracker | None = None,
    reverse: VariableTracker | None = None,
) -> VariableTracker:
    return ListVariable(sort_trackers(tx, iterable.realize().unpack(tx), key, reverse))


# -- numbers and text --------------------------------------------------------------------------------------------------


@handles(abs)
def _abs(tx: Any, x: VariableTracker) -> VariableTracker:
    return unary(tx, abs, x)


@handles(round)
def _round(tx: Any, number: VariableTracker, ndigits: VariableTracker | None = None) -> VariableTracker:
    number = number.realize()
    args = [] if ndigits is None or is_none(ndigits) else [ndigits.realize()]
    if number.is_python_constant() and type(number.as_python_constant()) in (int, float, bool):
        return fold(tx, round, [number, *args], {})
    hook = getattr(number, "fold_call", None)
    if hook is not None:
        return hook(tx, round, [number, *args], {})
    return number.call_special(tx, "__round__", args, "type {type} doesn't define __round__ method")


@handles(divmod)
def _divmod(tx: Any, a: VariableTracker, b: VariableTracker) -> VariableTracker:
    a, b = a.realize(), b.realize()
    if hasattr(a, "fold_call") or hasattr(b, "fold_call"):
        return TupleVariable([binary(tx, operator.floordiv, a, b), binary(tx, operator.mod, a, b)])
    return binary(tx, divmod, a, b)


@handles(pow)
def _pow(tx: Any, base: VariableTracker, exp: VariableTracker, mod: VariableTracker | None = None) -> VariableTracker:
    if mod is None or is_none(mod):
        return binary(tx, operator.pow, base, exp)
    return fold(tx, pow, [base.realize(), exp.realize(), mod.realize()], {})


for _fn in (chr, ord, bin, oct, hex, ascii):
    FOLDABLE.add(_fn)


@handles(repr)
def _repr(tx: Any, obj: VariableTracker) -> VariableTracker:
    from .stdlib import repr_of

    return tx.const(repr_of(tx, obj))


@handles(format)
def _format(tx: Any, obj: VariableTracker, spec: VariableTracker | None = None) -> VariableTracker:
    from .stdlib import format_value

    return tx.const(format_value(tx, obj, "" if spec is None else spec.realize().as_python_constant()))


@handles(print)
def _print(tx: Any, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    from .stdlib import text_of
    from .text import formatted

    if not set(kwargs) <= {"sep", "end", "flush"} and not is_none(kwargs.get("file", tx.const(1))):
        tx.graph_break("print", reason="file argument")
    texts = [formatted(a.realize(), tx.const("")) or tx.const(text_of(tx, a)) for a in args]
    if not all(v.realize().is_python_constant() for v in kwargs.values()):
        tx.graph_break("print", reason="keyword arguments")
    tx.output.side_effects.record_call(print, texts, kwargs)
    return tx.const(None)


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
def _float(tx: Any, x: VariableTracker | None = None) -> VariableTracker:
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
    from .stdlib import text_of

    if not args:
        if kwargs:
            return fold(tx, str, [], {k: v.realize() for k, v in kwargs.items()})
        return tx.const("")
    if len(args) > 1 or kwargs:
        return fold(tx, str, [content(a) for a in args], {k: v.realize() for k, v in kwargs.items()})
    return tx.const(text_of(tx, args[0]))


@constructs(bytes)
def _bytes(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    if args:
        first = args[0].realize()
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
    if args and not is_none(args[0]) and not _callable(tx, args[0]).as_python_constant():
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
    (float, lambda tx, a, k: _float(tx, *a)),
    (bytes, lambda tx, a, k: _bytes(tx, *a, **k)),
    (complex, lambda tx, a, k: _complex(tx, *a, **k)),
):
    NEW_STORAGE[_base] = _factory  # type: ignore[assignment]


# -- objects and classes -----------------------------------------------------------------------------------------------


@constructs(type)
def _type(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    if len(args) == 1 and not kwargs:
        return args[0].realize().class_vt(tx)
    from .user_class import make_class

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


class SuperVariable(VariableTracker):
    """`super(cls, obj)`."""

    __slots__ = ("cls_vt", "obj_vt")

    def __init__(self, cls_vt: VariableTracker, obj_vt: VariableTracker):
        super().__init__(None)
        self.cls_vt = cls_vt
        self.obj_vt = obj_vt

    def python_type(self) -> type:
        return super

    def truth(self, tx: Any) -> bool:
        return True

    def start(self, tx: Any) -> tuple[type, VariableTracker | None, VariableTracker]:
        """(class whose MRO is searched, object to bind to, tracker of that class)."""
        cls = self.cls_vt.realize().value  # type: ignore[attr-defined]
        obj = self.obj_vt.realize()
        if isinstance(obj, ClassVariable) and cls in (obj.value.__mro__ or ()):
            return obj.value, None, obj
        kind = obj.python_type()
        if cls not in (kind.__mro__ or ()):
            tx.raise_exception(TypeError, "super(type, obj): obj must be an instance or subtype of type")
        return kind, obj, obj.class_vt(tx)

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "__class__":
            return self.class_vt(tx)
        kind, obj, cls_vt = self.start(tx)
        if name == "__thisclass__":
            return self.cls_vt
        if name == "__self__":
            return self.obj_vt
        found = find_in_mro(tx, kind, name, cls_vt, after=self.cls_vt.realize().value)  # type: ignore[attr-defined]
        if found is None:
            tx.raise_exception(AttributeError, f"'super' object has no attribute '{name}'")
        if obj is None:
            fn = found.value(tx).realize() if found.vt is not None else None
            if found.vt is None and isinstance(found.real, (types.FunctionType, types.BuiltinFunctionType)):
                return found.value(tx)
            if fn is not None and fn.python_type() is types.FunctionType:
                return fn
        return bind(tx, found, obj, cls_vt)

    def set_attr(self, tx: Any, name: str, value: VariableTracker) -> None:
        tx.raise_exception(AttributeError, f"'super' object has no attribute '{name}'")

    def children(self) -> Any:
        return (self.cls_vt, self.obj_vt)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(super)
        codegen(self.cls_vt)
        codegen(self.obj_vt)
        codegen.call_function(2)


@constructs(super)
def _super(tx: Any, *args: VariableTracker) -> VariableTracker:
    if not args:
        return zero_argument_super(tx)
    if len(args) > 2:
        tx.raise_exception(TypeError, f"super() expected at most 2 arguments, got {len(args)}")
    if not isinstance(args[0].realize(), ClassVariable):
        tx.raise_exception(
            TypeError, f"super() argument 1 must be a type, not {args[0].realize().python_type().__name__}"
        )
    if len(args) == 1:
        tx.graph_break("unknown_builtin", function="super with one argument")
    vt = SuperVariable(args[0], args[1])
    vt.start(tx)
    return vt


def zero_argument_super(tx: Any) -> VariableTracker:
    """`super()`: the class from the frame's `__class__` cell, the object from its first argument."""
    code = tx.f_code
    if not code.co_argcount:
        tx.raise_exception(RuntimeError, "super(): no arguments")
    name = code.co_varnames[0]
    obj = None
    if name in tx.cells:
        obj = tx.output.side_effects.load_cell(tx.cells[name])
    if obj is None:
        obj = tx.symbolic_locals.get(name)
    if obj is None:
        tx.raise_exception(RuntimeError, "super(): arg[0] deleted")
    cell = tx.cells.get("__class__")
    cls = None if cell is None else tx.output.side_effects.load_cell(cell)
    if cls is None:
        text = "super(): __class__ cell not found" if cell is None else "super(): empty __class__ cell"
        tx.raise_exception(RuntimeError, text)
    vt = SuperVariable(cls, obj)
    vt.start(tx)
    return vt


@handles(builtins.__build_class__)
def _build_class(
    tx: Any, fn: VariableTracker, name: VariableTracker, *bases: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    from .user_class import build_class

    return build_class(tx, fn, name, list(bases), kwargs)


def _breaks(kind: str, *fns: Any) -> None:
    for fn in fns:

        def handler(tx: Any, *args: Any, fn: Any = fn, **kwargs: Any) -> VariableTracker:
            tx.graph_break(kind, function=fn.__name__)

        HANDLERS[fn] = handler


_breaks("frame_access", globals, eval, exec, compile, breakpoint)
_breaks("file_or_system", open, input, __import__)


# -- C classmethods ----------------------------------------------------------------------------------------------------


def call_class_method(
    tx: Any, descriptor: Any, cls: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """dict.fromkeys, int.from_bytes, float.fromhex, object.__init_subclass__, ..."""
    name, owner = descriptor.__name__, descriptor.__objclass__
    if not isinstance(cls, ClassVariable):
        cls = cls.class_vt(tx)
    handler = HANDLERS.get(getattr(owner, name))
    if handler is not None:
        return call_handler(tx, handler, name, args, kwargs)
    handler = HANDLERS.get(descriptor)  # one that wants to know the class
    if handler is not None:
        return call_handler(tx, handler, name, [cls, *args], kwargs)
    if name == "fromkeys" and issubclass(owner, dict):
        if kwargs and owner is dict:
            tx.raise_exception(TypeError, "dict.fromkeys() takes no keyword arguments")
        if not 1 <= len(args) <= 2:
            bound = "at least 1 argument" if not args else "at most 2 arguments"
            tx.raise_exception(TypeError, f"fromkeys expected {bound}, got {len(args)}")
        result = cls.call_function(tx, [], {})
        value = args[1] if len(args) > 1 else kwargs.get("value", tx.const(None))
        for key in args[0].realize().unpack(tx):
            result.set_item(tx, key, value)
        return result
    if name == "__init_subclass__" and owner is object:
        if kwargs or args:
            tx.raise_exception(TypeError, f"{cls.class_name}.__init_subclass__() takes no keyword arguments")  # type: ignore[attr-defined]
        return tx.const(None)
    if name == "__subclasshook__":
        return tx.const(NotImplemented)
    if name == "__class_getitem__":
        return cls.get_item(tx, args[0])
    if name == "__prepare__" and owner is type:
        return DictVariable()
    if owner in (int, float, bytes, str) and cls.is_python_constant():
        fn = getattr(cls.as_python_constant(), name)
        plain = [
            tx.const(bytes(a.as_python_constant())) if isinstance(a, ListVariable) else a
            for a in (content(a) for a in args)
        ]
        return fold(tx, fn, plain, {k: v.realize() for k, v in kwargs.items()})
    tx.graph_break("unsupported_builtin_method", type=owner.__name__, method=name)


# -- the operator module -----------------------------------------------------------------------------------------------


def _operator_rows() -> None:
    for op in BINARY_SPECIAL:
        if op is divmod:
            continue
        HANDLERS[op] = lambda tx, a, b, op=op: binary(tx, op, a, b)
    for op in INPLACE_SPECIAL:
        HANDLERS[op] = lambda tx, a, b, op=op: inplace(tx, op, a, b)
    for op in (operator.neg, operator.pos, operator.invert, operator.not_):
        HANDLERS[op] = lambda tx, a, op=op: unary(tx, op, a)
    HANDLERS[operator.abs] = _abs
    HANDLERS[operator.truth] = lambda tx, a: tx.const(tx.truth(a))
    HANDLERS[operator.is_] = lambda tx, a, b: tx.const(is_same(tx, a, b))
    HANDLERS[operator.is_not] = lambda tx, a, b: tx.const(not is_same(tx, a, b))
    HANDLERS[operator.contains] = lambda tx, a, b: a.realize().contains(tx, b)
    HANDLERS[operator.getitem] = lambda tx, a, b: a.realize().get_item(tx, b)
    HANDLERS[operator.index] = lambda tx, a: (
        a.realize() if hasattr(a.realize(), "fold_call") else tx.const(index_value(tx, a))
    )
    HANDLERS[operator.concat] = lambda tx, a, b: binary(tx, operator.add, a, b)
    HANDLERS[operator.iconcat] = lambda tx, a, b: inplace(tx, operator.iadd, a, b)
    HANDLERS[operator.length_hint] = _length_hint
    HANDLERS[operator.countOf] = lambda tx, a, b: TupleVariable(a.realize().unpack(tx)).method_count(tx, b)
    HANDLERS[operator.indexOf] = lambda tx, a, b: TupleVariable(a.realize().unpack(tx)).method_index(tx, b)
    if hasattr(operator, "call"):
        HANDLERS[operator.call] = lambda tx, fn, *a, **k: fn.call_function(tx, list(a), k)

    def setitem(tx: Any, a: VariableTracker, key: VariableTracker, value: VariableTracker) -> VariableTracker:
        a.realize().set_item(tx, key, value)
        return tx.const(None)

    def delitem(tx: Any, a: VariableTracker, key: VariableTracker) -> VariableTracker:
        a.realize().del_item(tx, key)
        return tx.const(None)

    HANDLERS[operator.setitem] = setitem
    HANDLERS[operator.delitem] = delitem


def _length_hint(tx: Any, obj: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
    obj = obj.realize()
    for name in ("__len__", "__length_hint__"):
        if find_in_type(tx, obj, name) is not None:
            result = obj.call_special(tx, name, [])
            if not is_not_implemented(result):
                return result
    return tx.const(0) if default is None else default


_operator_rows()


def _math_rows() -> None:
    import cmath
    import math
    import struct
    import unicodedata

    for module in (math, cmath):
        for value in vars(module).values():
            if isinstance(value, types.BuiltinFunctionType):
                FOLDABLE.add(value)
    for fn in (struct.pack, struct.unpack, struct.calcsize, unicodedata.normalize, unicodedata.category):
        FOLDABLE.add(fn)
    for name in ("ceil", "floor", "trunc"):
        fn = getattr(math, name)

        def rounding(tx: Any, x: VariableTracker, fn: Any = fn, name: str = name) -> VariableTracker:
            x = x.realize()
            if x.is_python_constant() and type(x.as_python_constant()) in (int, float, bool):
                return fold(tx, fn, [x], {})
            hook = getattr(x, "fold_call", None)
            if hook is not None:
                return hook(tx, fn, [x], {})
            method = lookup_special(tx, x, f"__{name}__")
            if method is not None:
                return method.call_function(tx, [], {})
            return fold(tx, fn, [_float(tx, x)], {})

        HANDLERS[fn] = rounding

    def numbers(fn: Any) -> Handler:
        def handler(tx: Any, iterable: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
            return fold(tx, fn, [TupleVariable(iterable.realize().unpack(tx))], kwargs)

        return handler

    HANDLERS[math.fsum] = numbers(math.fsum)
    HANDLERS[math.dist] = lambda tx, p, q: fold(
        tx, math.dist, [TupleVariable(p.realize().unpack(tx)), TupleVariable(q.realize().unpack(tx))], {}
    )

    def prod(tx: Any, iterable: VariableTracker, *, start: VariableTracker | None = None) -> VariableTracker:
        total = tx.const(1) if start is None else start
        for item in iterable.realize().unpack(tx):
            total = binary(tx, operator.mul, total, item)
        return total

    HANDLERS[math.prod] = prod


_math_rows()
