"""What the graph nodes of higher-order calls run: each takes bodies (sub-graphs) and flat tensors, and gives flat
tensors.

A body takes its explicit inputs and then the outer values that it uses (``lifted``); it returns a flat tuple.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from . import _torch as private

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


def call_scan(
    body: Body, count: int, scanned: int, dim: int, out_dim: int, reverse: bool, *inputs: Any
) -> tuple[Any, ...]:
    """The body along the slices of ``scanned`` tensors: the last ``count`` carried values, then the stacked results.
    ``inputs``: the carried values, the scanned tensors, then the lifted ones. Results are stacked at ``out_dim``."""
    parts, rest = inputs[count : count + scanned], inputs[count + scanned :]
    carried = inputs[:count]
    order = range(parts[0].shape[dim])
    rows = []
    for i in reversed(order) if reverse else order:
        outputs = body(*carried, *[x.select(dim, i) for x in parts], *rest)
        carried = outputs[:count]
        rows.append(outputs[count:])
    if reverse:
        rows.reverse()
    stacked = [torch.stack(column) for column in zip(*rows)]
    return (*carried, *[s.movedim(0, out_dim) if out_dim and out_dim < s.dim() else s for s in stacked])


def call_map(body: Body, count: int, *inputs: Any) -> tuple[Any, ...]:
    """The stacked results of the body on each slice of the first ``count`` inputs."""
    mapped, rest = inputs[:count], inputs[count:]
    rows = [body(*[x.select(0, i) for x in mapped], *rest) for i in range(mapped[0].shape[0])]
    return tuple(torch.stack(column) for column in zip(*rows))


def call_long_scan(*args: Any) -> tuple[Any, ...]:
    """``call_scan`` over so many slices that a stage should not unroll it."""
    return call_scan(*args)


def call_long_map(*args: Any) -> tuple[Any, ...]:
    """``call_map`` over so many slices that a stage should not unroll it."""
    return call_map(*args)


call_long_scan._lamina_needs_real_tensors = True  # type: ignore[attr-defined]
call_long_map._lamina_needs_real_tensors = True  # type: ignore[attr-defined]


def checkpoint_over_state(body: Body, *inputs: Any, **settings: Any) -> Any:
    """``torch.utils.checkpoint.checkpoint`` of a body that writes to some of its inputs: the tensors without gradients
    are no arguments of the checkpoint, as they were none before capture made inputs of them.
    """
    state = {i: t for i, t in enumerate(inputs) if isinstance(t, torch.Tensor) and not t.requires_grad}

    def run(*rest: Any) -> Any:
        given = iter(rest)
        return body(*(state[i] if i in state else next(given) for i in range(len(inputs))))

    return checkpoint(run, *(t for i, t in enumerate(inputs) if i not in state), **settings)


def register_hook(tensor: torch.Tensor, body: Body, *lifted: Any) -> Any:
    """``tensor.register_hook`` of a body, which gets the gradient and then the outer values that it uses."""

    def hook(gradient: torch.Tensor) -> Any:
        results = body(gradient, *lifted)
        return results[0] if results else None

    return tensor.register_hook(hook)  # type: ignore[no-untyped-call]


def register_hook_later(tensor: torch.Tensor) -> Any:
    """A place among the hooks of ``tensor``, for `set_hook`: until then it does nothing."""
    return tensor.register_hook(_no_hook)  # type: ignore[no-untyped-call]


def _no_hook(gradient: torch.Tensor) -> None:
    return None


def set_hook(handle: Any, hook: Callable[..., Any]) -> None:
    """Puts ``hook`` where `register_hook_later` made place for it, unless that was removed."""
    hooks = handle.hooks_dict_ref()
    if hooks is not None and handle.id in hooks:
        hooks[handle.id] = hook


def remove_hook(handle: Any) -> None:
    """Undo ``register_hook``."""
    handle.remove()


def make_parameter(data: torch.Tensor, requires_grad: bool) -> torch.nn.Parameter:
    """A new parameter with the memory of ``data``."""
    return torch.nn.Parameter(data, requires_grad)


def set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """``tensor.data = value``."""
    tensor.data = value


def autograd_grad(
    outputs: list[torch.Tensor],
    inputs: list[torch.Tensor],
    grad_outputs: list[torch.Tensor | None] | None,
    retain_graph: bool | None,
    create_graph: bool,
    allow_unused: bool,
) -> tuple[torch.Tensor | None, ...]:
    """``torch.autograd.grad`` of lists."""
    return torch.autograd.grad(
        outputs, inputs, grad_outputs, retain_graph=retain_graph, create_graph=create_graph, allow_unused=allow_unused
    )


def pack_padded(data: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, ...]:
    """The rows of padded sequences, step by step, and how many there are in each step."""
    return tuple(private.recurrent_operators._pack_padded_sequence(data, lengths, batch_first))


def pad_packed(
    data: torch.Tensor, sizes: torch.Tensor, batch_first: bool, value: float, steps: int
) -> tuple[torch.Tensor, ...]:
    """Padded sequences of packed rows, and their lengths; ``steps`` 0: as long as the longest."""
    return tuple(private.recurrent_operators._pad_packed_sequence(data, sizes, batch_first, value, steps))


def run_packed_layer(
    name: str, data: torch.Tensor, sizes: torch.Tensor, states: list[torch.Tensor], weights: list[torch.Tensor],
    settings: list[Any],
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """A recurrent layer over packed rows: its rows, and its last states."""
    state = tuple(states) if name == "lstm" else states[0]
    return tuple(getattr(private.recurrent_operators, name)(data, sizes, state, weights, *settings))


_runs = threading.local()


def backward_runs() -> int:
    """How often this thread has begun a `run_backward`."""
    return getattr(_runs, "count", 0)


def run_backward(
    tensors: list[torch.Tensor],
    grad_tensors: list[torch.Tensor | None],
    retain_graph: bool,
    inputs: list[torch.Tensor] | None,
    watched: list[torch.Tensor],
    priors: list[torch.Tensor | None],
    create_graph: bool = False,
) -> tuple[torch.Tensor, ...]:
    """``torch.autograd.backward``; the ``grad`` of each tensor in ``watched`` is that of ``priors`` before and is
    returned after."""
    _runs.count = backward_runs() + 1
    for tensor, prior in zip(watched, priors, strict=True):
        if tensor.grad is not prior:
            tensor.grad = prior
    torch.autograd.backward(  # type: ignore[no-untyped-call]
        tensors, grad_tensors, retain_graph, create_graph, inputs=inputs
    )
    found = tuple([tensor.grad for tensor in watched])
    if any([grad is None for grad in found]):
        raise RuntimeError("a tensor that the loss was computed from got no gradient")
    return found  # type: ignore[return-value]


def get_rng_state() -> torch.Tensor:
    """State of the default generator."""
    return torch.random.get_rng_state()


def set_rng_state(state: torch.Tensor) -> None:
    """Set the state of the default generator."""
    torch.random.set_rng_state(state)


def manual_seed(seed: int) -> torch.Generator:
    """Seed the default generators of all devices."""
    return torch.manual_seed(seed)


def seed_generator(generator: torch.Generator, seed: int) -> None:
    """Seed a generator."""
    generator.manual_seed(seed)


def generator_state(generator: torch.Generator) -> torch.Tensor:
    """State of a generator."""
    return generator.get_state()


def set_generator_state(generator: torch.Generator, state: torch.Tensor) -> None:
    """Set the state of a generator."""
    generator.set_state(state)


# These act on tensor objects and random generators.
for _function in (
    register_hook, register_hook_later, remove_hook, make_parameter, set_data, autograd_grad, run_backward,
    pack_padded, pad_packed, run_packed_layer, checkpoint_over_state,
    get_rng_state, set_rng_state, manual_seed, seed_generator, generator_state, set_generator_state,
):  # fmt: skip
    _function._lamina_needs_real_tensors = True  # type: ignore[attr-defined]

# These look at values: a stage that traces without them has to run them for real.
call_cond._lamina_needs_real_tensors = True  # type: ignore[attr-defined]
call_while._lamina_needs_real_tensors = True  # type: ignore[attr-defined]
