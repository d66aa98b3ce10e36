"""Programs that act on tensor objects, random generators and torch's modes, through all stages: results, gradients and
random streams of eager, in one captured graph."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn

import lamina
import lamina_dynamo

PROGRAMS = {}


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


@program
def hooks(x):
    y = x * 2
    handle = y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: g.clamp(max=3))
    handle.remove()
    y.retain_grad()
    return y.sin(), y


@program
def parameter(x):
    w = nn.Parameter(torch.arange(3.0))
    return x * w, w


@program
def data(x):
    y = x * x
    z = y.detach().clone()
    z.data = torch.ones(2, 2)
    return y + 1, z * 2


@program
def inference(x):
    with torch.inference_mode():
        y = x * 2
    return y + 1, x.sin()


@program
def penalty(x):
    y = x.detach().requires_grad_()
    (g,) = torch.autograd.grad((y**3).sum(), y, create_graph=True)
    return (g.norm() - 1) ** 2 * x


@program
def streams(x):
    g = torch.Generator().manual_seed(5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        a = torch.rand(3)
    return x + a + torch.rand(3), torch.rand(2, generator=g)


class Doubled(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result * 2 if func is torch.Tensor.add else result


@program
def subclass(x):
    return x.as_subclass(Doubled) + 1


def run(fn, x):
    torch.manual_seed(1)
    x = x.clone().requires_grad_()
    result = fn(x)
    result = result if isinstance(result, tuple) else (result,)
    parts = [t.as_subclass(torch.Tensor).sum() for t in result if t.requires_grad and not t.is_leaf]
    sum(parts).backward()
    seen = [(type(t), t.requires_grad, t.is_leaf, t.as_subclass(torch.Tensor).detach()) for t in result]
    grads = [t.grad for t in (*result, x) if t.is_leaf or t.retains_grad]
    return seen, grads, torch.rand(2)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_eager(name, backend):
    fn, x = PROGRAMS[name], torch.randn(3)
    want = run(fn, x)
    lamina_dynamo.reset()
    compiled = lamina.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        got = run(compiled, x)
        for a, b in zip(want[0], got[0], strict=True):
            assert a[:3] == b[:3] and torch.allclose(a[3], b[3])
        for a, b in zip(want[1], got[1], strict=True):
            assert (a is None) == (b is None) and (a is None or torch.allclose(a, b, rtol=1e-4))
        assert torch.equal(want[2], got[2])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_changing_floats_are_compiled_twice_at_most(backend):
    lamina_dynamo.reset()
    fn = lambda x, lr: torch.add(x, x * lr, alpha=-lr).clamp(max=lr)  # noqa: E731
    compiled, x = lamina.compile(fn, backend=backend), torch.randn(5)
    for i in range(12):
        assert torch.allclose(compiled(x, 0.1 + i / 7), fn(x, 0.1 + i / 7))
    assert lamina_dynamo.counters()["compiled"] == 2
