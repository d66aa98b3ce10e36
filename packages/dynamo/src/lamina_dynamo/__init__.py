"""Captures FX graphs from running Python bytecode."""

# The names of these submodules are also those of functions below, which must win: so they are imported before.
from . import capture as _capture
from . import export as _export
from . import graph_break as _graph_break
from .__about__ import __version__
from .backends import get_backend, list_backends, register_backend
from .capture import Capture, capture, explain
from .config import Config, patch
from .counters import counters
from .dynamic import mark_dynamic, mark_static
from .errors import (
    BackendCompilerFailed,
    BackendResultError,
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
from .export import Dim, ExportedProgram, export, load
from .guards.explain import explain_recompile
from .observe import Event, on_event

del _capture, _export, _graph_break

__all__ = [
    "BackendCompilerFailed",
    "BackendResultError",
    "Capture",
    "Config",
    "ConstraintError",
    "ContractError",
    "Dim",
    "DynamoError",
    "Event",
    "ExportError",
    "ExportedProgram",
    "GraphBreakError",
    "InternalError",
    "RecompileLimitError",
    "__version__",
    "allow_in_graph",
    "assume_constant_result",
    "capture",
    "counters",
    "disable",
    "disallow_in_graph",
    "explain",
    "explain_recompile",
    "export",
    "get_backend",
    "graph_break",
    "is_compiling",
    "list_backends",
    "load",
    "mark_dynamic",
    "mark_static",
    "on_event",
    "optimize",
    "patch",
    "register_backend",
    "reset",
    "run",
]
