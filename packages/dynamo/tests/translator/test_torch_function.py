"""``__torch_function__`` inside a region: subclasses, other objects with the protocol, modes; as in eager."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import lamina_dynamo

ONE_GRAPH = {}
MAY_BREAK = {}


def one_graph(fn):
    ONE_GRAPH[fn.__name__] = fn
    return fn


def may_break(fn):
    MAY_BREAK[fn.__name__] = fn
    return fn


class Plain(torch.Tensor):
    """No override: results have the class all the same."""


class Doubling(torch.Tensor):
    """Results of add are doubled; the others keep the class."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if func in (torch.add, torch.Tensor.add):
            return result * 2
        return result

    def twice(self):
        return self + self

    @property
    def rows(self):
        return self.shape[0]


CALLS = []


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        CALLS.append((func.__name__, len(args), sorted(kwargs or {}), [t.__name__ for t in types]))
        return super().__torch_function__(func, types, args, kwargs or {})


class Boxed:
    """No tensor at all."""

    def __init__(self, tensor, factor):
        self.tensor, self.factor = tensor, factor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        factor = max(a.factor for a in args if isinstance(a, cls))
        args = [a.tensor if isinstance(a, cls) else a for a in args]
        return cls(func(*args, **(kwargs or {})), factor + 1)


class Scaling(TorchFunctionMode):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.__name__)
        result = func(*args, **(kwargs or {}))
        return result * self.factor if func is torch.add else result


@one_graph
def plain_subclass(x):
    s = x.as_subclass(Plain)
    t = s * 2 + x
    return t, t.as_subclass(torch.Tensor), isinstance(t, Plain), torch.stack([s, s]), s.max(0), s.shape


@one_graph
def results_changed(x):
    s = x.as_subclass(Doubling)
    return s + 1, 1 + s, torch.add(x, s), s * 3 - x, s.twice(), s.rows, s[0], s.sum()


@one_graph
def in_place_and_views(x):
    s = x.clone().as_subclass(Doubling)
    s.mul_(2)
    s += 1
    v = s.t()
    v[0] = 5
    return s, v


@one_graph
def what_it_sees(x):
    s = x.as_subclass(Logged)
    out = [s + 1, 1 - s, -s, abs(s), s @ s.t(), s[0], s[:, 1], s > 0, s**2, 2 / s, s.sin(), s.sum(dim=0), torch.cos(s)]
    out += [torch.cat([s, x]), F.relu(s), F.linear(s, x), s.reshape(-1), s.to(torch.float64), x + s, x == s]
    out += [s.new_ones(2), s.detach(), torch.ones_like(s), torch.empty(2).fill_(1)]
    s.mul_(2)
    s[0] = 1.0
    return out, s.shape, s.dim(), s.dtype, s.requires_grad, len(s)


@one_graph
def attributes_of_its_own(x):
    s = x.as_subclass(Plain)
    s.label = ["a"]
    t = s * 2
    return s, s.label, hasattr(t, "label")


@one_graph
def not_a_tensor(x):
    b = torch.mul(Boxed(x, 1), x)
    c = torch.cat([x, x])
    return b.tensor, b.factor, F.relu(b).factor, c


@one_graph
def mode_inside(x):
    mode = Scaling(10)
    with mode:
        y = torch.add(x, 1)
        z = y.sin() * x.shape[0] + torch.ones(3).new_zeros(3)
    return y, z, torch.add(x, 1), mode.seen


@one_graph
def modes_nested(x):
    outer, inner = Scaling(10), Scaling(3)
    with outer, inner:
        y = torch.add(x, 1)
    with outer:
        z = torch.add(x, 1)
    return y, z, outer.seen, inner.seen


@may_break
def break_under_a_mode(x):
    mode = Scaling(10)
    with mode:
        y = torch.add(x, 1)
        n = int(y.sum() * 0) + 2
        z = torch.add(x, n)
    return y, z, torch.add(x, 1)


@may_break
def exception_under_a_mode(x):
    try:
        with Scaling(10):
            raise ValueError
    except ValueError:
        return torch.add(x, 1)


@one_graph
def overrides_switched_off(x):
    s = x.as_subclass(Doubling)
    with torch._C.DisableTorchFunctionSubclass():
        t = s + 1
    return t, s + 1, type(t).__name__


class Picky:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


@may_break
def refused(x):
    try:
        return torch.add(x, Picky())
    except TypeError as e:
        return x + 1, type(e).__name__


def seen(fn, x):
    CALLS.clear()
    result = fn(x.clone())
    return flat(result), list(CALLS)


def flat(value):
    if isinstance(value, torch.Tensor):
        plain = value.as_subclass(torch.Tensor)
        return [(type(value).__name__, value.__dict__.get("label"), plain.dtype, plain.tolist())]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *(i for v in value for i in flat(v))]
    return [value]


@pytest.mark.parametrize("name", [*ONE_GRAPH, *MAY_BREAK])
def test_same_as_eager(name):
    fn = (ONE_GRAPH | MAY_BREAK)[name]
    x = torch.randn(3, 3)
    want = seen(fn, x)
    compiled = lamina_dynamo.optimize("eager", fullgraph=name in ONE_GRAPH)(fn)
    for _ in range(2):
        assert seen(compiled, x) == want


def test_subclasses_as_arguments():
    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(lambda a, b: (a + b, a.rows))
    for x in (torch.randn(3, 2), torch.randn(3, 2)):
        s = x.as_subclass(Doubling)
        got, rows = compiled(s, x)
        assert type(got) is Doubling and rows == 3
        assert torch.equal(got.as_subclass(torch.Tensor), (x + x) * 2)
    with pytest.raises(AttributeError):
        compiled(x.as_subclass(Plain), x)  # another class: another program


def test_writes_and_gradients_reach_the_argument():
    def fn(s, w):
        s.add_(1)
        return (s * w).sum()

    s, w = torch.zeros(3).as_subclass(Plain), torch.ones(3, requires_grad=True)
    lamina_dynamo.optimize("eager", fullgraph=True)(fn)(s, w).backward()
    assert s.as_subclass(torch.Tensor).tolist() == [1, 1, 1] and w.grad.tolist() == [1, 1, 1]


def test_a_mode_around_the_call():
    compiled = lamina_dynamo.optimize("eager")(lambda x: torch.add(x, 1).sin())
    x = torch.randn(3)
    for _ in range(3):
        with Scaling(10) as mode:
            got = compiled(x)
        assert torch.equal(got, (torch.add(x, 1) * 10).sin()) and mode.seen == ["add", "sin"]
    assert torch.equal(compiled(x), torch.add(x, 1).sin())


def test_operators_by_name():
    from lamina_dynamo.variables.torch_function import _function_of_operator

    assert _function_of_operator(operator.add, 2, True)[0] is torch.Tensor.add
    assert _function_of_operator(operator.sub, 2, False)[0] is torch.Tensor.__rsub__
