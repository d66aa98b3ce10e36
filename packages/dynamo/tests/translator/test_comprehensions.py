"""A comprehension that breaks the graph is one break, however many elements it has."""

from __future__ import annotations

import sys

import pytest
import torch

import lamina_dynamo
from lamina_dynamo.counters import reset_counters


def masks(x):
    rows = [t[t > 0] for t in x * 2]
    return torch.cat(rows) + 1


def by_key(x):
    return {i: t.sum().item() for i, t in enumerate(x)}, x + 1


def of_modules(x):
    def scaled(t):
        return t * t.sum().item()

    return torch.stack([scaled(t + 1) for t in x]).relu()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="comprehensions have no frame of their own from 3.12 on")
@pytest.mark.parametrize(("fn", "breaks"), [(masks, 1), (by_key, 1), (of_modules, 2)])
def test_one_break_for_all_elements(fn, breaks):
    x = torch.randn(6, 4)
    lamina_dynamo.reset()
    reset_counters()
    torch.testing.assert_close(lamina_dynamo.optimize("eager")(fn)(x), fn(x))
    assert sum(lamina_dynamo.counters()["breaks"].values()) == breaks


@pytest.mark.parametrize("fn", [masks, by_key, of_modules])
def test_values_and_later_calls(fn):
    compiled = lamina_dynamo.optimize("eager")(fn)
    for n in (2, 5, 3):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), fn(x))


def varying(x, weight):
    return x * x.shape[0], weight[weight > 0]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="comprehensions have no frame of their own from 3.12 on")
def test_sizes_that_only_the_run_knows_are_not_remembered():
    """A program with symbolic sizes, in which they are captured, leaves nothing behind for the next program."""
    compiled = lamina_dynamo.optimize("eager")(varying)
    weight = torch.nn.Parameter(torch.randn(4))
    for n in (5, 6, 7):
        compiled(torch.randn(n), weight)
    test_one_break_for_all_elements(masks, 1)
