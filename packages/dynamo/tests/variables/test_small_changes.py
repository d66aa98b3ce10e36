"""Containers from outside are changed where the program changes them, and nowhere else."""

import builtins
import collections
import functools
import math
import threading

import pytest
import torch

from lamina_dynamo import optimize


def store(x, d):
    d["a"] = x.sum()
    return x + 1


KEYS = ({"b": 1}, {"b": 1, "c": 2}, {"c": 5}, {"a": 3, "b": 4}, {"b": 4, "a": 3}, {}, {"z": [1]})


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.UserDict])
def test_keys_that_nothing_looked_at_stay(kind):
    compiled = optimize("eager")(store)
    for keys in KEYS:
        want, got = kind(keys), kind(keys)
        store(torch.ones(2), want)
        compiled(torch.ones(2), got)
        assert list(want.items()) == list(got.items())


def test_keys_taken_out_and_put_in_again():
    def program(x, d):
        d["a"] = d.pop("a") + 1
        d.pop("gone", None)
        d["new"] = x
        return x * 2

    compiled = optimize("eager")(program)
    for keys in ({"a": 1, "b": 2}, {"a": 1, "z": 3, "b": 2}, {"gone": 0, "a": 5}, {"b": 1, "a": 2, "c": 3}):
        want, got = dict(keys), dict(keys)
        program(torch.ones(1), want)
        compiled(torch.ones(1), got)
        assert list(want) == list(got) and [want[k] for k in ("a",)] == [got[k] for k in ("a",)]


class Shared:
    items: list = []
    table: dict = {}
    seen: set = set()


def test_threads_do_not_undo_each_others_changes():
    Shared.items, Shared.table, Shared.seen = [], {}, set()

    def program(x, k):
        Shared.items.append(k)
        Shared.table[k] = Shared.table.get(k, 0) + 1
        Shared.seen.add(k)
        return x + k

    compiled = optimize("eager")(program)
    errors = []

    def work(k):
        try:
            for _ in range(15):
                assert compiled(torch.zeros(1), k).item() == k
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert sorted(Shared.items) == sorted(list(range(4)) * 15)
    assert Shared.table == dict.fromkeys(range(4), 15) and Shared.seen == set(range(4))


def test_elements_replaced_and_appended():
    def program(x, items, queue, s):
        items[1] = x.sum()
        items.append("end")
        items[-1] += "!"
        queue.append(len(items))
        s.discard(1)
        s.add(2)
        return x

    compiled = optimize("eager")(program)
    for n in (2, 3, 2, 12):
        want = list(range(n)), collections.deque(range(n), 4), {1, n}
        got = list(range(n)), collections.deque(range(n), 4), {1, n}
        program(torch.ones(2), *want)
        compiled(torch.ones(2), *got)
        assert repr(want) == repr(got)


def test_names_that_appear_in_the_builtins_and_go():
    def program(x):
        try:
            found = brand_new_name  # noqa: F821
        except NameError as e:
            found = (e.name, str(e))
        return x + 1, found

    compiled = optimize("eager")(program)
    for step in (None, 77, None, 78):
        if step is None:
            vars(builtins).pop("brand_new_name", None)
        else:
            builtins.brand_new_name = step
        assert repr(compiled(torch.ones(1))) == repr(program(torch.ones(1)))
    del builtins.brand_new_name
    for value in (3, None):
        if value is None:
            del globals()["brand_new_name"]
        else:
            globals()["brand_new_name"] = value
        assert repr(compiled(torch.ones(1))) == repr(program(torch.ones(1)))


def test_zero_and_minus_zero_as_varying_floats():
    def program(x, v):
        return x * v, math.copysign(1.0, v), str(v)

    for options in ({}, {"dynamic": True}):
        compiled = optimize("eager", **options)(program)
        for v in (1.0, 2.0, 0.0, -0.0, 3.0, -0.0, 0.0):
            assert repr(compiled(torch.ones(1), v)) == repr(program(torch.ones(1), v))


class Odd:
    def __iter__(self):
        return 3

    def __hash__(self):
        return "h"

    def __format__(self, spec):
        return 3

    def __complex__(self):
        return 3


def test_answers_of_the_wrong_type():
    def program(x, o):
        found = []
        for f in (
            lambda: list(o),
            lambda: [*o],
            lambda: zip(o),
            lambda: map(len, o),
            lambda: enumerate(o),
            lambda: hash(o),
            lambda: f"{o}",
            lambda: complex(o),
            lambda: functools.partial(3),
            lambda: x.no_such_attribute,
        ):
            try:
                f()
            except (TypeError, AttributeError) as e:
                found.append((type(e).__name__, str(e), getattr(e, "name", None)))
        try:
            from math import no_such_name  # noqa: F401
        except ImportError as e:
            found.append((str(e), e.name, e.path))
        return x + 1, found

    o = Odd()
    assert optimize("eager")(program)(torch.ones(1), o)[1] == program(torch.ones(1), o)[1]
