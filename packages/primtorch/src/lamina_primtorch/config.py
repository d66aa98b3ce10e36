"""Settings: one frozen dataclass, read from the environment once; ``patch`` overrides within a context."""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any


def _flag(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0", "false")


@dataclass(frozen=True)
class Config:
    strict: bool = field(
        default=False,
        metadata={
            "doc": "an unexpected error in a decomposition is raised; otherwise the op is kept as an extern",
            "env": "LAMINA_STRICT",
            "in_cache_key": False,
        },
    )


_DEFAULT = Config(strict=_flag("LAMINA_STRICT"))
_PATCHED: contextvars.ContextVar[Config | None] = contextvars.ContextVar("lamina_primtorch_config", default=None)


def current() -> Config:
    return _PATCHED.get() or _DEFAULT


@contextlib.contextmanager
def patch(**changes: Any) -> Iterator[Config]:
    """Use other settings inside a ``with`` block (this context only). Raises TypeError for an unknown field."""
    token = _PATCHED.set(replace(current(), **changes))
    try:
        yield current()
    finally:
        _PATCHED.reset(token)
