"""Settings of the umbrella package: one frozen dataclass, read once from the environment, changed with `patch`.

    with lamina.config.patch(strict=True): ...
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

LAYERS = ("lamina_dynamo", "lamina_aot_autograd", "lamina_primtorch", "lamina_inductor")


def _setting(default: Any, doc: str, env: str | None = None, in_cache_key: bool = False) -> Any:
    return field(default=default, metadata={"doc": doc, "env": env, "in_cache_key": in_cache_key})


@dataclass(frozen=True)
class Config:
    """Every field has `doc`, `env` (name of the environment variable or None) and `in_cache_key` in its metadata."""

    strict: bool = _setting(False, "Raise where a stage would fall back to eager.", "LAMINA_STRICT")
    logs: str = _setting("", "Comma-separated artifacts to print, see lamina.logs.ARTIFACTS.", "LAMINA_LOGS")
    dump_dir: str = _setting("", "Folder for numbered, runnable files of every stage.", "LAMINA_DUMP_DIR")
    cache_dir: str = _setting("", "Folder of compiled kernels; empty: the per-user default.", "LAMINA_CACHE_DIR")
    progress: str = _setting(
        "auto", "Progress line for slow compiles: auto (on a terminal), on, off.", "LAMINA_PROGRESS"
    )
    progress_after: float = _setting(2.0, "Seconds a compile takes before the progress line shows.")
    failure_script: bool = _setting(
        True, "Write a script that repeats the failure, without user data, when a stage fails.", "LAMINA_FAILURE_SCRIPT"
    )
    failure_seconds: float = _setting(
        3.0, "Seconds spent on making that script short; 0 keeps the whole graph.", "LAMINA_FAILURE_SECONDS"
    )


_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False,
          "": False}
TAKES = {bool: "True or False", int: "an integer", float: "a number", str: "text", type(None): "None, True or False"}


def fits(value: Any, default: Any) -> bool:
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
        if not fits(value, defaults[name]):
            raise TypeError(f"setting {name} takes {TAKES[type(defaults[name])]}, not {value!r}")
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
            f"{env}={text!r}: it takes {words if isinstance(default, bool) else TAKES[type(default)]}"
        ) from None


def from_environment() -> Config:
    """Build a Config from the environment variables that its fields name."""
    values = {}
    for f in fields(Config):
        env = f.metadata["env"]
        if env and os.environ.get(env) is not None:
            values[f.name] = _parse(env, os.environ[env], f.default)
    return Config(**values)


_base = from_environment()
_patched: ContextVar[Config | None] = ContextVar("lamina_config", default=None)


def current() -> Config:
    """Return the settings in force here."""
    return _patched.get() or _base


SHARED = ("strict", "dump_dir", "cache_dir")
"""Settings that the layers have under the same name: a patch reaches the layers that are loaded, too."""


@contextlib.contextmanager
def patch(**changes: Any) -> Iterator[Config]:
    """Use other values inside a with-block; TypeError for a name that is no setting or a value of another kind."""
    token = _patched.set(_changed(current(), changes))
    try:
        with contextlib.ExitStack() as layers:
            for layer in LAYERS:
                config = sys.modules.get(f"{layer}.config")
                if config is not None:
                    have = {f.name for f in fields(config.Config)}
                    shared = {k: v for k, v in changes.items() if k in SHARED and k in have}
                    if shared:
                        layers.enter_context(config.patch(**shared))
            yield current()
    finally:
        _patched.reset(token)


def describe() -> str:
    """Return one line per setting: name, value, environment variable, meaning."""
    now = current()
    return "\n".join(
        f"{f.name:15} {getattr(now, f.name)!r:10} {f.metadata['env'] or '-':22} {f.metadata['doc']}"
        for f in fields(Config)
    )


def server_environment() -> dict[str, str]:
    """Return the environment of a Python process that imports what this one can import."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def user_cache_folder() -> Path:
    """Return the per-user default of the cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "lamina"
