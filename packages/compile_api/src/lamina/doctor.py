"""`python -m lamina doctor`: is everything here that compiled programs need, and what to install if not."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from . import cache


@dataclass
class Finding:
    """One line of the report. `level` is ok, note (works, could be better) or bad."""

    name: str
    level: str
    text: str
    todo: str = ""


def _interpreter() -> Finding:
    fine = (3, 10) <= sys.version_info[:2] <= (3, 13)
    text = f"{platform.python_implementation()} {platform.python_version()}"
    if platform.python_implementation() != "CPython" or not fine:
        return Finding("interpreter", "bad", text, "use CPython 3.10 to 3.13")
    return Finding("interpreter", "ok", text)


def _torch() -> Finding:
    major, minor = (int(p) for p in torch.__version__.split(".")[:2])
    level = "ok" if (2, 11) <= (major, minor) <= (2, 14) else "note"
    return Finding("torch", level, f"{torch.__version__}, {torch.get_num_threads()} threads",
                   "" if level == "ok" else "tested with torch 2.11 to 2.14")


def _packages() -> Finding:
    from .pipeline import PACKAGES

    bad, good = [], []
    for name in PACKAGES.values():
        try:
            importlib.import_module(name)
            good.append(f"{name} {importlib.metadata.version(name.replace('_', '-'))}")
        except Exception as error:
            bad.append(f"{name}: {type(error).__name__}: {error}")
    if bad:
        return Finding("packages", "bad", "; ".join(bad), "python -m pip install --force-reinstall lamina")
    return Finding("packages", "ok", ", ".join(good))


def _frame_hook() -> Finding:
    try:
        module = importlib.import_module("lamina_dynamo._eval_frame")
        return Finding("frame hook", "ok", os.path.basename(getattr(module, "__file__", "") or "built in"))
    except ImportError as error:
        return Finding("frame hook", "bad", str(error), "reinstall lamina-dynamo with a C compiler, or use its wheel")


def _compiler() -> Finding:
    from lamina_inductor import config, toolchain
    from lamina_inductor.errors import TargetUnavailable

    try:
        compiler = toolchain.find_compiler(config.current().cxx)
    except TargetUnavailable as error:
        return Finding("C++ compiler", "note", f"{error.message}: the reference target is used, which is slow",
                       error.hint)
    name = "ziglang (from PyPI)" if "ziglang" in compiler.command else compiler.command[0]
    return Finding("C++ compiler", "ok", name)


def _openmp() -> Finding:
    found: set[str] = set()
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                path = line.rsplit(" ", 1)[-1].strip()
                base = os.path.basename(path)
                if base.startswith(("libgomp", "libiomp", "libomp")):
                    found.add(path)
    except OSError:
        return Finding("OpenMP runtime", "note", "cannot be listed on this system")
    if len(found) == 1:
        return Finding("OpenMP runtime", "ok", found.pop())
    if not found:
        return Finding("OpenMP runtime", "note", "none loaded: kernels use one thread")
    return Finding("OpenMP runtime", "bad", ", ".join(sorted(found)),
                   "two runtimes slow each other down a hundredfold: import torch first, and uninstall the other")


def _vector() -> Finding:
    return Finding("vector width", "ok", f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}")


def _gpu() -> Finding:
    if not torch.cuda.is_available():
        return Finding("GPU", "note", "none, or a torch without CUDA")
    name, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    return Finding("GPU", "ok", f"{name}, sm_{capability[0]}{capability[1]}")


def _triton() -> Finding:
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        wanted = torch.cuda.is_available()
        return Finding("Triton", "bad" if wanted else "note", "not installed (needed for GPUs only)",
                       "python -m pip install the triton that your torch names" if wanted else "")
    return Finding("Triton", "ok", version)


def _cache_folder() -> Finding:
    where = cache.folder()
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=where):
            pass
    except OSError as error:
        return Finding("cache folder", "note", f"{where}: {error}", "set LAMINA_CACHE_DIR to a folder you can write to")
    free = shutil.disk_usage(where).free
    owner = where.stat().st_uid == os.getuid() if hasattr(os, "getuid") else True
    if not owner:
        return Finding("cache folder", "bad", f"{where} belongs to another user", "set LAMINA_CACHE_DIR")
    level = "ok" if free > 200e6 else "note"
    return Finding("cache folder", level, f"{cache.describe()}, {free / 1e9:.1f} GB free",
                   "" if level == "ok" else "the disk is nearly full")


def _compiled_step() -> Finding:
    import lamina

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    x = torch.randn(5, 8)
    want = model(x).sum()
    want.backward()
    grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    start = time.perf_counter()
    try:
        with lamina.config.patch(strict=True, failure_script=False):
            got = lamina.compile(model, fullgraph=True)(x).sum()
            got.backward()
    except Exception as error:
        return Finding("compiled step", "bad", f"{type(error).__name__}: {error}".splitlines()[0],
                       "send the output of `python -m lamina env` with this line")
    seconds = time.perf_counter() - start
    own = [p.grad for p in model.parameters() if p.grad is not None]
    same = len(own) == len(grads) and all(
        torch.allclose(a, b, atol=1e-4) for a, b in zip([got, *own], [want, *grads], strict=True)
    )
    if not same:
        return Finding("compiled step", "bad", "result differs from eager", "lamina.check names the stage")
    return Finding("compiled step", "ok", f"one training step equals eager's, {seconds:.2f} s with compiling")


CHECKS: list[Callable[[], Finding]] = [_interpreter, _torch, _packages, _frame_hook, _compiler, _vector, _gpu, _triton,
                                       _cache_folder, _compiled_step, _openmp]


def examine() -> list[Finding]:
    """Run every check; one that fails itself is reported as bad."""
    findings = []
    for check in CHECKS:
        try:
            findings.append(check())
        except Exception as error:
            findings.append(Finding(check.__name__.strip("_"), "bad", f"{type(error).__name__}: {error}"))
    return findings


def report(findings: list[Finding]) -> str:
    """Return the findings as text, worst news last."""
    lines = []
    for f in findings:
        lines.append(f"[{f.level:^4}] {f.name:15} {f.text}")
        if f.todo:
            lines.append(f"       {'':15} -> {f.todo}")
    bad = sum(f.level == "bad" for f in findings)
    lines.append("Everything that is needed is here." if not bad else f"{bad} of {len(findings)} checks failed.")
    return "\n".join(lines)
