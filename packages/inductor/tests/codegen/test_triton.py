"""The Triton target without a GPU: in Triton's interpreter against eager, and compiled for two architectures."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton exists for Linux only")
sys.path.insert(0, os.path.dirname(__file__))
from triton_programs import GOLDEN, PROGRAMS, registers_of  # noqa: E402

SCRIPT = pathlib.Path(__file__).with_name("triton_programs.py")


def run(mode):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, str(SCRIPT), mode], capture_output=True, text=True, env=env, timeout=900)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr[-3000:]
    return {row["name"]: row for row in found}


@pytest.fixture(scope="module")
def interpreted():
    return run("interpret")


@pytest.fixture(scope="module")
def compiled():
    return run("compile")


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_interpreter_agrees_with_eager(interpreted, name):
    assert not interpreted[name]["problem"]


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_kernels_compile_for_both_architectures(compiled, name):
    kernels = compiled[name]["kernels"]
    assert {k["arch"] for k in kernels} == {80, 90}
    # a few bytes are no want of registers: ptxas trades them for another block on the processor
    assert all(k["cubin"] > 0 and k["spills"] <= 16 for k in kernels)
    assert PROGRAMS[name][0] in {k["form"] for k in kernels}


def test_registers_stay_what_they_were(compiled):
    """Golden figures, of the Triton release that wrote them (``python triton_programs.py golden``)."""
    import triton

    golden = json.loads(GOLDEN.read_text())
    if golden["triton"] != triton.__version__:
        pytest.skip(f"written by Triton {golden['triton']}, this is {triton.__version__}: compilers differ")
    found = registers_of(compiled.values())
    assert found.keys() == golden["registers"].keys()
    for name, row in found.items():
        for arch, registers in row.items():
            before = golden["registers"][name][arch]
            assert len(registers) == len(before), name
            assert all(a <= b * 1.25 + 8 for a, b in zip(registers, before)), (name, arch, registers, before)


def test_long_contiguous_reads_are_vectors(compiled):
    assert any(k["vector"] for k in compiled["full_sum"]["kernels"])


@pytest.mark.skipif(importlib.util.find_spec("triton.backends.amd") is None, reason="this Triton has no AMD backend")
def test_kernels_compile_to_assembly_of_amd_architectures():
    """No such hardware is at hand: the code is made and never run."""
    found = run("amd")
    assert found.keys() == PROGRAMS.keys()
    for row in found.values():
        assert {k["arch"] for k in row["kernels"]} == {"gfx942", "gfx1100"}
        assert all(k["ends"] for k in row["kernels"])
