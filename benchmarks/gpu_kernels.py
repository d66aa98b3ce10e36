"""Memory-bound kernels on one GPU: bytes that must move, the floor that the measured copy bandwidth sets, and what
eager, torch.compile and lamina reach.

    python benchmarks/gpu_kernels.py --out out/gpu_kernels.json [--impl eager,torch,lamina] [--only softmax,...]

Times are medians of CUDA events over many launches on fresh random data; each result is first compared with float64.
Writes JSON and a Markdown table beside it.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from .kernel_programs import add_norm, chain, size

Case = tuple[Callable, Callable, int]  # function, inputs, bytes that must move


def randn(*shape: int, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def rms_silu_mul(x, gate, w):
    h = x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * w
    return F.silu(gate) * h


def embedding_norm(ids, table, w, b):
    return F.layer_norm(F.embedding(ids, table), (table.shape[-1],), w, b)


def cases() -> dict[str, tuple[Callable, Callable[[], tuple], Callable[[tuple], int]]]:
    """name -> (function, maker of fresh inputs, bytes that must move for these inputs)."""
    big = 1 << 27
    out = {
        "pointwise_chain": (chain, lambda: (randn(big), randn(big)), lambda a: size(*a) + size(a[0])),
        "row_softmax": (lambda x: F.softmax(x, -1), lambda: (randn(65536, 2048),), lambda a: 2 * size(*a)),
        "add_layer_norm": (
            add_norm,
            lambda: (randn(65536, 1024), randn(65536, 1024), randn(1024), randn(1024)),
            lambda a: size(a[0], a[1]) + size(a[0]),
        ),
        "rmsnorm_silu_mul": (
            rms_silu_mul,
            lambda: (
                randn(32768, 4096, dtype=torch.bfloat16),
                randn(32768, 4096, dtype=torch.bfloat16),
                randn(4096, dtype=torch.bfloat16),
            ),
            lambda a: size(a[0], a[1]) + size(a[0]),
        ),
        "column_sum": (lambda x: x.sum(0), lambda: (randn(65536, 2048),), lambda a: size(*a)),
        "full_sum": (lambda x: x.sum(), lambda: (randn(big),), lambda a: size(*a)),
        "transpose_add": (
            lambda x, y: x.t() + y,
            lambda: (randn(8192, 8192), randn(8192, 8192)),
            lambda a: 3 * size(a[0]),
        ),
        "cross_entropy": (
            lambda x, t: F.cross_entropy(x, t),
            lambda: (randn(8192, 50257), torch.randint(0, 50257, (8192,), device="cuda")),
            lambda a: size(a[0]),
        ),
        "cumsum": (lambda x: x.cumsum(-1), lambda: (randn(32768, 4096),), lambda a: 2 * size(*a)),
        "embedding_norm": (
            embedding_norm,
            lambda: (torch.randint(0, 50257, (65536,), device="cuda"), randn(50257, 1024), randn(1024), randn(1024)),
            lambda a: 2 * 65536 * 1024 * 4,
        ),
    }
    return out


def event_time(fn: Callable[[], object], budget: float = 0.25) -> float:
    """Median seconds of one call."""
    for _ in range(3):
        fn()
    torch.cuda.synchronize()
    samples: list[float] = []
    end = time.perf_counter() + budget
    while len(samples) < 5 or time.perf_counter() < end:
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        fn()
        b.record()
        b.synchronize()
        samples.append(a.elapsed_time(b) / 1e3)
    return statistics.median(samples)


def copy_bandwidth() -> float:
    """Bytes a second that a device-to-device copy moves, reads and writes counted."""
    x = randn(1 << 29)
    y = torch.empty_like(x)
    return 2 * size(x) / event_time(lambda: y.copy_(x))


def compiled(impl: str, fn: Callable) -> Callable:
    if impl == "eager":
        return fn
    if impl == "torch":
        torch._dynamo.reset()
        return torch.compile(fn)
    import lamina

    return lamina.compile(fn)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--impl", default="eager,torch,lamina")
    ap.add_argument("--only")
    ap.add_argument("--out", default="out/gpu_kernels.json")
    a = ap.parse_args()
    bandwidth = copy_bandwidth()
    res: dict = {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "copy_TBps": bandwidth / 1e12,
        "cases": {},
    }
    print(f"copy {bandwidth / 1e12:.2f} TB/s", flush=True)
    for name, (fn, make, count) in cases().items():
        if a.only and not any(w in name for w in a.only.split(",")):
            continue
        torch.cuda.empty_cache()
        args = make()
        must = count(args)
        row: dict = {"bytes": must, "floor_us": must / bandwidth * 1e6}
        want = fn(*[t.double() if t.is_floating_point() else t for t in args])
        for impl in a.impl.split(","):
            try:
                f = compiled(impl, fn)
                t = time.perf_counter()
                got = f(*args)
                torch.cuda.synchronize()
                first = time.perf_counter() - t
                error = float(((got.double() - want).norm() / want.norm()).item())
                del got
                seconds = event_time(functools.partial(f, *args))
                row[impl] = {
                    "us": seconds * 1e6,
                    "TBps": must / seconds / 1e12,
                    "of_copy": must / seconds / bandwidth,
                    "first_s": first,
                    "error": error,
                }
                print(
                    f"{name:18s} {impl:7s} {seconds * 1e6:9.1f} us  {must / seconds / bandwidth * 100:5.1f} % of copy  "
                    f"error {error:.1e}  first {first:.1f} s",
                    flush=True,
                )
            except Exception as e:
                row[impl] = {"failed": f"{type(e).__name__}: {str(e)[:300]}"}
                print(f"{name:18s} {impl:7s} FAILED {row[impl]['failed']}", flush=True)
        del want, args
        res["cases"][name] = row
    out = pathlib.Path(a.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(res, indent=1))
    lines = [
        f"# GPU kernels: {res['card']}, torch {res['torch']}, {res['date']}, copy {res['copy_TBps']:.2f} TB/s",
        "",
        "| kernel | bytes | floor µs | eager µs | torch.compile µs | lamina µs | lamina, share of copy |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in res["cases"].items():
        cell = [
            f"{row[i]['us']:.1f}" if "us" in row.get(i, {}) else row.get(i, {}).get("failed", "")[:40]
            for i in ("eager", "torch", "lamina")
        ]
        share = f"{row['lamina']['of_copy'] * 100:.0f} %" if "of_copy" in row.get("lamina", {}) else ""
        lines.append(
            f"| {name} | {row['bytes']:.3g} | {row['floor_us']:.1f} | {cell[0]} | {cell[1]} | {cell[2]} | {share} |"
        )
    out.with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
