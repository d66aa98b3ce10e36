"""From torch's sizes to our expressions: the only place that looks inside a SymInt."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch

from .errors import UnsupportedGraph
from .index import INF, Expr, const, floordiv, maximum, minimum, mod, symbol


class SizeTable:
    """Turns ints and SymInts into expressions and remembers the ranges of the symbols."""

    def __init__(self) -> None:
        self.symbols: dict[str, Expr] = {}

    def expr(self, value: Any) -> Expr:
        """The expression of an int, SymInt or Expr; UnsupportedGraph for what integer expressions cannot say."""
        if isinstance(value, Expr):
            return value
        if isinstance(value, (bool, int)):
            return const(value)
        if isinstance(value, torch.SymInt):
            node = value.node
            expr = getattr(node, "expr", None)
            if expr is None:
                return const(int(value))
            return self._walk(expr, getattr(node, "shape_env", None))
        raise UnsupportedGraph(f"size of type {type(value).__name__}")

    def exprs(self, values: Any) -> tuple[Expr, ...]:
        """`expr` of each."""
        return tuple(self.expr(v) for v in values)

    def _symbol(self, s: Any, env: Any) -> Expr:
        name = str(s)
        found = self.symbols.get(name)
        if found is None:
            lo, hi = 0, INF
            bounds = getattr(env, "var_to_range", {}).get(s) if env is not None else None
            if bounds is not None:
                lo, hi = _bound(bounds.lower, -INF), _bound(bounds.upper, INF)
            found = self.symbols[name] = symbol(name, lo=lo, hi=hi)
        return found

    def _walk(self, e: Any, env: Any) -> Expr:
        if e.is_Integer:
            return const(int(e))
        if e.is_Symbol:
            return self._symbol(e, env)
        kind = type(e).__name__
        if kind == "Pow" and e.args[1].is_Integer and int(e.args[1]) > 0:
            base = self._walk(e.args[0], env)
            return reduce(lambda a, b: a * b, [base] * int(e.args[1]))
        args = None if kind == "Pow" else [self._walk(a, env) for a in e.args]
        if args is not None:
            if kind == "Add":
                return reduce(lambda a, b: a + b, args)
            if kind == "Mul":
                return reduce(lambda a, b: a * b, args)
            if kind in ("FloorDiv", "CleanDiv"):
                return floordiv(*args)
            if kind in ("Mod", "PythonMod"):
                return mod(*args)
            if kind == "Max":
                return reduce(maximum, args)
            if kind == "Min":
                return reduce(minimum, args)
            if kind == "ModularIndexing":
                return mod(floordiv(args[0], args[1]), args[2])
        raise UnsupportedGraph(f"size expression {e}", hint="only + - * // % min max of sizes are understood")


def _bound(value: Any, default: int) -> int:
    try:
        return min(max(int(value), -INF), INF)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return default
