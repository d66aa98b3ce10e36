"""Pointwise kernels that are computed in stages."""

from __future__ import annotations

import pytest
import torch
from check import TARGETS, run
from programs import Tracer

from lamina_inductor.codegen.cpp_stages import PIECE

pytestmark = pytest.mark.skipif("cpp" not in TARGETS, reason="no C++ compiler here")

SIZES = [PIECE * 4, PIECE * 5 + 17, 70001]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_function_of_a_function(n, dtype):
    x, y = torch.randn(n), torch.randn(n)
    x[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    t = Tracer(x, y)
    a = t.mul(t.exp(x), y)
    b = t.tanh(t.add(a, x))
    c = t.log(t.add(t.mul(b, b), 1.0))
    out = t.convert_element_type(c, dtype) if dtype is not torch.float32 else c
    compiled = run(t.finish(out, b), [x, y], "cpp", rtol=1e-2 if dtype is torch.bfloat16 else 2e-6, atol=1e-6)
    assert "kept0_" in compiled.source


def test_condition_kept_between_stages():
    x, y = torch.randn(PIECE * 6 + 5), torch.randn(PIECE * 6 + 5)
    t = Tracer(x, y)
    a = t.exp(x)
    positive = t.gt(a, y)
    b = t.sigmoid(t.where(positive, a, x))
    c = t.where(positive, t.tanh(b), y)
    compiled = run(t.finish(c), [x, y], "cpp", rtol=2e-6, atol=1e-6)
    assert "kept0_" in compiled.source


def test_results_over_operands():
    """Stores wait for the last stage: a result may take the memory of what an earlier stage reads."""
    x, y = torch.randn(PIECE * 8), torch.randn(PIECE * 8)
    t = Tracer(x, y)
    a, b = t.mul(x, 2.0), t.mul(y, 3.0)
    shared = t.mm(t.reshape(a, (64, 64)), t.reshape(b, (64, 64)))
    p = t.reshape(shared, (PIECE * 8,))
    q = t.exp(p)
    r = t.tanh(t.mul(q, 0.01))
    run(t.finish(t.add(r, p), t.add(q, r)), [x, y], "cpp", rtol=1e-3, atol=1e-4)


def test_independent_functions_share_a_loop():
    x, y = torch.randn(PIECE * 8), torch.randn(PIECE * 8)
    t = Tracer(x, y)
    compiled = run(t.finish(t.mul(t.exp(x), t.sin(y))), [x, y], "cpp", rtol=2e-6, atol=1e-6)
    assert "kept0_" not in compiled.source
