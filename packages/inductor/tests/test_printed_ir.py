"""Printed programs and kernels: the files run, and compute what the compiled graph computes."""

import subprocess
import sys

import pytest
import torch
from programs import Tracer

from lamina_inductor import compile_graph
from lamina_inductor.ir.scalar_ops import Ops

aten = torch.ops.aten


def softmax(t, x):
    top = t.broadcast_in_dim(t.amax(x, (1,)), (4, 4), (0,))
    e = t.exp(t.sub(x, top))
    return t.div(e, t.broadcast_in_dim(t.sum(e, (1,), torch.float32), (4, 4), (0,)))


def statistics(t, x):
    return *t.var_mean(x, (1,), 1.0), t.argmax(x, 1), t.any(x, (0,))


def running(t, x):
    return t.cumsum(x, 1), *t.cummax(x, 0)


def product(t, x):
    return t.mul(t.call(aten.mm.default, x, t.permute(x, (1, 0))), x)


def rows_of_a_table(t, x):
    return t.call(aten.embedding.default, x, t.argmax(x, 1)), t.neg(t.permute(x, (1, 0)))


PROGRAMS = {
    "softmax": softmax,
    "statistics": statistics,
    "running": running,
    "product": product,
    "rows": rows_of_a_table,
}


def compiled(name, dtype=torch.float32):
    torch.manual_seed(0)
    x = torch.randn(4, 4).to(dtype)
    t = Tracer(x)
    out = PROGRAMS[name](t, x)
    outs = out if isinstance(out, tuple) else (out,)
    return compile_graph(t.finish(*outs), [x], target="reference"), x


@pytest.mark.parametrize("name", PROGRAMS)
def test_computes_what_the_graph_computes(name):
    graph, x = compiled(name)
    space: dict = {"__name__": "printed"}
    exec(graph.program.file_text(), space)
    got = space["call"](Ops(), [x], graph.program.constants)
    for a, b in zip(got, graph([x]), strict=True):
        assert (a.dtype, a.stride()) == (b.dtype, b.stride())
        torch.testing.assert_close(a, b, equal_nan=True)


@pytest.mark.parametrize("what", ["program", "kernel"])
def test_file_runs_by_itself(what, tmp_path):
    graph, _ = compiled("softmax")
    path = tmp_path / "ir.py"
    path.write_text((graph.program if what == "program" else graph.kernels[0]).file_text())
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "tensor(" in done.stdout
