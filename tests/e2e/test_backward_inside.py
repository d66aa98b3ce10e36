"""`backward()` in a compiled training step, through every stage: what eager's step gives, in one graph."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import lamina


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def classifier():
    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def step(x):
        logits = net(x)
        loss = F.cross_entropy(logits, torch.arange(6) % 3)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss, logits.argmax(1)

    return net, step


def several_steps():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)

    def step(x):
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = net(x).pow(2).sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    return net, step


def adversaries():
    net = network()
    net.judge = nn.Linear(3, 1)
    one = torch.optim.SGD(net.judge.parameters(), 0.1)
    other = torch.optim.SGD(net[0].parameters(), 0.1)

    def step(x):
        made = net[2](net[0](x).relu())
        one.zero_grad()
        first = net.judge(made.detach()).mean()
        first.backward()
        one.step()
        other.zero_grad()
        second = -net.judge(made).mean()
        second.backward()
        other.step()
        return first, second

    return net, step


def one_of_two_losses():
    net = network()
    net.other = nn.Linear(8, 2)

    def step(x):
        hidden = net[0](x)
        first, second = net[2](hidden).sum(), net.other(hidden).sum()
        first.backward()
        return net.other.weight.grad, net[2].weight.grad, second.detach()

    return net, step


def other_loss_goes_on():
    net = network()
    net.other = nn.Linear(4, 2)

    def inside(x):
        first = net[0](x).mean()
        second = net.other(x).pow(2).mean()
        first.backward()
        return second

    def step(x, inside=inside):
        second = inside(x)
        second.backward()
        return net.other.weight.grad

    step.inside = inside
    return net, step


PROGRAMS = [classifier, several_steps, adversaries, one_of_two_losses, other_loss_goes_on]


def outcomes(build, wrap):
    net, step = build()
    if hasattr(step, "inside"):
        step.__defaults__ = (wrap(step.inside),)
    else:
        step = wrap(step)
    seen = []
    for i in range(3):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(i))
        result = step(x)
        result = tuple(result) if isinstance(result, (list, tuple)) else (result,)
        seen += [None if r is None else r.detach().clone() for r in result]
        seen += [p.detach().clone() for p in net.parameters()]
        seen += [None if p.grad is None else p.grad.clone() for p in net.parameters()]
    return seen


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("build", PROGRAMS, ids=lambda f: f.__name__)
def test_training_step(build, backend):
    want = outcomes(build, lambda f: f)
    got = outcomes(build, lambda f: lamina.compile(f, backend=backend, fullgraph=True))
    assert [g is None for g in got] == [w is None for w in want]
    for a, b in zip(got, want, strict=True):
        if b is not None:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_what_backward_freed_stays_freed():
    net = network()

    @lamina.compile(fullgraph=True)
    def step(x):
        loss = net(x).pow(2).sum()
        loss.backward()
        return loss

    loss = step(torch.ones(2, 4))
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
