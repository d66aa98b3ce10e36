"""Errors of this package.

    InductorError
    ├── LoweringError        a node cannot be turned into loop-level IR (the node then stays an extern call)
    │   └── UnsupportedGraph the whole graph cannot be handled (the caller runs it in eager mode)
    ├── ScheduleError        an invariant of the scheduler is broken
    ├── InputError           a compiled graph is called with inputs that it was not compiled for
    ├── ContractError        a graph or program breaks the contract of this package
    └── TargetError          a target cannot generate, compile or load code
        └── TargetUnavailable no compiler, no device

Each carries `stage`, `node` (name of the graph node), `source` (the user's line) and `hint`.
"""

from __future__ import annotations


class InductorError(Exception):
    """Base of all errors of this package."""

    stage = "inductor"

    def __init__(self, message: str, *, node: str = "", source: str = "", hint: str = "") -> None:
        self.message, self.node, self.source, self.hint = message, node, source, hint
        parts = [message]
        if node:
            parts.append(f"node: {node}")
        if source:
            parts.append(f"source: {source}")
        if hint:
            parts.append(f"hint: {hint}")
        super().__init__("\n  ".join(parts))


class LoweringError(InductorError):
    """A node cannot be turned into loop-level IR."""

    stage = "lowering"


class UnsupportedGraph(LoweringError):
    """The whole graph cannot be handled here."""


class ScheduleError(InductorError):
    """An invariant of the scheduler is broken."""

    stage = "schedule"


class InputError(InductorError):
    """A compiled graph is called with inputs of other sizes, strides or dtypes than it was compiled for."""

    stage = "call"


class ContractError(InductorError):
    """A graph or program breaks the contract."""

    stage = "contract"


class TargetError(InductorError):
    """A target cannot generate, compile or load code."""

    stage = "target"


class TargetUnavailable(TargetError):
    """A target cannot work on this machine."""
