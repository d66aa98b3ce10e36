"""View prims: values, strides, and that no copies are made where none are needed."""

import pytest
import torch
from check import TARGETS, run
from programs import Tracer

targets = pytest.mark.parametrize("target", TARGETS)

VIEWS = {
    "permute": lambda t, x: t.permute(x, (2, 0, 1)),
    "merge": lambda t, x: t.reshape(x, (12, 6)),
    "split": lambda t, x: t.reshape(x, (3, 2, 2, 3, 2)),
    "flat": lambda t, x: t.reshape(x, (72,)),
    "regroup": lambda t, x: t.reshape(x, (4, 18)),
    "odd": lambda t, x: t.reshape(x, (8, 9)),
    "ones": lambda t, x: t.reshape(x, (1, 3, 1, 4, 6, 1)),
    "slice": lambda t, x: t.slice(x, (1, 0, 1), (3, 4, 6), (1, 2, 3)),
    "flip": lambda t, x: t.flip(x, (0, 2)),
    "diagonal": lambda t, x: t.diagonal(x, 1, 1, 2),
    "diagonal_below": lambda t, x: t.diagonal(x, -1, 0, 2),
    "unfold": lambda t, x: t.unfold(x, 2, 3, 2),
    "broadcast": lambda t, x: t.broadcast_in_dim(x, (2, 3, 4, 6), (1, 2, 3)),
    "restride": lambda t, x: t.restride(x, (1, 18, 3)),
}


@targets
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_view_then_compute(name, lazy, target):
    x = torch.randn(3, 4, 6)
    t = Tracer(x)
    source = t.exp(x) if lazy else x
    run(t.finish(t.mul(VIEWS[name](t, source), 2.0)), [x], target)


@targets
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_view_as_output(name, lazy, target):
    x = torch.randn(3, 4, 6)
    t = Tracer(x)
    source = t.exp(x) if lazy else x
    out = VIEWS[name](t, source)
    if out is x or 0 in out.stride():
        return
    run(t.finish(out), [x], target)


@targets
def test_views_of_transposed_input(target):
    x = torch.randn(6, 4, 3).permute(2, 1, 0)
    for fn in VIEWS.values():
        t = Tracer(x)
        run(t.finish(t.mul(fn(t, x), 2.0)), [x], target)


@targets
def test_chain_of_views_is_one_kernel(target):
    x = torch.randn(4, 6, 8)
    t = Tracer(x)
    y = t.permute(t.reshape(t.permute(x, (1, 0, 2)), (24, 8)), (1, 0))
    compiled = run(t.finish(t.exp(y)), [x], target)
    assert len(compiled.kernels) == 1


@targets
def test_as_strided_reads_the_storage(target):
    x = torch.randn(4, 6)[1:]
    t = Tracer(x)
    run(
        t.finish(t.mul(t.as_strided(x, (3, 2), (6, 2), None), 2.0), t.mul(t.as_strided(x, (2, 2), (1, 1), 3), 2.0)),
        [x],
        target,
    )


@targets
def test_output_that_is_view_of_input_shares_memory(target):
    x = torch.randn(3, 4)
    t = Tracer(x)
    compiled = run(t.finish(t.permute(x, (1, 0)), x), [x], target)
    view, same = compiled([x])
    assert view.data_ptr() == x.data_ptr() and same is x
    assert not compiled.kernels


@targets
def test_expanded_output(target):
    x = torch.randn(3, 1)
    t = Tracer(x)
    run(t.finish(t.broadcast_in_dim(t.exp(x), (3, 4), (0, 1))), [x], target, stride=False)


def test_a_padded_bias_reaches_attention_as_it_lies_in_eager():
    """Fused attention on CUDA wants rows of a bias at multiples of 8 elements: eager pads and cuts them."""
    import operator

    import torch.fx as fx

    import lamina_primtorch
    from lamina_inductor.config import Config
    from lamina_inductor.graph import GraphLowering
    from lamina_inductor.ir.program import ExternCall
    from lamina_inductor.scheduler.plan import schedule
    from lamina_primtorch.value import Value

    aten, graph, device = torch.ops.aten, fx.Graph(), torch.device("cuda", 0)

    def call(op, args, *val):
        node = graph.call_function(op, args) if callable(op) else graph.placeholder(op)
        node.meta["val"] = Value(*val, torch.float32, device) if len(val) == 2 else val[0]
        return node

    q, k, v = (call(name, (), (2, 4, 17, 16), (1088, 272, 16, 1)) for name in "qkv")
    x = call("bias", (), (1, 4, 17, 17), (1156, 289, 17, 1))
    x = call(aten.constant_pad_nd.default, (x, [0, 7], 0.0), (1, 4, 17, 24), (1632, 408, 24, 1))
    x = call(aten.slice.Tensor, (x, -1, 0, 17), (1, 4, 17, 17), (1632, 408, 24, 1))
    x = call(aten.expand.default, (x, [2, 4, 17, 17]), (2, 4, 17, 17), (0, 408, 24, 1))
    results = [((2, 4, 17, 16), (1088, 16, 64, 1)), ((2, 4, 32), (128, 32, 1)), ((), ()), ((), ())]
    vals = [Value(*r, torch.int64 if not r[0] else torch.float32, device) for r in results]
    out = call(aten._scaled_dot_product_efficient_attention.default, (q, k, v, x, False), vals)
    graph.output((call(operator.getitem, (out, 0), *results[0]),))
    gm = lamina_primtorch.decompose(fx.GraphModule(torch.nn.Module(), graph), "prims")
    program = schedule(GraphLowering(gm, Config()).run(), "test").program
    (attention,) = (s for s in program.steps if isinstance(s, ExternCall))
    bias = attention.args[3]
    layout = bias.layout or program.buffers[bias.name].layout
    assert tuple(int(s) for s in layout.stride) == (0, 408, 24, 1)
