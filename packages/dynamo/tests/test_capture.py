"""What capture() reports."""

from __future__ import annotations

import pytest
import torch

import lamina_dynamo


def helper(x):
    return x.sin()


def program(x):
    y = helper(x) + 1
    lamina_dynamo.graph_break()
    return y * 2


def test_capture_reports_graphs_breaks_guards_and_lines():
    x = torch.randn(3)
    record = lamina_dynamo.capture(program)(x)
    assert torch.equal(record.value, program(x))
    assert len(record.graphs) == 2 and [b.kind for b in record.breaks] == ["user_request"]
    first = program.__code__.co_firstlineno
    lines = record.source_map()
    assert lines[(__file__, first + 1)] == 0 and lines[(__file__, first + 3)] == 1
    assert lines[(__file__, helper.__code__.co_firstlineno + 1)] == 0
    assert record.breaks[0].place == (__file__, first + 2)
    assert any("TENSOR(x" in g for g in record.guards)
    assert "RETURN_VALUE" in record.frames[0].bytecode_before() and record.frames[0].bytecode_after()
    text = record.text()
    assert "2 graphs, 1 graph breaks" in text and "user_request" in text
    page = record.html()
    assert page.startswith("<!DOCTYPE html>") and "graph_break()" in page and "http" not in page


def test_capture_does_not_touch_other_compiled_functions():
    x = torch.randn(3)
    lamina_dynamo.optimize("eager")(helper)(x)
    assert len(lamina_dynamo.capture(helper)(x).graphs) == 1
    assert len(lamina_dynamo.explain(helper, x).graphs) == 1


def test_exception_of_the_program_is_kept():
    record = lamina_dynamo.capture(lambda x: x.reshape(7))(torch.randn(3))
    assert isinstance(record.error, RuntimeError) and "raised RuntimeError" in record.text()


def test_fullgraph_raises():
    with pytest.raises(lamina_dynamo.GraphBreakError):
        lamina_dynamo.capture(program, fullgraph=True)(torch.randn(3))
