"""Graphs whose weights are constants."""

from __future__ import annotations

import pytest
import torch
from check import TARGETS
from programs import Tracer

from lamina_inductor import compile_graph
from lamina_inductor.freezing import freeze, with_constants
from lamina_inductor.lowering.frozen import EPILOGUE
from lamina_inductor.value_bounds import ValueBounds

TARGET = "cpp" if "cpp" in TARGETS else "reference"


def _network(relu: bool, layout=torch.contiguous_format, groups: int = 1):
    """(graph, inputs): convolution, batch norm, maybe a rectifier."""
    x = torch.randn(2, 8, 9, 11).to(memory_format=layout)
    weight, mean, var = torch.randn(16, 8 // groups, 3, 3), torch.randn(16), torch.rand(16) + 0.5
    t = Tracer(x, weight, mean, var)
    y = t.convolution(x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], groups)
    shape = tuple(y.shape)
    y = t.sub(y, t.broadcast_in_dim(mean, shape, (1,)))
    y = t.mul(y, t.broadcast_in_dim(t.rsqrt(t.add(var, 1e-5)), shape, (1,)))
    out = t.maximum(y, 0.0) if relu else t.mul(y, t.sigmoid(y))
    return t.finish(out), [x, weight, mean, var]


def _expected(gm):
    return gm.graph.output_node().args[0][0].meta["val"]


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_goes_into_the_convolution(relu, layout, groups):
    gm, inputs = _network(relu, layout, groups)
    frozen = freeze(gm, dict(enumerate(inputs[1:], 1)), lambda g: compile_graph(g, target=TARGET))
    got = frozen.unboxed(*inputs)[0]
    want = _expected(gm)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert not frozen.thawed and len(frozen.frozen.externs) == 1


def test_what_follows_from_constants_is_computed_once():
    gm, inputs = _network(True)
    names = [getattr(n.target, "name", "") for n in with_constants(gm, dict(enumerate(inputs[1:], 1))).graph.nodes]
    assert names.count("convolution") == 1 and not {"rsqrt", "sub", "mul", "maximum"} & set(names)
    kept = [getattr(n.target, "name", "") for n in gm.graph.nodes]
    assert "rsqrt" in kept  # the graph given stays as it is


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_passes_the_rectifier(layout, value):
    gm, inputs = _network(True, layout)
    frozen = freeze(gm, dict(enumerate(inputs[1:], 1)), lambda g: compile_graph(g, target=TARGET))
    frozen.unboxed(*inputs)
    assert not frozen.thawed
    inputs[0][0, 3, 4, 5] = value
    got, want = frozen.unboxed(*inputs)[0], compile_graph(gm, target="reference").unboxed(*inputs)[0]
    assert frozen.thawed and not want.isfinite().all()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_rectifiers_stay_apart_where_nan_can_come_about():
    x, weight = torch.randn(2, 8, 9, 11).to(memory_format=torch.channels_last), torch.randn(16, 8, 3, 3)
    for operation in ("log", "sqrt", "reciprocal"):
        t = Tracer(x, weight)
        made = getattr(t, operation)(x)  # of negative numbers and of zero
        y = t.maximum(t.convolution(made, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1), 0.0)
        gm = t.finish(y)
        frozen = freeze(gm, {1: weight}, lambda g: compile_graph(g, target=TARGET))
        torch.testing.assert_close(frozen.unboxed(x, weight)[0], _expected(gm), rtol=1e-3, atol=1e-3, equal_nan=True)
        assert not frozen.thawed
    broken = weight.clone()
    broken[0, 0, 0, 0] = float("nan")
    t = Tracer(x, broken)
    gm = t.finish(t.maximum(t.convolution(x, broken, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1), 0.0))
    frozen = freeze(gm, {1: broken}, lambda g: compile_graph(g, target=TARGET))
    torch.testing.assert_close(frozen.unboxed(x, broken)[0], _expected(gm), rtol=1e-3, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("how", ["replaced", "written", "moved"])
def test_other_weights_are_noticed(how):
    gm, inputs = _network(True)
    frozen = freeze(gm, dict(enumerate(inputs[1:], 1)), lambda g: compile_graph(g, target=TARGET))
    frozen.unboxed(*inputs)
    if how == "replaced":
        inputs[1] = inputs[1] * 2
    elif how == "written":
        inputs[1].mul_(2)
    else:
        inputs[1].data = inputs[1].data * 2
    got, want = frozen(list(inputs))[0], compile_graph(gm, target="reference").unboxed(*inputs)[0]
    assert frozen.thawed
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_inputs_without_constants_stay_ordinary():
    gm, inputs = _network(False)
    assert not hasattr(freeze(gm, {}, lambda g: compile_graph(g, target="reference")), "thawed")


def test_linear_layers_with_packed_weights():
    x, weight, bias = torch.randn(256, 256), torch.randn(512, 256), torch.randn(512)
    t = Tracer(x, weight, bias)
    out = t.addmm(bias, x, t.permute(weight, (1, 0)))
    gm = t.finish(t.tanh(out))
    frozen = freeze(gm, {1: weight, 2: bias}, lambda g: compile_graph(g, target=TARGET))
    torch.testing.assert_close(frozen.unboxed(x, weight, bias)[0], _expected(gm), rtol=1e-4, atol=1e-4)


def _rectified(inputs: int, layers: int, scale: float):
    """(graph, tensors): convolutions with rectifiers, each after the other; weights of one sign are `scale` large."""
    x = torch.rand(2, inputs, 7, 7)
    weights = [torch.randn(8, inputs if k == 0 else 8, 3, 3) * scale for k in range(layers)]
    t = Tracer(x, *weights)
    y = x
    for w in weights:
        y = t.maximum(t.convolution(y, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1), 0.0)
    return t.finish(y), [x, *weights]


def _frozen(gm, inputs):
    return freeze(gm, dict(enumerate(inputs[1:], 1)), lambda g: compile_graph(g, target=TARGET))


def _epilogues(gm, inputs) -> int:
    return sum(EPILOGUE in n.meta for n in with_constants(gm, dict(enumerate(inputs[1:], 1))).graph.nodes)


def test_values_that_overflow_run_the_ordinary_graph():
    gm, inputs = _rectified(8, 3, 1.0)
    assert _epilogues(gm, inputs) == 3
    frozen = _frozen(gm, inputs)
    torch.testing.assert_close(frozen.unboxed(*inputs)[0], _expected(gm), rtol=1e-4, atol=1e-3)
    assert not frozen.thawed and len(frozen.unboxed(*inputs)) == 1
    inputs[0] = inputs[0] * 3e37  # finite; infinities of both signs meet in the second layer
    got, want = frozen.unboxed(*inputs)[0], compile_graph(gm, target="reference").unboxed(*inputs)[0]
    assert frozen.thawed and want.isnan().any()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_values_between_are_looked_at_before_they_could_overflow():
    gm, inputs = _rectified(8, 12, 300.0)  # a bound of 2e4 a layer
    assert _epilogues(gm, inputs) == 12
    small = [inputs[0] * 1e-36, *inputs[1:]]
    frozen = _frozen(gm, inputs)
    want = compile_graph(gm, target="reference").unboxed(*small)[0]
    torch.testing.assert_close(frozen.unboxed(*small)[0], want, rtol=1e-3, atol=1e-3)
    assert not frozen.thawed
    large = [inputs[0] * 9e5, *inputs[1:]]  # of an allowed size; overflows on the way
    got, want = frozen.unboxed(*large)[0], compile_graph(gm, target="reference").unboxed(*large)[0]
    assert frozen.thawed and not want.isfinite().all()
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3, equal_nan=True)


def test_weights_too_large_for_any_bound_keep_their_rectifiers():
    gm, inputs = _rectified(8, 1, 1e29)
    assert _epilogues(gm, inputs) == 0
    frozen = _frozen(gm, inputs)
    torch.testing.assert_close(frozen.unboxed(*inputs)[0], _expected(gm), rtol=1e-4, atol=1e25)
    assert not frozen.thawed


def test_what_comes_behind_the_last_rectifier_may_be_anything():
    gm, inputs = _rectified(8, 2, 1.0)
    t = Tracer(*inputs)
    y = inputs[0]
    for w in inputs[1:]:
        y = t.maximum(t.convolution(y, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1), 0.0)
    gm = t.finish(t.log(y))
    assert _epilogues(gm, inputs) == 2
    torch.testing.assert_close(_frozen(gm, inputs).unboxed(*inputs)[0], _expected(gm), rtol=1e-3, atol=1e-3)


def test_bounds_hold():
    x, w, b = torch.rand(2, 4, 6, 6) * 2 - 1, torch.randn(5, 4, 3, 3), torch.randn(5)
    m = torch.randn(5, 7)
    t = Tracer(x, w, b, m)
    conv = t.convolution(x, w, b, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    gate = t.div(t.minimum(t.maximum(t.add(conv, 3.0), 0.0), 6.0), 6.0)
    mixed = t.sub(t.mul(conv, gate), t.neg(t.abs(t.tanh(conv))))
    pooled = t.sum(mixed, (2, 3), torch.float32)
    rows = t.mm(pooled, m)
    joined = t.cat([t.permute(rows, (1, 0)), t.permute(t.sigmoid(rows), (1, 0))], 0)
    gm = t.finish(joined)
    nodes = {n.meta["val"].data_ptr(): n for n in gm.graph.nodes if n.op != "output"}
    constants = {nodes[v.data_ptr()]: v for v in (w, b, m)}
    bounds = ValueBounds(gm, constants, [nodes[joined.data_ptr()]])
    assert bounds.looked_at == [nodes[x.data_ptr()]]
    for node, (low, high) in bounds.of.items():
        value = node.meta["val"]
        assert low <= float(value.min()) and float(value.max()) <= high, node
    assert nodes[joined.data_ptr()] in bounds.of
    assert bounds.of[nodes[gate.data_ptr()]] == (0.0, 1.0)
