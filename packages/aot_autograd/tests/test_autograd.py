import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import lamina_aot_autograd as aot


def leaf(*shape, grad=True, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


def graph_of(*calls, inputs=("x",)):
    """A graph of one call_function: `calls[0]` on all inputs."""
    graph = fx.Graph()
    nodes = tuple(graph.placeholder(n) for n in inputs)
    graph.output(graph.call_function(calls[0], nodes))
    return fx.GraphModule(torch.nn.Module(), graph)


def opaque(fn, *names):
    """Captured form of a function that is called as a whole."""
    return graph_of(fn, inputs=names)


def test_none_where_eager_gives_none(h):
    h.compare(lambda x, y, z: (x * 2, y.detach() * 3), lambda: [leaf(3), leaf(3, seed=1), leaf(3, seed=2)])


def test_integer_and_undifferentiable_outputs(h):
    h.compare(lambda x: (x.argmax(), x * 2, (x > 0), x.detach() + 1, x.max(0)[1]), lambda: [leaf(4)])


def test_backward_twice(h):
    c = h.compile_fn(lambda x: (x.exp() * x,), [leaf(3)])
    x = leaf(3)
    (y,) = c(x)
    a = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    b = torch.autograd.grad(y.sum(), x)[0]
    assert torch.equal(a, b)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y.sum(), x)


def test_changed_saved_tensor_raises(h):
    c = h.compile_fn(lambda x: (x.exp(),), [leaf(3)])
    x = leaf(3)
    (y,) = c(x)
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()


def test_write_to_unsaved_input_is_allowed(h):
    c = h.compile_fn(lambda x: (x.exp(),), [leaf(3)])
    x = leaf(3)
    (y,) = c(x)
    with torch.no_grad():
        x.add_(1)
    y.sum().backward()
    assert torch.allclose(x.grad, y.detach())


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: ((x * w).tanh() * x,),
        lambda x, w: (x.detach() * w.exp() * x.exp(), x * 2),
        lambda x, w: (F.layer_norm(x * w, (3,)),),
    ],
)
def test_gradient_of_gradient(h, fn):
    c = h.compile_fn(fn, [leaf(4, 3), leaf(3, seed=1)])
    results = []
    for f in (fn, c):
        x, w = leaf(4, 3), leaf(3, seed=1)
        z = x * 1
        out = f(z, w)
        first = torch.autograd.grad(sum((o * o).sum() for o in out), [x, w], create_graph=True)
        second = torch.autograd.grad(sum((g * g).sum() for g in first), [x, w])
        results.append([*first, *second])
    for want, got in zip(*results, strict=True):
        assert torch.allclose(want, got, rtol=1e-4, atol=1e-5)


def test_gradient_of_gradient_with_dropout(h):
    def fn(x):
        return (F.dropout(x.exp(), 0.5) * x,)

    gm = h.trace(fn)
    c = h.compile_fn(gm, [leaf(40)])
    results = []
    for f in (fn, c):
        torch.manual_seed(3)
        x = leaf(40)
        (y,) = f(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        results.append(torch.autograd.grad(g.pow(2).sum(), x)[0])
    assert torch.allclose(*results)


def test_batched_backward(h):
    c = h.compile_fn(lambda x: (x**2 + x.sin(),), [leaf(5)])
    x = leaf(5)
    (y,) = c(x)
    rows = torch.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])(torch.eye(5))
    assert torch.allclose(rows, torch.diag(2 * x + x.cos()))
    again = torch.autograd.grad(y, x, torch.eye(5), is_grads_batched=True)[0]
    assert torch.allclose(rows, again)


def test_transforms_around(h):
    def fn(x, w):
        return ((x * w).sin(),)

    c = h.compile_fn(fn, [torch.randn(3), torch.randn(3)])
    x, w = torch.randn(4, 3), torch.randn(3)
    assert torch.allclose(torch.vmap(lambda a: c(a, w)[0])(x), fn(x, w)[0])
    g = torch.func.grad(lambda a: c(a, w)[0].sum())(x[0])
    assert torch.allclose(g, torch.func.grad(lambda a: fn(a, w)[0].sum())(x[0]))


@pytest.mark.parametrize(
    "tangent",
    [lambda y: torch.ones(1).expand(y.shape), lambda y: torch.randn(y.shape[::-1]).t(), lambda y: torch.zeros(y.shape)],
)
def test_tangents_with_other_strides(h, tangent):
    fn = lambda x, w: (x @ w,)  # noqa: E731
    c = h.compile_fn(fn, [leaf(4, 3), leaf(3, 5, seed=1)])
    got = []
    for f in (fn, c):
        torch.manual_seed(1)
        x, w = leaf(4, 3), leaf(3, 5, seed=1)
        (y,) = f(x, w)
        got.append(torch.autograd.grad(y, [x, w], tangent(y)))
    for a, b in zip(*got, strict=True):
        assert torch.allclose(a, b)


def test_missing_tangents(h):
    c = h.compile_fn(lambda x: (x.sin(), x.cos()), [leaf(3)])
    x = leaf(3)
    s, _ = c(x)
    s.sum().backward()
    assert torch.allclose(x.grad, x.detach().cos())


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.factor * 10 + x, None


def test_custom_function(h):
    h.compare(opaque(lambda x: (Scaled.apply(x.sin(), 3.0) + x,), "x"), lambda: [leaf(4)])


def test_autograd_grad_inside(h):
    def fn(x, w):
        y = (x * w).sin().sum()
        (g,) = torch.autograd.grad(y, [x], create_graph=True)
        return ((g * w).sum(), y)

    h.compare(opaque(fn, "x", "w"), lambda: [leaf(4), leaf(4, seed=1)])


def test_hook_inside_splits(h):
    seen = []
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.mul, (x, x))
    graph.call_method("register_hook", (y, lambda g: g * 3))
    graph.call_method("register_hook", (y, lambda g: seen.append(float(g.sum()))))
    graph.output((graph.call_method("sum", (graph.call_function(torch.mul, (y, x)),)),))
    c = h.compile_fn(fx.GraphModule(torch.nn.Module(), _unprintable(graph)), [leaf(2)])
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    c(x)[0].backward()
    assert x.grad.tolist() == [7.0, 28.0] and seen == [9.0]


def _unprintable(graph):
    """Lambdas as node arguments cannot be printed; give them names that the generated code finds."""
    for node in graph.nodes:
        for i, arg in enumerate(node.args):
            if callable(arg) and not isinstance(arg, fx.Node):
                with graph.inserting_before(node):
                    maker = graph.call_function(_Constant(arg))
                node.update_arg(i, maker)
    return graph


class _Constant:
    def __init__(self, value):
        self.value = value
        self.__name__ = "constant"
        self.__module__ = __name__
        self.__qualname__ = f"constant_{id(self)}"

    def __call__(self):
        return self.value


def test_hooks_outside_and_anomaly_mode(h):
    c = h.compile_fn(lambda x: (x.sin(), x * 2), [leaf(3)])
    x = leaf(3)
    seen = []
    a, b = c(x)
    a.register_hook(lambda g: seen.append(g.sum().item()))
    a.retain_grad()
    with torch.autograd.detect_anomaly(check_nan=True):
        (a + b).sum().backward()
    assert seen == [3.0] and torch.equal(a.grad, torch.ones(3))


def test_autocast_is_captured(h):
    def fn(x, w):
        with torch.amp.autocast("cpu", enabled=False):
            return (x.float() @ w.t(),)

    gm = opaque(fn, "x", "w")
    results = []
    for f in (fn, None):
        w = leaf(32, 32)
        x = leaf(8, 32, grad=False, seed=1).bfloat16()
        with torch.amp.autocast("cpu", dtype=torch.bfloat16):
            f = f or h.compile_fn(gm, [x, w])
            (out,) = f(x, w)
        (out * 1.2345).sum().backward()
        results.append((out.detach(), w.grad))
    assert results[1][0].dtype is torch.float32 and results[1][1].dtype is torch.float32
    assert torch.equal(results[0][0], results[1][0]) and torch.equal(results[0][1], results[1][1])


def test_autocast_around(h):
    def fn(x, w, b):
        return (F.linear(x, w, b).relu(),)

    results = []
    for compiled in (False, True):
        x, w, b = leaf(4, 8, seed=2), leaf(3, 8), leaf(3, seed=1)
        with torch.amp.autocast("cpu", dtype=torch.bfloat16):
            f = h.compile_fn(fn, [x, w, b]) if compiled else fn
            (out,) = f(x, w, b)
        with torch.amp.autocast("cpu", dtype=torch.bfloat16):
            out.sum().backward()
        results.append((out.detach(), x.grad, w.grad, b.grad))
    for a, b in zip(*results, strict=True):
        assert a.dtype is b.dtype and torch.equal(a, b)


def region(x, w):
    return F.dropout((x @ w).relu().exp(), 0.5) @ w


def test_checkpoint_region_is_recomputed(h):
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    body = graph.get_attr("body")
    y = graph.call_function(checkpoint, (body, x, w), {"use_reentrant": False})
    graph.output((graph.call_function(torch.sin, (y,)),))
    root = torch.nn.Module()
    root.body = fx.symbolic_trace(region)
    c = h.compare(fx.GraphModule(root, graph), lambda: [leaf(4, 4), leaf(4, 4, seed=1)])
    assert "relu" in c.partition.report.recomputed and "mm" in c.partition.report.recomputed
    saved = {s.name for s in c.partition.saved}
    assert any(name.startswith("bernoulli") for name in saved), saved
    targets = [str(n.target) for n in c.partition.backward.graph.nodes if n.op == "call_function"]
    assert not any("bernoulli" in t for t in targets)


def test_checkpoint_that_draws_inside_an_opaque_call_runs_in_eager(h):
    fn = opaque(lambda x, w: (checkpoint(region, x, w, use_reentrant=False).sin(),), "x", "w")
    h.compare(fn, lambda: [leaf(4, 4), leaf(4, 4, seed=1)], reason="random op in the backward")


def test_dropout_is_one_stream(h):
    h.compare(lambda x: (F.dropout(x, 0.5) + F.dropout(x, 0.3), torch.rand_like(x)), lambda: [leaf(50)])


def test_unused_random_op_still_draws(h):
    def fn(x):
        torch.rand_like(x)
        return (torch.rand_like(x) + x,)

    gm = h.trace(fn)
    h.compare(gm, lambda: [leaf(5)])


def test_inference_path_is_thin(h):
    calls = []

    def compiler(gm, fakes):
        def run(*args):
            calls.append(len(args))
            return gm.forward(*args)

        def boxed(args):
            return run(*args)

        boxed._boxed_call = True
        boxed.unboxed = run
        return boxed

    compiler.keeps_contract = True
    c = h.compile_fn(lambda x: (x + 1,), [torch.ones(2)], forward_compiler=compiler)
    assert c.unboxed.__name__ == "run"
    c(torch.ones(2))
    assert calls == [1]


def test_tensor_subclass_runs_in_eager(h):
    class Mine(torch.Tensor):
        pass

    x = torch.ones(3).as_subclass(Mine)
    c = h.compile_fn(lambda x: (x + 1,), [x])
    assert "tensor class" in c.reason and type(c(x)[0]) is Mine


def test_saved_tensors_are_freed_while_the_backward_runs(h):
    import weakref

    alive = []
    watched = []

    def compiler(gm, fakes):
        def run(args):
            tensors = list(args)
            args.clear()
            watched.extend(weakref.ref(t) for t in tensors if t.numel() == 1 << 20 and not t.requires_grad)
            result = gm.forward(*tensors)
            del tensors
            alive.append(sum(r() is not None for r in watched))
            return result

        run._boxed_call = True
        return run

    c = h.compile_fn(
        lambda x, w: ((x * w).mm(w).mm(w),),
        [leaf(1024, 1024), leaf(1024, 1024, seed=1)],
        backward_compiler=compiler,
        partitioner="default",
    )
    x, w = leaf(1024, 1024), leaf(1024, 1024, seed=1)
    (y,) = c(x, w)
    loss = y.sum()
    for _ in range(2):
        x.grad = None
        loss.backward(retain_graph=True)
    first = alive[-1]
    watched.clear()
    loss.backward()
    assert alive[-1] < first
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_recurrent_layer_keeps_its_workspace(h):
    """The kernel fills it only while gradient mode is on, which an autograd function's forward turns off."""
    layer = torch.nn.LSTM(3, 4)

    def call(x, h0, c0, *weights):
        return torch._VF.lstm(x, (h0, c0), list(weights), True, 1, 0.0, True, False, False)

    names = ["x", "h0", "c0", *(f"w{i}" for i in range(4))]
    make = lambda: [leaf(5, 2, 3), leaf(1, 2, 4), leaf(1, 2, 4), *(p.detach().requires_grad_() for p in layer.parameters())]  # noqa: E501, E731
    h.compare(opaque(call, *names), make, forward_compiler=aot.run_eagerly)


def _two_heads(x, w, v):
    return x * w, (x @ v.T).relu(), x.T * 2


def test_an_input_that_only_unused_outputs_need_gets_no_gradient(h):
    c = h.compile_fn(_two_heads, [leaf(3, 4), leaf(3, 4, seed=1), leaf(2, 4, seed=2)])
    for used in range(3):
        grads = []
        for fn in (_two_heads, c):
            inputs = [leaf(3, 4), leaf(3, 4, seed=1), leaf(2, 4, seed=2)]
            fn(*inputs)[used].sum().backward()
            grads.append([t.grad for t in inputs])
        for want, got in zip(*grads, strict=True):
            assert (want is None) is (got is None), used
            assert want is None or torch.allclose(want, got)
    inputs = [leaf(3, 4), leaf(3, 4, seed=1), leaf(2, 4, seed=2)]
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad(c(*inputs)[0].sum(), inputs[2])


def test_frames_made_here_say_whose_they_are(h):
    c = h.compile_fn(lambda x: (x.exp(),), [leaf(3)])
    backward = c.function.backward
    assert backward.__globals__["__name__"].startswith("lamina_aot_autograd")


def test_forward_mode_runs_in_eager():
    import torch.autograd.forward_ad as forward

    x = torch.ones(3)
    with forward.dual_level():
        call = aot.aot_compile(graph_of(torch.sin), [x])
        out = call(forward.make_dual(x, x * 2))
        tangent = forward.unpack_dual(out[0] if isinstance(out, (tuple, list)) else out).tangent
    assert torch.allclose(tangent, x.cos() * 2)


def test_gradients_taken_twice_inside():
    def autograd_grad(outputs, inputs, grad_outputs, retain_graph):
        return torch.autograd.grad(outputs, inputs, grad_outputs, retain_graph=retain_graph)

    autograd_grad._lamina_needs_real_tensors = True
    graph = fx.Graph()
    x = graph.placeholder("x")
    losses = [graph.call_method("sum", (graph.call_function(op, (x,)),)) for op in (torch.sin, torch.exp)]
    grads = [graph.call_function(autograd_grad, ([loss], [x], None, None)) for loss in losses]
    graph.output(tuple(graph.call_function(lambda g: g[0], (g,)) for g in grads))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    value = leaf(3)
    a, b = aot.aot_compile(gm, [value])(value)
    assert torch.allclose(a, value.cos()) and torch.allclose(b, value.exp())


def _second(call, make):
    """Gradients and gradients of gradients of a call."""
    inputs, leaves = make()
    out = [t for t in (*call(*inputs), *inputs) if t.requires_grad and not t.is_leaf]
    first = torch.autograd.grad(sum((o * o).sum() for o in out), leaves, create_graph=True, allow_unused=True)
    total = sum((g * g).sum() for g in first if g is not None and g.requires_grad)
    second = torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True)
    again = torch.autograd.grad(total, leaves, allow_unused=True)  # nothing was used up or moved
    return [*first, *second, *again]


def _written(x, w):
    x.mul_(w)
    return (x.sin(),)


def _written_and_read_before(x, w):
    y = (x * 2).exp()
    x.mul_(2).add_(w)
    return (y * w,)


def _overwritten(x, w):
    y = (x * 2).sin()
    x.copy_(w * w)
    return (y * w,)


def _written_through_views(x, w):
    x[1:].mul_(w)
    x[:, 0].add_(w.sum())
    return (x.sin(),)


def _written_by_dropout(x, w):
    x.mul_(w)
    return (F.dropout(x, 0.5) * w,)


@pytest.mark.parametrize(
    "fn", [_written, _written_and_read_before, _overwritten, _written_through_views, _written_by_dropout]
)
def test_gradient_of_gradient_of_a_written_input(h, fn):
    def make():
        torch.manual_seed(3)
        a, w = leaf(4, 3), leaf(*((4, 3) if fn is _overwritten else (3,)), seed=1)
        return [a * 1, w], [a, w]

    gm = h.trace(fn)
    c = h.compile_fn(gm, make()[0])
    for want, got in zip(_second(gm, make), _second(c, make), strict=True):
        assert (want is None) == (got is None)
        assert want is None or torch.allclose(want, got, rtol=1e-4, atol=1e-5)


def _one_of_two(u, v, w):
    v.mul_(w)
    return (u.sin() * w.sum(),)


@pytest.mark.parametrize("pattern", ["base", "views", "same", "transposed"])
def test_gradient_of_gradient_of_inputs_that_share_memory(h, pattern):
    def make():
        a, w = leaf(4, 3), leaf(3, seed=1)
        b = a * 1
        if pattern == "transposed":
            a = leaf(3, 4)
            b = (a * 1).t()
        views = {"base": (b, b[1:3]), "views": (b[:3], b[1:3]), "same": (b, b), "transposed": (b, b[1:3])}
        return [*views[pattern], w], [a, w]

    gm = h.trace(_one_of_two)
    c = h.compile_fn(gm, make()[0])
    for want, got in zip(_second(gm, make), _second(c, make), strict=True):
        assert torch.allclose(want, got, rtol=1e-4, atol=1e-5)


def test_third_gradient_of_a_written_input(h):
    c = h.compile_fn(_written, [leaf(4, 3) * 1, leaf(3, seed=1)])
    results = []
    for f in (_written, c):
        a, w = leaf(4, 3), leaf(3, seed=1)
        grads = [f(a * 1, w)[0]]
        for _ in range(3):
            grads = torch.autograd.grad(sum((g * g).sum() for g in grads), [a, w], create_graph=True)
        results.append(grads)
    for want, got in zip(*results, strict=True):
        assert torch.allclose(want, got, rtol=1e-3, atol=1e-4)


def test_large_written_inputs_are_not_copied_but_refused(h):
    def fn(x, w):
        x.mul_(2).add_(w)
        return (x.sin(),)

    def second(c):
        a, w = leaf(600, 600), leaf(600, seed=1)
        (g,) = torch.autograd.grad(c(a * 1, w)[0].sum(), a, create_graph=True)
        return torch.autograd.grad(g.sum(), a)[0]

    c = h.compile_fn(fn, [leaf(600, 600) * 1, leaf(600, seed=1)])
    with pytest.raises(aot.AotError, match="copy_limit"):
        second(c)
    with aot.config.patch(copy_limit=1 << 24):
        c = h.compile_fn(fn, [leaf(600, 600) * 1, leaf(600, seed=1)])
    assert torch.allclose(second(c), second(fn))


@pytest.mark.parametrize("kind", ["max", "min", "median", "nanmedian"])
def test_gradient_shared_out_among_equals_is_laid_out_as_in_eager(h, kind):
    """On the CPU contiguous, and 0 where there is no share even if the gradient is infinite."""
    for x in (leaf(3, 4, 5), leaf(5, 4, 3).detach().permute(2, 1, 0), leaf(3, 4, 10).detach()[..., ::2]):
        fn = h.trace(lambda t: (getattr(torch, kind)(t),))
        grads = []
        for call in (fn, h.compile_fn(fn, [x.detach().requires_grad_()])):
            t = x.detach().requires_grad_()
            grads.append(torch.autograd.grad(call(t)[0], t, torch.tensor(float("inf")))[0])
        assert torch.equal(*grads) and grads[0].stride() == grads[1].stride()


def test_gradient_that_is_the_tangent_goes_on_as_it_is(h):
    fn = h.trace(lambda x, w: (x + w,))
    c = h.compile_fn(fn, [leaf(3), leaf(3, seed=1)])
    for call in (fn, c):
        x, w = leaf(3), leaf(3, seed=1)
        grads = torch.autograd.grad(call(x, w)[0].sum(), [x, w])
        assert [g.stride() for g in grads] == [(0,), (0,)]


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.transpose(0, 1),
        lambda x: x[..., ::2],
        lambda x: x.permute(2, 0, 1),
        lambda x: x[:, :1].transpose(0, 2),
    ],
)
@pytest.mark.parametrize("p", [0.3, 0.5])  # the second is a default, which autograd leaves out
def test_dropout_draws_in_the_order_of_memory(h, layout, p):
    """The mask of a tensor that is not contiguous is eager's, too."""
    h.compare(lambda x: (F.dropout(layout(x), p), layout(x) * 2), lambda: [leaf(4, 6, 8)])


def test_gradient_of_nothing_keeps_its_strides(h):
    """Eager takes a tensor without elements for dense, whatever its strides are."""
    fn = h.trace(lambda x: (torch.flip(x, (0,)),))
    grads = []
    for call in (fn, h.compile_fn(fn, [torch.zeros(5, 0, 20)[..., ::2].requires_grad_()])):
        x = torch.zeros(5, 0, 20)[..., ::2].requires_grad_()
        (y,) = call(x)
        grads.append(torch.autograd.grad(y, x, torch.empty_like(y, requires_grad=False))[0])
    assert grads[0].stride() == grads[1].stride() == (20, 20, 2)
