"""numpy's scalars and ufuncs inside captured programs."""

from __future__ import annotations

import math

import pytest
import torch

import lamina_dynamo

np = pytest.importorskip("numpy")


def program(x, n):
    m = np.lcm(4, 6)
    root = np.sqrt(x.size(-1))
    if 12 % m == 0 and m > 3:
        x = x + 1
    if n >= 3:
        x = x * 2
    numbers = x / root, root * x, x * m, np.float32(1.5) * x, x + n, x.view(n, -1), x.new_zeros(m)
    values = 17 % n, -n, float(n), n == 4, min(n, 3), [1, 2, 3, 4, 5][n], math.sqrt(n), n.item(), hash(n), f"{n}"
    return *numbers, *values, int(np.prod([2, 3])), np.int64(7) // 2, np.ceil(2.3), round(np.float64(2.567), 1)


def test_numbers_are_folded():
    x = torch.randn(4, 3)
    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(program)
    for n in (np.int64(4), np.int64(2), np.int32(4)):
        for got, want in zip(compiled(x, n), program(x, n), strict=True):
            assert type(got) is type(want)
            assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want


def test_zero_and_nan_are_told_apart():
    def fn(x, n):
        return x * n, math.copysign(1.0, n)

    x = torch.ones(2)
    compiled = lamina_dynamo.optimize("eager")(fn)
    for n in (np.float64(0.0), np.float64(-0.0), np.float64("nan"), np.float64(2.0)):
        got, want = compiled(x, n), fn(x, n)
        torch.testing.assert_close(got[0], want[0], equal_nan=True)
        assert got[1] == want[1]


def test_arrays_are_left_to_eager():
    def fn(x):
        return x + float(np.sqrt(np.array([4.0, 9.0]))[1])

    x = torch.ones(2)
    assert torch.equal(lamina_dynamo.optimize("eager")(fn)(x), fn(x))
