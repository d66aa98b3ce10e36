"""Quantized linear layers keep working inside compiled programs, and what stands beside them is compiled."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import lamina

pytest.importorskip("lamina_inductor")


def _agree(fn, x, tolerance=1e-5):
    run = lamina.compile(fn)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(run(x), fn(x), rtol=tolerance, atol=tolerance)


def test_dynamic_int8():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
        quantized = torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)
        _agree(lambda x: torch.tanh(quantized(x * 2) + 1), torch.randn(8, 32))


def test_weights_dequantized_in_the_program():
    weight, scale = torch.randint(-128, 127, (64, 32), dtype=torch.int8), torch.rand(64) / 100
    _agree(lambda x: torch.relu(x @ (weight.float() * scale[:, None]).t() + 1), torch.randn(8, 32))


@pytest.mark.parametrize("rows", [1, 2, 8, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_widened_in_the_program(dtype, rows):
    weight, scale = torch.randint(-128, 127, (64, 32), dtype=torch.int8), (torch.rand(64) / 100).to(dtype)
    x = torch.randn(*((2, rows // 2) if rows > 1 else (1,)), 32).to(dtype)
    bias = torch.randn(64).to(dtype)
    tolerance = 1e-4 if dtype is torch.float32 else 3e-2
    linear = torch.nn.functional.linear
    _agree(lambda x: torch.relu(linear(x, weight.to(dtype)) * scale), x, tolerance)
    _agree(lambda x: torch.relu(linear(x, weight.to(dtype) * scale[:, None], bias)), x, tolerance)


def test_products_measured_at_compile_time(tmp_path, monkeypatch):
    monkeypatch.setenv("LAMINA_CACHE_DIR", str(tmp_path))
    net, x = nn.Sequential(nn.Linear(24, 40), nn.ReLU(), nn.Linear(40, 8)), torch.randn(4, 24)
    explained = lamina.explain(net, mode="max-autotune", backward=False)
    with torch.no_grad():
        first, second = explained(x), explained(x)
        torch.testing.assert_close(first.result, net(x), rtol=1e-5, atol=1e-5)
    assert len(first.measured) == 2 and all(" (µs: " in line for line in first.measured)
    assert first.measured == second.measured  # kept in the cache


def test_weight_only_int8():
    weight, scale = torch.randint(-128, 127, (64, 32), dtype=torch.int8), (torch.rand(64) / 100).bfloat16()
    x = torch.randn(8, 32).bfloat16()
    _agree(lambda x: torch.tanh(torch._weight_int8pack_mm(x * 2, weight, scale)) + 1, x, 1e-2)


@pytest.mark.skipif(not hasattr(torch, "_weight_int4pack_mm_for_cpu"), reason="this torch has no int4 product on a CPU")
def test_weight_only_int4():
    packed = torch._convert_weight_to_int4pack_for_cpu(torch.randint(0, 15, (64, 64), dtype=torch.int32), 1)
    scales = torch.rand(2, 64, 2).bfloat16()
    x = torch.randn(8, 64).bfloat16()
    _agree(lambda x: torch.relu(torch._weight_int4pack_mm_for_cpu(x + 1, packed, 32, scales)) * 2, x, 1e-2)


def test_neighbours_of_a_weight_only_product_fuse():
    weight, scale = torch.randint(-128, 127, (64, 32), dtype=torch.int8), (torch.rand(64) / 100).bfloat16()

    def fn(x):
        y = torch._weight_int8pack_mm(torch.sigmoid(x * 2) + 1, weight, scale)
        return torch.tanh(y) * 3 - y

    kernels = []
    stop = lamina.events.on_event(lambda e: kernels.append(e.payload) if e.name == "kernel" else None)
    try:
        _agree(fn, torch.randn(8, 32).bfloat16(), 1e-2)
    finally:
        stop()
    assert len(kernels) == 2
