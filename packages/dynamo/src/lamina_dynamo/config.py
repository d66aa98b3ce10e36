"""Settings of this package: one frozen dataclass, read from the environment once, patched for a block of code by
`patch`.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
from collections.abc import Iterator
from typing import Any

__all__ = ["Config", "get", "patch"]


def _field(default: Any, doc: str, env: str | None = None, cache_key: bool = False) -> Any:
    return dataclasses.field(default=default, metadata={"doc": doc, "env": env, "cache_key": cache_key})


@dataclasses.dataclass(frozen=True)
class Config:
    """Each field carries ``doc``, ``env`` (environment name or None) and ``cache_key`` (does it change what is
    compiled) as metadata.
    """

    strict: bool = _field(
        False, "raise internal errors instead of running the frame in eager with one warning", "LAMINA_STRICT"
    )
    logs: str = _field(
        "", "comma-separated: graphs, breaks, guards, recompiles, bytecode, all; printed to stderr", "LAMINA_LOGS"
    )
    dump_dir: str = _field("", "folder for numbered files of every stage", "LAMINA_DUMP_DIR")
    recompile_limit: int = _field(8, "compiled versions a frame may have before it is generalised or left to eager")
    dynamic: bool | None = _field(
        None,
        "None: sizes, ints and floats become symbolic when they change; True: at once; False: never",
        cache_key=True,
    )
    capture_scalar_outputs: bool = _field(
        False,
        "item(), tolist(), float(tensor) become symbolic numbers in the graph; otherwise they break it",
        cache_key=True,
    )
    capture_dynamic_output_shape: bool = _field(
        False,
        "nonzero, masks and unique stay in the graph with sizes unknown before the run; otherwise they break it",
        cache_key=True,
    )
    inline_depth: int = _field(
        256, "calls that are followed into each other before the graph is broken", cache_key=True
    )
    max_instructions: int = _field(
        2_000_000, "instructions followed in one frame (loops unrolled) before the graph is broken", cache_key=True
    )
    disabled: bool = _field(False, "compile nothing: every optimised function runs in eager", "LAMINA_DISABLE")
    verify: bool = _field(
        False, "check each graph against the contract and each guard program against its Python form", "LAMINA_VERIFY"
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
    defaults = {f.name: f.default for f in dataclasses.fields(Config)}
    for name, value in changes.items():
        if name not in defaults:
            raise TypeError(f"unknown setting {name!r}; known: {', '.join(sorted(defaults))}")
        if not _fits(value, defaults[name]):
            raise TypeError(f"setting {name} takes {_TAKES[type(defaults[name])]}, not {value!r}")
    return dataclasses.replace(config, **changes)


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


def _from_environment() -> Config:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Config):
        env = field.metadata["env"]
        if env is not None and env in os.environ:
            values[field.name] = _parse(env, os.environ[env], field.default)
    return Config(**values)


_default = _from_environment()
_current: contextvars.ContextVar[Config | None] = contextvars.ContextVar("lamina_dynamo_config", default=None)


def get() -> Config:
    """The settings in force here."""
    return _current.get() or _default


@contextlib.contextmanager
def patch(**changes: Any) -> Iterator[Config]:
    """Other settings for a ``with`` block (of this thread or task). Raises TypeError for an unknown name or a
    value of another kind."""
    token = _current.set(_changed(get(), changes))
    try:
        yield get()
    finally:
        _current.reset(token)
