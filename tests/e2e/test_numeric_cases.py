"""Edges of operators where compilers tend to differ from eager without saying so: casts, promotion, wrap-around, NaN and
infinity, ties, empty and 0-dim tensors, rounding and padding modes, losses, random numbers."""
# The programs are odd on purpose, and tables of operators read best in long lines.
# ruff: noqa: B007, B008, B012, B018, B023, B904, E501, E731, F821, F841

from __future__ import annotations

import importlib.util
import pathlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

_spec = importlib.util.spec_from_file_location("e2e_judge", pathlib.Path(__file__).with_name("judge.py"))
judge = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(judge)
book = judge.Book()
nan, inf = float("nan"), float("inf")
i64, i32, i16, i8, u8, f16, bf16, f64 = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
        torch.float16, torch.bfloat16, torch.float64)


def rnd(*shape, seed=0, dtype=torch.float32, grad=False):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_(grad)


# --- casts ------------------------------------------------------------------------------------------------------

@book.calls(lambda: (torch.tensor([0.5, -0.5, 1.9, -1.9, 127.6, 255.0, -128.0, 100.0]),), lambda: (torch.tensor(3.7),))
def float_to_integer(x):
    return [x.to(d) for d in (i64, i32, i16, i8)] + [x.abs().to(u8), x.bool(), x.half().int(), x.double().short(),
            (x * 2).char(), x.bfloat16().long()]


@book.calls(lambda: (torch.tensor([2**53 + 1, -(2**53) - 1, 2**62 + 3, 2**31, -(2**31) - 1, 2**24 + 1, 0, -1]),))
def large_integers_stay_exact(x):
    return (x + 1, x * 1, x - 1, x.max(), x.min(), x.sum(), x.cumsum(0), x // 3, x % 7, -x, x.abs(),
            x.clamp(max=2**53 + 1), x.clamp(-(2**60), 2**60), torch.where(x > 2**53, x, 0),
            x.float(), x.double(), x.int(), x.to(i16), x == 2**53 + 1, x > 2**53, x.sort()[0],
                    torch.maximum(x, x - 1), x.flip(0), x & 0xFF, x >> 3, x ^ -1, x.masked_fill(x == 0, 2**53 + 1),
            torch.full((2,), 2**53 + 1), torch.tensor(2**62 + 1) + x[:1], x.prod(), x.square(), x / 1,
                    x.float().long(), torch.div(x, 2, rounding_mode="floor"),
            torch.arange(2**53, 2**53 + 3), x.new_full((2,), 2**62 + 1), x.argmax(), torch.remainder(x, 2**40 + 1),
                    torch.add(x, x, alpha=2**40 + 1), x.pow(2), x.diff())


@book.calls(lambda: (torch.tensor([1e5, -1e5, 65504.0, 65520.0, 6e-8, 2e-8, 1e-9, 1.0009765625]),))
def half_overflow_and_rounding(x):
    h, b = x.half(), x.bfloat16()
    return (h, b, h * 2, (h * 2).float(), h + h - h, h.sum(), b.sum(), (x * 1e30).bfloat16(), h.float() * 2,
            (h * h).sqrt(), b * b, h / 3, h.exp(), h.square().mean(), b.cumsum(0),
            h.softmax(0), h.abs().log(), (h + 1e-4).float(), h * 1e5, h.norm(), (b + 0.001).float(),
                    h.half().double(), x.double().half(), h.clamp(-100, 100), h.cos(), b.pow(3))


@book.calls(lambda: (torch.tensor([0.0, 1.0, -1.0, 2.5]),))
def complex_numbers(x):
    z = torch.complex(x, x.flip(0))
    return (z, z.real, z.imag, z.abs(), z.angle(), z * z, z + 1, z * 2j, z.conj(), z.conj() * 2, (z.conj().imag + 1),
            z.sum(), z.mean(), z.exp(), torch.view_as_real(z), z == z, z.pow(2), 1 / (z + 1),
            x * 1j, x + 1j, torch.polar(x.abs(), x), z.reciprocal(), z @ z, torch.stack([z, z]).mT.conj(),
                    z.to(torch.complex128), z.prod(), torch.where(x > 0, z, 0), z.sqrt(), z.isnan(), torch.fft.fft(x),
                            torch.fft.rfft(x).abs(),
            z.cumsum(0), torch.vdot(z, z), z.resolve_conj(), z.conj().resolve_conj(), z.neg(), z.sgn(),
                    z.flatten().unsqueeze(1) @ z.conj().unsqueeze(0), z.norm(), torch.result_type(z, 1.0), z.isreal(),
                            z.tanh())


@book.calls(lambda: (rnd(3, 4, grad=True),), train=True)
def complex_gradients(x):
    z = torch.complex(x, x * 2)
    f = torch.fft.fft2(z)
    return (z * z.conj()).real, f.abs(), torch.view_as_real(torch.fft.ifft(f)), z.abs().sum(), (z.exp() * 1j).imag, torch.fft.irfft(torch.fft.rfft(x), n=4)


# --- promotion --------------------------------------------------------------------------------------------------

@book.calls(lambda: (torch.tensor([1, 2, 3], dtype=u8), torch.tensor([-1, 2, 5], dtype=i8),
        torch.tensor([0.5, 1.5, -2.5], dtype=f16), torch.tensor([1.0, 2.0, 3.0], dtype=bf16),
                torch.tensor([True, False, True])))
def mixed_types(u, s, h, b, m):
    z64, zi, zc = torch.tensor(1.5, dtype=f64), torch.tensor(300), torch.tensor(1 + 1j)
    return (u + s, u * 1.0, u + 300, u + zi, s + zi, h + z64, b + z64, h + b, m + u, m * h, u / s, u // 2.0, s ** 2,
            s ** 2.0, 2 ** s.abs(), 2.0 ** s, h ** 2, u + True, m + True, m / 2, h + zc, u.to(i16) + h,
            torch.where(m, u, s), torch.where(m, 1.0, u), torch.where(m, h, 1), torch.where(m, zi, h),
                    torch.cat([u, h]), torch.cat([s, m]), torch.stack([u, s]), torch.maximum(u, s),
                            torch.minimum(h, b), torch.lerp(h, h * 2, 0.5),
            torch.add(u, s, alpha=2), torch.sub(h, 1, alpha=3), torch.rsub(u, 1), torch.addcmul(h, h, h, value=2),
                    torch.dot(h, h), u.float().add_(s), h.add(zi), torch.atan2(u, s), torch.true_divide(m, 3),
                            u.mean(dtype=f64), s.sum(dtype=i8), m.sum(dtype=u8),
            m.cumsum(0, dtype=f16), u.cumprod(0), h.sum(dtype=torch.float32), u.prod(), m.prod(),
                    s.std(unbiased=False) if False else s.float().std(), torch.sqrt(u), torch.sin(m), torch.exp(s),
                            torch.sigmoid(u), torch.floor(h), u.clamp(max=2.5), s.clamp(zi),
            torch.clamp(u, s.int(), s.int() + 5), torch.pow(u, s.abs()), torch.pow(3, u), torch.float_power(u, 2),
                    torch.copysign(s, h), torch.fmod(s, 2.0), torch.remainder(u, -2), torch.ldexp(h, s),
                            torch.bitwise_or(u, s), m & u, m | 2, m ^ m, ~u, u == 1.0, u < 2.5, s > -0.5, h == 0.5,
            torch.tensor(2) * h, torch.tensor(2.0) * u, torch.tensor([2.0]) * h, torch.tensor(True) * u,
                    u * torch.tensor(2.5, dtype=f16), torch.logaddexp(h.float(), b), torch.hypot(h.float(), z64),
                            torch.outer(u, h), torch.mul(m, 3), torch.mul(m, m), m.long() - 1,
                                    torch.isclose(h, h.clone()), torch.cross(h.float(), h.float(), dim=0),
                                            u.scatter(0, torch.tensor([0]), 7), torch.bucketize(u,
                                                    torch.tensor([1, 2])), torch.linspace(0, 1, 3, dtype=f16),
                                                            torch.special.expit(s), torch.square(m),
                                                                    torch.addcdiv(h, h, h + 3))


@book.calls(lambda: (torch.tensor([1, 2, 3], dtype=i32), 2, 2.5, True, 1 + 2j), lambda: (torch.tensor([1.0, 2.0],
        dtype=f16), -3, 1e6, False, 1j), lambda: (torch.tensor(3, dtype=u8), 0, 0.5, True, 0j))
def python_scalars_of_every_kind(t, n, f, b, c):
    return t + n, t + f, t + b, t + c, t * f, t - n, n - t, f / (t + 1), t == f, t < f, torch.full((2,),
            f), torch.full_like(t, n), torch.where(t > 1, n, f), torch.tensor([n, f]), t.new_tensor([n,
                    n]), torch.scalar_tensor(f), t.to(torch.float64) ** n.__abs__(), t.double().clamp(min=n,
                            max=f + 10), torch.add(t, t,
                                    alpha=n), torch.as_tensor(f), torch.tensor(b), torch.tensor(c), torch.tensor(n), t.float().fill_(f), t.clone().masked_fill_(t > 1, n if t.dtype != u8 else 1)


@book.calls(lambda: (torch.tensor([5, -5, 7, -7], dtype=i64), torch.tensor([2, 2, -2, -2])),
        lambda: (torch.tensor([5.5, -5.5, 0.0, -0.0]), torch.tensor([0.0, -0.0, 0.0, inf])),
                lambda: (torch.tensor([5, -128, 7, -7], dtype=i8), torch.tensor([3, 3, -3, 2], dtype=i8)))
def division_modes(a, b):
    return a / b, a // b, a % b, torch.fmod(a, b), torch.div(a, b, rounding_mode="trunc"), torch.div(a, b,
            rounding_mode="floor"), a // 3, a % 3, a // -3, a % -3, 7 // b if b.is_floating_point() else b, torch.remainder(7, b), a.floor_divide(2), torch.div(a, 2.5, rounding_mode="floor"), a.div(2, rounding_mode="trunc"), torch.divide(a, True), a % 2.5


@book.calls(lambda: (torch.tensor([2, -2, 3, 0, 1, -1]),), lambda: (torch.tensor([2.0, -2.0, 0.0, -0.0, inf, -inf,
        nan]),), lambda: (torch.tensor([2, 3, 15, 16, 0], dtype=u8),))
def powers(x):
    f = x.float()
    return x**2, x**3, x**0, f**-1, f**0.5, f**-2, f**0.0, f**3.0, f**nan, 2.0**f, 0.0**f, (-2.0)**f, f.pow(f), 1**x, (-1) ** x.int().abs(), x**x.abs().int(), f**2.5, f ** (1 / 3), torch.pow(x, torch.tensor(2)), torch.pow(2, x.int().abs()), f.square(), f.rsqrt(), torch.float_power(x, -1), x.abs()**7


@book.calls(lambda: (torch.tensor([2, 3]), torch.tensor([1, -1])))
def integer_to_negative_power(a, b):
    return a**b, torch.tensor([1, -1, 2, 0]) ** torch.tensor([-1, -3, -1, -1])


@book.calls(lambda: (torch.tensor([nan, 1.0, -inf, inf, 0.5, -2.0]),))
def clamps_with_odd_bounds(x):
    b = torch.tensor([0.0, nan, 0.0, 0.0, 1.0, -3.0])
    return (x.clamp(0, 1), x.clamp(min=nan), x.clamp(max=nan), x.clamp(2, 1), x.clamp(b, None), x.clamp(None, b),
            x.clamp(b, b - 1), x.clip(-inf, inf), x.clamp(min=-inf), F.relu6(x), F.hardtanh(x, -0.5, 0.25),
                    F.hardsigmoid(x), F.hardswish(x), F.threshold(x, 0.5, nan), x.clamp_min(0.0),
            F.softshrink(x, 0.5), F.hardshrink(x), F.elu(x), F.selu(x), F.celu(x, 2.0), F.gelu(x.clamp(max=9.0)),
                    F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x), F.softplus(x, 2, 3), F.logsigmoid(x),
                            F.softsign(x), F.prelu(x, torch.tensor([0.1])), F.leaky_relu(x, -1.0), F.rrelu(x),
                                    F.glu(x), F.tanhshrink(x), F.relu(x), torch.sigmoid(x), torch.tanh(x),
            torch.logit(x, 0.1), torch.sign(x), torch.sgn(x), torch.heaviside(x, torch.tensor(0.5)),
                    torch.nan_to_num(x), torch.nan_to_num(x, 1.0, 2.0, 3.0), torch.nan_to_num(x.half()),
                            torch.nan_to_num(x.bfloat16()), torch.nan_to_num(x.double(), posinf=1.0),
                                    torch.nan_to_num(x.nan_to_num().long()), torch.isposinf(x), torch.isneginf(x),
                                            torch.signbit(-x), torch.frac(x), torch.trunc(x))


@book.calls(lambda: (torch.tensor([[1.0, 2.0], [-inf, -inf], [nan, 1.0]]),))
def masks_and_infinities(x):
    m = torch.tensor([[True, True], [False, True], [False, False]])
    f = x.masked_fill(m, -inf)
    return (f, f.softmax(-1), f.log_softmax(-1), torch.logsumexp(f, -1), f.amax(-1), x.masked_fill(~m, nan).nansum(),
            torch.where(m, x, inf) * 0, x - x, x * 0, x / x, x == x, torch.logaddexp(x, x), torch.logcumsumexp(x, 1),
                    x.max(1), x.min(0), torch.fmax(x, x.flip(0)), x.cummax(1)[0], x.sort(1)[0], x.topk(1)[0],
                            x.argsort(1), x.unique() if False else x[:2],
            F.normalize(x), x.std(1), x.var(0), x.median(), x.nanmedian(1), x.nanquantile(0.5, dim=1),
                    x.quantile(0.3), x.aminmax(), x.isinf().any(1), x.nanmean(), x.norm(p=inf), x.norm(p=-inf),
                            x.norm(p=0), x.softmax(0, dtype=f64), F.softmin(x, 1),
                                    F.gumbel_softmax(torch.zeros(2, 2), hard=True).sum(1),
                                            torch.masked_fill(x, m, torch.tensor(3)))


@book.calls(lambda: (torch.empty(0, 3), torch.empty(2, 0)), lambda: (torch.ones(1, 3), torch.ones(2, 1)))
def nothing_to_reduce(x, y):
    return (x.sum(), x.sum(0), x.sum(1), x.mean(0), x.prod(0), x.var(0), x.std(), x.any(), x.all(1), x.cumsum(0),
            x.softmax(0), y.logsumexp(1), x.norm(dim=0), torch.cat([x, x]), x @ x.mT, x.mT @ x, y @ y.mT,
                    torch.bmm(x[None], x.mT[None]), F.linear(x, torch.ones(4, 3), torch.ones(4)), x.flatten(),
                            x.reshape(-1, 3), x.t(), x + 1, torch.stack([x, x]), F.pad(x, (1, 1)),
            x.repeat(2, 1), x.expand(2, *x.shape), x.nonzero(), x[x > 0], x.sort(0)[0], x.flip(0), x.roll(1, 0),
                    torch.einsum("ij,kj->ik", x, x), F.layer_norm(x, (3,)), F.embedding(torch.zeros(0, dtype=i64),
                            torch.ones(2, 3)), F.one_hot(torch.zeros(0, dtype=i64), 3), torch.linspace(0, 1, 0),
                                    torch.arange(0), torch.zeros(0).sum(), x.count_nonzero(), x.nansum(0),
                                            x.diff(dim=0), x.unsqueeze(0).mean(1), x.split(1), x.chunk(2), x.tril(),
            x.index_select(0, torch.zeros(0, dtype=i64)), x.cumprod(0), torch.logcumsumexp(x, 0), x.argsort(0),
                    x.clamp(0, 1), x.half().sum(), x.long().sum(0), x.bool().any(0), torch.dist(x, x),
                            F.cosine_similarity(x, x), x.trace() if False else x.numel())


@book.calls(lambda: (torch.tensor(2.5), torch.tensor(3), torch.tensor(True)))
def zero_dimensions(f, i, b):
    return (f.sum(0), f.mean(-1), f.max(0), f.argmax(), f.softmax(0), f.cumsum(0), f.sort(), f.flatten(),
            f.view(1, 1), f.unsqueeze(0), f.expand(3), f.repeat(2), f.t(), f[None], f[...], f.squeeze(), f.norm(),
                    f.var(unbiased=False), f.std(correction=0), f.nonzero(), f[f > 1], f * i,
                            f.index_select(0, torch.tensor([0])), f.gather(0, torch.tensor(0)),
                                    f.flip(0) if False else f, f.topk(1), f.median(), f.all(0), f.logsumexp(0),
                                            f.clone().index_fill_(0, torch.tensor(0), 1),
                                                    f.scatter(0, torch.tensor(0), 9.0),
            f.prod(0), f.any(), f.amax(), f.aminmax(), f.unbind() if False else f, torch.stack([f, f]),
                    torch.cat([f[None], f[None]]), f.item() + 1, int(i), bool(b), f.tolist(), i.item() * 2,
                            f.masked_fill(b, 1.0), torch.where(b, f, i), f.reshape(()), f.view(-1), F.relu(f),
                                    F.dropout(f, 0.0), f.kthvalue(1), f.mode(), f.T, f.dim(), f.stride(), f.cummax(0),
                                            f.diff(prepend=torch.tensor([1.0])) if False else f, torch.atleast_2d(f),
                                                    torch.broadcast_to(f, (2, 2)), torch.tensordot(f, f, 0),
                                                            torch.dot(f[None], f[None]), f.squeeze(0),
                                                                    torch.squeeze(f, -1), f.transpose(0, -1),
                                                                            f.permute(()))


@book.calls(lambda: (torch.tensor([[3, 1, 3, 1], [2, 2, 2, 2]]), torch.tensor([[0.5, -0.0, 0.0, 0.5],
        [nan, 1.0, nan, 1.0]])))
def ties_and_stability(i, f):
    out = []
    for t in (i, f, i.to(u8), f.half(), i.bool()):
        out += [t.sort(dim=1, stable=True), t.sort(dim=0, descending=True, stable=True),
                t.argsort(dim=1, stable=True), t.max(1), t.min(1), t.cummax(1) if t.dtype != torch.bool else 0,
                        t.cummin(0) if t.dtype != torch.bool else 0]
        if t.dtype != torch.bool:
            out += [t.argmax(), t.argmin(0), t.argmax(1, keepdim=True), t.topk(4, 1)[0],
                    t.unique(return_inverse=True, return_counts=True), t.kthvalue(2, 1)[0], t.mode(1)[0],
                            t.median(1)[0], torch.isin(t, t[0, :1]), t.unique_consecutive(dim=0)]
    return out, torch.searchsorted(torch.tensor([1, 2, 2, 3]), i, right=True), torch.bucketize(f,
            torch.tensor([0.0, 0.5])), torch.histc(f[0],
                    3), torch.bincount(i.flatten()), i.flatten().histogram(2)[0] if False else 0, torch.msort(i), torch.lexsort if False else 0


@book.calls(lambda: (rnd(3, 4, 5),), lambda: (rnd(1, 1, 5),))
def variances_with_every_correction(x):
    return [x.var(d, correction=c, keepdim=k) for d in (0, (1, 2), None) for c in (0, 1, 2, 5, 1.5) for k in (False,
            True)] + [torch.std_mean(x, (0, 2), correction=0), torch.var_mean(x, correction=60),
                    x.std(1, unbiased=False), x.double().var(), x.half().var(2), torch.cov(x[0]),
                            torch.corrcoef(x[:, 0]), x.var(0, correction=3)]


@book.calls(lambda: (rnd(6, 4),), lambda: (rnd(4, 6).t(),))
def scatter_with_duplicates(x):
    i = torch.tensor([0, 2, 0, 2, 5, 0])
    j = i[:, None].expand(6, 4)
    return (x.index_put((i,), x * 2, accumulate=True), x.index_add(0, i, x, alpha=-1), x.scatter_add(0, j, x),
            x.scatter(0, j, 1.5, reduce="multiply"), x.scatter(0, j[:1], 7.0), x.scatter_reduce(0, j, x, "prod"),
                    x.scatter_reduce(0, j, x, "amax", include_self=False), x.long().scatter_reduce(0, j, x.long(),
                            "mean"), x.index_reduce(0, i, x, "mean"), x.index_fill(0, i, -1),
                                    x.index_copy(0, torch.tensor([3, 1]), x[:2]),
                                            x.put(torch.tensor([0, -1, 3]), torch.ones(3)),
                                                    x.put(torch.tensor([0, 0, 3]), torch.ones(3), True),
                                                            x.take(torch.tensor([[0, -1]])),
            torch.zeros(6, 4, dtype=u8).scatter_add(0, j, torch.full((6, 4), 100, dtype=u8)),
                    torch.zeros(6, 4, dtype=torch.bool).index_put((i, torch.tensor(1)), torch.tensor(True)),
                            x.masked_scatter(x > 0, x.flatten()), torch.diagonal_scatter(x, torch.zeros(4)),
                                    torch.select_scatter(x, torch.ones(4), 0, -1),
                                            torch.slice_scatter(x, torch.ones(2, 4), 0, 1, 5, 2),
                                                    x.half().scatter_add(0, j, x.half()),
                                                            x.gather(1, torch.tensor([[0], [3]])),
                                                                    torch.take_along_dim(x, x.argsort(0), 0),
                                                                            x.index_put((torch.tensor([True, False,
                                                                                    True, False, False, True]),),
                                                                                            torch.tensor(5.0)),
                                                                                                    x.index_put((torch.tensor([-1, -2]), torch.tensor([0, -1])), torch.tensor([1.0, 2.0])))


@book.calls(lambda: (torch.arange(24.0).reshape(2, 3, 4),))
def indexing_forms(x):
    i, m = torch.tensor([1, -1]), torch.tensor([True, False, True])
    y = x.clone()
    y[:, m] = 0
    y[..., 1:3] += 5
    y[0, i, i] = -1
    y[None, 1, ..., None, 0] = 3
    z = x.clone()
    z[i.unsqueeze(1), :, i] = 9.0
    z[z > 20] *= 2
    z[1][2] = z[0, 0] * 2
    z[:, [0, 2]] = z[:, [2, 0]]
    return (x[i], x[:, m], x[..., i], x[i, :, i], x[0, m], x[i[:, None], m.nonzero().squeeze(1)], x[None, ..., -1],
            x[-1, ::2, 1::2], x[:, None, i], x[x > 20], x[True], x[False], x[torch.tensor(1)], x[i.to(u8)[:1].long()],
                    x[:, -3:-1], x[5:], x[:, 10:20], x[[0, 1], [1, 2]], x[(1,)], x[1:1],
                            x[torch.tensor([[0, 1], [1, 0]])], y, z, x[..., torch.tensor([True, False, False, True])],
                                    x.select(1, -1), x.narrow(2, -2, 2), x[i.int()], x[:, torch.zeros(0, dtype=i64)],
                                            x[[True, False]], x[1, 2, 3].item(), x[slice(None), 1],
                                                    x[torch.tensor([True, False])], x.movedim(0, -1)[i], x[:, :, [-1]])


@book.calls(lambda: (torch.tensor([200, 100, 255, 0, 1], dtype=u8), torch.tensor([100, -100, 127, -128, -1],
        dtype=i8), torch.tensor([30000, -30000, 32767, -32768, 5], dtype=i16), torch.tensor([2**31 - 1, -(2**31),
                2**30, -1, 7], dtype=i32)))
def integer_wrap_around(u, s, h, w):
    out = []
    for t in (u, s, h, w):
        out += [t + t, t * t, t - 1 - 100, t * 3, t + t > t, (t + t) // 2, (t * 2).float(), (t * t).long(),
                t.square(), t.sum(), t.sum(dtype=t.dtype), t.cumsum(0), t.cumsum(0, dtype=t.dtype),
                        t.prod(dtype=t.dtype), t ** 3, torch.addcmul(t, t, t), (t + 100).clamp(0, 50),
                                torch.where(t + t > 0, t, 0), t.unsqueeze(1) @ t.unsqueeze(0), torch.dot(t, t),
                                        (t - 1).to(i64), (t + 1).sort()[0], (t * 2).max(), torch.maximum(t + t, t),
                                                (t + t).abs(), t.diff(), t.bitwise_not() + 1, (t << 1) >> 1,
                                                        (t + t) == 2 * t.long(), (t + t).bool(), (t + t) % 7,
                                                                (t + t) / 2, torch.add(t, t, alpha=3),
                                                                        F.relu(t + t) if t.dtype != u8 else 0,
                                                                                t.neg() if t.dtype != u8 else -t,
                                                                                        t.abs(), t.sign(),
                                                                                                torch.lerp(t.float(),
                                                                                                        (t + t).float(), 0.5), (t + t).mean(dtype=f64)]
    return out


@book.calls(lambda: (torch.tensor([1, 2, 3], dtype=torch.uint16), torch.tensor([2**32 - 1, 5, 0], dtype=torch.uint32),
        torch.tensor([2**63 - 1, 5, 0], dtype=torch.uint64)))
def wide_unsigned(a, b, c):
    return a.to(i32) + 1, b.to(i64), c.to(f64), a.view(i16), b.to(torch.float32), c == c, a.clone(), b.long() * 2, b.float() / 2, a.to(torch.uint8), b.to(i32), c.to(i64) + 1


@book.calls(lambda: (rnd(2, 3, 9),), lambda: (rnd(2, 3, 9, dtype=f64),), train=True)
def convolution_modes(x):
    w = torch.linspace(-1, 1, 18, dtype=x.dtype).reshape(2, 3, 3)
    x2, w2 = x.unsqueeze(2).repeat(1, 1, 4, 1), w.unsqueeze(2).repeat(1, 1, 2, 1)
    outs = [F.conv1d(x, w, padding="same"), F.conv1d(x, w, padding="valid", stride=2),
            F.conv1d(x, w, padding="same", dilation=2), F.conv1d(x, w[:, :, :2], padding="same"),
                    F.conv1d(x, w[:, :1].repeat(3, 1, 1), groups=3), F.conv_transpose1d(x, w.transpose(0, 1),
                            stride=2, output_padding=1, padding=1), F.conv2d(x2, w2, padding=(0, 2), stride=(2, 1)),
                                    F.conv_transpose2d(x2, w2.transpose(0, 1), dilation=(1, 2)), F.conv1d(x[0], w),
                                            F.conv1d(x, w, torch.ones(2, dtype=x.dtype), padding=4),
                                                    F.conv3d(x2[:, :, None], w2[:, :, None], padding=1)]
    for mode in ("reflect", "replicate", "circular", "zeros"):
        c = nn.Conv1d(3, 2, 3, padding=2, padding_mode=mode, dtype=x.dtype)
        with torch.no_grad():
            c.weight.copy_(w), c.bias.fill_(0.5)
        outs.append(c(x).detach())
    return outs


@book.calls(lambda: (rnd(2, 3, 7, 5, grad=True),),
        lambda: (rnd(2, 3, 7, 5).to(memory_format=torch.channels_last).requires_grad_(),), train=True)
def padding_forms(x):
    return [F.pad(x, p, mode=m) for m in ("reflect", "replicate", "circular") for p in ((1, 2, 0, 3), (2, 0),
            (0, 0, 1, 1))[::2 if m != "circular" else 1] if len(p) == 4] + [F.pad(x, (1, -1, -2, 3)),
                    F.pad(x, (-1, -1), value=5.0), F.pad(x, (0, 0, 0, 0, 1, 2), value=-inf).clamp(-10, 10),
                            F.pad(x[0], (2, 1), mode="reflect"), F.pad(x, (0, 1, 0, 1, 0, 1, 0, 1)),
                                    nn.ZeroPad2d(1)(x), nn.ConstantPad1d((3, 0), 2.5)(x[0]),
                                            F.pad(x[0, 0], (1, 1), mode="replicate") if False else x * 1]


@book.calls(lambda: (rnd(1, 2, 7, 9, grad=True),), train=True)
def pooling_edges(x):
    out = [F.max_pool2d(x, 3, 2, 1, ceil_mode=c, dilation=d) for c in (False, True) for d in (1,
            2)] + [F.avg_pool2d(x, (3, 2), (2, 3), (1, 0), ceil_mode=c, count_include_pad=p) for c in (False,
                    True) for p in (False, True)]
    v, i = F.max_pool2d(x, 2, 2, return_indices=True, ceil_mode=True)
    out += [F.max_unpool2d(F.max_pool2d(x[..., :8], 2, 2)[0:1], F.max_pool2d(x[..., :8], 2, 2,
            return_indices=True)[1], 2), i, v, F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_avg_pool2d(x, (None, 1)),
                    F.adaptive_max_pool2d(x, (2, 5)), F.adaptive_avg_pool2d(x, (10, 12)),
                            F.lp_pool2d(x, 2, 3, ceil_mode=True), F.lp_pool1d(x[0], 3.0, 2),
                                    F.avg_pool2d(x, 2, divisor_override=3), F.max_pool1d(x[0], 4, 4, 2),
                                            F.avg_pool1d(x[0], 3, 2, 1, True, False), F.adaptive_max_pool1d(x[0], 2),
                                                    F.avg_pool3d(x[None], (1, 2, 3), ceil_mode=True),
                                                            F.adaptive_avg_pool3d(x[None], (1, 2, 2))]
    return out


@book.calls(lambda: (torch.tensor([[nan, 1.0, -inf, -inf], [-inf, -inf, inf, 0.0]]),))
def pooling_of_nan_and_infinity(x):
    t = x.view(1, 1, 2, 4)
    return F.max_pool2d(t, 2, return_indices=True), F.max_pool1d(x[None], 2, 1, 1), F.adaptive_max_pool2d(t, 1,
            return_indices=True), F.avg_pool2d(t, 2), F.max_pool2d(t.bfloat16(), (1, 3), 1,
                    (0, 1)), F.max_pool2d(torch.full((1, 1, 2, 2), -inf), 2, return_indices=True)


@book.calls(lambda: (rnd(2, 3, 4, 5, grad=True),), lambda: (rnd(2, 3, 1, 1, grad=True),), train=True, rtol=1e-4,
        atol=1e-4)
def resampling_edges(x):
    out = []
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        for size in ((1, 1), (4, 5), (8, 10), (3, 11)):
            out.append(F.interpolate(x, size=size, mode=mode))
            if mode in ("bilinear", "bicubic"):
                out.append(F.interpolate(x, size=size, mode=mode, align_corners=True))
    out += [F.interpolate(x[0], size=7, mode="linear"), F.interpolate(x[0], scale_factor=1.5, mode="linear",
            align_corners=True), F.interpolate(x[None].squeeze(0)[:, :, None], size=(2, 3, 4), mode="trilinear"),
                    F.interpolate(x, scale_factor=(2.0, 1.5), mode="bilinear", recompute_scale_factor=True)]
    g = F.affine_grid(torch.tensor([[[0.7, 0.3, 0.1], [-0.2, 1.1, 0.0]]] * 2), list(x.shape), align_corners=False)
    out += [F.grid_sample(x, g, mode=m, padding_mode=p, align_corners=a) for m in ("bilinear", "nearest",
            "bicubic") for p in ("zeros", "border", "reflection") for a in (True, False)]
    return out


@book.calls(lambda: (torch.tensor([[1, 2, 0], [2, 2, 3]]),), train=True)
def embedding_options(i):
    w = torch.linspace(-3, 3, 20).reshape(5, 4).requires_grad_()
    e = F.embedding(i, w, padding_idx=2)
    s = F.embedding(i, w, scale_grad_by_freq=True)
    neg = F.embedding(i, w, padding_idx=-5)
    (g,) = torch.autograd.grad((e * e).sum() + (s * 3).sum() + neg.sum(), w, retain_graph=True)
    bag = F.embedding_bag(i, w, mode="mean", padding_idx=2), F.embedding_bag(i.flatten(), w, torch.tensor([0, 2, 2]),
            mode="sum"), F.embedding_bag(i, w, mode="max"), F.embedding_bag(i, w, per_sample_weights=i.float(),
                    mode="sum")
    return e, g, bag, F.one_hot(i), F.one_hot(i, 6)


@book.build()
def embedding_max_norm_writes_the_table():
    m = nn.Embedding(5, 3, max_norm=1.0, norm_type=2.0)
    with torch.no_grad():
        m.weight.copy_(torch.arange(15.0).view(5, 3))
    return m, [(torch.tensor([1, 3]),), (torch.tensor([3, 4, 4]),)]


@book.calls(lambda: (rnd(4, 5, grad=True),), train=True)
def cross_entropy_options(x):
    t, w = torch.tensor([0, 4, -100, 2]), torch.linspace(0, 2, 5)
    out = [F.cross_entropy(x, t, w, reduction=r, label_smoothing=s, ignore_index=k) for r in ("mean", "sum",
            "none") for s in (0.0, 0.3) for k in (-100,)]
    out += [F.cross_entropy(x, torch.tensor([0, 4, 1, 2]), ignore_index=1), F.nll_loss(x.log_softmax(1), t, w),
            F.cross_entropy(x, x.detach().softmax(1), w, label_smoothing=0.1), F.cross_entropy(x[0], t[1]),
                    F.cross_entropy(x.view(1, 5, 4), torch.tensor([[1, 0, 2, 3]])),
                            F.cross_entropy(x.view(2, 5, 2, 1), torch.tensor([[[1], [0]], [[2], [-100]]])),
                                    F.nll_loss(x.view(2, 5, 2).log_softmax(1), torch.tensor([[1, 0], [2, 3]]),
                                            reduction="none"), F.cross_entropy(x.half().float(), t),
                                                    F.cross_entropy(x.double(), t)]
    return out


@book.calls(lambda: (rnd(2, 3, grad=True),))
def cross_entropy_of_nothing_but_ignored(x):
    t = torch.tensor([-100, -100])
    a = F.cross_entropy(x, t)
    b = F.cross_entropy(x, t, label_smoothing=0.1)
    c = F.cross_entropy(x, t, reduction="sum")
    return a, b, c, torch.autograd.grad(a, x)[0], torch.autograd.grad(c, x)[0], F.cross_entropy(x, t,
            reduction="none"), F.nll_loss(x, t, torch.zeros(3)), F.cross_entropy(x, torch.tensor([0, 1]),
                    torch.zeros(3))


@book.calls(lambda: (rnd(2, 2, 3, 4, grad=True),), train=True)
def attention_masks(q):
    k, v = q.flip(2).detach(), q.exp().detach()
    m = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    f = torch.zeros(3, 3).masked_fill(~m, -inf)
    return (F.scaled_dot_product_attention(q, k, v, m), F.scaled_dot_product_attention(q, k, v, f),
            F.scaled_dot_product_attention(q, k, v, is_causal=True), F.scaled_dot_product_attention(q[:, :, :2], k, v,
                    is_causal=True), F.scaled_dot_product_attention(q, k, v, scale=0.5),
                            F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True),
                                    F.scaled_dot_product_attention(q.double(), k.double(), v.double(),
                                            f.double()[None, None]), F.scaled_dot_product_attention(q[0], k[0], v[0]))


@book.build(train=True)
def multi_head_attention_with_fully_masked_rows():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x, pad):
            y, w = self.a(x, x, x, key_padding_mask=pad)
            z, n = self.a(x, x, x, need_weights=False, attn_mask=torch.triu(torch.ones(3, 3, dtype=torch.bool), 1))
            return y, w, z, n
    return M(), [(rnd(2, 3, 4), torch.tensor([[False, True, True], [False, False, False]])),
            (rnd(2, 3, 4), torch.zeros(2, 3, dtype=torch.bool))]


@book.build(train=True)
def normalisation_layers():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.b = nn.BatchNorm2d(4, momentum=None)
            self.c = nn.BatchNorm1d(3, affine=False, track_running_stats=False)
            self.i = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
            self.g, self.l = nn.GroupNorm(2, 4, eps=0.1), nn.LayerNorm((3, 3), elementwise_affine=False)
            self.r, self.s = nn.RMSNorm(3), nn.BatchNorm2d(4, momentum=0.0)

        def forward(self, x):
            return self.b(x), self.c(x[:, 0]), self.i(x), self.g(x), self.l(x), self.r(x), self.s(x), F.batch_norm(x,
                    self.b.running_mean, self.b.running_var)
    m = M()
    return m, [(rnd(2, 4, 3, 3),), (rnd(2, 4, 3, 3, seed=1),), (rnd(5, 4, 3, 3, seed=2),)]


@book.build()
def normalisation_layers_switched_to_eval():
    b = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), nn.InstanceNorm1d(3, track_running_stats=True) if False
            else nn.Identity())

    def fn(x, training):
        b.train(training)
        y = b(x)
        return (y if not training else y.shape), b[0].num_batches_tracked.clone(), b[0].running_var.clone(), b.training
    return fn, [(rnd(4, 3), True), (rnd(4, 3, seed=1), False), (rnd(4, 3, seed=2), True), (rnd(4, 3), False)]


@book.calls(lambda: (rnd(4, 6),), lambda: (rnd(6, 4).t(),), lambda: (rnd(4, 12)[:, ::2],))
def layouts_of_results(x):
    return (x + 1, x.exp(), x * x.t().contiguous().t(), x.clone(), x.contiguous(), x.to(f64), x.sum(1, keepdim=True),
            x.t() + 1, x.unsqueeze(1), torch.empty_like(x) * 0 if False else torch.zeros_like(x),
                    torch.ones_like(x.t()), x.new_zeros(3, 2), torch.where(x > 0, x, 0), x.cumsum(1), x.softmax(1),
                            x.sort(1)[0], x.flip(0), x.roll(1), x.permute(1, 0).relu(), x.expand(2, 4, 6) + 0,
                                    x[:, :3] * 2, x[::2].abs(), x.repeat(1, 2), torch.cat([x, x], 1),
                                            torch.cat([x.t(), x.t()]), torch.stack([x, x], -1),
                                                    x.masked_fill(x > 0, 1), x.tril(), x.clamp(0, 1), x.half(),
                                                            x.round(), x.bernoulli(0.5) * 0, F.dropout(x, 0.0),
                                                                    x.view(torch.int32), x.max(0)[0],
                                                                            x.mT.reshape(-1), x.split(2, 1),
                                                                                    x.index_select(1,
                                                                                            torch.tensor([1, 0])),
            x.gather(0, torch.zeros(2, 6, dtype=i64)), torch.addmm(x, x @ x.mT, x), x @ x.mT, x.mT @ x,
                    torch.einsum("ij->ji", x), torch.einsum("ij,ij->i", x, x), x.outer(x[0]) if x.dim() == 1 else 0,
                            F.linear(x, torch.ones(3, 6)), x.broadcast_to(1, 4, 6) * 1, x.logical_not(), x.pow(2),
                                    torch.lerp(x, x, 0.5), x.bool(), x.isnan(), F.gelu(x), F.glu(x, 1), x.diff(dim=1),
                                            x.movedim(0, 1) * 2, x.rot90(), x.contiguous().kron(torch.eye(2)))


# --- random numbers ---------------------------------------------------------------------------------------------

@book.check
def random_streams_are_eagers_or_at_least_repeat(compile):
    fn = lambda x: (torch.rand(3), torch.randn_like(x), F.dropout(x, 0.5), torch.randint(0, 9, (4,)),
            torch.randperm(5), x.bernoulli(), torch.normal(0.0, 1.0, (2,)))
    f, x = compile(fn), torch.full((4, 4), 0.5)
    torch.manual_seed(3)
    a, a2 = f(x), f(x)
    torch.manual_seed(3)
    b = f(x)
    assert all(torch.equal(p, q) for p, q in zip(a, b))
    assert not all(torch.equal(p, q) for p, q in zip(a, a2))
    torch.manual_seed(4)
    assert not torch.equal(f(x)[1], a[1])


@book.check
def dropout_probabilities_at_the_ends(compile):
    x = torch.ones(50, requires_grad=True)
    for p, want in ((0.0, 1.0), (1.0, 0.0)):
        for g in (lambda x, p=p: F.dropout(x, p), lambda x, p=p: F.dropout(x.clone(), p, inplace=True), nn.Dropout(p),
                lambda x, p=p: F.alpha_dropout(x, p) if p == 0 else F.dropout(x, p),
                  lambda x, p=p: F.dropout1d(x.view(1, 5, 10), p).flatten()):
            y = compile(g)(x)
            (d,) = torch.autograd.grad(y.sum(), x)
            assert y.tolist() == [want] * 50 and d.tolist() == [want] * 50, (p, y, d)
    for bad in (-0.1, 1.1, nan):
        try:
            F.dropout(x, bad)
        except (ValueError, RuntimeError) as error:
            with pytest.raises(type(error)):
                compile(lambda x, bad=bad: F.dropout(x, bad))(x)


@book.check
def generator_arguments_advance_their_generator(compile):
    g = torch.Generator().manual_seed(5)
    fn = lambda x: torch.rand(2, generator=g) + x
    want = [fn(torch.zeros(2)) for _ in range(3)]
    g.manual_seed(5)
    f = compile(fn)
    for w in want:
        assert torch.equal(w, f(torch.zeros(2)))


@book.check
def seeding_inside_and_state_round_trip(compile):
    def fn(x):
        torch.manual_seed(9)
        a = torch.rand(2)
        s = torch.get_rng_state()
        b = torch.rand(2)
        torch.set_rng_state(s)
        return a, b, torch.rand(2), x + torch.initial_seed()
    a, b, c, d = compile(fn)(torch.zeros(1))
    assert torch.equal(b, c) and not torch.equal(a, b) and float(d) == 9
    assert torch.equal(compile(fn)(torch.zeros(1))[0], a)


@pytest.mark.parametrize("name", book.cases)
def test_numbers(name):
    book.cases[name]()
