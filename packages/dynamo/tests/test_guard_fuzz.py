"""No call may be answered by a graph whose assumptions changed: change one thing that the frame read, call again,
compare with eager.
"""

from __future__ import annotations

import random

import pytest
import torch

import lamina_dynamo

SCALE = 2.0
TABLE = {"a": 1.0, "b": [1, 2, 3]}


def helper(x, k=1, *, shift=0.5):
    return x * k + shift


class Part:
    weight = 3.0

    def __init__(self):
        self.on = True
        self.items = [1.0, 2.0]
        self.cache = torch.ones(3)

    @property
    def total(self):
        return sum(self.items) * self.weight

    def apply(self, x):
        return x + self.total if self.on else x - self.total


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.part = Part()
        self.mode = "plus"
        self.extra = None

    def forward(self, x, flag=False):
        y = self.norm(self.first(x))
        y = self.part.apply(y)
        y = helper(y) * SCALE + TABLE["a"] + len(TABLE["b"]) + TABLE["b"][0]
        if self.mode == "plus":
            y = y + self.part.cache
        if self.extra is not None:
            y = y * self.extra
        if hasattr(self.part, "bonus"):
            y = y + self.part.bonus
        return y + 1 if flag else y


def _global(name, value):
    return lambda net: globals().__setitem__(name, value())


def new_helper(x, k=1, *, shift=0.5):
    return x - k


MUTATIONS = {
    "scale": _global("SCALE", lambda: random.choice([2.0, 3.0, -1.0])),
    "table value": lambda net: TABLE.__setitem__("a", random.choice([1.0, 4.0])),
    "table list item": lambda net: TABLE["b"].__setitem__(0, random.randrange(5)),
    "table list grows": lambda net: TABLE["b"].append(7),
    "table list replaced": lambda net: TABLE.__setitem__("b", [9, 9]),
    "defaults": lambda net: setattr(helper, "__defaults__", (random.choice([1, 2]),)),
    "keyword defaults": lambda net: setattr(helper, "__kwdefaults__", {"shift": random.choice([0.5, 1.5])}),
    "helper replaced": _global("helper", lambda: random.choice([helper, new_helper])),
    "mode": lambda net: setattr(net, "mode", random.choice(["plus", "minus"])),
    "extra": lambda net: setattr(net, "extra", random.choice([None, 2.0, torch.full((3,), 5.0)])),
    "training": lambda net: net.train(random.choice([True, False])),
    "norm training": lambda net: net.norm.train(random.choice([True, False])),
    "weight": lambda net: setattr(net.first, "weight", torch.nn.Parameter(torch.randn(3, 3))),
    "frozen": lambda net: [p.requires_grad_(random.choice([True, False])) for p in net.first.parameters()],
    "bias gone": lambda net: setattr(net.first, "bias", None),
    "layer replaced": lambda net: setattr(net, "first", random.choice([torch.nn.Linear(3, 3), torch.nn.Identity()])),
    "hook": lambda net: net.first.register_forward_hook(lambda m, a, out: out * 2),
    "pre-hook": lambda net: net.norm.register_forward_pre_hook(lambda m, a: (a[0] + 1,)),
    "on": lambda net: setattr(net.part, "on", random.choice([True, False])),
    "items": lambda net: net.part.items.append(random.choice([1.0, 2.0])),
    "item": lambda net: net.part.items.__setitem__(0, random.random()),
    "cache": lambda net: setattr(net.part, "cache", torch.randn(3)),
    "cache in place": lambda net: net.part.cache.add_(1),
    "class attribute": lambda net: setattr(Part, "weight", random.choice([3.0, 4.0])),
    "instance hides class": lambda net: setattr(net.part, "weight", 7.0),
    "bonus": lambda net: setattr(net.part, "bonus", 1.0),
    "method": lambda net: setattr(net.part, "apply", lambda x: x * 10),
    "class method": lambda net: setattr(Part, "apply", random.choice([ORIGINAL_APPLY, lambda self, x: x * 3])),
    "part replaced": lambda net: setattr(net, "part", Part()),
    "forward of the layer": lambda net: net.first.__dict__.__setitem__("forward", lambda x: x + 100),
}
ORIGINAL_APPLY = Part.apply


@pytest.fixture(autouse=True)
def restored():
    saved = helper, SCALE, Part.weight
    yield
    globals()["helper"], globals()["SCALE"], Part.weight = saved
    saved[0].__defaults__, saved[0].__kwdefaults__ = (1,), {"shift": 0.5}
    Part.apply = ORIGINAL_APPLY
    TABLE.clear()
    TABLE.update(a=1.0, b=[1, 2, 3])
    lamina_dynamo.reset()


def compare(net, compiled, x, flag):
    torch.manual_seed(0)
    state = {k: v.clone() for k, v in net.state_dict().items()}
    expected = net(x, flag)
    net.load_state_dict(state)
    result = compiled(x, flag)
    assert torch.allclose(result, expected, atol=1e-5), (result, expected)
    assert result.requires_grad == expected.requires_grad


@pytest.mark.parametrize("name", MUTATIONS)
def test_one_mutation(name):
    random.seed(1)
    torch.manual_seed(1)
    net = Net()
    compiled = lamina_dynamo.optimize("eager")(net)
    x = torch.randn(4, 3)
    compare(net, compiled, x, False)
    for _ in range(3):
        MUTATIONS[name](net)
        compare(net, compiled, x, False)


@pytest.mark.parametrize("seed", range(4))
def test_many_mutations(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    net = Net()
    compiled = lamina_dynamo.optimize("eager")(net)
    with lamina_dynamo.patch(recompile_limit=100):
        for _ in range(25):
            MUTATIONS[random.choice(sorted(MUTATIONS))](net)
            x = torch.randn(random.choice([2, 4, 5]), 3)
            with random.choice([torch.enable_grad, torch.no_grad])():
                compare(net, compiled, x, random.choice([True, False]))
