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
