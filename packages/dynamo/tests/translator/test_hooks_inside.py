"""Hooks that the region registers and that change something outside: the program's own function is in place when the
region ends."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import lamina_dynamo
from lamina_dynamo.errors import GraphBreakError


def appended():
    seen = []

    def program(x):
        y = x * 2
        y.register_hook(lambda g: seen.append(g))
        return (y * y).sum()

    return program, seen


def by_name():
    seen = {}

    def save(name):
        def hook(g):
            seen[name] = g.clone()

        return hook

    def program(x):
        y = x * 2
        y.register_hook(save("y"))
        z = y.sin()
        z.register_hook(save("z"))
        return (z * y).sum()

    return program, seen


def changed_gradient():
    seen = []

    def program(x):
        y = x.exp()

        def hook(g):
            seen.append(float(g.sum()))
            return g * 3

        y.register_hook(hook)
        return y.sum()

    return program, seen


def of_a_leaf():
    seen = []

    def program(x):
        x.register_hook(lambda g: seen.append(g * 1))
        return (x * x).sum()

    return program, seen


def removed_again():
    seen = []

    def program(x):
        y = x * 2
        handle = y.register_hook(seen.append)
        y.register_hook(lambda g: seen.append("kept"))
        handle.remove()
        return y.sum()

    return program, seen


def last_value():
    """A closure over a local that changes after the hook was registered."""
    seen = []

    def program(x):
        tag = "early"
        y = x * 2
        y.register_hook(lambda g: seen.append(tag))
        tag = "late"
        return y.sum()

    return program, seen


PROGRAMS = [appended, by_name, changed_gradient, of_a_leaf, removed_again, last_value]


def observe(make, wrap):
    program, seen = make()
    program = wrap(program)
    out = []
    for i in range(3):
        x = torch.arange(1.0, 4.0).add(i).requires_grad_()
        loss = program(x)
        loss.backward()
        out += [loss.detach(), x.grad]
    kept = list(seen.items()) if isinstance(seen, dict) else list(seen)
    return out, kept


@pytest.mark.parametrize("make", PROGRAMS)
def test_hooks_with_effects_are_captured(make):
    want, kept = observe(make, lambda f: f)
    got, ours = observe(make, lamina_dynamo.optimize("eager", fullgraph=True))
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(b, a)
    assert len(kept) == len(ours)
    assert str(kept) == str(ours)


def test_gradients_of_the_region_itself_are_left_to_eager():
    seen = []

    def program(x):
        y = x * 2
        y.register_hook(seen.append)
        (g,) = torch.autograd.grad(y.sum(), x)
        return g, len(seen)

    x = torch.ones(2, requires_grad=True)
    assert lamina_dynamo.optimize("eager")(program)(x)[1] == 1
    with pytest.raises(GraphBreakError, match="a hook with side effects was registered"):
        lamina_dynamo.optimize("eager", fullgraph=True)(program)(x)


def test_nothing_keeps_the_function():
    class Log:
        def note(self, g):
            self.g = g

    log = Log()

    @lamina_dynamo.optimize("eager", fullgraph=True)
    def program(x, log):
        y = x * 2
        y.register_hook(log.note)
        return y.sum()

    loss = program(torch.ones(2, requires_grad=True), log)
    loss.backward()
    assert log.g.tolist() == [1.0, 1.0]
    gone = weakref.ref(log)
    del loss, log
    gc.collect()
    assert gone() is None
