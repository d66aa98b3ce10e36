"""Worker processes that compile Triton kernels side by side: Triton's front end holds the interpreter's lock, so
threads would wait for each other.

Workers start when the first CUDA graph is being lowered, and are idle by the time its kernels are written. They are one
process at first, which splits once Triton is ready, and end with this process.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import json
import os
import pathlib
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from .. import config
from ..errors import TargetError

MAX_WORKERS = 16
DEFAULT_ARCH = 90


class Worker:
    """One process, at the other end of a socket; answers come in the order of the requests."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self._out, self._in = channel.makefile("w"), channel.makefile("r")

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send one request and wait for its answer. Raises TargetError if the process died."""
        try:
            self._out.write(json.dumps(request) + "\n")
            self._out.flush()
            line = self._in.readline()
        except (OSError, ValueError) as e:
            raise TargetError(f"a compile worker ended: {e}") from e
        if not line:
            raise TargetError("a compile worker ended without an answer")
        return json.loads(line)

    def close(self) -> None:
        """The process ends when it has nothing to read any more."""
        with contextlib.suppress(OSError):
            self.channel.shutdown(socket.SHUT_RDWR)
            self.channel.close()


def start_workers(count: int, arch: int | str) -> list[Worker]:
    """`count` workers that compile for `arch` first of all: one process, which splits once it is ready. Requests may be
    sent at once."""
    folder = pathlib.Path(__file__).parent
    pairs = [socket.socketpair() for _ in range(count)]
    ends = [theirs.fileno() for _, theirs in pairs]
    process = subprocess.Popen(
        [sys.executable, str(folder / "triton_worker.py"), str(folder), str(arch), *map(str, ends)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=ends,
        env=config.worker_environment(),
    )
    for _, theirs in pairs:
        theirs.close()
    _processes.append(process)
    return [Worker(ours) for ours, _ in pairs]


_processes: list[subprocess.Popen] = []  # kept so that they are not reported as lost


class WorkerPool:
    """A few workers, each with a thread of this process that hands it one request after the other."""

    def __init__(self, count: int, arch: int | str = DEFAULT_ARCH) -> None:
        self.count = count
        self.arch = arch
        self._jobs: queue.SimpleQueue[tuple[dict[str, Any], Future]] = queue.SimpleQueue()
        self.workers = start_workers(count, arch)
        for k in range(count):
            # daemons: a process that ends does not wait for kernels that nobody will start
            threading.Thread(target=self._serve, args=(k,), name=f"lamina-compile-{k}", daemon=True).start()

    def _serve(self, k: int) -> None:
        while True:
            request, future = self._jobs.get()
            try:
                future.set_result(self._answer(k, request))
            except BaseException as e:  # noqa: BLE001  whoever waits for the answer raises it
                future.set_exception(e)

    def _answer(self, k: int, request: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = self.workers[k].ask(request)
        except TargetError:
            self.workers[k].close()
            (self.workers[k],) = start_workers(1, self.arch)
            raise
        if "failed" in answer:
            raise TargetError(f"Triton cannot compile a kernel: {answer['failed']}")
        answer["image"] = base64.b64decode(answer["image"])
        return answer

    def submit(self, request: dict[str, Any]) -> Future:
        """The answer to one request, later: a mapping with "image" as bytes. Its `result` raises TargetError with
        Triton's words if the kernel cannot be compiled."""
        future: Future = Future()
        self._jobs.put((request, future))
        return future

    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        """`submit`, and wait for the answer."""
        return self.submit(request).result()

    def close(self) -> None:
        """End all workers."""
        for w in self.workers:
            w.close()


def run_beside(work: Callable[[], Any]) -> Future:
    """What `work()` returns or raises, from a thread of its own."""
    future: Future = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as e:  # noqa: BLE001  whoever waits for the answer raises it
            future.set_exception(e)

    threading.Thread(target=run, name="lamina-beside", daemon=True).start()
    return future


def available_processors() -> int:
    """How many processors this process may use: what is left by its affinity and by a limit of its container."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        count = os.cpu_count() or 1
    try:
        quota, period = pathlib.Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(count, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no such file, or no limit ("max")
        return count


_lock = threading.Lock()
_pool: WorkerPool | None = None
_owner = 0


def start(jobs: int = 0, arch: int | str = DEFAULT_ARCH) -> WorkerPool:
    """The process's pool, started if need be (again after a fork). `jobs`: how many workers, 0: one a processor but at
    most `MAX_WORKERS`. `arch`: what they get ready for; they compile for others as well.
    """
    global _pool, _owner
    with _lock:
        if _pool is None or _owner != os.getpid():
            _pool = WorkerPool(jobs or max(1, min(MAX_WORKERS, available_processors())), arch)
            _owner = os.getpid()
            atexit.register(_close, _pool, _owner)
        return _pool


def _close(pool: WorkerPool, owner: int) -> None:
    if os.getpid() == owner:  # a fork's end is not the end of its parent's workers
        pool.close()


def is_running() -> bool:
    """Whether this process has a pool."""
    return _pool is not None and _owner == os.getpid()
