"""The backward of attention that is written out: what is seen as one kernel, and what stays as it is."""

import pytest
import torch
from programs import Tracer
from test_attention_pass import Planned

import lamina_primtorch
from lamina_inductor import compile_graph
from lamina_inductor.attention_gradient_pass import find_gradients, gather_results
from lamina_inductor.codegen.attention_kernel import AttentionGradientKernel, find_bounds
from lamina_inductor.codegen.reference import ReferenceTarget
from lamina_inductor.passes import without

aten = torch.ops.aten
SHAPES = ((2, 32, 16), (2, 48, 16), (2, 48, 24), (2, 32, 24))


def steps(t, q, k, v, grad, masked=False):
    """The values of a backward by name."""
    s = t.call(aten.bmm.default, q, t.call(aten.permute.default, k, [0, 2, 1]))
    if masked:
        rows = t.call(aten.view.default, t.call(aten.arange.default, 32), [32, 1])
        outside = t.call(aten.lt.Tensor, rows, t.call(aten.view.default, t.call(aten.arange.default, 48), [1, 48]))
        s = t.call(aten.masked_fill.Scalar, s, outside, float("-inf"))
    weights = t.call(aten._softmax.default, s, -1, False)
    gv = t.call(aten.bmm.default, t.call(aten.permute.default, weights, [0, 2, 1]), grad)
    gw = t.call(aten.bmm.default, grad, t.call(aten.permute.default, v, [0, 2, 1]))
    gs = t.call(aten._softmax_backward_data.default, gw, weights, -1, torch.float32)
    if masked:
        gs = t.call(aten.masked_fill.Scalar, gs, outside, 0.0)
    gq = t.call(aten.bmm.default, gs, k)
    gk = t.call(aten.bmm.default, t.call(aten.permute.default, gs, [0, 2, 1]), q)
    return {"weights": weights, "gs": gs, "gq": gq, "gk": gk, "gv": gv}


def graph_of(*wanted, **options):
    """(graph of prims whose results are `wanted`, inputs, results)."""
    torch.manual_seed(0)
    inputs = [torch.randn(*s) for s in SHAPES]
    tracer = Tracer(*inputs)
    values = steps(tracer, *inputs, **options)
    outs = [values[w] for w in wanted]
    gm = lamina_primtorch.decompose(tracer.finish(*outs), "prims")
    gm.graph.eliminate_dead_code()
    return gm, inputs, outs


def kernels_of(*wanted, **options):
    gm, inputs, _ = graph_of(*wanted, **options)
    return compile_graph(gm, inputs, target=Planned())


@pytest.mark.parametrize("wanted", [("gq", "gk", "gv"), ("gk", "gv"), ("gq", "gk"), ("gq",), ("gk",)])
def test_gradients_are_one_kernel(wanted):
    compiled = kernels_of(*wanted)
    (kernel,) = compiled.kernels
    assert isinstance(kernel, AttentionGradientKernel) and not compiled.externs
    assert kernel.extents == (2, 32, 48, 16, 24)
    assert sorted(s.over_rows for s in kernel.sums) == sorted(w != "gq" for w in wanted)
    assert "row_sum" in kernel.text() and kernel.key().startswith("attention gradient")


def test_masks_bound_what_is_visited():
    (kernel,) = kernels_of("gq", "gk", "gv", masked=True).kernels
    (bound,) = find_bounds(kernel.root("score"))
    assert (bound.upper, bound.rows, bound.offset) == (True, 1, 0)


@pytest.mark.parametrize("wanted", [("gq", "gs"), ("gq", "gk", "weights"), ("gv",)])
def test_what_is_wanted_elsewhere_stays_as_it_is(wanted):
    compiled = kernels_of(*wanted)
    assert not any(isinstance(k, AttentionGradientKernel) for k in compiled.kernels)
    assert compiled.externs and compiled.fallback is None


def test_the_pass_can_be_left_out():
    with without("attention"):
        compiled = kernels_of("gq", "gk", "gv")
    assert len(compiled.externs) == 5


def test_what_needs_an_early_result_comes_behind_the_last():
    torch.manual_seed(0)
    inputs = [torch.randn(*s) for s in SHAPES]
    t = Tracer(*inputs)
    values = steps(t, *inputs)
    gm = lamina_primtorch.decompose(t.finish(values["gq"], values["gk"], values["gv"]), "prims")
    (found,) = find_gradients(gm.graph)
    first, last = found.results[0].node, found.results[-1].node
    with gm.graph.inserting_after(first):
        doubled = gm.graph.call_function(torch.neg, (first,))
    assert gather_results(gm.graph, found)
    order = list(gm.graph.nodes)
    assert order.index(doubled) == order.index(last) + 1


def test_parts_compute_the_same_where_the_template_refuses():
    """A product that takes part at another place than its own."""

    class Parts(ReferenceTarget):
        def can_lower(self, op, dtype):
            return None if op == "attention" else super().can_lower(op, dtype)

    torch.manual_seed(0)
    inputs = [torch.randn(2, 32, 16) for _ in range(4)]
    t = Tracer(*inputs)
    q, k, v, grad = inputs
    s = t.call(aten.bmm.default, q, t.call(aten.permute.default, k, [0, 2, 1]))
    weights = t.call(aten._softmax.default, t.call(aten.flip.default, s, [1]), -1, False)
    gw = t.call(aten.bmm.default, grad, t.call(aten.permute.default, v, [0, 2, 1]))
    gs = t.call(aten._softmax_backward_data.default, gw, weights, -1, torch.float32)
    gq = t.call(aten.bmm.default, t.call(aten.flip.default, gs, [1]), k)
    gm = lamina_primtorch.decompose(t.finish(gq), "prims")
    assert len(find_gradients(gm.graph)) == 1
    compiled = compile_graph(gm, inputs, target=Parts())
    torch.testing.assert_close(compiled(list(inputs))[0], gq)
    assert any("not at its own place" in why for _, why in compiled.reasons)
