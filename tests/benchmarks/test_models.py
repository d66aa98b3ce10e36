"""The model suite's own code: its list, its worker and its report."""

from __future__ import annotations

import copy
import json
import math
import os
import pathlib
import subprocess
import sys
import time

import pytest
import torch

from benchmarks.models import huggingface, judge, registry, report, run, vision_packages, worker
from benchmarks.models.step import Step, are_unit_vectors

ROOT = pathlib.Path(__file__).resolve().parents[2]


def entry_has_builder(e: registry.Entry) -> bool:
    return (
        e.name in huggingface.MODELS
        or e.name in registry._WRITTEN
        or e.name in vision_packages.TORCHVISION
        or e.name == "functorch_dp_cifar10"
        or e.suite == "timm"
        or e.name in vision_packages.RENAMED
    )


def result(speedup: float | None = None, **fields) -> dict:
    """A made-up line of a results file."""
    base = dict(
        key="timm/a",
        suite="timm",
        name="a",
        impl="lamina",
        mode="infer",
        dtype="float32",
        size="small",
        cache="cold",
        status="ok",
        first_call_s=2.0,
        graphs=1,
        breaks=0,
        torch_breaks=0,
        errors={"outputs": {"eager": 1e-7, "compiled": 2e-7, "limit": 1e-5}},
        max_rss_kib=1000,
    )
    return {**base, **({} if speedup is None else {"speedup": speedup}), **fields}


def test_every_name_of_the_list_has_a_builder_or_a_reason():
    entries = registry.load()
    assert len(entries) == 163
    assert len({e.key for e in entries}) == 163
    assert {e.suite for e in entries} == {"huggingface", "timm", "torchbench"}
    assert [e.key for e in entries if not e.missing and not entry_has_builder(e)] == []
    assert all(e.torch_breaks is not None and e.torch_breaks_train is not None for e in entries if not e.missing)


def test_names_of_timm_exist():
    timm = pytest.importorskip("timm", reason="timm is not installed")
    names = [e.name for e in registry.select("timm")]
    arch = [vision_packages.RENAMED.get(n, n).split(".")[0] for n in names]
    assert [a for a in arch if not timm.is_model(a)] == []


def test_select_and_find():
    assert [e.name for e in registry.select("torchbench", "resnet18,dcgan")] == ["dcgan", "resnet18"]
    assert registry.find("torchbench/dcgan").name == "dcgan"
    assert registry.find("cpu/resnet18").suite == "cpu"
    with pytest.raises(KeyError, match="no model"):
        registry.find("timm/no_such_model")


def test_builders_repeat_for_the_same_seed():
    e = registry.find("torchbench/lennard_jones")
    (m1, a1, _), (m2, a2, _) = e.build(small=True), e.build(small=True)
    assert all((p == q).all() for p, q in zip(m1.parameters(), m2.parameters()))
    assert judge.relative_error([t.double() for t in a1], [t.double() for t in a2]) == 0.0


@pytest.mark.parametrize("name", ["lennard_jones", "soft_actor_critic", "nvidia_deeprecommender"])
@pytest.mark.parametrize("impl, mode", [("eager", "train"), ("lamina", "infer")])
def test_worker_runs_a_small_model(name: str, impl: str, mode: str, tmp_path: pathlib.Path):
    cmd = [sys.executable, "-m", "benchmarks.models.worker", f"torchbench/{name}"]
    cmd += ["--impl", impl, "--mode", mode, "--time", "0"]
    if impl == "lamina":
        cmd += ["--backend", "aot_eager"]
    env = dict(os.environ, LAMINA_CACHE_DIR=str(tmp_path), LAMINA_STRICT="1")
    p = subprocess.run(cmd, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    line = next(text for text in reversed(p.stdout.splitlines()) if text.startswith(run.MARK))
    res = json.loads(line[len(run.MARK) :])
    assert res["status"] == "ok", res
    assert set(res["errors"]) == ({"outputs"} if mode == "infer" else {"outputs", "loss", "gradients", "buffers"})
    assert (res["graphs"], res["breaks"]) == ((1, 0) if impl == "lamina" else (0, 0))


def test_worker_reports_an_unknown_model():
    p = subprocess.run(
        [sys.executable, "-m", "benchmarks.models.worker", "timm/nothing"], cwd=ROOT, capture_output=True, text=True
    )
    res = json.loads(p.stdout.splitlines()[-1][len(run.MARK) :])
    assert res["status"] == "error" and "KeyError" in res["error"]


def test_relative_error():
    x = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert judge.relative_error([x], [x]) == 0.0
    assert judge.relative_error([x + torch.tensor([0.0, 5.0])], [x]) == pytest.approx(1.0)
    assert judge.relative_error([x], []) == math.inf
    assert judge.relative_error([x[:1]], [x]) == math.inf
    nan = torch.tensor([math.nan, 4.0], dtype=torch.float64)
    assert judge.relative_error([nan], [nan]) == 0.0
    assert judge.relative_error([x], [nan]) == math.inf


def test_weighted_figure():
    rows = [
        result(2.0),
        result(8.0, name="b"),
        result(3.0, dtype="amp"),
        result(100.0, name="c", status="inaccurate"),
        result(50.0, impl="torch"),
        result(1.5, mode="train"),
    ]
    figure = report.weighted_figure(rows, "lamina")
    assert figure["infer"] == pytest.approx(0.25 * 4.0 + 0.75 * 3.0)
    assert figure["train"] == pytest.approx(1.5)  # only one precision was run
    assert report.weighted_figure(rows, "eager") == {}


def test_report_counts_and_writes(tmp_path: pathlib.Path):
    rows = [
        result(2.0),
        result(name="b", breaks=2),
        result(name="c", status="error", error="ValueError: a | b\nc"),
        result(name="d", status="timeout", error="no result in 9 s"),
    ]
    text = report.table(rows)
    assert "2 of 4 runs give eager's result (50.0 %)" in text
    assert "more graph breaks than the list's torch.compile column: 1: b" in text
    assert "error: ValueError: a / b c" in text
    for block in text.split("\n\n"):  # the cells of each table
        assert len({line.count("|") for line in block.splitlines() if line.startswith("|")}) <= 1
    report.write(rows, tmp_path / "out")
    assert (tmp_path / "out.md").read_text() == text


def test_side_by_side_compares_rows_that_both_ran():
    def both(name, ours, theirs, first):
        return [{**result(ours, name=name, seconds={"eager": 1.0, "lamina": 1 / ours}, first_call_s=first)},
                {**result(theirs, name=name, impl="torch", seconds={"eager": 1.0, "torch": 1 / theirs},
                          first_call_s=10 * first)}]

    text = report.side_by_side([*both("a", 4.0, 1.0, 1.0), *both("b", 1.0, 4.0, 0.5), result(name="alone")])
    assert "Geometric means over 2 rows: 2.00× eager (torch 2.00×), 1.00× torch, smallest 0.25×; 1 rows" in text
    assert "**0.25**" in text and "10.0 times shorter" in text and "alone" not in text
    assert report.side_by_side([result(2.0)]) == ""


def test_a_stopped_run_goes_on(tmp_path: pathlib.Path):
    out = tmp_path / "r.jsonl"
    out.write_text(json.dumps(result()) + "\n\n" + json.dumps(result(mode="train")) + "\n")
    assert {run.key_of(r)[2] for r in run.read(out)} == {"infer", "train"}
    assert run.read(tmp_path / "none.jsonl") == []


def test_an_ill_conditioned_tensor_hides_no_fault_in_another():
    ref = [torch.ones(4, dtype=torch.float64), torch.full((100,), 10.0, dtype=torch.float64)]
    spread = [1e-7, 50.0]  # the second has no right digit in any neighbour
    right = [ref[0] * (1 + 1e-7), ref[1] * 2]
    wrong = [ref[0] * 1.01, ref[1] * 2]
    assert judge.beyond_spread(right, ref, spread, 1e-5) < 1 < judge.beyond_spread(wrong, ref, spread, 1e-5)
    assert judge.relative_error(wrong, ref) < 2 * sum(spread) / 100  # together it was not seen
    assert judge.beyond_spread([torch.zeros(2)], [torch.zeros(2)], [0.0], 1e-5) == 0.0


def test_a_line_written_in_part_is_left_out_and_kept_apart(tmp_path: pathlib.Path):
    path = tmp_path / "rows.jsonl"
    run.append(path, {"key": "a"})
    with path.open("a") as f:
        f.write('{"key": "b", "sta')
    run.append(path, {"key": "c"})
    assert [r["key"] for r in run.read(path)] == ["a", "c"]


@pytest.mark.parametrize("arguments, words", [
    (["--mode", "fast"], "infer, train"),
    (["--impl", "lamina,jax"], "'jax'"),
    (["--dtype", "f32"], "float32, amp"),
    (["--shard", "3/2"], "1/4"),
    (["--only", "no_such_model"], "no_such_model"),
    (["--report", "/nowhere.jsonl"], "/nowhere.jsonl"),
])
def test_wrong_arguments_are_named(arguments, words, capsys):
    with pytest.raises(SystemExit):
        run.main(arguments)
    assert words in capsys.readouterr().err


def test_warm_rows_count_once(tmp_path: pathlib.Path):
    row = {"key": "timm/resnet18", "suite": "timm", "name": "resnet18", "impl": "lamina", "mode": "infer",
           "dtype": "float32", "status": "ok", "errors": {}, "graphs": 1, "breaks": 0}
    rows = [{**row, "cache": "cold"}, {**row, "cache": "warm"}]
    assert any("| timm | infer | float32 | 1 | 1 |" in line for line in report.coverage(rows, "lamina"))


# ---- near ties ----


class Pooled(torch.nn.Module):
    """Two layers around a max pooling."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Linear(16, 16), torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.first(x).reshape(-1, 4, 4).amax(-1))


def judged(compiled_call, model: torch.nn.Module, x: torch.Tensor) -> dict:
    """The errors of a stand-in for a compiled program, judged as the worker does."""
    start = copy.deepcopy(model.state_dict())

    def fresh(m):
        m.load_state_dict(start)
        return m

    eager = Step(model, model, (x,), {}, "train", False, "cpu")
    want = eager.snapshot()
    double, *wide = judge.in_float64(fresh(model), (x,), {})
    exact = eager.like(double, double, *wide).snapshot()
    other = copy.deepcopy(fresh(model))
    step = eager.like(other, lambda *args: compiled_call(other, *args), (x,), {})
    got = step.snapshot()
    errors = judge.errors_of(got, want, exact, 1e-5)
    if judge.is_outside(errors):
        judge.allow_spread(errors, got, exact, judge.rounding_spread(eager, exact, fresh), 1e-5)
    if judge.is_outside(errors):
        judge.allow_tie(errors, got, eager, step, fresh, 1e-5)
    return errors


def nearly_tied(gap: float) -> tuple[torch.nn.Module, torch.Tensor]:
    """A model and an input for which two values of a window of its pooling differ by `gap`."""
    model = Pooled()
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        y = model.first(x)[0, :2]
        model.first.bias[0] += y[1] - y[0] + 2.0
        model.first.bias[1] += 2.0
        model.first.bias[0] += gap
    return model, x


LESS = [1.3e-6, 0.0, 0.0, 0.0]


def other_winner(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The model with a rounding of its own: the first value of each window comes out a little smaller."""
    y = model.first(x).reshape(-1, 4, 4)
    less = torch.tensor(LESS, dtype=y.dtype)
    return model.last((y - less).amax(-1))


class Scaled(torch.autograd.Function):
    """A fault in the backward alone, and in float32 alone: float64 does not see it."""

    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by if x.dtype is torch.float32 else 0.0
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * (1 + ctx.by), None


def test_a_near_tie_is_right():
    errors = judged(other_winner, *nearly_tied(9e-7))
    assert errors["gradients"]["compiled"] > 1e-3 and "medians" in errors["gradients"]
    assert judge.is_right(errors)


@pytest.mark.parametrize("by", [1e-4, 1e-3, 0.3])
def test_a_fault_beside_a_near_tie_is_seen(by):
    def faulty(model, x):
        pooled = (model.first(x).reshape(-1, 4, 4) - torch.tensor(LESS)).amax(-1)
        return model.last(Scaled.apply(pooled, by))

    errors = judged(faulty, *nearly_tied(9e-7))
    assert not judge.is_right(errors), errors


@pytest.mark.parametrize("by", [1e-4, 1e-2])
def test_a_fault_is_no_tie(by):
    def faulty(model, x):
        return model.last(Scaled.apply(model.first(x), by).reshape(-1, 4, 4).amax(-1))

    assert not judge.is_right(judged(faulty, *nearly_tied(0.1)))


def test_a_program_that_does_not_repeat_itself_is_no_tie():
    calls = []

    def unsteady(model, x):
        calls.append(1)
        return other_winner(model, x) if len(calls) == 1 else model(x)

    assert not judge.is_right(judged(unsteady, *nearly_tied(9e-7)))


def test_a_fault_in_float64_is_seen_and_own_seeds_are_fixed():
    model = torch.nn.Linear(4, 4).double()
    x = torch.randn(3, 4, dtype=torch.float64)
    eager = Step(model, model, (x,), {}, "train", False, "cpu")
    exact = eager.snapshot()
    for by, right in ((0.0, True), (1e-6, False)):
        errors = {part: {"eager": 1e-7, "compiled": 1e-3, "limit": 1e-5} for part in exact}
        judge.compare_in_float64(errors, exact, eager, lambda m, by=by: lambda x: m(x) * (1 + by))
        assert all(e["float64"] <= e["float64_limit"] for e in errors.values()) is right

    class OwnSeed(torch.nn.Linear):
        def forward(self, x):
            torch.manual_seed(torch.seed() % 1000)
            return super().forward(x) * torch.rand(4, dtype=x.dtype)

    model = OwnSeed(4, 4).double()
    eager = Step(model, model, (x,), {}, "infer", False, "cpu")
    exact = eager.snapshot()
    for by, right in ((0.0, True), (1e-6, False)):
        errors = {part: {"eager": 1e-7, "compiled": 1e-3, "limit": 1e-5} for part in exact}
        judge.compare_in_float64(errors, exact, eager, lambda m, by=by: lambda x: m(x) * (1 + by))
        assert all(e["float64"] <= e["float64_limit"] for e in errors.values()) is right


def test_vectors_of_length_one_have_a_loss_with_a_gradient():
    class Angular(torch.nn.Linear):
        def forward(self, x):
            return torch.nn.functional.normalize(super().forward(x), dim=-1)

    model = Angular(4, 6).double()
    step = Step(model, model, (torch.randn(3, 4, dtype=torch.float64),), {}, "train", False, "cpu")
    first = step.snapshot()
    assert are_unit_vectors(first["outputs"]) and first["gradients"][0].norm() < 1e-12
    step.weighted = True
    assert step.snapshot()["gradients"][0].norm() > 1e-3
    assert not are_unit_vectors([torch.randn(3, 4)]) and not are_unit_vectors([])


def test_the_time_limit_leaves_out_what_a_program_is_compared_with():
    clock = worker.Clock()
    with clock.stopped():
        time.sleep(0.3)
        assert clock.seconds() < 0.2
    assert clock.seconds() < 0.2
    code = (
        "import time; from benchmarks.models.worker import Clock\n"
        "clock = Clock(); clock.limit(0.5, {'key': 'k', 'error': 'no result in 0.5 s'})\n"
        "with clock.stopped(): time.sleep(1.5)\n"
        "print('compared', flush=True); time.sleep(30)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert "compared" in done.stdout and json.loads(done.stdout.split("@@RESULT ")[1])["status"] == "timeout"
