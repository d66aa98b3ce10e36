"""Kernels that write a result over an operand nobody reads afterwards."""

import pytest
import torch
from check import TARGETS, run
from programs import Tracer

from lamina_inductor import config
from lamina_inductor.ir.program import KernelCall

targets = pytest.mark.parametrize("target", TARGETS)


def in_place(compiled):
    return [s.in_place for s in compiled.program.steps if isinstance(s, KernelCall) and s.in_place is not None]


@pytest.fixture(autouse=True)
def every_size():
    with config.patch(arena_bytes=0):
        yield


@targets
def test_result_takes_the_memory_of_a_product(target):
    x, w = torch.randn(8, 16), torch.randn(16, 16)
    t = Tracer(x, w)
    y = t.mm(x, w)
    z = t.maximum(t.mul(y, 2.0), t.exp(y))
    compiled = run(t.finish(t.mm(z, w)), [x, w], target, rtol=1e-4, atol=1e-4)
    assert len(in_place(compiled)) == 1


@targets
def test_row_kernels_too(target):
    x, w = torch.randn(8, 160), torch.randn(160, 160)
    t = Tracer(x, w)
    y = t.mm(x, w)
    top = t.broadcast_in_dim(t.amax(y, (1,)), (8, 160), (0,))
    e = t.exp(t.sub(y, top))
    out = t.div(e, t.broadcast_in_dim(t.sum(e, (1,), torch.float32), (8, 160), (0,)))
    run(t.finish(out), [x, w], target, rtol=1e-4, atol=1e-4)


@targets
def test_not_where_it_is_read_elsewhere(target):
    """At another index, by a later step, or by the user: the operand stays."""
    x, w = torch.randn(16, 16), torch.randn(16, 16)
    t = Tracer(x, w)
    y = t.mm(x, w)
    turned = t.add(y, t.permute(y, (1, 0)))
    assert not in_place(run(t.finish(turned), [x, w], target, rtol=1e-4, atol=1e-4))
    t = Tracer(x, w)
    y = t.mm(x, w)
    assert not in_place(run(t.finish(t.mm(t.sigmoid(y), y)), [x, w], target, rtol=1e-3, atol=1e-3))
    t = Tracer(x, w)
    y = t.mm(x, w)
    assert not in_place(run(t.finish(t.exp(y), y), [x, w], target, rtol=1e-4, atol=1e-4))
    t = Tracer(x, w)
    assert not in_place(run(t.finish(t.exp(x)), [x, w], target))


@targets
def test_not_across_dtypes(target):
    x, w = torch.randn(16, 16), torch.randn(16, 16)
    t = Tracer(x, w)
    y = t.mm(x, w)
    low = t.convert_element_type(y, torch.bfloat16)
    assert not in_place(run(t.finish(low), [x, w], target, rtol=2e-2, atol=2e-2))


@targets
def test_two_results_of_one_operand(target):
    """The second result needs the operand as well: it is read before the first is stored."""
    x, w = torch.randn(16, 16), torch.randn(16, 16)
    t = Tracer(x, w)
    y = t.mm(x, w)
    a, b = t.exp(y), t.mul(y, y)
    run(t.finish(a, b, t.mm(a, b)), [x, w], target, rtol=1e-3, atol=1e-3)


@targets
def test_chain_of_takeovers_ends_in_an_output(target):
    x, w = torch.randn(16, 16), torch.randn(16, 16)
    t = Tracer(x, w)
    y = t.mm(x, w)
    r = t.sub(y, t.broadcast_in_dim(t.amax(y, (0,)), (16, 16), (1,)))
    out = t.mul(r, t.broadcast_in_dim(t.sum(r, (0,), torch.float32), (16, 16), (1,)))
    compiled = run(t.finish(out), [x, w], target, rtol=1e-3, atol=1e-3)
    assert compiled.program.peak_bytes <= 4 * 16 * 16 * 4
