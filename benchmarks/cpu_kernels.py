"""Memory-bound kernels on the CPU as a share of the bandwidth that a copy reaches here, and the peak memory of training
steps.

    python benchmarks/cpu_kernels.py [--impl eager,lamina] [--only softmax,...] [--part kernels,memory] [--out FILE.md]

Times are medians of interleaved calls. Each call reads and writes arrays that were last touched 256 MB ago, as the copy
does that they are compared with: nothing of them is in a cache. Memory is the growth of the process's resident
set over one training step (forward, backward), measured in a process of its own after the first steps. Prints Markdown.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.kernel_programs import add_norm, chain, size  # noqa: E402

MEMORY = (
    "mlp fused_pointwise softmax_layer_norm resnet18 mobilenet_v3_large vit_tiny convnext_atto bert_base gpt2 t5_small "
    "llama_small lstm_cell_loop"
).split()


def rms_silu_mul(x, gate, w):
    return F.silu(gate) * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w)


def kernels() -> dict[str, tuple[Callable, Callable[[], tuple], Callable[[tuple], int]]]:
    """name -> (function, maker of inputs, bytes that must move for these inputs)."""
    big, randn = 6 << 20, torch.randn
    twice = lambda a: 2 * size(a[0])  # noqa: E731
    return {
        "add": (lambda x, y: x + y, lambda: (randn(big), randn(big)), lambda a: 3 * size(a[0])),
        "axpby_clamp": (lambda x, y: (2 * x + 3 * y).clamp(-1, 1), lambda: (randn(big), randn(big)),
                        lambda a: 3 * size(a[0])),
        "pointwise_chain": (chain, lambda: (randn(big), randn(big)), lambda a: 3 * size(a[0])),
        "gelu": (lambda x: F.gelu(x), lambda: (randn(big),), twice),
        "gelu_bf16": (lambda x: F.gelu(x), lambda: (randn(big).bfloat16(),), twice),
        "row_softmax": (lambda x: F.softmax(x, -1), lambda: (randn(3072, 2048),), twice),
        "add_layer_norm": (add_norm, lambda: (randn(6144, 1024), randn(6144, 1024), randn(1024), randn(1024)),
                           lambda a: 3 * size(a[0])),
        "rmsnorm_silu_mul": (rms_silu_mul, lambda: (randn(1536, 4096), randn(1536, 4096), randn(4096)),
                             lambda a: 3 * size(a[0])),
        "row_sum": (lambda x: x.sum(-1), lambda: (randn(16384, 1024),), lambda a: size(*a)),
        "row_max": (lambda x: x.amax(-1), lambda: (randn(16384, 1024),), lambda a: size(*a)),
        "column_sum": (lambda x: x.sum(0), lambda: (randn(16384, 1024),), lambda a: size(*a)),
        "narrow_column_sum": (lambda x: x.sum(0), lambda: (randn(1 << 22, 4),), lambda a: size(*a)),
        "full_sum": (lambda x: x.sum(), lambda: (randn(1 << 24),), lambda a: size(*a)),
        "row_cumsum": (lambda x: x.cumsum(-1), lambda: (randn(3072, 2048),), twice),
        "transpose_add": (lambda x, y: x.t() + y, lambda: (randn(2048, 3072), randn(3072, 2048)),
                          lambda a: 3 * size(a[0])),
    }  # fmt: skip


def seconds_of(calls: list[Callable[[], object]], budget: float = 1.2) -> list[float]:
    """Median seconds of each call, taken in turn."""
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(2):
        for f in calls:
            f()
    end = time.perf_counter() + budget
    while len(samples[0]) < 5 or time.perf_counter() < end:
        for f, times in zip(calls, samples, strict=True):
            start = time.perf_counter()
            f()
            times.append(time.perf_counter() - start)
    return [statistics.median(s) for s in samples]


def keep_memory() -> None:
    """Freed memory stays with the process: results of tens of megabytes would else be pages that the system clears for
    each call, which takes longer than the kernels (a trim by one side's temporaries would be paid by the other)."""
    libc = ctypes.CDLL(None)
    for parameter in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
        getattr(libc, "mallopt", lambda *_: 0)(parameter, 1 << 30)


COLD = 256 << 20
"""Bytes touched between two uses of an array: eight times the last cache of the machine of the results."""


def cold_calls(fn: Callable, sets: list[tuple], first: int) -> Callable[[], object]:
    """Calls of `fn` on one set of inputs after the other, from number `first` on; a result is kept until its set comes
    again, so that the memory that the next one takes is as cold."""
    results: list[object] = [None] * len(sets)
    at = first

    def call() -> None:
        nonlocal at
        at = (at + 1) % len(sets)
        results[at] = None
        results[at] = fn(*sets[at])

    return call


def copy_bandwidth() -> float:
    """Bytes a second that a copy between two large tensors moves, reads and writes counted."""
    x = torch.randn(1 << 26)
    y = torch.empty_like(x)
    y.copy_(x)
    return 2 * size(x) / seconds_of([lambda: y.copy_(x)], 2.0)[0]


def compiled(impl: str, fn: Callable) -> Callable:
    if impl == "torch":
        torch._dynamo.reset()
        return torch.compile(fn)
    if impl == "lamina":
        import lamina

        return lamina.compile(fn)
    return fn


def report_kernels(impls: list[str], only: list[str]) -> list[str]:
    keep_memory()
    bandwidth = copy_bandwidth()
    lines = [
        f"Copy bandwidth {bandwidth / 1e9:.1f} GB/s, {torch.get_num_threads()} threads, torch {torch.__version__}.",
        "",
        "| kernel | MB | floor ms | " + " | ".join(f"{i} ms | of copy" for i in impls) + " |",
        "|---|---|---|" + "---|---|" * len(impls),
    ]
    for name, (fn, make, count) in kernels().items():
        if only and not any(w in name for w in only):
            continue
        args = make()
        must = count(args)
        sets = [args, *(make() for _ in range(max(2 * len(impls), -(-COLD // must)) - 1))]
        functions = [cold_calls(compiled(i, fn), sets, k * len(sets) // len(impls)) for k, i in enumerate(impls)]
        times = seconds_of(functions)
        cells = " | ".join(f"{t * 1e3:.2f} | {must / t / bandwidth * 100:.0f} %" for t in times)
        lines.append(f"| {name} | {must / 1e6:.0f} | {must / bandwidth * 1e3:.2f} | {cells} |")
        print(lines[-1], flush=True)
    return lines


def _high_water() -> int:
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM:")) * 1024


def _step_peak(program: str, impl: str) -> int:
    """Bytes that a training step takes on top of the model, its gradients and its inputs."""
    from benchmarks import cases

    torch.manual_seed(0)
    model, args, kwargs = cases.CPU[program]()
    model.train()
    run = compiled(impl, model)

    def step() -> None:
        out = run(*args, **kwargs)
        loss = getattr(out, "loss", None)
        out = out[0] if isinstance(out, tuple) else out
        (loss if loss is not None else out.float().square().mean()).backward()
        for p in model.parameters():
            p.grad.zero_() if p.grad is not None else None

    for _ in range(2):
        step()
    peaks = []
    for _ in range(3):
        gc.collect()
        _trim()
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")  # the high-water mark starts again from here
        before = _high_water()
        step()
        peaks.append(_high_water() - before)
    return min(peaks)


def _trim() -> None:
    ctypes.CDLL(None).malloc_trim(0)


def _in_child(program: str, impl: str) -> int | str:
    """`_step_peak` in a process of its own (forked: the imports are shared)."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = str(_step_peak(program, impl))
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"[:60]
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        text = f.read()
    os.waitpid(child, 0)
    return int(text) if text.isdigit() else text or "died"


def report_memory(impls: list[str], only: list[str]) -> list[str]:
    from benchmarks.models import vision_packages

    vision_packages.import_torchvision()
    lines = [
        "| training step, peak MB beyond weights and gradients | " + " | ".join(impls) + " | last / first |",
        "|---|" + "---|" * (len(impls) + 1),
    ]
    for program in MEMORY:
        if only and not any(w in program for w in only):
            continue
        peaks = [_in_child(program, i) for i in impls]
        cells = " | ".join(f"{p / 1e6:.1f}" if isinstance(p, int) else p for p in peaks)
        ends = peaks[0], peaks[-1]
        ratio = f"{ends[1] / ends[0]:.2f}" if all(isinstance(p, int) and p for p in ends) else ""
        lines.append(f"| {program} | {cells} | {ratio} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--impl", default="eager,lamina")
    ap.add_argument("--only", default="")
    ap.add_argument("--part", default="memory,kernels")
    ap.add_argument("--out")
    a = ap.parse_args()
    impls, only = a.impl.split(","), [w for w in a.only.split(",") if w]
    text = [f"# CPU kernels and memory, {time.strftime('%Y-%m-%d')}", ""]
    if "memory" in a.part:  # first: it forks, and kernels start threads
        text += [*report_memory(impls, only), ""]
    if "kernels" in a.part:
        text += report_kernels(impls, only)
    if a.out:
        pathlib.Path(a.out).write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
