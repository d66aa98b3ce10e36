"""Captures FX graphs from running Python bytecode."""

from . import graph_break as _breaks  # first: the submodule's name is also that of a function below, which must win
from .__about__ import __version__
from .backends import get_backend, list_backends, register_backend
from .config import Config, patch
from .counters import counters
from .dynamic import mark_dynamic, mark_static
from .errors import (
    BackendCompilerFailed,
    ConstraintError,
    ContractError,
    DynamoError,
    ExportError,
    GraphBreakError,
    InternalError,
    RecompileLimitError,
)
from .eval_frame import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    graph_break,
    is_compiling,
    optimize,
    reset,
    run,
)
from .guards.explain import explain_recompile
from .observe import Event, on_event

del _breaks

__all__ = [
    "BackendCompilerFailed", "Config", "ConstraintError", "ContractError", "DynamoError", "Event", "ExportError", "GraphBreakError", "InternalError",
    "RecompileLimitError", "__version__", "allow_in_graph", "assume_constant_result", "counters", "disable", "disallow_in_graph", "explain_recompile",
    "get_backend", "graph_break", "is_compiling", "list_backends", "mark_dynamic", "mark_static", "on_event", "optimize", "patch", "register_backend",
    "reset", "run",
]  # fmt: skip
