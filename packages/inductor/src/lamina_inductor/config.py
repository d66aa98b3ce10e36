"""Settings of this package: one frozen dataclass, changed for a block of code by `patch`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import Any


def _setting(default: Any, doc: str, env: str = "", key: bool = False) -> Any:
    return field(default=default, metadata={"doc": doc, "env": env, "key": key})


@dataclass(frozen=True)
class Config:
    """See each field's metadata: `doc`, `env` (name of the environment variable), `key` (belongs to the cache key)."""

    strict: bool = _setting(False, "raise where a stage would fall back to eager", "LAMINA_STRICT")
    cache_dir: str = _setting("", "folder of compiled kernels; empty: a private one of the user", "LAMINA_CACHE_DIR")
    dump_dir: str = _setting("", "write every stage there as numbered files", "LAMINA_DUMP_DIR")
    target: str = _setting("", "name of the target; empty: by the device of the inputs", "LAMINA_TARGET", True)
    fusion: bool = _setting(True, "merge loops into common kernels", "LAMINA_FUSION", True)
    inline_ops: int = _setting(64, "arithmetic ops a value may inline before its producers are stored", "", True)
    inline_reads: int = _setting(12, "loads a value may inline before its producers are stored", "", True)
    scratch_bytes: int = _setting(65536, "largest row kept in scratch memory between phases of a kernel", "", True)
    arena_bytes: int = _setting(1 << 20, "largest buffer that is placed in the arena", "", True)
    compile_jobs: int = _setting(0, "kernels compiled at the same time; 0: number of processors", "LAMINA_COMPILE_JOBS")
    cxx: str = _setting("", "C++ compiler; empty: the first that works", "LAMINA_CXX", True)
    cudagraphs: bool = _setting(False, "replay the launches of a CUDA graph as one", "", False)
    max_autotune: bool = _setting(False, "measure block sizes and templates on the device", "", True)
    check_inputs: bool = _setting(True, "compare inputs of a call with what was compiled for", "LAMINA_CHECK_INPUTS")
    threads: int = _setting(0, "threads a kernel may use; 0: torch.get_num_threads()", "", False)


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


def _from_environment() -> Config:
    values: dict[str, Any] = {}
    for f in fields(Config):
        text = os.environ.get(f.metadata["env"]) if f.metadata["env"] else None
        if text is not None:
            values[f.name] = _parse(f.metadata["env"], text, f.default)
    return Config(**values)


_current: ContextVar[Config | None] = ContextVar("lamina_inductor_config", default=None)


def current() -> Config:
    """The settings in force: those of the innermost `patch`, else the environment's."""
    found = _current.get()
    return found if found is not None else _from_environment()


@contextmanager
def patch(**changes: Any) -> Iterator[Config]:
    """Changes settings inside a ``with`` block (this thread and its context only). TypeError for an unknown name or a
    value of another kind."""
    token = _current.set(_changed(current(), changes))
    try:
        yield current()
    finally:
        _current.reset(token)


def compiler_environment() -> dict[str, str]:
    """The environment a compiler runs in: this process's, with messages in plain English."""
    return {**os.environ, "LC_ALL": "C"}


def worker_environment() -> dict[str, str]:
    """The environment of a process that compiles kernels: it sees no device, so that it takes no device memory."""
    return {**os.environ, "CUDA_VISIBLE_DEVICES": ""}


def key_fields(config: Config) -> tuple[tuple[str, Any], ...]:
    """The settings that change generated code."""
    return tuple((f.name, getattr(config, f.name)) for f in fields(Config) if f.metadata["key"])
