"""Graphs with nodes that need real tensors: pieces around them, with sizes that change from call to call."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from lamina_aot_autograd import aot_compile


def selecting_graph(known_size):
    graph = fx.Graph()
    x = graph.placeholder("x")
    mask = graph.call_function(operator.gt, (x, 0))
    kept = graph.call_function(torch.masked_select, (x, mask))
    kept.meta["val"] = torch.empty(known_size, device="meta")
    doubled = graph.call_function(operator.mul, (kept, 2))
    graph.output((doubled, graph.call_method("sum", (kept,))))
    return fx.GraphModule({}, graph)


def test_sizes_that_only_the_run_knows():
    size = ShapeEnv().create_unbacked_symint()
    call = aot_compile(selecting_graph(size), [torch.randn(6)])
    for values in ([1.0, -1.0, 2.0, 3.0, -4.0, 5.0], [-1.0] * 6, [1.0] * 6):
        x = torch.tensor(values, requires_grad=True)
        doubled, total = call(x)
        assert doubled.tolist() == [2 * v for v in values if v > 0]
        total.backward()
        assert x.grad.tolist() == [float(v > 0) for v in values]


def test_a_body_for_a_node_that_runs_in_eager():
    def choose(predicate, body, x):
        return body(x)[0] if predicate else x

    choose._lamina_needs_real_tensors = True
    inner = fx.Graph()
    a = inner.placeholder("a")
    inner.output((inner.call_function(torch.sin, (a,)),))
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(operator.mul, (x, 2))
    predicate = graph.call_function(operator.gt, (graph.call_method("sum", (y,)), 0))
    body = graph.create_node("get_attr", "body", (), {})
    graph.output((graph.call_function(choose, (predicate, body, y)),))
    call = aot_compile(fx.GraphModule({"body": fx.GraphModule({}, inner)}, graph), [torch.ones(3)])
    torch.testing.assert_close(call(torch.ones(3))[0], torch.full((3,), 2.0).sin())
    torch.testing.assert_close(call(-torch.ones(3))[0], torch.full((3,), -2.0))


def test_numbers_and_zeros_of_transforms():
    inner = fx.Graph()
    a = inner.placeholder("a")
    inner.output((inner.call_function(operator.add, (inner.call_function(operator.pow, (a, 3)), 1)),))
    graph = fx.Graph()
    x = graph.placeholder("x")
    body = graph.create_node("get_attr", "body", (), {})

    def transform(body, x):
        return torch.func.vmap(torch.func.jacfwd(torch.func.grad(lambda v: body(v)[0].sum())))(x)

    graph.output((graph.call_function(transform, (body, x)),))
    gm = fx.GraphModule({"body": fx.GraphModule({}, inner)}, graph)
    given = torch.randn(4, 3)
    torch.testing.assert_close(aot_compile(gm, [given])(given)[0], gm(given)[0])


def test_foreach_with_factors_in_a_tensor():
    graph = fx.Graph()
    names = [graph.placeholder(f"p{i}") for i in range(7)]
    graph.call_function(torch._foreach_addcdiv_, (names[0:2], names[2:4], names[4:6], names[6]))
    graph.call_function(torch._foreach_addcmul_, (names[0:2], names[2:4], names[4:6], names[6]))
    graph.output((graph.call_function(operator.add, (names[0], names[1])),))
    gm = fx.GraphModule({}, graph)
    given = [torch.rand(3) + 1 for _ in range(6)] + [torch.tensor([0.5, 0.25])]
    want_inputs, got_inputs = [t.clone() for t in given], [t.clone() for t in given]
    want = gm(*want_inputs)
    torch.testing.assert_close(aot_compile(gm, given)(*got_inputs)[0], want[0])
    torch.testing.assert_close(got_inputs, want_inputs)


def test_gradients_taken_inside_the_graph_can_be_differentiated():
    def autograd_grad(out, x):
        return torch.autograd.grad(out, x, create_graph=True)[0]

    autograd_grad._lamina_needs_real_tensors = True
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    leaf = graph.call_method("requires_grad_", (graph.call_method("clone", (x,)),))
    total = graph.call_method("sum", (graph.call_method("sin", (graph.call_function(operator.mul, (leaf, w)),)),))
    first = graph.call_function(autograd_grad, (total, leaf))
    second = graph.call_function(autograd_grad, (graph.call_method("sum", (first,)), leaf))
    graph.output((graph.call_function(operator.mul, (second, 2)),))
    gm = fx.GraphModule({}, graph)
    x, w = torch.randn(3), torch.randn(3, requires_grad=True)
    call = aot_compile(gm, [x, w])
    for _ in range(2):
        (got,), (want,) = call(x, w), gm(x, w)
        assert torch.allclose(got, want)
        assert torch.allclose(torch.autograd.grad(got.sum(), w)[0], torch.autograd.grad(want.sum(), w)[0])


def _watching(case):
    """Graphs in which a tensor's gradient is asked for after the tensor was used."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    h = graph.call_method("sin", (x,))
    used = graph.call_function(operator.mul, (h, 2))
    if case == "written":
        graph.call_method("add_", (h, 1))
    if case == "gradient":
        total = graph.call_method("sum", (graph.call_method("square", (used,)),))
        asked = graph.call_function(autograd_grad, (total, h, None, True, True))
        used = graph.call_function(operator.getitem, (asked, 0))
    elif case == "kept":
        graph.call_method("retain_grad", (h,))
    else:
        graph.call_function(register_hook, (h,))
    result = graph.call_method("sum", (graph.call_function(operator.mul, (used, graph.call_method("exp", (h,))),),))
    graph.output((result, h))
    return fx.GraphModule({}, graph)


def register_hook(tensor):
    return tensor.register_hook(lambda gradient: gradient * 5)


def autograd_grad(*args):
    return torch.autograd.grad(args[0], args[1], args[2], args[3], args[4])


register_hook._lamina_needs_real_tensors = True
autograd_grad._lamina_needs_real_tensors = True


@pytest.mark.parametrize("case", ["hooked", "written", "kept", "gradient"])
def test_a_watched_tensor_is_the_one_its_earlier_uses_read(case):
    found = []
    gm = _watching(case)
    for call in (gm, aot_compile(_watching(case), [torch.linspace(-1, 2, 4, requires_grad=True)])):
        x = torch.linspace(-1, 2, 4, requires_grad=True)
        result, h = call(x)
        result.backward()
        found.append((result.detach(), x.grad, h.grad if case == "kept" else None))
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected)


def test_selections_of_tensors_with_symbolic_sizes():
    """Strides and gradients hang on whether the selection has 0, 1 or more rows: it is made in eager, as with known
    sizes."""
    env = ShapeEnv()
    x = torch.randn(6, 3)
    graph = fx.Graph()
    mode = FakeTensorMode(shape_env=env)
    given = graph.placeholder("x")
    given.meta["val"] = mode.from_tensor(
        x, symbolic_context=StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    )
    mask = graph.call_function(operator.gt, (graph.call_method("select", (given, 1, 0)), 0))
    kept = graph.call_function(operator.getitem, (given, mask))
    kept.meta["val"] = torch.empty(env.create_unbacked_symint(), 3, device="meta")
    turned = graph.call_method("contiguous", (graph.call_method("t", (kept,)),))
    graph.output((graph.call_function(torch.matmul, (kept, turned)), turned))
    gm = fx.GraphModule({}, graph)
    call = aot_compile(gm, [x.requires_grad_()])
    for count in (4, 0, 1, 6):
        values = -torch.ones(7, 3)
        values[:count] = torch.randn(count, 3).abs() + 0.1
        ours, theirs = values.clone().requires_grad_(), values.clone().requires_grad_()
        kept = theirs[theirs[:, 0] > 0]
        expected = (kept @ kept.t().contiguous(), kept.t().contiguous())
        results = call(ours)
        for result, other in zip(results, expected, strict=True):
            assert result.stride() == other.stride()
            torch.testing.assert_close(result, other)
        sum(r.sum() for r in results).backward()
        sum(e.sum() for e in expected).backward()
        torch.testing.assert_close(ours.grad, theirs.grad)


def run_backward(tensors, grad_tensors, retain_graph, inputs, watched, priors):
    torch.autograd.backward(tensors, grad_tensors, retain_graph)
    return tuple(t.grad for t in watched)


run_backward._lamina_needs_real_tensors = True


def test_backward_between_pieces():
    """A piece that a later backward reaches over another of its results is not run backward again, and what only one
    loss needs stays for the other."""

    def graph_of(twice):
        graph = fx.Graph()
        x = graph.placeholder("x")
        first = graph.call_function(torch.sum, (graph.call_function(torch.pow, (x, 2)),))
        second = graph.call_function(torch.sum, (graph.call_function(torch.pow, (x, 3)),))
        for node in (first, second):
            node.meta["val"] = torch.ones(1, requires_grad=True) * 2
        grads = graph.call_function(run_backward, ([first], [None], False, None, [x], [None]))
        grad = graph.call_function(operator.getitem, (grads, 0))
        if not twice:
            graph.output((grad, second))
            return fx.GraphModule({}, graph)
        seen = graph.call_method("detach", (first,))
        third = graph.call_function(torch.sum, (graph.call_function(torch.pow, (x, 4)),))
        graph.call_function(run_backward, ([third], [None], False, None, [x], [grad]))
        graph.output((grad, seen, third))
        return fx.GraphModule({}, graph)

    x = torch.randn(5, requires_grad=True)
    grad, second = aot_compile(graph_of(False), [x])(x)
    torch.testing.assert_close(grad, 2 * x.detach())
    second.backward()
    torch.testing.assert_close(x.grad, (2 * x + 3 * x**2).detach())
    x.grad = None
    aot_compile(graph_of(True), [x])(x)
    torch.testing.assert_close(x.grad, (2 * x + 4 * x**3).detach())


def test_what_meets_no_unknown_size_is_compiled():
    """Ten operations, a selection that two of them use, and ten more."""
    size = ShapeEnv().create_unbacked_symint()
    graph = fx.Graph()
    x = graph.placeholder("x")

    def chain(node):
        for _ in range(10):
            node = graph.call_function(torch.sin, (node,))
            node.meta["val"] = torch.empty(6, device="meta")
        return node

    y = chain(x)
    rows = graph.call_function(torch.masked_select, (y, graph.call_function(operator.gt, (y, 0))))
    rows.meta["val"] = torch.empty(size, device="meta")
    total = graph.call_method("sum", (graph.call_function(operator.mul, (rows, 2)),))
    total.meta["val"] = torch.empty((), device="meta")
    graph.output((chain(graph.call_function(operator.add, (y, total))),))
    gm = fx.GraphModule({}, graph)
    compiled = []

    def compiler(gm, inputs):
        compiled.append(sum(node.op == "call_function" for node in gm.graph.nodes))
        return gm.forward

    call = aot_compile(gm, [torch.randn(6, requires_grad=True)], forward_compiler=compiler, backward_compiler=None)
    for values in ([0.1, 0.2, -0.3, 0.4, 0.5, 0.6], [-0.1] * 6):
        x = torch.tensor(values, requires_grad=True)
        (got,) = call(x)
        got.sum().backward()
        grad, x.grad = x.grad, None
        (want,) = gm(x)
        want.sum().backward()
        torch.testing.assert_close((got, grad), (want, x.grad))
    assert len(compiled) == 4 and min(compiled) >= 10  # two pieces, forward and backward
