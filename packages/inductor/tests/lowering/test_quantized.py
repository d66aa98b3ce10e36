"""Linear layers with int8 weights: widened as they are read, with few rows."""

from __future__ import annotations

import pytest
import torch
from check import TARGETS, compare
from programs import Tracer

from lamina_inductor import compile_graph
from lamina_inductor.lowering.quantized import MOST_LOOP_ROWS, MOST_PACKED_ROWS

aten = torch.ops.aten
targets = pytest.mark.parametrize("target", TARGETS)


def layer(m, n, k, dtype, scaled, bias=False, column=False, weight=torch.int8, batch=False):
    """(graph, inputs, exact result) of a linear layer whose scale is applied `before` or `behind` the product."""
    torch.manual_seed(m * n + k)
    low, high = (-128, 128) if weight is torch.int8 else (0, 256)
    x, w = torch.randn(m, k).to(dtype), torch.randint(low, high, (n, k)).to(weight)
    s, b = torch.rand(n, 1).to(dtype), torch.randn(n).to(dtype)
    s = s if column else s.reshape(n)
    t = Tracer(x, w, s, b)
    wide = t.convert_element_type(w, dtype)
    exact = w.double()
    if scaled == "before":
        wide = t.mul(wide, t.broadcast_in_dim(s, (n, k), (0, 1) if column else (0,)))
        exact = exact * s.double().reshape(n, 1)
    right = t.permute(wide, (1, 0))
    y = t.call(aten.addmm.default, b, x, right) if bias else t.call(aten.mm.default, x, right)
    exact = x.double() @ exact.t() + (b.double() if bias else 0)
    if scaled == "behind":
        if batch:
            y = t.reshape(y, (m // 2, 2, n))
            exact = exact.reshape(m // 2, 2, n)
        shape = tuple(exact.shape)
        y = t.mul(y, t.broadcast_in_dim(s, shape, (len(shape) - 1,)))
        exact = exact * s.double().reshape(n)
    return t.finish(t.maximum(y, 0.0)), [x, w, s, b], exact.relu()


def check(target, *args, **kwargs):
    gm, inputs, exact = layer(*args, **kwargs)
    compiled = compile_graph(gm, target=target)
    assert compiled.fallback is None
    got = compiled(list(inputs))[0]
    expected = next(iter(gm.graph.output_node().args[0])).meta["val"]
    compare(got, expected, rtol=3e-2, atol=3e-2 * float(exact.abs().max()))
    error, eager = ((r.double() - exact).abs().max() for r in (got, expected))
    assert error <= 2 * eager + 1e-5 * exact.abs().max()
    return compiled


def names(compiled):
    return [str(c.target) for c in compiled.externs]


@targets
@pytest.mark.parametrize("scaled,more", [
    ("before", {}), ("before", {"bias": True}), ("before", {"column": True}), ("behind", {}),
    ("behind", {"batch": True}),
])  # fmt: skip
@pytest.mark.parametrize("m", [2, MOST_PACKED_ROWS])
def test_bfloat16_uses_the_weight_as_it_is(target, m, scaled, more):
    compiled = check(target, m, 64, 96, torch.bfloat16, scaled, **more)
    assert names(compiled) == ["aten._weight_int8pack_mm.default"]


@targets
def test_products_that_stay(target):
    for args, more in (
        ((MOST_PACKED_ROWS + 2, 64, 96, torch.bfloat16, "before"), {}),  # many rows
        ((2, 40, 96, torch.bfloat16, "before"), {}),  # sizes that ATen's kernel cannot do
        ((2, 64, 40, torch.bfloat16, "behind"), {}),
        ((2, 64, 96, torch.bfloat16, "none"), {}),  # nothing to scale with
        ((2, 64, 96, torch.bfloat16, "behind"), {"bias": True}),  # the scale is applied to the sum
        ((2, 64, 96, torch.bfloat16, "before"), {"weight": torch.uint8}),
        ((4, 64, 96, torch.float32, "before"), {}),
    ):
        assert "_weight_int8pack_mm" not in "".join(names(check(target, *args, **more)))


@pytest.mark.skipif("cpp" not in TARGETS, reason="no C++ compiler")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scaled", ["before", "behind", "none"])
@pytest.mark.parametrize("weight", [torch.int8, torch.uint8])
def test_few_rows_are_one_kernel(dtype, scaled, weight):
    if dtype is torch.bfloat16 and scaled == "before":
        return  # its products are rounded one by one: not faster as loops
    m = MOST_LOOP_ROWS[dtype]
    compiled = check("cpp", m, 40, 72, dtype, scaled, weight=weight)
    assert not names(compiled) and len(compiled.kernels) == 1
    assert names(check("cpp", m + 1, 40, 72, dtype, scaled, weight=weight))


@targets
def test_a_scale_that_others_read_too(target):
    x, w, s = torch.randn(2, 64).bfloat16(), torch.randint(-8, 8, (32, 64), dtype=torch.int8), torch.rand(32).bfloat16()
    t = Tracer(x, w, s)
    y = t.call(aten.mm.default, x, t.permute(t.convert_element_type(w, torch.bfloat16), (1, 0)))
    scaled = t.mul(y, t.broadcast_in_dim(s, (2, 32), (1,)))
    compiled = compile_graph(t.finish(scaled, y), target=target)  # the product itself is wanted
    assert "_weight_int8pack_mm" not in "".join(names(compiled))
    for got, want in zip(compiled([x, w, s]), (scaled, y), strict=True):
        compare(got, want, rtol=2e-2, atol=1.0)
