"""Settings of this package: one frozen record, its environment names, and `patch()`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


def _field(default: Any, doc: str, env: str | None = None, key: bool = True) -> Any:
    return dataclasses.field(default=default, metadata={"doc": doc, "env": env, "in_cache_key": key})


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each field's metadata has `doc`, `env` and `in_cache_key`."""

    strict: bool = _field(False, "raise internal errors instead of falling back to eager", "LAMINA_STRICT", False)
    dump_dir: str = _field("", "folder for numbered files with each stage's graph", "LAMINA_DUMP_DIR", False)
    partitioner: str = _field(
        "min_cut", "policy when none is given: default, min_cut or save_everything", "LAMINA_AOT_PARTITIONER"
    )
    memory_budget: float = _field(
        1.0, "saved bytes allowed: a share of eager's when at most 1, bytes otherwise", "LAMINA_AOT_MEMORY_BUDGET"
    )
    eager_backward_compile: bool = _field(
        False, "compile the backward graph at once, not at the first backward", "LAMINA_AOT_EAGER_BACKWARD", False
    )
    save_extra_inputs: bool = _field(
        False, "let the partitioner save inputs that eager would not (a later write to one then raises)"
    )
    regions: bool = _field(
        True, "trace repeated layers once, for compilers that take calls of regions", "LAMINA_AOT_REGIONS"
    )
    copy_limit: int = _field(
        1 << 20, "bytes up to which an input that the program writes to is copied for gradients of gradients",
        "LAMINA_AOT_COPY_LIMIT",
    )
    own_rules: bool = _field(True, "use this package's shape rules before any fallback")
    installed_rules: bool = _field(True, "use shape rules offered through the entry point group lamina.shape_rules")


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


def from_environment() -> Config:
    """The defaults, overridden by the environment variables that are set now."""
    values = {}
    for field in dataclasses.fields(Config):
        env = field.metadata["env"]
        if env and env in os.environ:
            values[field.name] = _parse(env, os.environ[env], field.default)
    return Config(**values)


_base = from_environment()
_current: ContextVar[Config | None] = ContextVar("lamina_aot_config", default=None)


def get() -> Config:
    """The settings in force in this context."""
    return _current.get() or _base


@contextmanager
def patch(**changes: Any) -> Iterator[Config]:
    """Change settings inside a with block, for this context (thread, task) only. TypeError for an unknown name or a
    value of another kind."""
    config = _changed(get(), changes)
    token = _current.set(config)
    try:
        yield config
    finally:
        _current.reset(token)


def cache_key() -> tuple[Any, ...]:
    """The values that change what is compiled."""
    config = get()
    return tuple((f.name, getattr(config, f.name)) for f in dataclasses.fields(Config) if f.metadata["in_cache_key"])
