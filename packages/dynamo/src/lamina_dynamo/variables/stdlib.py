"""Text (str, repr, format), constant objects, and models of C-backed parts of the standard library."""

from __future__ import annotations

import bisect
import collections
import heapq
import inspect
import logging
import operator
import re
import string
import sys
import threading
import types
import typing
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from .attributes import find_in_type, raise_attribute_error
from .base import VariableTracker
from .builder import wraps_if, wraps_type
from .builtin import FOLDABLE, HANDLERS, handles
from .constant import EnumConstant, fold, wrap_result
from .container import ListVariable, TupleVariable, content
from .deques import DequeVariable
from .dict_kinds import DefaultDictVariable, OrderedDictVariable
from .dict_views import DictViewVariable, MappingProxyVariable
from .dicts import DictVariable
from .sets import FrozenSetVariable, SetVariable
from .slices import SliceVariable
from .text import TextVariable
from .user_object import UserObjectVariable

# -- text --------------------------------------------------------------------------------------------------------------


def _is_builtin_text(tx: Any, vt: VariableTracker, name: str) -> bool:
    """Whether the type's `__repr__` / `__str__` is a C one."""
    found = find_in_type(tx, vt, name)
    return found is None or found.vt is None and not isinstance(found.real, types.FunctionType)


def text_of(tx: Any, vt: VariableTracker) -> str:
    """`str(vt)`."""
    vt = vt.realize()
    if vt.is_python_constant() and type(vt.as_python_constant()) is str:
        return vt.as_python_constant()
    hook = getattr(vt, "text", None)
    found = find_in_type(tx, vt, "__str__")
    if found is not None and (found.vt is not None or isinstance(found.real, types.FunctionType)):
        return _call_text(tx, vt, "__str__")
    if hook is not None:
        return hook(tx)
    storage = getattr(vt, "storage", None)
    if storage is not None and found is not None and found.owner is not object:
        if storage.is_python_constant() and isinstance(storage.as_python_constant(), (str, int, float, bytes)):
            return found.owner.__str__(storage.as_python_constant())
    if found is not None and found.owner is not object and vt.is_python_constant():
        value = vt.as_python_constant()
        if not isinstance(value, type):
            return str(value)  # dates, decimals: text for people, apart from that for programmers
    return repr_of(tx, vt)


def _call_text(tx: Any, vt: VariableTracker, name: str) -> str:
    result = content(vt.call_special(tx, name, []))
    if not result.is_python_constant() or not isinstance(result.as_python_constant(), str):
        if result.is_python_constant():
            tx.raise_exception(TypeError, f"{name} returned non-string (type {result.python_type().__name__})")
        tx.graph_break("not_a_constant", tracker=result.describe())
    return str(result.as_python_constant())


def repr_of(tx: Any, vt: VariableTracker, busy: tuple[VariableTracker, ...] = ()) -> str:
    """`repr(vt)`; objects that print their address break the graph."""
    vt = vt.realize()
    found = find_in_type(tx, vt, "__repr__")
    if found is not None and (found.vt is not None or isinstance(found.real, types.FunctionType)):
        return _call_text(tx, vt, "__repr__")
    inner = content(vt)
    if any(vt is b for b in busy):
        return {list: "[...]", dict: "{...}", tuple: "(...)"}.get(inner.python_type(), "...")
    deeper = (*busy, vt)
    if len(busy) > 100:
        tx.graph_break("recursion", operation="repr")
    name = vt.python_type().__name__
    if isinstance(inner, DequeVariable):
        body = "[" + ", ".join(repr_of(tx, i, deeper) for i in inner.items) + "]"
        return f"{name}({body})" if inner.maxlen is None else f"{name}({body}, maxlen={inner.maxlen})"
    if isinstance(inner, ListVariable):
        return "[" + ", ".join(repr_of(tx, i, deeper) for i in inner.items) + "]"
    if isinstance(inner, TupleVariable):
        if inner.python_type() is not tuple:
            return "torch.Size([" + ", ".join(repr_of(tx, i, deeper) for i in inner.items) + "])"
        parts = [repr_of(tx, i, deeper) for i in inner.items]
        return "(" + ", ".join(parts) + (",)" if len(parts) == 1 else ")")
    if isinstance(inner, DictVariable):
        pairs = [(repr_of(tx, k, deeper), repr_of(tx, v, deeper)) for k, v in inner.pairs(tx)]
        body = "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}"
        if isinstance(inner, OrderedDictVariable):
            if not pairs:
                return f"{name}()"
            if sys.version_info >= (3, 12):
                return f"{name}({body})"
            return f"{name}([" + ", ".join(f"({k}, {v})" for k, v in pairs) + "])"
        if isinstance(inner, DefaultDictVariable):
            factory = inner.default_factory or tx.const(None)
            return f"{name}({repr_of(tx, factory, deeper)}, {body})"
        return body
    if isinstance(inner, (SetVariable, FrozenSetVariable)):
        if not inner.entries:
            return f"{name}()"
        body = "{" + ", ".join(repr_of(tx, i, deeper) for i in inner.unpack(tx)) + "}"
        return body if vt.python_type() is set else f"{name}({body})"
    if isinstance(inner, MappingProxyVariable):
        return f"mappingproxy({repr_of(tx, inner.mapping, deeper)})"
    if isinstance(inner, DictViewVariable):
        body = "[" + ", ".join(repr_of(tx, i, deeper) for i in inner.unpack(tx)) + "]"
        return f"{name}({body})"
    if isinstance(inner, SliceVariable):
        return "slice(" + ", ".join(repr_of(tx, i, deeper) for i in inner.items) + ")"
    method = getattr(vt, "method_repr", None)
    if method is not None:
        return method(tx).as_python_constant()
    if inner.is_python_constant():
        value = inner.as_python_constant()
        if isinstance(value, type):
            from .user_class import ClassVariable, _type_repr

            if isinstance(inner, ClassVariable):
                return _type_repr(tx, inner).as_python_constant()
        text = repr(value)
        if " at 0x" in text:
            tx.graph_break("object_identity", operation="repr", type=name)
        return text
    if hasattr(vt, "made"):
        from .user_class import _type_repr

        return _type_repr(tx, vt).as_python_constant()
    if getattr(vt, "is_symbolic_number", False) or isinstance(vt, TextVariable):
        return repr(vt.specialize(tx).as_python_constant())  # type: ignore[attr-defined]
    tx.graph_break("object_identity", operation="repr", type=name)


def format_value(tx: Any, vt: VariableTracker, spec: str) -> str:
    """`format(vt, spec)`."""
    vt = vt.realize()
    found = find_in_type(tx, vt, "__format__")
    if found is not None and (found.vt is not None or isinstance(found.real, types.FunctionType)):
        result = vt.call_special(tx, "__format__", [tx.const(spec)]).realize()
        if not issubclass(result.python_type(), str):
            kind = result.python_type().__name__
            tx.raise_exception(TypeError, f"__format__ must return a str, not {kind}")
        return str(result.as_python_constant())
    storage = getattr(vt, "storage", None)
    if storage is not None and storage.is_python_constant() and found is not None and found.owner is not object:
        if spec or _is_builtin_text(tx, vt, "__str__"):
            return fold(tx, format, [storage, tx.const(spec)], {}).as_python_constant()
    hook = getattr(vt, "fold_format", None)
    if hook is not None:
        return hook(tx, spec)
    if vt.is_python_constant() and not isinstance(vt, (TupleVariable, ListVariable, DictVariable)):
        return fold(tx, format, [vt, tx.const(spec)], {}).as_python_constant()
    if not spec:
        return text_of(tx, vt)
    if find_in_type(tx, vt, "__format__").owner is object:  # type: ignore[union-attr]
        tx.raise_exception(TypeError, f"unsupported format string passed to {vt.python_type().__name__}.__format__")
    tx.graph_break("not_a_constant", tracker=vt.describe())


class _LazyText:
    """Stands for an object in real formatting: its text is the traced one."""

    def __init__(self, tx: Any, vt: VariableTracker):
        self.tx = tx
        self.vt = vt

    def __str__(self) -> str:
        return text_of(self.tx, self.vt)

    def __repr__(self) -> str:
        return repr_of(self.tx, self.vt)

    def __format__(self, spec: str) -> str:
        return format_value(self.tx, self.vt, spec)

    def __getattr__(self, name: str) -> Any:
        return _for_text(self.tx, self.vt.realize().get_attr(self.tx, name))

    def __getitem__(self, key: Any) -> Any:
        return _for_text(self.tx, self.vt.realize().get_item(self.tx, self.tx.const(key)))


def _for_text(tx: Any, vt: VariableTracker) -> Any:
    vt = vt.realize()
    if vt.is_python_constant() and type(vt.as_python_constant()) in (str, int, float, bool, bytes, complex, type(None)):
        return vt.as_python_constant()
    storage = getattr(vt, "storage", None)
    if storage is not None and storage.is_python_constant() and _is_builtin_text(tx, vt, "__str__"):
        if isinstance(storage.as_python_constant(), (str, int, float)) and _is_builtin_text(tx, vt, "__repr__"):
            return storage.as_python_constant()
    return _LazyText(tx, vt)


def percent_format(tx: Any, template: str, values: VariableTracker) -> VariableTracker:
    """`template % values`."""
    inner = content(values)
    if isinstance(inner, TupleVariable):
        real: Any = tuple(_for_text(tx, v) for v in inner.items)
    elif isinstance(inner, DictVariable):
        real = {k.as_python_constant(): _for_text(tx, v) for k, v in inner.pairs(tx) if k.is_python_constant()}
        if "%(" not in template:
            real = (_LazyText(tx, values),)
    else:
        real = (_for_text(tx, values),)
        if "%(" in template:
            tx.raise_exception(TypeError, "format requires a mapping")
    return _real_call(tx, lambda: template % real)


def str_format(
    tx: Any, template: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker], name: str
) -> VariableTracker:
    """`template.format(*args, **kwargs)` and `format_map`."""
    if name == "format_map":
        mapping = args[0].realize()

        class Mapping:
            def __getitem__(self, key: str) -> Any:
                return _for_text(tx, mapping.get_item(tx, tx.const(key)))

        return _real_call(tx, lambda: template.format_map(Mapping()))  # type: ignore[arg-type]
    reals = [_for_text(tx, a) for a in args]
    real_kwargs = {k: _for_text(tx, v) for k, v in kwargs.items()}
    return _real_call(tx, lambda: template.format(*reals, **real_kwargs))


def _real_call(tx: Any, fn: Callable[[], Any]) -> VariableTracker:
    """Runs a pure real call; its own errors become errors of the traced program."""
    return wrap_result(tx, _checked(tx, fn))


# -- constant objects --------------------------------------------------------------------------------------------------


class ObjectConstantVariable(EnumConstant):
    """An immutable real object (compiled pattern, typing alias, signature, ...): attributes and methods fold."""

    __slots__ = ()

    def hash_key(self, tx: Any) -> Any:
        from .keys import ConstantKey

        return _guarded(tx, lambda: ConstantKey(self.value))

    def truth(self, tx: Any) -> bool | None:
        return bool(self.value)

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "__class__":
            return self.class_vt(tx)
        try:
            value = getattr(self.value, name)
        except AttributeError:
            raise_attribute_error(tx, self, name)
        if callable(value) and getattr(value, "__self__", None) is self.value:
            return ConstantMethodVariable(self, name)
        return wrap_result(tx, value)

    def call_builtin_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        return ConstantMethodVariable(self, name).call_function(tx, args, kwargs)

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        origin = getattr(self.value, "__origin__", None)
        if isinstance(origin, type):
            # list[int](), Foo[int](...): the class is called; generic aliases set __orig_class__ afterwards
            result = tx.wrap(origin, None).call_function(tx, args, kwargs)
            if isinstance(self.value, types.GenericAlias):
                return result
            if isinstance(result.realize(), UserObjectVariable):
                try:
                    result.set_attr(tx, "__orig_class__", self)
                except Exception:
                    tx.graph_break("unknown_call", type="generic alias")
            return result
        return super().call_function(tx, args, kwargs)

    def iterate(self, tx: Any) -> VariableTracker:
        return TupleVariable(self.unpack(tx)).iterate(tx)

    def unpack(self, tx: Any) -> list[VariableTracker]:
        try:
            return [wrap_result(tx, v) for v in self.value]
        except TypeError as e:
            tx.raise_exception(TypeError, str(e))

    def binary_op(self, tx: Any, op: Any, other: VariableTracker, reflected: bool = False) -> Any:
        other = other.realize()
        if not other.is_python_constant():
            return NotImplemented
        pair = [other, self] if reflected else [self, other]
        return fold(tx, op, pair, {})

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_global_alias("object", self.value)


class ConstantMethodVariable(VariableTracker):
    """A method of a constant object; folds."""

    __slots__ = ("name", "obj")

    def __init__(self, obj: ObjectConstantVariable, name: str):
        super().__init__(None)
        self.obj = obj
        self.name = name

    def python_type(self) -> type:
        return type(getattr(self.obj.value, self.name))

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        value = self.obj.value
        if (
            isinstance(value, re.Pattern)
            and self.name in ("sub", "subn")
            and args
            and not content(args[0]).is_python_constant()
        ):
            return pattern_sub(tx, value, self.name, args, kwargs)
        plain = [content(a) for a in args]
        if any(not a.is_python_constant() for a in plain):
            tx.graph_break("not_a_constant", method=self.name)
        if isinstance(value, re.Pattern) and self.name in ("sub", "subn") and callable(plain[0].as_python_constant()):
            return pattern_sub(tx, value, self.name, args, kwargs)
        result = fold(tx, getattr(value, self.name), plain, {k: v.realize() for k, v in kwargs.items()})
        return result

    def children(self) -> Any:
        return (self.obj,)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.obj)
        codegen.load_attr(self.name)


def pattern_sub(
    tx: Any, pattern: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """`pattern.sub(function, string)`: the function is traced for each match."""
    fn = args[0]

    def replace(match: Any) -> str:
        return text_of(tx, fn.call_function(tx, [tx.wrap(match, None)], {}))

    rest = [content(a).as_python_constant() for a in args[1:]]
    real_kwargs = {k: v.as_python_constant() for k, v in kwargs.items()}
    return _real_call(tx, lambda: getattr(pattern, name)(replace, *rest, **real_kwargs))


def _guarded(tx: Any, fn: Callable[[], Any]) -> Any:
    from .constant import raise_real

    try:
        return fn()
    except TypeError as e:
        raise_real(tx, e)


_CONSTANT_OBJECT_TYPES = (
    re.Pattern,
    re.Match,
    types.GenericAlias,
    types.UnionType,
    inspect.Signature,
    inspect.Parameter,
    type(sys.version_info),
    type(sys.flags),
    type(sys.float_info),
    type(inspect.Parameter.POSITIONAL_ONLY),
)


def _is_constant_object(value: Any) -> bool:
    t = type(value)
    if issubclass(t, type):
        return False
    if t in _CONSTANT_OBJECT_TYPES or issubclass(type(value), typing.TypeVar):
        return True
    return t.__module__ == "typing" or t.__module__ in (
        "datetime",
        "decimal",
        "fractions",
        "uuid",
        "pathlib",
        "_struct",
    )


@wraps_if(_is_constant_object, priority=20)
def wrap_constant_object(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return ObjectConstantVariable(value, source)


for _module in (re,):
    for _name in ("compile", "match", "search", "fullmatch", "findall", "split", "escape"):
        FOLDABLE.add(getattr(_module, _name))


def _re_sub(name: str) -> Any:
    def handler(tx: Any, pattern: VariableTracker, repl: VariableTracker, *args: Any, **kwargs: Any) -> VariableTracker:
        flags = kwargs.pop("flags", None)
        compiled = re.compile(content(pattern).as_python_constant(), 0 if flags is None else flags.as_python_constant())
        vt = ObjectConstantVariable(compiled)
        return ConstantMethodVariable(vt, name).call_function(tx, [repl, *args], kwargs)

    return handler


HANDLERS[re.sub] = _re_sub("sub")
HANDLERS[re.subn] = _re_sub("subn")

FOLDABLE.update((str.maketrans, bytes.maketrans, string.capwords))
FOLDABLE.update((inspect.getfullargspec, typing.get_type_hints, typing.get_origin, typing.get_args))


@handles(inspect.isfunction)
def _isfunction(tx: Any, obj: VariableTracker) -> VariableTracker:
    return tx.const(obj.realize().python_type() is types.FunctionType)


@handles(inspect.ismethod)
def _ismethod(tx: Any, obj: VariableTracker) -> VariableTracker:
    return tx.const(obj.realize().python_type() is types.MethodType)


@handles(inspect.isclass)
def _isclass(tx: Any, obj: VariableTracker) -> VariableTracker:
    return tx.const(issubclass(obj.realize().python_type(), type))


@handles(inspect.ismodule)
def _ismodule(tx: Any, obj: VariableTracker) -> VariableTracker:
    return tx.const(issubclass(obj.realize().python_type(), types.ModuleType))


@handles(inspect.isbuiltin)
def _isbuiltin(tx: Any, obj: VariableTracker) -> VariableTracker:
    return tx.const(issubclass(obj.realize().python_type(), types.BuiltinFunctionType))


def _code_flag(flag: int) -> Any:
    def handler(tx: Any, obj: VariableTracker) -> VariableTracker:
        from .function import FunctionVariable
        from .methods import BoundMethodVariable

        obj = obj.realize()
        while isinstance(obj, BoundMethodVariable):
            obj = obj.fn_vt.realize()
        if not isinstance(obj, FunctionVariable):
            return tx.const(False)
        return tx.const(bool(obj.get_code().co_flags & flag))

    return handler


HANDLERS[inspect.iscoroutinefunction] = _code_flag(inspect.CO_COROUTINE)
HANDLERS[inspect.isgeneratorfunction] = _code_flag(inspect.CO_GENERATOR)


@handles(inspect.signature)
def _signature(tx: Any, fn: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    from .function import UserFunctionVariable
    from .methods import BoundMethodVariable
    from .user_class import ClassVariable

    fn = fn.realize()
    if isinstance(fn, BoundMethodVariable) and isinstance(fn.fn_vt.realize(), UserFunctionVariable):
        # the signature of a bound method does not depend on the object
        function = fn.fn_vt.realize().as_python_constant()
        return _real_call(tx, lambda: inspect.signature(types.MethodType(function, object())))
    if isinstance(fn, (UserFunctionVariable, ClassVariable)) and fn.is_python_constant():
        return fold(tx, inspect.signature, [fn], {})
    tx.graph_break("unknown_builtin", function="inspect.signature")


# -- sys, warnings, logging --------------------------------------------------------------------------------------------


@handles(sys.exc_info)
def _exc_info(tx: Any) -> VariableTracker:
    none = tx.const(None)
    exc = current_exception(tx)
    if exc is None:
        return TupleVariable([none, none, none])
    traceback = exc.get_attr(tx, "__traceback__") if getattr(exc, "traceback", None) is not None else none
    return TupleVariable([exc.class_vt(tx), exc, traceback])


def current_exception(tx: Any) -> VariableTracker | None:
    """The exception being handled by the frame or its callers."""
    frame = tx
    while frame is not None:
        handled = getattr(frame, "handled_exception", None)
        if handled is not None:
            return handled
        frame = frame.parent
    return None


if hasattr(sys, "exception"):

    @handles(sys.exception)
    def _sys_exception(tx: Any) -> VariableTracker:
        return current_exception(tx) or tx.const(None)


@handles(sys.intern)
def _intern(tx: Any, text: VariableTracker) -> VariableTracker:
    return text


@handles(warnings.warn)
def _warn(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    # where a warning points to and whether it raises depends on the real stack and filters
    tx.graph_break("file_or_system", function="warnings.warn")


_LOG_METHODS = ("debug", "info", "warning", "error", "critical", "log")


class LoggerVariable(UserObjectVariable):
    """A logger: level questions are answered now, records are emitted after the graph, in order."""

    __slots__ = ()

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        return self.get_attr(tx, name).call_function(tx, args, kwargs)

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name in (*_LOG_METHODS, "isEnabledFor"):
            return LogMethodVariable(self, name)
        return super().get_attr(tx, name)


class LogMethodVariable(VariableTracker):
    """`logger.info` and the like."""

    __slots__ = ("logger", "name")

    def __init__(self, logger: LoggerVariable, name: str):
        super().__init__(None)
        self.logger = logger
        self.name = name

    def python_type(self) -> type:
        return types.MethodType

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        real = self.logger.value
        if self.name == "isEnabledFor":
            return tx.const(real.isEnabledFor(args[0].realize().as_python_constant()))
        level = {
            "debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50,
        }.get(self.name)  # fmt: skip
        if level is None:
            level = args[0].realize().as_python_constant()
            args = args[1:]
        if not real.isEnabledFor(level):
            return tx.const(None)
        if kwargs:
            tx.graph_break("print", function=f"logger.{self.name}", reason="keyword arguments")
        texts: list[VariableTracker] = []
        for arg in args:
            arg = arg.realize()
            if not arg.is_python_constant():
                tx.graph_break("print", function=f"logger.{self.name}", reason="argument known only after the graph")
            texts.append(arg)
        tx.output.side_effects.record_call(real.log, [tx.const(level), *texts], {})
        return tx.const(None)

    def children(self) -> Any:
        return (self.logger,)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.logger)
        codegen.load_attr(self.name)


@wraps_if(lambda v: issubclass(type(v), logging.Logger), priority=5)
def wrap_logger(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return LoggerVariable(value, source)


# -- operator.itemgetter and friends -----------------------------------------------------------------------------------


class GetterVariable(VariableTracker):
    """operator.itemgetter, attrgetter, methodcaller."""

    __slots__ = ("args", "kind", "kwargs")

    def __init__(self, kind: type, args: list[VariableTracker], kwargs: dict[str, VariableTracker], source: Any = None):
        super().__init__(source)
        self.kind = kind
        self.args = args
        self.kwargs = kwargs

    def python_type(self) -> type:
        return self.kind

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if len(args) != 1 or kwargs:
            tx.graph_break("bad_builtin_arguments", function=self.kind.__name__)
        obj = args[0].realize()
        if self.kind is operator.methodcaller:
            return obj.call_method(tx, self.args[0].as_python_constant(), self.args[1:], self.kwargs)
        if self.kind is operator.itemgetter:
            parts = [obj.get_item(tx, key) for key in self.args]
        else:
            parts = []
            for name in self.args:
                value = obj
                for piece in name.as_python_constant().split("."):
                    value = value.realize().get_attr(tx, piece)
                parts.append(value)
        return parts[0] if len(parts) == 1 else TupleVariable(parts)

    def children(self) -> Any:
        return (*self.args, *self.kwargs.values())

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(self.kind)
        for arg in (*self.args, *self.kwargs.values()):
            codegen(arg)
        codegen.call_kw(len(self.args) + len(self.kwargs), tuple(self.kwargs))


def _getter(kind: type) -> Any:
    def construct(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        return GetterVariable(kind, [a.realize() for a in args], kwargs)

    return construct


def _register_getters() -> None:
    from .builtin import CONSTRUCTORS

    for kind in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
        CONSTRUCTORS[kind] = _getter(kind)


_register_getters()


@wraps_type(operator.itemgetter, operator.attrgetter, operator.methodcaller)
def wrap_getter(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    _, args = value.__reduce__()[:2]
    kwargs: dict[str, VariableTracker] = {}
    if not isinstance(args, tuple):
        tx.graph_break("unknown_object", type=type(value).__name__)
    return GetterVariable(type(value), [wrap_result(tx, a) for a in args], kwargs, source)


# -- weak references, threads ------------------------------------------------------------------------------------------


class WeakRefVariable(VariableTracker):
    """weakref.ref: calling it gives the object (which the region keeps alive)."""

    __slots__ = ("target", "value")

    def __init__(self, target: VariableTracker, source: Any = None, value: Any = None):
        super().__init__(source)
        self.target = target
        self.value = value

    def python_type(self) -> type:
        return weakref.ref

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return self.target

    def hash_key(self, tx: Any) -> Any:
        from .keys import IdentityKey

        return IdentityKey(self)

    def children(self) -> Any:
        return (self.target,)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(weakref.ref)
        codegen(self.target)
        codegen.call_function(1)


@wraps_type(weakref.ref)
def wrap_weakref(tx: Any, value: Any, source: Any) -> VariableTracker:
    from ..source import WeakRefCallSource

    if source is not None:
        tx.output.guard(source, "TYPE", weakref.ref)
    target = value()
    inner = tx.wrap(target, None if source is None else WeakRefCallSource(source))
    return WeakRefVariable(inner, source, value)


def _register_weakref() -> None:
    from .builtin import CONSTRUCTORS

    def make(tx: Any, target: VariableTracker, callback: VariableTracker | None = None) -> VariableTracker:
        from .constant import is_none

        if callback is not None and not is_none(callback):
            tx.graph_break("weak_reference", reason="callback")
        if target.source is None and not isinstance(target.realize(), UserObjectVariable):
            tx.graph_break("weak_reference", reason="object made inside")
        return WeakRefVariable(target.realize())

    CONSTRUCTORS[weakref.ref] = make


_register_weakref()


@wraps_type(type(threading.RLock()), type(threading.Lock()))
def wrap_lock(tx: Any, value: Any, source: Any) -> VariableTracker:
    return LockVariable(value, source)


class LockVariable(UserObjectVariable):
    """A lock taken with `with`: traced as free to take; nothing between taking and releasing runs for real."""

    __slots__ = ()
    is_mutable = False

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name in ("__enter__", "__exit__"):
            return LockMethodVariable(self, name)
        tx.graph_break("thread_local", type=type(self.value).__name__, attribute=name)

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_global_alias("lock", self.value)


class LockMethodVariable(VariableTracker):
    """`lock.__enter__` / `lock.__exit__`."""

    __slots__ = ("lock", "name")

    def __init__(self, lock: LockVariable, name: str):
        super().__init__(None)
        self.lock = lock
        self.name = name

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if self.name == "__enter__":
            tx.graph_break("thread_local", type=type(self.lock.value).__name__, attribute="__enter__")
        return tx.const(None)

    def children(self) -> Any:
        return (self.lock,)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.lock)
        codegen.load_attr(self.name)


@wraps_if(lambda v: issubclass(type(v), threading.local), priority=5)
def wrap_thread_local(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return ThreadLocalVariable(value, source)


class ThreadLocalVariable(UserObjectVariable):
    """threading.local: reads are guarded in the calling thread; writes break."""

    __slots__ = ()
    is_mutable = False

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        from ..source import AttrSource

        try:
            value = getattr(self.value, name)
        except AttributeError:
            tx.graph_break("thread_local", attribute=name)
        return tx.wrap(value, None if self.source is None else AttrSource(self.source, name))

    def set_attr(self, tx: Any, name: str, value: VariableTracker) -> None:
        tx.graph_break("thread_local", attribute=name)

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_global_alias("local", self.value)


@wraps_if(lambda v: type(v) is types.SimpleNamespace, priority=5)
def wrap_namespace(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "TYPE", types.SimpleNamespace)
    return NamespaceVariable(value, source)


class NamespaceVariable(UserObjectVariable):
    """types.SimpleNamespace."""

    __slots__ = ()

    def method_init(self, tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        for name, value in kwargs.items():
            self.store_attr(tx, name, value)
        return tx.const(None)

    def method_repr(self, tx: Any) -> VariableTracker:
        parts = [f"{n}={repr_of(tx, self.instance_attr(tx, n, True))}" for n in self.attr_names(tx)]  # type: ignore[arg-type]
        return tx.const(f"namespace({', '.join(parts)})")

    def binary_op(self, tx: Any, op: Any, other: VariableTracker, reflected: bool = False) -> Any:
        other = other.realize()
        if op in (operator.eq, operator.ne) and isinstance(other, NamespaceVariable):
            mine = self.instance_dict(tx)
            return mine.binary_op(tx, op, other.instance_dict(tx))
        return NotImplemented

    def hash_key(self, tx: Any) -> Any:
        tx.raise_exception(TypeError, "unhashable type: 'types.SimpleNamespace'")


def _register_namespace() -> None:
    from .builtin import CONSTRUCTORS

    def make(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        vt = NamespaceVariable(None, None, types.SimpleNamespace)
        vt.method_init(tx, **kwargs)
        return vt

    CONSTRUCTORS[types.SimpleNamespace] = make


_register_namespace()


# -- abc, collections --------------------------------------------------------------------------------------------------


def _count_elements(tx: Any, mapping: VariableTracker, iterable: VariableTracker) -> VariableTracker:
    for item in iterable.realize().unpack(tx):
        storage = content(mapping)
        old = storage.find(tx, item)  # type: ignore[attr-defined]
        new = tx.const(1) if old is None else _plus_one(tx, old)
        mapping.realize().set_item(tx, item, new)
    return tx.const(None)


def _plus_one(tx: Any, vt: VariableTracker) -> VariableTracker:
    from .operators import binary

    return binary(tx, operator.add, vt, tx.const(1))


def _heap_function(fn: Any) -> Any:
    def handler(tx: Any, heap: VariableTracker, *args: VariableTracker) -> VariableTracker:
        from .ordering import SortKey

        storage = content(heap)
        if not isinstance(storage, ListVariable):
            tx.raise_exception(TypeError, f"heap argument must be a list, not {heap.realize().python_type().__name__}")
        keys = [SortKey(tx, item, item) for item in storage.items]
        storage.mutate(tx)
        try:
            result = _checked(tx, lambda: fn(keys, *[SortKey(tx, a, a) for a in args]))
        finally:
            storage.items[:] = [k.vt for k in keys]
        return tx.const(None) if result is None else result.vt

    return handler


def _checked(tx: Any, fn: Callable[[], Any]) -> Any:
    from ..graph_break import GraphBreak, ObservedException
    from .constant import raise_real

    try:
        return fn()
    except (GraphBreak, ObservedException):
        raise
    except Exception as e:
        raise_real(tx, e)


def _bisect_function(insert: bool, right: bool) -> Any:
    """bisect.bisect_left and friends: binary search that compares as the traced program would."""

    def handler(
        tx: Any,
        a: VariableTracker,
        x: VariableTracker,
        lo: VariableTracker | None = None,
        hi: VariableTracker | None = None,
        *,
        key: VariableTracker | None = None,
    ) -> VariableTracker:
        from .constant import is_none
        from .operators import compare, index_value

        def key_of(item: VariableTracker) -> VariableTracker:
            return item if key is None or is_none(key) else key.call_function(tx, [item], {})

        a = a.realize()
        low = 0 if lo is None else index_value(tx, lo)
        if low < 0:
            tx.raise_exception(ValueError, "lo must be non-negative")
        high = a.length(tx).as_python_constant() if hi is None or is_none(hi) else index_value(tx, hi)
        wanted = key_of(x) if insert else x
        while low < high:
            middle = (low + high) // 2
            item = key_of(a.get_item(tx, tx.const(middle)))
            pair = (wanted, item) if right else (item, wanted)
            is_less = tx.truth(compare(tx, operator.lt, *pair))
            if is_less == right:
                high = middle
            else:
                low = middle + 1
        if not insert:
            return tx.const(low)
        a.call_method(tx, "insert", [tx.const(low), x], {})
        return tx.const(None)

    return handler


for _name, _insert, _right in (
    ("bisect_left", False, False),
    ("bisect_right", False, True),
    ("insort_left", True, False),
    ("insort_right", True, True),
):
    HANDLERS[getattr(bisect, _name)] = _bisect_function(_insert, _right)

for _name in ("heapify", "heappush", "heappop", "heapreplace", "heappushpop"):
    HANDLERS[getattr(heapq, _name)] = _heap_function(getattr(heapq, _name))


HANDLERS[collections._count_elements] = _count_elements  # type: ignore[attr-defined]
