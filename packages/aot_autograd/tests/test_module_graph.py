"""A module as a graph whose inputs are its parameters and buffers."""

from __future__ import annotations

import copy

import pytest
import torch

import lamina_aot_autograd as aot


def model():
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


def test_gradients_and_buffers_are_those_of_the_module():
    a, x = model(), torch.randn(5, 8)
    b = copy.deepcopy(a)
    a(x).exp().sum().backward()
    gm, inputs = aot.parameters_as_inputs(b, [x])
    aot.aot_compile(gm, inputs)(*inputs)[0].exp().sum().backward()
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        assert torch.allclose(p.grad, q.grad, atol=1e-6)
    for p, q in zip(a.buffers(), b.buffers(), strict=True):
        assert torch.allclose(p, q)


def test_what_is_printed_bears_their_names_and_runs():
    m, x = model().eval(), torch.randn(5, 8)
    joint = aot.trace_joint(*aot.parameters_as_inputs(m, [x]))
    parts = aot.partition(joint, "min_cut", memory_budget=0.5)
    source = aot.code_of(parts.forward, "forward") + aot.code_of(parts.backward, "backward")
    assert "_0_weight" in source and parts.report.saved_bytes <= parts.report.eager_bytes // 2
    names = {}
    exec(source, names)
    inputs = aot.parameters_as_inputs(m, [x])[1]
    outputs = names["forward"](*[t.detach() for t in inputs])
    assert torch.allclose(outputs[joint.metadata.num_mutated], m(x), atol=1e-6)


def test_parameters_inside_are_told_to_be_inputs():
    gm = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(8, 16)))
    with pytest.raises(aot.AotError, match="parameters_as_inputs"):
        aot.trace_joint(gm, [torch.randn(5, 8)])
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        aot.parameters_as_inputs(torch.relu, [torch.randn(5, 8)])
