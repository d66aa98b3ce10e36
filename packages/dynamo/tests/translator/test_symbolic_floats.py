"""Relations between symbolic numbers that become guards, also those that guards cannot spell."""

from __future__ import annotations

import math

import pytest
import torch

import lamina_dynamo


def quotient(x, f):
    return x * 2 if 2.0 / f > 0.5 else x - f


def root(x, f):
    return x * 2 if f**0.5 > 1.5 else x - f


def power(x, f):
    return x * 2 if math.exp(f) > 3.0 else x - 1


@pytest.mark.parametrize("fn", [quotient, root, power])
def test_conditions_on_floats(fn):
    compiled = lamina_dynamo.optimize("eager", dynamic=True)(fn)
    x = torch.randn(3)
    for f in (3.0, 8.0, 0.5, 2.5, 3.5):
        assert torch.equal(compiled(x, f), fn(x, f))
