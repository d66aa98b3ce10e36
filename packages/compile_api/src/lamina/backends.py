"""Backends by name: the ladder, PyTorch's own, and those that other packages register.

Two sources, later ones winning: the entry point group `lamina.backends`, and `register_backend` of lamina_dynamo.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

from .errors import CompileError, unknown

LADDER = ("eager", "aot_eager", "aot_prims", "reference", "inductor")
"""The rungs, in order: each runs one stage more than the one before it."""

_BUILT_IN = {
    "eager": "lamina.pipeline:eager",
    "aot_eager": "lamina.pipeline:aot_eager",
    "aot_prims": "lamina.pipeline:aot_prims",
    "reference": "lamina.pipeline:reference",
    "inductor": "lamina.pipeline:inductor",
    "torch_inductor": "lamina.interop:torch_inductor",
}


def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    return {e.name: e for e in importlib.metadata.entry_points(group="lamina.backends")}


def _registered() -> list[str]:
    import lamina_dynamo

    return list(getattr(lamina_dynamo, "list_backends", lambda: [])())


def list_backends() -> list[str]:
    """Return the names that `lamina.compile(backend=...)` takes: the ladder first, then all others sorted."""
    others = {*_BUILT_IN, *_entry_points(), *_registered()} - {*LADDER}
    return [*LADDER, *sorted(others)]


def is_known(name: str) -> bool:
    """Tell whether `name` is a backend; looks at entry points only if it is not one of the built-in names."""
    return name in _BUILT_IN or name in list_backends()


def load(name: str) -> Callable[..., Any]:
    """Return the callable behind a name; OptionError if unknown, CompileError if its package fails to import."""
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    points = _entry_points()
    if name in points:
        try:
            return points[name].load()
        except Exception as error:
            raise CompileError(
                f"backend {name!r} does not load: {error}", stage="backend",
                hint=f"it is declared by the entry point {points[name].value!r} of an installed package",
            ) from error
    if name in _registered():
        import lamina_dynamo

        return lamina_dynamo.get_backend(name)
    raise unknown("backend", name, list_backends())
