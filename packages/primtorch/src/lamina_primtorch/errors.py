"""Errors of this package.

PrimTorchError
├── DecompositionError   a node cannot be expressed; the driver then keeps the ATen call
└── ContractError        a graph breaks the contract of decomposed graphs
"""

from __future__ import annotations

from typing import Any


class PrimTorchError(Exception):
    """Base. ``stage``, ``node`` (FX node or None), ``source_line`` (user file and line, if known), ``hint``."""

    stage = "primtorch"

    def __init__(self, message: str, node: Any = None, hint: str = "") -> None:
        self.node = node
        self.hint = hint
        trace = node.meta.get("stack_trace") if node is not None and hasattr(node, "meta") else None
        self.source_line = trace.strip().splitlines()[0].strip() if trace else None
        parts = [message]
        if node is not None:
            parts.append(f"node: {node.format_node() if hasattr(node, 'format_node') else node}")
        if self.source_line:
            parts.append(f"from: {self.source_line}")
        if hint:
            parts.append(f"hint: {hint}")
        super().__init__("\n".join(parts))


class DecompositionError(PrimTorchError):
    """A node cannot be expressed in prims."""


class ContractError(PrimTorchError):
    """A decomposed graph breaks its contract."""
