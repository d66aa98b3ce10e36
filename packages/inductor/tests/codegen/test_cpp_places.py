"""Loads beside the plain ones, and kernels in lanes of their own width: borders, places in a vector, bytes, masks."""

from __future__ import annotations

import pytest
import torch
from check import TARGETS, run
from programs import Tracer

from lamina_inductor import compile_graph, toolchain

pytestmark = pytest.mark.skipif("cpp" not in TARGETS, reason="no C++ compiler here")

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("length", [1, 2, 3, 31, 64, 130])
@pytest.mark.parametrize("window, step, pad", [(3, 2, 1), (3, 1, 1), (5, 3, 2), (2, 1, 0)])
def test_windows_over_borders(length, window, step, pad):
    if length + 2 * pad < window:
        pytest.skip("no window fits")
    x = torch.randn(2, 3, 1, length)
    x[0, 1, 0, length // 2] = NAN
    t = Tracer(x)
    out = t.max_pool2d(x, [1, window], [1, step], [0, pad])
    run(t.finish(out[0]), [x], "cpp")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("rows, columns", [(3, 1), (5, 9), (4, 16), (2, 37)])
def test_places_in_a_vector(dtype, rows, columns):
    x = (torch.randn(rows, 23) * 9).to(dtype)
    index = torch.randint(0, 23, (columns,))
    t = Tracer(x, index)
    run(t.finish(t.index_select(x, 1, index)), [x, index], "cpp")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
@pytest.mark.parametrize("size", [1, 15, 64, 200, 1000])
def test_narrow_integers_wrap_around_in_lanes_of_their_width(dtype, size):
    x, y = (torch.randint(-300, 300, (size,)).to(dtype) for _ in range(2))
    t = Tracer(x, y)
    compiled = run(t.finish(t.sub(t.mul(x, y), t.add(x, y))), [x, y], "cpp")
    name = {torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16"}[dtype]
    assert f"vec<{name}, N>" in compiled.source
    assert size == 1 or f"N = {toolchain.vector_bytes() // dtype.itemsize}" in compiled.source


def test_narrow_integers_that_do_not_stay_narrow_keep_their_lanes():
    x = torch.randint(0, 255, (100,), dtype=torch.uint8)
    t = Tracer(x)
    compiled = run(t.finish(t.convert_element_type(x, torch.int32)), [x], "cpp")
    assert "vec<u8, N>" not in compiled.source


@pytest.mark.parametrize("shape, dim", [((7, 100), 1), ((100, 7), 0), ((3, 33, 5), 1), ((1, 1), 1), ((2000,), 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("special", [None, NAN, INF, -INF])
def test_extremes(shape, dim, dtype, special):
    x = torch.randn(shape).to(dtype)
    if special is not None:
        x.view(-1)[x.numel() // 2] = special
    t = Tracer(x)
    run(t.finish(t.amax(x, (dim,)), t.amin(x, (dim,)), t.argmax(x, dim), t.argmin(x, dim)), [x], "cpp")


@pytest.mark.parametrize("value", [-INF, INF, NAN])
def test_extremes_of_equal_values(value):
    x = torch.full((5, 40), value)
    t = Tracer(x)
    run(t.finish(t.amax(x, (1,)), t.amin(x, (0,)), t.argmax(x, 1)), [x], "cpp")


@pytest.mark.parametrize("shape", [(130, 70), (64, 128), (65, 129), (1, 300), (300, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int16])
def test_transposes(shape, dtype):
    x, y = (torch.randn(shape) * 9).to(dtype), (torch.randn(shape[::-1]) * 9).to(dtype)
    t = Tracer(x, y)
    run(t.finish(t.add(t.permute(x, (1, 0)), y)), [x, y], "cpp")


def test_gelu_rounded_to_bfloat16():
    x = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    x = x[x.float().abs() < 1e30]
    t = Tracer(x)
    wide = t.convert_element_type(x, torch.float32)
    half = t.mul(t.mul(wide, 0.5), t.add(t.erf(t.mul(wide, 0.7071067811865476)), 1.0))
    compiled = compile_graph(t.finish(t.convert_element_type(half, torch.bfloat16)))
    assert "normal_cdf_coarse_" in compiled.source and "store_coarse" in compiled.source
    [got] = compiled([x])
    exact = torch.nn.functional.gelu(x.double())
    error = ((got.double() - exact).abs() / exact.abs()).masked_fill(exact.abs() < 1e-6, 0)
    assert error.max() < 1.2 * 2**-8  # half a unit of the last place is 2**-8 at most
