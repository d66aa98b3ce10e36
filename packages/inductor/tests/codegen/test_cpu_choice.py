"""How a product is computed on a CPU under max-autotune, with a stand-in for the clock and once with the real one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from check import compare
from programs import Tracer

from lamina_inductor import compile_graph, observe
from lamina_inductor.codegen import cpu_choice
from lamina_inductor.codegen.cpu_choice import Problem, fastest_form, measure
from lamina_inductor.compile import find_target
from lamina_inductor.config import Config
from lamina_inductor.lowering.matmul import linear_op

aten = torch.ops.aten
pytestmark = pytest.mark.skipif(find_target("cpp").unavailable() is not None, reason="no C++ compiler")


@pytest.fixture
def config(tmp_path):
    return Config(strict=True, cache_dir=str(tmp_path), max_autotune=True)


@pytest.fixture
def clock(monkeypatch):
    """Answers with `times` (others: 1.0) and notes what was asked."""
    monkeypatch.setattr(cpu_choice, "_spent", 0.0)

    class Asked(list):
        times: dict = {}

    asked = Asked()

    def measured(problem, forms, config):
        asked.append((problem, forms))
        return {f: float(asked.times.get(f, 1.0)) for f in forms}

    monkeypatch.setattr(cpu_choice, "measure", measured)
    return asked


def product(m, n, k, dtype=torch.float32, bias=True, transposed=True):
    x, b = torch.randn(m, k).to(dtype), torch.randn(n).to(dtype)
    w = torch.randn(n, k).to(dtype) if transposed else torch.randn(k, n).to(dtype)
    t = Tracer(x, w, b)
    right = t.permute(w, (1, 0)) if transposed else w
    y = t.call(aten.addmm.default, b, x, right) if bias else t.call(aten.mm.default, x, right)
    exact = (x.double() @ (w.t() if transposed else w).double() + (b.double() if bias else 0)).relu().to(dtype)
    return t.finish(t.maximum(y, 0.0)), [x, w, b], exact


def computed(gm, inputs, exact, config, tolerance=1e-4):
    compiled = compile_graph(gm, config=config, target="cpp")
    compare(compiled(list(inputs))[0], exact, rtol=tolerance, atol=tolerance)
    return compiled


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("form", ["library", "linear", "inline", "loops"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_form_computes_the_product(form, dtype, transposed, bias, config, clock):
    if form == "linear" and linear_op() is None:
        pytest.skip("this torch has no oneDNN")
    clock.times = {form: 0.1}
    graph = product(4, 40, 24, dtype, bias, transposed)
    compiled = computed(*graph, config, 1e-4 if dtype is torch.float32 else 5e-2)
    [(problem, forms)] = clock
    assert (problem.m, problem.n, problem.k) == (4, 40, 24)
    assert set(forms) >= {"library", "linear", "loops"} and ("inline" in forms) == (dtype is torch.float32)
    if form not in forms:
        return
    targets, routes = [str(c.target) for c in compiled.externs], [r[1] for r in compiled.run.routes]
    if form == "loops":
        assert not targets and len(compiled.kernels) == 1  # what follows is in the kernel
    elif form == "linear":
        assert targets == ["mkldnn._linear_pointwise.default"]
    else:
        assert targets[0].startswith("aten.") and ("inline" in routes) == (form == "inline")


def test_rules_hold_without_max_autotune_and_where_the_gain_is_noise(config, clock):
    graph = product(4, 40, 24)
    plain = computed(*graph, replace(config, max_autotune=False))
    assert not clock and [r[1] for r in plain.run.routes] == ["inline"]
    clock.times = {"library": 0.97, "loops": 0.96}
    assert [r[1] for r in computed(*graph, config).run.routes] == ["inline"]


def test_an_answer_is_kept_and_told(config, clock):
    told = []
    remove = observe.on_event(lambda e: told.append(str(e.payload)) if e.name == "autotune" else None)
    problem = Problem(torch.float32, 4, 40, 24, (24, 1), (1, 24))
    clock.times = {"library": 0.5}
    try:
        assert fastest_form(problem, ["inline", "library"], config) == "library"
        clock.times = {"inline": 0.1}
        assert fastest_form(problem, ["inline", "library"], config) == "library"  # from the cache
    finally:
        remove()
    assert len(clock) == 1
    assert told[0] == "measuring product float32 4x24 @ 24x40, strides (24, 1) (1, 24)"
    assert "library (µs: inline 1000000.0, library 500000.0)" in told[1]
    [file] = cpu_choice.build_cache.shared_cache(config.cache_dir).folder().glob("measured/*.json")
    file.write_text(json.dumps(["no answer"]))
    assert fastest_form(problem, ["inline", "library"], config) == "inline" and len(clock) == 2
    assert fastest_form(problem._replace(m=5), ["inline"], config) == "inline" and len(clock) == 2  # nothing to choose


def test_rules_hold_when_the_time_is_used_up(config, clock, monkeypatch):
    monkeypatch.setattr(cpu_choice, "_spent", cpu_choice.BUDGET + 1)
    clock.times = {"library": 0.1}
    assert fastest_form(Problem(torch.float32, 4, 40, 24, (24, 1), (1, 24)), ["inline", "library"], config) == "inline"
    assert not clock


def test_real_times(config):
    before = torch.get_rng_state()
    problem = Problem(torch.float32, 2, 16, 8, (8, 1), (1, 8), ((16,), (1,)))
    times = measure(problem, ["inline", "library", "loops"], config)
    assert all(0 < t < 1 for t in times.values()) and torch.equal(before, torch.get_rng_state())
    assert measure(problem, ["no such form"], config)  # compiled by the rules: a form is a wish
