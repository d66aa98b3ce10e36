"""Runs the test programs and many small kernels compiled; test_sanitizers.py starts it with kernels that check
themselves.
"""

from __future__ import annotations

import pathlib
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import programs  # noqa: E402

import lamina  # noqa: E402

F = torch.nn.functional

# Kernels with tails, windows, gathers and scans, at sizes around a vector's length.
CALLS = {
    "pointwise": lambda x: F.gelu(x) * torch.tanh(x) + x.exp().log1p(),
    "stages": lambda x: torch.tanh(torch.exp(-torch.arange(3001) * x.reshape(-1)[0].abs()).add(1).log() + x.sum()),
    "moves": lambda x: tuple(torch.cat([h, -h, h.flip(0)], 1) for h in ((x @ x.t()).bfloat16(), (x @ x.t()).half())),
    "sums of rows": lambda x: F.embedding(torch.arange(8).view(2, 4) % x.shape[0], x).sum(1),
    "rows": lambda x: F.softmax(x, -1) + F.layer_norm(x, x.shape[-1:]),
    "columns": lambda x: x.sum(0) + x.amax(0) + x.var(0),
    "all": lambda x: (x.sum(), x.argmax(), x.argmin(-1), x.prod(), x.std()),
    "scan": lambda x: (x.cumsum(-1), x.cumsum(0), x.logcumsumexp(0), x.cummax(-1)),
    "transposed": lambda x: x.t() + x.t().contiguous() * 2,
    "flipped": lambda x: x.flip(-1) + x.roll(1, 0),
    "window": lambda x: (F.max_pool1d(x, 2, ceil_mode=True), F.avg_pool1d(x, 3, 2, 1), x.unfold(-1, 2, 1) * 2),
    "resize": lambda x: F.interpolate(x[None], scale_factor=1.7, mode="linear"),
    "gather": lambda x: (x[torch.arange(2).flip(0)] * 2, x.gather(-1, (x > 0).long()), x[:, torch.arange(2)] + 1),
    "scatter": lambda x: (torch.scatter_add(x, 1, (x > 0).long(), x), x.index_add(0, torch.zeros(2).long(), x[:2])),
    "cat": lambda x: torch.cat([x, -x.flip(0), x[:, :1].expand_as(x)], 1),
    "pad": lambda x: (F.pad(x, (1, 2, 0, 1)), F.pad(x[None], (1, 1), mode="reflect"), F.pad(x, (-1, 2))),
    "half": lambda x: (x.half() * 2).bfloat16().sum(-1) + x.bfloat16().exp().amax(0)[:1],
    "narrow": lambda x: ((x * 9).to(torch.int8) * 3 // 2, (x * 9).long() << 3, (x > 0).sum(-1), x.to(torch.uint8) + 7),
    "matmul": lambda x: (x @ x.t(), F.linear(x, x).relu()),
    "sort": lambda x: (x.sort(-1)[0], x.topk(2, -1)[0], x.median()),
    "extremes": lambda x: (*x.max(-1), *x.min(0), x.amin(-1), x.argmin(0), x.double().amax(-1)),
    "narrow sums": lambda x: (x[:, :3].sum(0), x[:, :5].amax(0), x[:, :7].softmax(-1), (x[:, :6] > 0).sum(0)),
    "row sums": lambda x: (
        x.sum(-1), x.half().sum(-1), x.double().mean(-1), x.long().sum(-1), F.rms_norm(x, x.shape[-1:]),
    ),
    "wide tiles": lambda x: (x.bfloat16().t() + x.bfloat16().t().contiguous(), (x.double().t() * 2).contiguous() + 1),
    "pools": lambda x: (
        F.max_pool2d(x[None, None], 2, 2, ceil_mode=True), F.max_pool1d(x, 3, 1, 1),
        F.avg_pool2d(x[None, None], 2, 2, 1), F.pad(x[None], (2, 3), mode="replicate"),
    ),
    "bytes": lambda x: (
        (x * 9).to(torch.int8) * 5 + (x * 7).to(torch.int8), ~x.to(torch.int16) ^ 9, x.abs().byte() * 77,
    ),
    "rounded": lambda x: (
        F.gelu(x.bfloat16()), F.silu(x.half()), torch.sigmoid(x.double()), torch.erf(x), torch.expm1(x),
    ),
    "places": lambda x: (
        x.index_select(1, torch.arange(x.shape[1] - 1, -1, -2)), x[:, torch.tensor([-1, 0])], x.tril() + x.triu(1),
    ),
    "loss": lambda x: F.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.long)),
}  # fmt: skip
SIZES = ((3, 7), (5, 16), (17, 65))


def run_call(name: str) -> None:
    fn = CALLS[name]
    for shape in SIZES:
        lamina.reset()
        x = torch.randn(shape, requires_grad=True)
        fast = lamina.compile(fn)
        out = fast(x)
        floats = [o for o in (out if isinstance(out, tuple) else (out,)) if isinstance(o, torch.Tensor)]
        floats = [o for o in floats if o.requires_grad]
        if floats:
            torch.autograd.grad([o.float().sum() for o in floats], x)
        fast(torch.randn(shape)[:, :: 1 if shape[1] < 4 else 2])


def run_program(name: str) -> None:
    lamina.reset()
    model, args = programs.PROGRAMS[name]()
    out = lamina.compile(model)(*args)
    sum(v.float().sum() for v in (out.values() if isinstance(out, dict) else [out])).backward()


def main(arguments: list[str]) -> None:
    """All, the named groups of calls and programs alone, or with `--shard K/N` one part of N."""
    names = [*programs.PROGRAMS, *CALLS]
    if arguments[:1] == ["--shard"]:
        k, n = map(int, arguments[1].split("/"))
        names = names[k::n]
    elif arguments:
        names = arguments
    for name in names:
        begun = time.monotonic()
        if name in programs.PROGRAMS:
            run_program(name)
        else:
            run_call(name)
        print(f"{name} {time.monotonic() - begun:.1f} s", flush=True)
    print("finished", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
