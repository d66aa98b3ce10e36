"""Worker processes: answers, errors, and workers that die."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton exists for Linux only")

from lamina_inductor.codegen import triton_pool  # noqa: E402
from lamina_inductor.errors import TargetError  # noqa: E402

KERNEL = """
import triton
import triton.language as tl
from lamina_inductor.codegen import triton_math as lm


@triton.jit
def double(x, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    tl.store(x + index, lm.tanh(tl.load(x + index)) * 2)
"""


def request(path, arch=90):
    return {
        "id": 1,
        "path": str(path),
        "function": "double",
        "signature": {"x": "*fp32", "BLOCK": "constexpr"},
        "constexprs": {"BLOCK": 128},
        "aligned": ["x"],
        "arch": arch,
        "options": {"num_warps": 4, "num_stages": 1},
    }


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    os.environ["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    made = triton_pool.WorkerPool(2)
    yield made
    made.close()
    del os.environ["TRITON_CACHE_DIR"]


def test_answers_come_for_each_request(pool, tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL)
    answers = [pool.submit(request(path, arch)) for arch in (90, 80, 90)]
    for answer in answers:
        assert answer.result()["name"] == "double" and answer.result()["image"][:4] == b"\x7fELF"


def test_errors_carry_tritons_words(pool, tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(KERNEL.replace("lm.tanh", "lm.no_such_function"))
    with pytest.raises(TargetError, match="no_such_function"):
        pool.compile(request(path))


def test_a_worker_that_dies_is_replaced(pool, tmp_path):
    deadly, good = tmp_path / "deadly.py", tmp_path / "good.py"
    deadly.write_text("import os; os._exit(1)")
    good.write_text(KERNEL)
    for _ in range(3):
        with pytest.raises(TargetError, match="ended"):
            pool.compile(request(deadly))
    assert pool.compile(request(good))["image"]


def test_workers_end_with_their_process(tmp_path):
    text = (
        "from lamina_inductor.codegen import triton_pool\n"
        "triton_pool.start(2)\n"
        "print(*[p.pid for p in triton_pool._processes], flush=True)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=env, timeout=120)
    (pid,) = map(int, done.stdout.split())
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        import time

        time.sleep(0.3)
    raise AssertionError("a worker outlived its process")


def test_processors_are_counted():
    assert 1 <= triton_pool.available_processors() <= (os.cpu_count() or 1)
