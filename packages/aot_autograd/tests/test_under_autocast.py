"""A backward called while autocast is on runs under it, as in eager."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import lamina_aot_autograd as aot


def products(x, w, v):
    return (F.linear(F.linear(x, w).relu(), v).sum(),)


def normed(x, w, v):
    y = F.layer_norm(F.linear(x, w), (w.shape[0],))
    return (F.linear(y.exp(), v).softmax(-1), y)


def recomputed(x, w, v):
    return (((F.linear(x, w) * 2).sigmoid().exp() @ v.t()).tanh(),)


def leaves():
    torch.manual_seed(0)
    return [torch.randn(shape, requires_grad=True) for shape in ((8, 16), (32, 16), (4, 32))]


def gradients(call, forward, backward, dtype=torch.bfloat16):
    inputs = leaves()
    with torch.autocast("cpu", dtype, enabled=forward):
        out = call(*inputs) if not isinstance(call, tuple) else aot.aot_compile(call[0], inputs, **call[1])(*inputs)
    loss = sum((o.float() * 1.37).sum() for o in out)
    with torch.autocast("cpu", dtype, enabled=backward):
        loss.backward()
    return [t.grad for t in inputs]


@pytest.mark.parametrize("backward", [True, False])
@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("fn", [products, normed, recomputed])
def test_gradients_are_eagers(h, fn, forward, backward):
    wanted = gradients(fn, forward, backward)
    found = gradients((h.trace(fn), {}), forward, backward)
    for w, f in zip(wanted, found, strict=True):
        assert w.dtype is f.dtype
        torch.testing.assert_close(f, w, rtol=1e-2, atol=1e-2 * w.abs().max().item())


def test_products_are_in_the_lower_precision(h):
    found = []
    call = (h.trace(products), {"backward_compiler": lambda gm, fakes: found.append(gm) or gm.forward})
    gradients(call, False, True)
    products_of = [n for n in found[0].graph.nodes if n.target is torch.ops.aten.mm.default]
    assert products_of and all(n.meta["val"].dtype is torch.bfloat16 for n in products_of)
    exact = gradients(products, False, True)
    assert all(torch.equal(a, b) for a, b in zip(gradients((h.trace(products), {}), False, True), exact, strict=True))


def test_one_graph_a_state(h):
    found = []
    x, w, v = leaves()
    call = aot.aot_compile(
        h.trace(products), [x, w, v], backward_compiler=lambda gm, fakes: found.append(gm) or gm.forward
    )
    for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype):
            call.joint  # noqa: B018
            with torch.autocast("cpu", enabled=False):
                (loss,) = call(x, w, v)
            loss.backward()
    (loss,) = call(x, w, v)
    loss.backward()
    assert len(found) == 3  # bfloat16, float16, none


def test_the_same_graph_serves_both(h):
    found = []
    options = {"backward_compiler": lambda gm, fakes: found.append(gm) or gm.forward}
    gm = h.trace(lambda x, w, v: ((x * w.sum() + v.mean()).exp(),))
    for backward in (True, False):
        gradients((gm, options), False, backward)
    assert len(found) == 2 and len(list(found[0].graph.nodes)) == len(list(found[1].graph.nodes))


def test_batched_gradients(h):
    x, w, v = leaves()
    (out,) = aot.aot_compile(h.trace(lambda a, b, c: (F.linear(a, b),)), [x, w, v])(x, w, v)
    seeds = torch.randn(3, *out.shape)
    with torch.autocast("cpu", torch.bfloat16):
        (found,) = torch.autograd.grad(out, x, seeds, is_grads_batched=True, retain_graph=True)
        (wanted,) = torch.autograd.grad(F.linear(x, w), x, seeds, is_grads_batched=True)
    assert found.dtype is wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2 * wanted.abs().max().item())
