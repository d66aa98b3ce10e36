"""What a user meets when something is missing, broken or full: the right result, a clear message, nothing lost."""

from __future__ import annotations

import os
import pathlib
import signal
import stat
import subprocess
import sys
import time
import warnings

import pytest
import torch

import lamina

PROGRAM = """
import sys, warnings, torch, lamina
warnings.simplefilter("always")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
x = torch.randn(5, 8)
want = model(x).sum(); want.backward()
grads = [p.grad.clone() for p in model.parameters()]
model.zero_grad()
got = lamina.compile(model)(x).sum(); got.backward()
assert torch.allclose(got, want, atol=1e-4)
assert all(torch.allclose(p.grad, g, atol=1e-4) for p, g in zip(model.parameters(), grads))
print("right result")
"""


def run(cache: pathlib.Path, program: str = PROGRAM, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("LAMINA_STRICT", "LAMINA_LOGS", "LAMINA_DUMP_DIR")}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300,
                          env={**clean, "LAMINA_CACHE_DIR": str(cache), **env})


def assert_right(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0 and "right result" in done.stdout, done.stderr[-3000:]


def test_no_compiler(tmp_path):
    done = run(tmp_path, PATH=str(tmp_path), CXX="", CC="")
    assert_right(done)


def test_a_cache_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    assert_right(run(tmp_path / "file" / "cache"))


def test_a_read_only_cache_folder(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert_right(run(folder))
    finally:
        folder.chmod(stat.S_IRWXU)


FULL = """
import errno, os, torch, lamina_inductor.build_cache as cache
write = cache.write_whole
def full(path, data):
    if str(path).startswith(os.environ["LAMINA_CACHE_DIR"]):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))
    write(path, data)
cache.write_whole = full
"""


def test_a_full_cache_folder(tmp_path):
    done = run(tmp_path / "cache", FULL + PROGRAM)
    assert_right(done)
    assert "No space left" in done.stderr, done.stderr


def test_a_saved_cache_spares_the_compiler(tmp_path):
    command = "import sys, lamina.__main__ as m; sys.exit(m.main(sys.argv[1:]))"

    def cache(folder: str, *arguments: str) -> str:
        env = {**os.environ, "LAMINA_CACHE_DIR": str(tmp_path / folder)}
        done = subprocess.run([sys.executable, "-c", command, "cache", *arguments], capture_output=True, text=True,
                              timeout=120, env=env)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    assert_right(run(tmp_path / "a"))
    assert "files" in cache("a", "show")
    cache("a", "save", str(tmp_path / "packed"))
    cache("b", "load", str(tmp_path / "packed"))

    def objects() -> list[pathlib.Path]:
        return sorted((tmp_path / "b").rglob("*.so"))

    before = objects()
    assert before
    assert_right(run(tmp_path / "b"))
    assert objects() == before  # nothing had to be compiled
    cache("b", "clear")
    assert not objects()


def test_corrupt_entries_are_rebuilt(tmp_path):
    assert_right(run(tmp_path))
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert files
    for file in files:
        file.chmod(0o600)
        file.write_bytes(b"garbage")
    assert_right(run(tmp_path))
    assert_right(run(tmp_path))


def test_truncated_entries_are_rebuilt(tmp_path):
    assert_right(run(tmp_path))
    for file in [p for p in tmp_path.rglob("*") if p.is_file()]:
        file.chmod(0o600)
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert_right(run(tmp_path))


def test_a_process_killed_half_way_loses_nothing(tmp_path):
    env = {**os.environ, "LAMINA_CACHE_DIR": str(tmp_path)}
    for delay in (2.0, 2.6, 3.4):
        victim = subprocess.Popen([sys.executable, "-c", PROGRAM], env=env, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        time.sleep(delay)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    assert_right(run(tmp_path))


def test_two_processes_share_a_cold_cache(tmp_path):
    env = {**os.environ, "LAMINA_CACHE_DIR": str(tmp_path)}
    both = [subprocess.Popen([sys.executable, "-c", PROGRAM], env=env, stdout=subprocess.PIPE, text=True)
            for _ in range(2)]
    assert ["right result" in p.communicate(timeout=300)[0] for p in both] == [True, True]


@pytest.mark.parametrize("stage, module, name", [
    ("aot", "lamina_aot_autograd", "aot_compile"),
    ("prims", "lamina_primtorch", "decompose"),
    ("inductor", "lamina_inductor", "compile_graph"),
])
def test_an_internal_error_runs_in_eager_with_one_warning(monkeypatch, stage, module, name):
    import importlib

    def broken(*args, **kwargs):
        raise RuntimeError("planted fault")

    monkeypatch.setattr(importlib.import_module(module), name, broken)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
    x = torch.randn(2, 3)
    with lamina.config.patch(strict=False), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = lamina.compile(model)(x)
        got.sum().backward()
    assert torch.equal(got, model(x)) and model[0].weight.grad is not None
    texts = [str(w.message) for w in caught if issubclass(w.category, lamina.CompileWarning)]
    assert len(texts) == 1 and f"the {stage} stage failed" in texts[0] and "planted fault" in texts[0], texts
    assert "test_failures.py" in texts[0] or "nn/modules" in texts[0], texts[0]
    for arguments in ({"fullgraph": True}, {}):
        lamina.reset()
        with lamina.config.patch(strict=not arguments), pytest.raises(lamina.CompileError, match="planted fault"):
            lamina.compile(model, **arguments)(x)


def test_unsupported_python_breaks_and_does_not_fail():
    import json

    def f(x):
        text = json.dumps({"n": 3})
        return x * json.loads(text)["n"] + 1

    assert lamina.compile(f)(torch.ones(2)).tolist() == [4, 4]


def test_fullgraph_names_the_line():
    def f(x):
        if x.sum() > 0:  # depends on data
            return x + 1
        return x - 1

    with pytest.raises(lamina.CompileError) as info:
        lamina.compile(f, fullgraph=True)(torch.ones(2))
    assert "depends on data" in str(info.value) and info.value.hint
    assert lamina.compile(f)(torch.ones(2)).tolist() == [2, 2]


def test_an_exception_of_the_program_keeps_type_and_line():
    class Mine(ValueError):
        pass

    def f(x):
        if x.shape[0] > 2:
            raise Mine("too long")
        return x + 1

    fast = lamina.compile(f)
    fast(torch.ones(2))
    with pytest.raises(Mine, match="too long"):
        fast(torch.ones(3))
