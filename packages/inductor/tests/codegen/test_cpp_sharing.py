"""Kernels that differ in sizes alone are one C++ function."""

from __future__ import annotations

import pytest
import torch
import torch.fx as fx

import lamina_inductor.toolchain as toolchain
from lamina_inductor.codegen.cpp import CppTarget
from lamina_inductor.codegen.cpp_kernel import write_kernel, write_template
from lamina_inductor.codegen.cpp_sharing import share_kernels
from lamina_inductor.codegen.kernel import BufferArg, KernelSpec, LoopVar, Phase
from lamina_inductor.compile import compile_graph
from lamina_inductor.index import symbol, to_expr
from lamina_inductor.ops import Op


def scaled(rows: int, cols: int, factor: float = 2.0) -> KernelSpec:
    """out[r, c] = x[r, c] * w[r] * factor."""
    i, j = symbol("i0", to_expr(rows)), symbol("i1", to_expr(cols))
    x = Op("load", ("x0", i * cols + j, None), torch.float32)
    w = Op("load", ("x1", i, None), torch.float32)
    f = Op("constant", (factor,), torch.float32)
    a = Op("mul", (x, w), torch.float32)
    b = Op("mul", (a, f), torch.float32)
    store = Op("store", ("y2", i * cols + j, b, None, None), torch.float32)
    numel = to_expr(rows * cols)
    buffers = (
        BufferArg("x0", torch.float32, "in", numel),
        BufferArg("x1", torch.float32, "in", to_expr(rows)),
        BufferArg("y2", torch.float32, "out", numel),
    )
    loops = (LoopVar("i0", to_expr(rows)), LoopVar("i1", to_expr(cols)))
    return KernelSpec("scaled", loops, (Phase((), (x, w, f, a, b, store)),), buffers)


def test_sizes_become_arguments():
    a, b = scaled(20, 300), scaled(40, 500)
    functions, calls = share_kernels([a, b, a], 32)
    assert len(functions) == 1
    assert calls[a.key()][0] == calls[b.key()][0] == 0
    assert set(calls[a.key()][1]) == {"20", "300"} and set(calls[b.key()][1]) == {"40", "500"}
    assert "c0_ = S[0]" in functions[0].text


def test_equal_numbers_stay_in_the_text():
    functions, calls = share_kernels([scaled(20, 300), scaled(20, 500)], 32)
    assert len(functions) == 1
    assert all(len(extra) == 1 for _, extra in calls.values())


def test_a_kernel_of_its_own_keeps_its_numbers():
    spec = scaled(20, 300)
    functions, calls = share_kernels([spec, scaled(20, 300, 3.0)], 32)
    assert len(functions) == 2
    assert calls[spec.key()][1] == ()
    assert functions[0].text == write_kernel(spec, "k0", 32)
    assert "\x01" in write_template(spec, "k0", 32) and "\x01" not in functions[0].text


@pytest.mark.skipif(CppTarget().unavailable() is not None, reason="no C++ compiler")
def test_shared_function_computes_each_size():
    sizes = [(20, 300), (40, 500), (17, 33)]
    graph = fx.Graph()
    outs, args = [], []
    import lamina_primtorch

    mul = lamina_primtorch.PRIMS["mul"]
    for k, (r, c) in enumerate(sizes):
        x = torch.randn(r, c)
        node = graph.placeholder(f"x{k}")
        node.meta["val"] = x
        both = graph.call_function(mul, (node, node))
        both.meta["val"] = x
        # extern calls between the products keep them in kernels of their own
        product = graph.call_function(torch.ops.aten.mm.default, (both, graph_transposed(graph, both, x)))
        product.meta["val"] = torch.empty(r, r)
        outs.append(product)
        args.append(x)
    graph.output(tuple(outs))
    compiled = compile_graph(fx.GraphModule(torch.nn.Module(), graph), target="cpp")
    for x, got in zip(args, compiled.unboxed(*args), strict=True):
        want = (x * x) @ (x * x).t()
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)
    assert toolchain.vector_bytes() >= 16


def graph_transposed(graph: fx.Graph, node: fx.Node, x: torch.Tensor) -> fx.Node:
    """The transpose of a node's value."""
    import lamina_primtorch

    out = graph.call_function(lamina_primtorch.PRIMS["permute"], (node, [1, 0]))
    out.meta["val"] = x.t()
    return out
