"""Strings with symbolic numbers in them (``f"height {h}"``): spelt out by the run, or when the program looks inside.

Most such strings are messages that nobody reads; formatting them must not fix the number they mention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .base import VariableTracker
from .constant import ConstantVariable


class TextVariable(VariableTracker):
    """A str made of pieces: plain strings, and (symbolic number, format specification)."""

    __slots__ = ("pieces",)
    has_identity = False

    def __init__(self, pieces: list[Any]):
        super().__init__(None)
        self.pieces = pieces

    def python_type(self) -> type:
        return str

    def specialize(self, tx: Any) -> VariableTracker:
        """The string as a constant, under guards on its numbers."""
        parts = [p if isinstance(p, str) else format(p[0].known(p[0].python_type()), p[1]) for p in self.pieces]
        return tx.const("".join(parts))

    def text(self, tx: Any) -> str:
        """`str(self)`."""
        return str(self.specialize(tx).as_python_constant())

    def children(self) -> Any:
        return [p[0] for p in self.pieces if not isinstance(p, str)]

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(spell)
        codegen.load_const(tuple(p if isinstance(p, str) else (p[1],) for p in self.pieces))
        for number in self.children():
            codegen(number)
        codegen.call_function(1 + len(self.children()))

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        return self.specialize(tx).get_attr(tx, name)

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        return self.specialize(tx).call_method(tx, name, args, kwargs)

    def call_builtin_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        return self.specialize(tx).call_builtin_method(tx, name, args, kwargs)

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        return self.specialize(tx).get_item(tx, key)

    def contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        return self.specialize(tx).contains(tx, item)

    def length(self, tx: Any) -> VariableTracker:
        return self.specialize(tx).length(tx)

    def iterate(self, tx: Any) -> VariableTracker:
        return self.specialize(tx).iterate(tx)

    def unpack(self, tx: Any) -> list[VariableTracker]:
        return self.specialize(tx).unpack(tx)

    def truth(self, tx: Any) -> bool | None:
        return self.specialize(tx).truth(tx)

    def hash_key(self, tx: Any) -> Any:
        return self.specialize(tx).hash_key(tx)

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        return self.specialize(tx).binary_op(tx, op, other, reflected)


def spell(pieces: tuple[Any, ...], *numbers: Any) -> str:
    """The string of a `TextVariable`, for generated code: a tuple holds the specification of the next number."""
    values = iter(numbers)
    return "".join([p if isinstance(p, str) else format(next(values), p[0]) for p in pieces])


def formatted(value: VariableTracker, spec: VariableTracker) -> VariableTracker | None:
    """``format(value, spec)`` of a symbolic number, or of a string that holds some; None for other values."""
    if not spec.is_python_constant():
        return None
    how = spec.as_python_constant()
    if isinstance(value, TextVariable):
        return value if not how else None
    if getattr(value, "is_symbolic_number", False) and type(how) is str:
        return TextVariable([(value, how)])
    return None


def joined(parts: list[VariableTracker]) -> VariableTracker | None:
    """The concatenation of strings of which some hold symbolic numbers; None if none does."""
    if not any(isinstance(p, TextVariable) for p in parts):
        return None
    pieces: list[Any] = []
    for part in parts:
        if isinstance(part, TextVariable):
            pieces += part.pieces
        elif isinstance(part, ConstantVariable) and type(part.value) is str:
            pieces.append(part.value)
        else:
            return None
    return TextVariable(pieces)
