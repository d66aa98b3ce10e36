"""Integers of graphs have 64 bits, those of Python have no bounds: what may outgrow them is guarded. Sizes that only
the run knows are captured where the settings ask for it, whatever else is symbolic."""

from __future__ import annotations

import pytest
import torch

import lamina_dynamo

PROGRAMS = {
    "cube": lambda x, n: x * float(n * n * n),
    "power": lambda x, n: x * float(n**3),
    "square of a sum": lambda x, n: x * float((n + 1) * (n + 2) * n),
    "many": lambda x, n: x * float(n * n + n * n + n * n + n * n),
    "divided": lambda x, n: x * float(n * n * (n + 1) // 7),
}


class InWords(torch.fx.Interpreter):
    """Runs a graph and looks whether its integers fit into 64 bits."""

    def run_node(self, n):
        value = super().run_node(n)
        assert type(value) is not int or -(2**63) <= value < 2**63, n
        return value


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_that_outgrow_machine_words(name):
    fn = PROGRAMS[name]
    lamina_dynamo.reset()
    compiled = lamina_dynamo.optimize(lambda gm, inputs: InWords(gm).run)(fn)
    x = torch.ones(2, dtype=torch.float64)
    large = 2**31 - 1
    for n in (3, 5, 7, -9, 2_000_000, large, -large, 11):
        assert torch.equal(compiled(x, n), fn(x, n))
    assert lamina_dynamo.counters()["compiled"] <= 6


def test_small_numbers_share_one_graph():
    compiled = lamina_dynamo.optimize("eager")(PROGRAMS["cube"])
    lamina_dynamo.reset()
    for n in (3, 5, 700, -20, 1_000_000):
        assert compiled(torch.ones(1, dtype=torch.float64), n).item() == n**3
    assert lamina_dynamo.counters()["compiled"] == 2


def test_sizes_that_only_the_run_knows_break_beside_symbolic_ones():
    def fn(x):
        y = x * 2
        kept = y[y > 0]
        return kept + 1, y.shape[0]

    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    lamina_dynamo.reset()
    compiled = lamina_dynamo.optimize(backend)(fn)
    for n in (4, 6, 8):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), fn(x))
    assert set(lamina_dynamo.counters()["breaks"]) == {"data_dependent_shape"}
    for gm in graphs:
        for node in gm.graph.nodes:
            sizes = getattr(node.meta.get("val"), "shape", ())
            assert all(type(s) is int or s.node.has_hint() for s in sizes)
    lamina_dynamo.reset()
    graphs.clear()
    whole = lamina_dynamo.optimize(backend, fullgraph=True)(fn)
    for n in (4, 6):
        x = torch.randn(n)
        torch.testing.assert_close(whole(x), fn(x))
    assert len(graphs) == 2
