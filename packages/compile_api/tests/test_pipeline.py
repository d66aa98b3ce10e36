import subprocess
import sys
import warnings
from collections import namedtuple

import pytest
import torch

import lamina
from lamina import events, pipeline
from lamina.options import CompileOptions, check_arguments

ORDER = {
    "eager": [],
    "aot_eager": ["aot_compile"],
    "aot_prims": ["aot_compile", "decompose"],
    "reference": ["aot_compile", "decompose", "compile_graph"],
    "inductor": ["aot_compile", "decompose", "compile_graph"],
}


@pytest.mark.parametrize("rung", ORDER)
def test_each_rung_runs_its_stages_and_keeps_the_result(layers, graph, inputs, rung):
    run = getattr(pipeline, rung)(graph, inputs)
    assert torch.equal(run(*inputs)[0], graph(*inputs)[0])
    assert [c[0] for c in layers.calls] == ORDER[rung]


def test_reference_asks_for_its_target(layers, graph, inputs):
    pipeline.reference(graph, inputs)
    assert ("compile_graph", "reference", "inference") in layers.calls


@pytest.mark.parametrize("stage", ["aot", "prims", "inductor"])
def test_a_failing_stage_warns_once_with_stage_line_and_report(layers, lenient, graph, inputs, stage):
    layers.fail[stage] = RuntimeError("planted")
    with pytest.warns(lamina.CompileWarning) as caught:
        run = pipeline.inductor(graph, inputs)
        pipeline.inductor(graph, inputs)
    assert torch.equal(run(*inputs)[0], graph(*inputs)[0])
    assert len(caught) == 1
    text = str(caught[0].message)
    assert f"the {stage} stage failed" in text and "planted" in text and "model.py:7: return linear(x, w)" in text
    assert "report" in text and "LAMINA_STRICT=1" in text


@pytest.mark.parametrize("stage", ["aot", "prims", "inductor"])
@pytest.mark.parametrize("how", ["strict", "fullgraph"])
def test_strict_and_fullgraph_raise_with_the_cause(layers, graph, inputs, stage, how):
    layers.fail[stage] = cause = RuntimeError("planted")
    rung = pipeline.bind("inductor", CompileOptions(fullgraph=how == "fullgraph"))
    with lamina.config.patch(strict=how == "strict"), pytest.raises(lamina.CompileError) as info:
        rung(graph, inputs)
    assert info.value.stage == stage and info.value.__cause__ is cause
    assert "how to go on" in str(info.value)


def test_the_failure_script_repeats_the_graph_without_data(layers, lenient, graph, inputs, tmp_path):
    layers.fail["inductor"] = RuntimeError("planted for the script")
    with lamina.config.patch(dump_dir=str(tmp_path)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline.inductor(graph, inputs)
    [script] = tmp_path.glob("failure_*.py")
    text = script.read_text()
    assert "linear(x, w)" in text and "(3, 4)" in text
    assert not any(f"{v:.3f}" in text for v in inputs[0].flatten().tolist())
    compile(text, str(script), "exec")


def test_events_carry_the_seconds_of_each_stage(layers, graph, inputs):
    seen = []
    with events.listening(seen.append):
        pipeline.inductor(graph, inputs)
    ended = [(e.stage, e.name) for e in seen if e.seconds and e.name in events.STAGES]
    assert ended == [("prims", "decompose"), ("inductor", "compile_graph"), ("aot", "aot_compile")]
    before = len(seen)
    pipeline.inductor(graph, inputs)
    assert len(seen) == before


def test_own_seconds_leave_out_the_stages_inside():
    Frame = namedtuple("Frame", "stage name payload seconds")
    steps = [("aot_compile started", 0), ("decompose started", 0), ("decompose", 1.0), ("compile_graph started", 0),
             ("compile_graph", 2.0), ("aot_compile", 5.0)]
    backward = [("decompose started", 0), ("decompose", 0.5)]
    frame = Frame("capture", "frame compiled", {}, 9.0)
    seen = [events.Event("x", n, None, s) for n, s in steps] + [frame]
    seen += [events.Event("x", n, None, s) for n, s in backward] + [frame]
    assert events.own_seconds(seen) == {
        "capture": 13.0, "autograd graphs": 2.0, "decomposition": 1.5, "code generation": 2.0}
    assert events.own_seconds([]) == {}


def test_a_missing_package_is_named_with_its_pip_command(monkeypatch):
    monkeypatch.setitem(pipeline.PACKAGES, "prims", "lamina_no_such_layer")
    with pytest.raises(lamina.CompileError, match="pip install lamina-no-such-layer"):
        pipeline.import_stage("prims")


def test_importing_lamina_is_light():
    code = (
        "import sys, time, torch; a = time.process_time(); import lamina; lamina.compile, lamina.config;"
        "b = time.process_time(); assert not {'sympy', 'triton'} & {*sys.modules}, 'heavy'; print(b - a)"
    )
    seconds = (
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(4)
    )
    assert any(s < 0.3 for s in seconds)  # processor time, the best of a few: other jobs slow a process down


def test_options_are_split_by_layer(monkeypatch):
    from lamina import options

    monkeypatch.setattr(options, "layer_fields", lambda layer: {"freezing": False} if layer == "inductor" else {"x": 1})
    settings = check_arguments("default", None, False, "inductor", {"freezing": True, "aot.x": 2})
    assert options.values_for("inductor", settings.values()) == {"freezing": True}
    assert options.values_for("aot", settings.values()) == {"x": 2}
