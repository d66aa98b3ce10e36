"""Scripts run in processes of their own, for tries that may end the process or never end.

One server process imports torch and the stack once and forks for each script, so that a try costs what it compiles and
not the imports. The server itself computes nothing: a fork of a process with running OpenMP threads would not be safe.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from typing import Any, NoReturn

from . import config

_PLACE = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')
_POLL = 0.01  # seconds


@dataclass
class Trial:
    """How a script ended: `status` as of a process (negative: the signal that ended it; None: it was still running
    after the limit), its standard error, the seconds that it took."""

    status: int | None
    stderr: str
    seconds: float

    def place(self) -> str:
        """Return " at file:line in function" of the innermost Python frame that was running, or nothing."""
        found = _PLACE.search(self.stderr)
        return f" at {found[1]}:{found[2]} in {found[3]}" if found else ""


class Trials:
    """Runs scripts one after the other; use it in a with-block."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None
        self._answers: Any = None

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, text: str, limit: float) -> Trial:
        """Run a script for at most `limit` seconds."""
        with tempfile.TemporaryDirectory() as folder:
            path, err = os.path.join(folder, "script.py"), os.path.join(folder, "err")
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
            start = time.monotonic()
            try:
                status = self._ask(path, err, limit) if hasattr(os, "fork") else _alone(path, err, limit)
            except (OSError, ValueError):  # no server: each script pays for its imports
                self.close()
                status = _alone(path, err, limit + 30)
            with open(err, encoding="utf-8", errors="replace") as said:
                return Trial(status, said.read(), time.monotonic() - start)

    def _ask(self, path: str, err: str, limit: float) -> int | None:
        if self._server is None:
            reading, writing = os.pipe()
            self._server = subprocess.Popen(
                [sys.executable, "-c", f"from lamina.trials import serve; serve({writing})"], stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True, pass_fds=(writing,),
                env=config.server_environment(),
            )
            os.close(writing)
            self._answers = os.fdopen(reading)
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps([path, err, limit]) + "\n")
        self._server.stdin.flush()
        return json.loads(self._answers.readline())

    def close(self) -> None:
        """End the server."""
        server, self._server = self._server, None
        if server is not None:
            assert server.stdin is not None
            server.stdin.close()
            self._answers.close()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _alone(path: str, err: str, limit: float) -> int | None:
    with open(err, "w") as out:
        try:
            command = [sys.executable, path]
            return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=out, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            return None


def serve(answers: int) -> None:
    """The server: for each line of standard input, a request, write how the script ended to a file descriptor."""
    import importlib

    importlib.import_module("lamina.accuracy")
    for layer in ("lamina_dynamo", "lamina_aot_autograd", "lamina_primtorch", "lamina_inductor.compile"):
        try:
            importlib.import_module(layer)
        except ImportError:
            continue
    with os.fdopen(answers, "w") as out:
        for line in sys.stdin:
            out.write(json.dumps(_forked(*json.loads(line))) + "\n")
            out.flush()


def _forked(path: str, err: str, limit: float) -> int | None:
    child = os.fork()
    if child == 0:
        _run_script(path, err, limit)
    end = time.monotonic() + limit
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            for kill in (os.killpg, os.kill):  # its compilers end with it
                try:
                    kill(child, signal.SIGKILL)
                except OSError:
                    continue
            os.waitpid(child, 0)
            return None
        time.sleep(_POLL)


def _run_script(path: str, err: str, limit: float) -> NoReturn:
    status = 1
    try:
        os.setsid()
        fd = os.open(err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(fd, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        faulthandler.enable(2)
        faulthandler.dump_traceback_later(0.9 * limit, file=2)
        sys.argv = [path]
        try:
            runpy.run_path(path, run_name="__main__")
            status = 0
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)
