"""When a compiled program is as right as eager: what a run of the suite is held to (docs/decisions/0004-equality.md).

1. `errors_of`: its distance from float64 is at most twice eager's, and the format's rounding.
2. Beyond that, `allow_spread`: eager itself is as far off when weights and inputs are rounded once.
3. Or `allow_tie`: on programs some roundings away it is no further off than eager is there, so that its error is a
   decision between nearly equal values.
4. Where 2 or 3 was needed, or 1 says little, the program compiled in float64 must be eager's (`compare_in_float64`).
"""

from __future__ import annotations

import contextlib
import copy
import math
import statistics
from collections.abc import Callable
from unittest import mock

import torch
from torch.utils._pytree import tree_map

from .step import Step

FLOOR = {"float32": 1e-5, "amp": 2e-2}
"""Relative errors below this are rounding noise of the format, not a difference."""
NEIGHBOURS = 8
"""Programs beside the given one whose results in eager show what one rounding of the weights and inputs does."""
BEYOND_NEIGHBOURS = 4.0
"""How many times the largest error of its neighbours a single tensor may have (of a few hundred, one is unlucky)."""
LOOSE = 1e-2
"""A limit above this says little; such programs are compared in float64, too."""
SAME_IN_FLOAT64 = 1e-7
"""Relative difference of a compiled program in float64 from eager in float64: rounding, however amplified. What is
wrong in the program itself stays as large as it is."""
SAME_WHERE_LOOSE = 1e-6
"""The same for a part in which eager's own float32 error is above `LOOSE`: what amplifies the rounding of float32 a
million times does so with that of float64."""
UNIT = 2.0**-23
"""The rounding of float32."""
TIE_UNIT = 16 * UNIT
"""How far neighbours are on which a tie is to be none: the program's own rounding, which near ones share, decides no
more."""


def relative_error(a: list[torch.Tensor], ref: list[torch.Tensor]) -> float:
    """‖a − ref‖ / ‖ref‖ over all tensors together; inf if they do not match in number or shape, or NaN stands in
    different places.
    """
    if len(a) != len(ref) or any(x.shape != y.shape for x, y in zip(a, ref)):
        return float("inf")
    num = den = 0.0
    for x, y in zip(a, ref):
        bad = ~torch.isfinite(y)
        if not torch.equal(torch.isfinite(x), ~bad):
            return float("inf")
        x, y = x.masked_fill(bad, 0), y.masked_fill(bad, 0)
        num += float((x - y).pow(2).sum())
        den += float(y.pow(2).sum())
    return (num / den) ** 0.5 if den else num**0.5


def errors_of(got: dict, want: dict, exact: dict | None, floor: float) -> dict[str, dict]:
    """Part (outputs, loss, ...) -> error of eager and of the compiled model against float64, and the limit."""
    errors: dict[str, dict] = {}
    for part, ref in want.items():
        e_eager = relative_error(ref, exact[part]) if exact and len(exact[part]) == len(ref) else None
        base = exact[part] if e_eager is not None and e_eager != float("inf") else ref
        e_got = relative_error(got.get(part, []), base)
        scale = e_eager or 0.0
        if part == "loss" and e_eager is not None:
            # One number may be right by chance. Relative errors e of n outputs that know nothing of each other leave
            # 2 e / sqrt(n) in the mean of their squares.
            n = sum(t.numel() for t in want["outputs"])
            scale = max(scale, 2 * (errors["outputs"]["eager"] or 0.0) / max(n, 1) ** 0.5)
        limit = 2 * scale + floor
        if e_eager == float("inf") or e_eager is None:
            limit = floor * 10
        errors[part] = {"eager": e_eager, "compiled": e_got, "limit": limit}
    return errors


def is_outside(errors: dict[str, dict]) -> bool:
    return any(e["compiled"] > e["limit"] for e in errors.values())


def is_right(errors: dict[str, dict]) -> bool:
    return not is_outside(errors) and all(e.get("float64", 0.0) <= e.get("float64_limit", 0.0) for e in errors.values())


# ---- what one rounding does in eager ----


def tensor_errors(a: list[torch.Tensor], ref: list[torch.Tensor]) -> list[float]:
    """‖a − ref‖ of each tensor."""
    return [float((x - y).norm()) for x, y in zip(a, ref)]


def beyond_spread(a: list[torch.Tensor], ref: list[torch.Tensor], spread: list[float], floor: float) -> float:
    """The largest share of its allowance that the error of a single tensor takes: an ill-conditioned one must not hide
    a fault in another. Allowed are `BEYOND_NEIGHBOURS` times its error among the neighbours, and rounding."""
    return beyond(tensor_errors(a, ref), ref, spread, floor)


def beyond(errors: list[float], ref: list[torch.Tensor], spread: list[float], floor: float) -> float:
    """`beyond_spread` of errors that are known."""
    total = sum(float(y.pow(2).sum()) for y in ref) ** 0.5
    allowed = [BEYOND_NEIGHBOURS * s + floor * float(y.norm()) + 1e-7 * total for s, y in zip(spread, ref)]
    shares = [e / m if m else math.inf * (e > 0) if e else 0.0 for e, m in zip(errors, allowed)]
    return max(shares, default=0.0)


def beside(model, args, kwargs, seed: int, unit: float, device: str) -> tuple[tuple, dict]:
    """Rounds the weights of a model, in place, and returns the inputs rounded: each value times 1 + e, e uniform in
    ± unit."""
    source = torch.Generator(device).manual_seed(seed)

    def near(t):
        if not isinstance(t, torch.Tensor) or not t.is_floating_point():
            return t
        return t * (1 + unit * (2 * torch.rand(t.shape, generator=source, device=t.device, dtype=t.dtype) - 1))

    with torch.no_grad():
        for p in model.parameters():
            p.copy_(near(p))
    return tree_map(near, args), tree_map(near, kwargs)


class Neighbours:
    """Errors of a program on several neighbours: of each part, and of each tensor of a part."""

    def __init__(self, parts) -> None:
        self.parts: dict[str, list[float]] = {part: [] for part in parts}
        self.tensors: dict[str, list[list[float]]] = {part: [] for part in parts}

    def add(self, got: dict, exact: dict) -> None:
        for part, ref in exact.items():
            error = relative_error(got.get(part, []), ref)
            if error != float("inf"):
                self.parts[part].append(error)
                self.tensors[part].append(tensor_errors(got[part], ref))

    def of_part(self, part: str, kind: Callable) -> float:
        """The errors of a part, all neighbours in one number: `kind` is max or the median."""
        return kind(self.parts[part])

    def of_tensors(self, part: str, kind: Callable) -> list[float]:
        return [kind(errors) for errors in zip(*self.tensors[part])]


def rounding_spread(step: Step, exact: dict, fresh: Callable) -> Neighbours:
    """Errors of eager, against float64 of the given program, on programs whose weights and inputs differ from its by a
    rounding (relative, uniform in ± the unit of the format that is computed in).

    A backward-stable program gives the exact result of such a neighbour, so nothing computed in this format can be
    held to less (Higham, Accuracy and Stability of Numerical Algorithms, chapter 1). Where ReLU or max pooling decide
    on the last bit, or batch norm divides by the spread of two values, this is orders of magnitude above the error
    that eager happens to have.
    """
    found = Neighbours(exact)
    unit = 2.0**-8 if step.amp else UNIT
    for seed in range(NEIGHBOURS):
        near = beside(fresh(step.model), step.args, step.kwargs, seed, unit, step.device)
        found.add(step.like(step.model, step.call, *near).snapshot(), exact)
    return found


def allow_spread(errors: dict[str, dict], got: dict, exact: dict, near: Neighbours, floor: float) -> None:
    """Raises the limit of parts that are outside to what one rounding does in eager, where each tensor is within it."""
    for part, e in errors.items():
        if e["compiled"] > e["limit"] and near.parts.get(part) and got.get(part):
            e["spread"] = near.of_part(part, max)
            e["tensors"] = beyond_spread(got[part], exact[part], near.of_tensors(part, max), floor)
            if e["tensors"] <= 1:
                e["limit"] = max(e["limit"], 2 * e["spread"] + floor)


# ---- near ties ----


def allow_tie(errors: dict[str, dict], got: dict, eager: Step, step: Step, fresh: Callable, floor: float) -> None:
    """Lifts the limit of a part whose error is of this one program: on its neighbours the compiled program is, in the
    median and in each tensor, no further from float64 of the neighbour than eager in the median is.

    Where ReLU or max pooling decide between two values that are equal but for rounding, a gradient goes one way or the
    other. Eager's neighbours need not decide that tie otherwise, and eager itself may be lucky. Some roundings further
    the tie is none any more; others are, for both. A fault stays what it is. The compiled program (the same code,
    other weights and inputs) must repeat itself on the given one, as code that reads what nobody wrote does not.
    `fresh` gives a model its first weights and buffers.
    """
    fresh(step.model)
    again = step.snapshot()
    if any(relative_error(again[part], got[part]) > floor for part in got):
        return
    theirs, ours, exact = Neighbours(errors), Neighbours(errors), {}
    for seed in range(NEIGHBOURS):
        near = beside(fresh(eager.model), eager.args, eager.kwargs, seed, TIE_UNIT, eager.device)
        double, *wide = in_float64(eager.model, *near)
        exact = eager.like(double, double, *wide).snapshot()
        theirs.add(eager.like(eager.model, eager.call, *near).snapshot(), exact)
        beside(fresh(step.model), step.args, step.kwargs, seed, TIE_UNIT, step.device)
        ours.add(step.like(step.model, step.call, *near).snapshot(), exact)
    for part, e in errors.items():
        if e["compiled"] <= e["limit"]:
            continue
        if len(ours.parts[part]) < NEIGHBOURS or len(theirs.parts[part]) < NEIGHBOURS:
            return  # results of other shapes, or NaN, somewhere
        median = statistics.median
        e["medians"] = [theirs.of_part(part, median), ours.of_part(part, median)]
        e["tensors"] = beyond(ours.of_tensors(part, median), exact[part], theirs.of_tensors(part, median), floor)
        if e["medians"][1] <= BEYOND_NEIGHBOURS * e["medians"][0] + floor and e["tensors"] <= 1:
            e["limit_before"], e["limit"] = e["limit"], e["compiled"]


# ---- in float64 ----


def in_float64(model, args, kwargs) -> tuple:
    """The program in float64: a copy of the model, and its inputs."""
    up = lambda t: t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t  # noqa: E731
    return copy.deepcopy(model).double(), tree_map(up, args), tree_map(up, kwargs)


@contextlib.contextmanager
def own_seeds_fixed():
    """A program that draws its own seed (`torch.seed()`) draws the same one each time."""
    with mock.patch.object(torch, "seed", lambda: 1):
        yield


def compare_in_float64(errors: dict[str, dict], exact: dict, eager: Step, compile_: Callable) -> None:
    """Compares the program compiled in float64 (`compile_(model)` makes it) with eager in float64; each part of
    `errors` gets the difference and its limit. `eager` is the step in float64, `exact` its results."""

    def compiled() -> dict:
        double = copy.deepcopy(eager.model)
        return eager.like(double, compile_(double), eager.args, eager.kwargs).snapshot()

    start = copy.deepcopy(eager.model.state_dict())
    for e in errors.values():
        e["float64_limit"] = SAME_IN_FLOAT64 if (e["eager"] or 0.0) <= LOOSE else SAME_WHERE_LOOSE

    def differs(got: dict, want: dict) -> bool:
        return any(relative_error(got.get(part, []), want[part]) > e["float64_limit"] for part, e in errors.items())

    got, want = compiled(), exact
    if differs(got, want) and differs(eager.snapshot(), want):  # the program is not the same twice
        with own_seeds_fixed():
            eager.model.load_state_dict(start)
            want = eager.snapshot()
            eager.model.load_state_dict(start)
            got = compiled()
    eager.model.load_state_dict(start)
    for part, e in errors.items():
        e["float64"] = relative_error(got.get(part, []), want[part])
