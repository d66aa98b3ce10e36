"""Compilers that break the contract of what they return."""

import pytest
import torch
from torch.fx import symbolic_trace

from lamina_aot_autograd import aot_compile, run_eagerly
from lamina_aot_autograd.errors import CompilerResultError, ContractError


class Program(torch.nn.Module):
    def forward(self, x):
        return x.sin() * x.cos(), x.exp()


def compiled(x, **compilers):
    roles = dict.fromkeys(("forward_compiler", "backward_compiler", "inference_compiler"), run_eagerly)
    return aot_compile(symbolic_trace(Program()), [x], **{**roles, **compilers})


def compiler_that(change):
    def careless(gm, example_inputs):
        return lambda *args: change(tuple(gm.forward(*args)))

    return careless


WRONG = [
    (lambda r: r[:-1], "results; expected"),
    (lambda r: (*r, r[0]), "results; expected"),
    (lambda r: torch.stack([r[0], r[0]]) if len(r) > 1 else None, "expected a tuple or list"),
    (lambda r: tuple(1.0 for _ in r), "returned the float 1.0 as result 0; expected a tensor"),
]


@pytest.mark.parametrize("change, said", WRONG)
@pytest.mark.parametrize("role", ["forward", "inference"])
def test_results_are_held_to_the_graph(role, change, said):
    x = torch.randn(3, requires_grad=role == "forward")
    call = compiled(x, **{f"{role}_compiler": compiler_that(change)})
    with pytest.raises(CompilerResultError, match=f"the {role} compiler 'careless' made .*{said}"):
        call(x)


@pytest.mark.parametrize("change, said", [w for w in WRONG if "tuple or list" not in w[1]])
def test_gradients_too(change, said):
    x = torch.randn(3, requires_grad=True)
    a, b = compiled(x, backward_compiler=compiler_that(change))(x)
    with pytest.raises(ContractError, match=f"the backward compiler 'careless' made a graph .*{said}"):
        (a + b).sum().backward()


@pytest.mark.parametrize("role", ["forward", "inference"])
def test_what_is_returned_must_be_callable(role):
    x = torch.randn(3, requires_grad=role == "forward")
    with pytest.raises(CompilerResultError, match=f"{role} compiler 'empty_handed' returned None; expected a callable"):
        def empty_handed(gm, example_inputs):
            return None

        compiled(x, **{f"{role}_compiler": empty_handed})(x)


def test_a_compiler_of_one_gradient_may_return_it_alone():
    x = torch.randn(3, requires_grad=True)
    a, b = compiled(x, backward_compiler=compiler_that(lambda r: r[0]))(x)
    (a + b).sum().backward()
    torch.testing.assert_close(x.grad, (2 * x).cos() + x.exp())


def test_attributes_of_what_was_compiled_show_through():
    def careful(gm, example_inputs):
        call = run_eagerly(gm)
        seen.append(call)
        return call

    seen = []
    x = torch.randn(3)
    a, b = compiled(x, inference_compiler=careful)(x)
    assert len(seen) == 1
    torch.testing.assert_close(a, x.sin() * x.cos())
    torch.testing.assert_close(b, x.exp())
