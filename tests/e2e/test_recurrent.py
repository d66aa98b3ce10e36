"""Training of recurrent layers, with and without biases."""

import pytest
import torch

import lamina


@pytest.mark.parametrize("backend", ["aot_eager", "reference", "inductor"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_training_step(kind, bias, backend):
    torch.manual_seed(0)
    layer = kind(2, 3, 2, bias=bias)
    x = torch.randn(4, 5, 2, requires_grad=True)
    grads = []
    for call in (layer, lamina.compile(layer, backend=backend)):
        out, _ = call(x)
        grads.append([out, *torch.autograd.grad(out.pow(2).sum(), [x, *layer.parameters()])])
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-5)
