# ruff: noqa: E501
"""Caches and named tuples that the region makes itself."""

import collections
import functools
import random

import pytest
import torch
from differential import check

import lamina_dynamo


def program(seed):
    """A cached function and a random sequence of calls of it."""
    rng = random.Random(seed)
    decorator = rng.choice(["functools.cache", "functools.lru_cache", "functools.lru_cache(maxsize=2)", "functools.lru_cache(None)",
                            "functools.lru_cache(maxsize=3, typed=True)", "functools.lru_cache(0)", "functools.lru_cache(-1)"])  # fmt: skip
    lines = ["def f(x):", "    calls = []", f"    @{decorator}", "    def g(*a, **k):", "        calls.append((a, k))"]
    lines += ["        if a and isinstance(a[0], int) and a[0] == 7:\n            raise ValueError('seven')"]
    lines += ["        return g(a[0] - 1) + 1 if a and isinstance(a[0], int) and a[0] > 3 else len(calls)", "    out = []"]
    for _ in range(rng.randint(3, 10)):
        call = rng.choice(["1", "1.0", "True", "2", "'a'", "k=1", "2, k=1", "k=1, j=2", "j=2, k=1", "", "(1, 2)", "5", "6", "7", "[1]", "x", "None"])
        lines.append(f"    try:\n        out.append(g({call}))\n    except Exception as e:\n        out.append((type(e).__name__, str(e)))")
        if rng.random() < 0.2:
            lines.append(rng.choice(["    g.cache_clear()", "    out.append(tuple(g.cache_info()))", "    out.append(g.__wrapped__(3))", "    out.append(g.cache_parameters())"]))
    lines.append("    return x + len(out), out, len(calls), tuple(g.cache_info()), g.__name__")
    names = {"functools": functools}
    exec("\n".join(lines), names)
    return names["f"], "\n".join(lines)


@pytest.mark.parametrize("seed", range(40))
def test_random_calls_of_a_cached_function(seed):
    fn, text = program(seed)
    try:
        check(fn, lambda: (torch.arange(3.0),), True)
    except AssertionError as e:
        raise AssertionError(f"{text}\n{e}") from None


def test_a_cache_leaves_the_region():
    def f(x):
        @functools.lru_cache(maxsize=5)
        def g(k):
            return k + 1

        class K:
            @functools.cache  # noqa: B019
            def m(self, k):
                return k * 2

        return x + K().m(2), g

    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(f)
    (y, g), (_, h) = compiled(torch.ones(2)), compiled(torch.ones(2))
    assert g(1) == 2 and g(1) == 2 and g.cache_info().hits == 1 and g.cache_info().maxsize == 5 and h.cache_info().hits == 0
    assert g is not h and g.__name__ == "g" and y.tolist() == [5.0, 5.0]


def test_a_used_cache_leaves_the_region():
    def f(x):
        @functools.cache
        def g(k):
            return k + 1

        return x + g(1), g

    y, g = lamina_dynamo.optimize("eager")(f)(torch.ones(2))
    assert y.tolist() == [3.0, 3.0] and g(1) == 2 and g.cache_info()[:2] == (1, 1)


def named_tuples(x):
    P = collections.namedtuple("P", "a b c", defaults=[4, (5,)])
    Q = collections.namedtuple("Q", ["a", "class", "a"], rename=True)

    class R(collections.namedtuple("R", "u v")):
        def total(self):
            return self.u + self.v

    p, q = P(x), Q(1, 2, 3)
    a, b, _ = p
    try:
        collections.namedtuple("W", "a a")
    except ValueError as e:
        text = str(e)
    try:
        P()
    except TypeError as e:
        text += str(e)
    r = R(x, 2)
    return (
        a + b + r.total(), p._fields, q._fields, p._asdict(), p._replace(b=9).b, repr(q), q == (1, 2, 3), hash(q) == hash((1, 2, 3)),
        isinstance(p, tuple), isinstance(p, P), isinstance(q, P), P._field_defaults, P.__name__, P.__module__, P._make([1, 2, 3]).c,
        text, r.u, len(p), p[0], p.index(4), [*q], type(q) is Q, Q(*p), {**p._asdict()}, P.a.__doc__, r,
    )  # fmt: skip


def test_named_tuples():
    check(named_tuples, lambda: (torch.arange(3.0),), False)


def test_each_call_makes_its_own_named_tuple():
    def f(x):
        P = collections.namedtuple("P", "a b")
        return P(x + 1, 2), P, [P(1, 2)]

    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(f)
    (p, P, more), (q, Q, _) = compiled(torch.ones(2)), compiled(torch.ones(2))
    assert type(p) is P and type(q) is Q and P is not Q and type(more[0]) is P
    assert p.a.tolist() == [2.0, 2.0] and P.__module__ == __name__ and P._fields == ("a", "b") and p._replace(b=7).b == 7
