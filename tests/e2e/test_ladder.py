"""Every rung of the ladder, on small real models: training and inference give what eager gives."""

from __future__ import annotations

import copy
import importlib.util
import pathlib

import pytest
import torch

import lamina
from lamina.backends import LADDER

_spec = importlib.util.spec_from_file_location("e2e_programs", pathlib.Path(__file__).with_name("programs.py"))
programs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(programs)
PROGRAMS = programs.PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_check_finds_no_difference_on_any_rung(name):
    model, args = PROGRAMS[name]()
    report = lamina.check(model)(*args)
    assert report.ok, report


def steps(model, call, args, count=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(count):
        optimizer.zero_grad(set_to_none=True)
        out = call(*args)
        loss = sum(v.float().sum() for v in (out.values() if isinstance(out, dict) else [out]))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("backend", LADDER)
@pytest.mark.parametrize("name", PROGRAMS)
def test_three_training_steps(name, backend):
    model, args = PROGRAMS[name]()
    twin = copy.deepcopy(model)
    want = steps(model, model, args)
    got = steps(twin, lamina.compile(twin, backend=backend), args)
    assert got == pytest.approx(want, rel=1e-4, abs=1e-5)
    for (key, a), b in zip(model.state_dict().items(), twin.state_dict().values(), strict=True):
        scale = float(a.abs().max())
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5 * max(1.0, scale), msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("backend", LADDER)
def test_gradients_that_are_expanded(backend):
    """Two results expanded from one value share memory where prims are run one by one."""
    torch.manual_seed(0)
    model = torch.nn.GRU(4, 5, 2, bidirectional=True, batch_first=True)
    x = torch.randn(2, 6, 4)
    gradients = []
    for call in (model, lamina.compile(model, backend=backend)):
        leaf = x.clone().requires_grad_()
        out, state = call(leaf)
        (out.sum() + state.sum()).backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_inference_in_one_graph(name):
    model, args = PROGRAMS[name]()
    model.eval()
    fast = lamina.compile(model, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(fast(*args), model(*args), rtol=1e-4, atol=1e-5)
    assert sum(lamina.counters()["breaks"].values()) == 0


def test_growing_length_compiles_once():
    model = torch.nn.Sequential(torch.nn.Embedding(20, 8), programs.Attention(8), torch.nn.Linear(8, 20)).eval()
    fast = lamina.compile(model, dynamic=True)
    with torch.no_grad():
        for n in range(3, 6):
            fast(torch.arange(n)[None])
        before = lamina.counters()["graphs"]
        for n in range(6, 16):
            ids = torch.arange(n)[None]
            torch.testing.assert_close(fast(ids), model(ids), rtol=1e-4, atol=1e-5)
        assert lamina.counters()["graphs"] == before


def test_train_and_eval_switch_recompiles_and_stays_right():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
    fast = lamina.compile(model)
    x = torch.randn(6, 4)
    for _ in range(2):
        fast.train()
        fast(x)
        fast.eval()
        torch.testing.assert_close(fast(x), model(x))


def test_autocast_and_channels_last():
    model, (x,) = PROGRAMS["residual"]()
    x = x.to(memory_format=torch.channels_last)
    model = model.to(memory_format=torch.channels_last)
    fast = lamina.compile(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want, got = model(x), fast(x)
    assert want.dtype == got.dtype and want.stride() == got.stride()
    torch.testing.assert_close(got, want, rtol=3e-2, atol=3e-2)
