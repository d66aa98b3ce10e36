"""A generator dropped half-way runs the clean-up of the block it stands in; where there is none to run, nothing
happens and nothing breaks."""

from __future__ import annotations

import collections.abc

import pytest
import torch

import lamina_dynamo
from lamina_dynamo.counters import reset_counters

log = []


class Plain(collections.abc.Sequence):
    """Iterated by the generator of `Sequence`, which yields inside ``try: ... except IndexError``."""

    def __len__(self):
        return 3

    def __getitem__(self, i):
        if i >= 3:
            raise IndexError
        return i


class Nested(Plain):
    def __iter__(self):
        for i in range(3):
            try:
                try:
                    yield i
                except (IndexError, ValueError):
                    log.append("index")
                except KeyError as e:
                    log.append(str(e))
            except TypeError:
                pass


class Finally(Plain):
    def __iter__(self):
        try:
            yield from range(3)
        finally:
            log.append("finally")


class Bare(Plain):
    def __iter__(self):
        try:
            for i in range(3):
                yield i + 0
        except BaseException:
            log.append("bare")
            raise


class Exit(Plain):
    def __iter__(self):
        try:
            for i in range(3):
                yield i + 0
        except GeneratorExit:
            log.append("exit")


CASES = [(Plain, True), (Nested, True), (Finally, False), (Bare, False), (Exit, False)]


@pytest.mark.parametrize(("kind", "whole"), CASES)
def test_clean_up_of_a_dropped_generator(kind, whole):
    items = kind()

    def fn(x):
        for a, b in zip([1, 2], items):
            x = x + a * b
        return x

    log.clear()
    want, said = fn(torch.ones(2)), list(log)
    log.clear()
    reset_counters()
    assert torch.equal(lamina_dynamo.optimize("eager")(fn)(torch.ones(2)), want)
    assert log == said
    assert whole == (not lamina_dynamo.counters()["breaks"])


def steps(x, n):
    try:
        for i in range(n):
            yield x + i
    finally:
        log.append("end")


def next_of_it(x):
    y = next(steps(x, 3))
    log.append("after")
    return y * 2


def left_loop(x):
    for v in steps(x, 3):
        x = x + v
        break
    log.append("after")
    return x


def returned_from_loop(x):
    def inner(x):
        for v in steps(x, 3):
            return x + v

    y = inner(x)
    log.append("after")
    return y


@pytest.mark.parametrize("fn", [next_of_it, left_loop, returned_from_loop], ids=lambda f: f.__name__)
def test_the_last_reference_goes_inside_the_region(fn):
    log.clear()
    want = fn(torch.ones(2))
    assert log == ["end", "after"]
    for _ in range(2):
        assert torch.equal(lamina_dynamo.optimize("eager", fullgraph=True)(fn)(torch.ones(2)), want)
    assert log == ["end", "after"] * 3


def test_a_kept_generator_lives_on():
    def fn(x, keep):
        made = steps(x, 3)
        keep.append(made)
        y = next(made)
        for v in made:
            y = y + v
            break
        log.append("after")
        return y

    log.clear()
    keep: list[object] = []
    got = lamina_dynamo.optimize("eager")(fn)(torch.ones(2), keep)
    assert torch.equal(got, torch.full((2,), 3.0)) and log == ["after"]
    assert [t.tolist() for t in keep[0]] == [[3.0, 3.0]] and log == ["after", "end"]
