"""Symbolic sizes as graph nodes: an argument that is a SymInt must refer to the node that computes it.

A size is found among placeholders and recorded scalar nodes, read off a tensor that has it as a dimension, or built
from such parts by
Python arithmetic. sympy objects are only looked at here, and only if a graph has symbolic sizes (sympy is then loaded
already).
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from .errors import DecompositionError
from .record import Recorder, Row
from .value import Value

_FUNCTIONS = {
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Max": torch.sym_max,
    "Min": torch.sym_min,
    "PowByNatural": operator.pow,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "ToFloat": torch.sym_float,
}


class Symbols:
    """Finds or makes the rows that compute symbolic expressions."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.dims: dict[Any, tuple[Row, str, int]] = {}

    def note(self, value: Value, row: Row) -> None:
        """Remember the plain symbols among the sizes and strides of an input."""
        for what, seq in (("size", value.shape), ("stride", value._stride)):
            for d, n in enumerate(seq):
                if type(n) is not int:
                    expr = n.node.expr
                    if expr not in self.dims:
                        self.dims[expr] = (row, what, d)

    def row(self, n: Any) -> Any:
        """The row (or plain number) for a SymInt, SymFloat or SymBool."""
        return self._of(n.node.expr)

    def _of(self, expr: Any) -> Any:
        rows = self.recorder.symbols
        found = rows.get(expr)
        if found is not None and not (expr in self.dims and self._is_computed(found)):
            return found
        if expr.is_Integer:
            return int(expr)
        if expr.is_Float or expr.is_Rational:
            return float(expr)
        if expr in self.dims:
            source, what, d = self.dims[expr]
            aten = torch.ops.aten
            op = aten.sym_size.int if what == "size" else aten.sym_stride.int
            made = self._add(op, (source, d), expr)
        elif expr.is_Add or expr.is_Mul:
            fold = operator.add if expr.is_Add else operator.mul
            parts = [self._of(a) for a in expr.args]
            made = parts[0]
            for k, part in enumerate(parts[1:], 2):
                made = self._add(fold, (made, part), expr if k == len(parts) else None)
        elif expr.is_Pow and expr.args[1].is_Integer:
            made = self._add(operator.pow, (self._of(expr.args[0]), int(expr.args[1])), expr)
        elif type(expr).__name__ in _FUNCTIONS:
            parts = [self._of(a) for a in expr.args]
            made = parts[0] if len(parts) > 1 else self._add(_FUNCTIONS[type(expr).__name__], (parts[0],), expr)
            for part in parts[1:]:
                made = self._add(_FUNCTIONS[type(expr).__name__], (made, part), None)
        else:
            raise DecompositionError(f"no node of the graph computes the size {expr}")
        rows[expr] = made
        return made

    def _is_computed(self, row: Row) -> bool:
        """Whether the number was computed, perhaps from the very size that it equals: ``int(1.0 * size)``."""
        return row.op == "call_function" and not str(row.target).startswith("aten.sym_")

    def _add(self, target: Any, args: tuple[Any, ...], expr: Any) -> Row:
        row = Row(target, args, {}, self.recorder.source)
        self.recorder.rows.append(row)
        source = args[0].meta if type(args[0]) is Row else args[0]
        if target is torch.ops.aten.sym_size.int:
            row.meta = source.shape[args[1]]
        elif target is torch.ops.aten.sym_stride.int:
            row.meta = source.stride()[args[1]]
        else:
            row.meta = target(*[a.meta if type(a) is Row else a for a in args])
        return row
