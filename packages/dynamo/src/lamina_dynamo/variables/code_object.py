"""Code objects."""

from __future__ import annotations

import types
from typing import Any

from .base import VariableTracker
from .builder import wraps_type


class CodeVariable(VariableTracker):
    """A code object."""

    __slots__ = ("value",)
    has_identity = False

    def __init__(self, value: Any, source: Any = None):
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def hash_key(self, tx: Any) -> Any:
        from .keys import ConstantKey

        return ConstantKey(self.value)

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_const(self.value)


@wraps_type(types.CodeType)
def wrap_code(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return CodeVariable(value, source)
