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
