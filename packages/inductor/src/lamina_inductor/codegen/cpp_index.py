"""C text of index expressions and names, and where a computed value lives."""

from __future__ import annotations

from dataclasses import dataclass

from ..index import Expr, to_expr

_MARKED_FROM = 16  # smaller numbers decide about unrolling: they stay part of the text


def c_index(e: Expr | int, names: dict[str, str], marked: bool = False) -> str:
    """C text of an index expression (all i64); `names` maps symbols to C text. With `marked`, larger numbers are put
    between \\x01 and \\x02: kernels that differ in them alone can share one function."""
    e = to_expr(e)
    op, args = e.op, e.args
    if op == "const":
        text = f"{args[0]}LL" if abs(args[0]) > 0x7FFFFFFF else str(args[0])
        return f"\x01{text}\x02" if marked and args[0] >= _MARKED_FROM else text
    if op == "sym":
        return names.get(args[0], args[0])
    divides = op in ("floordiv", "mod")  # by a known number: much faster
    parts = [c_index(a, names, marked and not (divides and k)) for k, a in enumerate(args)]
    if op in ("add", "mul"):
        text = (" + " if op == "add" else " * ").join(parts)
        if op == "mul" and args[0].op == "const" and len(args) > 1:  # constants are i64 already through their partner
            text = " * ".join(parts[1:] + parts[:1])
        return f"({text})"
    a, b = parts
    if op in ("min", "max"):
        return f"imin({a}, {b})" if op == "min" else f"imax({a}, {b})"
    if args[0].lo >= 0 and args[1].lo > 0:
        return f"({a} {'/' if op == 'floordiv' else '%'} {b})"
    return f"{'floor_div' if op == 'floordiv' else 'floor_rem'}<i64>({a}, {b})"


def marked_index(e: Expr | int, names: dict[str, str]) -> str:
    """`c_index` with marks."""
    return c_index(e, names, True)


@dataclass
class Value:
    """Where a computed op lives: C text, and whether it is a vector of the current scope ("lanes") or one number
    ("one")."""

    text: str
    kind: str


def c_name(name: str) -> str:
    """A buffer name as a C identifier that no other name of the kernel collides with."""
    return "b_" + "".join(ch if ch.isalnum() or ch == "_" else "_" for ch in name)


__all__ = ["Value", "c_index", "c_name", "marked_index"]
