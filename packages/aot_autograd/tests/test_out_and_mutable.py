"""Calls with out= tensors and operators that write to several arguments."""

import operator

import pytest
import torch
from torch import fx

from lamina_aot_autograd import aot_compile


def graph_of(call, *args):
    """A graph of one call on placeholders."""
    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{k}") for k in range(len(args))]
    graph.output((call(graph, *nodes),))
    return fx.GraphModule({}, graph)


def test_out_of_another_dtype_is_converted_where_eager_converts():
    x, out = torch.randn(3), torch.zeros(3, dtype=torch.float64)
    gm = graph_of(lambda g, a, o: g.call_function(torch.add, (a, 1), {"out": o}), x, out)
    got = aot_compile(gm, [x, out])(x, out)
    assert got[0] is out and torch.equal(out, (x + 1).double())


@pytest.mark.parametrize("case", ["aminmax", "complex"])
def test_out_of_another_dtype_is_refused_where_eager_refuses(case):
    if case == "aminmax":
        args = (torch.randn(3, 3), torch.zeros(3), torch.zeros(3, dtype=torch.float64))
        gm = graph_of(lambda g, a, o, p: g.call_function(torch.aminmax, (a,), {"dim": 0, "out": (o, p)}), *args)
    else:
        x = torch.randn(3, dtype=torch.float64)
        args = (x, x + 1, torch.zeros(3, dtype=torch.complex64))
        gm = graph_of(lambda g, a, b, o: g.call_function(torch.complex, (a, b), {"out": o}), *args)
    with pytest.raises(RuntimeError, match="dtype|scalar type"):
        aot_compile(gm, list(args))(*args)


def test_atens_functional_counterpart_stands_for_a_mutating_operator():
    op = torch.ops.aten._batch_norm_with_update.default
    x, w, b = torch.randn(5, 4, 3).mT, torch.randn(3), torch.randn(3)
    seen = []

    def compiler(gm, examples):
        seen.extend(n.target for n in gm.graph.nodes)
        return gm.forward

    def fresh():
        return torch.zeros(3), torch.ones(3)

    def calls(g, *a):
        result = g.call_function(op, (*a, 0.5, 1e-5))
        return [g.call_function(operator.getitem, (result, k)) for k in range(4)]

    gm = graph_of(calls, x, w, b, *fresh())
    gm.graph.output_node().args = (tuple(gm.graph.output_node().args[0][0]),)
    gm.recompile()
    stats, expected = fresh(), fresh()
    got = aot_compile(gm, [x, w, b, *stats], forward_compiler=compiler)(x, w, b, *stats)
    want = op(x, w, b, *expected, 0.5, 1e-5)
    assert torch.ops.aten._batch_norm_with_update_functional.default in seen
    for g, e in zip([*got, *stats], [*want, *expected], strict=True):
        assert g.stride() == e.stride() and g.dtype is e.dtype
        torch.testing.assert_close(g, e)


def strided(*shape):
    """Zeros whose last dimension takes every second place."""
    return torch.zeros(*shape[:-1], 2 * shape[-1], dtype=torch.float64)[..., ::2]


@pytest.mark.parametrize(
    "call, inputs, out",
    [
        (torch.kron, lambda: (torch.randn(2, 3).double(), torch.randn(4, 5).double()), lambda: strided(8, 15)),
        (torch.max, lambda: (torch.randn(3, 4).double(),), lambda: torch.zeros((), dtype=torch.float64)),
        (torch.min, lambda: (torch.randn(3, 4).double(),), lambda: torch.zeros((), dtype=torch.float64)),
    ],
)
def test_out_is_written(call, inputs, out):
    args, target = inputs(), out()
    gm = graph_of(lambda g, *n: g.call_function(call, n[:-1], {"out": n[-1]}), *args, target)
    compiled = aot_compile(gm, [*args, target])
    assert compiled.reason is None
    assert compiled(*args, target)[0] is target
    assert torch.equal(target, call(*args))


def test_a_list_of_outs_is_left_to_eager():
    x, outs = torch.randn(3, 2), [torch.zeros(2) for _ in range(3)]
    gm = graph_of(lambda g, a, *o: g.call_function(torch.unbind_copy, (a,), {"out": list(o)}), x, *outs)
    gm.graph.output_node().args = (tuple(n for n in gm.graph.nodes if n.op == "placeholder")[1:],)
    gm.recompile()
    aot_compile(gm, [x, *outs])(x, *outs)
    assert torch.equal(torch.stack(outs), x)


def test_rank_of_a_matrix_is_written():
    x, out = torch.eye(4, dtype=torch.float64), torch.zeros((), dtype=torch.int64)
    gm = graph_of(lambda g, a, o: g.call_function(torch.linalg.matrix_rank, (a,), {"out": o}), x, out)
    aot_compile(gm, [x, out])(x, out)
    assert out.item() == 4
