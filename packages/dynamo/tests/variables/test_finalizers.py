"""Objects whose end the program sees: their frames are left to eager, what these call is captured."""

import pytest
import torch

import lamina_dynamo
from lamina_dynamo import GraphBreakError, optimize


def program(log):
    class Resource:
        def __init__(self, name):
            self.name = name
            log.append("+" + name)

        def __del__(self):
            log.append("-" + self.name)

    def scaled(x):
        return (x * 2).sin() + 1

    def local(x):
        r = Resource("local")
        y = scaled(x)
        log.append(r.name)
        return y

    def run(x):
        y = local(x)
        log.append("out")
        held = [Resource(str(i)) for i in range(2)]
        held.pop(0)
        log.append("popped")
        del held
        log.append("end")
        return scaled(y)

    return run


def test_finalizers_run_where_eager_runs_them():
    want, got = [], []
    plain, compiled = program(want), optimize("eager")(program(got))
    lamina_dynamo.reset()
    before = lamina_dynamo.counters()["graphs"]
    for n in (2, 2, 3):
        assert torch.equal(plain(torch.ones(n)), compiled(torch.ones(n)))
        assert want == got
    assert lamina_dynamo.counters()["graphs"] > before  # what the frames call


def test_under_fullgraph_it_is_said():
    with pytest.raises(GraphBreakError, match="__del__"):
        optimize("eager", fullgraph=True)(program([]))(torch.ones(2))
