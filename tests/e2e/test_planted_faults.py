"""Faults planted in the real stages: `check` names the stage, `bisect` the operator, `minify` writes a failing
script.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

FAULTS = {
    "aot": ("aot_eager", "tanh", """
import copy, lamina_aot_autograd as aot, torch
real = aot.aot_compile
def wrong(gm, inputs, **kwargs):
    gm = copy.deepcopy(gm)
    for node in gm.graph.nodes:
        if node.target is torch.tanh:
            node.target = torch.sin
    gm.recompile()
    return real(gm, inputs, **kwargs)
aot.aot_compile = wrong
"""),
    "decomposition": ("aot_prims", "hardtanh", """
from lamina_primtorch import decomps
import lamina_primtorch.prims as p
decomps.DECOMPOSITIONS["hardtanh.default"] = lambda x, lo=-1, hi=1: p.mul(x, x)
"""),
    "lowering": ("reference", "cos", """
from lamina_inductor.lowering.registry import load_lowerings
table = load_lowerings()
table["cos"] = table["sin"]
"""),
    "generated code": ("inductor", "tanh", """
from lamina_inductor.codegen import cpp_ops
cpp_ops.TEXT["tanh"] = cpp_ops.TEXT["sin"]
"""),
}
PROGRAM = """
import sys, torch, lamina
def program(x, w):
    y = torch.nn.functional.linear(x, w)
    y = torch.nn.functional.hardtanh(y)
    y = torch.cos(y) + 1
    return torch.tanh(y) * 2
torch.manual_seed(0)
args = torch.randn(5, 8), torch.randn(6, 8, requires_grad=True)
report = lamina.check(program)(*args)
culprit = lamina.bisect(program)(*args)
found = lamina.minify(program, path=sys.argv[1])(*args)
print("first", report.first)
print("stage", report.stage)
print("culprit", culprit.rung, culprit.operator, culprit.user_line)
print("kernel", culprit.kernel)
print("operations", found.operations)
"""


def run(tmp_path: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LAMINA_CACHE_DIR": str(tmp_path / "cache")}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=500, env=env)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault, tmp_path):
    rung, operator, plant = FAULTS[fault]
    source, script = tmp_path / "program.py", tmp_path / "small.py"
    source.write_text(plant + PROGRAM)
    done = run(tmp_path, str(source), str(script))
    assert done.returncode == 0, done.stderr[-3000:]
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert said["first"] == rung, done.stdout
    assert said["culprit"].startswith(f"{rung} ") and operator in said["culprit"], done.stdout
    if rung == "inductor":
        assert said["kernel"] != "None", done.stdout
    assert int(said["operations"]) <= 2, done.stdout
    assert operator in script.read_text()

    sound = run(tmp_path / "sound", str(script))
    assert sound.returncode == 0, sound.stderr[-3000:]
    again = f"{plant}\nimport runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    faulty = run(tmp_path / "faulty", "-c", again)
    assert faulty.returncode != 0 and "CheckError" in faulty.stderr, faulty.stdout + faulty.stderr


# Faults that end or hold up the process, planted in every process by sitecustomize: those of minify's tries, too.
FATAL = {
    "hang in the compiler": ("inductor", "tanh", "no result in", """
import time
import lamina_primtorch as prims
real = prims.decompose
def decompose(gm, *rest):
    while any(str(n.target) == "aten.tanh.default" for n in gm.graph.nodes):
        time.sleep(0.01)
    return real(gm, *rest)
prims.decompose = decompose
"""),
    "crash in generated code": ("inductor", "tanh", "signal 11", """
from lamina_inductor.codegen import cpp_ops
tanh = cpp_ops.TEXT["tanh"]
cpp_ops.TEXT["tanh"] = lambda *a: "({ *(volatile int*)8 = 1; " + tanh(*a) + "; })"
"""),
    "hang in capture": ("capture", "program", "capture itself hangs", """
import time
import lamina_dynamo.translator.base as base
init = base.Translator.__init__
def slow(self, *rest, **more):
    init(self, *rest, **more)
    while "tanh" in self.f_code.co_names:
        time.sleep(0.01)
base.Translator.__init__ = slow
"""),
}
FATAL_PROGRAM = """
import sys, torch, lamina, lamina.minifier
lamina.minifier.QUICK = 3.0
def program(x):
    return torch.tanh(x + 1) * 2
try:
    found = lamina.minify(program, path=sys.argv[1], isolate=True, timeout=10)(torch.randn(5, 8))
    print(found.operations, found.failure)
except lamina.errors.LaminaError as error:
    print(error)
"""


@pytest.mark.parametrize("fault", FATAL)
def test_a_fault_that_ends_or_holds_up_the_process_is_cut_down(fault, tmp_path):
    rung, operator, words, plant = FATAL[fault]
    guarded = "import os\nif os.environ.get('PLANTED'):\n" + "\n".join(f"    {line}" for line in plant.splitlines())
    (tmp_path / "sitecustomize.py").write_text(guarded)
    source, script = tmp_path / "program.py", tmp_path / "small.py"
    source.write_text(FATAL_PROGRAM)
    env = {**os.environ, "LAMINA_CACHE_DIR": str(tmp_path / "cache"), "PLANTED": "1",
           "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, str(source), str(script)], capture_output=True, text=True, timeout=500,
                          env=env)
    assert done.returncode == 0 and words in done.stdout, done.stdout + done.stderr[-3000:]
    if rung == "capture":
        assert operator in done.stdout and "your code" in done.stdout, done.stdout
        return
    assert done.stdout.startswith("1 "), done.stdout
    text = script.read_text()
    assert operator in text and "+ 1" not in text and "* 2" not in text
    sound = run(tmp_path / "sound", str(script))
    assert sound.returncode == 0, sound.stderr[-3000:]


def test_minify_keeps_data_only_when_asked(tmp_path):
    plant = """
import lamina.pipeline as pipeline
real = pipeline.Rung.__call__
def faulty(self, gm, inputs):
    run = real(self, gm, inputs)
    return lambda *a: tuple(o + 1 if float(a[0].max()) == 777.0 else o for o in run(*a))
pipeline.Rung.__call__ = faulty
"""
    program = plant + """
import sys, torch, lamina
def program(x):
    return torch.sin(x)
x = torch.zeros(3, 4).t()
x[1, 2] = 777.0
assert lamina.minify(program, backend="aot_eager")(x) is None
found = lamina.minify(program, backend="aot_eager", path=sys.argv[1], data=True)(x)
print(found.failure)
"""
    source, script = tmp_path / "program.py", tmp_path / "small.py"
    source.write_text(program)
    done = run(tmp_path, str(source), str(script))
    assert done.returncode == 0 and "off by" in done.stdout, done.stdout + done.stderr[-3000:]
    space: dict = {"__name__": "script"}
    exec(compile(script.read_text(), "small.py", "exec"), space)
    [x] = space["inputs"]()
    assert x.shape == (4, 3) and x.stride() == (1, 4) and float(x[1, 2]) == 777.0
