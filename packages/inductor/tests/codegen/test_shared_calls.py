"""Equal extern calls are written once; what differs between them is passed."""

from __future__ import annotations

import operator
import re

import pytest
import torch
from torch.fx import Graph, GraphModule

from lamina_inductor.codegen.shared_calls import CallBlock, share_calls
from lamina_inductor.compile import choose_target, compile_graph

needs_cpp = pytest.mark.skipif(choose_target(None, "cpu")[0].name != "cpp", reason="no C++ compiler")


def block(number, *lines):
    return CallBlock(list(lines), number, "  ")


def test_names_become_parameters():
    blocks = [block(k, f"call(f->in[{k}], h_b{k}.h, p_b{k});", "again(f, N_);") for k in range(5)]
    functions, lines = share_calls(["first;", *blocks], "run", True)
    assert functions.count("static int") == 1 and "call(a0_, t1_.h, q2_);" in functions
    assert lines[0] == "first;"
    assert lines[3] == "  if (run_call_0(f, 2, f->in[2], h_b2, p_b2)) return 1;"


def test_one_name_used_twice_is_another_call():
    same = [block(k, f"call(h_a{k}, h_a{k});") for k in range(4)]
    different = [block(9 + k, f"call(h_a{k}, h_b{k});") for k in range(4)]
    functions, _ = share_calls([*same, *different], "run", True)
    assert "call(t0_, t0_);" in functions and "call(t0_, t1_);" in functions


def test_operator_names_are_left_alone():
    blocks = [block(k, f'dispatch("my::h_op", "view_1 N_ p_x", h_b{k}); x(N_);') for k in range(4)]
    functions, _ = share_calls(blocks, "run", True)
    assert 'dispatch("my::h_op", "view_1 N_ p_x", t0_); x(N_);' in functions
    _, lines = share_calls(blocks[:2], "run", True)
    assert lines == ["  {", 'dispatch("my::h_op", "view_1 N_ p_x", h_b0); x(0);', "  }"] + [
        "  {", 'dispatch("my::h_op", "view_1 N_ p_x", h_b1); x(1);', "  }",
    ]  # fmt: skip


def test_few_calls_and_symbolic_sizes_are_written_out():
    blocks = [block(k, f"call(h_b{k}, s0);") for k in range(6)]
    assert share_calls(blocks[:3], "run", True)[0] == ""
    assert share_calls(blocks, "run", False)[0] == ""


def inverses(count):
    """inv(inv(... x ...)): extern calls that differ in their tensors alone."""
    graph = Graph()
    node = graph.placeholder("x")
    node.meta["val"] = torch.eye(4)
    for _ in range(count):
        pair = graph.call_function(torch.ops.aten.linalg_inv_ex.default, (node,), {"check_errors": True})
        pair.meta["val"] = [torch.eye(4), torch.zeros((), dtype=torch.int32)]
        node = graph.call_function(operator.getitem, (pair, 0))
        node.meta["val"] = torch.empty_strided((4, 4), torch.linalg.inv_ex(torch.eye(4))[0].stride())
        pair.meta["val"][0] = node.meta["val"]
    graph.output((node,))
    return GraphModule(torch.nn.Module(), graph)


@needs_cpp
def test_a_chain_of_equal_calls():
    x = torch.eye(4) * 3 + torch.rand(4, 4) * 0.1
    compiled = compile_graph(inverses(6))
    assert compiled.fallback is None
    assert re.search(r"if \(lamina_run_call_\d+\(", compiled.source)
    for _ in range(2):
        (got,) = compiled([x.clone()])
        torch.testing.assert_close(got, x, rtol=1e-4, atol=1e-4)


@needs_cpp
def test_a_shared_call_that_fails_raises_what_eager_raises():
    compiled = compile_graph(inverses(6))
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        compiled([torch.zeros(4, 4)])
    (got,) = compiled([torch.eye(4) * 2])
    torch.testing.assert_close(got, torch.eye(4) * 2)
