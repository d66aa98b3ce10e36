"""A break in `__exit__` while an exception of the region is handled: the exception that eager then sees has a
traceback, which the interpreter takes for granted."""

import traceback

import pytest
import torch

import lamina_dynamo as dynamo


class Swallows:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        return self

    def __exit__(self, kind, value, tb):
        dynamo.graph_break()
        self.log.append((kind, [f.name for f in traceback.extract_tb(tb)], traceback.extract_tb(tb)[-1].line))
        return kind is not OSError


def failing(kind):
    raise kind("here")  # the raising line


@pytest.mark.parametrize("early", [False, True])
def test_exception_of_the_region_reaches_exit(early):
    def fn(x, log, kind):
        with Swallows(log):
            x = x + 1
            if early:
                dynamo.graph_break()
            failing(kind)
        return x * 2

    log = []
    f = dynamo.optimize(lambda gm, inputs: gm.forward)(fn)
    assert f(torch.ones(1), log, ValueError).item() == 4
    with pytest.raises(OSError, match="here"):
        f(torch.ones(1), log, OSError)
    for kind, names, line in log:
        assert names[-1] == "failing" and "the raising line" in line and kind in (ValueError, OSError)
    assert len(log) == 2
