"""Attention as one kernel: its description, and which columns of a row are certainly masked.

The parts of the kernel are bodies over the loops ``z`` (batches), ``m`` (rows of the scores), ``n`` (columns), ``d``
(terms of a score) and ``e`` (columns of the result), each a phase that ends with a store into a scratch name:

========= ============ ==========================================================
phase     loops        value
========= ============ ==========================================================
query     z m d        an element of q
key       z n d        an element of k
score     z m n        what the softmax takes; ``load("product")`` is the product
value     z n e        an element of v
weight    z m n        what multiplies v; ``load("softmax")`` is the softmax's term
========= ============ ==========================================================

The last phase stores ``load("result")``, an element of the result, over z, m and e.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from ..index import ZERO, Expr, coefficient, substitute
from ..ops import Op
from .kernel import KernelSpec, Phase

PARTS = ("query", "key", "score", "value", "weight", "store")
LEAVES = {"score": "product", "weight": "softmax", "store": "result"}


@dataclass(frozen=True, eq=False)
class AttentionKernel(KernelSpec):
    """See the module's docstring. `extents`: sizes of z, m, n, d, e. `safe`: rows of nothing but -inf give zeros.
    `rounds`: the dtype that the product is rounded to. `run`: the same on flat tensors, for targets that interpret."""

    extents: tuple[int, ...] = ()
    safe: bool = False
    rounds: torch.dtype = torch.float32
    run: Callable[[Sequence[torch.Tensor]], None] = field(default=lambda buffers: None)

    def part(self, name: str) -> Phase:
        """The phase of that name."""
        return self.phases[PARTS.index(name)]

    def root(self, name: str) -> Op:
        """The value of a part."""
        return self.part(name).ops[-1].args[2]

    def key(self) -> str:
        """Equal for kernels that one compilation serves."""
        return f"attention {self.extents} {self.safe} {self.rounds}\n{super().key()}"


@dataclass(frozen=True)
class Sum:
    """A result of the backward: a product over the rows of the scores (`over_rows`) or over their columns, of values of
    the scores' size in `dtype`."""

    over_rows: bool
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class AttentionGradientKernel(KernelSpec):
    """The backward of attention. Its parts, besides ``query``, ``key`` and ``score``, which are the forward's:

    ========= ============ ==========================================================
    phase     loops        value
    ========= ============ ==========================================================
    left      z m e        the left operand of the second product (gradient of the result)
    right     z n e        the right one (v); ``load("gradient")`` is the product
    term      z m n        summed over each row: ``load("row_sum")``
    tileK     z m n        an operand of sum K; ``load("softmax")`` is the weight
    otherK    z m|n fK     its other operand
    storeK    z n|m fK     stores ``load("resultK")``
    ========= ============ ==========================================================

    `names` of the phases; `extents`: sizes of z, m, n, d, e; `rounds`: the dtypes that the two products are rounded to.
    """

    names: tuple[str, ...] = ()
    extents: tuple[int, ...] = ()
    safe: bool = False
    rounds: tuple[torch.dtype, torch.dtype] = (torch.float32, torch.float32)
    sums: tuple[Sum, ...] = ()

    def part(self, name: str) -> Phase:
        """The phase of that name."""
        return self.phases[self.names.index(name)]

    def root(self, name: str) -> Op:
        """The value of a part."""
        return self.part(name).ops[-1].args[2]

    def key(self) -> str:
        """Equal for kernels that one compilation serves."""
        return f"attention gradient {self.names} {self.extents} {self.safe} {self.rounds} {self.sums}\n{super().key()}"


@dataclass(frozen=True)
class Bound:
    """A limit of the columns that may count in row `m`: ``n <= rows * m + offset`` (`upper`) or ``n >= ...``."""

    upper: bool
    rows: int
    offset: int


def find_bounds(score: Op) -> list[Bound]:
    """Limits outside of which a score is certainly -inf."""
    return _bounds_of_value(score)


@dataclass(frozen=True)
class Mask:
    """A ``where`` of the score: `choice` is `kept` where `condition` is `wanted`, else -inf. `bounds`: the condition in
    full as limits of columns, or None where it is more than that."""

    choice: Op
    kept: Op
    condition: Op
    wanted: bool
    bounds: tuple[Bound, ...] | None


def find_masks(score: Op) -> list[Mask]:
    """The masks around a score, outermost first."""
    out = []
    while True:
        if score.name in ("to_dtype", "round_to") and score.dtype.is_floating_point:
            score = score.args[0]
            continue
        if score.name != "where":
            return out
        condition, a, b = score.args
        wanted = _is_minus_inf(b)
        if not wanted and not _is_minus_inf(a):
            return out
        kept = a if wanted else b
        exact = _exactly(condition, wanted)
        out.append(Mask(score, kept, condition, wanted, None if exact is None else tuple(exact)))
        score = kept


def _exactly(op: Op, wanted: bool) -> list[Bound] | None:
    """The limits inside of which `op` is `wanted`, if they say all."""
    name, args = op.name, op.operands()
    truth = _constant_truth(op)
    if truth is not None:
        return [] if truth is wanted else None
    if name in ("logical_not", "bitwise_not") and args[0].dtype == torch.bool:
        return _exactly(args[0], not wanted)
    parts: list[tuple[Op, bool]] = []
    if name in ("logical_and", "bitwise_and", "logical_or", "bitwise_or") and ("and" in name) == wanted:
        parts = [(a, wanted) for a in args]
    elif name == "where" and op.dtype == torch.bool:
        condition, a, b = args
        if _constant_truth(b) is (not wanted):
            parts = [(condition, True), (a, wanted)]
        elif _constant_truth(a) is (not wanted):
            parts = [(condition, False), (b, wanted)]
    if parts:
        found = [_exactly(a, w) if a.dtype == torch.bool else None for a, w in parts]
        return None if None in found else [b for f in found if f is not None for b in f]
    if name in ("ge", "gt", "le", "lt"):
        return _bounds_of_comparison(name, args, wanted) or None
    return None


def _is_minus_inf(op: Op) -> bool:
    return op.name == "constant" and op.args[0] == float("-inf")


def _bounds_of_value(op: Op) -> list[Bound]:
    if op.name in ("to_dtype", "round_to") and op.dtype.is_floating_point:
        return _bounds_of_value(op.args[0])
    if op.name == "where":
        condition, a, b = op.args
        if _is_minus_inf(b):
            return [*_bounds_where(condition, True), *_bounds_of_value(a)]
        if _is_minus_inf(a):
            return [*_bounds_where(condition, False), *_bounds_of_value(b)]
    return []


def _constant_truth(op: Op) -> bool | None:
    return bool(op.args[0]) if op.name == "constant" and op.dtype == torch.bool else None


def _bounds_where(op: Op, wanted: bool) -> list[Bound]:
    """Limits outside of which the condition `op` certainly is not `wanted`."""
    name, args = op.name, op.operands()
    if name in ("logical_not", "bitwise_not") and args[0].dtype == torch.bool:
        return _bounds_where(args[0], not wanted)
    if name in ("logical_and", "bitwise_and", "logical_or", "bitwise_or") and op.dtype == torch.bool:
        if not all(a.dtype == torch.bool for a in args):
            return []
        both = [_bounds_where(a, wanted) for a in args]
        if ("and" in name) == wanted:
            return [*both[0], *both[1]]
        return _loosest(*both)
    if name == "where" and op.dtype == torch.bool:
        condition, a, b = args
        if _constant_truth(b) is (not wanted):
            return [*_bounds_where(condition, True), *_bounds_where(a, wanted)]
        if _constant_truth(a) is (not wanted):
            return [*_bounds_where(condition, False), *_bounds_where(b, wanted)]
        return []
    if name in ("ge", "gt", "le", "lt", "eq"):
        return _bounds_of_comparison(name, args, wanted)
    return []


def _loosest(a: list[Bound], b: list[Bound]) -> list[Bound]:
    """Limits of what satisfies one of two."""
    out = []
    for p in a:
        for q in b:
            if p.upper == q.upper and p.rows == q.rows:
                out.append(Bound(p.upper, p.rows, (max if p.upper else min)(p.offset, q.offset)))
    return out


def _bounds_of_comparison(name: str, args: Sequence[Op], wanted: bool) -> list[Bound]:
    sides = [_linear(a) for a in args]
    if sides[0] is None or sides[1] is None:
        return []
    m, n, c = (p - q for p, q in zip(sides[0], sides[1], strict=True))
    if not wanted:
        opposite = {"ge": "lt", "gt": "le", "le": "gt", "lt": "ge"}
        if name not in opposite:
            return []
        name = opposite[name]
    out = []
    if name in ("ge", "gt", "eq"):  # m*i + n*j + c >= 0
        out.append((m, n, c - (name == "gt")))
    if name in ("le", "lt", "eq"):
        out.append((-m, -n, -c - (name == "lt")))
    return [Bound(n < 0, -m * n, -c * n) for m, n, c in out if n in (1, -1)]


def _linear(op: Op) -> tuple[int, int, int] | None:
    """(coefficient of m, of n, constant) of an integer value."""
    if op.dtype not in (torch.int64, torch.int32):
        return None
    if op.name == "constant":
        return 0, 0, int(op.args[0])
    if op.name == "index_expr":
        return _linear_expr(op.args[0])
    if op.name == "to_dtype":
        return _linear(op.args[0])
    if op.name in ("add", "sub"):
        a, b = (_linear(o) for o in op.args)
        if a is None or b is None:
            return None
        sign = 1 if op.name == "add" else -1
        return a[0] + sign * b[0], a[1] + sign * b[1], a[2] + sign * b[2]
    if op.name == "neg":
        a = _linear(op.args[0])
        return None if a is None else (-a[0], -a[1], -a[2])
    return None


def _linear_expr(e: Expr) -> tuple[int, int, int] | None:
    found = [coefficient(e, name) for name in ("m", "n")]
    if any(c is None or not c.is_const for c in found):
        return None
    rest = substitute(e, {"m": ZERO, "n": ZERO})
    if not rest.is_const:
        return None
    return int(found[0]), int(found[1]), int(rest)  # type: ignore[arg-type]


__all__ = [
    "LEAVES", "PARTS", "AttentionGradientKernel", "AttentionKernel", "Bound", "Mask", "Sum", "find_bounds",
    "find_masks",
]  # fmt: skip
