"""Fused kernels: odd sizes and layouts, mixed types in one loop, reductions of every shape, chains that a compiler likes to
simplify, symbolic sizes in generated code."""
# The programs are odd on purpose, and tables of operators read best in long lines.
# ruff: noqa: B002, B008, B023, E501, E731

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


def rnd(*shape, seed=0, dtype=torch.float32, grad=False):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_(grad)


SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, inf, -inf, nan, 1e-40, 3e38, -3e38, 1e-7, 88.0, -88.0, 104.0, 20.0, -20.0])


@book.calls(lambda: (SPECIAL.clone(),), lambda: (SPECIAL.repeat(3)[::3],), rtol=2e-6, atol=1e-7)
def float_functions_at_special_points(x):
    # sums and products that overflow are left out: their last bit decides between a number and infinity
    return (x.exp(), x.exp2(), x.expm1(), x.log(), x.log2(), x.log10(), x.log1p(), x.sqrt(), x.rsqrt(), x.sin().isnan(), x.tanh(), x.sigmoid(), x.erf(), x.erfc(), x.asin(), x.acos(), x.atan(), x.sinh(), x.cosh(), x.asinh(), x.acosh(), x.atanh(), x.reciprocal(), x.floor(), x.ceil(), x.round(), x.trunc(), x.abs(), x.neg(), x.sign(), x.signbit(), x.frac(), x.square(), x.lgamma(), x.digamma(), x.erfinv(), torch.special.i0(x), torch.special.ndtr(x), torch.special.log_ndtr(x), torch.sinc(x.clamp(-3, 3)), torch.special.entr(x), x.logit(), F.softplus(x), F.logsigmoid(x), F.mish(x), F.hardswish(x), x.nan_to_num(), x.isfinite(), x.atan2(x.flip(0)), x.hypot(x), x.fmod(2.5), x.remainder(2.5), x.copysign(-x), x.ldexp(torch.tensor(3)), x.frexp(), x.nextafter(-x), x.xlogy(x), x.logaddexp(x.flip(0)), x.pow(3), x.pow(-0.5), x.clamp(-1, 1), x.maximum(x.flip(0)), x.fmin(x.flip(0)), x.heaviside(x.flip(0)), (x * 0.1).round(decimals=1), x.deg2rad(), x.bool(), x.lt(0), x.eq(x), x.ne(x))


@book.calls(lambda: (SPECIAL.double(),), rtol=1e-12, atol=1e-14)
def double_functions_at_special_points(x):
    return (x.exp(), x.log(), x.log1p(), x.expm1(), x.tanh(), x.sigmoid(), x.erf(), x.rsqrt(), x.pow(2.5), x.sin().isnan(), x.atan(), x.float(), x.half(), x.round(), x // 0.3, x % 0.3, F.gelu(x.clamp(-9, 9)), F.silu(x), F.softplus(x), x.lgamma(), x.erfc(), x.asinh(), x.float().double(), x.nan_to_num(), x.sqrt(), x.exp2(), x.log2(), x.reciprocal(), x.cosh())


@book.calls(lambda: (SPECIAL.half(),), lambda: (SPECIAL.bfloat16(),), rtol=2e-2, atol=2e-2)
def half_functions_at_special_points(x):
    return (x.exp(), x.log(), x.tanh(), x.sigmoid(), x.rsqrt(), x * x, x + x, x / 3, x.float(), x.sum().isnan(), x.nan_to_num(), F.relu(x), F.gelu(x.clamp(-9, 9)), x.round(), x.abs().sqrt(), x.clamp(-1, 1), x > 0.4, x.int() if False else x.bool(), x.softmax(0).isnan(), x.reciprocal(), x.square(), x.erf(), (x.float() * 0.1).to(x.dtype), x.floor(), x.sign(), x % 3, x.maximum(x.flip(0)), torch.where(x > 0, x, -x), x.double(), x.isinf())


SIZES = [(1,), (7,), (16,), (17,), (33, 5), (5, 33), (2, 3, 19), (1, 64), (64, 1), (3, 1, 2, 1, 5), (130,)]


@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_vector_tails(shape):
    def fn(x, y):
        z = (x * 2 + y).tanh()
        w = torch.where(z > 0, z, y.exp()) + x.abs()
        return w, w.sum(), w.sum(-1), w.amax(0), (w * y).mean(0, keepdim=True), w.argmax(-1), w.to(torch.bfloat16), (w > 0.5).sum(), w.softmax(-1), w.cumsum(-1)
    judge.same(lambda: (fn, [(rnd(*shape), rnd(*shape, seed=1))]))


@book.calls(*[lambda k=k: (v[k],) for k in range(7) for v in [[rnd(6, 10).t(), rnd(12, 10)[::2], rnd(6, 20)[:, ::2], rnd(10).expand(6, 10), rnd(6, 1).expand(6, 10), rnd(70)[5:65].view(6, 10), rnd(200).as_strided((6, 10), (30, 2))]]])
def inputs_of_every_layout(x):
    y = x * 2 + 1
    return y, y.sum(0), y.sum(1), y.t().relu(), x.reshape(-1) + 1, torch.cat([x, y]), y.softmax(0), x.flip(1) * y, (x[1:] - x[:-1]), x.unsqueeze(1) + x.unsqueeze(0), y.view(torch.int32).sum(), x.argmax(1), x.std(0), x.t() @ y, x.cumsum(0)


@book.calls(lambda: (rnd(3, 4, 5, 6),), lambda: (rnd(3, 4, 5, 6).to(memory_format=torch.channels_last),), lambda: (rnd(6, 5, 4, 3).permute(3, 2, 1, 0),))
def reductions_over_every_set_of_dimensions(x):
    dims = [(0,), (1,), (2,), (3,), (0, 2), (1, 3), (2, 3), (0, 1, 2), (1, 2, 3), (0, 1, 2, 3), (-1, 0)]
    out = []
    for k, d in enumerate(dims):
        out.append((x.sum(d), x.amax(d, keepdim=True), x.mean(d))[k % 3])
        out.append((x.var(d), x.logsumexp(d), torch.linalg.vector_norm(x, dim=d), (x > 0).any(d[0]))[k % 4])
    return out


@book.calls(lambda: (rnd(4, 9),), lambda: (torch.full((4, 9), 100.0),), lambda: (torch.zeros(4, 9),))
def things_that_must_not_be_simplified(x):
    one, zero = torch.ones(()), torch.zeros(())
    return (x * 0, x * zero, x + 0, x - x, x / x, 0 / x, x * 1.0 / 3.0 * 3.0, (x + 1e8) - 1e8, (x * 1e30) * 1e30 * 1e-30, x.sqrt() ** 2, x.exp().log(), (x / 7) * 7 == x, x == x, -(-x), x.abs().neg().abs(), ~(x > 0), (x > 0) == (x <= 0), torch.where(x == x, x, 0), x.half().float(), x.int().float(), x.double().float(), x.bfloat16().bfloat16().float(), x.clamp(0, 1).clamp(-1, 2), x.relu().relu(), x.pow(1), x.pow(0), x**one, x - zero * inf, (x > 0).int() - 1, x.sum() - x.sum(), (x - x.mean()).mean(), x.float().to(torch.int8).to(torch.float32), x.int().bool().int(), torch.maximum(x, -x), x.min().expand(3), x.t().t(), x.reshape(9, 4).reshape(4, 9), x.cos() ** 2 + x.sin() ** 2, x * 2 / 2, x // 1, x % 1, torch.add(x, x, alpha=0), x.round().round(decimals=0), torch.lerp(x, x, 2.0))


@book.calls(lambda: (torch.arange(-20, 20, dtype=torch.int64), torch.arange(-20, 20, dtype=torch.int32)))
def integer_simplifications(a, b):
    return (a * 2 // 2, (a + 1) // 2 * 2, a // 2 + a // -2, a % 4 + a % -4, (a * 6) // 4, a // 3 // 2, a >> 1 << 1, (a & 7) + (a | 7), a ^ a, -a // 2, -(a // 2), (a - 5) % 3, a * a, a.abs() * a.sign(), a.float() // 2, a / 2 // 1, (a / 3).int(), a.to(torch.int8) * 10, b * b * 1000000, (b + 2**31 - 25), b.abs() << 28, b.to(torch.uint8) // 7, torch.div(a, 4, rounding_mode="trunc"), torch.fmod(a, 3), a.clamp(-3, 3) // 2, torch.where(a % 2 == 0, a // 2, 3 * a + 1), (a > 0) + (a > 5), (a > 0) * b, (a > b).sum(), a.bitwise_and(b), ~a & b, a.gcd(b), a.lcm(b), torch.remainder(b, 7), a.sum() // 3, b.sum(), b.cumsum(0), b.prod(), b.max() - b.min(), a.bool() ^ True, a.eq(b), a.to(torch.int16).sum(), b.mean(dtype=torch.float32), a.sort(descending=True)[0], a.flip(0) - a, a.diff(), a.float().round().long())


@book.calls(lambda: (rnd(8, 12, grad=True), rnd(12, grad=True), rnd(8, 1, grad=True)), train=True)
def broadcast_gradients(x, b, c):
    return (x + b) * c, (x * b).sum(1, keepdim=True) / c, torch.where(x > 0, b, c), b.expand(8, 12) - x, torch.maximum(x, b), x.clamp(b - 1, c + 1), torch.cat([x * b, c.expand(8, 2)], 1), (x.unsqueeze(0) * c).mean((0, 1)), torch.stack([b, b * 2]).sum(), x.t() @ (c * x)


@book.calls(lambda: (rnd(4, 6, grad=True),), train=True)
def gradients_at_kinks_and_ties(x):
    z = (x * 0).round()
    return (z.abs(), z.relu(), F.hardtanh(z + 1), z.clamp(0, 1), z.clamp_min(0), torch.maximum(z, z), z.max(), z.amax(1), z.max(1)[0], z.min(), z.sign(), F.leaky_relu(z), F.elu(z), z.norm(), z.norm(dim=1), z.norm(p=1), F.relu6(z + 6), F.threshold(z, 0, 5), F.hardswish(z + 3), z.sort(1)[0].sum(0), z.median(), z.topk(2)[0], z.cummax(1)[0], (z + 2).sqrt(), F.smooth_l1_loss(z, z + 1), F.huber_loss(z, z + 1), F.l1_loss(z, z.detach()), torch.minimum(z, x), z.prod(), z.cumprod(0), torch.sqrt(z + x.detach() ** 2), z.logsumexp(0), z.std(), F.normalize(x + z), torch.fmax(z, z), z.frac(), z % 1, z.floor(), x.nan_to_num(), x.pow(2.0), torch.pow(x.abs() + 1, x), z.heaviside(x.detach()) if False else z)


@book.calls(lambda: (rnd(2, 3, 8, grad=True),), train=True)
def view_and_index_gradients(x):
    i = torch.tensor([0, 2, 2, -1])
    return (x[:, 1:, ::2], x[..., i], x[torch.tensor([1, 0, 1])], x.unfold(2, 3, 2), x.flip(1, 2), x.roll((1, 2), (1, 2)), x.diagonal(dim1=1, dim2=2), x.as_strided((2, 4), (24, 2)), x.gather(2, torch.tensor([[[0, 0, 7]]])), x.index_select(2, i % 8), x.repeat_interleave(torch.tensor([1, 0, 2]), dim=1), x.tile(2, 1, 1), x.unbind(1)[1], x.split([1, 2], 1)[1], x.chunk(3, 2)[2], x.narrow(2, 1, 3), x.movedim(0, 2), x.take(torch.tensor([0, 0, 5])), x.masked_fill(x > 0, 2), x[x > 0].sum(), torch.masked_select(x, x < 0).sum(), x.tril(), x.expand(4, 2, 3, 8).sum(0), F.pad(x, (1, -2, 0, 1)), x.view(6, 8)[i], torch.where(x > 0, x, x * 3), x.index_fill(2, i % 8, 0.0), x.put(torch.tensor([0]), torch.tensor([3.0])), x.rot90(1, (1, 2)), x.permute(2, 0, 1).contiguous().view(8, 6), torch.stack(x.unbind(0), -1), torch.block_diag(x[0], x[1]), x.cumsum(1), x.logcumsumexp(2), torch.einsum("bij,bkj->bik", x, x), torch.tensordot(x, x, ([0, 1], [0, 1])), x.kthvalue(2)[0], F.fold(x.view(2, 6, 4), (4, 1), (2, 1), stride=1) if False else x.sum(), F.unfold(x[:, None], 2), F.pixel_shuffle(x.view(1, 4, 2, 6), 2), F.pixel_unshuffle(x.view(1, 3, 4, 4), 2), F.channel_shuffle(x.view(1, 4, 3, 4), 2))


@book.calls(lambda: (rnd(5, 7), torch.tensor([3, 0, 2, 7, 1])))
def masks_from_lengths_and_positions(x, n):
    p = torch.arange(7)
    m = p < n[:, None]
    causal = torch.ones(7, 7).tril().bool()
    return ((x * m).sum(1) / n.clamp(min=1), x.masked_fill(~m, -inf).softmax(-1), torch.where(m, x, torch.finfo(torch.float32).min).logsumexp(1), m.cumsum(1), (x.masked_fill(~m, 0) ** 2).sum(1).sqrt(), x.masked_fill(~m, -inf).argmax(1), x.masked_fill(m.logical_not(), nan).nanmean(1), m.float() @ m.float().t(), causal & m[:1], (p[:, None] - p[None]).abs().clamp(max=3), F.one_hot(n.clamp(max=6), 7) * x, x.gather(1, (n - 1).clamp(min=0)[:, None]), torch.nn.utils.rnn.pad_sequence([x[0, :3], x[1, :5]], batch_first=True, padding_value=-1.0), m.any(1), m.all(1), m.long().argmin(1), x.flip(1).masked_fill(m, 0), torch.bucketize(x, torch.linspace(-1, 1, 4)), x.sum(1).masked_fill(n == 0, 0))


@book.calls(lambda: (rnd(3, 5, 8), rnd(8), rnd(8)), lambda: (rnd(3, 5, 8) * 1e4 + 1e6, rnd(8), rnd(8)), lambda: (torch.ones(3, 5, 8), rnd(8), rnd(8)), rtol=2e-3, atol=2e-3)
def normalisations_of_hard_inputs(x, w, b):
    v = x.pow(2).mean(-1, keepdim=True)
    return (F.layer_norm(x, (8,), w, b), x * torch.rsqrt(v + 1e-6) * w, F.group_norm(x, 5), F.batch_norm(x, None, None, w[:5], b[:5], True), F.instance_norm(x), F.rms_norm(x, (8,), w), F.normalize(x, dim=-1), (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5), x.softmax(-1), x.log_softmax(1), F.cosine_similarity(x, x.flip(1), -1), x.half().float().softmax(-1))


@book.build(dynamic=True)
def symbolic_sizes_in_kernels():
    def fn(x, y):
        n, m = x.shape
        z = (x[:, : m // 2] * 2 + n).relu()
        w = torch.cat([z, x[:, m // 2 :]], 1) + torch.arange(m) * n
        return w, w.sum(0), w.t().contiguous().view(-1), w.softmax(1), x[::2] + 1, F.pad(w, (0, n % 4)), w.view(n * m)[: n + m], (w @ y).argmax(1), w.flip(0)[1:], w.unfold(1, 2, 1).sum(-1), torch.where(torch.arange(m) < n, w, 0.0), w.var(0), w.cumsum(1), w.repeat(2, 1), w.roll(1, 1), w.reshape(m, n), w.amax(), w.mean((0, 1)), w[:, :1].expand(-1, m) * w, torch.ones(n, m) / m
    return fn, [(rnd(n, m), rnd(m, 3)) for n, m in ((4, 6), (7, 16), (2, 33), (16, 4))]


@book.build(dynamic=True, train=True)
def symbolic_sizes_in_gradients():
    def fn(x, w):
        h = (x @ w).tanh()
        h = h.view(h.shape[0], 2, -1).transpose(1, 2).reshape(h.shape[0], -1)
        a = (h @ h.mT / h.shape[1] ** 0.5).softmax(-1)
        return (a @ h).sum(), F.layer_norm(h, h.shape[1:]).pow(2).mean(), h[: h.shape[0] // 2].amax(0), F.interpolate(h[None], scale_factor=2)[0], h.index_select(0, torch.arange(h.shape[0] - 1, -1, -1))
    return fn, [(rnd(n, 5, grad=True), rnd(5, 6, grad=True)) for n in (4, 9, 2, 17)]


@book.calls(lambda: (rnd(4, 6), rnd(6, 3), rnd(3)), lambda: (rnd(4, 6, dtype=torch.bfloat16), rnd(6, 3, dtype=torch.bfloat16), rnd(3, dtype=torch.bfloat16)), lambda: (rnd(4, 6, dtype=torch.float64), rnd(6, 3, dtype=torch.float64), rnd(3, dtype=torch.float64)), rtol=2e-2, atol=2e-2)
def products(a, b, c):
    s = torch.arange(9).reshape(3, 3)
    return (a @ b, torch.addmm(c, a, b, beta=0.5, alpha=2), torch.addmm(c * nan, a, b, beta=0), F.linear(a, b.t(), c).relu(), a.mv(b[:, 0]), torch.addmv(torch.ones(4, dtype=a.dtype), a, b[:, 0]), torch.bmm(a.view(2, 2, 6), b.expand(2, 6, 3)), torch.baddbmm(c.expand(2, 2, 3), a.view(2, 2, 6), b.expand(2, 6, 3), beta=0.1), torch.einsum("ij,jk,k->i", a, b, c), torch.outer(c, c), torch.addr(torch.zeros(3, 3, dtype=a.dtype), c, c), s @ s, s.to(torch.uint8) @ s.to(torch.uint8), torch.matmul(a.view(2, 1, 2, 6), b), c @ b.t(), torch.dot(c, c), torch.linalg.multi_dot([a, b, b.t()]), a.t() @ a, (a[:, ::2] @ b[::2]), a[:0] @ b, a[:, :0] @ b[:0], torch.chain_matmul(a, b) if False else a @ b, torch.linalg.matrix_power(s.float(), 3), F.bilinear(a[:, :3], a[:, 3:], torch.ones(2, 3, 3, dtype=a.dtype)), torch.inner(a, a), torch.kron(c, c), torch.vander(c) if a.dtype != torch.bfloat16 else c, (a.unsqueeze(1) * b.t()).sum(-1))


@book.calls(lambda: (rnd(2, 3, 6, 6),), lambda: (rnd(2, 3, 6, 6).to(memory_format=torch.channels_last),), rtol=1e-3, atol=1e-4)
def convolution_chains(x):
    w = torch.linspace(-1, 1, 4 * 3 * 9).reshape(4, 3, 3, 3)
    y = F.conv2d(x, w, torch.ones(4), padding=1)
    z = F.conv2d(y.relu(), torch.ones(4, 1, 3, 3), groups=4, stride=2)
    return y, z, F.conv2d(y, torch.ones(2, 4, 1, 1)) * y.mean((2, 3), keepdim=True)[:, :2], F.avg_pool2d(F.silu(y), 2), F.max_pool2d(y + 1, 3, 2, 1), F.interpolate(z, scale_factor=2) + 1, F.adaptive_avg_pool2d(y, 1).flatten(1).softmax(1), (y * torch.sigmoid(y)).sum((0, 2, 3)), F.batch_norm(y, torch.zeros(4), torch.ones(4)).relu(), F.conv_transpose2d(z, torch.ones(4, 2, 2, 2), stride=2), F.pixel_shuffle(y, 2), torch.cat([y, x], 1).relu(), F.conv2d(F.pad(x, (0, 1, 0, 1)), w, stride=2), y[:, ::2] + y[:, 1::2], F.conv2d(x, w, dilation=2).argmax(1)


@book.calls(lambda: (torch.arange(30).reshape(5, 6), torch.tensor([4, 0, 0, 2])))
def integer_tables(t, i):
    e = nn.functional.embedding(i, t.float())
    return t[i], e, t.index_select(1, i), t.t()[i], t[i][:, i], t[i, i], t.take(i * 7), e.sum(0), t.gather(0, i.view(1, 4)), torch.zeros(5).index_add(0, i, torch.ones(4)), torch.bincount(i, minlength=6), torch.zeros(5, dtype=torch.int64).scatter_add(0, i, i), t.flatten()[i * 3 + 1], F.one_hot(i).sum(0), torch.searchsorted(t[0], i), i.unique(), torch.isin(t, i), (t[:, None] == i[:, None]).any(-1), t.roll(2, 0)[i], t[i - 5], t[-i - 1], i.argsort(stable=True), torch.tensor([1, 2])[i % 2], t.float()[i].mean(1), i.repeat_interleave(i), torch.cumsum(i, 0)[i % 4]


@book.calls(lambda: (rnd(3, 40),), lambda: (rnd(40, 3).t(),))
def scans_sorts_and_selections(x):
    return (x.cumsum(1), x.cumsum(0), x.flip(1).cumsum(1).flip(1), x.abs().cumprod(1), x.cummax(1), x.cummin(0), x.logcumsumexp(1), x.sort(1), x.argsort(1, descending=True), x.topk(5), x.topk(3, largest=False, sorted=True), x.kthvalue(7), x.median(1), x.quantile(torch.tensor([0.1, 0.9]), dim=1), x.mode(1)[0], x.unique().numel(), (x > 0).cumsum(1), x.half().cumsum(1, dtype=torch.float32), x.diff(n=2), torch.trapezoid(x), torch.cumulative_trapezoid(x), x.cumsum(1)[:, -1] - x.sum(1), x.histc(5), torch.cummax(x * 2 + 1, 1)[1], x.int().cumsum(1), x.aminmax(dim=1), x.softmax(1).cumsum(1) > 0.5)


@book.calls(lambda: (rnd(20, grad=True), rnd(20, seed=1, grad=True)), train=True)
def many_outputs_of_one_loop(x, y):
    out = []
    for k in range(12):
        x = x * 1.1 + y.sin() * k
        out += [x, (x > y).float() * y, x.sum() + k]
    return out


@pytest.mark.parametrize("name", book.cases)
def test_kernels(name):
    book.cases[name]()
