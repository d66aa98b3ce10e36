"""Text of objects: `str`, `repr`, `format`, `%` and `str.format`."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from .attributes import find_in_type
from .base import VariableTracker
from .constant import fold, wrap_result
from .container import ListVariable, TupleVariable, content
from .deques import DequeVariable
from .dict_kinds import DefaultDictVariable, OrderedDictVariable
from .dict_views import DictViewVariable, MappingProxyVariable
from .dicts import DictVariable
from .sets import FrozenSetVariable, SetVariable
from .slices import SliceVariable
from .text import TextVariable


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
            from .type_methods import class_repr
            from .user_class import ClassVariable

            if isinstance(inner, ClassVariable):
                return class_repr(tx, inner).as_python_constant()
        text = repr(value)
        if " at 0x" in text:
            tx.graph_break("object_identity", operation="repr", type=name)
        return text
    if hasattr(vt, "made"):
        from .type_methods import class_repr

        return class_repr(tx, vt).as_python_constant()
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
    return call_real(tx, lambda: template % real)


def str_format(
    tx: Any, template: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker], name: str
) -> VariableTracker:
    """`template.format(*args, **kwargs)` and `format_map`."""
    if name == "format_map":
        mapping = args[0].realize()

        class Mapping:
            def __getitem__(self, key: str) -> Any:
                return _for_text(tx, mapping.get_item(tx, tx.const(key)))

        return call_real(tx, lambda: template.format_map(Mapping()))  # type: ignore[arg-type]
    reals = [_for_text(tx, a) for a in args]
    real_kwargs = {k: _for_text(tx, v) for k, v in kwargs.items()}
    return call_real(tx, lambda: template.format(*reals, **real_kwargs))


def call_real(tx: Any, fn: Callable[[], Any]) -> VariableTracker:
    """Runs a pure real call; its own errors become errors of the traced program."""
    return wrap_result(tx, run_checked(tx, fn))


def run_checked(tx: Any, fn: Callable[[], Any]) -> Any:
    from ..graph_break import GraphBreak, ObservedException
    from .constant import raise_real

    try:
        return fn()
    except (GraphBreak, ObservedException):
        raise
    except Exception as e:
        raise_real(tx, e)
