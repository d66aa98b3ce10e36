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


class Swallows:
    def __enter__(self):
        return self

    def __exit__(self, kind, value, tb):
        return kind is KeyError


def nested(x, k):
    log = []
    with Swallows(), torch.no_grad():
        try:
            x = x * 2
            if k > 1:
                raise (KeyError if k == 2 else ValueError)(k)
        except ValueError as e:
            log.append(str(e))
            try:
                raise TypeError("inner") from e
            except TypeError as f:
                log += [str(f), str(f.__cause__)]
                if k == 4:
                    raise
        finally:
            x = x + 1
            log.append(torch.is_grad_enabled())
    log.append(torch.is_grad_enabled())
    return x, log


@pytest.mark.parametrize("k", [0, 2, 3])
@pytest.mark.parametrize("fn", [tried, in_a_loop, nested])
def test_blocks_are_part_of_the_graph(fn, k):
    lamina_dynamo.reset()
    x = torch.randn(3, requires_grad=fn is nested)
    if fn is tried:
        x = x.detach()
    whole = lamina_dynamo.optimize("eager", fullgraph=True)(fn)
    assert str(whole(x.clone(), k)) == str(fn(x.clone(), k))
    assert lamina_dynamo.counters()["graphs"] == 1


def test_an_exception_that_leaves_nested_blocks():
    with pytest.raises(TypeError, match="inner"):
        lamina_dynamo.optimize("eager")(nested)(torch.ones(2), 4)
    assert torch.is_grad_enabled() and sys.exc_info()[0] is None


def broken_inside(x, k):
    y = x.sin()
    try:
        with torch.no_grad():
            y = y * 2
            lamina_dynamo.graph_break()
            y = y + k
            if k:
                raise KeyError(k)
    except KeyError:
        lamina_dynamo.graph_break()
        y = y.cos()
    return y.exp()


@pytest.mark.parametrize("k", [0, 1])
def test_breaks_inside_blocks(k):
    lamina_dynamo.reset()
    x = torch.randn(3)
    for _ in range(2):
        torch.testing.assert_close(lamina_dynamo.optimize("eager")(broken_inside)(x, k), broken_inside(x, k))
    if sys.version_info < (3, 11):  # what comes before the outermost block is captured and the rest runs
        counters = lamina_dynamo.counters()
        assert counters["graphs"] == 1 and counters["breaks"] == {"user_request": 1}
