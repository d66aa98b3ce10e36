"""Choosing block sizes by measurement: the rule for what may be tried, and the choice itself with a stand-in clock."""

import os
import pathlib
import sys

import pytest
import torch

pytest.importorskip("triton", reason="Triton exists for Linux only")

from lamina_inductor.codegen import triton_autotune
from lamina_inductor.codegen.triton_autotune import Choices, candidates, choose
from lamina_inductor.codegen.triton_kernel import generate
from lamina_inductor.errors import TargetError

sys.path.insert(0, os.path.dirname(__file__))


def kernels_of(*names):
    import triton_programs as programs

    from lamina_inductor import compile_graph

    class Keep:
        name = "keep"

        def unavailable(self):
            return None

        def can_lower(self, op, dtype):
            return None

        def build(self, program, config):
            self.kernels = {s.key(): generate(s) for s in program.kernels}
            return lambda *inputs: ()

    out = {}
    for name in names:
        gm, inputs, _ = programs.graph_of(name)
        keep = Keep()
        compile_graph(gm, inputs, target=keep)
        out.update(keep.kernels)
    return out


@pytest.fixture(scope="module")
def kernels():
    return kernels_of("pointwise", "transpose", "softmax", "full_sum", "long_softmax")


def test_the_rule_comes_first_and_nothing_twice(kernels):
    for kernel in kernels.values():
        tried = candidates(kernel)
        assert tried[0] == kernel.configs[0]
        assert all(a != b for k, a in enumerate(tried) for b in tried[:k])


def test_blocks_divide_sizes_that_are_not_masked(kernels):
    for kernel in kernels.values():
        for size, block in kernel.launches[0].grid:
            if block and "xmask" not in "".join(x for x in kernel.source.splitlines() if "tl.load" in x):
                if all(int(size) % c[block] == 0 for c in kernel.configs):
                    assert all(int(size) % c[block] == 0 for c in candidates(kernel))


def test_rewritten_kernels_are_found_in_their_program(monkeypatch):
    import triton_programs as programs

    long_rows = ("looped", [lambda: torch.randn(300, 9000)], programs.PROGRAMS["softmax"][2])
    monkeypatch.setitem(programs.PROGRAMS, "long rows", long_rows)
    found = kernels_of("long rows")
    assert any(kernel.spec.key() != key for key, kernel in found.items())
    assert all(kernel.program_key == key for key, kernel in found.items())


def test_the_fastest_is_chosen_and_kept(kernels, tmp_path):
    key, kernel = next((k, v) for k, v in kernels.items() if len(candidates(v)) > 2)
    best = candidates(kernel)[-1]
    calls = []

    def measure(k, c):
        calls.append(c)
        return 1.0 if c == best else 2.0

    choices = Choices(tmp_path, "card")
    assert choose({key: kernel}, measure, choices)[key] == best
    assert len(calls) == len(candidates(kernel))
    assert choose({key: kernel}, measure, choices)[key] == best
    assert len(calls) == len(candidates(kernel))  # nothing measured again
    assert choose({key: kernel}, measure, Choices(tmp_path, "another card"))[key] == best
    assert len(calls) == 2 * len(candidates(kernel))


def test_equal_times_keep_the_rule(kernels, tmp_path):
    got = choose(kernels, lambda k, c: 1.0, Choices(tmp_path, ""))
    assert all(c == kernels[key].configs[0] for key, c in got.items())


def test_candidates_that_cannot_run_are_passed_over(kernels, tmp_path):
    def measure(k, c):
        if c == k.configs[0]:
            raise TargetError("too much shared memory")
        return 1.0

    for key, c in choose(kernels, measure, Choices(tmp_path, "")).items():
        assert c == candidates(kernels[key])[1]


def test_the_budget_ends_the_measuring(kernels, tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(triton_autotune.time, "monotonic", lambda: now[0])

    def measure(k, c):
        now[0] += 10.0
        return 1.0

    events = []
    from lamina_inductor import observe

    remove = observe.on_event(lambda e: events.append(e) if e.name == "autotune" else None)
    try:
        got = choose(kernels, measure, Choices(tmp_path, ""), budget=15.0)
    finally:
        remove()
    assert len(got) == 1
    assert "stopped after 15 s" in events[-1].payload


def test_damaged_choices_are_measured_again(kernels, tmp_path):
    key, kernel = next((k, v) for k, v in kernels.items() if len(candidates(v)) > 1)
    choices = Choices(tmp_path, "")
    choices.write(kernel, kernel.configs[0])
    for file in pathlib.Path(tmp_path).iterdir():
        file.write_text("{")
    assert choices.read(kernel) is None
    choices.write(kernel, {"XBLOCK": 3})
    assert choices.read(kernel) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_measured_on_the_device(tmp_path):
    from programs import Tracer

    import lamina_primtorch
    from lamina_inductor import compile_graph
    from lamina_inductor.config import Config

    x = torch.randn(4096, 512, device="cuda")
    tracer = Tracer(x)
    gm = lamina_primtorch.decompose(tracer.finish(tracer.call(torch.ops.aten._softmax.default, x, -1, False)), "prims")
    run = compile_graph(gm, [x], config=Config(max_autotune=True, cache_dir=str(tmp_path), strict=True))
    torch.testing.assert_close(run([x])[0], torch.softmax(x, -1))
    assert list(tmp_path.rglob("*.tuned.json"))
