"""The one table of decompositions and the decorator that fills it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
DECOMPOSITIONS: dict[str, Callable[..., Any]] = {}


def decomp(*names: str) -> Callable[[F], F]:
    """Register a decomposition for ATen overloads by short name. A repeat raises ValueError."""

    def register(fn: F) -> F:
        for name in names:
            if name in DECOMPOSITIONS:
                raise ValueError(f"two decompositions of {name}")
            DECOMPOSITIONS[name] = fn
        return fn

    return register
