"""Padding of half-precision products: where it is done, and that the numbers stay the same."""

import pytest
import torch
from torch.fx import Graph, GraphModule

from lamina_inductor.pad_matmul import pad_matrix_products
from lamina_primtorch.prims import PRIMS
from lamina_primtorch.value import Value

CUDA = torch.device("cuda", 0)


class Build:
    """A graph of prims over values that claim to be on a GPU; it runs on CPU tensors."""

    def __init__(self, dtype=torch.bfloat16, device=CUDA):
        self.graph, self.dtype, self.device = Graph(), dtype, device

    def input(self, *shape):
        node = self.graph.placeholder(f"x{len(self.graph.nodes)}")
        strides = torch.empty(shape, device="meta").stride()
        node.meta["val"] = Value(shape, strides, self.dtype, self.device)
        return node

    def call(self, name, *args):
        node = self.graph.call_function(PRIMS[name], args)
        meta = PRIMS[name].meta(*[a.meta["val"] if hasattr(a, "meta") else a for a in args])
        node.meta["val"] = Value(meta.shape, meta.stride, meta.dtype, meta.device)
        return node

    def done(self, *outs):
        self.graph.output(outs)
        return GraphModule({}, self.graph)


def vocabulary(m=4096, k=768, n=50257, **how):
    b = Build(**how)
    x, w = b.input(m, k), b.input(n, k)
    return b.done(b.call("mm", x, b.call("permute", w, (1, 0))))


def names(gm):
    return [n.target.name for n in gm.graph.nodes if n.op == "call_function"]


def test_the_rows_of_a_vocabulary_are_padded_where_they_lie():
    gm = vocabulary()
    out = pad_matrix_products(gm)
    assert names(gm) == ["permute", "mm"]
    assert sorted(names(out)) == ["mm", "pad", "permute", "permute", "slice"] or names(out).count("pad") == 1
    pad = next(n for n in out.graph.nodes if getattr(n.target, "name", "") == "pad")
    assert pad.args[0].op == "placeholder" and pad.args[3] == (7, 0)
    last = next(n for n in reversed(out.graph.nodes) if getattr(n.target, "name", "") == "slice")
    assert tuple(last.meta["val"].shape) == (4096, 50257)


@pytest.mark.parametrize(
    "how",
    [dict(dtype=torch.float32), dict(device=torch.device("cpu")), dict(n=50264), dict(m=1), dict(m=32, k=64, n=10)],
)
def test_nothing_is_done_where_it_does_not_pay(how):
    gm = vocabulary(**how)
    assert pad_matrix_products(gm) is gm


def small(monkeypatch):
    monkeypatch.setattr("lamina_inductor.pad_matmul.SECONDS_PER_KERNEL", 0.0)
    monkeypatch.setattr("lamina_inductor.pad_matmul.SECONDS_PER_FLOP", 1.0)


@pytest.mark.parametrize("m, k, n", [(8, 16, 13), (8, 13, 16), (13, 8, 8), (5, 6, 7)])
@pytest.mark.parametrize("turned", [(), (0,), (1,), (0, 1)])
def test_numbers(monkeypatch, m, k, n, turned):
    small(monkeypatch)
    b = Build()
    x = b.call("permute", b.input(k, m), (1, 0)) if 0 in turned else b.input(m, k)
    y = b.call("permute", b.input(n, k), (1, 0)) if 1 in turned else b.input(k, n)
    gm = b.done(b.call("mm", x, y))
    out = pad_matrix_products(gm)
    inputs = [torch.randn(n_.meta["val"].shape).bfloat16() for n_ in gm.graph.nodes if n_.op == "placeholder"]
    torch.testing.assert_close(out(*inputs)[0], gm(*inputs)[0], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("bias", [(13,), (5, 13), (1, 13), (5, 1), (1,), ()])
def test_what_is_added_is_padded_along(monkeypatch, bias):
    small(monkeypatch)
    b = Build()
    gm = b.done(b.call("addmm", b.input(*bias), b.input(5, 6), b.input(6, 13)))
    out = pad_matrix_products(gm)
    assert out is not gm
    inputs = [torch.randn(n.meta["val"].shape).bfloat16() for n in gm.graph.nodes if n.op == "placeholder"]
    torch.testing.assert_close(out(*inputs)[0], gm(*inputs)[0], rtol=1e-2, atol=1e-2)


def test_a_gradient_is_padded_once_for_both_products():
    b = Build()
    g, w, x = b.input(4096, 50257), b.input(50257, 768), b.input(4096, 768)
    grad = b.call("neg", g)
    gm = b.done(b.call("mm", grad, w), b.call("mm", b.call("permute", grad, (1, 0)), x))
    out = pad_matrix_products(gm)
    pads = [n for n in out.graph.nodes if getattr(n.target, "name", "") == "pad"]
    assert sorted(n.args[0].target.name if n.args[0].op == "call_function" else "w" for n in pads) == ["neg", "w"]
    assert tuple(out.graph.find_nodes(op="output")[0].args[0][1].meta["val"].shape) == (50257, 768)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_the_device():
    from lamina_inductor import compile_graph

    gm = vocabulary(512, 256, 9001)
    x, w = (torch.randn(*s, device="cuda").bfloat16() for s in ((512, 256), (9001, 256)))
    run = compile_graph(gm, [x, w])
    got = run([x, w])[0]
    assert got.stride() == (9001, 1)
    torch.testing.assert_close(got, x @ w.t(), rtol=2e-2, atol=2e-1)
