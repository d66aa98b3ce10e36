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
