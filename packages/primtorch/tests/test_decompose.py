"""The driver: what it keeps, merges, removes and copies."""

import operator

import pytest
import torch
import torch.fx as fx

import lamina_primtorch as lp
from lamina_primtorch.config import patch

aten = torch.ops.aten


class Build:
    """A hand-written ATen graph with values."""

    def __init__(self):
        self.graph = fx.Graph()
        self.inputs = []

    def input(self, x):
        node = self.graph.placeholder(f"a{len(self.inputs)}")
        node.meta["val"] = x
        self.inputs.append(x)
        return node

    def call(self, op, *args, **kwargs):
        node = self.graph.call_function(op, args, kwargs)
        read = lambda n: n.meta["val"]  # noqa: E731
        node.meta["val"] = op(*fx.map_arg(args, read), **fx.map_arg(kwargs, read))
        node.meta["stack_trace"] = f'File "model.py", line {len(self.graph.nodes)}'
        return node

    def done(self, *outs):
        self.graph.output(tuple(outs))
        return fx.GraphModule({}, self.graph)


def names(gm):
    return [
        n.target.name if isinstance(n.target, lp.Prim) else str(n.target)
        for n in gm.graph.nodes
        if n.op == "call_function"
    ]


def run_both(gm, inputs):
    low = lp.decompose(gm)
    low.graph.lint()
    lp.check_graph(low)
    for a, b in zip(gm(*inputs), low(*inputs), strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
    return low


def test_common_subexpressions_are_made_once_and_dead_ones_not_at_all():
    b = Build()
    x = b.input(torch.randn(3, 4))
    e1, e2 = b.call(aten.exp.default, x), b.call(aten.exp.default, x)
    b.call(aten.sin.default, x)
    low = run_both(b.done(b.call(aten.add.Tensor, e1, e2)), b.inputs)
    assert names(low) == ["exp", "add"]


def test_random_ops_are_neither_merged_nor_removed():
    b = Build()
    x = b.input(torch.ones(8))
    r1, r2 = b.call(aten.bernoulli.p, x, 0.5), b.call(aten.bernoulli.p, x, 0.5)
    b.call(aten.bernoulli.p, x, 0.5)
    gm = b.done(r1, r2)
    low = lp.decompose(gm)
    assert names(low) == ["bernoulli_p"] * 3
    torch.manual_seed(3)
    want = gm(*b.inputs)
    torch.manual_seed(3)
    got = low(*b.inputs)
    assert all(torch.equal(a, c) for a, c in zip(want, got, strict=True))


def test_minus_zero_and_one_are_not_merged_with_zero_and_true():
    b = Build()
    x = b.input(torch.ones(2))
    outs = [b.call(aten.full_like.default, x, v) for v in (0.0, -0.0, float("nan"))]
    low = lp.decompose(b.done(*outs))
    got = low(*b.inputs)
    assert torch.signbit(got[1]).all() and not torch.signbit(got[0]).any() and got[2].isnan().all()


def test_metadata_is_copied_and_vals_are_light():
    b = Build()
    x = b.input(torch.randn(2, 5))
    low = lp.decompose(b.done(b.call(aten._softmax.default, x, 1, False)))
    for n in low.graph.nodes:
        if n.op == "call_function":
            assert n.meta["stack_trace"].startswith('File "model.py"')
            assert type(n.meta["val"]) is lp.Value


def test_a_fresh_output_stays_fresh():
    b = Build()
    x = b.input(torch.randn(3))
    c = b.call(aten.clone.default, x)
    low = lp.decompose(b.done(c, b.call(aten.clone.default, c)))
    outs = low(*b.inputs)
    assert len({o.data_ptr() for o in (*outs, b.inputs[0])}) == 3


def test_a_view_output_stays_a_view():
    b = Build()
    x = b.input(torch.randn(3, 4))
    low = lp.decompose(b.done(b.call(aten.permute.default, x, [1, 0])))
    assert low(*b.inputs)[0].data_ptr() == b.inputs[0].data_ptr()


def test_what_has_no_decomposition_is_kept():
    b = Build()
    x = b.input(torch.randn(3, 3))
    y = b.call(aten.linalg_eig.default, x)
    item = b.graph.call_function(operator.getitem, (y, 0))
    item.meta["val"] = y.meta["val"][0]
    low = lp.decompose(b.done(item))
    assert names(low)[0] == "aten.linalg_eig.default"


def test_a_declined_case_is_kept_and_says_why():
    seen = []
    remove = lp.on_event(seen.append)
    b = Build()
    x = b.input(torch.randn(3))
    g = b.graph.call_function(aten.celu.default, (x, 0.0))
    g.meta["val"] = torch.randn(3)
    low = lp.decompose(b.done(g))
    remove()
    assert names(low) == ["aten.celu.default"]
    assert any(e.name == "kept" and "alpha 0" in e.payload["reason"] for e in seen)
    with pytest.raises(RuntimeError):
        low(torch.randn(3))


def test_strides_of_outputs_are_eagers():
    b = Build()
    x = b.input(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))
    y = b.input(torch.randn(1, 7).t())
    outs = [
        b.call(aten.mul.Tensor, x, x),
        b.call(aten.sum.dim_IntList, x, [1], True),
        b.call(aten.mul.Tensor, y, 2),
        b.call(aten.clone.default, y),
        b.call(aten.ones_like.default, y, pin_memory=False),
    ]
    run_both(b.done(*outs), b.inputs)


def test_no_tensor_is_computed_while_decomposing():
    b = Build()
    x = b.input(torch.randn(4, 4))
    gm = b.done(
        b.call(aten.native_layer_norm.default, x, [4], None, None, 1e-5)[0] if False else b.call(aten.gelu.default, x)
    )

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Count.calls += 1
            return func(*args, **(kwargs or {}))

    with Count():
        lp.decompose(gm)
    assert Count.calls == 0


def test_unknown_target_is_refused():
    with pytest.raises(ValueError, match="unknown target"):
        lp.decompose(fx.GraphModule({}, fx.Graph()), "nonsense")


def test_check_graph_names_the_broken_node():
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.ones(2)
    y = graph.placeholder("y")
    y.meta["val"] = torch.ones(3)
    graph.call_function(lp.prims.add, (x, y)).meta["val"] = torch.ones(3)
    graph.output((x,))
    with pytest.raises(lp.contract.ContractError, match="shapes"):
        lp.check_graph(fx.GraphModule({}, graph))


def test_an_internal_error_keeps_the_op_unless_strict():
    def broken(x):
        raise KeyError("oops")

    table = lp.decomposition_table("prims")
    copy = type(table)("prims")
    copy._found[aten.exp.default] = broken
    b = Build()
    x = b.input(torch.randn(2))
    gm = b.done(b.call(aten.exp.default, x))
    with patch(strict=False):
        assert names(lp.decompose(gm, table=copy)) == ["aten.exp.default"]
    with patch(strict=True), pytest.raises(KeyError):
        lp.decompose(gm, table=copy)


class _Region:
    """A graph as a call target, as a tracer above hands it over."""

    def __init__(self, graph_module):
        self.graph_module = graph_module
        self.__name__ = self.__qualname__ = "region"

    def __call__(self, *args):
        return list(self.graph_module(*args))

    def with_graph(self, graph_module):
        return _Region(graph_module)


@pytest.mark.parametrize("target", ["prims", "core_aten"])
def test_a_called_graph_is_decomposed_once_for_all_its_calls(target):
    inner = Build()
    a, b = inner.input(torch.randn(3, 4)), inner.input(torch.randn(4))
    y = inner.call(aten.silu.default, inner.call(aten.add.Tensor, a, b))
    region = _Region(inner.done(y, inner.call(aten.mul.Scalar, y, 2)))
    g = Build()
    x, bias = g.input(torch.randn(3, 4)), g.input(torch.randn(4))
    for _ in range(3):
        call = g.graph.call_function(region, (x, bias))
        call.meta["val"] = region(*(n.meta["val"] for n in (x, bias)))
        x = g.graph.call_function(operator.getitem, (call, 1))
        x.meta["val"] = call.meta["val"][1]
    gm = g.done(x)
    out = lp.decompose(gm, target)
    calls = [n.target for n in out.graph.nodes if hasattr(n.target, "with_graph")]
    assert len(calls) == 3 and len(set(calls)) == 1 and calls[0] is not region
    assert aten.silu.default not in [n.target for n in calls[0].graph_module.graph.nodes]
    torch.testing.assert_close(out(*g.inputs)[0], gm(*g.inputs)[0])
    if target == "prims":
        lp.check_graph(out)


def on_two_devices(op, *args, **kwargs):
    """The prims of one call whose tensors are on a device, or on the CPU with no dimension."""
    from lamina_primtorch.value import Value

    graph = fx.Graph()
    cuda = torch.device("cuda", 0)

    def value(x):
        return Value(tuple(x.shape), x.stride(), x.dtype, cuda if x.dim() else torch.device("cpu"))

    nodes = []
    for k, a in enumerate(args):
        if isinstance(a, torch.Tensor):
            nodes.append(graph.placeholder(f"a{k}"))
            nodes[-1].meta["val"] = value(a)
        else:
            nodes.append(a)
    out = graph.call_function(op, tuple(nodes), kwargs)
    real = op(*args, **kwargs)
    out.meta["val"] = Value(tuple(real.shape), real.stride(), real.dtype, cuda)
    graph.output((out,))
    return lp.decompose(fx.GraphModule({}, graph), "prims")


@pytest.mark.parametrize(
    "op, args",
    [
        (aten.mul.Tensor, (torch.ones(3, 2), torch.tensor(2.0))),
        (aten.sub.Tensor, (torch.tensor(2.0), torch.ones(3, 2))),
        (aten.where.self, (torch.ones(3, 2, dtype=torch.bool), torch.ones(3, 2), torch.tensor(2.0))),
        (aten.fill.Tensor, (torch.ones(3, 2), torch.tensor(2.0))),
        (aten.copy.default, (torch.ones(3, 2), torch.tensor(2.0))),
        (aten.masked_fill.Tensor, (torch.ones(3, 2), torch.ones(3, 2, dtype=torch.bool), torch.tensor(2.0))),
    ],
)
def test_numbers_on_the_cpu_are_moved_to_the_device(op, args):
    gm = on_two_devices(op, *args)
    moved = [n for n in gm.graph.nodes if str(n.target) == "aten._to_copy.default"]
    assert len(moved) == 1 and moved[0].kwargs["device"].type == "cuda"
    later = [n for n in gm.graph.nodes if n.op == "call_function"]
    assert all(n.meta["val"].device.type == "cuda" for n in later)
    assert not any("aten." in str(n.target) for n in later if n is not moved[0])


def test_calls_that_eager_refuses_are_left_to_its_kernel():
    """The decomposition would give a value: the operator stays, and says itself what is wrong."""
    from lamina_primtorch.decomps import DECOMPOSITIONS

    scores, classes = torch.randn(3, 4), torch.zeros(3, dtype=torch.int64)
    image, spots = torch.randn(2, 4, 3, 3), torch.zeros(2, 3, 2, dtype=torch.int64)
    z = torch.ones(3, dtype=torch.complex64)
    calls = [
        ("nll_loss_forward.default", (scores, classes, torch.ones(2), 1, -100)),
        ("nll_loss_forward.default", (scores, classes, torch.ones(4, dtype=torch.float64), 1, -100)),
        ("nll_loss_forward.default", (scores[0], classes[:0], None, 1, -100)),
        ("nll_loss2d_forward.default", (image, spots, None, 1, -100)),
        ("xlogy.Tensor", (z, z)),
        ("logcumsumexp.default", (classes, 0)),
    ]
    for name, args in calls:
        packet, _, overload = name.partition(".")
        with pytest.raises((RuntimeError, ValueError)):
            getattr(getattr(aten, packet), overload)(*args)
        with pytest.raises(NotImplementedError):
            DECOMPOSITIONS[name](*args)


def test_a_complex_mean_of_nothing():
    build = Build()
    gm = build.done(build.call(aten.mean.default, build.input(torch.empty(0, dtype=torch.complex64))))
    (got,) = lp.decompose(gm, "prims")(*build.inputs)
    assert got.real.isnan() and got.imag.isnan()


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("base", [torch.ones(()), torch.ones(1, 3)])
def test_an_expanded_tensor_unsqueezed_has_eagers_strides(base, dim):
    x = base.expand(5, 3) if base.dim() else base.expand(5)
    graph = fx.Graph()
    node = graph.placeholder("x")
    node.meta["val"] = x
    call = graph.call_function(torch.ops.aten.unsqueeze.default, (node, dim))
    call.meta["val"] = x.unsqueeze(dim)
    graph.output((call,))
    (found,) = lp.decompose(fx.GraphModule({}, graph))(x)
    assert found.stride() == x.unsqueeze(dim).stride() and torch.equal(found, x.unsqueeze(dim))
