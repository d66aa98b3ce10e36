"""Worker processes that compile Triton kernels side by side: Triton's front end holds the interpreter's lock, so
threads would wait for each other.

Workers start when the first CUDA graph is being lowered, and are idle by the time its kernels are written. They end
with this process.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
from typing import Any

from .. import config
from ..errors import TargetError

MAX_WORKERS = 16


class Worker:
    """One process; answers come in the order of the requests."""

    def __init__(self) -> None:
        folder = pathlib.Path(__file__).parent
        self.process = subprocess.Popen(
            [sys.executable, str(folder / "triton_worker.py"), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=config.worker_environment(),
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send one request and wait for its answer. Raises TargetError if the process died."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError as e:
            raise TargetError(f"a compile worker ended: {e}") from e
        if not line:
            raise TargetError("a compile worker ended without an answer")
        return json.loads(line)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class WorkerPool:
    """A few workers, taken by whoever has something to compile."""

    def __init__(self, count: int) -> None:
        self._free: queue.LifoQueue[Worker] = queue.LifoQueue()
        self.count = count
        self.workers = [Worker() for _ in range(count)]
        for w in self.workers:
            self._free.put(w)

    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request, with "image" as bytes. Raises TargetError with Triton's words if it fails."""
        worker = self._free.get()
        try:
            answer = worker.ask(request)
        except TargetError:
            worker.close()
            worker = Worker()
            raise
        finally:
            self._free.put(worker)
        if "failed" in answer:
            raise TargetError(f"Triton cannot compile a kernel: {answer['failed']}")
        answer["image"] = base64.b64decode(answer["image"])
        return answer

    def close(self) -> None:
        """End all workers."""
        for w in self.workers:
            w.close()


_lock = threading.Lock()
_pool: WorkerPool | None = None
_owner = 0


def start(jobs: int = 0) -> WorkerPool:
    """The process's pool, started if need be (again after a fork). `jobs`: how many workers, 0: one a core but at
    most `MAX_WORKERS`.
    """
    global _pool, _owner
    with _lock:
        if _pool is None or _owner != os.getpid():
            _pool = WorkerPool(jobs or max(1, min(MAX_WORKERS, os.cpu_count() or 1)))
            _owner = os.getpid()
            atexit.register(_pool.close)
        return _pool


def is_running() -> bool:
    """Whether this process has a pool."""
    return _pool is not None and _owner == os.getpid()
