"""Settings: one frozen dataclass, read from the environment once; ``patch`` overrides within a context."""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any


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


_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False,
          "": False}
_TAKES = {bool: "True or False", int: "an integer", float: "a number", str: "text", type(None): "None, True or False"}


def _fits(value: Any, default: Any) -> bool:
    """Tell whether a value is of the kind of a setting's default."""
    if default is None or isinstance(default, bool):
        return isinstance(value, bool) or value is default
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(default, str):
        return isinstance(value, str | os.PathLike)
    return isinstance(value, type(default)) and not isinstance(value, bool)


def _changed(config: Config, changes: dict[str, Any]) -> Config:
    """Return the settings with other values; TypeError for a name that is no setting or a value of another kind."""
    defaults = {f.name: f.default for f in fields(Config)}
    for name, value in changes.items():
        if name not in defaults:
            raise TypeError(f"unknown setting {name!r}; known: {', '.join(sorted(defaults))}")
        if not _fits(value, defaults[name]):
            raise TypeError(f"setting {name} takes {_TAKES[type(defaults[name])]}, not {value!r}")
    return replace(config, **changes)


def _parse(env: str, text: str, default: Any) -> Any:
    """Read an environment variable; ValueError that names it for text that it does not take."""
    try:
        if isinstance(default, bool):
            return _WORDS[text.strip().lower()]
        return type(default)(text)
    except (KeyError, ValueError):
        words = "one of " + ", ".join(w for w in _WORDS if w)
        raise ValueError(
            f"{env}={text!r}: it takes {words if isinstance(default, bool) else _TAKES[type(default)]}"
        ) from None


_DEFAULT = Config(strict=_parse("LAMINA_STRICT", os.environ.get("LAMINA_STRICT", ""), False))
_PATCHED: contextvars.ContextVar[Config | None] = contextvars.ContextVar("lamina_primtorch_config", default=None)


def current() -> Config:
    return _PATCHED.get() or _DEFAULT


@contextlib.contextmanager
def patch(**changes: Any) -> Iterator[Config]:
    """Use other settings inside a ``with`` block (this context only). TypeError for an unknown name or
    a value of another kind."""
    token = _PATCHED.set(_changed(current(), changes))
    try:
        yield current()
    finally:
        _PATCHED.reset(token)
