"""`interpolate` and other calls whose C++ code wants plain sizes, with symbolic ones: no break, one graph for all."""

from __future__ import annotations

import logging

import pytest
import torch
import torch.nn.functional as F

import lamina_dynamo
from lamina_dynamo.counters import reset_counters

MODES = [("nearest", 1), ("nearest-exact", 2), ("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3)]


@pytest.mark.parametrize(("mode", "dims"), MODES)
@pytest.mark.parametrize("by", ["size", "scale", "image"])
def test_interpolate_with_symbolic_sizes(mode, dims, by, caplog):
    def fn(x, n):
        if by == "size":
            return F.interpolate(x, size=(n,) * dims, mode=mode) * 2
        return F.interpolate(x, scale_factor=2 if by == "scale" else 1.5, mode=mode) * 2

    reset_counters()
    compiled = lamina_dynamo.optimize("eager", dynamic=True)(fn)
    with caplog.at_level(logging.ERROR):
        for n in (5, 8, 11):
            x = torch.randn(2, 3, *([n + 1] * dims))
            torch.testing.assert_close(compiled(x, n), fn(x, n))
    counters = lamina_dynamo.counters()
    assert not counters["breaks"]
    assert counters["graphs"] == 1
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("align", [False, True])
def test_aligned_corners_and_gradient(align):
    def fn(x, n):
        return F.interpolate(x, size=(n, n + 1), mode="bilinear", align_corners=align).sin().sum()

    compiled = lamina_dynamo.optimize("eager", dynamic=True)(fn)
    for n in (3, 7):
        x = torch.randn(1, 2, n + 2, 5, requires_grad=True)
        torch.testing.assert_close(torch.autograd.grad(compiled(x, n), x), torch.autograd.grad(fn(x, n), x))
