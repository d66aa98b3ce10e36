"""Norms of half-precision activations with float32 weights, as autocast gives them."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import lamina_aot_autograd as aot


@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16, None])
def test_dtype_of_saved_statistics(weights):
    x = torch.randn(4, 8, dtype=torch.bfloat16, requires_grad=True)
    w = None if weights is None else torch.ones(8, dtype=weights, requires_grad=True)
    b = None if weights is None else torch.zeros(8, dtype=weights, requires_grad=True)
    real = torch.native_layer_norm(x, [8], w, b, 1e-5)
    found = []

    def compiler(gm, example_inputs):
        for node in gm.graph.nodes:
            if node.target is torch.ops.aten.native_layer_norm.default:
                found.append([t.dtype for t in node.meta["val"]])
        return gm.forward

    graph = torch.fx.Graph()
    inputs = [x] if w is None else [x, w, b]
    nodes = [graph.placeholder(n) for n in ("x", "w", "b")[: len(inputs)]]
    graph.output((graph.call_function(F.layer_norm, (nodes[0], (8,), *nodes[1:])),))
    gm = torch.fx.GraphModule(torch.nn.Module(), graph)
    compiled = aot.aot_compile(gm, inputs, forward_compiler=compiler)
    compiled(*inputs)[0].float().sum().backward()
    assert found == [[t.dtype for t in real]]
