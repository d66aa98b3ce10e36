"""Random generators inside a region: the same numbers and the same streams afterwards as in eager."""

from __future__ import annotations

import pytest
import torch

import lamina_dynamo

OUTSIDE = torch.Generator().manual_seed(11)
PROGRAMS = {}


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


@program
def forked(x):
    a = torch.rand(3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        b = torch.rand(3)
    return x + a + b, torch.rand(2)


@program
def forked_with_defaults(x):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        b = torch.nn.functional.dropout(x, 0.5)
    return b, torch.rand(2)


@program
def forking_disabled(x):
    with torch.random.fork_rng(enabled=False):
        b = torch.rand(3)
    return x + b


@program
def state_put_back(x):
    state = torch.get_rng_state()
    a = torch.rand(3)
    torch.set_rng_state(state)
    return x + a - torch.rand(3), torch.rand(3), state.dtype


@program
def seeded(x):
    g = torch.manual_seed(5)
    return x + torch.rand(3), torch.rand(2, generator=g)


@program
def own_generator(x):
    g = torch.Generator().manual_seed(5)
    a = torch.rand(3, generator=g)
    b = torch.empty(3).normal_(generator=g)
    return x + a + b, torch.randperm(4, generator=g), torch.bernoulli(torch.full((3,), 0.5), generator=g)


@program
def own_generator_state(x):
    g = torch.Generator()
    g.manual_seed(5)
    state = g.get_state()
    a = torch.rand(3, generator=g)
    g.set_state(state)
    return x + a, torch.rand(3, generator=g), g.device


@program
def own_generator_returned(x):
    g = torch.Generator()
    g.manual_seed(5)
    return torch.rand(3, generator=g) + x, g.get_state()


@program
def generator_from_outside(x):
    return x + torch.rand(3, generator=OUTSIDE)


def run(fn):
    torch.manual_seed(1)
    OUTSIDE.manual_seed(11)
    result = fn(torch.ones(3))
    return result if isinstance(result, tuple) else (result,), torch.rand(2), OUTSIDE.get_state()


@pytest.mark.parametrize("fn", PROGRAMS.values(), ids=PROGRAMS)
def test_one_graph(fn):
    want = run(fn)
    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(fn)
    for _ in range(2):
        got = run(compiled)
        for a, b in zip(want[0], got[0], strict=True):
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        assert torch.equal(want[1], got[1]) and torch.equal(want[2], got[2])


def test_a_generator_argument_is_not_baked_in():
    lamina_dynamo.reset()
    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(lambda x, g: x + torch.rand(3, generator=g))
    for seed in (1, 2):
        first, second = (torch.Generator().manual_seed(seed) for _ in range(2))
        want = torch.ones(3) + torch.rand(3, generator=first)
        assert torch.equal(compiled(torch.ones(3), second), want)
        assert torch.equal(first.get_state(), second.get_state())
    assert lamina_dynamo.counters()["recompiles"] == {}


def test_a_break_in_a_forked_block():
    def fn(x):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            a = torch.rand(3)
            n = int(a.sum() * 0) + 1
            b = torch.rand(3) * n
        return x + a + b, torch.rand(2)

    want = run(fn)
    got = run(lamina_dynamo.optimize("eager")(fn))
    assert all(torch.equal(a, b) for a, b in zip(want[0], got[0])) and torch.equal(want[1], got[1])
