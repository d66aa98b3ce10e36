"""Matrix products that become oneDNN's linear layer."""

from __future__ import annotations

import pytest
import torch
from check import TARGETS, compare, run
from programs import Tracer

from lamina_inductor import compile_graph
from lamina_inductor.lowering.matmul import linear_op

aten = torch.ops.aten
targets = pytest.mark.parametrize("target", TARGETS)
needs_onednn = pytest.mark.skipif(linear_op() is None, reason="this torch has no oneDNN")


def calls(compiled) -> list[str]:
    return [str(c.target) for c in compiled.externs]


@needs_onednn
@targets
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_large_products(target, transposed, bias):
    x, b = torch.randn(160, 320), torch.randn(256)
    w = torch.randn(256, 320) if transposed else torch.randn(320, 256)
    t = Tracer(x, w, b)
    right = t.permute(w, (1, 0)) if transposed else w
    y = t.call(aten.addmm.default, b, x, right) if bias else t.call(aten.mm.default, x, right)
    compiled = run(t.finish(t.mul(y, 2.0)), [x, w, b], target, rtol=1e-4, atol=1e-4)
    assert calls(compiled) == ["mkldnn._linear_pointwise.default"]


@targets
def test_products_that_stay(target):
    x, w, full = torch.randn(160, 320), torch.randn(320, 256), torch.randn(160, 256)
    small = torch.randn(8, 8)
    t = Tracer(x, w, full, small)
    left = t.permute(t.mul(x, 2.0), (1, 0))
    out = (
        t.call(aten.mm.default, left, full),  # the gradient of a weight
        t.call(aten.addmm.default, full, x, w),  # a whole matrix is added
        t.call(aten.mm.default, small, small),
    )
    compiled = run(t.finish(*out), [x, w, full, small], target, rtol=1e-4, atol=2e-4)
    assert not [c for c in calls(compiled) if "linear" in c]


@needs_onednn
@targets
def test_bfloat16_with_bias(target):
    x, w, b = (torch.randn(s).bfloat16() for s in ((160, 320), (256, 320), (256,)))
    t = Tracer(x, w, b)
    y = t.call(aten.addmm.default, b, x, t.permute(w, (1, 0)))
    compiled = compile_graph(t.finish(y), target=target)
    assert calls(compiled) == ["mkldnn._linear_pointwise.default"]
    exact = (x.double() @ w.double().t() + b.double()).bfloat16()
    compare(compiled([x, w, b])[0], exact, rtol=1.6e-2, atol=1e-1)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_small_products_are_written_out(left, right):
    sizes = [(8, 32, 32), (5, 7, 9), (1, 48, 33), (17, 40, 20), (16, 24, 64), (3, 2, 30), (9, 16, 16), (2, 33, 1)]
    inputs, outs = [], []
    for m, n, k in sizes:
        a, b = torch.randn((k, m) if left else (m, k)), torch.randn((n, k) if right else (k, n))
        inputs += [a, b, torch.randn(n), torch.randn(m, n)]
    t = Tracer(*inputs)
    for a, b, row, full in zip(*[iter(inputs)] * 4):
        x, y = (t.permute(v, (1, 0)) if turned else v for v, turned in ((a, left), (b, right)))
        outs += [
            t.call(aten.mm.default, x, y),
            t.call(aten.addmm.default, row, x, y),
            t.call(aten.addmm.default, full, x, y, beta=0.5, alpha=-2),
        ]
    compiled = compile_graph(t.finish(*outs), target="cpp")
    assert compiled.source.count("lm::small_gemm<") == len(outs)
    got = compiled(list(inputs))
    for i, (a, b, row, full) in enumerate(zip(*[iter(inputs)] * 4)):
        exact = (a.double().t() if left else a.double()) @ (b.double().t() if right else b.double())
        wanted = (exact, row + exact, 0.5 * full.double() - 2 * exact)
        for one, want in zip(got[3 * i : 3 * i + 3], wanted):
            torch.testing.assert_close(one.double(), want.double(), rtol=1e-5, atol=1e-5)


def _sum_of_products(kind: str, dtype=torch.float32, count: int = 6):
    """(graph, inputs, expected) of products that are added up one after the other."""
    lead = (3,) if kind == "bmm" else ()
    a, b = ([torch.randn(*lead, 8, n).to(dtype) for _ in range(count)] for n in (40, 30))
    t = Tracer(*a, *b)
    turn = (0, 2, 1) if kind == "bmm" else (1, 0)
    op = aten.bmm.default if kind == "bmm" else aten.mm.default
    total = None
    for x, y in zip(a, b, strict=True):
        product = t.call(op, t.permute(x, turn), y)
        if kind == "turned":  # as the gradient of a weight that a layer transposes
            product = t.permute(t.permute(product, turn), turn)
        total = product if total is None else t.add(total, product)
    expected = sum(x.double().mT @ y.double() for x, y in zip(a, b, strict=True))
    return t, total, [*a, *b], expected


@targets
@pytest.mark.parametrize("kind", ["mm", "turned", "bmm"])
def test_products_are_added_to_their_sum(target, kind):
    t, total, inputs, expected = _sum_of_products(kind)
    compiled = compile_graph(t.finish(total), target=target)
    compare(compiled(list(inputs))[0], expected.float(), rtol=1e-5, atol=1e-5)
    assert len({c.outputs[0] for c in compiled.externs}) == 1  # one matrix for all of them
    assert not compiled.kernels


@targets
def test_sums_that_somebody_else_reads_are_not_written_over(target):
    t, total, inputs, _ = _sum_of_products("mm", count=3)
    again = t.add(total, t.mul(total, 2.0))
    run(t.finish(again), inputs, target, rtol=1e-5, atol=1e-5)
    a, b, c = torch.randn(8, 8), torch.randn(8, 8), torch.randn(8, 8)
    t = Tracer(a, b, c)
    first = t.call(aten.mm.default, a, b)
    second = t.call(aten.mm.default, first, c)  # reads the sum that it is added to
    run(t.finish(t.add(first, second), first), [a, b, c], target, rtol=1e-5, atol=1e-5)
    third = Tracer(a, b)
    product = third.call(aten.mm.default, a, b)
    run(third.finish(third.add(product, product)), [a, b], target, rtol=1e-5, atol=1e-5)


@targets
def test_half_precision_sums_round_between(target):
    t, total, inputs, _ = _sum_of_products("mm", torch.bfloat16, 3)
    compiled = compile_graph(t.finish(total), target=target)
    assert "aten.addmm.default" not in calls(compiled)
