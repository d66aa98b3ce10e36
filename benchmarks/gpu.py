"""The fixed programs of the GPU benchmark on one card: eager, torch.compile and lamina in one process a program.

    python -m benchmarks.gpu --impl lamina,torch --mode infer,train --dtype amp,float32 --out out/gpu.jsonl

A program's process is forked from one that has imported torch and the model libraries but never touched the card.
In it, the program is built once; every implementation gets a copy with the same weights, its first call is timed and
compared with eager and float64 (outputs, loss, gradients, buffers), then all are timed in turn. Results are appended to
a JSON-lines file as they come, so that a run that was stopped goes on where it was; a Markdown table is written
beside it.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import multiprocessing
import os
import pathlib
import statistics
import time
import traceback
import warnings

import torch
from torch.utils._pytree import tree_map

from .models import judge, registry, worker

MODELS = (
    "mlp", "bert_base", "gpt2", "t5_small", "llama", "resnet50", "vit_b_16", "mobilenet_v3_large", "convnext_b",
)  # fmt: skip


def event_seconds(steps: dict[str, object], budget: float) -> dict[str, float]:
    """Median seconds between CUDA events around a call of each step, taken in turn."""
    samples: dict[str, list[float]] = {k: [] for k in steps}
    for step in steps.values():
        step()
    torch.cuda.synchronize()
    end = time.perf_counter() + budget
    while len(next(iter(samples.values()))) < 5 or time.perf_counter() < end:
        for k, step in steps.items():
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            step()
            b.record()
            b.synchronize()
            samples[k].append(a.elapsed_time(b) / 1e3)
    return {k: statistics.median(v) for k, v in samples.items()}


def compile_with(impl: str, model: torch.nn.Module):
    """`impl` is an implementation, or one and a mode: ``lamina:reduce-overhead``."""
    name, _, mode = impl.partition(":")
    if name == "eager":
        return model
    if name == "torch":
        return torch.compile(model, mode=mode or None)
    import lamina

    return lamina.compile(model, mode=mode or "default")


def measure(name: str, mode: str, dtype: str, impls: list[str], budget: float) -> dict:
    entry = registry.find(f"gpu/{name}")
    model, args, kwargs = entry.build(False)
    model = (model.train() if mode == "train" else model.eval()).cuda()
    move = lambda t: t.cuda() if isinstance(t, torch.Tensor) else t  # noqa: E731
    args, kwargs = tree_map(move, args), tree_map(move, kwargs)
    amp = dtype == "amp"
    start = copy.deepcopy(model.state_dict())
    eager = worker.Step(model, model, args, kwargs, mode, amp, "cuda")
    want = eager.snapshot()
    model.load_state_dict(start)
    double = copy.deepcopy(model).double()
    up = lambda t: t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t  # noqa: E731
    exact = worker.Step(double, double, tree_map(up, args), tree_map(up, kwargs), mode, False, "cuda").snapshot()
    del double
    gc.collect()
    torch.cuda.empty_cache()
    rows, steps = {}, {"eager": eager}
    peak = {"eager": worker.peak_memory(eager, "cuda")}
    for impl in impls:
        other = copy.deepcopy(model)
        other.load_state_dict(start)
        for p in other.parameters():
            p.grad = None
        try:
            step = worker.Step(other, compile_with(impl, other), args, kwargs, mode, amp, "cuda")
            t = time.perf_counter()
            torch.manual_seed(1)
            step()
            torch.cuda.synchronize()
            first = time.perf_counter() - t
            other.load_state_dict(start)
            got = step.snapshot()
            errors, ok = {}, True
            for part, ref in want.items():
                e_eager, e_got = judge.relative_error(ref, exact[part]), judge.relative_error(got[part], exact[part])
                if part == "loss":
                    e_eager = max(e_eager, errors["outputs"]["eager"])
                errors[part] = {"eager": e_eager, "compiled": e_got}
                ok = ok and e_got <= 2 * e_eager + judge.FLOOR[dtype]
            rows[impl] = {"first_call_s": first, "errors": errors, "status": "ok" if ok else "inaccurate"}
            rows[impl].update(worker.capture_counts(impl.partition(":")[0]))
            steps[impl] = step
            peak[impl] = worker.peak_memory(step, "cuda")
        except Exception as e:
            traceback.print_exc()
            rows[impl] = {"status": f"error: {type(e).__name__}: {str(e)[:300]}"}
        gc.collect()
    seconds = event_seconds(steps, budget)
    return {
        "seconds": seconds,
        "peak": peak,
        "rows": rows,
        "speedup": {k: seconds["eager"] / v for k, v in seconds.items() if k != "eager"},
    }


def child(connection, *args) -> None:
    warnings.filterwarnings("ignore")
    try:
        connection.send(measure(*args))
    except BaseException as e:
        traceback.print_exc()
        connection.send({"error": f"{type(e).__name__}: {str(e)[:300]}"})
    os._exit(0)


def write_table(out: pathlib.Path) -> None:
    rows = [json.loads(line) for line in out.read_text().splitlines() if line.strip()]
    head = rows[0]
    lines = [
        f"# Models on {head['card']}, torch {head['torch']}, {head['date']}",
        "",
        "Milliseconds are medians of CUDA events, all implementations in turn in one process. Errors are those of the "
        "gradients (training) or outputs (inference) against float64; eager's in brackets.",
        "",
        "| model | mode | dtype | implementation | status | eager ms | ms | speed-up | first call s | graphs | "
        "breaks | peak GB | eager's | error (eager's) |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        if "error" in r:
            lines.append(f"| {r['name']} | {r['mode']} | {r['dtype']} | | {r['error'][:80]} |" + " |" * 9)
            continue
        for impl, row in r["rows"].items():
            if impl not in r["seconds"]:
                lines.append(f"| {r['name']} | {r['mode']} | {r['dtype']} | {impl} | {row['status'][:80]} |" + " |" * 9)
                continue
            e = row["errors"]["gradients" if r["mode"] == "train" else "outputs"]
            s = r["seconds"]
            lines.append(
                f"| {r['name']} | {r['mode']} | {r['dtype']} | {impl} | {row['status']} | {s['eager'] * 1e3:.3f} | "
                f"{s[impl] * 1e3:.3f} | {s['eager'] / s[impl]:.2f} | {row['first_call_s']:.1f} | "
                f"{row.get('graphs', '')} | {row.get('breaks', '')} | {r['peak'][impl] / 1e9:.2f} | "
                f"{r['peak']['eager'] / 1e9:.2f} | {e['compiled']:.1e} ({e['eager']:.1e}) |"
            )
    out.with_suffix(".md").write_text("\n".join(lines) + "\n")


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--impl", default="lamina,torch")
    ap.add_argument("--mode", default="infer,train")
    ap.add_argument("--dtype", default="amp,float32")
    ap.add_argument("--only", help="comma-separated parts of names")
    ap.add_argument("--time", type=float, default=1.0, help="seconds of timing a program")
    ap.add_argument("--timeout", type=float, default=150.0, help="seconds a program may take")
    ap.add_argument("--stop-after", type=float, default=1e9, help="start no further program after so many seconds")
    ap.add_argument("--out", default="out/gpu.jsonl")
    a = ap.parse_args()
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # a forked process cannot use a card the parent touched
    import transformers  # noqa: F401

    import lamina  # noqa: F401

    out = pathlib.Path(a.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    done = set()
    if out.exists():
        done = {tuple(json.loads(x)[k] for k in ("name", "mode", "dtype")) for x in out.read_text().splitlines() if x}
    began = time.time()
    fork = multiprocessing.get_context("fork")
    for dtype in a.dtype.split(","):
        for mode in a.mode.split(","):
            for name in MODELS:
                if (name, mode, dtype) in done or (a.only and not any(w in name for w in a.only.split(","))):
                    continue
                if time.time() - began > a.stop_after:
                    print(f"{name} {mode} {dtype}: not started, time is up", flush=True)
                    continue
                ours, theirs = fork.Pipe()
                p = fork.Process(target=child, args=(theirs, name, mode, dtype, a.impl.split(","), a.time))
                p.start()
                theirs.close()
                res: dict = {"error": "no answer in time"}
                try:
                    if ours.poll(a.timeout):
                        res = ours.recv()
                except EOFError:
                    res = {"error": "the process died"}
                p.kill()
                p.join()
                card = os.environ.get("CARD") or "one GPU"
                res = {"name": name, "mode": mode, "dtype": dtype, "torch": torch.__version__, "card": card,
                       "date": time.strftime("%Y-%m-%d"), **res}  # fmt: skip
                with out.open("a") as f:
                    f.write(json.dumps(res) + "\n")
                if "error" in res:
                    print(f"{name} {mode} {dtype}: {res['error']}", flush=True)
                    continue
                for impl, row in res["rows"].items():
                    ms = res["seconds"].get(impl)
                    text = f"{name:18s} {mode:5s} {dtype:7s} {impl:22s} {row['status']:10s}"
                    if ms:
                        peak = f"{res['peak'][impl] / 1e9:.2f}/{res['peak']['eager'] / 1e9:.2f}"
                        text += f" eager {res['seconds']['eager'] * 1e3:8.3f} ms {ms * 1e3:8.3f} ms"
                        text += f" {res['speedup'][impl]:5.2f}x  first {row['first_call_s']:5.1f} s  peak {peak}"
                        text += f" graphs {row['graphs']} breaks {row['breaks']}"
                    print(text, flush=True)
    write_table(out)


if __name__ == "__main__":
    main()
