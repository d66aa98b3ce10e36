"""Functions implemented in C: the tables of their models, the tracker, and classmethods in C.

`HANDLERS` maps a real callable to its model `handler(tx, *args, **kwargs)`; `CONSTRUCTORS` does so for exact builtin
classes; `FOLDABLE` lists pure C functions that are simply run on constants.  Anything else breaks the graph.  The rows
are added by the modules of each concept: `reflection`, `iteration`, `numeric_functions`, `constructors`, `super_`, ...

"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

from .attributes import find_in_mro, lookup_special, raise_attribute_error
from .base import VariableTracker, is_argument_error
from .builder import wraps_type
from .constant import fold
from .container import ListVariable, TupleVariable, content
from .dicts import DictVariable
from .sets import SetVariable
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
    from .random_streams import is_stream, wrap_drawing_method

    owner = value.__self__
    if owner is not None and is_stream(owner):
        return wrap_drawing_method(tx, value, source)
    if owner is not None and not isinstance(owner, (types.ModuleType, type)):
        # a bound method of a real object: list.append of an outside list
        from ..source import AttrSource
        from .methods import BuiltinMethodVariable

        if source is not None:
            tx.output.guard(source, "TYPE", type(value))
            tx.output.guard(AttrSource(source, "__name__"), "CONSTANT", value.__name__)
        descriptor = find_in_mro(tx, type(owner), value.__name__)
        if descriptor is None or descriptor.vt is not None:
            tx.graph_break("unknown_builtin", function=value.__qualname__)
        self_vt = tx.wrap(owner, None if source is None else AttrSource(source, "__self__"))
        return BuiltinMethodVariable(self_vt, descriptor.real, source)
    if source is not None:
        tx.output.guard(source, "ID", value)
    return BuiltinVariable(value, source)


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
