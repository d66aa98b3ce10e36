"""Decomposes ATen operators into a small closed set of prims."""

from typing import Any

from . import prims
from .__about__ import __version__
from .contract import CONTRACT_VERSION, check_graph
from .decompose import decompose
from .observe import on_event
from .spec import PRIMS, OpSpec, Prim, TensorMeta
from .tables import decomposition_table
from .value import Value

__all__ = [
    "CONTRACT_VERSION",
    "PRIMS",
    "OpSpec",
    "Prim",
    "TensorMeta",
    "Value",
    "__version__",
    "check_graph",
    "collect_graphs",
    "completeness",
    "coverage",
    "decompose",
    "decomposition_table",
    "on_event",
    "prims",
    "prims_needed",
]


def coverage() -> Any:
    """What becomes of every ATen overload of the running torch; ``print(coverage())`` shows the table (see
    ``report.Coverage``).
    """
    from .report import coverage as run

    return run()


def completeness(graphs: Any, implemented: Any = ()) -> Any:
    """What a backend must implement to run ``graphs`` (name -> graph of ATen or of prims, or a list) and which of it is
    not in ``implemented``, names or a predicate. ``print(...)`` shows the report (see ``backend_needs.Completeness``).
    """
    from .backend_needs import completeness as run

    return run(graphs, implemented)


def collect_graphs() -> Any:
    """A block that gathers, by number, the graphs decomposed inside it: ``with collect_graphs() as graphs:``."""
    from .backend_needs import collect_graphs as run

    return run()


def prims_needed(graphs: Any) -> Any:
    """Counts of the prims and kept overloads in decomposed graphs: what a backend must implement to run them."""
    from .report import prims_needed as run

    return run(graphs)
