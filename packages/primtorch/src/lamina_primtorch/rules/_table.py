"""The one table of rules and the decorator that fills it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

BY_NAME: dict[str, Callable[[tuple, dict], Any]] = {}


def rule(*names: str) -> Callable[[Callable[[tuple, dict], Any]], Callable[[tuple, dict], Any]]:
    """Register ``fn(args, kwargs)`` for ATen overloads by short name ("add.Tensor"), for others by the full one
    ("_c10d_functional.broadcast.default"). A repeat raises ValueError."""

    def register(fn: Callable[[tuple, dict], Any]) -> Callable[[tuple, dict], Any]:
        for name in names:
            if name in BY_NAME:
                raise ValueError(f"two shape rules for {name}")
            BY_NAME[name] = fn
        return fn

    return register


def signed(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As ``rule`` for a function with the ATen overload's own argument list; it stays callable as written."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(args: tuple, kwargs: dict) -> Any:
            return fn(*args, **kwargs)

        call.__doc__ = fn.__doc__
        rule(*names)(call)
        return fn

    return register
