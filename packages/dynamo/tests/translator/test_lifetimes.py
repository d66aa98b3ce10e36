"""Objects die where the program drops them, also behind a graph break: nothing of the frame that was left holds
them."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import lamina_dynamo as dynamo

LOG: list[object] = []


class Thing:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        LOG.append(f"{self.name} dies")


@dynamo.disable
def note(word):
    LOG.append(word)


def made_before(x, again):
    a, b = Thing("a"), Thing("b")
    x = x + 1
    note("break")
    x = x * 2
    del a
    note("a is deleted")
    b = None
    note("b is replaced")
    return x, b


def in_a_callee(x, again):
    def inner(y):
        c = Thing("c")
        y = y.sin()
        note("inner")
        del c
        note("c is deleted")
        return y

    d = Thing("d")
    x = inner(x + 1)
    del d
    note("d is deleted")
    return x.cos()


def with_cells(x, again):
    e = Thing("e")

    def name():
        return e.name  # noqa: F821

    x = x + len(name())
    note("break")
    del e
    note("e is deleted")
    return x


def in_a_loop(x, again):
    for i in range(3):
        f = Thing(f"f{i}")
        x = x + 1
        note(i)
    del f
    note("end")
    return x


def in_blocks(x, again):
    g = Thing("g")
    try:
        with torch.no_grad():
            x = x + 1
            note("break")
            del g
            note("g is deleted")
            raise KeyError
    except KeyError:
        h = Thing("h")
        note("handler")
        del h
        note("h is deleted")
    return x * 2


def many(x, again):
    a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t = (Thing(n) for n in "abcdefghijklmnopqrst")
    x = x + 1
    note("break")
    del a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s
    note("deleted")
    del t
    note("end")
    return x


@pytest.mark.parametrize(
    "fn", [made_before, in_a_callee, with_cells, in_a_loop, in_blocks, many], ids=lambda f: f.__name__
)
def test_dropped_after_a_break(fn):
    dynamo.reset()
    compiled = dynamo.optimize("eager")(fn)
    gc.disable()  # what dies, dies by its last reference
    try:
        for again in (False, True):
            outcomes = []
            for f in (fn, compiled):
                LOG.clear()
                value = f(torch.ones(2), again)
                outcomes.append((str(value), list(LOG)))
            assert outcomes[0] == outcomes[1]
    finally:
        gc.enable()


def test_tensors_of_the_first_part_do_not_outlive_their_use():
    alive = []

    @dynamo.disable
    def look(ref):
        alive.append(ref() is not None)

    def fn(x):
        big = x * 2
        ref = weakref.ref(big)
        look(ref)
        y = big.sum()
        big = None
        look(ref)
        return y + 1, big

    compiled = dynamo.optimize("eager")(fn)
    for _ in range(2):
        alive.clear()
        assert compiled(torch.ones(3))[0].item() == 7
        assert alive == [True, False]


def test_many_locals_after_a_break():
    """Python 3.13 has instructions with four bits for each of two locals."""

    def fn(x, n):
        a, b, c, d, e, f, g, h = (x + i for i in range(8))
        i, j, k, l, m, o, p, q = (x * i for i in range(8))
        dynamo.graph_break()
        r, s = q, p
        s, r = r, s
        t = a * n
        u, v = t, o
        return [a - b, c - d, e - f, g - h, i - j, k - l, m - o, p - q, r - s, t - u, v * r, s * t, u - v, r, q]

    compiled = dynamo.optimize("eager")(fn)
    torch.testing.assert_close(compiled(torch.ones(2), 3), fn(torch.ones(2), 3))


def test_garbage_is_collected_while_a_frame_is_made():
    """What a collection calls has frames of its own: arguments are not taken from the caller for those."""

    def fn(x, n, k):
        if n == 0:
            return x
        dynamo.graph_break()
        return fn(x + k, n - 1, k) * 2

    def seen(phase, info, more=None):
        return phase, info, more

    dynamo.reset()
    compiled, x = dynamo.optimize("eager")(fn), torch.ones(2)
    want, thresholds = fn(x, 6, 3), gc.get_threshold()
    gc.callbacks.append(seen)
    gc.set_threshold(1)
    try:
        for _ in range(3):
            assert torch.equal(compiled(x, 6, 3), want)
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(seen)
