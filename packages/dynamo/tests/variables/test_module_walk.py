"""`Module.modules` and `named_modules` inside the region: same modules, order, names and laziness as eager's."""

from __future__ import annotations

import types

import pytest
import torch
from torch import nn

import lamina_dynamo


def tree():
    torch.manual_seed(0)
    shared = nn.Linear(3, 3)
    return nn.Sequential(shared, nn.Sequential(nn.ReLU(), nn.Linear(3, 3), nn.Identity()), shared)


def same(f, *args, backend="eager"):
    want = f(*args)
    compiled = lamina_dynamo.optimize(backend)(f)
    for _ in range(2):
        got = compiled(*args)
        assert [type(g) for g in got] == [type(w) for w in want]
        for g, w in zip(got, want):
            if isinstance(w, torch.Tensor):
                torch.testing.assert_close(g, w)
            else:
                assert g == w
    return compiled


def test_names_order_and_shared_modules():
    net = tree()
    net[0].register_module("absent", None)
    x = torch.randn(2, 3)
    same(lambda x: (net(x), [n for n, _ in net.named_modules()], [type(m).__name__ for m in net.modules()]), x)
    same(lambda x: (x + 1, [n for n, m in net.named_modules(remove_duplicate=False)]), x)
    same(lambda x: (x + 1, [n for n, m in net.named_modules(prefix="net")]), x)


def test_members_added_later_are_seen():
    net = tree()
    f = lambda x: (x * 2, len(list(net.modules())))  # noqa: E731
    compiled = lamina_dynamo.optimize("eager")(f)
    x = torch.randn(3)
    assert compiled(x)[1] == f(x)[1]
    net[1].add_module("more", nn.Linear(2, 2))
    assert compiled(x)[1] == f(x)[1]
    net[1][0] = nn.Sequential(nn.ReLU())
    assert compiled(x)[1] == f(x)[1]


def test_a_hook_anywhere_below_is_seen():
    net = tree()

    def f(x):
        return x + 1, any(m._forward_hooks for m in net.modules())

    compiled = lamina_dynamo.optimize("eager")(f)
    x = torch.randn(3)
    assert compiled(x)[1] is False
    handle = net[1][1].register_forward_hook(lambda *a: None)
    assert compiled(x)[1] is True
    handle.remove()
    assert compiled(x)[1] is False


def test_walks_of_its_own():
    class Own(nn.Sequential):
        def named_modules(self, *args, **kwargs):
            for name, m in super().named_modules(*args, **kwargs):
                yield f"own:{name}", m

    net = nn.Sequential(Own(nn.Linear(2, 2)), nn.ReLU())
    same(lambda x: (x + 1, [n for n, _ in net.named_modules()]), torch.randn(2))
    same(lambda x: (x + 1, len(list(net.modules()))), torch.randn(2))


def test_function_replaced_on_the_class(monkeypatch):
    class Net(nn.Sequential):
        pass

    net = Net(nn.Linear(2, 2))
    f = lambda x: (x + 1, [n for n, _ in net.named_modules()])  # noqa: E731
    compiled = lamina_dynamo.optimize("eager")(f)
    x = torch.randn(2)
    assert compiled(x)[1] == ["", "0"]
    monkeypatch.setattr(Net, "named_modules", lambda self: [("replaced", self)], raising=False)
    assert compiled(x)[1] == ["replaced"]


@pytest.mark.parametrize("replace", [False, True])
def test_members_changed_on_the_way(replace):
    """The list made ahead would miss what the loop adds; the region is translated without it."""

    def f(net, x):
        names = []
        for name, m in net.named_modules():
            names.append(name)
            if name == "0":
                if replace:
                    net[1]._modules = {"only": nn.ReLU()}
                else:
                    net[1].added = m
            if len(names) > 20:
                break
        return x + 1, names

    got_net, want_net = tree(), tree()
    x = torch.randn(2)
    want = f(want_net, x)
    got = lamina_dynamo.optimize("eager")(f)(got_net, x)
    assert got[1] == want[1]
    assert list(dict(got_net[1].named_modules())) == list(dict(want_net[1].named_modules()))


def test_the_generator_leaves_the_region():
    net = tree()

    def f(x):
        walk = net.named_modules()
        first = next(walk)
        return x + 1, first, walk

    _, first, walk = lamina_dynamo.optimize("eager")(f)(torch.randn(2))
    assert isinstance(walk, types.GeneratorType)
    assert [first, *walk] == list(net.named_modules())


def test_a_break_in_the_middle_of_a_walk():
    net = tree()

    def f(x):
        total = x
        for name, m in net.named_modules():
            if name and isinstance(m, nn.Linear):
                lamina_dynamo.graph_break()
                total = m(total)
        return total, name

    same(f, torch.randn(2, 3))


def test_parameters_of_a_module():
    net = tree()
    same(lambda x: (x + sum(p.sum() for p in net.parameters()), [n for n, _ in net.named_parameters()]), torch.ones(1))
