"""explain, check, bisect and minify on a small stack of stand-ins with a fault planted in each stage."""

import importlib
import inspect
import subprocess
import sys
from collections import namedtuple

import pytest
import torch

import lamina
from lamina import (
    accuracy,
    bisection,
    config,
    errors,
    events,
    explanation,
    failures,
    minifier,
    pipeline,
    recording,
    scripts,
)


def program(x, w):
    y = torch.nn.functional.linear(x, w)
    z = torch.relu(y) * 2
    return torch.tanh(z) + y.sum()


@pytest.fixture
def stack(layers, monkeypatch):
    """Stand-ins that trace for real, so that graphs, faults and reductions are real too."""
    monkeypatch.setattr(recording, "captured", importlib.import_module("lamina.compile").captured)

    def optimize(backend, fullgraph=False, dynamic=None):
        def decorate(fn):
            def run(*args):
                gm = torch.fx.symbolic_trace(fn)
                lines, first = inspect.getsourcelines(fn)
                for node in gm.graph.nodes:
                    at = [i for i, line in enumerate(lines) if node.name.split("_")[0] in line]
                    if node.op.startswith("call_") and at:
                        node.meta["stack_trace"] = (f'  File "{__file__}", line {first + at[0]}, in program\n'
                                                    f"    {lines[at[0]].strip()}\n")
                out = next(iter(gm.graph.find_nodes(op="output")))
                out.args = ((out.args[0],),)
                gm.recompile()
                return backend(gm, list(args))(*args)[0]

            return run

        return decorate

    layers.dynamo.optimize = optimize

    def replace(gm, old, new):
        changed = recording.copy_of(gm)
        for node in changed.graph.nodes:
            if node.target is old:
                node.target = new
        changed.recompile()
        return changed

    def plant(stage, old=torch.relu, new=torch.nn.functional.gelu):
        if stage == "aot":
            layers.aot.aot_compile = lambda gm, ins, *, inference_compiler, **_: inference_compiler(
                replace(gm, old, new), ins)
        if stage == "prims":
            layers.prims.decompose = lambda gm, target: replace(gm, old, new)
        if stage == "inductor":
            layers.inductor.compile_graph = lambda gm, ins, target=None, name="", **_: (
                gm if target == "reference" else replace(gm, old, new)).forward

    layers.plant = plant
    return layers


@pytest.fixture
def arguments():
    torch.manual_seed(0)
    return torch.randn(3, 4), torch.randn(5, 4, requires_grad=True)


def test_check_agrees_on_a_sound_stack(stack, arguments):
    report = lamina.check(program)(*arguments)
    assert report.ok and report.first is None and "same as eager" in str(report)
    report.raise_if_different()


@pytest.mark.parametrize("stage, rung", [("aot", "aot_eager"), ("prims", "aot_prims"), ("inductor", "inductor")])
def test_check_and_bisect_name_the_stage_and_the_operator(stack, arguments, stage, rung):
    stack.plant(stage)
    report = lamina.check(program)(*arguments)
    assert report.first == rung and "off by" in str(report)
    with pytest.raises(lamina.CheckError):
        report.raise_if_different()
    culprit = lamina.bisect(program)(*arguments)
    assert (culprit.rung, culprit.graph) == (rung, 0)
    assert "relu" in culprit.operator and "test_tools.py" in culprit.user_line and "relu" in culprit.user_line
    assert "operator" in str(culprit)


def test_bisect_says_nothing_of_a_sound_stack(stack, arguments):
    assert lamina.bisect(program)(*arguments) is None


@pytest.mark.parametrize("fault", ["wrong value", "crash"])
def test_minify_leaves_the_one_operator_and_no_data(stack, arguments, tmp_path, fault):
    if fault == "crash":
        def decompose(gm, target):
            if any(n.target is torch.tanh for n in gm.graph.nodes):
                raise ZeroDivisionError("planted")
            return gm

        stack.prims.decompose = decompose
    else:
        stack.plant("inductor", torch.tanh, torch.sin)
    found = lamina.minify(program, path=str(tmp_path / "small.py"))(*arguments)
    assert found.operations == 1 and "torch.tanh" in found.script
    assert "linear" not in found.script and "relu" not in found.script
    space = {}
    exec(compile(found.script, "small.py", "exec"), space)
    assert space["inputs"]()[0].shape == (3, 5)


def test_minify_finds_nothing_in_a_sound_stack(stack, arguments):
    assert lamina.minify(program)(*arguments) is None


def test_an_isolated_test_sees_death_and_hanging(graph, inputs, monkeypatch):
    scripts_ = {"import os; os.kill(os.getpid(), 9)": "signal 9", "while True: pass": "no result", "": None}
    for body, word in scripts_.items():
        monkeypatch.setattr(minifier, "script_of", lambda *a, body=body, **k: body)
        test = minifier.IsolatedTest("inductor", 3.0)
        why = test(graph, inputs)
        test.trials.close()
        assert why is None if word is None else word in why


def test_explain_as_object_text_and_page(stack, arguments, tmp_path):
    e = lamina.explain(program)(*arguments)
    assert torch.equal(e.result, program(*arguments)) and len(e.graphs) == 1
    assert e.counts()["operations"] == 6 and {"autograd graphs", "code generation"} <= set(e.seconds)
    assert "graph 0: 6 operations" in str(e) and "linear" in str(e)
    assert any(file.endswith("test_tools.py") for file in e.source_lines())
    page = open(e.save(str(tmp_path / "page.html"))).read()
    assert "torch.tanh(z)" in page and "http" not in page.replace("http-equiv", "")
    assert page.count("<section>") == page.count("</section>")


def test_explain_keeps_what_the_run_raised(stack):
    stack.fail["capture"] = None

    def broken(x):
        raise KeyError("mine")

    assert "KeyError" in str(lamina.explain(broken)(torch.ones(1)))


def test_breaks_and_kernels_of_the_layers_are_sorted_in(stack):
    Event = namedtuple("Event", "stage name payload seconds", defaults=(0.0,))
    r = recording.Recording()
    r.events = [
        Event("capture", "graph break",
              {"kind": "unknown_builtin", "reason": "print", "user_line": f"{__file__}:3, in f", "hint": "move it"}),
        Event("capture", "recompile", {"guard": "x.shape[0] == 3", "old": 3, "new": 4}),
        Event("inductor", "kernel", {"name": "k0", "source": "int x;"}),
        Event("inductor", "fusion refused", {"a": "k0", "b": "k1", "reason": "loops differ"}),
        Event("inductor", "autotune", "measuring product 2x2"),
        Event("inductor", "autotune", "product 2x2: linear (µs: library 2.0, linear 1.0)"),
    ]
    r.events.append(r.events[0])
    e = explanation.explanation_of(r, "f")
    assert len(e.breaks) == 1 and e.counts()["graph breaks"] == 2 and "in 2 compiles" in str(e) + e.html()
    assert e.breaks[0].kind == "unknown_builtin" and e.kernels == [("k0", "int x;")]
    assert "loops differ" in str(e) and "x.shape[0] == 3" in str(e)
    assert e.measured == ["product 2x2: linear (µs: library 2.0, linear 1.0)"] and "measured:\n    product" in str(e)
    assert "unknown_builtin" in e.html() and "move it" in e.html()


def test_scripts_compare_and_fail_with_an_exit_status(graph, inputs, tmp_path):
    text = scripts.script_of(graph, inputs, purpose="compare")
    plant = "lamina.pipeline.Rung.__call__ = lambda self, gm, args: lambda *a: (gm(*a)[0] + 1,)"
    text = text.replace("import lamina\n", f"import lamina, lamina.pipeline\n    {plant}\n")
    path = tmp_path / "differs.py"
    path.write_text(text)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
    assert done.returncode == 1 and "CheckError" in done.stderr and "off by" in done.stderr


def test_bisect_names_the_part_of_the_stage_that_is_wrong(stack, arguments):
    """A decomposition is named by its operator, found by leaving it out; other stages name their passes."""
    culprit = bisection.Culprit("", "inductor", "")
    event = namedtuple("event", "stage name payload", defaults=(None,))
    seen = [events.Event("inductor", "compile_graph started", "forward"), event("inductor", "kernel", {"name": "f"}),
            events.Event("inductor", "compile_graph started", "backward"), event("inductor", "kernel", {"name": "b"})]
    assert bisection.last_kernel(seen, "forward") == "f" and bisection.last_kernel(seen, "backward") == "b"
    assert bisection.last_kernel([], "forward") is None and "kernel" not in str(culprit)


def test_failures_are_of_one_kind_or_not():
    same = minifier.kind_of
    assert same("no result in 3 s") == "hang"
    assert same("value 0: off by 3") == same("gradient 1: stride") == "difference"
    assert same("the interpreter died with signal 11") != same("the interpreter died with signal 6")
    assert same("exception: no exception became KeyError: a") == same("exception: no exception became KeyError: b")
    text = "Traceback ...\nlamina.errors.CheckError: inductor   1 differences\n     value 0: off by 0.2\nfirst ..."
    assert minifier.raised_in(text) == "value 0: off by 0.2"
    assert minifier.kind_of(minifier.raised_in("Traceback ...\n  x\ntorch.Some.KeyError: 'a'\n")) == "KeyError"


def test_minify_refuses_what_it_cannot_cut(stack, arguments, monkeypatch):
    monkeypatch.setattr(minifier, "stage_errors", lambda: (stack.CaptureError,))
    with pytest.raises(lamina.OptionError, match="rung"):
        lamina.minify(program, backend="torch_inductor")

    def broken(backend, fullgraph=False, dynamic=None):
        def decorate(fn):
            def run(*args):
                raise stack.CaptureError("planted")

            return run

        return decorate

    stack.dynamo.optimize = broken
    with pytest.raises(errors.LaminaError, match="capture itself failed"):
        lamina.minify(program)(*arguments)


def test_the_script_of_a_crash_is_cut_without_running_anything(stack, arguments, lenient, tmp_path):
    ran = []

    def decompose(gm, target):
        if any(n.target is torch.tanh for n in gm.graph.nodes):
            raise ZeroDivisionError("planted")
        return gm

    def hidden(gm, args):
        ran.append(gm)
        return gm.forward

    stack.prims.decompose = decompose
    gm = torch.fx.symbolic_trace(program)
    for node in gm.graph.nodes:
        node.meta["val"] = torch.empty(3, 5)
    with config.patch(failure_seconds=20.0, dump_dir=str(tmp_path)), pytest.warns(lamina.CompileWarning) as caught:
        pipeline.inductor(gm, list(arguments))
    assert not ran and "script that fails" in str(caught[0].message)
    [script] = tmp_path.glob("failure_*.py")
    text = script.read_text()
    assert "torch.tanh" in text and "relu" not in text and "linear" not in text


def test_two_failures_that_differ_in_numbers_alone_are_told_once(lenient):
    failures.forget()
    with pytest.warns(lamina.CompileWarning) as caught:
        for place in ("/tmp/a1/unit.cpp:3:4: error: no f", "/tmp/b2/unit.cpp:5:6: error: no f"):
            failures.warn(errors.CompileError(f"g++ failed with code 1:\nnote\n{place}", stage="inductor"), KeyError())
    assert len(caught) == 1 and "error: no f" in str(caught[0].message) and "note" not in str(caught[0].message)


def test_check_copies_results_whose_elements_share_memory():
    wide = torch.randn(3, 1).expand(3, 4)
    assert accuracy.as_seen(wide).stride() == (1, 0) and torch.equal(accuracy.as_seen(wide), wide)
    assert accuracy.as_seen(torch.empty(0, 3)).shape == (0, 3)
    flipped = torch.randn(2, 3, dtype=torch.complex64).conj().T
    assert torch.equal(accuracy.as_seen(flipped), flipped) and accuracy.as_seen(flipped).stride() == flipped.stride()


def test_inputs_of_scripts_are_expressions():
    space = {"torch": torch, "tensor": lambda *a, **k: (a, k)}
    for value in (float("nan"), float("inf"), -1.5, 3, True, None):
        assert repr(eval(scripts.input_expression(value), space)) == repr(value)
