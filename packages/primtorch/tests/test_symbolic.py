"""Graphs with symbolic sizes: one decomposition serves all sizes."""

import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

import lamina_primtorch as lp


def model(x, w, b, ids):
    h = F.gelu(F.layer_norm(x, (x.shape[-1],), w, b))
    y = h.transpose(1, 2).reshape(h.shape[0], -1)
    z = torch.cat([h[:, 1:], h[:, :1]], 1)
    s = torch.softmax(z @ z.transpose(1, 2), -1)
    m = torch.arange(x.shape[1])[None, :] < ids[:, None]
    t = s.masked_fill(m[:, None, :], 0.0).sum(-1)
    p = F.pad(h, (1, 2))
    return (
        y.mean(1),
        t,
        torch.zeros(x.shape[0], x.shape[1] * 2),
        h.mean(),
        p.view(x.shape[0], -1) * x.shape[1],
        h.var(1),
        x.new_ones(x.shape[1]).cumsum(0),
        torch.tril(s),
        *h.split(4, 2),
    )


def inputs(batch, length):
    return torch.randn(batch, length, 8), torch.randn(8), torch.randn(8), torch.arange(batch) + 1


def test_one_graph_for_all_sizes():
    torch.manual_seed(0)
    gm = make_fx(model, tracing_mode="symbolic")(*inputs(3, 5))
    low = lp.decompose(gm)
    low.graph.lint()
    lp.check_graph(low)
    assert all(n.meta.get("val") is not None for n in low.graph.nodes if n.op == "call_function")
    for batch, length in ((3, 5), (4, 7), (2, 9)):
        args = inputs(batch, length)
        for got, want in zip(low(*args), model(*args), strict=True):
            assert got.stride() == want.stride()
            torch.testing.assert_close(got, want)


def test_backward_with_symbolic_sizes():
    def step(x, w):
        x = x.detach().requires_grad_()
        out = F.log_softmax(F.silu(x @ w)[:, 1:], -1).mean()
        return torch.autograd.grad(out, x)

    torch.manual_seed(0)
    args = torch.randn(5, 6), torch.randn(6, 7)
    low = lp.decompose(make_fx(step, tracing_mode="symbolic")(*args))
    for n in (5, 8):
        args = torch.randn(n, 6), torch.randn(6, 7)
        torch.testing.assert_close(low(*args)[0], step(*args)[0])


def test_a_size_read_off_an_intermediate_is_not_its_own_argument():
    def fn(x):
        y = x[:, :-1]
        return y.reshape(-1, x.shape[2]), y.reshape(y.shape[0] * y.shape[1], -1) + y.shape[1], x[..., ::2].flatten(1)

    low = lp.decompose(make_fx(fn, tracing_mode="symbolic")(torch.randn(2, 4, 6)))
    low.graph.lint()
    for shape in ((2, 4, 6), (3, 7, 4)):
        x = torch.randn(shape)
        for got, want in zip(low(x), fn(x), strict=True):
            assert got.stride() == want.stride()
            torch.testing.assert_close(got, want)


def test_select_from_the_end_of_a_symbolic_size():
    def fn(x):
        return x[-1], x[..., -2] + 1, torch.select_scatter(x, torch.zeros(x.shape[0]), 1, -1), x.select(1, 1)

    low = lp.decompose(make_fx(fn, tracing_mode="symbolic")(torch.randn(4, 6)))
    assert not [n for n in low.graph.nodes if "select" in str(n.target)], low.code
    for shape in ((4, 6), (7, 3)):
        x = torch.randn(shape)
        for got, want in zip(low(x), fn(x), strict=True):
            assert got.stride() == want.stride()
            torch.testing.assert_close(got, want)


def test_number_computed_from_a_size_that_it_equals():
    def scaled(x):
        n = torch.sym_int(torch.sym_float(x.shape[0]) * 1.0)
        return x.new_zeros(n) + x

    low = lp.decompose(make_fx(scaled, tracing_mode="symbolic")(torch.randn(5)))
    assert "(None" not in low.code
    for n in (5, 8):
        torch.testing.assert_close(low(torch.ones(n)), torch.ones(n))
