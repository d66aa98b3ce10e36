"""The public surface: what is compiled, what is not, and how to ask about it.

A compiled callable is a small C object that calls the original with capture switched on for the thread; frames met
below it are compiled
or found in the cache by the hook.
"""

from __future__ import annotations

import copy
import functools
import types
import weakref
from typing import Any

import torch

from . import _eval_frame, cache, marks
from .backends import get_backend
from .convert_frame import compiler_for, is_translating
from .counters import reset_counters
from .guards import explain
from .trace_policy import SKIP_ATTRIBUTE

__all__ = [
    "CompiledFunction",
    "CompiledModule",
    "allow_in_graph",
    "assume_constant_result",
    "disable",
    "disallow_in_graph",
    "graph_break",
    "is_compiling",
    "optimize",
    "reset",
    "run",
    "skip_code",
]


class CompiledFunction(_eval_frame.Wrapper):  # type: ignore[misc, name-defined]
    """A callable whose frames are compiled. ``__wrapped__`` is the original, other attributes are the original's;
    binds as a method.
    """

    def __reduce__(self) -> Any:
        key = self.owner.key
        return _again, (self.__wrapped__, key.backend, key.fullgraph, key.dynamic)


def _again(fn: Any, backend: Any, fullgraph: bool, dynamic: bool | None) -> Any:
    return optimize(backend, fullgraph=fullgraph, dynamic=dynamic)(fn)


class CompiledModule(CompiledFunction):
    """A module whose call is compiled, hooks included. Attributes are read from and written to the module."""

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__wrapped__, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__wrapped__, name)

    def __len__(self) -> int:
        return len(self.__wrapped__)

    def __iter__(self) -> Any:
        return iter(self.__wrapped__)

    def __getitem__(self, key: Any) -> Any:
        return self.__wrapped__[key]

    def __contains__(self, key: Any) -> bool:
        return key in self.__wrapped__

    def __dir__(self) -> list[str]:
        return dir(self.__wrapped__)


class optimize:
    """Compile what is called: ``optimize(backend)(fn)``, ``@optimize(backend)``, ``with optimize(backend): ...``.

    ``backend``: a name or a callable ``(gm, example_inputs) -> callable``. ``fullgraph``: raise GraphBreakError
    instead of breaking the graph.
    ``dynamic``: None (what changes becomes symbolic), True (at once) or False (never). ``fn``: function, method,
    module or other callable.
    As a context manager it captures the frames of functions called in the block. Raises ValueError for an unknown
    backend.
    """

    def __init__(self, backend: Any = "eager", *, fullgraph: bool = False, dynamic: bool | None = None) -> None:
        if not isinstance(fullgraph, bool):
            raise TypeError(f"fullgraph is True or False, not {fullgraph!r}")
        if dynamic is not None and not isinstance(dynamic, bool):
            raise TypeError(f"dynamic is None, True or False, not {dynamic!r}")
        self.compiler = compiler_for(get_backend(backend), fullgraph, dynamic)
        self._tokens: list[Any] = []

    def __call__(self, fn: Any) -> Any:
        if isinstance(fn, type):
            raise TypeError("optimize() takes a function, method, module or other callable object, not a class")
        if not callable(fn):
            raise TypeError(f"optimize() takes a callable, got {type(fn).__name__}")
        if isinstance(fn, _eval_frame.Wrapper) and fn.owner is not None and fn.owner.key is self.compiler:
            return fn
        owner = cache.owner_for(cache.anchor_of(fn), self.compiler, self.compiler)
        if isinstance(fn, torch.nn.Module):
            return CompiledModule(fn, owner)
        compiled = CompiledFunction(fn, owner)
        for name in ("__doc__", "__name__", "__qualname__", "__module__"):
            if hasattr(fn, name):
                setattr(compiled, name, getattr(fn, name))
        return compiled

    def __enter__(self) -> optimize:
        self._tokens.append(_eval_frame.enter(cache.owner_for(None, self.compiler, self.compiler)))
        return self

    def __exit__(self, *exc: object) -> None:
        _eval_frame.leave(self._tokens.pop())


def skip_code(code: types.CodeType) -> None:
    """Frames of this code object are never captured; what they call is."""
    _eval_frame.mark_code(code, _eval_frame.MARK_SKIP)


class disable:
    """Run in eager: ``disable(fn)``, ``@disable``, ``@disable(recursive=False)``, ``with disable(): ...``.

    ``recursive`` (default): nothing that ``fn`` calls is captured either; otherwise only its own frame is left
    alone, and ``fn`` itself is returned.
    A module becomes a module of the same class that shares everything with it and runs in eager; of a class all
    methods are disabled, in place. What was compiled runs as it was before.
    """

    def __new__(cls, fn: Any = None, *, recursive: bool = True, reason: str | None = None) -> Any:
        if not isinstance(recursive, bool):
            raise TypeError(f"recursive of disable() is True or False, not {recursive!r}")
        self = super().__new__(cls)
        self.recursive, self.reason, self._tokens = recursive, reason, []  # type: ignore[attr-defined]
        return self if fn is None else self(fn)

    def __call__(self, fn: Any) -> Any:
        if isinstance(fn, type):
            for name, value in list(vars(fn).items()):
                if isinstance(value, types.FunctionType):
                    setattr(fn, name, self(value))
            return fn
        if not callable(fn):
            raise TypeError(f"disable() takes a callable, got {type(fn).__name__}")
        inner = _before_compilation(fn)
        if not self.recursive:  # type: ignore[attr-defined]
            plain = inner.__func__ if isinstance(inner, types.MethodType) else inner
            plain = (
                plain if hasattr(plain, "__code__") else getattr(type(plain), "forward", None) or type(plain).__call__
            )
            if not hasattr(plain, "__code__"):
                raise TypeError("disable(recursive=False) needs a Python function")
            skip_code(plain.__code__)
            marks.mark(plain, marks.DISABLE_SHALLOW)
            return inner
        if isinstance(inner, torch.nn.Module):
            return disabled_module(inner)
        wrapper = _eval_frame.Disabled(inner)
        for name in ("__doc__", "__name__", "__qualname__", "__module__"):
            if hasattr(inner, name):
                setattr(wrapper, name, getattr(inner, name))
        setattr(wrapper, SKIP_ATTRIBUTE, True)
        return wrapper

    def __enter__(self) -> disable:
        self._tokens.append(_eval_frame.enter(None))  # type: ignore[attr-defined]
        return self

    def __exit__(self, *exc: object) -> None:
        _eval_frame.leave(self._tokens.pop())  # type: ignore[attr-defined]


def _before_compilation(fn: Any) -> Any:
    """The function or module that a compiled one was made from."""
    if isinstance(fn, CompiledFunction):
        return fn.__wrapped__
    state = getattr(fn, "_lamina_state", None)
    if state is not None and isinstance(fn, torch.nn.Module):
        return state.original
    return getattr(fn, "__lamina_original__", fn)


_disabled_classes: weakref.WeakValueDictionary[type, type] = weakref.WeakValueDictionary()


def disabled_module(module: torch.nn.Module) -> Any:
    """A module of the same class with the same ``__dict__`` (parameters, hooks, submodules); its call runs in eager."""
    base = type(module)
    cls = _disabled_classes.get(base)
    if cls is None:
        namespace = {
            "__slots__": ("_lamina_eager",),
            "__module__": base.__module__,
            "__qualname__": base.__qualname__,
            "__doc__": base.__doc__,
            "__call__": _call_in_eager,
            "__deepcopy__": lambda self, memo: disabled_module(copy.deepcopy(self._lamina_eager.__wrapped__, memo)),
            "__copy__": lambda self: disabled_module(copy.copy(self._lamina_eager.__wrapped__)),
            "__reduce_ex__": lambda self, protocol: (disabled_module, (self._lamina_eager.__wrapped__,)),
        }
        # type.__new__ and not the metaclass's: no side effects of a user's metaclass for a class not theirs
        cls = type.__new__(type(base), base.__name__, (base,), namespace)  # type: ignore[call-overload]
        _disabled_classes[base] = cls
    twin: Any = object.__new__(cls)
    object.__setattr__(twin, "__dict__", vars(module))
    object.__setattr__(twin, "_lamina_eager", _eval_frame.Disabled(module))
    return twin


def _call_in_eager(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self._lamina_eager(*args, **kwargs)


setattr(_call_in_eager, SKIP_ATTRIBUTE, True)


class run:
    """Use what is compiled and compile nothing new: ``run(compiled)`` or ``with run(): ...``.

    A call that no compiled version fits runs in eager. Given a plain function, the versions compiled for it are used.
    """

    def __new__(cls, fn: Any = None) -> Any:
        self = super().__new__(cls)
        self._tokens = []  # type: ignore[attr-defined]
        return self if fn is None else self(fn)

    def __call__(self, fn: Any) -> Any:
        if not callable(fn):
            raise TypeError(f"run() takes a callable, got {type(fn).__name__}")
        if isinstance(fn, _eval_frame.Wrapper):
            owner, inner = fn.owner, fn.__wrapped__
        else:
            owners = cache.owners_of(cache.anchor_of(fn))
            owner, inner = (owners[-1] if owners else None), fn
        if owner is None:
            return fn
        reader = CompiledFunction(inner, owner)

        def call(*args: Any, **kwargs: Any) -> Any:
            before = _eval_frame.set_run_only(True)
            try:
                return reader(*args, **kwargs)
            finally:
                _eval_frame.set_run_only(before)

        return functools.wraps(inner, updated=())(call) if hasattr(inner, "__name__") else call

    def __enter__(self) -> run:
        self._tokens.append(_eval_frame.set_run_only(True))  # type: ignore[attr-defined]
        return self

    def __exit__(self, *exc: object) -> None:
        _eval_frame.set_run_only(self._tokens.pop())  # type: ignore[attr-defined]


def disallow_in_graph(fn: Any) -> Any:
    """Never put calls of ``fn`` (a function or a list of them) into a graph: break there and call it in eager.
    Returns ``fn``.
    """
    return _mark(fn, marks.DISALLOW)


def allow_in_graph(fn: Any) -> Any:
    """Put calls of ``fn`` (a function or a list of them) into the graph as one node without looking inside. Returns
    ``fn``.

    It must take and return tensors (or tuples of them) and have no effects besides.
    """
    return _mark(fn, marks.ALLOW)


def assume_constant_result(fn: Any) -> Any:
    """Call ``fn`` once, at compilation, and take its result as a constant. Returns ``fn``."""
    return _mark(fn, marks.CONSTANT_RESULT)


def _mark(fn: Any, what: str) -> Any:
    for one in fn if isinstance(fn, (list, tuple)) else (fn,):
        marks.mark(one, what)
    return fn


def graph_break(message: str = "") -> None:
    """Break the graph here when captured (``message`` goes into the report); nothing in eager."""


def is_compiling() -> bool:
    """True when captured (and in the middle of a compilation), False in eager."""
    return is_translating()


def reset() -> None:
    """Forget all compiled code, recompile history and counters."""
    cache.reset()
    explain.clear()
    reset_counters()
