"""Operators that answer in another layout or dtype than the graph's metadata say: generated code reads them rightly."""

from __future__ import annotations

import operator

import pytest
import torch
from torch.fx import Graph, GraphModule

from lamina_inductor import compile_graph

_lib = torch.library.Library("lamina_test_settle", "DEF")
_lib.define("turned(Tensor x) -> Tensor")
_lib.define("widened(Tensor x) -> Tensor")
_lib.define("workspace(Tensor x) -> (Tensor, Tensor)")
_lib.define("use(Tensor x, Tensor space) -> Tensor")
_lib.define("longer(Tensor x) -> Tensor")
_lib.impl("turned", lambda x: (x * 2).t().contiguous().t(), "CPU")
_lib.impl("widened", lambda x: x.double() * 2, "CPU")
_lib.impl("workspace", lambda x: (x * 2, torch.full((7,), 3, dtype=torch.uint8)), "CPU")
_lib.impl("use", lambda x, space: x + space.sum(), "CPU")
_lib.impl("longer", lambda x: torch.cat((x, x)), "CPU")
ops = torch.ops.lamina_test_settle


def graph_of(op, val: torch.Tensor, *, outputs: str = "both") -> GraphModule:
    """`y = op(x)`, said to be like `val`; results y and y + 1."""
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.zeros(3, 4)
    y = graph.call_function(op, (x,))
    y.meta["val"] = val
    z = graph.call_function(torch.ops.aten.add.Tensor, (y, 1))
    z.meta["val"] = torch.empty_like(val)
    graph.output((y, z) if outputs == "both" else (z,))
    return GraphModule({}, graph)


@pytest.mark.parametrize("target", ["cpp", "reference"])
@pytest.mark.parametrize("outputs", ["both", "last"])
@pytest.mark.parametrize("op", [ops.turned.default, ops.widened.default])
def test_results_take_the_predicted_form(target, outputs, op):
    compiled = compile_graph(graph_of(op, torch.zeros(3, 4), outputs=outputs), target=target)
    x = torch.arange(12.0).view(3, 4)
    out = compiled([x])
    torch.testing.assert_close(out[-1], x * 2 + 1)
    assert out[-1].stride() == (4, 1)
    if outputs == "both":
        torch.testing.assert_close(out[0], x * 2)
        assert (out[0].dtype, out[0].stride()) == (torch.float32, (4, 1))


def test_memory_of_unknown_length_is_passed_on():
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.zeros(3, 4)
    pair = graph.call_function(ops.workspace.default, (x,))
    pair.meta["val"] = (torch.zeros(3, 4), torch.zeros(0, dtype=torch.uint8))
    y, space = (graph.call_function(operator.getitem, (pair, k)) for k in range(2))
    y.meta["val"], space.meta["val"] = pair.meta["val"]
    z = graph.call_function(ops.use.default, (y, space))
    z.meta["val"] = torch.zeros(3, 4)
    graph.output((z,))
    out = compile_graph(GraphModule({}, graph), target="cpp")([torch.ones(3, 4)])
    assert torch.equal(out[0], torch.full((3, 4), 23.0))


def test_another_shape_is_an_error():
    compiled = compile_graph(graph_of(ops.longer.default, torch.zeros(3, 4)), target="cpp")
    with pytest.raises(RuntimeError, match="another shape"):
        compiled([torch.ones(3, 4)])
