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


def key_of(r: dict) -> tuple:
    return tuple(r.get(k) for k in ("key", "impl", "mode", "dtype", "size", "cache"))


def read(path: pathlib.Path) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def started(cmd: list[str], env: dict[str, str], limit: float) -> tuple[int, str, str]:
    """Run a command in a process of its own; return its status and what it printed."""
    root = pathlib.Path(__file__).resolve().parents[2]
    p = subprocess.run(cmd, capture_output=True, text=True, errors="replace", timeout=limit, env=env, cwd=root)
    return p.returncode, p.stdout, p.stderr


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
    }
    t = time.time()
    try:
        status, stdout, stderr = (forked if a.prefork else started)(cmd, env, a.timeout)
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
        print(f"\r[{bar:<{width}}] {done}/{total} {text:<60.60}", end="\n" if done == total else "", flush=True)
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
    ap.add_argument("--timeout", type=float, default=600.0)
    ap.add_argument(
        "--warm", action="store_true", help="run each once more in a second process, with the cache of the first"
    )
    ap.add_argument(
        "--prefork", action="store_true", help="fork the processes from one that has imported torch and the models"
    )
    ap.add_argument("--shard", default="1/1")
    ap.add_argument("--out", default="out/models.jsonl")
    ap.add_argument("--logs", help="folder for the output of runs that fail")
    ap.add_argument("--report", help="write the report of this results file and stop")
    a = ap.parse_args(argv)
    if a.report:
        report.write(read(pathlib.Path(a.report)), pathlib.Path(a.report).with_suffix(""))
        return 0
    if a.prefork:
        for library in ("transformers", "timm", "torchvision"):
            with contextlib.suppress(ImportError):
                importlib.import_module(library)
    out = pathlib.Path(a.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    have = {key_of(r) for r in read(out)}
    index, shards = (int(x) for x in a.shard.split("/"))
    jobs = [
        (e, i, m, d)
        for e in registry.select(a.suite, a.only)[index - 1 :: shards]
        if not e.missing
        for m in a.mode.split(",")
        for d in a.dtype.split(",")
        for i in a.impl.split(",")
    ]
    failed, now = 0, commit()
    for n, (e, impl, mode, dtype) in enumerate(jobs, 1):
        cache = pathlib.Path(tempfile.mkdtemp(prefix="lamina-suite-"))
        try:
            for state in ("cold", "warm")[: 2 if a.warm and impl != "eager" else 1]:
                if (e.key, impl, mode, dtype, a.size, state) in have:
                    continue
                r = {**run_one(e, impl, mode, dtype, a, cache, state), "commit": now}
                with out.open("a") as f:
                    f.write(json.dumps(r) + "\n")
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
    report.write(read(out), out.with_suffix(""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
