"""The model suite's own code: its list, its worker and its report."""

from __future__ import annotations

import json
import math
import os
import pathlib
import subprocess
import sys

import pytest
import torch

from benchmarks.models import huggingface, registry, report, run, vision_packages, worker

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
    assert worker.relative_error([t.double() for t in a1], [t.double() for t in a2]) == 0.0


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
    assert worker.relative_error([x], [x]) == 0.0
    assert worker.relative_error([x + torch.tensor([0.0, 5.0])], [x]) == pytest.approx(1.0)
    assert worker.relative_error([x], []) == math.inf
    assert worker.relative_error([x[:1]], [x]) == math.inf
    nan = torch.tensor([math.nan, 4.0], dtype=torch.float64)
    assert worker.relative_error([nan], [nan]) == 0.0
    assert worker.relative_error([x], [nan]) == math.inf


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
    assert worker.beyond_spread(right, ref, spread, 1e-5) < 1 < worker.beyond_spread(wrong, ref, spread, 1e-5)
    assert worker.relative_error(wrong, ref) < 2 * sum(spread) / 100  # together it was not seen
    assert worker.beyond_spread([torch.zeros(2)], [torch.zeros(2)], [0.0], 1e-5) == 0.0


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
