"""Compiled optimizer steps: eager's parameters, one graph for the first step and one for all that follow."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn

import lamina_dynamo

CASES = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "foreach": False}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "foreach": True}),
    (torch.optim.Adam, {"lr": 0.01, "foreach": False}),
    (torch.optim.Adam, {"lr": 0.01, "foreach": True}),
    (torch.optim.AdamW, {"lr": 0.01, "fused": True}),
    (torch.optim.RMSprop, {"lr": 0.01}),
    (torch.optim.NAdam, {"lr": 0.01}),
    (torch.optim.Adadelta, {}),
]


def parameters_after(cls, options, wrap):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = cls(net.parameters(), **options)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    step = wrap(optimizer.step)
    x = torch.randn(5, 3)
    for _ in range(6):
        optimizer.zero_grad()
        net(x).pow(2).sum().backward()
        step()
        schedule.step()
    return [p.detach().clone() for p in net.parameters()]


@pytest.mark.parametrize(("cls", "options"), CASES, ids=lambda v: getattr(v, "__name__", None) or "-".join(v))
def test_step(cls, options):
    want = parameters_after(cls, options, lambda f: f)
    lamina_dynamo.reset()
    before = lamina_dynamo.counters()["graphs"]
    got = parameters_after(cls, options, lamina_dynamo.optimize("eager"))
    torch.testing.assert_close(got, want)
    assert lamina_dynamo.counters()["graphs"] - before <= 3


def test_dict_with_parameters_as_keys():
    a, b, c = (nn.Parameter(torch.ones(1)) for _ in range(3))
    state = {a: 1.0, b: 2.0}
    f = lamina_dynamo.optimize("eager", fullgraph=True)(lambda x, p: x * state[p])
    assert f(torch.ones(1), b).tolist() == [2.0]
    del state[a], state[b]
    state.update({c: 3.0, b: 4.0})
    assert f(torch.ones(1), b).tolist() == [4.0]
