"""What the graph nodes of higher-order calls run: each takes bodies (sub-graphs) and flat tensors, and gives flat
tensors.

A body takes its explicit inputs and then the outer values that it uses (``lifted``); it returns a flat tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Body = Callable[..., tuple[Any, ...]]


def call_vmap(body: Body, in_dims: Sequence[int | None], out_dims: Sequence[int | None], options: dict, *inputs: Any):
    """``torch.func.vmap`` of the body; ``in_dims`` and ``out_dims`` are given per flat input and output."""
    mapped = torch.func.vmap(body, in_dims=tuple(in_dims), out_dims=tuple(out_dims), **options)
    return tuple(mapped(*inputs))


def call_grad(body: Body, count: int, *inputs: Any) -> tuple[Any, ...]:
    """Gradients of the body's first output for the first ``count`` inputs, then all outputs of the body."""
    rest = inputs[count:]

    def scalar(*diff: Any) -> Any:
        first, *more = body(*diff, *rest)
        return first, (first, *more)

    grads, outputs = torch.func.grad(scalar, argnums=tuple(range(count)), has_aux=True)(*inputs[:count])
    return (*grads, *outputs)


def call_jacobian(transform: str, body: Body, count: int, results: int, options: dict, *inputs: Any) -> tuple[Any, ...]:
    """Jacobians of the first ``results`` outputs for the first ``count`` inputs (output by output), then the other
    outputs."""
    rest = inputs[count:]

    def split(*diff: Any) -> Any:
        outputs = body(*diff, *rest)
        return tuple(outputs[:results]), tuple(outputs[results:])

    function = getattr(torch.func, transform)
    rows, more = function(split, argnums=tuple(range(count)), has_aux=True, **options)(*inputs[:count])
    return (*[j for row in rows for j in row], *more)


def call_vjp(body: Body, count: int, results: int, *inputs: Any) -> tuple[Any, ...]:
    """Gradients for the first ``count`` inputs; the cotangents of the first ``results`` outputs follow the ``count``
    inputs."""
    cotangents = inputs[count : count + results]
    rest = inputs[count + results :]
    _, pull = torch.func.vjp(lambda *diff: tuple(body(*diff, *rest)[:results]), *inputs[:count])
    return tuple(pull(tuple(cotangents)))


def call_jvp(body: Body, count: int, results: int, *inputs: Any) -> tuple[Any, ...]:
    """The first ``results`` outputs, their tangents, then the other outputs; tangents follow the ``count`` primals."""
    primals, tangents, rest = inputs[:count], inputs[count : 2 * count], inputs[2 * count :]

    def split(*diff: Any) -> Any:
        outputs = body(*diff, *rest)
        return tuple(outputs[:results]), tuple(outputs[results:])

    values, derivatives, more = torch.func.jvp(split, tuple(primals), tuple(tangents), has_aux=True)
    return (*values, *derivatives, *more)


def call_cond(
    predicate: Any, true_body: Body, false_body: Body, true_inputs: Any, false_inputs: Any
) -> tuple[Any, ...]:
    """One of two bodies."""
    return tuple(true_body(*true_inputs) if predicate else false_body(*false_inputs))


def call_while(condition: Body, body: Body, carried: Any, condition_lifted: Any, body_lifted: Any) -> tuple[Any, ...]:
    """The body again and again while the condition gives a true tensor."""
    while condition(*carried, *condition_lifted)[0]:
        carried = body(*carried, *body_lifted)
    return tuple(carried)


# These look at values: a stage that traces without them has to run them for real.
call_cond._lamina_needs_real_tensors = True  # type: ignore[attr-defined]
call_while._lamina_needs_real_tensors = True  # type: ignore[attr-defined]
