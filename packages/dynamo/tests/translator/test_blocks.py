"""try and with blocks. Before Python 3.11 a frame is captured up to the first block that it enters."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

import lamina_dynamo
from lamina_dynamo.counters import reset_counters


def tried(x, k):
    y = x * 2
    try:
        z = y + 1
        if k == 1:
            raise ValueError("one")
        with torch.no_grad():
            z = z * 3
        return z - y
    except ValueError as e:
        return y, str(e), z
    finally:
        x.add_(1)


def in_a_loop(x, k):
    out = []
    for i in range(4):
        y = x * (i + 1)
        if i == k:
            try:
                out.append(y / (i - k))
            except ZeroDivisionError:
                out.append("zero")
                continue
            finally:
                out.append(i)
        out.append(y.tanh())
    else:
        out.append("end")
    return out


def numbers(x):
    try:
        for i in range(3):
            yield x * i
    finally:
        x.mul_(2)


def with_cells(x, k):
    t = x + 1
    s = sum(v for v in numbers(t))

    def late():
        try:
            return t * n
        except NameError:
            return t

    first = tried(t, k)
    n = 4
    return s, t, late(), [*numbers(t)], first


@pytest.mark.parametrize("fn", [tried, in_a_loop, with_cells])
@pytest.mark.parametrize("k", [0, 1, 3, 9])
def test_as_eager(fn, k):
    compiled = lamina_dynamo.optimize("eager")(fn)
    for _ in range(3):
        x = torch.randn(3)
        own = x.clone()
        assert str(compiled(own, k)) == str(fn(x, k))
        torch.testing.assert_close(own, x)


def test_modules_are_one_graph_on_every_python():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.BatchNorm1d(4))
    reset_counters()
    x = torch.randn(5, 3)
    got = lamina_dynamo.optimize("eager", fullgraph=True)(net)(x)
    torch.testing.assert_close(got, net(x))
    assert lamina_dynamo.counters()["graphs"] == 1


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="later Pythons follow the block")
def test_what_comes_before_a_block_is_captured_and_the_rest_runs():
    lamina_dynamo.reset()
    reset_counters()
    lamina_dynamo.optimize("eager")(tried)(torch.randn(3), 0)
    counters = lamina_dynamo.counters()
    assert counters["graphs"] == 1 and counters["breaks"] == {"opcode": 1}
