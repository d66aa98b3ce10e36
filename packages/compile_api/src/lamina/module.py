"""The compiled module object: the original module in every respect, except that calling it runs compiled code.

A compiled module is an instance of a class made for the purpose, a subclass of the original's class, and it shares
the original's `__dict__`. So every attribute, parameter, buffer, submodule, hook and the training flag is read and
written in one place, `state_dict` keys are those of the original, and whatever the class can do (iterate, index,
`generate`, properties) works unchanged. What is different lives in one slot of the subclass.

The invariant: `vars(compiled) is vars(original)`, at all times.
"""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from .compile import captured, raise_as_compile_error, stage_errors
from .options import CompileOptions

OLD_PREFIX = "_orig_mod."
"""Prefix that torch.compile puts into checkpoint keys; such checkpoints load here too."""


class _State:
    """What a compiled module keeps beside the shared `__dict__`."""

    __slots__ = ("original", "settings", "call", "forward")

    def __init__(self, original: torch.nn.Module, settings: CompileOptions) -> None:
        self.original = original
        self.settings = settings
        self.call = captured(original, settings)
        self.forward: Callable[..., Any] | None = None


class CompiledModule:
    """Mixed in before the original's class. Users get one from `lamina.compile(module)`."""

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Keep a user's own `__init_subclass__` (registries) from seeing the made class."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            call = self._lamina_state.call  # type: ignore[attr-defined]
        except AttributeError:  # an object that a library made with cls.__new__, without going through compile
            return super().__call__(*args, **kwargs)  # type: ignore[misc]
        try:
            return call(*args, **kwargs)
        except stage_errors() as error:
            raise_as_compile_error(error)

    @property
    def _orig_mod(self) -> torch.nn.Module:
        """The original, under the name by which libraries unwrap modules compiled by torch."""
        return self._lamina_state.original  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        state = self._lamina_state  # type: ignore[attr-defined]
        return compile_module(copy.deepcopy(state.original, memo), state.settings)

    def __copy__(self) -> Any:
        state = self._lamina_state  # type: ignore[attr-defined]
        return compile_module(copy.copy(state.original), state.settings)

    def __reduce_ex__(self, protocol: Any) -> Any:
        state = self._lamina_state  # type: ignore[attr-defined]
        return _unpickle, (state.original, state.settings.arguments())

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> Any:
        old = prefix + OLD_PREFIX
        for key in [k for k in state_dict if k.startswith(old)]:
            state_dict[prefix + key[len(old):]] = state_dict.pop(key)
        return super()._load_from_state_dict(state_dict, prefix, *args)  # type: ignore[misc]

    def _replicate_for_data_parallel(self) -> Any:
        return self._lamina_state.original._replicate_for_data_parallel()  # type: ignore[attr-defined]


def _forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    """`compiled.forward(...)`: compiled, and without hooks, as `forward` of the original is."""
    state = self._lamina_state
    if state.forward is None:
        state.forward = captured(state.original.forward, state.settings)
    try:
        return state.forward(*args, **kwargs)
    except stage_errors() as error:
        raise_as_compile_error(error)


_made: weakref.WeakValueDictionary[type, type] = weakref.WeakValueDictionary()


def make_class(base: type) -> type:
    """Return the compiled subclass of a module class; same name and module, so that it prints as the original does."""
    made = _made.get(base)
    if made is None:
        forward = functools.wraps(base.forward)(_copy_of_forward())  # type: ignore[attr-defined]
        namespace = {
            "__slots__": ("_lamina_state",),
            "__module__": base.__module__,
            "__qualname__": base.__qualname__,
            "__doc__": base.__doc__,
            "forward": forward,
        }
        # type.__new__ and not the metaclass's: no side effects of a user's metaclass for a class not theirs.
        made = type.__new__(type(base), base.__name__, (CompiledModule, base), namespace)  # type: ignore[call-overload]
        _made[base] = made
    return made


def _copy_of_forward() -> Callable[..., Any]:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _forward(self, *args, **kwargs)

    return forward


def compile_module(original: torch.nn.Module, settings: CompileOptions) -> Any:
    """Return the compiled twin of a module; see the top of this file."""
    made = make_class(type(original))
    twin: Any = object.__new__(made)
    object.__setattr__(twin, "__dict__", vars(original))
    object.__setattr__(twin, "_lamina_state", _State(original, settings))
    return twin


def original_of(model: Any) -> torch.nn.Module:
    """Return the module that a compiled module was made from."""
    return model._lamina_state.original


def _unpickle(original: torch.nn.Module, arguments: dict[str, Any]) -> Any:
    from .compile import compile

    return compile(original, **arguments)
