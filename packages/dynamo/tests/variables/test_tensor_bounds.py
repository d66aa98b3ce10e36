"""Assignments to slices bounded by tensors go into the graph as masked fills."""

from __future__ import annotations

import pytest
import torch

import lamina_dynamo


def rows(x, n):
    for i in range(x.shape[0]):
        x[i, : n[i]] = 7
    return x * 2


def start(x, n):
    x[n[0] :] = 1.5
    return x + 1


def both(x, n):
    x[:, n[0] : n[1]] = -1
    return x + 1


def mixed(x, n):
    x[..., 1 : n[1]] = n.new_tensor(3).to(x.dtype)
    x[None, :, -2 : n[2]] = 0
    x[0, ..., n[0] : -1] = True
    return x


def two_dimensions(x, n):
    x[: n[0], n[1] :] = 4
    return x


ALL = [rows, start, both, mixed, two_dimensions]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("fn", ALL)
def test_bounds_stay_in_the_graph(fn, dynamic):
    compiled = lamina_dynamo.optimize("eager", fullgraph=True, dynamic=dynamic)(fn)
    for bounds in ([1, 3, 2], [0, -1, -3], [-2, 9, 0], [5, 1, -9]):
        n = torch.tensor(bounds)
        x = torch.arange(15.0).reshape(3, 5)
        torch.testing.assert_close(compiled(x.clone(), n), fn(x.clone(), n), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bool, torch.bfloat16])
def test_value_is_converted_as_the_assignment_converts_it(dtype):
    def fn(x, n):
        x[:, : n[0]] = True
        return x

    n, x = torch.tensor([2]), torch.zeros(2, 4, dtype=dtype)
    got = lamina_dynamo.optimize("eager", fullgraph=True)(fn)(x.clone(), n)
    assert got.dtype is dtype
    assert torch.equal(got, fn(x.clone(), n))


def test_gradient_flows_around_the_filled_part():
    def fn(x, n):
        y = x * 2
        y[1, : n[0]] = 0
        return y.sin().sum()

    n, x = torch.tensor([2]), torch.randn(2, 4, requires_grad=True)
    got = torch.autograd.grad(lamina_dynamo.optimize("eager", fullgraph=True)(fn)(x, n), x)
    assert torch.equal(got[0], torch.autograd.grad(fn(x, n), x)[0])


def other_step(x, n):
    x[: n[0] : 2] = 1
    return x


def tensor_value(x, n):
    x[: n[0]] = torch.ones(5)
    return x


def float_into_int(x, n):
    y = x.long()
    y[: n[0]] = 2.7
    return y


@pytest.mark.parametrize("fn", [other_step, tensor_value, float_into_int])
def test_what_a_mask_cannot_say_breaks_the_graph(fn):
    n, x = torch.tensor([2]), torch.arange(15.0).reshape(3, 5)
    assert torch.equal(lamina_dynamo.optimize("eager")(fn)(x.clone(), n), fn(x.clone(), n))
