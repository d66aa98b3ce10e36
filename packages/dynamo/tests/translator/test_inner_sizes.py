"""Sizes that only the run knows, in called functions that return nothing: captured where they stay inside."""

from __future__ import annotations

import pytest
import torch

import lamina_dynamo
from lamina_dynamo.inner_sizes import returns_nothing


def mend(matches, others, quality):
    best = quality.max(dim=1)[0]
    rows = torch.where(quality == best[:, None])[1]
    matches[rows] = others[rows]


def writes_inside(x, quality):
    matches = x * 2
    mend(matches, matches + 7, quality)
    return matches.sin(), x + 1


def write_if_many(y, flags):
    rows = torch.nonzero(flags)[:, 0]
    if rows.numel() > 2:
        y[rows] = 0


def branches_inside(x, quality):
    y = x * 2
    write_if_many(y, quality[0] > 0)
    return y + 1


def keep_rows(found, flags):
    found.append(torch.where(flags)[0])


def leaves_by_a_list(x, quality):
    found = []
    keep_rows(found, quality[0] > 0)
    return found[0] * 2, len(found)


def leaves_and_is_asked(x, quality):
    found = []
    keep_rows(found, quality[0] > 0)
    return x * 2 if found[0].numel() > 2 else x


def give_rows(flags):
    return torch.where(flags)[0]


def returned(x, quality):
    return x[give_rows(quality[0] > 0)] * 2


def through_another(x, quality):
    y = x * 2

    def inner():
        y[give_rows(quality[0] > 0)] = 0

    inner()
    return y


#: program -> breaks of its first call
PROGRAMS = {
    writes_inside: 0,
    branches_inside: 1,
    leaves_by_a_list: 0,
    leaves_and_is_asked: 1,
    returned: 1,
    through_another: 0,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_same_as_eager(program, dynamic):
    compiled = lamina_dynamo.optimize("eager", dynamic=dynamic)(program)
    lamina_dynamo.reset()
    for i in range(4):
        torch.manual_seed(i)
        x, quality = torch.rand(5 + i % 2), torch.randn(3, 5 + i % 2)
        got, want = compiled(x, quality), program(x, quality)
        for a, b in zip(got, want) if isinstance(want, tuple) else [(got, want)]:
            assert torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b
        if i == 0:
            assert sum(lamina_dynamo.counters()["breaks"].values()) == PROGRAMS[program]
    assert lamina_dynamo.counters()["fallbacks"] == 0


def test_what_returns_nothing():
    def value(x):
        if x:
            return 1

    def early(x):
        if x:
            return None
        x.append(1)

    def steps(x):
        yield x

    assert returns_nothing(mend.__code__) and returns_nothing(early.__code__)
    assert not any(returns_nothing(f.__code__) for f in (value, steps, give_rows))
