"""A compiled backward is one node for what eager has as several graphs: what one output needs must not be asked of
another."""

import pytest
import torch
import torch.fx as fx

import lamina_aot_autograd as aot


def compiled(fn, *inputs):
    return aot.aot_compile(fx.symbolic_trace(fn), list(inputs))


def leaf(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


class Cut(torch.autograd.Function):
    """Passes no gradient on, but is a node of the graph."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return None


def two(x, y):
    return torch.sigmoid(x), torch.tanh(x * y)


def test_an_overwritten_output_is_no_matter_for_another():
    x, y = leaf(3), leaf(3, seed=1)
    call = aot.aot_compile(fx.symbolic_trace(two), [x, y], partitioner="save_everything")
    first, second = call(x, y)
    with torch.no_grad():
        first.mul_(2)
    second.sum().backward()
    grads = x.grad.clone(), y.grad.clone()
    x.grad = y.grad = None
    two(x, y)[1].sum().backward()
    torch.testing.assert_close(grads, (x.grad, y.grad))


def test_an_overwritten_output_is_an_error_where_it_is_needed():
    x, y = leaf(3), leaf(3, seed=1)
    call = aot.aot_compile(fx.symbolic_trace(two), [x, y], partitioner="save_everything")
    for used in ([0], [0, 1]):
        outs = call(x, y)
        with torch.no_grad():
            outs[0].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            sum(outs[k].sum() for k in used).backward()


def test_an_overwritten_input_is_an_error():
    x, y = leaf(3), leaf(3, seed=1)
    call = aot.aot_compile(fx.symbolic_trace(two), [x, y], partitioner="save_everything")
    outs = call(x, y)
    with torch.no_grad():
        outs[0].mul_(2)
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outs[1].sum().backward()


@pytest.mark.parametrize("fn", [lambda x: (x.exp(),), lambda x: (x.exp(), x.sin())])
def test_no_gradient_in_gives_none_out(fn):
    x = leaf(3)
    out = compiled(fn, x)(x)
    (sum(Cut.apply(o).sum() for o in out) + x.detach().requires_grad_().sum()).backward()
    assert x.grad is None


def test_results_that_are_views_inside_may_be_written():
    def fn(x):
        return x.exp().unfold(1, 2, 1), (x * 2).expand(2, 3, 4)[0]

    x = leaf(3, 4)
    first, second = compiled(fn, x)(x)
    first.fill_(1)
    second.mul_(3)
    (first.sum() + second.sum()).backward()
    torch.testing.assert_close(x.grad, torch.full((3, 4), 6.0))


def test_a_gradient_that_eager_cannot_take_runs_in_eager():
    def fn(x, src):
        index = torch.zeros(2, 3, dtype=torch.int64)
        return x * 2, (x * 1).scatter_add(0, index, src)

    x, src = leaf(3, 3), leaf(4, 4, seed=1)
    call = compiled(fn, x, src)
    assert "another shape" in call.reason
    out = call(x, src)
    torch.testing.assert_close(out, fn(x, src))
    out[0].sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3, 3), 2.0))


def written_part(a, b):
    a.mul_(2)
    return a * b, b.sin()


def written_both(a, b):
    b.add_(a.sum())
    a.copy_(b * 3)
    return (a.exp(),)


PARTS = {
    "rows": lambda base: (base[0], base[1]),
    "base and row": lambda base: (base, base[0]),
    "row and base": lambda base: (base[1], base),
    "overlapping": lambda base: (base.view(-1)[:5], base.view(-1)[3:]),
    "same": lambda base: (base.view(-1), base.view(-1)),
    "detached": lambda base: (base[0], base[1].detach()),
}


@pytest.mark.parametrize("fn", [written_part, written_both])
@pytest.mark.parametrize("kind", PARTS)
def test_parts_of_one_memory_one_of_them_written(fn, kind):
    results = []
    for compile_it in (False, True):
        root = leaf(2, 4)
        base = root * 1
        a, b = PARTS[kind](base)
        call = compiled(fn, a, b) if compile_it else fn
        try:
            out = call(a, b)
            (sum(o.sum() for o in out) + (base * base).sum()).backward()
        except RuntimeError as error:
            results.append(type(error))
            continue
        results.append([*out, root.grad, base, torch.tensor([a._version, b._version, base._version])])
    if isinstance(results[0], type):
        assert results[1] is results[0]
    else:
        torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("fn", [
    lambda x: (x + 1,), lambda x: (x.sum(), -x), lambda x: (x.view(-1).t(),), lambda x: (x * 2,), lambda x: (x.exp(),),
])  # fmt: skip
def test_a_second_backward_is_refused_where_eager_refuses_it(fn):
    results = []
    for compile_it in (False, True):
        x = leaf(2, 3)
        out = (compiled(fn, x) if compile_it else fn)(x)
        loss = sum(o.sum() for o in out)
        loss.backward()
        try:
            loss.backward()
        except RuntimeError as error:
            results.append(str(error)[:60])
        else:
            results.append(x.grad.tolist())
    assert results[0] == results[1]


def test_the_graph_behind_an_input_without_gradient_is_left_alone():
    def fn(x, y, z):
        return (x * 3).sin(), torch.zeros_like(z), y > 1, z.argmax()

    told = []
    for compile_it in (False, True):
        leaves = [leaf(2, 3) for _ in range(3)]
        fired = []
        for k, t in enumerate(leaves):
            t.register_post_accumulate_grad_hook(lambda p, k=k, fired=fired: fired.append(k))
        inputs = [t * 2 for t in leaves]
        out = (compiled(fn, *[t * 2 for t in leaves]) if compile_it else fn)(*inputs)
        out[0].sum().backward()
        told.append((list(fired), [t.grad is None for t in leaves]))
        inputs[2].sum().backward()  # its graph was not freed
        told[-1] += (list(fired),)
    assert told[0] == told[1]


def test_gradients_of_gradients_beside_an_input_without():
    def fn(x, z):
        return ((x * z.detach()).sin(),)

    results = []
    for compile_it in (False, True):
        x, z = leaf(2, 3), leaf(2, 3)
        (out,) = (compiled(fn, x, z) if compile_it else fn)(x, z)
        (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        (first * first).sum().backward()
        results.append((x.grad, z.grad))
    torch.testing.assert_close(results[0], results[1])


def _apart(x, y):
    return (x.exp() * 2, y.sin(), x.detach() + y.cos())


def _joined(x, y):
    z = (x * y).exp()
    return (z.sin(), z * 3, y.cos())


def _written_result(x, y):
    a, b = x.exp(), y.exp()
    return (a, b, a + 1)


ORDERS = [[0, 1, 2], [2, 1, 0], [0, 0], [1, 0, 1], [2, 0, 2, 1], [(0, 2), 1], [1, (0, 2)], [(0, 1, 2), 0]]


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("fn", [_apart, _joined, _written_result])
def test_each_result_is_freed_on_its_own(fn, order, retain):
    told = []
    for compile_it in (False, True):
        x, y = leaf(2, 3), leaf(2, 3)
        out = (compiled(fn, x, y) if compile_it else fn)(x, y)
        told.append([])
        for k, which in enumerate(order):
            try:
                which = which if isinstance(which, tuple) else (which,)
                sum(out[i].sum() for i in which).backward(retain_graph=retain and k == 0)
            except RuntimeError as error:
                told[-1].append(str(error)[:48])
            found = [None if t.grad is None else t.grad.view(-1).tolist() for t in (x, y)]
            told[-1].append([None if g is None else [round(v, 3) for v in g] for g in found])
    assert told[0] == told[1]


def test_what_is_kept_for_other_results_may_not_be_overwritten():
    for compile_it in (False, True):
        x, y = leaf(2, 3), leaf(2, 3)
        out = (compiled(_written_result, x, y) if compile_it else _written_result)(x, y)
        out[0].sum().backward()
        with torch.no_grad():
            out[1].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out[1].sum().backward()


def test_nothing_is_kept_where_eager_keeps_nothing():
    import gc
    import weakref

    x, y = leaf(2, 3), leaf(2, 3)
    out = compiled(_apart, x, y)(x, y)
    node = out[0].grad_fn
    out[0].sum().backward()
    assert node.remaining is not None and len(node.remaining.kept) < len(node.remaining.metas)
    out[1].sum().backward()
    out[2].sum().backward()
    assert not node.remaining.kept
    seen = weakref.ref(node)
    del out, node
    gc.collect()
    assert seen() is None
