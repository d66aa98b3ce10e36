"""Single operators and small fusions beside eager: one thread, calls in turn, the least of many.

    python benchmarks/ops/singles.py [big] [bf16] [+NAME ...]

Prints microseconds of eager and of the compiled call, and their ratio; below 0.95 a row is marked. Small sizes show what
a call costs, big ones (megabytes: the last cache) what a loop does.
"""

# ruff: noqa: E501

from __future__ import annotations

import sys
import time

import torch
import torch.nn.functional as F

import lamina

torch.set_num_threads(1)
torch.manual_seed(0)


def rnd(*s, dt=torch.float32):
    return torch.randn(*s).to(dt)


def table(dt, big):
    """name -> (function, its arguments), for a dtype and small or big sizes."""
    B = 1 << 19 if big else 1 << 12
    R, C = (1024, 512) if big else (32, 128)
    x, y = rnd(B, dt=dt), rnd(B, dt=dt)
    m, w = rnd(R, C, dt=dt), rnd(R, C, dt=dt)
    n4 = rnd(4, 32, 64, 64, dt=dt) if big else rnd(2, 8, 14, 14, dt=dt)
    n4c = n4.contiguous(memory_format=torch.channels_last)
    ch = n4.shape[1]
    g, b = rnd(ch, dt=dt), rnd(ch, dt=dt)
    gc, bc = rnd(C, dt=dt), rnd(C, dt=dt)
    ix = torch.randint(0, C, (C,))
    ixr = torch.randint(0, R, (R,))
    gi = torch.randint(0, C, (R, C))
    gr = torch.randint(0, R, (R, C))
    lab = torch.randint(0, 64, (R,))
    mask = torch.rand(R, C) > 0.5
    s3 = rnd(8, R // 8, C, dt=dt)
    T = {
        "add": (lambda x, y: x + y, x, y),
        "mul_scalar": (lambda x: x * 1.5, x),
        "relu": (torch.relu, x),
        "abs": (torch.abs, x),
        "neg": (torch.neg, x),
        "exp": (torch.exp, x),
        "log": (lambda x: torch.log(x.abs() + 1), x),
        "tanh": (torch.tanh, x),
        "sigmoid": (torch.sigmoid, x),
        "sin": (torch.sin, x),
        "sqrt": (lambda x: torch.sqrt(x.abs()), x),
        "rsqrt": (lambda x: torch.rsqrt(x.abs() + 1), x),
        "pow3": (lambda x: x**3, x),
        "pow_t": (lambda x, y: x.abs() ** y, x, y),
        "gelu": (F.gelu, x),
        "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), x),
        "silu": (F.silu, x),
        "mish": (F.mish, x),
        "softplus": (F.softplus, x),
        "elu": (F.elu, x),
        "hardswish": (F.hardswish, x),
        "leaky": (F.leaky_relu, x),
        "erf": (torch.erf, x),
        "atan2": (torch.atan2, x, y),
        "logsigmoid": (F.logsigmoid, x),
        "div": (lambda x, y: x / (y.abs() + 1), x, y),
        "fmod": (lambda x: torch.fmod(x, 0.7), x),
        "remainder": (lambda x: torch.remainder(x, 0.7), x),
        "floor": (torch.floor, x),
        "round": (torch.round, x),
        "clamp": (lambda x: x.clamp(-1, 1), x),
        "where": (lambda m, a, b: torch.where(m, a, b), mask, m, w),
        "maximum": (torch.maximum, x, y),
        "lerp": (lambda x, y: torch.lerp(x, y, 0.3), x, y),
        "addcmul": (lambda x, y: torch.addcmul(x, x, y), x, y),
        "isnan": (torch.isnan, x),
        "eq": (torch.eq, x, y),
        "gt": (lambda x, y: x > y, x, y),
        "sign": (torch.sign, x),
        "nan_to_num": (torch.nan_to_num, x),
        "to_f64": (lambda x: x.double(), x),
        "to_bf16": (lambda x: x.to(torch.bfloat16) if x.dtype != torch.bfloat16 else x.float(), x),
        "to_int": (lambda x: x.int(), x),
        "clone": (torch.clone, x),
        "sum_all": (torch.sum, x),
        "sum_row": (lambda m: m.sum(1), m),
        "sum_col": (lambda m: m.sum(0), m),
        "mean_row": (lambda m: m.mean(1), m),
        "mean_col": (lambda m: m.mean(0), m),
        "amax_all": (lambda m: m.amax(), m),
        "amax_row": (lambda m: m.amax(1), m),
        "amax_col": (lambda m: m.amax(0), m),
        "max_row": (lambda m: m.max(1), m),
        "max_col": (lambda m: m.max(0), m),
        "argmax_row": (lambda m: m.argmax(1), m),
        "argmax_col": (lambda m: m.argmax(0), m),
        "argmax_all": (lambda m: m.argmax(), m),
        "amin_row": (lambda m: m.amin(1), m),
        "prod_row": (lambda m: m.prod(1), m),
        "prod_all": (lambda m: (m * 0.01 + 1).prod(), m),
        "var_row": (lambda m: m.var(1), m),
        "var_col": (lambda m: m.var(0), m),
        "std_all": (lambda m: m.std(), m),
        "norm": (lambda m: m.norm(), m),
        "norm_row": (lambda m: m.norm(dim=1), m),
        "logsumexp_row": (lambda m: m.logsumexp(1), m),
        "any_row": (lambda m: (m > 3).any(1), m),
        "all_all": (lambda m: (m > -9).all(), m),
        "sum_mid": (lambda s: s.sum(1), s3),
        "amax_mid": (lambda s: s.amax(1), s3),
        "sum_02": (lambda s: s.sum((0, 2)), s3),
        "count_nonzero": (lambda m: torch.count_nonzero(m, 1), m),
        "aminmax": (lambda m: torch.aminmax(m, dim=1), m),
        "softmax_row": (lambda m: m.softmax(1), m),
        "softmax_col": (lambda m: m.softmax(0), m),
        "log_softmax": (lambda m: m.log_softmax(1), m),
        "layer_norm": (lambda m, g, b: F.layer_norm(m, (m.shape[1],), g, b), m, gc, bc),
        "rms_norm": (lambda m, g: F.rms_norm(m, (m.shape[1],), g), m, gc),
        "group_norm": (lambda n, g, b: F.group_norm(n, 4, g, b), n4, g, b),
        "group_norm_cl": (lambda n, g, b: F.group_norm(n, 4, g, b), n4c, g, b),
        "instance_norm": (F.instance_norm, n4),
        "batch_norm_eval": (lambda n, g, b: F.batch_norm(n, b, g.abs(), g, b), n4, g, b),
        "batch_norm_eval_cl": (lambda n, g, b: F.batch_norm(n, b, g.abs(), g, b), n4c, g, b),
        "normalize": (lambda m: F.normalize(m, dim=1), m),
        "cumsum_row": (lambda m: m.cumsum(1), m),
        "cumsum_col": (lambda m: m.cumsum(0), m),
        "cumprod_row": (lambda m: m.cumprod(1), m),
        "cummax_row": (lambda m: m.cummax(1), m),
        "logcumsumexp": (lambda m: m.logcumsumexp(1), m),
        "transpose": (lambda m: m.t().contiguous(), m),
        "permute3": (lambda s: s.permute(2, 0, 1).contiguous(), s3),
        "permute_021": (lambda s: s.transpose(1, 2).contiguous(), s3),
        "nchw_nhwc": (lambda n: n.contiguous(memory_format=torch.channels_last), n4),
        "nhwc_nchw": (lambda n: n.contiguous(), n4c),
        "cat0": (lambda a, b: torch.cat([a, b]), m, w),
        "cat1": (lambda a, b: torch.cat([a, b], 1), m, w),
        "stack0": (lambda a, b: torch.stack([a, b]), m, w),
        "stack1": (lambda a, b: torch.stack([a, b], 1), m, w),
        "stack_last": (lambda a, b: torch.stack([a, b], -1), m, w),
        "cat4_c": (lambda n: torch.cat([n, n], 1), n4),
        "cat_cl": (lambda n: torch.cat([n, n], 1), n4c),
        "slice_copy": (lambda m: m[:, 3:-5].contiguous(), m),
        "strided": (lambda m: m[:, ::2].contiguous(), m),
        "flip1": (lambda m: m.flip(1), m),
        "flip0": (lambda m: m.flip(0), m),
        "roll": (lambda m: m.roll(3, 1), m),
        "repeat": (lambda m: m.repeat(2, 1), m),
        "repeat_i": (lambda m: m.repeat_interleave(2, 1), m),
        "expand_copy": (lambda g: g.expand(256, g.shape[0]).contiguous(), gc),
        "pad": (lambda n: F.pad(n, (1, 1, 1, 1)), n4),
        "pad_reflect": (lambda n: F.pad(n, (1, 1, 1, 1), mode="reflect"), n4),
        "tril": (lambda m: m.tril(), m),
        "triu": (lambda m: m.triu(), m),
        "diag": (lambda m: m.diagonal().contiguous(), m),
        "unfold": (lambda n: F.unfold(n, 3, padding=1), n4),
        "pixel_shuffle": (lambda n: F.pixel_shuffle(n, 2), n4),
        "index_select0": (lambda m, i: m.index_select(0, i), m, ixr),
        "index_select1": (lambda m, i: m.index_select(1, i), m, ix),
        "index0": (lambda m, i: m[i], m, ixr),
        "index1": (lambda m, i: m[:, i], m, ix),
        "gather1": (lambda m, i: m.gather(1, i), m, gi),
        "gather0": (lambda m, i: m.gather(0, i), m, gr),
        "take_along": (lambda m, i: torch.take_along_dim(m, i, 1), m, gi),
        "embedding": (lambda m, i: F.embedding(i, m), m, ixr),
        "scatter_add1": (lambda m, i, w: m.scatter_add(1, i, w), m, gi, w),
        "scatter_add0": (lambda m, i, w: m.scatter_add(0, i, w), m, gr, w),
        "scatter1": (lambda m, i, w: m.scatter(1, i, w), m, gi, w),
        "index_add0": (lambda m, i, w: m.index_add(0, i, w), m, ixr, w),
        "index_put": (lambda m, i, w: m.index_put((i,), w, accumulate=True), m, ixr, w),
        "index_copy": (lambda m, i, w: m.index_copy(0, i, w), m, torch.randperm(R), w),
        "one_hot": (lambda i: F.one_hot(i, 64), lab),
        "masked_fill": (lambda m, k: m.masked_fill(k, 0.0), m, mask),
        "embedding_bag_sum": (lambda m, i: F.embedding(i.view(-1, 4), m).sum(1), m, ixr),
        "bucketize": (lambda x, e: torch.bucketize(x, e), x.float(), torch.linspace(-2, 2, 17)),
        "topk": (lambda m: m.topk(4, 1), m),
        "sort": (lambda m: m.sort(1), m),
        "nll": (lambda m, i: F.nll_loss(m, i), m, ixr % C),
        "cross_entropy": (lambda m, i: F.cross_entropy(m, i), m, ixr % C),
        "mse": (F.mse_loss, m, w),
        "l1": (F.l1_loss, m, w),
        "bce_logits": (lambda a, b: F.binary_cross_entropy_with_logits(a, b.sigmoid()), m, w),
        "smooth_l1": (F.smooth_l1_loss, m, w),
        "kl": (lambda a, b: F.kl_div(a.log_softmax(1), b.softmax(1), reduction="batchmean"), m, w),
        "max_pool": (lambda n: F.max_pool2d(n, 2), n4),
        "max_pool3": (lambda n: F.max_pool2d(n, 3, 2, 1), n4),
        "max_pool_cl": (lambda n: F.max_pool2d(n, 3, 2, 1), n4c),
        "avg_pool": (lambda n: F.avg_pool2d(n, 2), n4),
        "avg_pool3": (lambda n: F.avg_pool2d(n, 3, 1, 1), n4),
        "adaptive_avg": (lambda n: F.adaptive_avg_pool2d(n, 1), n4),
        "adaptive_avg_cl": (lambda n: F.adaptive_avg_pool2d(n, 1), n4c),
        "interp_nearest": (lambda n: F.interpolate(n, scale_factor=2), n4),
        "interp_bilinear": (lambda n: F.interpolate(n, scale_factor=2, mode="bilinear"), n4),
        "interp_bilinear_cl": (lambda n: F.interpolate(n, scale_factor=2, mode="bilinear"), n4c),
        "interp_bicubic": (lambda n: F.interpolate(n, scale_factor=2, mode="bicubic"), n4),
        "grid_sample": (
            lambda n: F.grid_sample(
                n,
                F.affine_grid(torch.eye(2, 3, dtype=n.dtype).expand(n.shape[0], 2, 3), n.shape, align_corners=False),
                align_corners=False,
            ),
            n4,
        ),
        "glu": (lambda m: F.glu(m, 1), m),
        "cosine": (lambda a, b: F.cosine_similarity(a, b, dim=1), m, w),
        "cdist_row": (lambda a, b: (a - b).pow(2).sum(1).sqrt(), m, w),
        "outer": (lambda a: torch.outer(a, a), gc),
        "arange_mul": (lambda m: m * torch.arange(m.shape[1], dtype=m.dtype), m),
        "dropout_eval": (lambda m: F.dropout(m, 0.5, False) * 2, m),
        "bias_gelu": (lambda m, b: F.gelu(m + b), m, bc),
        "add_relu_sum": (lambda m, w: (m + w).relu().sum(1), m, w),
        "rope": (lambda m: torch.cat([-m[:, m.shape[1] // 2 :], m[:, : m.shape[1] // 2]], 1) * 2 + m, m),
        "lerp_cols": (lambda m, g, b: m * g + b, m, gc, bc),
        "bool_sum": (lambda k: k.sum(1), mask),
        "int_sum": (lambda k: k.sum(1), gi),
        "i32_max": (lambda k: k.amax(1), gi.int()),
        "u8_add": (lambda k: k + 1, gi.to(torch.uint8)),
        "int_mul": (lambda k: k * 3, gi),
    }
    return T


def main():
    big = "big" in sys.argv
    dt = torch.bfloat16 if "bf16" in sys.argv else torch.float32
    only = [a[1:] for a in sys.argv if a.startswith("+")]
    T = table(dt, big)
    bad = []
    for name, (fn, *args) in T.items():
        if only and name not in only:
            continue
        d = {"fn": fn}
        exec("def prog(*a):\n    return fn(*a)", d)
        with torch.no_grad():
            try:
                f = lamina.compile(d["prog"])
                f(*args)
                f(*args)
            except Exception as e:
                print(name, "FAIL", type(e).__name__, str(e)[:150])
                continue
            t = time.perf_counter()
            fn(*args)
            one = max(1e-7, time.perf_counter() - t)
            t = time.perf_counter()
            f(*args)
            one = max(one, time.perf_counter() - t)
            reps = max(1, int(2e-4 / one))
            rounds = 25 if one < 2e-3 else 9
            best = [9.0, 9.0]
            for _ in range(rounds):
                for k, g in enumerate((f, fn)):
                    t = time.perf_counter()
                    for _ in range(reps):
                        g(*args)
                    best[k] = min(best[k], (time.perf_counter() - t) / reps)
        r = best[1] / best[0]
        if r < 0.97:
            bad.append((r, name))
        print(f"{name:18s} {best[1] * 1e6:9.1f} {best[0] * 1e6:9.1f} {r:5.2f}{'  <--' if r < 0.95 else ''}", flush=True)
    print("BELOW", sorted(bad))


if __name__ == "__main__":
    main()
