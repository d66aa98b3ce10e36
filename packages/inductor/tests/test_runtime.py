"""The native call: conventions, reference counts, errors, outputs that are inputs, callbacks into Python."""

from __future__ import annotations

import gc
import importlib.util
import sys
import weakref

import pytest
import torch

from lamina_inductor import toolchain
from lamina_inductor.codegen.cpp import CppTarget
from lamina_inductor.codegen.kernel import BufferArg, KernelSpec, LoopVar, Phase
from lamina_inductor.config import patch
from lamina_inductor.index import const, symbol, to_expr
from lamina_inductor.ir.layout import Layout, contiguous_strides
from lamina_inductor.ir.program import (
    Alloc,
    BindSize,
    BufferDecl,
    BufferRef,
    ExternCall,
    Free,
    GraphProgram,
    KernelCall,
    Output,
)
from lamina_inductor.ops import Op

F = torch.float32
CPU = torch.device("cpu")
aten = torch.ops.aten


def _layout(*shape, dtype=F):
    sizes = tuple(to_expr(s) for s in shape)
    return Layout(dtype, CPU, sizes, contiguous_strides(sizes))


@pytest.fixture
def build(tmp_path_factory):
    folder = str(tmp_path_factory.getbasetemp() / "units")

    def make(program):
        with patch(cache_dir=folder) as config:
            return CppTarget().build(program, config)

    return make


def _double_kernel(n):
    i = symbol("i0", n)
    x, two = Op("load", ("x", i, None), F), Op("constant", (2.0,), F)
    y = Op("mul", (x, two), F)
    ops = (x, two, y, Op("store", ("y", i, y, None, None), F))
    sizes = ("s0",) if not isinstance(n, int) else ()
    return KernelSpec(
        "double",
        (LoopVar("i0", to_expr(n)),),
        (Phase((), ops),),
        (BufferArg("x", F, "in", to_expr(n)), BufferArg("y", F, "out", to_expr(n))),
        sizes,
    )


def _double(n):
    buffers = {"x": BufferDecl("x", _layout(n), "input", 0), "y": BufferDecl("y", _layout(n), "output")}
    steps = [Alloc("y"), KernelCall(_double_kernel(n), ("x", "y"), () if isinstance(n, int) else (n,)), Free("x")]
    sizes = [] if isinstance(n, int) else [("s0", 0, "size", 0)]
    return GraphProgram(
        "double",
        1,
        buffers,
        steps,
        [Output("buffer", "y"), Output("input", index=0), Output("none"), Output("scalar", value=7)],
        sizes,
    )


def test_conventions_and_outputs(build):
    graph = build(_double(6))
    x = torch.arange(6.0)
    out = graph.unboxed(x)
    assert type(out) is tuple and torch.equal(out[0], x * 2) and out[1] is x and out[2:] == (None, 7)
    inputs = [x]
    out = graph.boxed(inputs)
    assert type(out) is list and inputs == [] and torch.equal(out[0], x * 2) and out[1] is x


def test_symbolic_length(build):
    graph = build(_double(symbol("s0", lo=0)))
    for n in (0, 1, 17, 100_000):
        x = torch.randn(n)
        assert torch.equal(graph.unboxed(x)[0], x * 2)


def test_reference_counts_and_early_release(build):
    program = _double(1 << 17)
    program.outputs = [Output("buffer", "y")]
    graph = build(program)
    x = torch.ones(1 << 17)
    before = sys.getrefcount(x)
    for _ in range(100):
        graph.unboxed(x)
        graph.boxed([x])
    assert sys.getrefcount(x) == before
    gone = weakref.ref(x)
    inputs = [x]
    del x
    out = graph.boxed(inputs)
    assert gone() is None
    result = weakref.ref(out[0])
    del out
    gc.collect()
    assert result() is None


def test_wrong_inputs_raise_type_errors(build):
    graph = build(_double(6))
    for call in (
        lambda: graph.unboxed(),
        lambda: graph.unboxed(3),
        lambda: graph.boxed(torch.ones(6)),
        lambda: graph.boxed([]),
    ):
        with pytest.raises(TypeError):
            call()


def test_subclass_parameters_are_taken_and_results_are_plain(build):
    graph = build(_double(6))
    p = torch.nn.Parameter(torch.ones(6))
    out = graph.unboxed(p)[0]
    assert type(out) is torch.Tensor and not out.requires_grad and torch.equal(out, torch.full((6,), 2.0))


def _one_extern(target, args, kwargs, shapes, dtype=F):
    buffers = {"a": BufferDecl("a", _layout(4, 5), "input", 0), "b": BufferDecl("b", _layout(5, 3), "input", 1)}
    names = [f"r{k}" for k in range(len(shapes))]
    dtypes = [kwargs.get("dtype", dtype), torch.int64]  # a second result is the positions of the first
    for name, shape, kind in zip(names, shapes, dtypes, strict=False):
        buffers[name] = BufferDecl(name, _layout(*shape, dtype=kind), "output")
    return GraphProgram(
        "extern", 2, buffers, [ExternCall(target, args, kwargs, tuple(names))], [Output("buffer", n) for n in names]
    )


A, B = BufferRef("a"), BufferRef("b")


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "shapes", "route"),
    [
        (aten.topk.default, (A, const(2), -1), {}, [(4, 2), (4, 2)], "dispatcher"),
        (aten.sort.stable, (A,), {"stable": True, "dim": 0, "descending": True}, [(4, 5), (4, 5)], "dispatcher"),
        (aten.cat.default, ([A, A], 1), {}, [(4, 10)], "dispatcher"),
        (aten.roll.default, (A, [1, -2], [0, 1]), {}, [(4, 5)], "dispatcher"),
        (aten.gelu.default, (A,), {"approximate": "tanh"}, [(4, 5)], "python"),
        (aten._softmax.default, (A, 1, False), {}, [(4, 5)], "dispatcher"),
        (aten.cumsum.default, (A, 1), {"dtype": torch.float64}, [(4, 5)], "python"),
        (aten.upsample_nearest1d.default, (A, [7], None), {}, [(4, 5, 7)], None),
        (aten.mm.default, (A, B), {}, [(4, 3)], "dispatcher"),
    ],
)
def test_extern_routes(build, target, args, kwargs, shapes, route):
    a, b = torch.randn(4, 5), torch.randn(5, 3)
    if route is None:
        pytest.raises(RuntimeError, lambda: build(_one_extern(target, args, kwargs, shapes)).unboxed(a, b))
        return
    graph = build(_one_extern(target, args, kwargs, shapes))
    assert graph.routes[0][1] == route, graph.routes
    real = {"a": a, "b": b}

    def fill(x):
        if isinstance(x, BufferRef):
            return real[x.name]
        if isinstance(x, list):
            return [fill(v) for v in x]
        return int(x) if hasattr(x, "is_const") else x

    want = target(*map(fill, args), **kwargs)
    want = want if isinstance(want, (tuple, list)) else (want,)
    for got, expected in zip(graph.unboxed(a, b), want, strict=True):
        torch.testing.assert_close(got, expected)


def test_python_errors_of_externs_keep_their_type(build):
    def broken(x):
        raise KeyError("mine")

    graph = build(_one_extern(broken, (A,), {}, [(4, 5)]))
    with pytest.raises(KeyError, match="mine"):
        graph.unboxed(torch.ones(4, 5), torch.ones(5, 3))


def test_data_dependent_sizes(build):
    u = symbol("u0", lo=0)
    buffers = {
        "a": BufferDecl("a", _layout(4, 5), "input", 0),
        "r": BufferDecl("r", _layout(u, 2, dtype=torch.int64), "output"),
    }
    steps = [ExternCall(aten.nonzero.default, (A,), {}, ("r",)), BindSize("u0", "r", 0)]
    graph = build(GraphProgram("nz", 1, buffers, steps, [Output("buffer", "r"), Output("scalar", value=u * 2)]))
    a = torch.randn(4, 5).relu()
    out, twice = graph.unboxed(a)
    assert torch.equal(out, a.nonzero()) and twice == 2 * len(a.nonzero())


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="the PyPI compiler is not installed")
def test_the_compiler_from_pypi_builds_whole_graphs(tmp_path):
    with patch(cache_dir=str(tmp_path), cxx="ziglang") as config:
        graph = CppTarget().build(_double(1000), config)
    x = torch.randn(1000)
    assert torch.equal(graph.unboxed(x)[0], x * 2)


def test_level_is_known():
    assert toolchain.vector_bytes() in (16, 32, 64)
