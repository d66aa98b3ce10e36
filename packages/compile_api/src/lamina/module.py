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
        except AttributeError:
            return super().__call__(*args, **kwargs)  # type: ignore[misc]
        try:
            return call(*args, **kwargs)
        except stage_errors() as error:
            raise_as_compile_error(error)

    @property
    def _orig_mod(self) -> torch.nn.Module:
        """The original, under the name by which libraries unwrap modules compiled by torch."""
        return original_of(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return recompiled(self, copy.deepcopy(original_of(self), memo))

    def __copy__(self) -> Any:
        return recompiled(self, copy.copy(original_of(self)))

    def __reduce_ex__(self, protocol: Any) -> Any:
        state = state_of(self)
        if state is None:
            return copy.copy, (plain_twin(self),)
        return _unpickle, (state.original, state.settings.arguments())

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> Any:
        old = prefix + OLD_PREFIX
        for key in [k for k in state_dict if k.startswith(old)]:
            state_dict[prefix + key[len(old):]] = state_dict.pop(key)
        return super()._load_from_state_dict(state_dict, prefix, *args)  # type: ignore[misc]

    def _replicate_for_data_parallel(self) -> Any:
        return original_of(self)._replicate_for_data_parallel()


def _forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    """`compiled.forward(...)`: compiled, and without hooks, as `forward` of the original is."""
    state = state_of(self)
    if state is None:
        return super(CompiledModule, self).forward(*args, **kwargs)
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


def state_of(model: Any) -> _State | None:
    """Return what `compile_module` gave a compiled module; None for an object that was made by calling its class or
    its class's `__new__`, as slices of a Sequential are. Such an object is not compiled.
    """
    try:
        return model._lamina_state
    except AttributeError:
        return None


def plain_twin(model: Any) -> Any:
    """Return an object of the original class that shares the `__dict__` of one of the made class."""
    mro = type(model).__mro__
    twin: Any = object.__new__(mro[mro.index(CompiledModule) + 1])  # after the made class and CompiledModule
    object.__setattr__(twin, "__dict__", vars(model))
    return twin


def original_of(model: Any) -> Any:
    """Return the module that a compiled module was made from."""
    state = state_of(model)
    return plain_twin(model) if state is None else state.original


def recompiled(model: Any, original: Any) -> Any:
    """Return `original` compiled as `model` is; as it is if `model` is not compiled."""
    state = state_of(model)
    return original if state is None else compile_module(original, state.settings)


def _unpickle(original: torch.nn.Module, arguments: dict[str, Any]) -> Any:
    from .compile import compile

    return compile(original, **arguments)
