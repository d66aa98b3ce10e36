"""Kernels on one GPU, family by family: bytes that must move (and products that must be made), the floor that the
measured bandwidth of a copy (and the measured speed of a large product) sets, and what eager, torch.compile and lamina
reach.

    python -m benchmarks.gpu_kernels --out out/gpu_kernels.json [--impl eager,torch,lamina] [--only softmax,...]

Times are medians of CUDA events over many calls, without the processor's part; each result is first compared with
float64.
Writes JSON and a Markdown table beside it.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .kernel_programs import add_norm, chain, size

BF16 = torch.bfloat16
WAIT = 2_000_000  # cycles, about a millisecond


@dataclass(frozen=True)
class Case:
    """`fn` of `make()`. `bytes` that must move, `flops` of products that must be made (in bfloat16 unless `single`),
    both of the inputs. `trains`: the gradients of all floating inputs are part of the time. `random`: no reference."""

    family: str
    fn: Callable
    make: Callable[[], tuple]
    bytes: Callable[[tuple], int]
    flops: Callable[[tuple], int] = lambda a: 0
    single: bool = False
    trains: bool = False
    random: bool = False


def randn(*shape: int, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def half(*shape: int) -> torch.Tensor:
    return randn(*shape, dtype=BF16)


def numbers(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, device="cuda")


def rms_silu_mul(x, gate, w):
    h = x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * w
    return F.silu(gate) * h


def embedding_norm(ids, table, w, b):
    return F.layer_norm(F.embedding(ids, table), (table.shape[-1],), w, b)


def head_norm(x, w, b):
    """Heads before positions, as attention takes them."""
    y = F.layer_norm(x, (x.shape[-1],), w, b)
    return y.view(*x.shape[:-1], 16, -1).transpose(1, 2).contiguous()


def gated(x, w, v):
    return F.silu(x @ w) * (x @ v)


def grouped(x, w, ends):
    if x.dtype == torch.float64:
        starts = [0, *ends.tolist()]
        return F.silu(torch.cat([x[a:b] @ w[k] for k, (a, b) in enumerate(zip(starts, starts[1:], strict=False))]))
    return F.silu(torch._grouped_mm(x, w, offs=ends))


def dropped(x, y):
    return F.dropout(x * 1.5 + y, 0.1, True)


def noisy(x):
    return x + 0.1 * torch.rand_like(x)


def scattered(x, index, table):
    return torch.zeros_like(table).index_add(0, index, x)


def flexible(mask: str | None, trains: bool = False) -> Case:
    """flex_attention of 4 x 16 heads, 2048 positions of 64 numbers, with a mask."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    n, d = 2048, 64
    documents = torch.arange(n, device="cuda") // 300
    masks = {
        "causal": lambda b, h, i, j: i >= j,
        "document": lambda b, h, i, j: (documents[i] == documents[j]) & (i >= j),
        "window": lambda b, h, i, j: (i >= j) & (i - j < 256),
    }
    blocks = create_block_mask(masks[mask], None, None, n, n, device="cuda") if mask else None
    places = torch.arange(n, device="cuda")
    pairs = int(masks[mask](0, 0, places[:, None], places[None]).sum()) if mask else n * n

    def fn(q, k, v):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # eager says that it is slow
            return flex_attention(q, k, v, block_mask=blocks)

    heads = 4 * 16
    return Case(
        "attention", fn, lambda: tuple(half(4, 16, n, d) for _ in range(3)),
        lambda a: (4 + 7 * trains) * size(a[0]), lambda a: heads * pairs * d * 4 * (1 + 2.5 * trains), trains=trains,
    )  # fmt: skip


def written(q, k, v, bias):
    return ((q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5 + bias).softmax(-1) @ v


def products(a: tuple) -> int:
    """Multiplications and additions of ``a[0] @ a[1]``."""
    return 2 * a[0].numel() * a[1].shape[-1]


def cases() -> dict[str, Case]:
    """The table's rows."""
    big = 1 << 27
    ends = torch.tensor([100, 900, 900, 2000, 4096, 5000, 7000, 8192], dtype=torch.int32, device="cuda")
    linear = lambda x, w, b: F.gelu(F.linear(x, w, b))  # noqa: E731
    moved = lambda a, out: size(*a) + out  # noqa: E731
    out = {
        "pointwise_chain": Case("pointwise", chain, lambda: (randn(big), randn(big)), lambda a: moved(a, size(a[0]))),
        "row_softmax": Case("rows", lambda x: F.softmax(x, -1), lambda: (randn(65536, 2048),), lambda a: 2 * size(*a)),
        "add_layer_norm": Case("rows", add_norm,
                               lambda: (randn(65536, 1024), randn(65536, 1024), randn(1024), randn(1024)),
                               lambda a: 3 * size(a[0])),
        "rmsnorm_silu_mul": Case("rows", rms_silu_mul, lambda: (half(32768, 4096), half(32768, 4096), half(4096)),
                                 lambda a: 3 * size(a[0])),
        "cross_entropy": Case("rows", F.cross_entropy, lambda: (randn(8192, 50257), numbers(50257, 8192)),
                              lambda a: size(a[0])),
        "column_sum": Case("sums", lambda x: x.sum(0), lambda: (randn(65536, 2048),), lambda a: size(*a)),
        "full_sum": Case("sums", lambda x: x.sum(), lambda: (randn(big),), lambda a: size(*a)),
        "transpose_add": Case("transposes", lambda x, y: x.t() + y, lambda: (randn(8192, 8192), randn(8192, 8192)),
                              lambda a: 3 * size(a[0])),
        "head_norm": Case("transposes", head_norm, lambda: (half(32, 2048, 1024), half(1024), half(1024)),
                          lambda a: 2 * size(a[0])),
        "cumsum": Case("scans", lambda x: x.cumsum(-1), lambda: (randn(32768, 4096),), lambda a: 2 * size(*a)),
        "cummax": Case("scans", lambda x: x.cummax(-1)[0], lambda: (randn(32768, 4096),), lambda a: 2 * size(*a)),
        "embedding_norm": Case("gather", embedding_norm,
                               lambda: (numbers(50257, 65536), randn(50257, 1024), randn(1024), randn(1024)),
                               lambda a: 2 * 65536 * 1024 * 4),
        "index_add": Case("scatter", scattered,
                          lambda: (randn(65536, 1024), numbers(50257, 65536), randn(50257, 1024)),
                          lambda a: size(a[0], a[2])),
        "sort": Case("sort", lambda x: (x * 2).sort(-1)[0], lambda: (randn(16384, 2048),), lambda a: 2 * size(*a)),
        "topk": Case("sort", lambda x: F.softmax(x, -1).topk(8, -1)[0], lambda: (randn(65536, 256),),
                     lambda a: size(*a)),
        "dropout": Case("random", dropped, lambda: (randn(big), randn(big)), lambda a: moved(a, size(a[0])),
                        random=True),
        "rand_like": Case("random", noisy, lambda: (randn(big),), lambda a: 2 * size(*a), random=True),
        "linear_gelu": Case("matmul", linear, lambda: (half(8192, 1024), half(4096, 1024) / 32, half(4096)),
                            lambda a: moved(a, 8192 * 4096 * 2), lambda a: 2 * 8192 * 4096 * 1024),
        "linear_gelu_f32": Case("matmul", linear, lambda: (randn(4096, 1024), randn(4096, 1024) / 32, randn(4096)),
                                lambda a: moved(a, 4096 * 4096 * 4), lambda a: 2 * 4096 * 4096 * 1024, single=True),
        "gated_product": Case("matmul", gated, lambda: (half(8192, 1024), half(1024, 2816) / 32, half(1024, 2816) / 32),
                              lambda a: moved(a, 8192 * 2816 * 2), lambda a: 2 * products(a)),
        "batched_scale": Case("matmul", lambda x, y, s: (x @ y) * s, lambda: (half(64, 512, 64), half(64, 64, 512),
                                                                              half(64, 1, 512)),
                              lambda a: moved(a, 64 * 512 * 512 * 2), products),
        "decode_gated": Case("decode", gated, lambda: (half(8, 4096), half(4096, 11008) / 64, half(4096, 11008) / 64),
                             lambda a: moved(a, 8 * 11008 * 2), lambda a: 2 * products(a)),
        "decode_linear": Case("decode", linear, lambda: (half(1, 4096), half(4096, 4096) / 64, half(4096)),
                              lambda a: moved(a, 4096 * 2), lambda a: 2 * 4096 * 4096),
        "grouped_silu": Case("grouped", grouped, lambda: (half(8192, 1024), half(8, 1024, 2048) / 32, ends),
                             lambda a: moved(a, 8192 * 2048 * 2), products),
        "written_attention": Case("attention", written, lambda: (*(half(8, 16, 1024, 64) for _ in range(3)),
                                                                 half(16, 1024, 1024)),
                                  lambda a: moved(a, size(a[0])), lambda a: 8 * 16 * 1024 * 1024 * 64 * 4),
    }  # fmt: skip
    try:
        out |= {f"flex_{m or 'full'}": flexible(m) for m in ("causal", "document", "window")}
        out |= {f"flex_{m}_training": flexible(m, True) for m in ("causal", "document")}
    except ImportError:  # a release of torch without it
        pass
    return out


def event_time(fn: Callable[[], object], budget: float = 0.25) -> float:
    """Median seconds that one call takes the device: it is made while the device is kept busy, so that the time in
    which the processor prepares it does not count (`benchmarks.gpu` has whole calls)."""
    for _ in range(3):
        fn()
    torch.cuda.synchronize()
    samples: list[float] = []
    end = time.perf_counter() + budget
    while len(samples) < 5 or time.perf_counter() < end:
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(WAIT)
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


def product_speed(dtype: torch.dtype) -> float:
    """Multiplications and additions a second of one large product."""
    n = 8192 if dtype == BF16 else 4096
    x, y = randn(n, n, dtype=dtype), randn(n, n, dtype=dtype)
    return 2 * n**3 / event_time(lambda: x @ y)


def compiled(impl: str, fn: Callable) -> Callable:
    if impl == "eager":
        return fn
    if impl == "torch":
        torch._dynamo.reset()
        return torch.compile(fn)
    import lamina

    return lamina.compile(fn)


def call_of(case: Case, f: Callable, args: tuple) -> Callable[[], torch.Tensor]:
    """One call; for training with its gradients, which are then the result."""
    if not case.trains:
        return functools.partial(f, *args)
    given = [t for t in args if t.is_floating_point()]

    def step() -> torch.Tensor:
        return torch.stack([g.flatten() for g in torch.autograd.grad(f(*args).sum(), given)])

    return step


def fresh(case: Case) -> tuple:
    args = case.make()
    return tuple(t.requires_grad_() if case.trains and t.is_floating_point() else t for t in args)


def reference(case: Case, args: tuple) -> torch.Tensor:
    wide = tuple(t.detach().double() if t.is_floating_point() else t for t in args)
    wide = tuple(t.requires_grad_() if case.trains and t.is_floating_point() else t for t in wide)
    return call_of(case, case.fn, wide)()


def measure(case: Case, impl: str, args: tuple, want: torch.Tensor | None) -> dict:
    """Seconds of a call, of the first call, and the error against `want`."""
    call = call_of(case, compiled(impl, case.fn), args)
    t = time.perf_counter()
    got = call()
    torch.cuda.synchronize()
    first = time.perf_counter() - t
    error = float("nan") if want is None else float(((got.double() - want).norm() / want.norm()).item())
    del got
    return {"us": event_time(call) * 1e6, "first_s": first, "error": error}


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--impl", default="eager,torch,lamina")
    ap.add_argument("--only")
    ap.add_argument("--out", default="out/gpu_kernels.json")
    ap.add_argument("--stop-after", type=float, default=float("inf"), help="seconds; what is not reached is left out")
    a = ap.parse_args()
    begin = time.monotonic()
    bandwidth = copy_bandwidth()
    speeds = {False: product_speed(BF16), True: product_speed(torch.float32)}
    res: dict = {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "copy_TBps": bandwidth / 1e12,
        "product_TFLOPS": {"bfloat16": speeds[False] / 1e12, "float32": speeds[True] / 1e12},
        "cases": {},
    }
    made = [f"{s / 1e12:.0f}" for s in speeds.values()]
    print(f"copy {bandwidth / 1e12:.2f} TB/s, products {made[0]} and {made[1]} TFLOP/s")
    out = pathlib.Path(a.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    for name, case in cases().items():
        if a.only and not any(w in name or w == case.family for w in a.only.split(",")):
            continue
        if time.monotonic() - begin > a.stop_after:
            print(f"{name:22s} not reached", flush=True)
            continue
        torch.cuda.empty_cache()
        args = fresh(case)
        must, made = case.bytes(args), case.flops(args)
        floor = max(must / bandwidth, made / speeds[case.single])
        row: dict = {"family": case.family, "bytes": must, "flops": made, "floor_us": floor * 1e6,
                     "floor_by": "bytes" if must / bandwidth >= floor else "products"}  # fmt: skip
        try:
            want = None if case.random else reference(case, args)
        except Exception as e:  # too large for the reference, or no operator in float64
            want, row["no_reference"] = None, f"{type(e).__name__}: {str(e)[:200]}"
        for impl in a.impl.split(","):
            try:
                row[impl] = measure(case, impl, args, want)
                row[impl]["of_floor"] = floor * 1e6 / row[impl]["us"]
                share = row[impl]["of_floor"] * 100
                print(f"{name:22s} {impl:7s} {row[impl]['us']:9.1f} us  {share:5.1f} % of the floor  "
                      f"error {row[impl]['error']:.1e}  first {row[impl]['first_s']:.1f} s", flush=True)  # fmt: skip
            except Exception as e:
                row[impl] = {"failed": f"{type(e).__name__}: {str(e)[:300]}"}
                print(f"{name:22s} {impl:7s} FAILED {row[impl]['failed']}", flush=True)
        del want, args
        res["cases"][name] = row
        out.write_text(json.dumps(res, indent=1))
        out.with_suffix(".md").write_text(table(res))


def table(res: dict) -> str:
    """The results as Markdown."""
    speeds = res["product_TFLOPS"]
    lines = [
        f"# GPU kernels: {res['card']}, torch {res['torch']}, {res['date']}",
        "",
        f"Measured here: a copy moves {res['copy_TBps']:.2f} TB/s, a large product makes "
        f"{speeds['bfloat16']:.0f} TFLOP/s in bfloat16 and {speeds['float32']:.0f} in float32 (IEEE). The floor is the "
        "longer of the bytes that must move and the products that must be made; reached: floor / lamina's time; "
        "left: what is above the floor.",
        "",
        "| family | kernel | must move MB | floor µs | set by | eager µs | torch.compile µs | lamina µs | reached "
        "| left µs |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in sorted(res["cases"].items(), key=lambda item: item[1]["family"]):
        cell = [f"{row[i]['us']:.1f}" if "us" in row.get(i, {}) else row.get(i, {}).get("failed", "")[:40]
                for i in ("eager", "torch", "lamina")]  # fmt: skip
        ours = row.get("lamina", {})
        reached = f"{ours['of_floor'] * 100:.0f} %" if "of_floor" in ours else ""
        left = f"{ours['us'] - row['floor_us']:.0f}" if "us" in ours else ""
        start = f"| {row['family']} | {name} | {row['bytes'] / 1e6:.0f} | {row['floor_us']:.1f} | {row['floor_by']} | "
        lines.append(f"{start}{' | '.join(cell)} | {reached} | {left} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
