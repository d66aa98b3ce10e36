"""Turns an FX graph into functional forward and backward graphs."""

from .__about__ import __version__
from .api import aot_compile, partition, trace_joint
from .contract import CONTRACT_VERSION, check_graph
from .errors import AotError
from .module_graph import parameters_as_inputs
from .observe import Event, on_event
from .partition import POLICIES as PARTITIONERS
from .printing import code_of
from .schemas import JointGraph
from .wrappers.boxing import make_boxed, run_eagerly

__all__ = [
    "CONTRACT_VERSION",
    "PARTITIONERS",
    "AotError",
    "Event",
    "JointGraph",
    "__version__",
    "aot_compile",
    "check_graph",
    "code_of",
    "make_boxed",
    "on_event",
    "parameters_as_inputs",
    "partition",
    "run_eagerly",
    "trace_joint",
]
