"""Generated C++ under every instruction set and compiler that this machine has: no warnings, the right numbers."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from lamina_inductor import toolchain

HERE = pathlib.Path(__file__).parent
COMPILERS = [
    ("g++", shutil.which("g++")),
    ("clang++", shutil.which("clang++")),
    ("ziglang", importlib.util.find_spec("ziglang")),
]
BUILDS = [
    (name, level)
    for name, found in COMPILERS
    if found
    for level in ("avx512", "avx2", "base", "scalar")
    if (level == "scalar" or toolchain.can_run_level(level)) and (name, level) != ("g++", toolchain.cpu_level())
]


@pytest.mark.slow
@pytest.mark.parametrize("compiler, level", BUILDS)
def test_every_build_gives_the_right_numbers(compiler, level, tmp_path):
    environment = {
        **os.environ,
        "LAMINA_CXX": compiler,
        "LAMINA_CACHE_DIR": str(tmp_path),
        "LAMINA_STRICT": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(HERE / "built_programs.py"), level]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("finished\n"), done.stdout[-1000:] + done.stderr[-5000:]
