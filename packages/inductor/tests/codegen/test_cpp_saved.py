"""Compiled graphs written to files and read again."""

import json
import os
import subprocess
import sys
import zipfile

import pytest
import torch
from check import TARGETS
from programs import Tracer
from test_symbolic import Recorder
from torch.fx import GraphModule

from lamina_inductor import CompiledGraph, build_cache, compile_graph
from lamina_inductor.errors import InputError, TargetError

pytestmark = pytest.mark.skipif("cpp" not in TARGETS, reason="no C++ compiler")


def saved(gm, path):
    compiled = compile_graph(gm, target="cpp")
    assert compiled.fallback is None, compiled.fallback
    compiled.save(path)
    return compiled


def many_calls():
    """Kernels, calls through the shim, the dispatcher and Python, a constant, an input and a number handed out."""
    x, w = torch.randn(6, 8), torch.randn(8, 5)
    t = Tracer(x, w)
    y = t.call(torch.ops.aten.mm.default, t.exp(x), w)
    values, places = t.call(torch.ops.aten.sort.default, y, -1, True)
    z = t.call(torch.ops.aten.roll.default, values, [1], [0])
    s = t.call(torch.ops.aten.cumsum.default, z, 1, dtype=torch.float64)
    table = torch.randn(5, 6).t()
    node = t.graph.get_attr("table")
    node.meta["val"] = table
    t.nodes[id(table)] = node
    out = t.mul(z, table)
    expected = [out, places, s, x, y]
    t.graph.output(t._nodes(expected))
    return GraphModule({"table": table}, t.graph), [x, w], expected


def test_a_saved_graph_gives_the_same(tmp_path):
    gm, inputs, expected = many_calls()
    compiled = saved(gm, tmp_path / "graph.lamina")
    loaded = CompiledGraph.load(tmp_path / "graph.lamina")
    assert loaded.source == compiled.source and loaded.target == "cpp"
    for run in (lambda: loaded(list(inputs)), lambda: loaded.unboxed(*inputs)):
        for got, first, want in zip(run(), compiled(list(inputs)), expected, strict=True):
            assert torch.equal(got, first) and got.stride() == first.stride() and got.dtype is want.dtype
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert loaded(list(inputs))[3] is inputs[0]


def test_another_process_needs_no_compiler(tmp_path):
    gm, inputs, expected = many_calls()
    saved(gm, tmp_path / "graph.lamina")
    torch.save([inputs, expected], tmp_path / "values.pt")
    code = (
        "import torch\n"
        "from lamina_inductor import CompiledGraph\n"
        f"inputs, expected = torch.load({str(tmp_path / 'values.pt')!r})\n"
        f"graph = CompiledGraph.load({str(tmp_path / 'graph.lamina')!r})\n"
        "for got, want in zip(graph(list(inputs)), expected, strict=True):\n"
        "    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)\n"
        "print('same')\n"
    )
    env = {
        **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LAMINA_CACHE_DIR": str(tmp_path / "cache"),
        "LAMINA_CXX": "/no/compiler",
    }  # fmt: skip
    native = getattr(sys.modules.get("lamina_inductor._native"), "__file__", "")
    if "lamina_inductor" not in os.path.dirname(native):  # built into the cache, not part of the package
        cache = build_cache.shared_cache("")
        cache.save(tmp_path / "cache.zip")
        build_cache.BuildCache(tmp_path / "cache").load(tmp_path / "cache.zip")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.strip() == "same", done.stderr


def test_sizes_that_vary(tmp_path):
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    t = Recorder(x, y, dynamic=[(0,), (0,)])
    compiled = compile_graph(t.finish(t.add(*t.fakes)), target="cpp")
    compiled.save(tmp_path / "g")
    loaded = CompiledGraph.load(tmp_path / "g")
    assert torch.equal(loaded([torch.ones(7, 4), torch.ones(7, 4)])[0], torch.full((7, 4), 2.0))
    with pytest.raises(InputError, match="input 1"):
        loaded([torch.ones(7, 4), torch.ones(6, 4)])


@pytest.mark.parametrize("wrong", [[torch.ones(2, 2)], [torch.ones(3, 4, dtype=torch.float64), torch.ones(3, 4)]])
def test_inputs_are_always_checked(tmp_path, wrong):
    x = torch.randn(3, 4)
    t = Tracer(x, x.clone())
    from lamina_inductor.config import patch

    with patch(check_inputs=False):
        saved(t.finish(t.exp(x)), tmp_path / "g")
        loaded = CompiledGraph.load(tmp_path / "g")
    with pytest.raises(InputError):
        loaded(wrong)


def changed(path, **values):
    with zipfile.ZipFile(path) as z:
        parts = {name: z.read(name) for name in z.namelist()}
    parts["graph.json"] = json.dumps({**json.loads(parts["graph.json"]), **values}).encode()
    with zipfile.ZipFile(path, "w") as z:
        for name, data in parts.items():
            z.writestr(name, data)


@pytest.mark.parametrize("field, value", [
    ("level", "avx9000"), ("version", "0.0.0"), ("platform", "mars-pdp11"), ("torch", "0.4.1"),
])  # fmt: skip
def test_refused_elsewhere(tmp_path, field, value):
    x = torch.randn(3)
    t = Tracer(x)
    saved(t.finish(t.exp(x)), tmp_path / "g")
    changed(tmp_path / "g", **{field: value})
    with pytest.raises(TargetError, match=value) as refusal:
        CompiledGraph.load(tmp_path / "g")
    assert "compile on this machine" in str(refusal.value)


def test_damaged_files(tmp_path):
    x = torch.randn(3)
    t = Tracer(x)
    path = tmp_path / "g"
    saved(t.finish(t.exp(x)), path)
    whole = path.read_bytes()
    for data in (b"", b"no archive", whole[: len(whole) // 2], whole[:200] + bytes([whole[200] ^ 255]) + whole[201:]):
        path.write_bytes(data)
        with pytest.raises(TargetError, match="not a saved graph"):
            CompiledGraph.load(path)
    with pytest.raises(TargetError, match="not a saved graph"):
        CompiledGraph.load(tmp_path / "absent")
    with pytest.raises(TargetError, match="cannot be written"):
        compile_graph(many_calls()[0], target="cpp").save(tmp_path / "no" / "folder")


def test_what_cannot_be_saved_is_named(tmp_path):
    x = torch.randn(3)
    t = Tracer(x)

    def local(a):
        return a.sin()

    gm = t.finish(t.call(local, x))
    compiled = compile_graph(gm, target="cpp")
    if compiled.target == "cpp":
        with pytest.raises(TargetError, match="local"):
            compiled.save(tmp_path / "g")
    with pytest.raises(TargetError, match="reference"):
        compile_graph(many_calls()[0], target="reference").save(tmp_path / "g")
    assert not (tmp_path / "g").exists()


def test_an_operator_that_the_process_lacks(tmp_path):
    gm, _, _ = many_calls()
    saved(gm, tmp_path / "g")
    with zipfile.ZipFile(tmp_path / "g") as z:
        calls = json.loads(z.read("graph.json"))["calls"]
    next(c for c in calls if c)["target"] = ["aten", "nobody::ever", "default"]
    changed(tmp_path / "g", calls=calls)
    with pytest.raises(TargetError, match="nobody::ever"):
        CompiledGraph.load(tmp_path / "g")


def test_errors_of_calls_keep_their_kind(tmp_path):
    x, i = torch.randn(4), torch.tensor([0, 9])
    t = Tracer(x, torch.tensor([0, 1]))
    gm = t.finish(t.call(torch.ops.aten.index_select.default, x, 0, t.keep[1]))
    compiled = saved(gm, tmp_path / "g")
    loaded = CompiledGraph.load(tmp_path / "g")
    with pytest.raises(Exception) as first:
        compiled([x, i])
    with pytest.raises(type(first.value), match="out of"):
        loaded([x, i])
