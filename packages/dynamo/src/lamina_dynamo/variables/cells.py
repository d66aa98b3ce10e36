"""Closure cells."""

from __future__ import annotations

import types
from typing import Any

from .attributes import DELETED
from .base import VariableTracker
from .builder import wraps_type


class CellVariable(VariableTracker):
    """A closure cell.  `contents` None means not read yet (cell from outside) or empty (new cell)."""

    __slots__ = ("contents", "is_empty", "real")
    is_mutable = True

    def __init__(self, contents: VariableTracker | None = None, source: Any = None, real: Any = None):
        super().__init__(source)
        self.contents = contents
        self.real = real
        self.is_empty = contents is None

    def python_type(self) -> type:
        return types.CellType

    def get_member(self, tx: Any, name: str) -> VariableTracker | None:
        if name == "cell_contents":
            value = tx.output.side_effects.load_cell(self)
            if value is None:
                tx.raise_exception(ValueError, "Cell is empty")
            return value
        return None

    def set_member(self, tx: Any, name: str, value: VariableTracker) -> bool:
        if name != "cell_contents":
            return False
        tx.output.side_effects.store_cell(self, value)
        return True

    def children(self) -> Any:
        return (self.contents,) if isinstance(self.contents, VariableTracker) else ()

    def reconstruct(self, codegen: Any) -> None:
        if self.real is not None:  # of a function that translation met without a path to it
            codegen.load_global_alias("cell", self.real)
            return
        codegen.push_function(types.CellType)
        codegen.call_function(0)
        codegen.remember(self)
        codegen.output.side_effects.pending_fill.append(self)

    def fill(self, codegen: Any) -> None:
        if self.contents is not None and self.contents is not DELETED:
            codegen.push_function(set_cell)
            codegen(self)
            codegen(self.contents)
            codegen.call_function(2)
            codegen.pop()


def set_cell(cell: types.CellType, value: Any) -> None:
    """Stores into a cell, for generated code."""
    cell.cell_contents = value


def clear_cell(cell: types.CellType) -> None:
    """Empties a cell, for generated code."""
    del cell.cell_contents


@wraps_type(types.CellType)
def wrap_cell(tx: Any, value: Any, source: Any) -> VariableTracker:
    return CellVariable(None, source, real=value)
