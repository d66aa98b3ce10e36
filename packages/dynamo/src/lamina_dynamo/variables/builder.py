"""From a real object to its tracker.

One table decides: exact type first, then predicates in order of priority.  Each row is a wrap function
`wrap(tx, value, source) -> VariableTracker`, which records the guards that the tracker relies on.

    @wraps_type(list)
    def wrap_list(tx, value, source): ...

    @wraps_if(lambda v: issubclass(type(v), torch.nn.Module), priority=10)
    def wrap_module(tx, value, source): ...

The builder of a translation remembers every object by identity, so two paths to one object give one tracker (and a
guard that the two sources are the same object).
"""

from __future__ import annotations

import importlib
import types
import weakref
from collections.abc import Callable
from typing import Any

from .. import _torch as private
from .. import marks
from .base import VariableTracker
from .constant import CONSTANT_TYPES, ConstantVariable

WrapFunction = Callable[[Any, Any, Any], VariableTracker]

_BY_TYPE: dict[type, WrapFunction] = {}
_BY_PREDICATE: list[tuple[int, int, Callable[[Any], bool], WrapFunction]] = []

#: Modules that add rows when they are imported.  Order does not matter: rows carry priorities.
ROW_MODULES = (
    "container",
    "slices",
    "deques",
    "subclass_storage",
    "dicts",
    "dict_kinds",
    "dict_views",
    "sets",
    "iterators",
    "upcoming",
    "function",
    "cells",
    "methods",
    "descriptors",
    "py_module",
    "code_object",
    "builtin",
    "reflection",
    "iteration",
    "numeric_functions",
    "constructors",
    "super_",
    "exception",
    "user_class",
    "class_making",
    "type_methods",
    "user_object",
    "functools_",
    "itertools_",
    "enum_",
    "numpy_",
    "numpy_arrays",
    "formatting",
    "constant_objects",
    "inspection",
    "loggers",
    "getters",
    "weak_refs",
    "threads",
    "namespaces",
    "ordered_lists",
    "copying",
    "tensor",
    "tensor_state",
    "backward",
    "packed",
    "torch_api",
    "resampling",
    "averaging",
    "random_state",
    "random_streams",
    "mirrors",
    "made_caches",
    "named_tuples",
    "process_groups",
    "module",
    "context",
    "autograd",
    "transforms",
    "flexible_attention",
    "symint",
    "torch_function",
    "surface",
)
_rows_loaded = False


def wraps_type(*types: type) -> Callable[[WrapFunction], WrapFunction]:
    """Registers a wrap function for values of exactly these types."""

    def register(fn: WrapFunction) -> WrapFunction:
        for t in types:
            _BY_TYPE[t] = fn
        return fn

    return register


def wraps_if(predicate: Callable[[Any], bool], priority: int = 0) -> Callable[[WrapFunction], WrapFunction]:
    """Registers a wrap function for values that satisfy the predicate; higher priority is asked first."""

    def register(fn: WrapFunction) -> WrapFunction:
        _BY_PREDICATE.append((-priority, len(_BY_PREDICATE), predicate, fn))
        _BY_PREDICATE.sort(key=lambda row: row[:2])
        return fn

    return register


def load_rows() -> None:
    """Imports the modules that add rows."""
    global _rows_loaded
    if _rows_loaded:
        return
    package = __name__.rpartition(".")[0]
    for name in ROW_MODULES:
        importlib.import_module(f"{package}.{name}")
    from . import torch_api

    global TORCH_CALLABLE_TYPES, wrap_torch
    TORCH_CALLABLE_TYPES, wrap_torch = torch_api.CALLABLE_TYPES, torch_api.wrap_torch
    _rows_loaded = True


#: Types of values that torch's table of calls is asked about first (filled in by load_rows).
TORCH_CALLABLE_TYPES: frozenset[type] = frozenset()
wrap_torch: Any = None


class Builder:
    """Wraps values for one translation; `tx.wrap` is its `wrap`."""

    def __init__(self, root: Any):
        load_rows()
        self.root = root
        #: id(real object) -> (real object kept alive, tracker)
        self.by_id: dict[int, tuple[Any, VariableTracker]] = {}

    def wrap(self, tx: Any, value: Any, source: Any) -> VariableTracker:
        """Tracker of a real object.  `source` None: a constant, or an object that the translation vouches for."""
        t = type(value)
        if issubclass(t, VariableTracker):
            raise TypeError("wrap() got a tracker")
        if t in CONSTANT_TYPES:
            return self.wrap_constant(tx, value, source)
        if t in weakref.ProxyTypes:  # any look at it is a look at the object, which may be dead
            tx.graph_break("weak_reference", type=t.__name__)
        known = self.by_id.get(id(value))
        if known is not None:
            vt = known[1]
            if source is not None:
                if vt.source is None:
                    # met first as a constant of the translation: on this path it need not be that object
                    tx.output.guard(source, "ID", value)
                elif vt.source != source:
                    self.guard_same(tx, value, source, vt.source)
            return vt
        if (t is types.FunctionType and value.__dict__) or hasattr(t, "_lamina_state"):
            from .surface import wrap_front

            vt = wrap_front(tx, value, source)
            if vt is not None:
                self.remember(value, vt)
                return vt
        if marks.any_marks() and callable(value):
            from .surface import wrap_marked

            vt = wrap_marked(tx, value, source)
            if vt is not None:
                self.remember(value, vt)
                return vt
        if t in TORCH_CALLABLE_TYPES:
            vt = wrap_torch(tx, value, source)
            if vt is not None:
                self.remember(value, vt)
                return vt
            if t is types.FunctionType:
                original = private.original_of(value)
                if original is not None:
                    if source is not None:
                        tx.output.guard(source, "ID", value)
                    vt = self.wrap(tx, original, None)
                    self.remember(value, vt)
                    return vt
        fn = _BY_TYPE.get(t)
        if fn is None:
            for _, _, predicate, candidate in _BY_PREDICATE:
                if predicate(value):
                    fn = candidate
                    break
            else:
                tx.graph_break("unknown_object", type=f"{t.__module__}.{t.__qualname__}")
        vt = fn(tx, value, source)
        self.remember(value, vt)
        return vt

    def wrap_constant(self, tx: Any, value: Any, source: Any) -> VariableTracker:
        if source is not None:
            # T and N decide which outside numbers become symbolic instead of being baked in
            symbolic = getattr(tx.output, "maybe_symbolic", None)
            if symbolic is not None and type(value) in (int, float):
                vt = symbolic(value, source)
                if vt is not None:
                    return vt
            if value is None:
                tx.output.guard(source, "NONE", None)
            else:
                tx.output.guard(source, "CONSTANT", value)
        return ConstantVariable(value, source)

    def guard_same(self, tx: Any, value: Any, source: Any, first: Any) -> None:
        """A second path to a known object."""
        if issubclass(type(value), (type, types.ModuleType, types.BuiltinFunctionType)):
            tx.output.guard(source, "ID", value)
        else:
            tx.output.guard((first, source), "SAME_OBJECT")

    def is_known(self, vt: VariableTracker) -> bool:
        """Whether ``vt`` stands for an object from outside."""
        return any(known is vt for _, known in self.by_id.values())

    def source_of(self, value: Any) -> Any:
        """A path to an object from outside that translation has met; None if there is none."""
        known = self.by_id.get(id(value))
        return None if known is None else known[1].source

    def remember(self, value: Any, vt: VariableTracker) -> None:
        self.by_id.setdefault(id(value), (value, vt))


def wrap(tx: Any, value: Any, source: Any) -> VariableTracker:
    """What `tx.wrap` does: the builder of the running translation wraps the value."""
    builder = tx.output.__dict__.get("builder")
    if builder is None:
        builder = tx.output.builder = Builder(tx)
    return builder.wrap(tx, value, source)


def wrap_lazy(tx: Any, value: Any, source: Any) -> VariableTracker:
    """A tracker that looks at the value only when it is used; with no source the value is wrapped at once."""
    if source is None:
        return wrap(tx, value, None)
    known = tx.output.builder.by_id.get(id(value)) if tx.output.__dict__.get("builder") is not None else None
    if known is not None and known[1].source == source:
        return known[1]
    from lamina_dynamo.variables.lazy import LazyVariable

    return LazyVariable(tx, value, source)
