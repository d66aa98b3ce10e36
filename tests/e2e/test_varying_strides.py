"""Inputs whose strides change from call to call, down to generated code."""

from __future__ import annotations

import pytest
import torch

import lamina


def softmax(x):
    return (x @ x.transpose(-1, -2)).softmax(-1)


def written(x):
    x.add_(1)
    return x * 2


def views(x):
    return x.sum(0), x.t()


def flat(x):
    return x.reshape(-1) * 2


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("fn", [softmax, written, views, flat])
def test_values_and_layouts(fn, backend):
    compiled = lamina.compile(fn, backend=backend, fullgraph=True)
    for n in (6, 7, 9, 12, 5):
        whole = torch.randn(3, n)
        other = whole.clone()
        got, want = compiled(whole[:, 1:4]), fn(other[:, 1:4])
        torch.testing.assert_close(got, want)
        assert torch.equal(whole, other)
        for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, want))):
            assert a.stride() == b.stride()


def test_gradients():
    def fn(x):
        return (x.sin() * x).sum()

    compiled = lamina.compile(fn, fullgraph=True)
    for n in (6, 7, 9):
        whole = torch.randn(3, n, requires_grad=True)
        got = torch.autograd.grad(compiled(whole[:, 1:4]), whole)
        torch.testing.assert_close(got, torch.autograd.grad(fn(whole[:, 1:4]), whole))


SIZE_ONE = {
    "transposed": lambda: torch.arange(4.0).reshape(1, 4).t(),
    "wide": lambda: torch.rand(4, 1).as_strided((4, 1), (1, 9)),
    "strided": lambda: torch.rand(8, 1)[::2],
    "repeated": lambda: torch.rand(4, 1).as_strided((4, 1), (1, 0)),
}


@pytest.mark.parametrize("backend", ["aot_eager", "aot_prims", "reference", "inductor"])
@pytest.mark.parametrize("layout", SIZE_ONE)
def test_strides_of_dimensions_of_size_one(layout, backend):
    def fn(x):
        pointwise = x.clamp(-1, 1), x.relu(), x + 1, x.exp(), x.masked_fill(x > 0, 1.0), x.half()
        return *pointwise, x.triu(1), x.flip(0), x.clone(), x.cumsum(0), x.softmax(0), torch.where(x > 0, x, 1.0)

    x = SIZE_ONE[layout]()
    got, want = lamina.compile(fn, backend=backend)(x), fn(x)
    assert [t.stride() for t in got] == [t.stride() for t in want]


def test_results_of_prims_share_no_memory():
    def fn(x):
        return torch.nn.functional.pad(x, (-1, 0)), x.sum().aminmax(dim=0)[1], torch.nn.functional.pad(x, (0, 0))

    x = torch.randn(3, 4)
    got, want = lamina.compile(fn, backend="aot_prims")(x), fn(x)
    torch.testing.assert_close(got, want)
    assert len({t.untyped_storage().data_ptr() for t in (x, *got)}) == 4
