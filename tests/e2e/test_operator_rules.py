"""Kinds of operator faults that compilers have shown users,
each in several variants: compiled does what eager does."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import lamina

nan, inf = float("nan"), float("inf")


def tensors(tree):
    return [t for t in torch.utils._pytree.tree_leaves(tree) if not callable(t)]


def agree(fn, *args, grad=False, values=True, rtol=1.3e-5, atol=1e-5, **options):
    """Eager and compiled on equal arguments: results with dtype, shape and stride, arguments after the call,
    gradients;
    the same type of error if eager raises."""
    def copies():
        made = []
        for a in args:
            if isinstance(a, torch.Tensor):
                c = torch.empty_strided(a.shape, a.stride(), dtype=a.dtype).copy_(a.detach())
                a = c.requires_grad_(grad and a.dtype.is_floating_point)
            made.append(a)
        return made

    def run(call):
        made = copies()
        torch.manual_seed(3)
        out = call(*made)
        outs = tensors(out)
        grads = []
        leaves = [a for a in made if isinstance(a, torch.Tensor) and a.requires_grad]
        roots = [o for o in outs if isinstance(o, torch.Tensor) and o.requires_grad]
        if leaves and roots:
            grads = torch.autograd.grad([r.double().sum() for r in roots], leaves, allow_unused=True)
        return [*outs, *grads, *([] if leaves else tensors(made))]

    lamina.reset()
    fast = lamina.compile(fn, **options)
    try:
        want = run(fn)
    except Exception as error:
        with pytest.raises(type(error)):
            run(fast)
        return
    for k, (g, w) in enumerate(zip(run(fast), want, strict=True)):
        if not isinstance(w, torch.Tensor):
            assert g == w or (g != g and w != w), f"result {k}: {g}, eager {w}"
            continue
        assert (g.dtype, g.shape) == (w.dtype, w.shape), f"result {k}: {g.dtype} {g.shape}, eager {w.dtype} {w.shape}"
        assert g.stride() == w.stride(), f"result {k}: stride {g.stride()}, eager {w.stride()}"
        if values:
            torch.testing.assert_close(g, w, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m,
            k=k: f"result {k}: {m}")


X = torch.linspace(-2, 2, 24).reshape(4, 6)
EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 0.3, -0.3, 5.5, -5.5, 1e-40, -1e-40, 3.4e38])


def promotion(x):
    z, i, b = torch.tensor(2.5, dtype=torch.float64), torch.tensor(3), torch.tensor(True)
    return (x.int() * 1.5, x.half() * z, x.half() + i, x.int() + b, x.bool() + 1, x.bool() + True,
            x.to(torch.uint8) - 1,
            torch.add(x.int(), x.short(), alpha=2), x.int() / 2, x.int() // 2, x.bool() * 2.5, x.int() ** 2,
            2 ** x.int().abs(),
            x.half() * 1e6, torch.where(x > 0, 1, 0.5), torch.where(x > 0, x.half(), 1), x.bfloat16() + x.half(),
            x.int().clamp(0.5, 2), x.double() + z.float(), x.int().true_divide(2), torch.mul(2, x.half()))  # fmt: skip


def factories(x):
    t = x[:, :1].t().contiguous().t()
    return (torch.ones_like(t), torch.zeros_like(x.t()), torch.full_like(x.t(), 3, dtype=torch.int16),
            x.new_full((2, 1), 4),
            torch.arange(5.0), torch.arange(0, 1, 0.3), torch.arange(3, dtype=torch.half), torch.linspace(0, 1, 5),
            torch.full((2,), 3), torch.full((2,), 2.5), torch.full((2,), True), torch.eye(3, 2), torch.tril(x, 1),
            torch.tensor([1, 2.5]), torch.scalar_tensor(3), torch.zeros(0, 3), torch.logspace(0, 2, 4))  # fmt: skip


def random_types(x):
    n = torch.distributions.Normal
    return tuple(t.dtype for t in (
        torch.normal(x.double(), x.float().abs()), torch.normal(1.0, x.half().abs()), n(x.half(), 1.0).rsample(),
        torch.randn_like(x, dtype=torch.bfloat16), torch.rand(3, dtype=torch.float64), torch.randint(5, (2,)),
        torch.randint_like(x, 5), torch.bernoulli(x.double().sigmoid()), torch.poisson(x.abs()),
        torch.empty(3).exponential_(), x.half().clone().uniform_(), torch.multinomial(x.abs().double(), 2, True),
    ))  # fmt: skip


def cumulative(x):
    ones, s = torch.ones(5, dtype=torch.int32), torch.tensor(2.5)
    return (ones.cumsum(0), ones.cumsum(0, dtype=torch.float64), torch.cumsum(torch.tensor(3), 0,
            dtype=torch.float32),
            ones.bool().cumsum(0), torch.cumprod(ones * 2, 0, dtype=torch.int8), s.cumsum(0), s.cumprod(-1),
            torch.full((4,), 0.5).cumsum(0, dtype=torch.half), x.cumsum(1, dtype=torch.float64), x[:0].cumsum(0),
            torch.zeros(3, 0).cumsum(1), x.half().cumsum(0), x.to(torch.uint8).cumsum(1), x.cummax(0), x.cummin(1),
            x.logcumsumexp(1))  # fmt: skip


def narrow(x):
    u, s, h = x.to(torch.uint8), x.to(torch.int8), x.to(torch.int16)
    return (u + 200, u * 3 // 2, (u - 255).float(), (s * 2 > 0), s + 100, (s * s).sum(), -s, s.abs(), u.sum(),
            u.prod(-1),
            (h * h).to(torch.int64), h // 7, h % -7, torch.bitwise_not(u), u.float() / 3,
            (u + 1).mean(dtype=torch.float32),
            (s + s).max(), s - u, torch.maximum(s * 2, s), (u.int() + 300).to(torch.uint8),
            s.square(), u >> 1)  # fmt: skip


def shifts(x):
    out = []
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        t = x.to(dtype)
        n = torch.tensor([0, 1, 7, 8, 31, 63]).to(dtype)
        out += [t[:, None] << n, t[:, None] >> n, t << 64, t >> 64, t << 33, t >> -1, 1 << t.abs().clamp(0, 9)]
    return tuple(out)


def booleans(x):
    m, n = x > 0.5, x > 100
    return (m + n, m * 2.5, m.sum(), m.float().mean(), m.any(), n.any(1), m.all(0), m & n, m ^ True, ~m,
            m.to(torch.uint8).any(),
            m.to(torch.uint8).all(1), m == 1, m.long() - n.long(), m.int().argmax(1), torch.where(m, nan, x),
            m.cumsum(0),
            m.max(), m.amin(1), x.clamp(min=nan), torch.relu(torch.where(m, nan, x)), torch.maximum(x,
            m * nan), m.prod(),
            torch.minimum(torch.where(m, nan, x), x), torch.count_nonzero(m), m.argmax())  # fmt: skip


def ties(x):
    t = torch.tensor([[1, 3, 3, 0, 0], [2, 2, 2, 2, 2]])
    f = torch.tensor([[1.0, nan, 3, nan, 0], [inf, -inf, inf, -inf, 0]])
    return (t.argmax(1), t.argmin(), t.max(1), t.min(0), f.argmax(1), f.argmin(1), f.max(1), f.min(0),
            f.amax(), f.aminmax(dim=1),
            t.bool().argmax(1), t.bool().argmin(1), t.t().argmax(), (t.t() * 2).argmax(0), f.nansum(), f.nanmean(1),
            t.to(torch.uint8).argmax(0), t.mode(1), f.bfloat16().argmax(1), t[:, :1].argmax(1), t.topk(2, 1)[0],
            torch.tensor(4.0).argmax(), t.sort(1, stable=True), f.cummax(1), f.fmax(f.flip(0)),
            f.nanmedian())  # fmt: skip


def nothing(x):
    e = x[:0]
    return (e.sum(), e.sum(0), e.mean(), e.mean(0), e.var(0), torch.var_mean(e, 0), e.prod(), e.any(),
            e.all(0), e.std(),
            e.logsumexp(0), e.norm(), e.softmax(0), x[:1].var(0), torch.var_mean(x[:1], 0), e.nansum(), e.amax(1),
            x[:, :0].matmul(x[:, :0].t()), F.mse_loss(e, e), e.cumsum(0), torch.cat([e, x]), e.sort(0)[0])  # fmt: skip


def floors(x):
    a, b = x[:, None], x[None]
    return (a // b, a % b, torch.fmod(a, b), torch.div(a, b, rounding_mode="floor"), torch.div(a, b,
            rounding_mode="trunc"),
            a // 0.1, x.double() // 0.3, 1.0 // x, 7 % x, x.floor(), x.round(), x.trunc(), x.frac(),
            x.round(decimals=1),
            x.sign(), torch.copysign(x, -x), x.sqrt(), x.rsqrt(), x.log1p(), x.pow(2.0), x.pow(0.5), x ** -1, x.exp(),
            x.isfinite(), x.nan_to_num(), x.signbit(), torch.nextafter(x, x + 1), torch.hypot(a,
            b), x * 0.5, x + 0.0)  # fmt: skip


def integers(x):
    a, b = x[:, None], x[None].abs() + 1
    return (a // b, a // -b, a % b, a % -b, torch.fmod(a, -b), torch.div(a, b), torch.div(a, -b,
            rounding_mode="trunc"), a ** 2,
            x.abs() ** 3, torch.gcd(a, b), x.clamp(-2, 3), x.sign(), x * 2.5, x.sum(), x.prod(),
            x.float().log())  # fmt: skip


POINTS = [promotion, factories, random_types, cumulative, narrow, shifts, booleans, ties, nothing]


@pytest.mark.parametrize("fn", POINTS, ids=lambda f: f.__name__)
def test_values(fn):
    agree(fn, X)
    agree(fn, X.t())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_edge_values(dtype):
    agree(floors, EDGES.to(dtype), rtol=2e-2 if dtype is torch.bfloat16 else 1.3e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8])
def test_integer_edges(dtype):
    info = torch.iinfo(dtype)
    agree(integers, torch.tensor([0, 1, -1, 7, -7, info.max, info.min + 1, info.max - 1], dtype=dtype))


INVALID = {
    "division by zero": lambda x: x.int() // 0,
    "remainder by zero": lambda x: x.int() % 0,
    "celu": lambda x: F.celu(x, alpha=0),
    "mixed matmul": lambda x: x @ x.t().double(),
    "mixed bmm": lambda x: torch.bmm(x[None], x.t()[None].half()),
    "linear shapes": lambda x: F.linear(x, x[:, :3]),
    "gather": lambda x: x.gather(0, torch.full((4, 6), 9)),
    "negative gather": lambda x: x.gather(0, torch.full((4, 6), -1)),
    "scatter": lambda x: x.scatter(0, torch.full((4, 6), -1), 0.0),
    "scatter add": lambda x: torch.zeros(2, 6).scatter_add(0, torch.full((4, 6), 2), x),
    "index select": lambda x: x.index_select(0, torch.tensor([4])),
    "negative index select": lambda x: x.index_select(0, torch.tensor([-1])),
    "index": lambda x: x[torch.tensor([4])],
    "index add": lambda x: x.index_add(0, torch.tensor([5]), x[:1]),
    "index put": lambda x: x.index_put((torch.tensor([-9]),), torch.tensor(1.0)),
    "take": lambda x: x.take(torch.tensor([24])),
    "embedding": lambda x: F.embedding(torch.tensor([-1]), x),
    "one hot": lambda x: F.one_hot(torch.tensor([5]), 3),
    "cross entropy target": lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2, 6])),
    "nll target": lambda x: F.nll_loss(x.log_softmax(1), torch.tensor([0, 1, 2, -1])),
    "binary cross entropy": lambda x: F.binary_cross_entropy(x, x),
    "bernoulli": lambda x: torch.bernoulli(x),
    "multinomial": lambda x: torch.multinomial(x, 2),
    "amax of nothing": lambda x: x[:0].amax(0),
    "argmax of nothing": lambda x: x[:0].argmax(0),
    "bad dim": lambda x: x.sum(2),
    "repeated dim": lambda x: x.sum((0, 0)),
    "reshape": lambda x: x.reshape(5, 5),
    "view": lambda x: x.t().view(24),
    "cat": lambda x: torch.cat([x, x[:, :2]]),
    "expand": lambda x: x.expand(3, 6),
    "broadcast": lambda x: x + x[:, :4],
    "in-place dtype": lambda x: x.int().add_(1.5),
    "in-place shape": lambda x: x[0].clone().add_(x),
    "bool negative": lambda x: -(x > 0),
    "bool minus": lambda x: (x > 0) - (x > 1),
    "integer mean": lambda x: x.int().mean(),
    "shift of float": lambda x: x << 1,
    "integer power": lambda x: x.int() ** -1,
    "conv": lambda x: F.conv1d(x[None], torch.ones(2, 3, 2)),
    "pool": lambda x: F.max_pool1d(x[None], 9),
    "reflect pad": lambda x: F.pad(x[None], (7, 0), mode="reflect"),
    "dropout": lambda x: F.dropout(x, 1.5),
    "layer norm": lambda x: F.layer_norm(x, (5,)),
    "batch norm": lambda x: F.batch_norm(x[:1], None, None, training=True),
    "tril rank": lambda x: torch.tril(x[0]),
    "unfold": lambda x: x.unfold(0, 9, 1),
    "normal": lambda x: torch.normal(x, -1.0),
    "randint": lambda x: torch.randint(3, 3, (2,)) + x[0, 0],
    "gelu": lambda x: F.gelu(x, approximate="other"),
    "too many dimensions": lambda x: x.reshape(*[1] * 65, 24).amax(0),
    "kl of shapes": lambda x: F.kl_div(x, x[:, :4]),
}


@pytest.mark.parametrize("name", INVALID)
def test_what_eager_rejects(name):
    agree(INVALID[name], X)


def formats(x):
    return (F.pad(x, (1, 1, 2, 0), mode="reflect"), F.pad(x, (1, 1, 0, 2), mode="replicate"), F.pad(x, (1, 0),
            value=2.0), x * 2,
            F.pad(x, (1, 1, 1, 1), mode="circular"), F.relu(x) + 1, F.interpolate(x, scale_factor=2), x.sum(1,
            keepdim=True),
            F.interpolate(x, size=(3, 9), mode="bilinear"), F.avg_pool2d(x, 2), F.max_pool2d(x, 2,
            return_indices=True),
            F.adaptive_avg_pool2d(x, 3), x.softmax(1), F.group_norm(x, 2), F.instance_norm(x), torch.cat([x, x], 1),
            F.batch_norm(x, None, None, training=True), F.conv2d(x, x[:, :, :2, :2]), x.to(torch.half),
            F.pixel_shuffle(x, 2),
            F.dropout(x, 0.0), torch.where(x > 0, x, 0), x.clone(), x[:, ::2] * 2, x.mean((2, 3)),
            F.layer_norm(x, x.shape[2:]))  # fmt: skip


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_memory_formats(format):
    x = torch.randn(2, 4, 5, 6, generator=torch.Generator().manual_seed(0)).contiguous(memory_format=format)
    agree(formats, x, rtol=2e-4, atol=2e-4)


def resizing(x):
    out = []
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        for size in ((5, 9), (10, 4), (3, 7), (5, 7)):
            out.append(F.interpolate(x, size=size, mode=mode))
    for mode in ("nearest", "bilinear", "nearest-exact"):
        for scale in (1.3, 0.6, (1.0, 1.7), (2.0, 1.0)):
            out.append(F.interpolate(x, scale_factor=scale, mode=mode))
            out.append(F.interpolate(x, scale_factor=scale, mode=mode, recompute_scale_factor=True))
    out += [F.interpolate(x, size=(9, 9), mode=m, align_corners=True) for m in ("bilinear", "bicubic")]
    out += [F.interpolate(x, size=(3, 3), mode="bilinear", antialias=True)]
    return tuple(out)


def test_resize_modes():
    agree(resizing, torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(0)), grad=True, rtol=1e-4,
    atol=1e-4)


def pools(x):
    out = []
    for ceil in (True, False):
        for count in (True, False):
            out.append(F.avg_pool2d(x, 3, 2, 1, ceil_mode=ceil, count_include_pad=count))
            out.append(F.avg_pool1d(x[0], 4, 3, 2, ceil_mode=ceil, count_include_pad=count))
        out.append(F.max_pool2d(x, 3, 2, 1, ceil_mode=ceil))
        out.append(F.max_pool2d(x, 2, 2, dilation=2, ceil_mode=ceil))
        out.append(F.max_pool1d(x[0], 3, 2, ceil_mode=ceil))
    out += [F.avg_pool2d(x, 2, divisor_override=3), F.adaptive_max_pool2d(x, (3, 2)), F.adaptive_avg_pool1d(x[0], 4),
            F.lp_pool2d(x.abs() + 1, 2.0, 2), F.avg_pool3d(x[None], 2, ceil_mode=True), F.max_pool3d(x[None],
            2, ceil_mode=True)]  # fmt: skip
    return tuple(out)


def test_pooling_gradients():
    agree(pools, torch.randn(2, 3, 7, 8, generator=torch.Generator().manual_seed(0)), grad=True, rtol=1e-4, atol=1e-5)


def reduces(x, src):
    i = torch.tensor([0, 2, 0, 1])
    j = i[:, None].expand(4, 6)
    out = []
    for reduce in ("amax", "amin", "prod", "mean"):
        for own in (True, False):
            out.append(x.index_reduce(0, i, src, reduce, include_self=own))
            out.append(x.scatter_reduce(0, j, src, reduce, include_self=own))
    out += [x.scatter_reduce(0, j, src, "sum", include_self=False), x.scatter_add(0, j, src), x.index_add(0, i,
    src, alpha=2)]
    out += [x.index_put((i,), src, accumulate=True), x.scatter(1, torch.zeros(4, 1).long(), src),
    x.index_copy(0, i[:2], src[:2])]
    return tuple(out)


def test_scatter_gradients():
    agree(reduces, X + 0.01, X.flip(0) * 1.5 + 0.3, grad=True, rtol=1e-4, atol=1e-5)
    tied = torch.ones(4, 6)
    agree(reduces, tied, tied, grad=True, rtol=1e-4, atol=1e-5)


def norms(x):
    return (F.layer_norm(x, (6,)), F.group_norm(x[None], 2), x.var(0), x.std(1, unbiased=False),
            torch.var_mean(x, 1), x.norm(),
            F.normalize(x), x.norm(p=1, dim=1), x.norm(p=inf), torch.linalg.vector_norm(x, 3, 0), F.rms_norm(x, (6,)),
            F.cosine_similarity(x, x.flip(0)), torch.cdist(x, x.flip(0)), x.renorm(2, 0, 1.0),
            F.local_response_norm(x[None], 2))  # fmt: skip


def losses(x):
    t, p, i = x.flip(0), x.sigmoid(), torch.tensor([0, 5, -100, 2])
    return (F.cross_entropy(x, i), F.cross_entropy(x, i, label_smoothing=0.1), F.cross_entropy(x, p),
            F.nll_loss(x, i, reduction="none"),
            F.cross_entropy(x, i, weight=torch.arange(6.0), reduction="sum"), F.binary_cross_entropy(p,
            p.detach()), F.mse_loss(x, t),
            F.binary_cross_entropy_with_logits(x, p.detach(), pos_weight=torch.ones(6) * 2),
            F.smooth_l1_loss(x, t, beta=0.5),
            F.huber_loss(x, t), F.kl_div(x, p, reduction="batchmean"), F.kl_div(x, x, log_target=True),
            F.l1_loss(x, t),
            F.poisson_nll_loss(x, p), F.gaussian_nll_loss(x, t, p), F.soft_margin_loss(x, x.sign()),
            F.hinge_embedding_loss(x, x.sign()),
            F.margin_ranking_loss(x, t, x.sign()), F.triplet_margin_loss(x, t, t + 1), F.multi_margin_loss(x,
            i.clamp(0)),
            F.multilabel_soft_margin_loss(x, p.round()), F.cosine_embedding_loss(x, t, torch.ones(4)))  # fmt: skip


@pytest.mark.parametrize("fn", [norms, losses], ids=lambda f: f.__name__)
def test_gradients(fn):
    agree(fn, X * 1.1 + 0.05, grad=True, rtol=1e-4, atol=1e-5)


def test_dropout_repeats_under_a_seed_and_backward_uses_its_mask():
    fast = lamina.compile(lambda x: F.dropout(x, 0.5) * 2)
    x = torch.ones(1000, requires_grad=True)
    torch.manual_seed(0)
    a = fast(x)
    b = fast(x)
    torch.manual_seed(0)
    assert torch.equal(a, fast(x)) and not torch.equal(a, b)
    (g,) = torch.autograd.grad(b.sum(), x)
    assert torch.equal(g, b.detach()) and 0.4 < (b == 0).float().mean() < 0.6


def test_subnormal_numbers_stay():
    x = torch.tensor([1e-40, -1e-42, 1e-45])
    agree(lambda x: (x * 1.0, x + x, x * 2, x.abs(), x.sum(), x.double(), x > 0, x.relu()), x, rtol=0, atol=0)
    assert (torch.tensor([1e-40]) * 0.5).item() != 0
