"""Immutable objects of the standard library (patterns, matches, typing aliases, signatures, dates, ...): attributes and
methods fold.
"""

from __future__ import annotations

import functools
import inspect
import pathlib
import re
import string
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from .attributes import raise_attribute_error
from .base import VariableTracker
from .builder import wraps_if
from .builtin import FOLDABLE, HANDLERS
from .constant import EnumConstant, fold, wrap_result
from .container import TupleVariable, content
from .formatting import call_real, text_of
from .iterators import ListIterator
from .user_object import UserObjectVariable


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
        if isinstance(value, pathlib.Path) and not hasattr(pathlib.PurePath, self.name):
            tx.graph_break("file_or_system", function=f"Path.{self.name}")
        method = getattr(value, self.name)
        if self.name in ("finditer", "__iter__"):  # a real iterator would be used up by the translation
            fold_into_tuple = functools.partial(_tuple_of, method)
            items = fold(tx, fold_into_tuple, plain, {k: v.realize() for k, v in kwargs.items()})
            return ListIterator(items, kind=type(iter(int, 0)) if self.name == "finditer" else None)
        return fold(tx, method, plain, {k: v.realize() for k, v in kwargs.items()})

    def children(self) -> Any:
        return (self.obj,)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.obj)
        codegen.load_attr(self.name)


def _tuple_of(method: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return tuple(method(*args, **kwargs))


def pattern_sub(
    tx: Any, pattern: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """`pattern.sub(function, string)`: the function is traced for each match."""
    fn = args[0]

    def replace(match: Any) -> str:
        return text_of(tx, fn.call_function(tx, [tx.wrap(match, None)], {}))

    rest = [content(a).as_python_constant() for a in args[1:]]
    real_kwargs = {k: v.as_python_constant() for k, v in kwargs.items()}
    return call_real(tx, lambda: getattr(pattern, name)(replace, *rest, **real_kwargs))


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
