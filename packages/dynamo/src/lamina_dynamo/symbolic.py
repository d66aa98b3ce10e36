"""Symbolic sizes and ints of one translation: torch's ShapeEnv, and its findings as guards of ours.

A size that varies becomes a symbol whose source is ``tensor.size(dim)``. What the translation asked about symbols
(comparisons, divisibility,
equality by broadcasting) is kept by the ShapeEnv as expressions; ``guards`` prints them over the sources.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch

from . import _torch as private
from . import fake as fakes
from .dynamic import LARGEST_SYMBOLIC
from .guards import Guard, ShapeExpr, TensorExpect
from .source import TensorMetaSource

_UNBOUNDED = 1 << 64
_LONGEST = 1 << 40  # no tensor is as long in one dimension


class Symbols:
    """The symbols of one translation."""

    def __init__(self, output: Any):
        self.output = output
        self.env = private.shape_env_class()(
            duck_shape=False,
            specialize_zero_one=True,
            # What only the run knows is a symbol where the settings ask for it, whatever else is symbolic.
            allow_scalar_outputs=output.captures(scalar=True),
            allow_dynamic_output_shape_ops=output.config.capture_dynamic_output_shape,
        )
        fakes.use_shape_env(self.env)
        self.sources: dict[Any, Any] = {}
        #: symbol -> the number it stands for in this translation
        self.values: dict[str, Any] = {}
        self.extra: list[Guard] = []
        #: symbols of floats -> the guard that the number is finite, once something was concluded from it
        self._finite: dict[str, Guard | None] = {}
        self._magnitudes: dict[Any, int] = {}
        #: expressions guarded to fit into machine words
        self._within: set[Any] = set()

    @contextlib.contextmanager
    def suppose_large(self) -> Iterator[None]:
        """Rules of operators may take sizes that only the run knows for 2 or more."""
        self.env.supposes_large = True
        try:
            yield
        finally:
            self.env.supposes_large = False

    def _symbol(self, source: Any, value: int, positive: bool, low: Any = None, high: Any = None) -> Any:
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        key = private.symbol_source(source.name)
        symbol = self.env.create_symbol(
            value,
            source=key,
            dynamic_dim=DimDynamic.DYNAMIC,
            constraint_dim=None,
            positive=positive or None,
            do_not_specialize_zero_one=not positive,
        )
        self.sources[str(symbol)] = source
        self.values[str(symbol)] = value
        node = self.env.create_symintnode(symbol, hint=value, source=key)
        if low is not None or high is not None:
            self._bound(source, low, high)
            torch._check(node >= (low or 0))
            if high is not None:
                torch._check(node <= high)
        return node

    def _bound(self, source: Any, low: Any, high: Any) -> None:
        parts = ([f"{low} <= a"] if low is not None else []) + ([f"a <= {high}"] if high is not None else [])
        text = " and ".join(parts)
        self.extra.append(Guard((source,), "SHAPE_EXPR", ShapeExpr(text, ("a",), text.replace("a", source.name))))

    def tensor(
        self, value: torch.Tensor, source: Any, dims: frozenset[int], varying: frozenset[int] = frozenset()
    ) -> Any:
        """A fake of ``value`` whose sizes at ``dims`` are symbols, and its strides at ``varying`` where they do not
        follow from the sizes; records its TENSOR guard.
        """
        bounds = self.output.frame_state.bounds
        sizes: list[Any] = [int(n) for n in value.shape]
        for dim in sorted(dims):
            low, high = bounds(value, dim)
            sizes[dim] = self._symbol(TensorMetaSource(source, "size", dim), sizes[dim], True, low, high)
        strides, free = self._strides(value, source, sizes, dims)
        for dim in sorted(varying - free):
            if type(strides[dim]) is int:
                strides[dim] = self._symbol(TensorMetaSource(source, "stride", dim), strides[dim], True)
                free.add(dim)
        expect = TensorExpect.of(value, dynamic_sizes=dims, dynamic_strides=free)
        self.output.guard(source, "TENSOR", expect)
        return fakes.from_real(value, tuple(sizes), tuple(strides))

    def _strides(
        self, value: torch.Tensor, source: Any, sizes: list[Any], dims: frozenset[int]
    ) -> tuple[list[Any], set[int]]:
        """Strides in terms of the symbolic sizes where the layout is dense; each such relation is guarded."""
        strides: list[Any] = [int(n) for n in value.stride()]
        free: set[int] = set()
        order = sorted(range(len(sizes)), key=lambda i: (strides[i], -i))
        expected: Any = 1
        real = 1
        names: list[Any] = []
        factors: list[str] = []
        for i in order:
            if strides[i] == real and names:
                free.add(i)
                text = "*".join(factors)
                letters = [f"v{k}" for k in range(len(names))]
                guard_sources = (*names, TensorMetaSource(source, "stride", i))
                shown = text
                for letter, name in zip(letters, names):
                    shown = shown.replace(letter, name.name)
                self.extra.append(
                    Guard(
                        guard_sources,
                        "SHAPE_EXPR",
                        ShapeExpr(f"{text} == w", (*letters, "w"), f"{shown} == {source.name}.stride({i})"),
                    )
                )
                strides[i] = expected
            if strides[i] is expected or (type(strides[i]) is int and strides[i] == real):
                expected = expected * sizes[i]
                real = real * int(value.shape[i])
                if i in dims:
                    names.append(TensorMetaSource(source, "size", i))
                    factors.append(f"v{len(names) - 1}")
                else:
                    factors.append(str(int(value.shape[i])))
        return strides, free

    def number(self, value: Any, source: Any) -> Any:
        """A symbolic int or float for the number at ``source``."""
        self.output.guard(source, "TYPE", type(value))
        if type(value) is int:
            self._bound(source, -LARGEST_SYMBOLIC, LARGEST_SYMBOLIC)  # compiled code computes with 64 bits
            return self._symbol(source, value, False)
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        key = private.symbol_source(source.name)
        symbol = self.env.create_symbol(
            value,
            source=key,
            dynamic_dim=DimDynamic.DYNAMIC,
            constraint_dim=None,
            positive=None,
            do_not_specialize_zero_one=True,
        )
        self.sources[str(symbol)] = source
        self.values[str(symbol)] = value
        self._finite[str(symbol)] = None
        return self.env.create_symfloatnode(symbol, hint=value, source=key)

    def drawn(self, kind: type, low: Any, high: Any) -> Any:
        """A symbolic int or float between ``low`` and ``high`` (None: any finite one) that only the run knows."""
        number = self.env.create_unbacked_symint() if kind is int else self.env.create_unbacked_symfloat()
        if low is not None and math.isfinite(low) and math.isfinite(high):
            private.bound_symbol(self.env, number, low, high)
        return number

    def assume_finite(self, value: Any) -> None:
        """A conclusion about ``value`` was drawn by algebra, which holds for finite numbers: guard that they are."""
        for symbol in value.node.expr.free_symbols:
            name = str(symbol)
            if name in self._finite and self._finite[name] is None:
                source = self.sources[name]
                expr = ShapeExpr("a - a == 0", ("a",), f"isfinite({source.name})")
                self._finite[name] = Guard((source,), "SHAPE_EXPR", expr)

    def keep_in_words(self, expr: Any, value: int) -> bool:
        """Guard that the integer ``expr``, now ``value``, fits into 64 bits, where the bounds of its symbols do not say
        so: graphs calculate with machine words, Python does not. False if it does not fit now, or guards cannot say it.
        """
        if self.magnitude(expr) < 1 << 63 or expr in self._within:
            return True
        names: dict[str, str] = {}
        try:
            text = _print(expr, names)
        except _Unprintable:
            return False
        if abs(value) >= 1 << 63:
            return False
        guard = self._make(f"{-1 << 63} <= {text} < {1 << 63}", names)
        if guard is None:
            return False
        self._within.add(expr)
        self.extra.append(guard)
        return True

    def magnitude(self, expr: Any) -> int:
        """A bound of the absolute value of an integer expression, by those of its symbols; huge if none is known."""
        known = self._magnitudes.get(expr)
        if known is None:
            known = self._magnitudes[expr] = self._magnitude(expr)
        return known

    def _magnitude(self, expr: Any) -> int:
        if expr.is_Integer:
            return abs(int(expr))
        if expr.is_Symbol:
            source = self.sources.get(str(expr))
            return LARGEST_SYMBOLIC if source is not None and not isinstance(source, TensorMetaSource) else _LONGEST
        parts = [self.magnitude(a) for a in expr.args]
        kind = type(expr).__name__
        if kind == "Add":
            return min(sum(parts), _UNBOUNDED)
        if kind == "Mul":
            return min(math.prod(parts), _UNBOUNDED)
        if kind == "Pow" and expr.args[1].is_Integer and 0 <= expr.args[1] < 64:
            return min(parts[0] ** int(expr.args[1]), _UNBOUNDED)
        if kind in ("FloorDiv", "CleanDiv"):
            return parts[0]
        if kind in ("Mod", "PythonMod"):
            return parts[1]
        if kind in ("Max", "Min", "Abs"):
            return max(parts)
        return _LONGEST  # rounded floats

    def guards(self) -> list[Guard]:
        """What was assumed about symbols."""
        found = [*self.extra, *(g for g in self._finite.values() if g is not None)]
        seen: set[Any] = set()
        for entry in self.env.guards:
            for guard in self._guards_of(entry.expr):
                if (guard.source, guard.value.expr) not in seen:
                    seen.add((guard.source, guard.value.expr))
                    found.append(guard)
        for symbol, source in self.sources.items():
            replaced = next((v for k, v in self.env.replacements.items() if str(k) == symbol), None)
            if replaced is not None and replaced.is_number:
                number = int(replaced) if replaced.is_Integer else float(replaced)
                found.append(_equals(source, number))
            elif replaced is not None:
                try:
                    found.append(self._relation(symbol, replaced))
                except _Unprintable:
                    found += [self._fixed(symbol), *self._fixed_symbols(replaced)]
            elif isinstance(source, TensorMetaSource):
                found.append(Guard((source,), "SHAPE_EXPR", ShapeExpr("2 <= a", ("a",), f"2 <= {source.name}")))
        return [g for g in found if g is not None]

    def _guards_of(self, expr: Any) -> list[Guard]:
        try:
            guard = self._guard(expr)
        except _Unprintable:
            return self._fixed_symbols(expr)
        return [] if guard is None else [guard]

    def _fixed_symbols(self, expr: Any) -> list[Guard]:
        """What guards cannot say about the symbols of ``expr`` holds for their present values."""
        return [self._fixed(name) for name in sorted(map(str, expr.free_symbols)) if name in self.sources]

    def _fixed(self, symbol: str) -> Guard:
        return _equals(self.sources[symbol], self.values[symbol])

    def _relation(self, symbol: str, expr: Any) -> Guard | None:
        names = {symbol: "v0"}
        text = _print(expr, names)
        return self._make(f"v0 == {text}", names)

    def _guard(self, expr: Any) -> Guard | None:
        names: dict[str, str] = {}
        return self._make(_print(expr, names), names)

    def _make(self, text: str, names: dict[str, str]) -> Guard | None:
        if not names or any(n not in self.sources for n in names):
            return None
        sources = tuple(self.sources[n] for n in names)
        shown = text
        for letter, source in sorted(zip(names.values(), sources), key=lambda p: -len(p[0])):
            shown = shown.replace(letter, source.name)
        return Guard(sources, "SHAPE_EXPR", ShapeExpr(text, tuple(names.values()), shown))


def _equals(source: Any, number: Any) -> Guard:
    return Guard((source,), "SHAPE_EXPR", ShapeExpr(f"a == {number!r}", ("a",), f"{source.name} == {number!r}"))


_RELATIONS = {
    "Equality": "==",
    "Unequality": "!=",
    "StrictLessThan": "<",
    "LessThan": "<=",
    "StrictGreaterThan": ">",
    "GreaterThan": ">=",
    "Eq": "==",
    "Ne": "!=",
}


# Functions of torch's symbolic numbers, as Python calls and operators; ints and floats divide and multiply as Python's.
_CALLS = {"ToFloat": "float", "TruncToInt": "int", "FloorToInt": "floor", "CeilToInt": "ceil", "Abs": "abs"}
_OPERATORS = {
    "FloorDiv": "//",
    "CleanDiv": "//",
    "Mod": "%",
    "PythonMod": "%",
    "IntTrueDiv": "/",
    "FloatTrueDiv": "/",
    "PowByNatural": "**",
    "FloatPow": "**",
    "LShift": "<<",
    "RShift": ">>",
    "BitwiseFn_bitwise_and": "&",
    "BitwiseFn_bitwise_or": "|",
    "BitwiseFn_bitwise_xor": "^",
}


def _print(expr: Any, names: dict[str, str]) -> str:
    """A sympy expression as Python text; ``names`` collects symbol -> letter."""
    kind = type(expr).__name__

    def sub(e: Any) -> str:
        return _print(e, names)

    if expr.is_Symbol:
        return names.setdefault(str(expr), f"v{len(names)}")
    if kind in ("BooleanTrue", "BooleanFalse"):
        return str(bool(expr))
    if expr.is_Integer:
        return str(int(expr))
    if expr.is_Float:
        return repr(float(expr))
    args = expr.args
    if kind in _CALLS and len(args) == 1:
        return f"{_CALLS[kind]}({sub(args[0])})"
    if kind in _OPERATORS and len(args) == 2:
        return f"({sub(args[0])} {_OPERATORS[kind]} {sub(args[1])})"
    if kind in _RELATIONS:
        return f"({sub(args[0])} {_RELATIONS[kind]} {sub(args[1])})"
    if kind == "Add":
        return "(" + " + ".join(sub(a) for a in args) + ")"
    if kind == "Mul":
        return "(" + " * ".join(sub(a) for a in args) + ")"
    if kind == "Pow" and args[1].is_Integer and int(args[1]) >= 0:
        return f"({sub(args[0])} ** {int(args[1])})"
    if kind in ("Max", "Min"):
        return f"{kind.lower()}(" + ", ".join(sub(a) for a in args) + ")"
    if kind == "And":
        return "(" + " and ".join(sub(a) for a in args) + ")"
    if kind == "Or":
        return "(" + " or ".join(sub(a) for a in args) + ")"
    if kind == "Not":
        return f"(not {sub(args[0])})"
    raise _Unprintable(str(expr))


class _Unprintable(Exception):
    """An expression that guards cannot express."""
