"""Upsampling of images whose size varies, forward and backward, down to generated code."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lamina

MODES = [("nearest", 1), ("nearest-exact", 2), ("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3)]


@pytest.mark.parametrize("by", ["size", "scale"])
@pytest.mark.parametrize(("mode", "dims"), MODES)
def test_values_and_gradients(mode, dims, by):
    def fn(x, like):
        if by == "size":
            return (F.interpolate(x * 2, size=like.shape[2:], mode=mode) + like).sin()
        return F.interpolate(x.sin(), scale_factor=2, mode=mode) * 2

    compiled = lamina.compile(fn, dynamic=True, fullgraph=True)
    for n in (3, 5, 4):
        like = torch.randn(2, 3, *([n + 4] * dims))
        x = torch.randn(2, 3, *([n] * dims), requires_grad=True)
        want, got = fn(x, like), compiled(x, like)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
        grads = [torch.autograd.grad(y.pow(2).sum(), x)[0] for y in (got, want)]
        torch.testing.assert_close(*grads)
