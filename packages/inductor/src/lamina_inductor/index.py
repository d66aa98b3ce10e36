"""Integer expressions for indices and sizes: small, hash-consed, with ranges.

An `Expr` is immutable and kept in a polynomial normal form, so equal values usually are the *same object*:

======== ============================================ =======================================
``op``   ``args``                                     meaning
======== ============================================ =======================================
const    ``(value,)``                                 a Python int
sym      ``(name,)``                                  loop variable, size symbol, indirect index
add      two or more Exprs, a constant last           sum
mul      two or more Exprs, a constant first          product (of a constant and atoms)
floordiv ``(a, b)``                                   floor(a / b), b > 0
mod      ``(a, b)``                                   a - b * floor(a / b), b > 0, so 0 <= result < b
min, max ``(a, b)``
======== ============================================ =======================================

Every Expr knows a range ``lo <= value <= hi`` (``-INF`` / ``INF`` when unknown): a code generator that sees
``lo >= 0`` may use C's ``/`` and ``%``. A loop variable also knows its (maybe symbolic) size, so that ``i % n``
with ``0 <= i < n`` simplifies although ``n`` is unknown.

>>> i, j = symbol("i", 4), symbol("j", 8)
>>> (i * 8 + j) // 8
i
>>> (i * 8 + j) % 8
j
>>> ((i * 8 + j) // 2) * 2 + (i * 8 + j) % 2
i*8 + j
>>> coefficient(i * 8 + j, "i")
8
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from math import gcd
from typing import Any, Union

INF = 1 << 62

IntLike = Union["Expr", int]

_table: dict[tuple, Expr] = {}
_memo: dict[tuple, Expr] = {}
_small: dict[int, Expr] = {}
_TABLE_LIMIT = 100_000


class Expr:
    """One integer expression. Build with `const`, `symbol` and Python's operators ``+ - * // %``; never directly."""

    __slots__ = ("op", "args", "lo", "hi", "bound", "poly", "syms", "_hash", "_text")
    op: str
    args: tuple
    lo: int
    hi: int
    bound: Expr | None  # for a symbol: its exclusive upper bound, when that is an expression
    poly: tuple[int, tuple]  # (constant, ((monomial, coefficient), ...)); a monomial is a tuple of atoms
    syms: frozenset[str]  # names of all symbols inside

    def __repr__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Python source of the expression."""
        if self._text is None:
            self._text = _print(self, str)
        return self._text

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, int):
            return self.op == "const" and self.args[0] == other
        if not isinstance(other, Expr) or self._hash != other._hash:
            return False
        return self.op == other.op and self.args == other.args and (self.op != "sym" or self.hi == other.hi)

    @property
    def is_const(self) -> bool:
        return self.op == "const"

    def __int__(self) -> int:
        if self.op != "const":
            raise TypeError(f"{self} is not a constant")
        return self.args[0]

    __index__ = __int__

    def __add__(self, other: IntLike) -> Expr:
        return add(self, other)

    __radd__ = __add__

    def __sub__(self, other: IntLike) -> Expr:
        return add(self, mul(other, -1))

    def __rsub__(self, other: IntLike) -> Expr:
        return add(other, mul(self, -1))

    def __neg__(self) -> Expr:
        return mul(self, -1)

    def __mul__(self, other: IntLike) -> Expr:
        return mul(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: IntLike) -> Expr:
        return floordiv(self, other)

    def __rfloordiv__(self, other: IntLike) -> Expr:
        return floordiv(other, self)

    def __mod__(self, other: IntLike) -> Expr:
        return mod(self, other)

    def __rmod__(self, other: IntLike) -> Expr:
        return mod(other, self)


def _node(op: str, args: tuple, lo: int, hi: int, bound: Expr | None = None, poly: tuple | None = None) -> Expr:
    key = (op, args, lo, hi, bound) if op == "sym" else (op, args)
    found = _table.get(key)
    if found is not None:
        return found
    if len(_table) > _TABLE_LIMIT or len(_memo) > 2 * _TABLE_LIMIT:  # equality is structural: forgetting is safe
        forget()
    e = Expr.__new__(Expr)
    e.op, e.args, e.lo, e.hi, e.bound = op, args, max(lo, -INF), min(hi, INF), bound
    e._hash = hash((op, args))
    e._text = None
    if op == "const":
        e.syms = frozenset()
        e.poly = (args[0], ())
    elif op == "sym":
        e.syms = frozenset((args[0],))
        e.poly = (0, (((e,), 1),))
    else:
        e.syms = reduce(operator.or_, (a.syms for a in args), frozenset())
        e.poly = poly if poly is not None else (0, (((e,), 1),))
    _table[key] = e
    return e


def const(value: int) -> Expr:
    """The constant `value`."""
    found = _small.get(value)
    if found is None:
        value = int(value)
        found = _node("const", (value,), value, value)
        if -4096 <= value <= 4096:
            _small[value] = found
    return found


ZERO = const(0)
ONE = const(1)


def forget() -> None:
    """Empties the tables (expressions in use stay valid)."""
    _table.clear()
    _memo.clear()
    for e in _small.values():  # ZERO and ONE are compared by identity
        _table["const", e.args] = e


def symbol(name: str, size: IntLike | None = None, *, lo: int = 0, hi: int | None = None) -> Expr:
    """A named integer. With `size`, ``0 <= name < size`` (a loop variable); else ``lo <= name <= hi``."""
    if size is None:
        return _node("sym", (name,), lo, INF if hi is None else hi)
    size = to_expr(size)
    if size.op == "const":
        return _node("sym", (name,), 0, max(size.args[0] - 1, 0))
    return _node("sym", (name,), 0, max(size.hi - 1, 0), size)


def to_expr(value: IntLike) -> Expr:
    """`value` as an Expr; ints become constants."""
    return value if isinstance(value, Expr) else const(value)


def unwrap(e: IntLike) -> IntLike:
    """A Python int when `e` is constant, else `e`."""
    return e.args[0] if isinstance(e, Expr) and e.op == "const" else e


def _range_product(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    products = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return max(min(products), -INF), min(max(products), INF)


def _term(mono: tuple, coef: int) -> Expr:
    """coef * product(mono) as an Expr."""
    if coef == 1 and len(mono) == 1:
        return mono[0]
    rng = (coef, coef)
    for atom in mono:
        rng = _range_product(rng, (atom.lo, atom.hi))
    args = mono if coef == 1 else (const(coef), *mono)
    return _node("mul", args, *rng, poly=(0, ((mono, coef),)))


def _mono_key(mono: tuple) -> tuple:
    return (len(mono), *[a.text() for a in mono])


def _from_poly(constant: int, terms: dict[tuple, int]) -> Expr:
    terms = {m: c for m, c in terms.items() if c}
    if any(a.op == "mod" for m in terms for a in m):
        merged = _merge_div_mod(constant, terms)
        if merged is not None:
            return merged
    if not terms:
        return const(constant)
    if len(terms) == 1 and constant == 0:
        ((mono, coef),) = terms.items()
        return _term(mono, coef)
    ordered = sorted(terms.items(), key=lambda mc: _mono_key(mc[0]))
    parts = [_term(m, c) for m, c in ordered]
    lo = sum(p.lo if p.lo > -INF else -INF for p in parts) + constant
    hi = sum(p.hi if p.hi < INF else INF for p in parts) + constant
    if any(p.lo <= -INF for p in parts):
        lo = -INF
    if any(p.hi >= INF for p in parts):
        hi = INF
    if constant:
        parts.append(const(constant))
    return _node("add", tuple(parts), lo, hi, poly=(constant, tuple(ordered)))


def _merge_div_mod(constant: int, terms: dict[tuple, int]) -> Expr | None:
    """c * (x % m) + c * m * (x // m)  ->  c * x"""
    for mono, coef in terms.items():
        if len(mono) != 1 or mono[0].op != "mod":
            continue
        x, m = mono[0].args
        partner = mul(floordiv(x, m), m).poly
        if partner[0] or len(partner[1]) != 1:
            continue
        ((pmono, pcoef),) = partner[1]
        if terms.get(pmono) == coef * pcoef:
            rest = {k: v for k, v in terms.items() if k != mono and k != pmono}
            return add(_from_poly(constant, rest), mul(x, coef))
    return None


def add(a: IntLike, b: IntLike) -> Expr:
    """a + b"""
    a, b = to_expr(a), to_expr(b)
    if a is ZERO:
        return b
    if b is ZERO:
        return a
    if a.op == "const" and b.op == "const":
        return const(a.args[0] + b.args[0])
    key = ("+", a, b)
    found = _memo.get(key)
    if found is None:
        (ca, ta), (cb, tb) = a.poly, b.poly
        terms = dict(ta)
        for mono, coef in tb:
            terms[mono] = terms.get(mono, 0) + coef
        found = _memo[key] = _from_poly(ca + cb, terms)
    return found


def mul(a: IntLike, b: IntLike) -> Expr:
    """a * b"""
    a, b = to_expr(a), to_expr(b)
    if a.op == "const" and b.op == "const":
        return const(a.args[0] * b.args[0])
    if a is ONE:
        return b
    if b is ONE:
        return a
    if a is ZERO or b is ZERO:
        return ZERO
    key = ("*", a, b)
    found = _memo.get(key)
    if found is None:
        (ca, ta), (cb, tb) = a.poly, b.poly
        terms: dict[tuple, int] = {}
        for ma, va in (((), ca), *ta):
            if va:
                for mb, vb in (((), cb), *tb):
                    if vb:
                        mono = tuple(sorted(ma + mb, key=Expr.text)) if ma and mb else ma + mb
                        terms[mono] = terms.get(mono, 0) + va * vb
        found = _memo[key] = _from_poly(terms.pop((), 0), terms)
    return found


def _divide_terms(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a = q * b + r, where q takes every term that b divides without remainder."""
    constant, terms = a.poly
    if b.op == "const":
        n = b.args[0]
        quotient = {m: c // n for m, c in terms if c % n == 0}
        rest = {m: c for m, c in terms if c % n}
        return _from_poly(constant // n, quotient), _from_poly(constant % n, rest)
    bconst, bterms = b.poly
    if bconst == 0 and len(bterms) == 1:
        ((bmono, bcoef),) = bterms
        quotient, rest = {}, {}
        for mono, coef in terms:
            left = list(mono)
            try:
                for atom in bmono:
                    left.remove(atom)
            except ValueError:
                rest[mono] = coef
                continue
            if coef % bcoef:
                rest[mono] = coef
            else:
                quotient[tuple(left)] = quotient.get(tuple(left), 0) + coef // bcoef
        return _from_poly(quotient.pop((), 0), quotient), _from_poly(constant, rest)
    if a is b or a == b:
        return ONE, ZERO
    return ZERO, a


def _split_small(a: Expr, n: int) -> tuple[Expr, int, Expr] | None:
    """a = g * x + s with g > 1 dividing n and 0 <= s < g; returns (x, g, s)."""
    constant, terms = a.poly
    ordered = sorted(terms, key=lambda mc: -abs(mc[1]))
    g = n
    for k, (_, coef) in enumerate(ordered, 1):
        g = gcd(g, coef)
        if g == 1:
            return None
        small = _from_poly(constant % g, dict(ordered[k:]))
        if 0 <= small.lo and small.hi < g:
            return _from_poly(constant // g, {m: c // g for m, c in ordered[:k]}), g, small
    return None


def floordiv(a: IntLike, b: IntLike) -> Expr:
    """floor(a / b) for b > 0."""
    a, b = to_expr(a), to_expr(b)
    if b is ONE:
        return a
    if a.op == "const" and b.op == "const" and b is not ZERO:
        return const(a.args[0] // b.args[0])
    key = ("//", a, b)
    found = _memo.get(key)
    if found is None:
        found = _memo[key] = _floordiv(a, b)
    return found


def _floordiv(a: Expr, b: Expr) -> Expr:
    if b is ZERO:  # only inside loops that never run
        return ZERO
    if b.op == "const":
        n = b.args[0]
        if -INF < a.lo and a.hi < INF and a.lo // n == a.hi // n:
            return const(a.lo // n)
    elif a.lo >= 0 and is_less(a, b):
        return ZERO
    q, r = _divide_terms(a, b)
    if q is not ZERO:
        return add(q, floordiv(r, b))
    if b.op == "const":
        n = b.args[0]
        if n < 0:
            return _node("floordiv", (a, b), -INF, INF)
        split = _split_small(a, n)
        if split is not None:
            x, g, _ = split
            return floordiv(x, n // g)
        if a.op == "floordiv" and a.args[1].op == "const":
            return floordiv(a.args[0], a.args[1].args[0] * n)
        if a.op == "mod" and a.args[1].op == "const" and a.args[1].args[0] % n == 0:
            return mod(floordiv(a.args[0], n), a.args[1].args[0] // n)
        lo = a.lo // n if a.lo > -INF else -INF
        hi = a.hi // n if a.hi < INF else INF
        return _node("floordiv", (a, b), lo, hi)
    if a.lo >= 0 and b.lo >= 1:
        return _node("floordiv", (a, b), a.lo // b.hi if b.hi < INF else 0, a.hi // b.lo if a.hi < INF else INF)
    return _node("floordiv", (a, b), -INF, INF)


def mod(a: IntLike, b: IntLike) -> Expr:
    """a - b * floor(a / b) for b > 0."""
    a, b = to_expr(a), to_expr(b)
    if b is ONE:
        return ZERO
    if a.op == "const" and b.op == "const" and b is not ZERO:
        return const(a.args[0] % b.args[0])
    key = ("%", a, b)
    found = _memo.get(key)
    if found is None:
        found = _memo[key] = _mod(a, b)
    return found


def _mod(a: Expr, b: Expr) -> Expr:
    if b is ZERO:
        return ZERO
    if a.lo >= 0 and is_less(a, b):
        return a
    q, r = _divide_terms(a, b)
    if q is not ZERO:
        return mod(r, b)
    if b.op == "const":
        n = b.args[0]
        if n > 0:
            split = _split_small(a, n)
            if split is not None:
                x, g, small = split
                return add(mul(mod(x, n // g), g), small)
            if a.op == "mod" and a.args[1].op == "const" and a.args[1].args[0] % n == 0:
                return mod(a.args[0], n)
            return _node("mod", (a, b), 0, n - 1)
    return _node("mod", (a, b), 0, b.hi - 1 if b.hi < INF else INF)


def minimum(a: IntLike, b: IntLike) -> Expr:
    """min(a, b)"""
    a, b = to_expr(a), to_expr(b)
    if a == b or a.hi <= b.lo or is_less(a, b):
        return a
    if b.hi <= a.lo or is_less(b, a):
        return b
    a, b = sorted((a, b), key=Expr.text)
    return _node("min", (a, b), min(a.lo, b.lo), min(a.hi, b.hi))


def maximum(a: IntLike, b: IntLike) -> Expr:
    """max(a, b)"""
    a, b = to_expr(a), to_expr(b)
    if a == b or a.lo >= b.hi or is_less(b, a):
        return a
    if b.lo >= a.hi or is_less(a, b):
        return b
    a, b = sorted((a, b), key=Expr.text)
    return _node("max", (a, b), max(a.lo, b.lo), max(a.hi, b.hi))


def _upper(e: Expr) -> Expr:
    """An upper bound of `e` in which loop variables with symbolic sizes are replaced by their largest value."""
    for name in e.syms:
        constant, terms = e.poly
        for mono, _coef in terms:
            for atom in mono:
                if atom.op == "sym" and atom.args[0] == name and atom.bound is not None:
                    linear = all(m.count(atom) <= 1 and (atom not in m or c > 0) for m, c in terms)
                    inside = any(a is not atom and name in a.syms for m, _ in terms for a in m)
                    others = all(a.lo >= 0 for m, _ in terms if atom in m for a in m)
                    if linear and not inside and others:
                        e = substitute(e, {name: atom.bound - 1})
                    break
            else:
                continue
            break
    return e


def is_less(a: IntLike, b: IntLike) -> bool:
    """True when ``a < b`` can be proved."""
    a, b = to_expr(a), to_expr(b)
    if a.hi < b.lo:
        return True
    if a.op == "const" and b.op == "const" or not (a.syms or b.syms):
        return False
    if a.bound is not None and a.bound == b:
        return True
    if b.op == "const" and all(s.bound is None for m, _ in a.poly[1] for s in m):
        return False
    diff = b - _upper(a)
    return diff.lo >= 1


def is_equal(a: IntLike, b: IntLike) -> bool:
    """True when ``a == b`` can be proved."""
    return to_expr(a) == to_expr(b)


def product(values: Iterable[IntLike]) -> Expr:
    """Product of all values; 1 for none."""
    return reduce(mul, values, ONE)


def substitute(e: Expr, mapping: Mapping[str, IntLike]) -> Expr:
    """`e` with symbols replaced by name and the result simplified again."""
    if not mapping or e.syms.isdisjoint(mapping):
        return e
    if e.op == "sym":
        return to_expr(mapping[e.args[0]])
    args = [substitute(a, mapping) for a in e.args]
    if e.op == "add":
        return reduce(add, args)
    if e.op == "mul":
        return reduce(mul, args)
    return _BUILD[e.op](*args)


_BUILD: dict[str, Callable[[IntLike, IntLike], Expr]] = {
    "floordiv": floordiv,
    "mod": mod,
    "min": minimum,
    "max": maximum,
}


def coefficient(e: IntLike, name: str) -> Expr | None:
    """Stride of `e` in symbol `name`: how much `e` grows when the symbol grows by one. None if that is not the same
    everywhere (the symbol occurs inside //, %, min, max, or twice in one product)."""
    e = to_expr(e)
    if name not in e.syms:
        return ZERO
    out: dict[tuple, int] = {}
    for mono, coef in e.poly[1]:
        hits = [a for a in mono if name in a.syms]
        if not hits:
            continue
        if len(hits) > 1 or hits[0].op != "sym":
            return None
        left = tuple(a for a in mono if a is not hits[0])
        out[left] = out.get(left, 0) + coef
    return _from_poly(out.pop((), 0), out)


def evaluate(e: IntLike, env: Mapping[str, Any]) -> Any:
    """Value of `e` when symbols take the values of `env` (ints, or integer tensors: then elementwise)."""
    if not isinstance(e, Expr):
        return e
    if e.op == "const":
        return e.args[0]
    if e.op == "sym":
        return env[e.args[0]]
    values = [evaluate(a, env) for a in e.args]
    if e.op == "add":
        return reduce(operator.add, values)
    if e.op == "mul":
        return reduce(operator.mul, values)
    a, b = values
    if e.op == "floordiv":
        return a // b
    if e.op == "mod":
        return a % b
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b) if e.op == "min" else max(a, b)
    if e.op == "min":
        return a.clamp(max=b) if not isinstance(a, int) else b.clamp(max=a)
    return a.clamp(min=b) if not isinstance(a, int) else b.clamp(min=a)


def _print(e: Expr, leaf: Callable[[str], str]) -> str:
    op, args = e.op, e.args
    if op == "const":
        return str(args[0])
    if op == "sym":
        return leaf(args[0])
    if op == "add":
        text = " + ".join(_print(a, leaf) for a in args)
        return text.replace("+ -", "- ")
    if op == "mul":
        ordered = [a for a in args if a.op != "const"] + [a for a in args if a.op == "const"]
        return "*".join(_atom_text(a, leaf) for a in ordered)
    if op in ("min", "max"):
        return f"{op}({_print(args[0], leaf)}, {_print(args[1], leaf)})"
    sign = "//" if op == "floordiv" else "%"
    return f"({_atom_text(args[0], leaf)} {sign} {_atom_text(args[1], leaf)})"


def _atom_text(e: Expr, leaf: Callable[[str], str]) -> str:
    text = _print(e, leaf)
    return f"({text})" if e.op == "add" else text


def render(e: IntLike, names: Mapping[str, str]) -> str:
    """Python source of `e` with symbols renamed through `names` (missing names stay)."""
    return _print(to_expr(e), lambda n: names.get(n, n))
