"""Extern ops that return numbers beside tensors, as fused attention does."""

import operator

import torch
from torch.fx import Graph, GraphModule

from lamina_inductor import compile_graph

_lib = torch.library.Library("lamina_test_lengths", "DEF")
_lib.define("with_length(Tensor x) -> (Tensor, SymInt)")
_lib.impl("with_length", lambda x: (x * 2, x.shape[0]), "CPU")


def test_number_beside_a_tensor_is_no_reason_to_run_in_eager():
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.zeros(3)
    pair = graph.call_function(torch.ops.lamina_test_lengths.with_length.default, (x,))
    pair.meta["val"] = (torch.zeros(3), 3)
    out = graph.call_function(operator.getitem, (pair, 0))
    out.meta["val"] = torch.zeros(3)
    graph.output((out,))
    for target in ("reference", None):
        compiled = compile_graph(GraphModule({}, graph), target=target)
        assert compiled.fallback is None
        assert torch.equal(compiled([torch.ones(3)])[0], torch.full((3,), 2.0))
