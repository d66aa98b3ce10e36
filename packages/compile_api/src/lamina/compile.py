"""`lamina.compile`: the one function that most users need."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch

from . import failures, progress
from .errors import CompileError, LaminaError, OptionError
from .options import CompileOptions, check_arguments, values_for
from .pipeline import RUNGS, bind, import_stage


def compile(
    model: Any = None,
    *,
    mode: str = "default",
    dynamic: bool | None = None,
    fullgraph: bool = False,
    backend: str | Callable[..., Any] = "inductor",
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Make a function or an `nn.Module` faster without changing what it computes.

    Args:
        model: a function, a bound method, any callable object or a module. Left out, a decorator is returned.
        mode: "default", "reduce-overhead", "max-autotune" or "max-autotune-no-cudagraphs", see `lamina.list_modes`.
        dynamic: None compiles for the first sizes and generalises what changes; True generalises at once; False
            compiles anew for every size.
        fullgraph: True raises `lamina.CompileError` where the program cannot become one graph.
        backend: a name from `lamina.list_backends()`, or a callable `backend(graph_module, example_inputs)`.
        options: values for options, by name; see the guide for backend writers.
        disable: True returns the model as it is, to switch compilation off in one place.

    Returns:
        For a function, a function with the same signature. For a module, a module that shares every attribute,
        parameter, hook and `state_dict` key with the original and is an instance of its class. Work starts at the
        first call.

    Raises:
        OptionError: an argument is not one of the values it takes.
        CompileError: on a call, if a stage fails under `fullgraph=True` or `LAMINA_STRICT=1`.
    """
    settings = check_arguments(mode, dynamic, fullgraph, backend, options)
    if not isinstance(disable, bool):
        raise OptionError(f"disable must be True or False, not {disable!r}")
    if disable:
        return (lambda fn: fn) if model is None else model
    if model is None:
        return functools.partial(_compile, settings=settings)
    return _compile(model, settings)


def _compile(model: Any, settings: CompileOptions) -> Any:
    from .module import CompiledModule, compile_module, original_of

    if isinstance(model, CompiledModule):
        if type(model).__mro__[1] is not CompiledModule:
            raise OptionError(f"{type(model).__name__} is derived from the class of a compiled module",
                              hint="derive it from the original's class")
        model = original_of(model)
    if isinstance(model, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        return model  # TorchScript has compiled it already and shows no Python to capture
    if isinstance(model, torch.nn.Module):
        return compile_module(model, settings)
    if isinstance(model, staticmethod | classmethod):  # the decorator above @staticmethod or @classmethod
        return type(model)(_compile(model.__func__, settings))
    if isinstance(model, type):
        raise OptionError(f"lamina.compile takes functions and objects, not the class {model.__name__}",
                          hint="compile an instance, or decorate its methods")
    if not callable(model):
        raise OptionError(f"lamina.compile takes a callable, not {type(model).__name__}")
    return compile_function(getattr(model, "__lamina_original__", model), settings)


def resolve_backend(settings: CompileOptions) -> Callable[..., Any]:
    """Return the backend callable for these settings: the same object for equal settings."""
    if callable(settings.backend):
        return settings.backend
    if settings.backend in RUNGS:
        return bind(settings.backend, settings)
    from .backends import load

    return load(settings.backend)


def captured(fn: Any, settings: CompileOptions) -> Callable[..., Any]:
    """Return `fn` (function or module) under capture with the backend of `settings`."""
    dynamo = import_stage("capture")
    import lamina

    lamina._load_capture_names()
    backend = resolve_backend(settings)
    inner = dynamo.optimize(backend, fullgraph=settings.fullgraph, dynamic=settings.dynamic)(fn)
    progress.install()
    values = values_for("dynamo", settings.values())
    if not values:
        return inner

    from lamina_dynamo import config as dynamo_config

    def patched(*args: Any, **kwargs: Any) -> Any:
        with dynamo_config.patch(**values):
            return inner(*args, **kwargs)

    return patched


ROOTS = {
    "lamina_dynamo.errors": "DynamoError",
    "lamina_aot_autograd.errors": "AotError",
    "lamina_primtorch.errors": "PrimTorchError",
    "lamina_inductor.errors": "InductorError",
}
"""Where each layer's tree of errors begins."""


def stage_errors() -> tuple[type[BaseException], ...]:
    """Return the roots of the loaded layers' errors; evaluated only when an exception passes."""
    loaded = ((sys.modules.get(module), name) for module, name in ROOTS.items())
    return tuple(getattr(module, name) for module, name in loaded if module is not None)


def raise_as_compile_error(error: BaseException) -> NoReturn:
    """Raise the CompileError that stands for what a layer raised, its cause kept."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, LaminaError):
            raise inner from inner.__cause__
        inner = inner.__cause__
    raise failures.describe(error, stage="capture") from error


def compile_function(fn: Callable[..., Any], settings: CompileOptions) -> Callable[..., Any]:
    """Compile a plain callable; nothing is captured before the first call."""
    inner = captured(fn, settings)

    def compiled(*args: Any, **kwargs: Any) -> Any:
        try:
            return inner(*args, **kwargs)
        except stage_errors() as error:
            raise_as_compile_error(error)

    try:
        functools.update_wrapper(compiled, fn)
    except (AttributeError, TypeError):  # a callable object without a name
        pass
    compiled.__lamina_original__ = fn  # type: ignore[attr-defined]
    compiled.__lamina_settings__ = settings  # type: ignore[attr-defined]
    return compiled


__all__ = ["compile", "CompileError"]
