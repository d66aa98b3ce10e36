"""Values known while translating: what all trackers of them have in common."""

from __future__ import annotations

from typing import Any

from .base import VariableTracker


class KnownVariable(VariableTracker):
    """The tracker of a value that is at hand while translating and stays the same object in every run."""

    __slots__ = ("value",)
    has_identity = False

    def __init__(self, value: Any, source: Any = None):
        self.value = value
        self.source = source

    def python_type(self) -> type:
        return type(self.value)

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def truth(self, tx: Any) -> bool | None:
        return True

    def hash_key(self, tx: Any) -> Any:
        from .keys import ConstantKey

        return ConstantKey(self.value)

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_const(self.value)
