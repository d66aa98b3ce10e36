"""functools.lru_cache and iterators from outside: the objects and counts are those of eager."""

from __future__ import annotations

import functools
import logging

import pytest
import torch

import lamina_dynamo


@functools.cache
def table(n):
    return torch.arange(n).float()


@functools.lru_cache
def settings(n):
    return {"n": n}


CALLS = []


@functools.lru_cache
def counted(n):
    CALLS.append(n)
    return n * 2


class Owner:
    @functools.lru_cache  # noqa: B019
    def items(self, k):
        return [k]


@pytest.fixture(autouse=True)
def empty_caches():
    for function in (table, settings, counted, Owner.items):
        function.cache_clear()
    CALLS.clear()


def test_the_cached_object_is_used():
    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(lambda x: (x + table(3), settings(3)))
    x = torch.ones(3)
    first, second = compiled(x), compiled(x)
    assert first[1] is second[1] is settings(3)
    assert torch.equal(first[0], x + table(3))
    settings(3)["n"] = 7
    assert compiled(x)[1] == {"n": 7}
    assert table.cache_info().misses == settings.cache_info().misses == 1


def test_a_cleared_cache_is_noticed():
    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(lambda x: (x + 1, settings(3)))
    old = compiled(torch.ones(3))[1]
    settings.cache_clear()
    new = compiled(torch.ones(3))[1]
    assert new is not old and new is settings(3)


def test_effects_happen_once():
    compiled = lamina_dynamo.optimize("eager")(lambda x: x + counted(4))
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 9.0))
    assert CALLS == [4] and counted.cache_info().misses == 1


def test_methods():
    owner = Owner()
    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(lambda x, o: (x + 1, o.items(2)))
    assert compiled(torch.ones(3), owner)[1] is compiled(torch.ones(3), owner)[1] is owner.items(2)


def consumed(x, it):
    for a in it:
        x = x + a
    return x


def one_step(x, it):
    return x + next(it), it


def two_parts(x, it):
    first = next(it)
    return x + first, list(it), next(it, None)


def around_a_break(x, it):
    y = x + next(it)
    n = int(y.sum() * 0) + 1
    return y + next(it) * n


@pytest.mark.parametrize("fn", [consumed, one_step, two_parts, around_a_break])
@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0], (torch.ones(3), 2, 5)], ids=["list", "tuple"])
def test_iterators_from_outside(fn, values):
    compiled = lamina_dynamo.optimize("eager", fullgraph=fn is not around_a_break)(fn)
    for steps in (0, 0, 1):
        plain, other = iter(values), iter(values)
        for _ in range(steps):
            next(plain), next(other)
        if steps:
            compiled = lamina_dynamo.optimize("eager")(fn)
        want, got = fn(torch.ones(3), plain), compiled(torch.ones(3), other)
        want, got = (w if isinstance(w, tuple) else (w,) for w in (want, got))
        assert torch.equal(want[0], got[0])
        if fn is one_step:
            assert got[1] is other
        assert str(want[2:]) == str(got[2:]) and len(list(plain)) == len(list(other))


@functools.lru_cache(None)
def warn_once(logger, text):
    logger.warning(text)


def test_a_cached_warning_is_given_once_and_breaks_nothing(caplog):
    logger = logging.getLogger("lamina-cached")

    def program(x):
        warn_once(logger, "unusual configuration")
        return x + 1

    warn_once.cache_clear()
    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(program)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    warn_once(logger, "another")
    compiled(torch.ones(3))
    assert [r.getMessage() for r in caplog.records] == ["unusual configuration", "another"]
    warn_once.cache_clear()
    compiled(torch.ones(3))
    assert len(caplog.records) == 3


@functools.lru_cache(None)
def announced(n):
    print("first", n)
    return n + 1


def test_a_cached_call_that_prints_keeps_its_place(capsys):
    def fn(x):
        print("before")
        n = announced(2)
        print("after")
        return x * announced(2) + n

    fast = lamina_dynamo.optimize("eager", fullgraph=True)(fn)
    said = []
    for f in (fn, fast):
        announced.cache_clear()
        for _ in range(2):
            f(torch.ones(2))
        announced.cache_clear()
        torch.testing.assert_close(f(torch.ones(2)), torch.full((2,), 6.0))
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == ("before\nfirst 2\nafter\nbefore\nafter\nbefore\nfirst 2\nafter\n")
