"""Errors of the autograd stage.

AotError                     anything this package raises on its own account
├── TraceError               the graph could not be run on trace tensors
│   ├── DataDependentError   an op's result needs the values of tensors (item, nonzero, ...)
│   └── UnsupportedError     a feature that is deliberately handed back to eager
├── ContractError            a graph breaks the contract of its stage
│   └── CompilerResultError  what a compiler returned, or its callable, is not what the graph has
└── PartitionError           a policy gave an impossible split of a joint graph
"""

from __future__ import annotations

from typing import Any


class AotError(RuntimeError):
    """Base of the tree. Carries `stage`, `node` (FX node or None), `user_line` (source text or None) and `hint`."""

    stage = "aot_autograd"

    def __init__(self, message: str, *, node: Any = None, hint: str | None = None) -> None:
        self.message = message
        self.node = node
        self.user_line = user_line(node)
        self.hint = hint
        lines = [message]
        if node is not None:
            lines.append(f"  at node: {getattr(node, 'name', node)}")
        if self.user_line:
            lines.append(f"  from: {self.user_line}")
        if hint:
            lines.append(f"  hint: {hint}")
        super().__init__("\n".join(lines))


class TraceError(AotError):
    """The graph could not be run on trace tensors."""

    stage = "trace"


class DataDependentError(TraceError):
    """An op's result depends on the values of its inputs."""


class UnsupportedError(TraceError):
    """A feature that this stage hands back to eager on purpose."""


class ContractError(AotError):
    """A graph breaks the contract of its stage."""

    stage = "contract"


class CompilerResultError(ContractError):
    """A compiler returned something that is not callable, or its callable results of another number or kind than the
    graph's. Never handed back to eager: the compiler is to be mended."""


class PartitionError(AotError):
    """A policy gave an impossible split of a joint graph."""

    stage = "partition"


def user_line(node: Any) -> str | None:
    """Last line of the node's stack trace that names a file, or None."""
    trace = getattr(node, "meta", {}).get("stack_trace") if node is not None else None
    if not trace:
        return None
    lines = [line.strip() for line in trace.strip().splitlines() if line.strip()]
    for i in range(len(lines) - 1, -1, -1):
        if lines[i].startswith("File "):
            return " ".join(lines[i : i + 2])
    return lines[-1] if lines else None
