"""Reductions over rows, lanes along the columns."""

from __future__ import annotations

import pytest
import torch
from check import TARGETS, compare, run
from programs import Tracer

from lamina_inductor import compile_graph

pytestmark = pytest.mark.skipif("cpp" not in TARGETS, reason="no C++ compiler here")

SHAPES = [((1000, 40), (0,)), ((33, 17), (0,)), ((3, 100, 48), (1,)), ((16, 4, 5, 64), (0, 2)), ((20, 30, 70), (0, 1))]


@pytest.mark.parametrize("shape, dims", SHAPES)
@pytest.mark.parametrize("name", ["sum", "amax", "prod", "var_mean"])
def test_reductions_over_rows(shape, dims, name):
    x = torch.randn(shape) if name != "prod" else 1 + torch.randn(shape) / 100
    t = Tracer(x)
    if name == "var_mean":
        out = t.var_mean(x, dims, 1)
    elif name == "amax":
        out = (t.amax(x, dims),)
    else:
        out = (getattr(t, name)(x, dims, torch.float32),)
    compiled = run(t.finish(*out), [x], "cpp", rtol=2e-5, atol=1e-5)
    assert "chunks_" in compiled.source


def test_two_sums_and_what_follows():
    x, y, mean = torch.randn(500, 72), torch.randn(500, 72), torch.randn(500)
    t = Tracer(x, y, mean)
    centred = t.mul(x, t.sub(y, t.broadcast_in_dim(mean, (500, 72), (0,))))
    total = t.sum(centred, (0,), torch.float32)
    graph = t.finish(t.mul(total, 2.0), t.sum(x, (0,), torch.float32))
    compiled = run(graph, [x, y, mean], "cpp", rtol=1e-4, atol=1e-4)
    assert len(compiled.kernels) == 1 and "chunks_" in compiled.source


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64, torch.int32])
def test_dtypes(dtype):
    x = torch.randint(-50, 50, (300, 36)).to(dtype)
    t = Tracer(x)
    run(t.finish(t.sum(x, (0,), dtype)), [x], "cpp")


def test_nan_and_index_of_extremes():
    x = torch.randn(200, 20)
    x[7, 3], x[150, 3], x[11, 4] = float("nan"), float("nan"), float("inf")
    t = Tracer(x)
    run(t.finish(t.amax(x, (0,)), t.argmax(x, 0), t.sum(x, (0,), torch.float32)), [x], "cpp", rtol=1e-4, atol=1e-4)


def test_result_does_not_depend_on_the_number_of_threads():
    x = torch.randn(5000, 130)
    t = Tracer(x)
    compiled = compile_graph(t.finish(t.sum(x, (0,), torch.float32)), target="cpp")
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(compiled([x])[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
    compare(results[0].double(), x.double().sum(0), rtol=1e-5, atol=1e-4)
