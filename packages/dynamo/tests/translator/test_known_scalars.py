"""Scalar tensors computed from Python numbers alone: their values are known while a frame is translated."""

from __future__ import annotations

import contextlib

import pytest
import torch

import lamina_dynamo


def sizes(x):
    half = torch.div(x.size(0), 2, rounding_mode="trunc")
    rest = half - 1
    y = x.view(half, 2)
    if rest > 1 and not rest == 5:
        y = y + 1
    return y.new_zeros((rest, rest + 1)), y[:, :rest], y[rest], y * rest, int(rest), float(rest), rest.item(), rest


def numbers(x):
    n = torch.tensor(2.5)
    return x * n, torch.full((2,), n), torch.add(x, n, alpha=n), x.clamp(min=n), list(range(torch.tensor(3)))


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("fn", [sizes, numbers])
def test_known_values_are_numbers(fn, inference):
    with torch.inference_mode() if inference else contextlib.nullcontext():
        x = torch.arange(8.0)
        want = fn(x)
        got = lamina_dynamo.optimize("eager", fullgraph=True)(fn)(x)
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert type(a) is type(b)
        torch.testing.assert_close(a, b)


def written(x):
    n = torch.tensor(3)
    n.add_(x.sum().long())
    return x.view(n - 2, -1)


def written_through_view(x):
    n = torch.tensor(3)
    v = n.view(1)
    v.add_(1)
    return x.view(n, -1)


def written_by_index(x):
    n = torch.tensor(3)
    n[...] = 4
    return x.view(n, -1)


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("fn", [written, written_through_view, written_by_index])
def test_a_write_forgets_the_value(fn, inference):
    with torch.inference_mode() if inference else contextlib.nullcontext():
        x = torch.zeros(4)
        got = lamina_dynamo.optimize("eager")(fn)(x)
        assert got.shape == fn(x).shape


def test_the_number_stands_in_the_graph():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    lamina_dynamo.optimize(backend)(lambda x: x.view(torch.div(x.size(0), 2, rounding_mode="trunc"), 2))(torch.zeros(8))
    (view,) = [n for n in graphs[0].graph.nodes if n.target == "view"]
    assert view.args[1:] == (4, 2)


def test_values_of_other_tensors_stay_in_the_program():
    def fn(x):
        return torch.zeros(torch.empty((), dtype=torch.int64).fill_(3).item()), x.sum().item()

    compiled = lamina_dynamo.optimize("eager")(fn)
    for k in range(3):
        zeros, total = compiled(torch.full((4,), float(k)))
        assert zeros.shape == (3,) and total == 4.0 * k


def test_settings_of_a_module_are_no_inputs_under_dynamic():
    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.eps, self.heads = 1e-5, 4

        def forward(self, x, n):
            return x.reshape(self.heads, -1) * self.eps + n

    graphs = []

    def backend(gm, inputs):
        graphs.append([i for i in inputs if not isinstance(i, torch.Tensor)])
        return gm.forward

    module = Scale()
    compiled = lamina_dynamo.optimize(backend, dynamic=True)(module)
    for n, length in ((3, 8), (4, 12), (7, 16)):
        x = torch.randn(length)
        assert torch.equal(compiled(x, n), module(x, n))
    assert len(graphs) == 1 and not any(isinstance(i, (float, torch.SymFloat)) for i in graphs[0])
    module.eps, module.heads = 2.0, 2
    assert torch.equal(compiled(x, n), module(x, n))


def test_large_numbers_are_never_symbolic():
    def fn(x, n):
        return x + (n % (2**63 - 1) > 5)

    compiled = lamina_dynamo.optimize("eager", dynamic=True)(fn)
    x = torch.zeros(2)
    for n in (2**64 - 3, 2**63 + 11, 2**62 + 1, 7):
        assert torch.equal(compiled(x, n), fn(x, n))


def drop_layers(x, p):
    for i in range(3):
        if torch.rand([]) < p:
            continue
        x = x * 2 + i
    return x


@pytest.mark.parametrize("p", [0.0, 0, -1.0, 1.0, 1.5])
def test_draws_are_compared_with_what_they_cannot_reach(p):
    fn = lamina_dynamo.optimize("eager", fullgraph=True, dynamic=False)(drop_layers)
    x = torch.ones(2)
    torch.testing.assert_close(fn(x, p), drop_layers(x, p))


def test_draws_are_compared_exactly():
    def fn(x, p):
        r = torch.rand([])
        low, high = (r >= 0.0, r > -0.5, r <= 1.0), (r > 1.0, r < -1e-3, r >= 1)
        return x * 2 if all(low) and not any(high) else x

    def close(x):
        return x * 2 if torch.rand([]) > -1e-50 else x  # 0.0 in the tensor's type

    def written(x):
        r = torch.rand([])
        r.sub_(1)
        return x * 2 if r < 0.0 else x

    x = torch.ones(2)
    torch.testing.assert_close(lamina_dynamo.optimize("eager", fullgraph=True)(fn)(x, 1), x * 2)
    for f in (close, written):
        lamina_dynamo.reset()
        torch.testing.assert_close(lamina_dynamo.optimize("eager")(f)(x), x * 2)
        assert lamina_dynamo.counters()["breaks"] == {"data_dependent_branch": 1}


def test_numbers_that_outgrow_a_compiled_graph():
    """A number becomes symbolic while it is small; later ones do not fit 64 bits, or their products do not."""

    def fn(x, n):
        return x + (n % 1000003) % 7, n % (2**63 - 1), n * n

    compiled = lamina_dynamo.optimize("eager")(fn)
    x = torch.ones(3)
    for n in (5, 6, 7, 2**40, 2**63 + 5, 2**70, -(2**63) - 1, 3037000500, 8):
        got, want = compiled(x, n), fn(x, n)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:], n
