"""A bound method of an object whose tracker answers ``call_method``."""

from __future__ import annotations

from typing import Any

from .base import VariableTracker


class OwnerMethodVariable(VariableTracker):
    """``owner.name``, taken without being called; ``kind`` is the type of the real method."""

    __slots__ = ("kind", "name", "owner")

    def __init__(self, owner: VariableTracker, name: str, kind: type | None = None):
        self.source = None
        self.owner = owner
        self.name = name
        self.kind = kind

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return self.owner.call_method(tx, self.name, args, kwargs)

    def python_type(self) -> type:
        return super().python_type() if self.kind is None else self.kind

    def children(self) -> Any:
        return (self.owner,)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.owner)
        codegen.load_attr(self.name)
