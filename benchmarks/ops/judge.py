"""Compiled against eager: results, arguments after the call, gradients and gradients of gradients of a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .samples import Case

TOLERANCE = {
    torch.float64: (1e-7, 1e-7), torch.float32: (2e-5, 2e-5), torch.float16: (4e-3, 2e-3),
    torch.bfloat16: (3.2e-2, 1e-2), torch.complex64: (2e-5, 2e-5), torch.complex128: (1e-7, 1e-7),
    torch.complex32: (4e-3, 2e-3),
}  # fmt: skip
# Values that mean nothing (memory that was never written); the metadata must still agree.
UNSPECIFIED = {"empty", "new_empty", "empty_like", "empty_permuted", "empty_strided", "new_empty_strided", "resize_",
               "resize_as_"}  # fmt: skip
# Values drawn from a stream of random numbers that is not promised to be eager's.
RANDOM = {
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "uniform", "rand",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "poisson", "svd_lowrank", "pca_lowrank",
    "torch.ops.aten._efficient_attention_forward", "torch.ops.aten._flash_attention_forward",
    "nn.functional.dropout", "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout",
    "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.rrelu",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
    "nn.functional.multi_head_attention_forward", "nn.functional.scaled_dot_product_attention",
    "nn.Dropout", "nn.Dropout1d", "nn.Dropout2d", "nn.Dropout3d", "nn.AlphaDropout", "nn.FeatureAlphaDropout",
    "nn.FractionalMaxPool2d", "nn.FractionalMaxPool3d", "nn.RReLU",
}  # fmt: skip


def is_random(case: Case) -> bool:
    """Whether the case draws random numbers: an operator that can, called so that eager's answer varies."""
    if case.name not in RANDOM:
        return False
    answers = []
    for seed in (1, 2):
        arguments, _ = case.arguments()
        torch.manual_seed(seed)
        answers.append(results_of(case.call, arguments))
    return any(
        isinstance(a, torch.Tensor) and a.layout is torch.strided and compare(a, b, "value")
        for a, b in zip(*answers, strict=True)
    )


def results_of(call: Callable[..., Any], arguments: Any) -> tuple[Any, ...]:
    """The tensors and numbers among the results of one call."""
    x, args, kwargs = arguments
    out = call(x, *args, **kwargs)
    return tuple(o for o in pytree.tree_leaves(out) if isinstance(o, (torch.Tensor, int, float, bool, complex)))


def weight_for(o: torch.Tensor, phase: float) -> torch.Tensor:
    ramp = torch.arange(o.numel(), dtype=torch.float64).mul_(0.37).add_(phase).sin_().add_(0.3).reshape(o.shape)
    # in the layout of the output, as a loss would give it: a compiled backward is made for that
    return torch.empty_like(o, requires_grad=False).copy_(ramp)


def gradients(
    outputs: tuple[Any, ...], leaves: list[torch.Tensor], twice: bool = False
) -> list[torch.Tensor | None]:
    """Gradients of the outputs' product with fixed weights, for each leaf; with `twice` also the gradients of those,
    for each leaf and each weight.
    """
    roots = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    if not roots or not leaves:
        return []
    weights = [weight_for(o, 0.0).requires_grad_(twice) for o in roots]
    first = list(torch.autograd.grad(roots, leaves, weights, allow_unused=True, create_graph=twice))
    if not twice:
        return first
    again = [g for g in first if g is not None and g.requires_grad]
    if not again:
        return first
    inputs = [*leaves, *weights]
    second = torch.autograd.grad(again, inputs, [weight_for(g, 1.0) for g in again], allow_unused=True)
    return [*first, *second]


def compare(got: Any, want: Any, what: str, scale: float = 1.0, values: bool = True) -> str | None:
    """What differs, or None."""
    if isinstance(want, torch.Tensor) != isinstance(got, torch.Tensor):
        return f"{what}: {type(got).__name__}, eager {type(want).__name__}"
    if not isinstance(want, torch.Tensor):
        same = type(got) is type(want) and (got == want or (got != got and want != want))
        return None if same or not values else f"{what}: {got!r}, eager {want!r}"
    if type(got) is not type(want):
        return f"{what}: {type(got).__name__}, eager {type(want).__name__}"
    if got.dtype is not want.dtype:
        return f"{what}: dtype {got.dtype}, eager {want.dtype}"
    if got.shape != want.shape:
        return f"{what}: shape {tuple(got.shape)}, eager {tuple(want.shape)}"
    if got.layout is not want.layout:
        return f"{what}: layout {got.layout}, eager {want.layout}"
    if want.layout is not torch.strided:
        return None
    if got.stride() != want.stride():
        return f"{what}: stride {got.stride()}, eager {want.stride()} of {tuple(want.shape)}"
    if not values:
        return None
    a, b = got.detach().resolve_conj().resolve_neg(), want.detach().resolve_conj().resolve_neg()
    if b.dtype is torch.complex32:
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    if b.dtype not in TOLERANCE:
        return None if torch.equal(a, b) else f"{what}: values {show(a)}, eager {show(b)}"
    rtol, atol = TOLERANCE[b.dtype]
    if torch.allclose(a, b, rtol * scale, atol * scale, equal_nan=True):
        return None
    return f"{what}: values {show_difference(a, b)}"


def show(t: torch.Tensor) -> str:
    return str([f"{v:.6g}" if isinstance(v, float) else v for v in t.flatten()[:5].tolist()])


def show_difference(a: torch.Tensor, b: torch.Tensor) -> str:
    """The elements that differ most."""
    worst = (a - b).abs().nan_to_num(torch.inf, torch.inf).flatten()
    worst = torch.where((a == b).flatten() | (a.isnan() & b.isnan()).flatten(), 0, worst.to(torch.float64))
    at = worst.topk(min(3, worst.numel()))[1]
    return f"{a.flatten()[at].tolist()}, eager {b.flatten()[at].tolist()} at {at.tolist()} of {tuple(a.shape)}"


class Expected:
    """Eager's answer to a case: results and gradients; `error` if it raises."""

    def __init__(self, case: Case, twice: bool = False) -> None:
        self.case, self.twice, self.error = case, twice, None
        self.outputs: tuple[Any, ...] = ()
        self.grads: list[torch.Tensor | None] = []
        self.state: list[torch.Tensor] = []
        self.random = False
        try:
            arguments, leaves = case.arguments()
            torch.manual_seed(1)
            self.outputs = results_of(case.call, arguments)
            self.state = case.state(arguments)
            self.random = is_random(case) or case.name in UNSPECIFIED
            self.grads = gradients(self.outputs, leaves, twice)
        except Exception as e:
            self.error: Exception | None = e


def judge(expected: Expected, outputs: tuple[Any, ...], arguments: Any, leaves: list[torch.Tensor]) -> str | None:
    """What is wrong with a compiled call's results, its arguments after the call and its gradients, or None."""
    want, values = expected.outputs, not expected.random
    if len(outputs) != len(want):
        return f"{len(outputs)} results, eager {len(want)}"
    for k, (g, w) in enumerate(zip(outputs, want, strict=True)):
        problem = compare(g, w, f"result {k}", values=values)
        if problem:
            return problem
        if isinstance(w, torch.Tensor) and w.requires_grad != g.requires_grad:
            return f"result {k}: requires_grad {g.requires_grad}, eager {w.requires_grad}"
    for k, (g, w) in enumerate(zip(expected.case.state(arguments), expected.state, strict=True)):
        problem = compare(g, w, f"argument {k} after the call", values=values)
        if problem:
            return problem
    try:
        grads = gradients(outputs, leaves, expected.twice)
    except Exception as e:
        return f"backward: {type(e).__name__}: {str(e)[:300]}"
    if len(grads) != len(expected.grads):
        return f"{len(grads)} gradients, eager {len(expected.grads)}"
    for k, (g, w) in enumerate(zip(grads, expected.grads, strict=True)):
        if (g is None) != (w is None):
            return f"gradient {k}: {'None' if g is None else 'a tensor'}, eager {'None' if w is None else 'a tensor'}"
        if g is not None:
            problem = compare(g, w, f"gradient {k}", 5.0, values=values)
            if problem:
                return problem
    return None


HALVES = (torch.float16, torch.bfloat16)


def is_closer_than_eager(expected: Expected, fast: Callable[..., Any]) -> bool:
    """Whether compiled half-precision results, where they differ from eager's, are as near as eager's or nearer to
    what eager gives in float64. Eager rounds between the steps of some kernels, depending on the layout.
    """
    case = expected.case
    arguments, leaves = case.arguments()
    if not any(t.dtype in HALVES for t in case.state(arguments)):
        return False
    torch.manual_seed(1)
    outputs = fast(arguments)

    def widened(x: Any) -> Any:
        if isinstance(x, torch.Tensor) and x.dtype in HALVES and x.layout is torch.strided:
            wide = torch.empty_like(x, dtype=torch.float64, requires_grad=False)
            with torch.no_grad():
                wide.copy_(x)
            return wide.requires_grad_(x.requires_grad)
        return torch.float64 if x in HALVES else x

    wide = case.widened(case.arguments()[0], widened)
    wide_leaves = case.leaves_of(wide)
    if len(wide_leaves) != len(leaves):
        return False
    torch.manual_seed(1)
    try:
        truth = [*results_of(case.call, wide)]
        truth += [*case.state(wide), *gradients(tuple(truth), wide_leaves, expected.twice)]
    except Exception:
        return False
    got = [*outputs, *case.state(arguments), *gradients(outputs, leaves, expected.twice)]
    want = [*expected.outputs, *expected.state, *expected.grads]
    if not len(got) == len(want) == len(truth):
        return False
    for g, w, t in zip(got, want, truth, strict=True):
        if not isinstance(w, torch.Tensor) or w.dtype not in HALVES:
            if compare(g, w, "value", 5.0):
                return False
            continue
        if compare(g, w, "value", values=False):
            return False
        far = compare(g, w, "value", 5.0)
        if far and not (g.double() - t).abs().max() <= (w.double() - t).abs().max():
            return False
    return True
