"""Custom autograd functions that run in eager: their forward is captured on its own."""

from __future__ import annotations

import torch

import lamina_dynamo

calls = []


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor, log):
        log.append(factor)  # an effect: ``apply`` is left to eager
        y = x * factor
        ctx.save_for_backward(x.sin(), y)
        ctx.factor = factor
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    def backward(ctx, grad):
        s, y = ctx.saved_tensors
        assert ctx.needs_input_grad[0]
        return grad * ctx.factor + s * 0 + y * 0, None, None


def test_contexts_are_written_without_breaks():
    def fn(x):
        return Scale.apply(x + 1, 3.0, calls).sum()

    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = lamina_dynamo.optimize(backend)(fn)
    before = lamina_dynamo.counters()["breaks"].get("unknown_attribute", 0)
    for _ in range(2):
        x = torch.randn(4, requires_grad=True)
        y = compiled(x)
        y.backward()
        torch.testing.assert_close(x.grad, torch.full((4,), 3.0))
        torch.testing.assert_close(y, fn(x))
    assert calls == [3.0] * 4
    assert lamina_dynamo.counters()["breaks"].get("unknown_attribute", 0) == before
    assert any("sin" in str(gm.graph) for gm in graphs)
