"""Run the model suite and write its results.

    python -m benchmarks.models.run --suite timm --size small --mode infer,train --dtype float32 --impl lamina,torch
    python -m benchmarks.models.run --report results.jsonl          only the report

One process a model, mode, precision and implementation, with a time limit. Results are appended to a JSON-lines file
as they come: a run that was stopped goes on where it was. ``--shard 1/4`` takes every fourth model; ``--prefork``
saves the import of the libraries in each process.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from . import registry, report

MARK = "@@RESULT "
LONGEST = 5
"""Time limits that a process may last with the runs in eager, in float64 and beside the given program, which the limit
does not count."""


def key_of(r: dict) -> tuple:
    return *(r.get(k) for k in ("key", "impl", "mode", "dtype", "size", "cache")), r.get("device") or "cpu"


def read(path: pathlib.Path) -> list[dict]:
    """The rows of a results file. A line that a killed run wrote in part is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


def append(path: pathlib.Path, row: dict) -> None:
    """Add a row to a results file, on a line of its own whatever a killed run left at the end."""
    with path.open("a+b") as f:
        broken = f.tell() > 0 and (f.seek(-1, os.SEEK_END), f.read(1))[1] != b"\n"
        f.write((b"\n" if broken else b"") + json.dumps(row).encode() + b"\n")


def started(cmd: list[str], env: dict[str, str], limit: float) -> tuple[int, str, str]:
    """Run a command in a process of its own; return its status and what it printed."""
    root = pathlib.Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=env, cwd=root,
        start_new_session=True,
    ) as p:
        try:
            out, err = p.communicate(timeout=limit)
        except BaseException:  # out of time, or this run is stopped: its compilers end with it
            os.killpg(p.pid, signal.SIGKILL)
            raise
    return p.returncode, out, err


def forked(cmd: list[str], env: dict[str, str], limit: float) -> tuple[int, str, str]:
    """The same in a fork of this process, which has imported torch and the model libraries, but not lamina."""
    from . import worker

    with tempfile.TemporaryDirectory() as folder:
        out, err = pathlib.Path(folder, "out"), pathlib.Path(folder, "err")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for fd, path in ((1, out), (2, err)):
                    os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), fd)
                os.setsid()  # its compilers end with it
                os.environ.update(env)
                sys.argv = cmd[2:]
                worker.main()
                code = 0
            finally:
                os._exit(code)
        end = time.time() + limit
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            if time.time() > end:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise subprocess.TimeoutExpired(cmd, limit)
            time.sleep(0.05)
        return os.waitstatus_to_exitcode(status), *(
            p.read_text(errors="replace") if p.exists() else "" for p in (out, err)
        )


def run_one(
    entry: registry.Entry, impl: str, mode: str, dtype: str, a: argparse.Namespace, cache: pathlib.Path, state: str
) -> dict:
    cmd = [
        sys.executable,
        "-m",
        "benchmarks.models.worker",
        entry.key,
        "--impl",
        impl,
        "--mode",
        mode,
        "--dtype",
        dtype,
        "--size",
        a.size,
        "--device",
        a.device,
        "--time",
        str(a.time),
        "--limit",
        str(a.timeout),
    ]
    if a.backend and impl == "lamina":
        cmd += ["--backend", a.backend]
    env = dict(
        os.environ,
        LAMINA_CACHE_DIR=str(cache / "lamina"),
        TORCHINDUCTOR_CACHE_DIR=str(cache / "torch"),
        TRITON_CACHE_DIR=str(cache / "triton"),
    )
    base = {
        "key": entry.key,
        "suite": entry.suite,
        "name": entry.name,
        "impl": impl,
        "mode": mode,
        "dtype": dtype,
        "size": a.size,
        "device": a.device,
        "machine": report.machine(),
    }
    t = time.time()
    try:
        # the process counts the time itself; this is for one that cannot
        status, stdout, stderr = (forked if a.prefork else started)(cmd, env, LONGEST * a.timeout + 60)
    except subprocess.TimeoutExpired:
        return {**base, "cache": state, "status": "timeout", "error": f"no result in {a.timeout:g} s"}
    res = {
        **base,
        "status": "error",
        "error": f"the process ended with status {status}: " + " ".join(stderr.strip().splitlines()[-2:])[-300:],
    }
    for line in reversed(stdout.splitlines()):
        if line.startswith(MARK):
            res = json.loads(line[len(MARK) :])
            break
    if res["status"] == "error" and a.logs:
        pathlib.Path(a.logs).mkdir(parents=True, exist_ok=True)
        (pathlib.Path(a.logs) / f"{entry.name}.{impl}.{mode}.{dtype}.txt").write_text(stdout + stderr)
    return {
        **base,
        **res,
        "cache": state,
        "process_s": time.time() - t,
        "torch_breaks": entry.torch_breaks if mode == "infer" else entry.torch_breaks_train,
    }


def commit() -> str | None:
    """The commit of this checkout, short; None outside a repository."""
    root = pathlib.Path(__file__).resolve().parent
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True)
    return found.stdout.strip() or None if found.returncode == 0 else None


def progress(done: int, total: int, text: str) -> None:
    if sys.stdout.isatty():
        width = 30
        bar = "#" * (width * done // max(total, 1))
        print(f"\r[{bar:<{width}}] {done}/{total} {text:<60.60}", end="", flush=True)
    else:
        print(f"{done}/{total} {text}", flush=True)


def main(argv: list[str] | None = None) -> int:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--suite", choices=("huggingface", "timm", "torchbench", "cpu", "gpu"))
    ap.add_argument("--only", help="comma-separated parts of names")
    ap.add_argument("--size", choices=("small", "full"), default="small")
    ap.add_argument("--small", action="store_const", const="small", dest="size", help="same as --size small")
    ap.add_argument("--mode", default="infer,train")
    ap.add_argument("--dtype", default="float32")
    ap.add_argument("--impl", default="lamina,torch")
    ap.add_argument("--backend", help="lamina's backend")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--time", type=float, default=2.0)
    ap.add_argument("--timeout", type=float, default=600.0,
                    help="seconds a model; runs in eager and float64, which it is compared with, do not count")
    ap.add_argument(
        "--warm", action="store_true", help="run each once more in a second process, with the cache of the first"
    )
    ap.add_argument(
        "--prefork", action="store_true", help="fork the processes from one that has imported torch and the models"
    )
    ap.add_argument("--shard", default="1/1")
    ap.add_argument("--retry", action="store_true", help="run again what is in the results file without being right")
    ap.add_argument("--out", default="out/models.jsonl")
    ap.add_argument("--logs", help="folder for the output of runs that fail")
    ap.add_argument("--report", help="write the report of this results file and stop")
    ap.add_argument("--note", default="", help="a sentence for the head of the report")
    a = ap.parse_args(argv)
    if a.report:
        if not pathlib.Path(a.report).exists():
            ap.error(f"there is no results file {a.report}")
        report.write(read(pathlib.Path(a.report)), pathlib.Path(a.report).with_suffix(""), a.note)
        return 0
    for what, given, known in (("--mode", a.mode, ("infer", "train")), ("--dtype", a.dtype, ("float32", "amp")),
                               ("--impl", a.impl, ("lamina", "torch", "eager"))):
        wrong = [x for x in given.split(",") if x not in known]
        if wrong:
            ap.error(f"{what} takes {', '.join(known)}, or several with commas between, not {wrong[0]!r}")
    index, _, shards = a.shard.partition("/")
    if not (index.isdecimal() and shards.isdecimal() and 1 <= int(index) <= int(shards)):
        ap.error(f"--shard takes the number of a part and the number of parts, such as 1/4, not {a.shard!r}")
    chosen = registry.select(a.suite, a.only)
    if not chosen:
        ap.error(f"no model of suite {a.suite or 'any'} has {a.only!r} in its name (see benchmarks/models/models.tsv)")
    for e in chosen:
        if e.missing:
            print(f"left out: {e.name}: {e.missing}", file=sys.stderr)
    if a.prefork:
        for library in ("transformers", "timm", "torchvision"):
            with contextlib.suppress(ImportError):
                importlib.import_module(library)
    out = pathlib.Path(a.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    have = {key_of(r) for r in read(out) if not a.retry or r["status"] in ("ok", "eager fails")}
    jobs = [
        (e, i, m, d)
        for e in chosen[int(index) - 1 :: int(shards)]
        if not e.missing
        for m in a.mode.split(",")
        for d in a.dtype.split(",")
        for i in a.impl.split(",")
    ]
    failed, now, stopped = 0, commit(), False
    try:
        for n, (e, impl, mode, dtype) in enumerate(jobs, 1):
            cache = pathlib.Path(tempfile.mkdtemp(prefix="lamina-suite-"))
            try:
                for state in ("cold", "warm")[: 2 if a.warm and impl != "eager" else 1]:
                    if (e.key, impl, mode, dtype, a.size, state, a.device) in have:
                        continue
                    r = {**run_one(e, impl, mode, dtype, a, cache, state), "commit": now}
                    append(out, r)
                    failed += r["status"] not in ("ok", "eager fails") and impl == "lamina"
                    text = f"{e.name} {impl} {mode} {dtype} {state}: {r['status']}"
                    if r["status"] == "ok":
                        text += f", {r.get('speedup', 1.0):.2f}x, first call {r['first_call_s']:.1f} s"
                        text += f", {r['graphs']} graphs, {r['breaks']} breaks"
                    else:
                        text += f" {r.get('error', r.get('errors'))}"
                    progress(n, len(jobs), text)
            finally:
                shutil.rmtree(cache, ignore_errors=True)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        stopped = True
    if sys.stdout.isatty():
        print()
    report.write(list({key_of(r): r for r in read(out)}.values()), out.with_suffix(""), a.note)
    print(f"report: {out.with_suffix('.md')}")
    return 130 if stopped else min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
