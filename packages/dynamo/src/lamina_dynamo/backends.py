"""Backends: what turns a captured graph into a callable, `backend(gm, example_inputs) -> callable(*inputs) -> tuple`.

They are known by name (registered here or by another package through the entry point group ``lamina.backends``) or
passed as objects. What a backend's callable returns is compared with its graph at each call, unless the backend says
that it ``keeps_contract`` (an attribute of it);
two compiled functions share compiled frames only if their backends are the same object.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["eager", "get_backend", "list_backends", "name_of", "register_backend"]

Backend = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]

_registered: dict[str, Backend] = {}


def eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Runs the captured graph as it is: capture and nothing else."""
    return gm.forward


eager.keeps_contract = True  # type: ignore[attr-defined]


def register_backend(name: str | None = None, backend: Backend | None = None) -> Any:
    """Give a backend a name: ``register_backend("mine", fn)``, or as a decorator, ``@register_backend`` or
    ``@register_backend("mine")``.

    Raises ValueError if another backend has the name already.
    """
    if callable(name) and backend is None:
        return register_backend(getattr(name, "__name__", None), name)
    if backend is None:
        return lambda fn: register_backend(name or fn.__name__, fn)
    if not isinstance(name, str) or not name:
        raise ValueError("a backend needs a name")
    known = _registered.get(name)
    if known is not None and known is not backend:
        raise ValueError(f"a backend named {name!r} is registered already")
    _registered[name] = backend
    return backend


def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group="lamina.backends")}


def list_backends() -> list[str]:
    """Names that `get_backend` knows, sorted."""
    return sorted({"eager", *_registered, *_entry_points()})


def get_backend(backend: str | Backend) -> Backend:
    """The backend of that name; a callable is returned as it is. Raises ValueError naming the known ones."""
    if callable(backend):
        return backend
    if not isinstance(backend, str):
        raise TypeError(f"a backend is a name or a callable, got {type(backend).__name__}")
    found = _registered.get(backend)
    if found is None and backend == "eager":
        found = eager
    if found is None:
        point = _entry_points().get(backend)
        if point is None:
            raise ValueError(f"no backend named {backend!r}; known: {', '.join(list_backends())}")
        found = point.load()
    _registered[backend] = found
    return found


def name_of(backend: Any) -> str:
    """A name for messages."""
    for name, known in _registered.items():
        if known is backend:
            return name
    return str(getattr(backend, "__name__", type(backend).__name__))
