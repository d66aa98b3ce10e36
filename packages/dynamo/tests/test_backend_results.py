"""Backends that break the contract of what they return."""

import pytest
import torch

import lamina_dynamo
from lamina_dynamo import BackendCompilerFailed, BackendResultError


def backend_that(change):
    """A backend whose callable returns ``change(results)``."""

    def careless(gm, example_inputs):
        return lambda *args: change(gm.forward(*args))

    return careless


def two(x):
    return x + 1, x * 2


@pytest.mark.parametrize("change, said", [
    (lambda r: r[:1], "returned 1 results .* expected 2"),
    (lambda r: (*r, r[0]), "returned 3 results .* expected 2"),
    (lambda r: (), "returned 0 results"),
    (lambda r: None, "returned None .* expected a tuple or list"),
    (lambda r: torch.stack(r), r"returned a tensor of shape \(2, 2\)"),
    (lambda r: iter(r), "returned an object of class tuple_iterator"),
    (lambda r: dict(enumerate(r)), "returned an object of class dict"),
    (lambda r: (r[0], 3.5), "returned the float 3.5 as result 1 .* expected a tensor"),
    (lambda r: (r[0].numpy(), r[1]), "returned an object of class ndarray as result 0"),
    (lambda r: (r[0], [r[1]]), "returned a list of 1 as result 1"),
    (lambda r: [None, r[1]], "returned None as result 0"),
])  # fmt: skip
def test_results_are_held_to_the_graph(change, said):
    fast = lamina_dynamo.optimize(backend_that(change))(two)
    for _ in range(2):
        with pytest.raises(BackendResultError, match=f"'careless' {said}") as info:
            fast(torch.ones(2))
        assert info.value.backend == "careless" and "in two" in str(info.value)
        assert isinstance(info.value, BackendCompilerFailed)


@pytest.mark.parametrize("change", [tuple, list, lambda r: torch.nn.ParameterList(r) and tuple(r)])
def test_results_that_keep_the_contract(change):
    out = lamina_dynamo.optimize(backend_that(change))(two)(torch.ones(2))
    assert torch.equal(out[0], torch.full((2,), 2.0)) and torch.equal(out[1], torch.full((2,), 2.0))


def test_one_result_in_no_tuple_is_not_taken_apart():
    """A tensor of one row would be taken for its row."""
    fast = lamina_dynamo.optimize(backend_that(lambda r: r[0]))(lambda x: x + 1)
    with pytest.raises(BackendResultError, match=r"\(out,\) for a single one"):
        fast(torch.ones(1, 3))


@pytest.mark.parametrize("returned, said", [(None, "None"), (3, "the int 3"), ((len,), "a tuple of 1")])
def test_what_is_returned_must_be_callable(returned, said):
    def empty_handed(gm, example_inputs):
        return returned

    with pytest.raises(BackendResultError, match=f"'empty_handed' returned {said} .* expected a callable"):
        lamina_dynamo.optimize(empty_handed)(two)(torch.ones(2))


def test_nothing_of_the_program_has_happened_before():
    seen = []

    def f(x):
        seen.append(1)
        return x + 1

    with pytest.raises(BackendResultError):
        lamina_dynamo.optimize(backend_that(lambda r: (r[0], r[0])))(f)(torch.ones(2))
    assert seen == []


def test_a_program_s_handler_does_not_swallow_it():
    def f(x):
        try:
            return x + 1
        except TypeError:
            return x

    with pytest.raises(BackendResultError):
        lamina_dynamo.optimize(backend_that(lambda r: (r[0], r[0])))(f)(torch.ones(2))


def test_a_graph_without_results():
    def f(x):
        x.add_(1)

    x = torch.ones(2)
    lamina_dynamo.optimize(backend_that(lambda r: None))(f)(x)
    assert torch.equal(x, torch.full((2,), 2.0))
