"""Kernels that only move 16-bit floats work on their bits."""

from __future__ import annotations

import pytest
import torch
from check import TARGETS, run
from programs import Tracer

from lamina_inductor import compile_graph

pytestmark = pytest.mark.skipif("cpp" not in TARGETS, reason="no C++ compiler here")

HALVES = [torch.bfloat16, torch.float16]


def every_value(dtype):
    return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)


def same_bits(got, want):
    return torch.equal(got.view(torch.int16), want.view(torch.int16))


@pytest.mark.parametrize("dtype", HALVES)
def test_every_value_and_its_sign(dtype):
    x = every_value(dtype)
    t = Tracer(x)
    turned = t.permute(t.reshape(x, (256, 256)), (1, 0))
    compiled = compile_graph(t.finish(t.neg(x), t.abs(x), t.cat([turned, turned], 1)))
    neg, positive, moved = compiled([x])
    assert same_bits(neg, x.neg()) and same_bits(positive, x.abs())
    want = torch.cat([x.view(256, 256).t()] * 2, 1)
    assert same_bits(moved.contiguous(), want.contiguous())
    assert "bf16*" not in compiled.source and "f16*" not in compiled.source


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("fill", [0.0, -0.0, 1.5, float("inf"), -float("inf"), float("nan"), 0.1])
def test_choices(dtype, fill):
    x, m = torch.randn(70, 33).to(dtype), torch.rand(70, 33) > 0.5
    t = Tracer(x, m)
    run(t.finish(t.where(m, x, fill)), [x, m], "cpp", rtol=0, atol=0)


@pytest.mark.parametrize("dtype", HALVES)
def test_rows_by_position(dtype):
    x, rows = torch.randn(40, 65).to(dtype), torch.randint(0, 40, (9,))
    t = Tracer(x, rows)
    run(t.finish(t.take_rows(x, rows)), [x, rows], "cpp", rtol=0, atol=0)


@pytest.mark.parametrize("dtype", HALVES)
def test_arithmetic_beside_moves(dtype):
    x = torch.randn(4, 100).to(dtype)
    t = Tracer(x)
    run(t.finish(t.neg(x), t.add(x, x)), [x], "cpp", rtol=0, atol=0)
