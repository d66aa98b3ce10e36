"""Results that are added to tensors of the caller while the graph still runs."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from check import TARGETS
from programs import Tracer

from lamina_inductor.compile import compile_graph as compile_checked
from lamina_inductor.config import current

pytestmark = pytest.mark.skipif("cpp" not in TARGETS, reason="no C++ compiler here")

N = 600  # 1.4 MB


def compile_graph(graph):
    return compile_checked(graph, config=dataclasses.replace(current(), check_inputs=False))


def gradients():
    torch.manual_seed(0)
    x, w = torch.randn(N, N), torch.randn(N, N)
    t = Tracer(x, w)
    first = t.mul(x, 2.0)
    second = t.mul(t.add(first, w), w)
    small = t.sum(second, (0,), torch.float32)
    return t.finish(first, second, small), [x, w], [x * 2, (x * 2 + w) * w, ((x * 2 + w) * w).sum(0)]


def test_large_results_are_added_and_small_ones_handed_out():
    graph, inputs, want = gradients()
    compiled = compile_graph(graph)
    sinks = [torch.randn(N, N), None, torch.zeros(N)]
    before = sinks[0].clone()
    got = compiled.call_into(list(inputs), sinks)
    assert got[0] is None
    torch.testing.assert_close(sinks[0], before + want[0])
    torch.testing.assert_close(got[1:], want[1:], rtol=1e-4, atol=1e-3)
    assert not sinks[2].any()
    torch.testing.assert_close(compiled(list(inputs)), want, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(compiled.call_into(list(inputs), [None] * 3), want, rtol=1e-4, atol=1e-3)


def test_a_failing_addition_is_an_error_and_not_a_crash():
    graph, inputs, want = gradients()
    compiled = compile_graph(graph)
    with pytest.raises(RuntimeError):
        compiled.call_into(list(inputs), [torch.zeros(3), None, None])
    with pytest.raises(TypeError, match="one for each result"):
        compiled.call_into(list(inputs), [None])
    torch.testing.assert_close(compiled(list(inputs)), want, rtol=1e-4, atol=1e-3)


def test_results_that_share_memory_or_are_inputs_stay():
    x = torch.randn(N, N)
    t = Tracer(x)
    y = t.mul(x, 3.0)
    compiled = compile_graph(t.finish(y, y, x))
    sinks = [torch.zeros(N, N), torch.zeros(N, N), torch.zeros(N, N)]
    got = compiled.call_into([x], sinks)
    for value, sink, want in zip(got, sinks, [x * 3, x * 3, x], strict=True):
        torch.testing.assert_close(sink if value is None else value, want)


def test_a_transposed_result_is_added_in_its_own_layout():
    x = torch.randn(N, N + 8)
    t = Tracer(x)
    y = t.permute(t.mul(x, 3.0), (1, 0))
    compiled = compile_graph(t.finish(y))
    sink = torch.ones(N + 8, N)
    [got] = compiled.call_into([x], [sink])
    torch.testing.assert_close(sink if got is None else got + 1, x.t() * 3 + 1)
