"""The C++ compiler: which one, which flags, which vector width. Nothing is probed before the first graph needs it.

Order: the one configured (`Config.cxx`), g++, clang++, and the PyPI package ``ziglang`` (a complete compiler in a
wheel).
The machine's instruction set is one of three *levels* (``avx512``, ``avx2``, ``base``), read from the operating system,
so that a cache
entry made on one machine can say where else it runs.
"""

from __future__ import annotations

import functools
import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import config
from .errors import TargetError, TargetUnavailable

INCLUDE = Path(__file__).parent / "include"

BASE_FLAGS = (
    "-std=c++17", "-O2", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fwrapv",
    "-fno-exceptions", "-Wno-psabi", "-Wno-attributes",
)  # fmt: skip
"""Flags of every unit. `-ffp-contract=off`: eager rounds after every operator. No -ffast-math: NaN, infinities and
signed zeros count. -fno-exceptions: generated code throws nothing and calls only C, which keeps landing pads out."""

_LEVEL_FLAGS = {
    "avx512": ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mavx2", "-mfma", "-mf16c", "-mbmi2"),
    "avx2": ("-mavx2", "-mfma", "-mf16c", "-mbmi2"),
    "neon": (),
    "base": (),
}
_VECTOR_BYTES = {"avx512": 64, "avx2": 32, "neon": 16, "base": 16}
_LEVEL_ORDER = {"base": 0, "avx2": 1, "avx512": 2}
_NEEDS = {
    "avx512": {"avx512f", "avx512dq", "avx512vl", "avx512bw", "avx2", "fma", "f16c", "bmi2"},
    "avx2": {"avx2", "fma", "f16c", "bmi2"},
}


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: `command` (argv prefix) and `family` ("gcc" or "clang")."""

    command: tuple[str, ...]
    family: str


def _cpu_features() -> set[str]:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return set(line.split(":", 1)[1].split())
    except OSError:
        pass
    if sys.platform == "darwin" and platform.machine() == "x86_64":  # untested
        try:
            names = "hw.optional.avx2_0 hw.optional.avx512f".split()
            found = subprocess.run(["sysctl", *names], capture_output=True, text=True, timeout=10).stdout
            return _NEEDS["avx2"] if "avx2_0: 1" in found else set()
        except OSError:
            return set()
    return set()


@functools.cache
def cpu_level() -> str:
    """The widest instruction-set level this machine runs: "avx512", "avx2", "neon" or "base"."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "neon"
    features = _cpu_features()
    for level in ("avx512", "avx2"):
        if features >= _NEEDS[level]:
            return level
    return "base"


def can_run_level(level: str) -> bool:
    """Whether code built for `level` runs on this machine."""
    mine = cpu_level()
    if "neon" in (mine, level):
        return mine == level
    return _LEVEL_ORDER.get(level, 99) <= _LEVEL_ORDER[mine]


def vector_bytes(level: str | None = None) -> int:
    """Bytes of a vector register of `level`."""
    return _VECTOR_BYTES[level or cpu_level()]


@functools.cache
def find_compiler(configured: str = "") -> Compiler:
    """The compiler to use. Raises TargetUnavailable with what to install when there is none."""
    if configured and configured != "ziglang":
        path = shutil.which(configured)
        if path is None:
            raise TargetUnavailable(
                f"the configured C++ compiler {configured!r} was not found", hint="unset LAMINA_CXX or correct it"
            )
        return Compiler((path,), "clang" if "clang" in Path(path).name else "gcc")
    for name in ("g++", "clang++") if not configured else ():
        path = shutil.which(name)
        if path is not None:
            return Compiler((path,), "clang" if name == "clang++" else "gcc")
    if importlib.util.find_spec("ziglang") is not None:
        return Compiler((sys.executable, "-m", "ziglang", "cc"), "clang")
    raise TargetUnavailable("no C++ compiler was found", hint="install g++ or clang, or `pip install ziglang`")


def unit_flags(level: str | None = None) -> tuple[str, ...]:
    """Flags that decide what a unit means: part of the cache key."""
    return BASE_FLAGS + _LEVEL_FLAGS[level or cpu_level()]


def _link_flags(compiler: Compiler) -> list[str]:
    if sys.platform == "darwin":  # untested
        return ["-undefined", "dynamic_lookup"]
    if "ziglang" in compiler.command:
        return ["-Wl,-z,undefs", "-g0", "-fno-sanitize=all"]
    return []


def compile_unit(
    source: str, out: Path, *, configured: str = "", extra: tuple[str, ...] = (), language: str = "c++"
) -> None:
    """Compiles `source` into the shared object `out`. Raises TargetError with the compiler's own words."""
    compiler = find_compiler(configured)
    flags = list(unit_flags()) if language == "c++" else ["-std=c11", "-O2", "-fPIC", "-shared"]
    with tempfile.TemporaryDirectory(prefix="lamina-cc-") as folder:
        text = Path(folder) / ("unit.cpp" if language == "c++" else "unit.c")
        text.write_text(source)
        command = [*compiler.command]
        command += ["-x", language]  # zig's c++ driver would first build a whole libc++
        command += [*flags, *extra, f"-I{INCLUDE}", str(text), "-o", str(out), *_link_flags(compiler)]
        done = subprocess.run(command, capture_output=True, text=True, env=config.compiler_environment())
    if done.returncode != 0:
        raise TargetError(
            f"{compiler.command[0]} failed with code {done.returncode}:\n{done.stderr[-4000:]}",
            hint="this is a bug of the code generator unless the compiler is broken",
        )
