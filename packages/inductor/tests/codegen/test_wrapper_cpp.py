"""The function of a whole graph: how long ones are compiled."""

from __future__ import annotations

from operator import getitem

import pytest
import torch
import torch.fx as fx

from lamina_inductor import build_cache, compile_graph


def chain(length: int, side: int) -> fx.GraphModule:
    """``length`` matrix products (side, side), the last one small (2, 4) @ (4, 4)."""
    graph = fx.Graph()
    x, small, w = (graph.placeholder(n) for n in ("x", "small", "w"))
    x.meta["val"] = torch.empty(side, side)
    small.meta["val"], w.meta["val"] = torch.empty(2, 4), torch.empty(4, 4)
    y = x
    for _ in range(length):
        y = graph.call_function(torch.ops.aten.mm.default, (y, x))
        y.meta["val"] = torch.empty(side, side)
    z = graph.call_function(torch.ops.aten.mm.default, (small, w))
    z.meta["val"] = torch.empty(2, 4)
    graph.output((y, z))
    return fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize("length, optimised", [(3, True), (100, False)])
def test_long_functions_are_not_optimised(length: int, optimised: bool, monkeypatch: pytest.MonkeyPatch, tmp_path):
    units = []
    build_all = build_cache.BuildCache.build_all

    def watch(self, given, **options):
        units.extend(given)
        return build_all(self, given, **options)

    monkeypatch.setattr(build_cache.BuildCache, "build_all", watch)
    gm = chain(length, 64)
    inputs = [torch.randn(64, 64) / 8, torch.randn(2, 4), torch.randn(4, 4)]
    compiled = compile_graph(gm, target="cpp")
    y, z = compiled(list(inputs))
    want_y, want_z = gm(*inputs)
    torch.testing.assert_close(y, want_y)
    torch.testing.assert_close(z, want_z)
    flags = [u.extra for u in units if "lamina_run" in u.source]
    assert flags == [() if optimised else ("-O0",)]


@pytest.mark.parametrize(
    "op, good, bad, kind",
    [
        (torch.ops.aten.linalg_cholesky_ex.default, torch.eye(3), None, None),
        (torch.ops.aten.linalg_cholesky.default, torch.eye(3), -torch.eye(3), torch.linalg.LinAlgError),
        (torch.ops.aten.histc.default, torch.rand(3), torch.full((3,), float("nan")), RuntimeError),
    ],
)
def test_an_operator_that_fails_raises_what_eager_raises(op, good, bad, kind):
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = good
    y = graph.call_function(op, (x,))
    y.meta["val"] = op(good)
    graph.output((y,) if isinstance(y.meta["val"], torch.Tensor) else (graph.call_function(getitem, (y, 0)),))
    for n in graph.nodes:
        if n.target is getitem:
            n.meta["val"] = y.meta["val"][0]
    compiled = compile_graph(fx.GraphModule(torch.nn.Module(), graph), target="cpp")
    compiled([good])
    if bad is not None:
        with pytest.raises(kind) as theirs:
            op(bad)
        with pytest.raises(kind) as ours:
            compiled([bad])
        assert type(ours.value) is type(theirs.value) and str(ours.value) == str(theirs.value)
    compiled([good])


@pytest.mark.parametrize("checked", [False, True])
def test_a_launch_that_fails_ends_the_call(checked: bool):
    """On a device a kernel may refuse its operands (memory that is not aligned): what follows must not run, and the
    reason must reach the caller as it is."""
    import re

    from lamina_inductor.codegen.wrapper_cpp import write_wrapper
    from lamina_inductor.config import Config
    from lamina_inductor.graph import GraphLowering
    from lamina_inductor.scheduler.plan import schedule
    from lamina_primtorch import prims
    from lamina_primtorch.value import Value

    device = torch.device("cuda", 0)
    graph = fx.Graph()
    x, i = graph.placeholder("x"), graph.placeholder("i")
    x.meta["val"] = Value((7,), (1,), torch.float32, device)
    i.meta["val"] = Value((7,), (1,), torch.int64, device)
    target = torch.ops.aten.index_select.default if checked else prims.neg
    y = graph.call_function(target, (x, 0, i) if checked else (x,))
    y.meta["val"] = Value((7,), (1,), torch.float32, device)
    graph.output((y,))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    if checked:
        import lamina_primtorch

        gm = lamina_primtorch.decompose(gm, "prims")
    program = schedule(GraphLowering(gm, Config()).run(), "test").program
    assert any(s.kernel.messages for s in program.steps if hasattr(s, "kernel")) == checked
    text = write_wrapper(program, lambda call: "K0{f}").source
    calls = re.findall(r"^.*K0\{f\}\(b, s\).*$", text, re.M)
    assert calls
    for line in calls:
        assert "if (" in line and "return 1" in line if not checked else line.strip().startswith("const int bad")
    assert not checked or "if (f->error_kind) return 1;" in text
