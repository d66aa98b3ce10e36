import re

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import lamina_aot_autograd as aot
from lamina_aot_autograd import config


def leaf(*shape, grad=True, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


def make_dynamic(gm, examples, dims):
    """Give the placeholders fakes whose sizes in `dims` (input -> dimensions) are symbolic."""
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    for i, (node, example) in enumerate(
        zip([n for n in gm.graph.nodes if n.op == "placeholder"], examples, strict=True)
    ):
        if not isinstance(example, torch.Tensor):
            continue
        wanted = dims.get(i, ())
        context = StatelessSymbolicContext(
            dynamic_sizes=[DimDynamic.DYNAMIC if d in wanted else DimDynamic.STATIC for d in range(example.dim())]
        )
        node.meta["val"] = mode.from_tensor(example, symbolic_context=context)
    return gm


def check(h, fn, make, dims, sizes):
    gm = h.trace(fn)
    make_dynamic(gm, make(sizes[0]), dims)
    c = h.compile_fn(gm, make(sizes[0]))
    assert c.reason is None, c.reason
    for size in sizes:
        a, b = make(size), make(size)
        want, got = fn(*a), c(*b)
        for w, g in zip(want, got, strict=True):
            if not isinstance(w, torch.Tensor):
                assert w == g
                continue
            assert w.shape == g.shape and w.stride() == g.stride() and torch.allclose(w, g, atol=1e-5)
        loss = [
            sum((t * t).sum() for t in outs if isinstance(t, torch.Tensor) and t.requires_grad) for outs in (want, got)
        ]
        if isinstance(loss[0], torch.Tensor):
            for side, _inputs in zip(loss, (a, b), strict=True):
                side.backward()
            for w, g in zip(a, b, strict=True):
                assert (w.grad is None) == (g.grad is None)
                assert w.grad is None or torch.allclose(w.grad, g.grad, atol=1e-4)
    return c


def test_mlp(h):
    def fn(x, w, b):
        y = F.relu(F.linear(x, w, b))
        return y.reshape(-1), F.layer_norm(y, (3,)), y.mean(0)

    check(h, fn, lambda n: [leaf(n, 8), leaf(3, 8, seed=1), leaf(3, seed=2)], {0: (0,)}, [4, 7, 2])


def test_sizes_as_outputs_and_arithmetic(h):
    def fn(x, y):
        n = x.shape[0]
        return (torch.cat([x, y]).view(n * 2, 2, -1), n * 3 + 1, x.new_zeros((n, 2)) + x[:, :2])

    gm_dims = {0: (0,), 1: (0,)}

    def make(n):
        return [leaf(n, 4), leaf(n, 4, seed=1)]

    check(h, fn, make, gm_dims, [3, 5])


@pytest.mark.parametrize("causal", [False, True])
def test_attention(h, causal):
    def fn(q, k, v):
        return (F.scaled_dot_product_attention(q, k, v, is_causal=causal),)

    check(h, fn, lambda n: [leaf(2, 2, n, 8, seed=i) for i in range(3)], {0: (2,), 1: (2,), 2: (2,)}, [4, 6])


def test_views_of_inputs(h):
    check(h, lambda x: (x.view(-1), x * 2), lambda n: [leaf(n, 3)], {0: (0,)}, [4, 5])
    check(h, lambda x: (x.view(x.shape[0] * 3), x[: x.shape[0] - 1]), lambda n: [leaf(n, 3)], {0: (0,)}, [4, 5])


def test_symbolic_int_input(h):
    graph = fx.Graph()
    x = graph.placeholder("x")
    n = graph.placeholder("n")
    y = graph.call_method("view", (x, n, -1))
    graph.output((graph.call_function(torch.mul, (y, 2)), n))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
    fake = mode.from_tensor(leaf(4), symbolic_context=context)
    x.meta["val"] = fake
    n.meta["val"] = fake.shape[0]
    c = h.compile_fn(gm, [leaf(4), 4])
    assert c.reason is None, c.reason
    for size in (4, 6):
        out = c(leaf(size), size)
        assert torch.equal(out[0], leaf(size).view(size, -1) * 2) and out[1] == size


def test_float_functions_of_sizes(h):
    check(h, lambda x: (x / x.shape[0] ** 0.5, x * (x.shape[0] / 3)), lambda n: [leaf(n, 3)], {0: (0,)}, [4, 5])


def test_float_of_a_size_that_is_known(h):
    graph = fx.Graph()
    x = graph.placeholder("x")
    n = graph.placeholder("n")
    root = graph.call_function(pow, (n, 0.5))
    graph.output((graph.call_function(torch.div, (x, root)),))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    env = ShapeEnv()
    symbol = env.create_unbacked_symint()
    torch._check(symbol == 2)
    x.meta["val"] = FakeTensorMode(shape_env=env).from_tensor(leaf(4))
    n.meta["val"] = symbol
    c = h.compile_fn(gm, [leaf(4), 2])
    torch.testing.assert_close(c(leaf(4), 2)[0], leaf(4) / 2**0.5)


def test_outputs_of_symbolic_size_that_no_gradient_reaches(h):
    def fn(x, w):
        return x * w, x * 2 + w, x.sum(0)

    gm = make_dynamic(h.trace(fn), [leaf(4, 3), leaf(4, 3, seed=1)], {0: (0,), 1: (0,)})
    c = h.compile_fn(gm, [leaf(4, 3), leaf(4, 3, seed=1)])
    for size in (4, 7):
        for used in range(3):
            grads = []
            for run in (fn, c):
                inputs = [leaf(size, 3), leaf(size, 3, seed=1)]
                run(*inputs)[used].sum().backward()
                grads.append([t.grad for t in inputs])
            for want, got in zip(*grads, strict=True):
                assert (want is None) is (got is None)
                assert want is None or torch.allclose(want, got)


def test_gradients_come_in_the_layout_of_the_output(h):
    def fn(x):
        return (x.t() * 2).sin(), x.expand(3, -1, -1).permute(2, 0, 1) * x.t()[:, None]

    make = lambda n: [leaf(n, 5)]  # noqa: E731
    gm = make_dynamic(h.trace(fn), make(4), {0: (0, 1)})
    c = h.compile_fn(gm, make(4))
    assert c.reason is None, c.reason
    for n in (4, 6):
        for layout in (torch.contiguous_format, torch.preserve_format):
            found = []
            for call in (fn, c):
                (x,) = make(n)
                outs = call(x)
                weights = [torch.arange(o.numel()).reshape(o.shape).float().sin() for o in outs]
                if layout is torch.preserve_format:
                    weights = [torch.empty_like(o).copy_(w).detach() for o, w in zip(outs, weights, strict=True)]
                found.append(torch.autograd.grad(outs, x, weights)[0])
            torch.testing.assert_close(found[1], found[0])


def test_backward_is_told_sizes_that_its_inputs_do_not_show(h):
    def fn(x):
        return torch.diag_embed(x, offset=1)

    make = lambda n: [leaf(3, n)]  # noqa: E731
    gm = make_dynamic(h.trace(fn), make(5), {0: (0, 1)})
    c = h.compile_fn(gm, make(5))
    placeholders = [n.meta["val"] for n in c.partition.backward.graph.nodes if n.op == "placeholder"]
    assert any(isinstance(v, torch.SymInt) and v.node.expr.is_Symbol for v in placeholders)
    for n in (5, 7):
        grads = []
        for call in (fn, c):
            (x,) = make(n)
            grads.append(torch.autograd.grad(call(x), x, torch.ones(3, n + 1, n + 1))[0])
        torch.testing.assert_close(grads[1], grads[0])


def test_an_op_on_equal_symbolic_metadata_is_asked_for_once(h, monkeypatch):
    from lamina_aot_autograd.trace import fallback

    asked = []
    real = fallback._fake_results

    def counting(func, args, kwargs, env=None):
        asked.append(func)
        return real(func, args, kwargs, env)

    monkeypatch.setattr(fallback, "_fake_results", counting)

    def fn(x, y):
        for _ in range(6):
            x = (x.transpose(0, 1).transpose(0, 1) + 1).unsqueeze(0).squeeze(0)
            y = y.transpose(0, 1).transpose(0, 1).unsqueeze(0).squeeze(0) * 2
        return (x, y)

    gm = h.trace(fn)
    inputs = [torch.randn(4, 6), torch.randn(5, 6)]
    make_dynamic(gm, inputs, {0: [0], 1: [0]})
    with config.patch(installed_rules=False):  # with rules for views nothing is asked at all
        call = h.compile_fn(gm, inputs)
    assert call.reason is None
    # sizes that are different symbols are different questions: four views each
    assert len(asked) == 8
    for n in (4, 9):
        x, y = torch.randn(n, 6), torch.randn(n + 2, 6)
        for got, want in zip(call(x, y), fn(x, y), strict=True):
            torch.testing.assert_close(got, want)


def test_views_by_rule_are_those_of_fake_tensors(h, monkeypatch):
    """Shapes, strides and offsets of every view in the graph, and what is written through them."""
    from lamina_aot_autograd.trace import tracer

    def fn(x, y):
        a, b = (x * 1).split([3, 5], dim=1)
        parts = y.clone().split(2, -1)
        c = b.transpose(0, 1)[1:4].permute(1, 0).unsqueeze(1).expand(-1, 2, -1)
        z = (x + 1).view(-1, 2, 4)
        z.select(1, 1).add_(1)
        z[:, :, 1:].mul_(3)
        parts[1].copy_(parts[0] + 1)
        return (a.t(), b + 1, c.reshape(-1), z, parts[1] * 2, parts[2])

    def views(rules):
        if not rules:
            monkeypatch.setattr(tracer, "view_by_rule", lambda *_: None)
        gm = h.trace(fn)
        inputs = [torch.randn(4, 8), torch.randn(6, 7, 6)]
        make_dynamic(gm, inputs, {0: [0], 1: [0, 1]})
        call = h.compile_fn(gm, inputs)
        assert call.reason is None
        for n in (2, 9):
            x, y = torch.randn(n, 8), torch.randn(n + 2, n, 6)
            for got, want in zip(call(x, y), fn(x, y), strict=True):
                torch.testing.assert_close(got, want)
                assert got.stride() == want.stride() and got.storage_offset() == want.storage_offset()
        return [
            [str(v.shape), str(v.stride())]
            for n in call.joint.graph.nodes
            for v in (n.meta["val"] if isinstance(n.meta.get("val"), (list, tuple)) else [n.meta.get("val")])
            if isinstance(v, torch.Tensor)
        ]

    def numbered(found):
        names: dict[str, str] = {}
        return [[re.sub(r"s\d+", lambda m: names.setdefault(m[0], f"n{len(names)}"), t) for t in row] for row in found]

    assert numbered(views(True)) == numbered(views(False))


def test_sizes_that_may_be_one_are_left_to_fake_tensors(h):
    def fn(x):
        half = x[: x.shape[0] // 2]
        return (half.unsqueeze(0).transpose(0, 1).expand(-1, 3, -1) + 1, half.t())

    gm = h.trace(fn)
    inputs = [torch.randn(8, 4)]
    make_dynamic(gm, inputs, {0: [0]})
    call = h.compile_fn(gm, inputs)
    for n in (8, 6):
        x = torch.randn(n, 4)
        for got, want in zip(call(x), fn(x), strict=True):
            torch.testing.assert_close(got, want)
            assert got.stride() == want.stride()


def test_sizes_that_only_the_run_knows_are_not_traced():
    """What follows would have to suppose that such a size is neither 0 nor 1."""
    from lamina_aot_autograd.errors import DataDependentError
    from lamina_aot_autograd.trace.fallback import meta_results

    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
    x = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(leaf(5, grad=False), symbolic_context=context)
    with pytest.raises(DataDependentError):
        meta_results(torch.ops.aten.index.Tensor, (x, [x > 0]), {})
    picked = meta_results(torch.ops.aten.index.Tensor, (x, [torch.zeros(2, dtype=torch.long)]), {})
    assert tuple(picked.shape) == (2,)


@pytest.mark.parametrize("p", [0.3, 0.5])
def test_dropout_draws_in_the_order_of_memory(h, p):
    def fn(x):
        return F.dropout(x.t(), p), F.dropout(x.view(x.shape[0], 2, -1).transpose(1, 2), p)

    gm = make_dynamic(h.trace(fn), [leaf(4, 6)], {0: (0, 1)})
    call = aot.aot_compile(gm, [leaf(4, 6)])
    for shape in ((4, 6), (5, 8), (3, 2)):
        x = leaf(*shape)
        torch.manual_seed(1)
        want = fn(x)
        torch.manual_seed(1)
        torch.testing.assert_close(call(x), want)
