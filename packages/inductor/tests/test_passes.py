"""Passes that can be left out: results stay, and each does leave something out."""

import warnings

import pytest
import torch
from programs import Tracer

from lamina_inductor import build_cache, compile_graph, passes, toolchain
from lamina_inductor.errors import InductorError, TargetError, TargetUnavailable

pytestmark = pytest.mark.skipif(
    not any(map(toolchain.shutil.which, ("g++", "clang++"))), reason="needs a C++ compiler"
)


def small_graph():
    """A product, a chain of loops and a reduction, so that most passes find something to do."""
    x, w = torch.randn(32, 24), torch.randn(24, 16)
    t = Tracer(x, w)
    y = t.tanh(t.call(torch.ops.aten.mm.default, x, w))
    return t.finish(y, t.sum(t.exp(y), (1,), torch.float32)), [x, w]


@pytest.mark.parametrize("name", passes.PASSES)
def test_results_stay_without_a_pass(name):
    gm, inputs = small_graph()
    want = compile_graph(gm, target="reference")(list(inputs))
    with passes.without(name):
        assert not passes.is_on(name)
        got = compile_graph(gm, target="cpp")(list(inputs))
    assert passes.is_on(name)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


def test_without_fusion_and_vectors_the_code_differs():
    gm, _ = small_graph()
    fused = compile_graph(gm, target="cpp")
    with passes.without("fusion"):
        assert len(compile_graph(gm, target="cpp").kernels) >= len(fused.kernels)
    with passes.without("vectors"):
        assert compile_graph(gm, target="cpp").source != fused.source


def test_an_unknown_pass_is_refused():
    with pytest.raises(KeyError), passes.without("no such pass"):
        pass


def test_a_fault_of_a_stage_is_told_apart_from_a_graph_that_is_left_to_eager(monkeypatch):
    from lamina_inductor import config

    def broken(*args, **kwargs):
        raise TargetError("planted")

    gm, inputs = small_graph()
    monkeypatch.setattr("lamina_inductor.compile.schedule", broken)
    with config.patch(strict=False):
        compiled = compile_graph(gm, target="cpp")
    assert compiled.target == "eager" and isinstance(compiled.error, InductorError)
    assert "planted" in compiled.fallback
    compiled(list(inputs))


def test_a_machine_without_a_compiler_runs_what_is_in_the_cache_and_says_what_it_does_else(monkeypatch, tmp_path):
    from lamina_inductor import compile as compile_module
    from lamina_inductor import config

    def none(configured=""):
        raise TargetUnavailable("no C++ compiler was found", hint="install one")

    gm, inputs = small_graph()
    want = compile_graph(gm, target="reference")(list(inputs))
    for name in ("kept", "empty"):
        with config.patch(cache_dir=str(tmp_path / name)):
            build_cache.shared_cache.cache_clear()
            if name == "kept":
                compile_graph(gm)
                monkeypatch.setattr(toolchain, "find_compiler", none)
            compile_module._said.clear()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                compiled = compile_graph(gm)
                compile_graph(gm)
            said = [str(w.message) for w in caught]
            if name == "kept":
                assert compiled.target == "cpp" and not said
            else:
                assert compiled.target == "reference" and len(said) == 1
                assert "no C++ compiler was found (install one)" in said[0] and "slow" in said[0]
            for a, b in zip(compiled(list(inputs)), want, strict=True):
                torch.testing.assert_close(a, b)
