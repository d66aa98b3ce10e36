import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F


def set_data(tensor, value):
    tensor.data = value


def leaf(*shape, grad=True, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


def nonleaf(*shape, seed=0):
    base = leaf(*shape, seed=seed)
    out = base * 1
    out.test_leaves = [base]
    return out


def test_linear_relu(h):
    h.compare(
        lambda x, w, b: (F.relu(F.linear(x, w, b)) * 2, x.sum()),
        lambda: [leaf(4, 8, grad=False), leaf(3, 8, seed=1), leaf(3, seed=2)],
    )


def test_mutated_input_without_grad(h):
    def fn(x, y):
        x.add_(1)
        x.mul_(2)
        return x + y, x.sum()

    h.compare(fn, lambda: [leaf(4, grad=False), leaf(4, seed=1)])


def test_mutated_nonleaf_with_grad(h):
    def fn(x, w):
        y = x * 3
        x.mul_(w)
        return y + x, x

    h.compare(fn, lambda: [nonleaf(4), leaf(4, seed=1)])


def test_write_through_views(h):
    def fn(x, y):
        a = x.view(2, 6)
        a[:, ::2].add_(y)
        a.t()[1].mul_(3)
        x[0, 1:3].zero_()
        p = x.permute(1, 0)
        p.sub_(1)
        return x * 2, a.sum()

    h.compare(fn, lambda: [leaf(3, 4, grad=False), leaf(3, seed=1)])
    h.compare(fn, lambda: [nonleaf(3, 4), leaf(3, seed=1)])


def test_split_unbind_writes(h):
    def fn(x):
        y = x * 1
        c = y.chunk(3)
        c[1].add_(1)
        d = y.unbind(1)
        d[0].mul_(2)
        y.diagonal().fill_(5.0)
        return y, c[1] + 1

    h.compare(fn, lambda: [leaf(6, 4, grad=False)])


def test_outputs_alias_inputs(h):
    def fn(x):
        return x.view(-1), x[1], x.t(), x, x.detach()

    h.compare(fn, lambda: [leaf(2, 3)])
    c = h.compare(fn, lambda: [nonleaf(2, 3)])
    x = nonleaf(2, 3)
    flat, row, tr, same, _ = c(x)
    flat.mul_(2)
    row.add_(1)
    assert same is x
    (x.pow(2).sum() + tr.sum()).backward()
    y = nonleaf(2, 3)
    flat, row, tr, same = y.view(-1), y[1], y.t(), y
    flat.mul_(2)
    row.add_(1)
    (y.pow(2).sum() + tr.sum()).backward()
    assert torch.equal(x, y)
    assert torch.equal(x.test_leaves[0].grad, y.test_leaves[0].grad)


def test_outputs_alias_each_other(h):
    def fn(x):
        y = x * 2
        return y, y.view(-1), y[0], y.detach()

    h.compare(fn, lambda: [leaf(2, 3)])

    def views_only(x):
        y = x * 2
        return y.view(-1), y[0]

    h.compare(views_only, lambda: [leaf(2, 3)])
    c = h.compile_fn(views_only, [leaf(2, 3)])
    flat, row = c(leaf(2, 3))
    row.mul_(10)
    assert torch.equal(flat[:3], row)


def test_same_output_twice(h):
    h.compare(lambda x: (x, x, x + 1), lambda: [leaf(3)])

    def fn(x):
        y = x + 1
        return y, y

    h.compare(fn, lambda: [leaf(3)])


def test_output_equal_to_unchanged_input_value(h):
    def fn(x, y):
        z = torch.empty_like(x)
        z.copy_(x)
        y.copy_(x)
        return z, z.view(-1)

    h.compare(fn, lambda: [leaf(2, 2, grad=False), leaf(2, 2, grad=False, seed=1)])


def test_swap(h):
    def fn(x, y):
        t = x.clone()
        x.copy_(y)
        y.copy_(t)
        return (x + y,)

    h.compare(fn, lambda: [leaf(3, grad=False), leaf(3, grad=False, seed=1)])


def test_leaf_write_raises_as_eager(h):
    gm = h.trace(lambda x: (x.mul_(2),))
    c = h.compile_fn(gm, [leaf(3)])
    with pytest.raises(RuntimeError, match="leaf Variable"):
        c(leaf(3))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x[1:].copy_(x[:-1]),),
        lambda x: (x.view(3, 3).add_(x.view(3, 3).t()),),
        lambda x: (x[:-2].mul_(x[2:]),),
    ],
)
def test_reading_what_is_written_elsewhere_raises_as_eager(h, fn):
    gm = h.trace(fn)
    c = h.compile_fn(gm, [torch.ones(9)])
    with pytest.raises(RuntimeError, match="single memory location"):
        c(torch.ones(9))


def test_reading_with_gaps_or_the_same_elements_goes_ahead(h):
    def fn(x):
        x.add_(x)
        x.view(3, 3).mul_(x.view(3, 3))
        x[:4].add_(x[4:8])
        return (x * 2,)

    h.compare(fn, lambda: [torch.arange(9.0)])


def test_no_grad_write_to_leaf(h):
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.call_function(torch._C._set_grad_enabled, (False,))
    graph.call_method("add_", (x, y))
    graph.call_function(torch._C._set_grad_enabled, (True,))
    graph.output((graph.call_function(torch.mul, (x, y)), x))
    h.compare(fx.GraphModule(torch.nn.Module(), graph), lambda: [leaf(3), leaf(3, grad=False, seed=1)])


def test_overlapping_inputs_on_a_later_call(h):
    def fn(x, y):
        x.sub_(3)
        return y * x, y.sum()

    c = h.compile_fn(fn, [torch.ones(5), torch.full((5,), 2.0)])
    assert c.aliasing_assumptions == ((0, 1),)
    assert c(torch.ones(5), torch.full((5,), 2.0))[0].tolist() == [-4.0] * 5
    for _ in range(2):
        b0, b1 = torch.arange(9.0), torch.arange(9.0)
        want, got = fn(b0[1:6], b0[3:8]), c(b1[1:6], b1[3:8])
        assert torch.equal(want[0], got[0]) and torch.equal(want[1], got[1]) and torch.equal(b0, b1)
    t = torch.ones(5)
    assert c(t, t)[0].tolist() == [4.0] * 5
    assert len(c.entries) == 3


def test_overlapping_view_returned(h):
    for fn in (lambda a, b: (a.mul_(3), b[-1])[1], lambda a, b: (a.mul_(3), b.reshape(-1))[1]):
        for slices in (lambda t: (t[:4], t[2:]), lambda t: (t, t[2:])):
            e = torch.arange(20.0).reshape(5, 4)
            g = e.clone()
            c = h.compile_fn(fn, list(slices(g)))
            want, got = fn(*slices(e)), c(*slices(g))
            assert torch.equal(want, got) and torch.equal(e, g)
            want.zero_(), got.zero_()
            assert torch.equal(e, g)


def test_overlapping_inputs_with_gradient(h):
    def fn(a, b, w):
        a.mul_(w)
        return a + b, b * 2

    def run(f):
        base = leaf(6)
        w = leaf(4, seed=1)
        x = base * 1
        out = f(x[:4], x[2:], w)
        (out[0].sum() + (out[1] * out[1]).sum() + x.sum()).backward()
        return base.grad, w.grad, x.detach(), out[0].detach()

    def compiled(a, b, w):
        return h.compile_fn(fn, [a, b, w])(a, b, w)

    for want, got in zip(run(fn), run(compiled), strict=True):
        assert torch.allclose(want, got)


def test_batch_norm_statistics(h):
    def fn(x, w, b, mean, var):
        y = F.batch_norm(x, mean, var, w, b, training=True, momentum=0.1)
        return (F.relu(y),)

    h.compare(
        fn, lambda: [leaf(4, 3, 5, 5, grad=False), leaf(3, seed=1), leaf(3, seed=2), torch.zeros(3), torch.ones(3)]
    )


@pytest.mark.parametrize("training", [True, False])
def test_statistics_are_copied_before_only_where_results_read_them(h, training):
    """A second gradient runs the program again; in training it does not look at the statistics."""

    def normed(x, w, mean, var):
        return (F.batch_norm(x, mean, var, w, None, training=True, momentum=0.1).tanh(),)

    def read(x, w, mean, var):
        y = (x - mean.view(3, 1, 1)) * w.view(3, 1, 1)
        mean.add_(var)
        return (y.tanh(),)

    fn = normed if training else read

    def inputs():
        return [leaf(4, 3, 5, 5), leaf(3, seed=1), torch.zeros(3), torch.ones(3)]

    c = h.compile_fn(fn, inputs())
    given = inputs()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as p:
        c(*given)
    clones = [e for e in p.events() if e.name == "aten::clone" and e.input_shapes[:1] == [[3]]]
    clones = [e for e in clones if e.cpu_parent is None or not e.cpu_parent.name.startswith("aten::")]
    assert len(clones) == (0 if training else 1)

    def second(call):
        args = inputs()
        (out,) = call(*args)
        (g,) = torch.autograd.grad(out.square().sum(), args[0], create_graph=True)
        g.square().sum().backward()
        return [args[0].grad, args[1].grad, *args[2:]]

    for want, got in zip(second(fn), second(c), strict=True):
        torch.testing.assert_close(got, want)


def test_many_writes_of_several_dtypes():
    """On a device they are one call for each dtype; the counters are eager's on both."""
    from lamina_aot_autograd.wrappers.mutation import write_back_many

    for device in ("cpu", "meta"):
        tensors = [torch.zeros(3, device=device), torch.zeros((), dtype=torch.int64, device=device),
                   torch.zeros(2, device=device)]  # fmt: skip
        values = [t + k + 1 for k, t in enumerate(tensors)]
        before = [t._version for t in tensors]
        write_back_many(tensors, values, (1, 2, 1))
        assert [t._version - v for t, v in zip(tensors, before)] == [1, 2, 1]
        if device == "cpu":
            assert [t.sum().item() for t in tensors] == [3, 2, 6]


def test_in_place_dtype_and_errors(h):
    def fn(x, y):
        x.add_(y)
        return (x.to(torch.float64),)

    h.compare(fn, lambda: [torch.ones(3, dtype=torch.float32), torch.ones(3, dtype=torch.float64)])
    c = h.compile_fn(fn, [torch.ones(3, dtype=torch.int64), torch.ones(3)])
    with pytest.raises(RuntimeError, match="can't be cast"):
        c(torch.ones(3, dtype=torch.int64), torch.ones(3))


def test_object_methods_split_the_graph(h):
    def fn(x, y):
        k = x * y
        k.retain_grad()
        y.retain_grad()
        return (k * k).sum() + y.sum(), k

    def run(f):
        x = torch.arange(1.0, 4.0, requires_grad=True)
        y = torch.cos(x)
        loss, k = f(x, y)
        loss.backward()
        return k.grad, y.grad, x.grad

    gm = h.trace(fn)
    for want, got in zip(run(fn), run(lambda *a: h.compile_fn(gm, a)(*a)), strict=True):
        assert torch.allclose(want, got)


def test_resize_of_a_view(h):
    def fn(x):
        owner = x.exp()
        other = owner.reshape(owner.shape)
        other.resize_(9)
        other.fill_(2.0)
        return owner * 3, other

    for n in (1, 4):
        want, got = fn(torch.zeros(n)), h.compile_fn(fn, [torch.zeros(n)])(torch.zeros(n))
        assert torch.equal(want[0], got[0]) and torch.equal(want[1], got[1])


def test_set_and_data(h):
    def fn(p, q, new):
        p.data = new * 2
        with torch.no_grad():
            q.set_(new + 1)
        return p * 3, q * 3

    a = [torch.zeros(2), torch.zeros(2), torch.ones(3)]
    b = [torch.zeros(2), torch.zeros(2), torch.ones(3)]
    graph = fx.Graph()
    p, q, new = (graph.placeholder(n) for n in "pqn")
    two = graph.call_function(torch.mul, (new, 2))
    graph.call_function(set_data, (p, two))
    one = graph.call_function(torch.add, (new, 1))
    graph.call_function(torch._C._set_grad_enabled, (False,))
    graph.call_method("set_", (q, one))
    graph.call_function(torch._C._set_grad_enabled, (True,))
    graph.output((graph.call_function(torch.mul, (p, 3)), graph.call_function(torch.mul, (q, 3))))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    want, got = fn(*a), h.compile_fn(gm, b)(*b)
    for w, g in zip((*want, *a), (*got, *b), strict=True):
        assert torch.equal(w, g)


def test_leaf_made_inside(h):
    def fn(x):
        w = torch.ones(3, requires_grad=True)
        v = torch.zeros(3).requires_grad_()
        return w, v, (x * w + v).sum()

    graph = fx.Graph()
    x = graph.placeholder("x")
    w = graph.call_function(torch.ones, (3,), {"requires_grad": True})
    z = graph.call_function(torch.zeros, (3,))
    v = graph.call_method("requires_grad_", (z,))
    y = graph.call_function(torch.add, (graph.call_function(torch.mul, (x, w)), v))
    graph.output((w, v, graph.call_method("sum", (y,))))
    c = h.compile_fn(fx.GraphModule(torch.nn.Module(), graph), [torch.arange(3.0)])
    w, v, y = c(torch.arange(3.0))
    assert w.is_leaf and v.is_leaf and w.requires_grad and v.requires_grad and y.requires_grad
    y.backward()
    assert w.grad.tolist() == [0.0, 1.0, 2.0] and v.grad.tolist() == [1.0, 1.0, 1.0]


def test_grad_modes_decide_per_output(h):
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.add, (x, 1))
    graph.call_function(torch._C._set_grad_enabled, (False,))
    c = graph.call_function(torch.mul, (x, 2))
    d = graph.call_function(torch.add, (c, 1))
    v = graph.call_method("view", (x, -1))
    graph.call_function(torch._C._set_grad_enabled, (True,))
    e = graph.call_function(torch.mul, (a, d))
    graph.output((a, c, d, e, v))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    h.compare(gm, lambda: [leaf(3)])


def test_grad_enabled_inside_no_grad(h):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch._C._set_grad_enabled, (True,))
    a = graph.call_function(torch.exp, (x,))
    graph.call_function(torch._C._set_grad_enabled, (False,))
    b = graph.call_function(torch.add, (a, 1))
    graph.output((a, b))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    with torch.no_grad():
        c = h.compile_fn(gm, [leaf(3)])
        x = leaf(3)
        a, b = c(x)
        assert not torch.is_grad_enabled()
    assert c.reason is None and a.requires_grad and not b.requires_grad
    a.sum().backward()
    assert torch.equal(x.grad, a.detach())


def test_channels_last_kept(h):
    def fn(x, w):
        return F.relu(F.conv2d(x, w, padding=1) + x), x * 2

    h.compare(
        fn, lambda: [leaf(2, 4, 5, 5, grad=False).to(memory_format=torch.channels_last), leaf(4, 4, 3, 3, seed=1)]
    )


@pytest.mark.parametrize("shape", [(0,), (), (3, 0, 2)])
def test_empty_and_scalar(h, shape):
    def fn(x, y):
        x.add_(y)
        return x * y, x.sum()

    h.compare(fn, lambda: [torch.ones(shape), torch.full(shape, 2.0, requires_grad=True).mul(1).detach()])


def test_metadata_changed_in_place_inside(h):
    def fn(x):
        y = x * 2
        z = torch.ops.aten.squeeze_.dim(y, 1)
        z.add_(1)
        return y.t() * 3, z + 1

    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(fn, (x,)))
    h.compare(fx.GraphModule(torch.nn.Module(), graph), lambda: [leaf(2, 1, 3)])


def test_scalar_power_in_place(h):
    def fn(x):
        y = x * 1
        y.pow_(2)
        y.fmod_(3)
        return (y,)

    h.compare(fn, lambda: [leaf(4)])


def test_writes_to_elements_that_share_memory_are_left_to_eager(h):
    def through_expand(x):
        y = (x * 1).expand(3, 4)
        y[0].mul_(2)
        y[1].add_(3)
        return (y + 1,)

    def to_the_input(x):
        x[0].mul_(2)
        x[1].add_(3)
        return (x + 1,)

    def through_windows(x):
        y = torch.as_strided(x * 1, (3, 2), (1, 1))
        y.mul_(2)
        return (y + 1,)

    h.compare(through_expand, lambda: [leaf(1, 4, grad=False)], reason="share memory")
    h.compare(to_the_input, lambda: [leaf(1, 4, grad=False).expand(3, 4)], reason="share memory")
    h.compare(through_windows, lambda: [leaf(4, grad=False)], reason="share memory")


def test_strides_of_size_one_dimensions(h):
    def fn(x):
        return x * 2, x + x, 1 - x, x > 0, torch.maximum(x, x), x.neg()

    h.compare(fn, lambda: [leaf(1, 7, grad=False).t()])
    h.compare(fn, lambda: [leaf(2, 1, 3, grad=False).transpose(0, 1)])


def test_forward_works_where_backward_would_raise(h):
    def fn(x):
        y = torch.tanh(x)
        z = y * 2
        y.mul_(3)
        return y, z

    h.compare(fn, lambda: [leaf(3)], reason="overwritten", gradients=False)


def _parts_of_a_conjugate(z):
    c = z.conj()
    return c, c.real, c.imag, c[1:].imag, c.conj().imag


def test_real_and_imaginary_part_of_a_conjugated_input(h):
    z = torch.randn(3, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    compiled = h.compile_fn(_parts_of_a_conjugate, [z.clone()])
    for want, got in zip(_parts_of_a_conjugate(z), compiled(z), strict=True):
        assert torch.equal(want, got) and want.stride() == got.stride()
        assert want.data_ptr() == got.data_ptr() and want.is_neg() == got.is_neg() and want.is_conj() == got.is_conj()


@pytest.mark.parametrize("grad", [False, True])
def test_a_written_input_beside_two_that_overlap(h, grad):
    def fn(x, y, z):
        z.add_(1)
        y.clamp_(max=2)
        x.mul_(2)
        return y * 1, x + z

    def inputs():
        base = torch.arange(24.0).requires_grad_(grad)
        whole = base * 1
        return base, whole, [whole[:9].view(3, 3), whole[12:21].view(3, 3), whole[3:12].view(3, 3)]

    _, _, example = inputs()
    compiled = h.compile_fn(fn, example)
    for _ in range(2):
        want_leaf, want_base, want_in = inputs()
        leaf_, base, given = inputs()
        want, got = fn(*want_in), compiled(*given)
        for w, g in zip((*want, want_base), (*got, base), strict=True):
            assert torch.equal(w, g)
        if grad:
            sum(t.sum() for t in want).backward()
            sum(t.sum() for t in got).backward()
            assert torch.equal(want_leaf.grad, leaf_.grad)


def test_version_counters_of_results_and_lists(h):
    """Results that were written to after they were made count it; so do tensors written to in lists."""

    def fn(x, a, b):
        y = x + 1
        y.mul_(2)
        y.add_(1)
        torch._foreach_add_([a, b], 1)
        torch._foreach_mul_([a, b], 2)
        torch._foreach_copy_([a], [b])
        return y, y[0], x * 2

    for grad in (False, True):
        gm = h.trace(fn)
        inputs = [torch.randn(3, 3, requires_grad=grad), torch.randn(3), torch.randn(3)]
        c = h.compile_fn(gm, inputs)
        want, got = gm(*inputs), c(*inputs)
        assert [t._version for t in got] == [t._version for t in want] == [2, 2, 0]
        assert [t._version for t in inputs] == [0, 6, 4]
        if grad:
            want[0].sum().backward()
            first, inputs[0].grad = inputs[0].grad, None
            got[0].sum().backward()
            assert torch.equal(first, inputs[0].grad)


def test_versions_of_data_and_detached(h):
    def fn(w, x):
        w.detach().add_(1)
        w.data.mul_(2)
        return (w * x,)

    h.compare(fn, lambda: [torch.randn(3, generator=torch.Generator().manual_seed(1)).requires_grad_(), torch.ones(3)])


def test_inference_tensors_have_no_counter(h):
    def fn(x):
        y = x + 1
        y.mul_(2)
        return (y,)

    with torch.inference_mode():
        c = h.compile_fn(fn, [torch.ones(3)])
        assert c(torch.ones(3))[0].tolist() == [4.0] * 3


def _copied_onto_itself(x):
    x.copy_(x)
    return (x.exp() * x).sum(), x * 2


def _assigned_to_itself(x):
    x[:].copy_(x)
    return ((x * x).sum(),)


def _view_copied_onto_itself(x):
    y = x.view(-1)
    y.copy_(y)
    return (y * y.sin(),)


@pytest.mark.parametrize("fn", [_copied_onto_itself, _assigned_to_itself, _view_copied_onto_itself])
def test_a_tensor_copied_onto_itself(h, fn):
    h.compare(fn, lambda: [nonleaf(3, 4)])
    h.compare(fn, lambda: [leaf(3, 4, grad=False)])


def _twice_in_a_list(x, y):
    torch._foreach_add_([x, x], 1.0)
    torch._foreach_mul_([y, y[1:]], 2.0)
    return (x * 2, y + 1)


def _parts_in_a_list(x, y):
    torch._foreach_add_([x[0], x[1]], 1.0)
    torch._foreach_add_([x[2]], [x[0]])
    return (x * 2, y + 1)


@pytest.mark.parametrize(("fn", "reason"), [(_twice_in_a_list, "share memory"), (_parts_in_a_list, None)])
def test_lists_of_tensors_that_share_memory(h, fn, reason):
    h.compare(fn, lambda: [torch.arange(9.0).view(3, 3), torch.ones(4)], reason=reason)


def _index():
    return torch.arange(2)


@pytest.mark.parametrize("fn", [
    lambda x, i: (x.index_add_(0, i, x[:2]),),
    lambda x, i: (x.index_copy_(0, i, x[1:]),),
    lambda x, i: (x.index_put_((i,), x[:2], accumulate=True),),
    lambda x, i: (x.index_reduce_(0, i, x[:2], "amax"),),
    lambda x, i: (x.put_(i, x.view(-1)[:2]),),
    lambda x, i: (x.scatter_(0, i.view(2, 1), x[:2]),),
    lambda x, i: (x.scatter_add_(0, i.view(2, 1), x),),
    lambda x, i: (x.scatter_reduce_(0, i.view(2, 1), x[:2], "sum"),),
    lambda x, i: (x.addr_(x[0], x[1]),),
    lambda x, i: (torch._foreach_add_([x], [x[0]]), x * 2)[1:],
])  # fmt: skip
def test_reading_at_all_what_is_written_raises_as_eager(h, fn):
    gm = h.trace(fn)
    with pytest.raises(RuntimeError, match="single memory location"):
        gm(torch.arange(9.0).view(3, 3), _index())
    with pytest.raises(RuntimeError, match="single memory location"):
        h.compile_fn(gm, [torch.arange(9.0).view(3, 3), _index()])(torch.arange(9.0).view(3, 3), _index())


def test_version_counter_of_data_that_is_returned(h):
    def fn(x):
        a, b = x.data, x.detach()
        a.mul_(2)
        x.add_(1)
        return a, b, x.data[1:]

    h.compare(fn, lambda: [torch.ones(3)], calls=1)
    x = torch.ones(3)
    a, b, c = h.compile_fn(fn, [x])(x)
    assert [t._version for t in (a, b, c, x)] == [1, 1, 0, 1]


def test_a_detached_tensor_written_with_gradients_runs_in_eager(h):
    def fn(x, w):
        y = x.detach()
        y.copy_(w)
        return (y, y * 2)

    h.compare(fn, lambda: [torch.ones(3), torch.arange(3.0).requires_grad_()], reason="detached", calls=1)


def test_views_of_results_pass_gradients_on(h):
    def fn(x):
        x.clamp_(max=2)
        y = x.view(-1)
        z = x.exp()
        rows = z[1:]
        return y.view(3, 2).t(), y, rows.t(), rows, z

    gradients = []
    for compiled in (False, True):
        leaf = torch.arange(6.0).view(2, 3).requires_grad_()
        x = leaf * 1
        results = (h.compile_fn(fn, [x]) if compiled else fn)(x)
        for t in results:
            t.retain_grad()
        (results[0].exp().sum() + (results[2] * results[3].t()).sum()).backward()
        gradients.append([*[t.grad for t in results], leaf.grad])
    for a, b in zip(*gradients, strict=True):
        assert torch.allclose(a, b)


def test_writes_in_inference_mode_are_counted(h):
    def fn(x):
        x[0].add_(1)
        return (x.mul_(2) + 1,)

    for compiled in (False, True):
        x = torch.ones(3)
        with torch.inference_mode():
            (y,) = (h.compile_fn(fn, [x.clone()]) if compiled else fn)(x)
        assert x._version == 2 and y.is_inference() and y.tolist() == [5.0, 3.0, 3.0]


def test_the_last_of_several_inputs_is_viewed(h):
    h.compare(lambda x, y, z: (z[1:],), lambda: [torch.ones(3), torch.ones(3), torch.ones(3)])
