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


_TRUE = {"1", "true", "yes", "on"}


def _from_environment() -> Config:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Config):
        env = field.metadata["env"]
        if env is None or env not in os.environ:
            continue
        text = os.environ[env]
        if isinstance(field.default, bool):
            values[field.name] = text.strip().lower() in _TRUE
        elif isinstance(field.default, int):
            values[field.name] = int(text)
        else:
            values[field.name] = text
    return Config(**values)


_default = _from_environment()
_current: contextvars.ContextVar[Config | None] = contextvars.ContextVar("lamina_dynamo_config", default=None)


def get() -> Config:
    """The settings in force here."""
    return _current.get() or _default


@contextlib.contextmanager
def patch(**changes: Any) -> Iterator[Config]:
    """Other settings for a ``with`` block (of this thread or task). Raises TypeError for an unknown name."""
    token = _current.set(dataclasses.replace(get(), **changes))
    try:
        yield get()
    finally:
        _current.reset(token)
