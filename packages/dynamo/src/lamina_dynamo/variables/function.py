"""Functions of the program, from outside or made inside, and what their arguments are bound to."""

from __future__ import annotations

import inspect
import types
from typing import Any

import torch

from .. import _torch as private
from .attributes import DELETED
from .base import VariableTracker
from .builder import wraps_type
from .cells import CellVariable
from .methods import BoundMethodVariable
from .module_walk import WALKS, walk_modules
from .recurrent import FLATTEN, flatten_now

CO_VARARGS = inspect.CO_VARARGS
CO_VARKEYWORDS = inspect.CO_VARKEYWORDS


def bind_arguments(
    tx: Any,
    code: types.CodeType,
    name: str,
    defaults: list[VariableTracker],
    kwdefaults: dict[str, VariableTracker],
    args: list[VariableTracker],
    kwargs: dict[str, VariableTracker],
) -> dict[str, VariableTracker]:
    """Arguments to parameters by Python's rules, with the interpreter's error texts."""
    from lamina_dynamo.variables.container import TupleVariable
    from lamina_dynamo.variables.dicts import DictVariable

    n_pos, n_kwonly, n_posonly = code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount
    names = code.co_varnames
    params = names[: n_pos + n_kwonly]
    has_varargs, has_kw = bool(code.co_flags & CO_VARARGS), bool(code.co_flags & CO_VARKEYWORDS)
    bound: dict[str, VariableTracker] = {}
    for param, arg in zip(params[:n_pos], args):
        bound[param] = arg
    extra_kw: dict[str, VariableTracker] = {}
    keywordable = set(params[n_posonly:])
    wrong_posonly = []
    for key, value in kwargs.items():
        if key in keywordable:
            if key in bound:
                tx.raise_exception(TypeError, f"{name}() got multiple values for argument '{key}'")
            bound[key] = value
        elif has_kw:
            extra_kw[key] = value
        elif key in params[:n_posonly]:
            wrong_posonly.append(key)
        else:
            tx.raise_exception(TypeError, f"{name}() got an unexpected keyword argument '{key}'")
    if wrong_posonly:
        tx.raise_exception(
            TypeError,
            f"{name}() got some positional-only arguments passed as keyword arguments: '{', '.join(wrong_posonly)}'",
        )
    if len(args) > n_pos and not has_varargs:
        _too_many_positional(tx, name, n_pos, len(defaults), len(args), params, n_kwonly, bound)
    first_default = n_pos - len(defaults)
    missing = []
    for i, param in enumerate(params[:n_pos]):
        if param not in bound:
            if i >= first_default:
                bound[param] = defaults[i - first_default]
            else:
                missing.append(param)
    if missing:
        _missing(tx, name, missing, "positional")
    for param in params[n_pos:]:
        if param not in bound:
            if param in kwdefaults:
                bound[param] = kwdefaults[param]
            else:
                missing.append(param)
    if missing:
        _missing(tx, name, missing, "keyword-only")
    i = n_pos + n_kwonly
    if has_varargs:
        bound[names[i]] = TupleVariable(list(args[n_pos:]))
        i += 1
    if has_kw:
        bound[names[i]] = DictVariable.from_pairs(tx, [(tx.const(k), v) for k, v in extra_kw.items()])
    return bound


def _too_many_positional(
    tx: Any, name: str, n_pos: int, n_defaults: int, given: int, params: Any, n_kwonly: int, bound: Any
) -> None:
    if n_defaults:
        takes, plural = f"from {n_pos - n_defaults} to {n_pos}", True
    else:
        takes, plural = str(n_pos), n_pos != 1
    kwonly_given = sum(1 for p in params[n_pos : n_pos + n_kwonly] if p in bound)
    kw_text = ""
    if kwonly_given:
        kw_text = (
            f" positional argument{'s' if given != 1 else ''} (and {kwonly_given} keyword-only argument"
            f"{'s' if kwonly_given != 1 else ''})"
        )
    verb = "was" if given == 1 and not kwonly_given else "were"
    tx.raise_exception(
        TypeError,
        f"{name}() takes {takes} positional argument{'s' if plural else ''} but {given}{kw_text} {verb} given",
    )


def _missing(tx: Any, name: str, missing: list[str], kind: str) -> None:
    quoted = [f"'{m}'" for m in missing]
    if len(quoted) == 1:
        text = quoted[0]
    elif len(quoted) == 2:
        text = " and ".join(quoted)
    else:
        text = ", ".join(quoted[:-1]) + ", and " + quoted[-1]
    plural = "" if len(missing) == 1 else "s"
    tx.raise_exception(TypeError, f"{name}() missing {len(missing)} required {kind} argument{plural}: {text}")


_WRITABLE = ("__name__", "__qualname__", "__doc__", "__annotations__", "__module__", "__type_params__")


class FunctionVariable(VariableTracker):
    """Base of Python functions: those from outside and those made by MAKE_FUNCTION inside the region."""

    __slots__ = ("attrs",)
    #: calling it runs one inlined frame whose result is the call's: a graph break in there can be resumed
    is_transparent_call = True

    def __init__(self, source: Any = None):
        super().__init__(source)
        self.attrs: dict[str, Any] = {}

    def python_type(self) -> type:
        return types.FunctionType

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return tx.inline(self, args, kwargs)

    def descriptor_get(self, tx: Any, obj: VariableTracker | None, cls: Any) -> VariableTracker:
        if obj is None:
            return self
        return BoundMethodVariable(self, obj)

    def truth(self, tx: Any) -> bool:
        return True

    def get_code(self) -> types.CodeType:
        raise NotImplementedError

    def get_globals(self) -> dict[str, Any]:
        raise NotImplementedError

    def instance_attr(self, tx: Any, name: str, shadowing: bool) -> VariableTracker | None:
        value = self.attrs.get(name)
        return None if value is DELETED else value

    def store_attr(self, tx: Any, name: str, value: Any, shadowing: bool = False) -> None:
        tx.output.side_effects.mutation(self)
        self.attrs.pop(name, None)
        self.attrs[name] = value

    def replay(self, codegen: Any) -> None:
        for name, value in self.attrs.items():
            if value is DELETED:
                codegen.push_function(delattr)
                codegen(self)
                codegen.load_const(name)
                codegen.call_function(2)
            else:
                codegen.push_function(setattr)
                codegen(self)
                codegen.load_const(name)
                codegen(value)
                codegen.call_function(3)
            codegen.pop()

    def set_member(self, tx: Any, name: str, value: VariableTracker) -> bool:
        if name in _WRITABLE:
            tx.output.side_effects.mutation(self)
            self.attrs[name] = value
            return True
        return False


class UserFunctionVariable(FunctionVariable):
    """A Python function that exists before the region, guarded by its code object."""

    __slots__ = ("_cells", "_defaults", "_kwdefaults", "fn")

    def __init__(self, fn: types.FunctionType, source: Any = None):
        super().__init__(source)
        self.fn = fn
        self._cells: tuple[CellVariable, ...] | None = None
        self._defaults: list[VariableTracker] | None = None
        self._kwdefaults: dict[str, VariableTracker] | None = None

    def describe(self) -> str:
        return f"function {self.fn.__qualname__}"

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.fn

    def hash_key(self, tx: Any) -> Any:
        from .keys import ConstantKey

        return ConstantKey(self.fn)

    def get_code(self) -> types.CodeType:
        return self.fn.__code__

    def get_globals(self) -> dict[str, Any]:
        return self.fn.__globals__

    def globals_source(self) -> Any:
        from ..source import AttrSource

        return None if self.source is None else AttrSource(self.source, "__globals__")

    def get_closure(self, tx: Any) -> tuple[CellVariable, ...]:
        if self._cells is None:
            from ..roots import ClosureSource

            cells = []
            for i, cell in enumerate(self.fn.__closure__ or ()):
                source = None if self.source is None else ClosureSource(self.source, i)
                cells.append(tx.wrap(cell, source))
            self._cells = tuple(cells)
        return self._cells

    def defaults(self, tx: Any) -> list[VariableTracker]:
        if self._defaults is None:
            from ..source import DefaultsSource
            from .builder import wrap_lazy

            self._defaults = [
                wrap_lazy(tx, v, None if self.source is None else DefaultsSource(self.source, i))
                for i, v in enumerate(self.fn.__defaults__ or ())
            ]
        return self._defaults

    def kwdefaults(self, tx: Any) -> dict[str, VariableTracker]:
        if self._kwdefaults is None:
            from ..source import DefaultsSource
            from .builder import wrap_lazy

            self._kwdefaults = {
                k: wrap_lazy(tx, v, None if self.source is None else DefaultsSource(self.source, k))
                for k, v in (self.fn.__kwdefaults__ or {}).items()
            }
        return self._kwdefaults

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if self.fn in WALKS and len(args) == 1 and not kwargs:
            walk = walk_modules(tx, self.fn, args[0])
            if walk is not None:
                return walk
        if self.fn is FLATTEN and len(args) == 1 and not kwargs:
            done = flatten_now(tx, args[0])
            if done is not None:
                return done
        return tx.inline(self, args, kwargs)

    def bind(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> dict[str, VariableTracker]:
        return bind_arguments(
            tx, self.fn.__code__, self.fn.__qualname__, self.defaults(tx), self.kwdefaults(tx), args, kwargs
        )

    def instance_attr(self, tx: Any, name: str, shadowing: bool) -> VariableTracker | None:
        if name in self.attrs:
            return super().instance_attr(tx, name, shadowing)
        if name in self.fn.__dict__:
            from ..source import InstanceAttrSource

            source = None if self.source is None else InstanceAttrSource(self.source, name)
            return tx.wrap(self.fn.__dict__[name], source)
        if self.source is not None and shadowing:
            tx.output.guard(self.source, "NO_INSTANCE_ATTR", name)
        return None

    def instance_dict(self, tx: Any) -> VariableTracker:
        from .instance_dict import InstanceDictVariable

        return InstanceDictVariable(self)

    def attr_names(self, tx: Any) -> list[str]:
        if self.source is not None:
            from ..source import SelfDictSource

            tx.output.guard(SelfDictSource(self.source), "DICT_KEYS", list(self.fn.__dict__))
        names = [n for n in self.fn.__dict__ if self.attrs.get(n) is not DELETED]
        own = [n for n, v in self.attrs.items() if v is not DELETED and n not in self.fn.__dict__]
        return names + [n for n in own if n not in _WRITABLE]

    def get_member(self, tx: Any, name: str) -> VariableTracker | None:
        from ..source import AttrSource

        if name in self.attrs:
            return self.attrs[name]
        value = getattr(self.fn, name)
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            return tx.const(value)
        if name == "__type_params__" and not value:
            return tx.const(())
        if name in ("__defaults__", "__kwdefaults__", "__closure__", "__annotations__", "__code__"):
            return tx.wrap(value, None if self.source is None else AttrSource(self.source, name))
        return None

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_global_alias("fn", self.fn)


class NestedFunctionVariable(FunctionVariable):
    """A function made inside the region."""

    __slots__ = (
        "annotations",
        "closure",
        "code",
        "default_vts",
        "f_globals",
        "globals_src",
        "kwdefault_vts",
        "module",
        "name",
    )
    is_mutable = True

    def __init__(
        self,
        code: types.CodeType,
        f_globals: dict[str, Any],
        name: Any,
        defaults: tuple[VariableTracker, ...] | None = None,
        kwdefaults: dict[str, VariableTracker] | None = None,
        annotations: VariableTracker | None = None,
        closure: tuple[CellVariable, ...] | None = None,
        module: Any = None,
        globals_src: Any = None,
    ):
        super().__init__(None)
        self.code = code
        self.f_globals = f_globals
        self.name = name if isinstance(name, str) else name.as_python_constant() if name is not None else code.co_name
        self.default_vts = tuple(defaults or ())
        self.kwdefault_vts = dict(kwdefaults or {})
        self.annotations = annotations
        self.closure = tuple(closure or ())
        self.module = module
        self.globals_src = globals_src

    def describe(self) -> str:
        return f"function {self.code.co_qualname if hasattr(self.code, 'co_qualname') else self.name} made inside"

    def get_code(self) -> types.CodeType:
        return self.code

    def get_globals(self) -> dict[str, Any]:
        return self.f_globals

    def globals_source(self) -> Any:
        return self.globals_src

    def get_closure(self, tx: Any) -> tuple[CellVariable, ...]:
        return self.closure

    def qualname(self) -> str:
        stored = self.attrs.get("__qualname__")
        if stored is not None and stored is not DELETED:
            return str(stored.as_python_constant())
        return getattr(self.code, "co_qualname", self.name)

    def bind(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> dict[str, VariableTracker]:
        return bind_arguments(tx, self.code, self.qualname(), list(self.default_vts), self.kwdefault_vts, args, kwargs)

    def instance_dict(self, tx: Any) -> VariableTracker:
        from .instance_dict import InstanceDictVariable

        return InstanceDictVariable(self)

    def attr_names(self, tx: Any) -> list[str]:
        return [k for k, v in self.attrs.items() if v is not DELETED and k not in _WRITABLE]

    def get_member(self, tx: Any, name: str) -> VariableTracker | None:
        from .container import TupleVariable
        from .dicts import DictVariable

        if name in self.attrs:
            return self.attrs[name]
        if name == "__name__":
            return tx.const(self.code.co_name)
        if name == "__qualname__":
            return tx.const(self.qualname())
        if name == "__module__":
            return tx.const(self.f_globals.get("__name__"))
        if name == "__doc__":
            consts = self.code.co_consts
            return tx.const(consts[0] if consts and isinstance(consts[0], str) else None)
        if name == "__annotations__":
            if self.annotations is None:
                self.annotations = DictVariable.from_pairs(tx, [])
            elif isinstance(self.annotations.realize(), TupleVariable):
                parts = self.annotations.unpack(tx)
                self.annotations = DictVariable.from_pairs(tx, list(zip(parts[::2], parts[1::2])))
            return self.annotations
        if name == "__defaults__":
            return TupleVariable(list(self.default_vts)) if self.default_vts else tx.const(None)
        if name == "__kwdefaults__":
            if not self.kwdefault_vts:
                return tx.const(None)
            return DictVariable.from_pairs(tx, [(tx.const(k), v) for k, v in self.kwdefault_vts.items()])
        if name == "__closure__":
            return TupleVariable(list(self.closure)) if self.closure else tx.const(None)
        if name == "__code__":
            return tx.wrap(self.code, None)
        if name == "__type_params__":
            return tx.const(())  # those of a generic function are stored by an instruction of its own
        return None

    def children(self) -> Any:
        yield from self.default_vts
        yield from self.kwdefault_vts.values()
        yield from self.closure
        if self.annotations is not None:
            yield self.annotations
        for value in self.attrs.values():
            if value is not DELETED:
                yield value

    def reconstruct(self, codegen: Any) -> None:
        # cells first as a tuple: a cell may hold this very function, so the function is remembered before they fill
        codegen.push_function(make_function)
        codegen.load_const(self.code)
        if self.globals_src is not None:
            self.globals_src.reconstruct(codegen)
        else:
            codegen.push_globals(self.f_globals)
        for cell in self.closure:
            codegen(cell)
        codegen.build("BUILD_TUPLE", len(self.closure))
        codegen.call_function(3)
        codegen.remember(self)
        codegen.push_function(fill_function)
        codegen(self)
        for value in self.default_vts:
            codegen(value)
        codegen.build("BUILD_TUPLE", len(self.default_vts))
        codegen.load_const(tuple(self.kwdefault_vts))
        for value in self.kwdefault_vts.values():
            codegen(value)
        codegen.build("BUILD_TUPLE", len(self.kwdefault_vts))
        if self.annotations is None:
            codegen.load_const(None)
        else:
            codegen(self.annotations)
        codegen.call_function(5)
        codegen.pop()
        if self.attrs:
            self.replay(codegen)


def make_function(code: types.CodeType, f_globals: dict[str, Any], closure: tuple[Any, ...]) -> types.FunctionType:
    """Makes a function of the traced program in generated code."""
    return types.FunctionType(code, f_globals, code.co_name, None, closure or None)


def fill_function(
    fn: types.FunctionType, defaults: tuple[Any, ...], names: tuple[str, ...], values: tuple[Any, ...], annotations: Any
) -> None:
    """Gives a function its defaults and annotations, in generated code."""
    fn.__defaults__ = defaults or None
    fn.__kwdefaults__ = dict(zip(names, values)) or None
    if annotations is not None:
        if isinstance(annotations, tuple):
            annotations = dict(zip(annotations[::2], annotations[1::2]))
        fn.__annotations__ = annotations


#: (predicate on a Python function, wrap function): functions of the standard library with their own tracker
FUNCTION_FACTORIES: list[tuple[Any, Any]] = []


@wraps_type(types.FunctionType)
def wrap_function(tx: Any, value: Any, source: Any) -> VariableTracker:
    from .builtin import FOLDABLE, HANDLERS, BuiltinVariable

    for predicate, factory in FUNCTION_FACTORIES:
        if predicate(value):
            return factory(tx, value, source)
    if value in HANDLERS or value in FOLDABLE:
        if source is not None:
            tx.output.guard(source, "ID", value)
        return BuiltinVariable(value, source)
    if source is not None:
        tx.output.guard(source, "FUNCTION_CODE", value)
    return UserFunctionVariable(value, source)


@wraps_type(torch.jit.ScriptFunction)
def wrap_script_function(tx: Any, value: Any, source: Any) -> VariableTracker:
    """A function under `torch.jit.script` means what its Python text says."""
    original = private.python_of_script(value)
    if type(original) is not types.FunctionType:
        tx.graph_break("unknown_call", type="torch.jit.ScriptFunction", reason="a traced function")
    if source is not None:
        tx.output.guard(source, "ID", value)
    return ScriptFunctionVariable(value, tx.wrap(original, None), source)


class ScriptFunctionVariable(VariableTracker):
    """A scripted function; calling it follows the Python function."""

    __slots__ = ("python", "value")

    def __init__(self, value: Any, python: VariableTracker, source: Any):
        super().__init__(source)
        self.value = value
        self.python = python

    def python_type(self) -> type:
        return type(self.value)

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return self.python.call_function(tx, args, kwargs)

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_const(self.value)
