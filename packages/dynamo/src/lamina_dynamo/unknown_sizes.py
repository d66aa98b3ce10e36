"""Answers about sizes that only the run knows, for metadata that the program cannot see.

An operator's rule asks whether ``x[mask].shape[0]`` is 0 or 1 in order to choose strides or a kernel. The graph calls
the operator itself, on the tensors of the run, so that a wrong answer changes what the translation believes of a
stride, never a result. A program that reads what hangs on the answer (the rank after ``squeeze``, a stride) breaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch


def has_unknown(*numbers: Any) -> bool:
    """Does one of these sizes or strides hang on a size that only the run knows?"""
    return any(
        str(symbol).startswith(("u", "zu"))
        for n in numbers
        if not isinstance(n, (int, float))
        for symbol in getattr(n.node.expr, "free_symbols", ())
    )


_SQUEEZES = frozenset({"squeeze", "squeeze_", "squeeze_copy"})
_LAYOUTS = frozenset({"stride", "is_contiguous", "is_non_overlapping_and_dense"})


def shows_unknown(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Does what the program sees of this call's result (its rank, a stride) hang on whether a size that only the run
    knows is 1?"""
    if not args or not isinstance(args[0], torch.Tensor):
        return False
    shape = args[0].shape
    if name in _LAYOUTS:
        return has_unknown(*shape, *args[0].stride())
    if name not in _SQUEEZES:
        return False
    dims = args[1] if len(args) > 1 else kwargs.get("dim")
    if type(dims) is int:
        dims = (dims,)
    if not isinstance(dims, (tuple, list)):
        return has_unknown(*shape)
    return any(type(d) is not int or not -len(shape) <= d < len(shape) or has_unknown(shape[d]) for d in dims)


def answer_as_large(expr: Any) -> Any:
    """The truth of a sympy relation if every size in it is 2 or more; None where that does not decide it."""
    from sympy import false, true

    kind = type(expr).__name__
    if kind in ("And", "Or", "Not"):
        parts = [a if a in (true, false) else answer_as_large(a) for a in expr.args]
        return None if any(p is None for p in parts) else expr.func(*parts)
    if kind not in _FALSE_FROM and kind not in _TRUE_FROM:
        return None
    left, right = expr.args
    if left.is_number:
        left, right, expr = right, left, expr.reversed
    if not right.is_Integer or not _is_size(left):
        return None
    kind, bound = type(expr).__name__, int(right)
    if kind in _FALSE_FROM:
        return false if 0 <= bound <= _FALSE_FROM[kind] else None
    return true if 0 <= bound <= _TRUE_FROM[kind] else None


# Relations of a size of 2 or more with a number from 0 to this one, all false, and all true.
_FALSE_FROM = {"Equality": 1, "StrictLessThan": 2, "LessThan": 1}
_TRUE_FROM = {"Unequality": 1, "StrictGreaterThan": 1, "GreaterThan": 2}


def _is_size(expr: Any) -> bool:
    """Can ``expr`` only be 0 or more, as sizes and numbers of elements are?"""
    kind = type(expr).__name__
    if kind == "Max":
        return any(a.is_Integer and int(a) >= 0 for a in expr.args) or all(map(_is_size, expr.args))
    if expr.is_Integer:
        return int(expr) >= 0
    if kind in ("Add", "Mul", "Min", "FloorDiv", "CleanDiv"):
        return all(map(_is_size, expr.args))
    return bool(expr.is_Symbol)
