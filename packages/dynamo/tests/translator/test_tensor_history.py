"""How a tensor came about — leaf or not, its autograd graph, the default dtype at the time — and what outlives a
translation that stopped."""

import gc
import weakref

import pytest
import torch
import torch.autograd.forward_ad as forward
from torch import nn

import lamina_dynamo as dynamo


@pytest.fixture(autouse=True)
def fresh():
    dynamo.reset()
    yield
    dynamo.reset()


def optimize(fn, seen=None, **options):
    def backend(gm, inputs):
        if seen is not None:
            seen.append(gm)
        return gm.forward

    return dynamo.optimize(backend, **options)(fn)


def test_leaf_and_history_of_arguments_are_guarded():
    f = optimize(lambda x: (x.is_leaf, x.grad_fn is None, x.retains_grad, x + 1)[:3])
    leaf = torch.ones(2, requires_grad=True)
    inner = leaf * 1
    kept = leaf * 1
    kept.retain_grad()
    for t in (leaf, inner, kept, torch.ones(2), leaf):
        assert f(t) == (t.is_leaf, t.grad_fn is None, t.retains_grad)


def test_gradient_through_a_product_whose_result_is_squeezed_in_place():
    def fn(x, w):
        y = x.detach().requires_grad_()
        return torch.autograd.grad((y @ w).sum(), y, allow_unused=True)[0]

    x, w = torch.arange(4.0), torch.ones(4, 2)
    assert torch.equal(optimize(fn)(x, w), fn(x, w))


def test_default_dtype_of_factories():
    f = optimize(lambda x: (torch.zeros(2).dtype, (x * torch.ones(2)).dtype))
    try:
        for dtype in (torch.float32, torch.float64, torch.float32, torch.bfloat16):
            torch.set_default_dtype(dtype)
            assert f(torch.ones(2, dtype=torch.bfloat16)) == (dtype, dtype)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("dynamic", [True, None])
def test_bool_of_a_size(dynamic):
    f = optimize(lambda x: (bool(x.shape[0]), x * 2)[0], dynamic=dynamic)
    assert [f(torch.ones(n)) for n in (3, 4, 5)] == [True] * 3


def test_untouched_item_stored_under_another_key():
    def fn(x, d):
        d["b"] = d["a"]
        d["b"].append(1)
        return x + 1

    d = {"a": []}
    optimize(fn)(torch.ones(1), d)
    assert d == {"a": [1], "b": [1]} and d["a"] is d["b"]


def test_forward_mode_runs_in_eager():
    seen = []
    f, x = optimize(lambda x: x.sin(), seen), torch.ones(2)
    f(x)
    with forward.dual_level():
        f(x)
        f(x)
    f(x)
    assert len(seen) == 1  # with a level active everything runs in eager


def test_backward_hooks_of_modules():
    def build():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
        log = []
        net[0].register_full_backward_hook(lambda m, gi, go: log.append(go[0].sum()))
        net[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
        return net, log

    results = []
    for wrap in (lambda m: m, optimize):
        net, log = build()
        wrap(net)(torch.ones(4, 2)).sum().backward()
        results.append([*log, *[p.grad for p in net.parameters()]])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_an_abandoned_attempt_keeps_no_parameter():
    module = nn.Linear(2, 2)

    def fn(x):
        y = module(x).exp()  # noqa: F821
        dynamo.graph_break()
        return y @ torch.ones(9)  # refused

    with pytest.raises(RuntimeError):
        optimize(fn)(torch.ones(2))
    alive = weakref.ref(module.weight)
    del module
    gc.collect()
    assert alive() is None
