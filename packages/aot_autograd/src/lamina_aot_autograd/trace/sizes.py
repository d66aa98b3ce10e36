"""Symbolic sizes as graph nodes: a SymInt of the trace becomes `sym_size` nodes and arithmetic on them."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
import torch.fx as fx

from ..errors import UnsupportedError

aten = torch.ops.aten


def size_hint(n: Any) -> int:
    """A size as it is in the example that is traced, without a guard on it."""
    return n.node.hint if isinstance(n, torch.SymInt) else n


def outside_size() -> int:
    """Stands in the graph of a region for a size that only the graph around it knows."""
    raise RuntimeError("a region of a graph does not run alone")


class SizeNodes:
    """Maps symbols to the graph values they come from, and expressions of symbols to nodes."""

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer
        self.symbols: dict[Any, tuple[Any, fx.Node, int]] = {}
        self.cache: dict[Any, fx.Node] = {}
        self.outer: SizeNodes | None = None  # of the graph that this one is a part of

    def add_source(self, value: Any, node: fx.Node, dim: int = -1) -> None:
        """`value` (SymInt) is the value of `node` (dim < 0) or the size of `node` in `dim`."""
        if not isinstance(value, torch.SymInt):
            return
        expr = value.node.expr
        if not expr.is_Symbol:
            return
        known = self.symbols.get(expr)
        if known is None or (known[2] >= 0 and dim < 0):
            self.symbols[expr] = (value, node, dim)

    def node_of(self, value: Any) -> Any:
        """Graph argument for a SymInt, SymFloat or SymBool; a plain number where the expression is one."""
        expr = value.node.expr
        if isinstance(value, torch.SymBool):
            return bool(value) if not expr.free_symbols else self._build(expr, value)
        if expr.is_number:  # the kind of the number counts: torch gives a SymFloat of 1.5 as the int 1 when asked
            return float(expr) if isinstance(value, torch.SymFloat) else int(expr)
        return self._build(expr, value)

    def _build(self, expr: Any, value: Any) -> Any:
        known = self.cache.get(expr)
        if known is not None:
            return known
        if expr.is_Integer:
            return int(expr)
        if expr.is_number:
            return float(expr)
        if expr.is_Symbol:
            source = self.symbols.get(expr)
            if source is None and self.outer is not None and expr in self.outer.symbols:
                size = self.outer.symbols[expr][0]  # whoever copies this graph asks the outer one for it
                node = self.cache[expr] = self._record("size", outside_size, (), size)
                return node
            if source is None:
                raise UnsupportedError(f"a symbolic size {expr} with no input that has it")
            sym, node, dim = source
            if dim >= 0:
                node = self._record("sym_size", aten.sym_size.int, (node, dim), sym)
        else:
            node = self._build_call(expr, value)
        self.cache[expr] = node
        return node

    def _record(self, name: str, func: Any, args: tuple, val: Any) -> fx.Node:
        phase, self.tracer.phase = self.tracer.phase, "forward"
        try:
            return self.tracer.record(name, func, args, {}, val)
        finally:
            self.tracer.phase = phase

    def _val(self, item: Any) -> Any:
        return item.meta["val"] if isinstance(item, fx.Node) else item

    def _call(self, name: str, func: Any, *args: Any) -> fx.Node:
        return self._record(name, func, args, func(*[self._val(a) for a in args]))

    def _build_call(self, expr: Any, value: Any) -> Any:
        kind = type(expr).__name__
        parts = [self._build(arg, None) for arg in expr.args]
        folded = {"Add": ("add", operator.add), "Mul": ("mul", operator.mul)}
        if kind in folded:
            name, func = folded[kind]
            result = parts[0]
            for part in parts[1:]:
                result = self._call(name, func, result, part)
            return result
        binary = {
            "FloorDiv": operator.floordiv,
            "CleanDiv": operator.floordiv,
            "Mod": operator.mod,
            "PythonMod": operator.mod,
            "Pow": operator.pow,
            "PowByNatural": operator.pow,
            "IntTrueDiv": operator.truediv,
            "FloatTrueDiv": operator.truediv,
            "FloatPow": operator.pow,
            "LShift": operator.lshift,
            "RShift": operator.rshift,
        }
        if kind in binary:
            return self._call(kind.lower(), binary[kind], *parts)
        if kind in ("Max", "Min"):
            func = torch.sym_max if kind == "Max" else torch.sym_min
            result = parts[0]
            for part in parts[1:]:
                result = self._call(kind.lower(), func, result, part)
            return result
        unary = {
            "ToFloat": torch.sym_float,
            "TruncToInt": math.trunc,
            "FloorToInt": math.floor,
            "CeilToInt": math.ceil,
            "Abs": operator.abs,
        }
        if kind in unary:
            return self._call(kind.lower(), unary[kind], parts[0])
        if kind.startswith("OpaqueUnaryFn_"):
            function = getattr(torch, "_sym_" + kind.removeprefix("OpaqueUnaryFn_"), None)
            if function is not None:
                return self._call(kind.lower(), function, parts[0])
        if kind == "ModularIndexing":
            return self._call(
                "mod", operator.mod, self._call("floordiv", operator.floordiv, parts[0], parts[1]), parts[2]
            )
        raise UnsupportedError(f"symbolic size {expr}")
