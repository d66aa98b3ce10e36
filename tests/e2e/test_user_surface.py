"""The compiled module object, wrappers, threads, tools and other compilers, on the real stack."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import lamina


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 2)
        self.scale = 1.0
        self.seen = 0

    def forward(self, x):
        self.seen += 1
        return self.lin(x).relu() * self.scale

    def twice(self, x):
        return self(x) + self(x)


def test_attributes_hooks_and_methods():
    net = Net()
    fast = lamina.compile(net)
    x = torch.randn(4, 3)
    want = copy.deepcopy(net)(x)
    torch.testing.assert_close(fast(x), want)
    fast.scale = 3.0
    torch.testing.assert_close(fast(x), want * 3)
    assert net.seen == fast.seen == 2
    seen = []
    handle = fast.register_forward_hook(lambda m, i, o: seen.append(o.shape))
    fast(x)
    handle.remove()
    fast(x)
    assert seen == [(4, 2)]
    torch.testing.assert_close(fast.twice(x), net(x) * 2)
    torch.testing.assert_close(lamina.compile(net.twice)(x), net(x) * 2)


def test_copy_pickle_save():
    net = Net()
    fast = lamina.compile(net)
    x = torch.randn(4, 3)
    want = fast(x).detach()
    for again in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        torch.testing.assert_close(again(x), want)
    buffer = io.BytesIO()
    torch.save(fast, buffer)
    buffer.seek(0)
    torch.testing.assert_close(torch.load(buffer, weights_only=False)(x), want)


def test_compiled_inside_compiled_and_as_a_child():
    inner = lamina.compile(Net())
    outer = nn.Sequential(inner, nn.Linear(2, 2))
    x = torch.randn(4, 3)
    want = outer[1](inner._orig_mod(x))
    torch.testing.assert_close(lamina.compile(outer)(x), want)
    torch.testing.assert_close(lamina.compile(lambda t: inner(t) + 1)(x), inner(x) + 1)


def test_a_callable_backend_and_its_failure():
    graphs = []

    def mine(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    f = lamina.compile(lambda x: x.sin() + 1, backend=mine)
    torch.testing.assert_close(f(torch.ones(2)), torch.ones(2).sin() + 1)
    assert len(graphs) == 1

    def broken(gm, example_inputs):
        raise ZeroDivisionError("in the backend")

    with pytest.raises(lamina.CompileError, match="in the backend"):
        lamina.compile(lambda x: x.sin() + 1, backend=broken)(torch.ones(2))


def test_ours_inside_theirs_and_theirs_inside_ours():
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    x = torch.randn(3, 4)
    want = model(x)
    for fast in (torch.compile(model, backend="lamina"), lamina.compile(model, backend="torch_inductor")):
        model.zero_grad()
        got = fast(x)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        got.sum().backward()
        assert model[0].weight.grad is not None


def test_data_parallel_inside_and_outside(tmp_path):
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        x = torch.randn(5, 3)

        def grads(build):
            torch.manual_seed(0)
            net = Net()
            build(net)(x).sum().backward()
            return [p.grad for p in net.parameters()]

        want = grads(DistributedDataParallel)
        for build in (lambda m: DistributedDataParallel(lamina.compile(m)),
                      lambda m: lamina.compile(DistributedDataParallel(m))):
            for a, b in zip(want, grads(build), strict=True):
                torch.testing.assert_close(a, b)
    finally:
        dist.destroy_process_group()


def test_threads_compile_and_call_at_the_same_time():
    fast = lamina.compile(lambda x, y: (x @ y).relu().sum(-1))
    wrong = []

    def work(seed):
        x = torch.randn(seed + 2, 4)
        y = torch.randn(4, 3)
        for _ in range(5):
            if not torch.allclose(fast(x, y), (x @ y).relu().sum(-1), atol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_modes_agree_and_compiled_functions_chain():
    net, x = Net(), torch.randn(2, 3)
    want = net(x) * 2
    for mode in lamina.list_modes():
        f = lamina.compile(net, mode=mode)
        g = lamina.compile(lambda t: t * 2, mode=mode)
        for _ in range(2):
            torch.testing.assert_close(g(f(x)), want)


def test_is_compiling_disable_reset():
    flags = []

    def f(x):
        flags.append(lamina.is_compiling())
        return x + (1 if lamina.is_compiling() else 2)

    assert float(lamina.compile(f)(torch.zeros(1))) == 1.0
    assert not lamina.is_compiling()

    @lamina.disable
    def plain(x):
        return x + (1 if lamina.is_compiling() else 2)

    assert float(lamina.compile(lambda x: plain(x))(torch.zeros(1))) == 2.0
    lamina.reset()
    assert float(lamina.compile(f)(torch.zeros(1))) == 1.0


def test_logs_and_dumps(tmp_path):
    program = (
        "import torch, lamina\n"
        "m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU())\n"
        "lamina.compile(m)(torch.randn(2, 3)).sum().backward()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=200,
                          env={**os.environ, "LAMINA_LOGS": "graph,joint_graph,prims,output_code,perf",
                               "LAMINA_DUMP_DIR": str(tmp_path / "dump"), "LAMINA_CACHE_DIR": str(tmp_path / "cache")})
    for artifact in ("graph", "joint_graph", "prims", "output_code", "perf"):
        assert f"[lamina {artifact}]" in done.stderr, artifact
    files = sorted((tmp_path / "dump").glob("*.py"))
    assert files
    for file in files:
        subprocess.run([sys.executable, str(file)], check=True, capture_output=True, timeout=100)


def test_doctor_is_content_here(capsys):
    from lamina.__main__ import main

    assert main(["doctor"]) == 0, capsys.readouterr().out


def test_explain_of_a_program_with_a_break(tmp_path):
    def f(x):
        y = x.sin()
        lamina.graph_break()
        return y.cos()

    e = lamina.explain(f)(torch.ones(3))
    assert len(e.graphs) == 2 and len(e.breaks) == 1
    assert "user_request" in str(e.breaks[0]) and e.guards
    page = e.html()
    assert "lamina.graph_break()" in page and "user_request" in page
