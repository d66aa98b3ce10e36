"""Whole programs on a CUDA device. Run with ``-m gpu`` on a machine that has one."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lamina

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 8)).cuda()


def step(call, x):
    out = call(x)
    out.square().mean().backward()
    return out.detach().clone()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_inference_in_every_mode(mode):
    model = mlp().eval()
    call = lamina.compile(model, mode=mode)
    x = torch.randn(32, 64, device="cuda")
    with torch.no_grad():
        for _ in range(6):
            torch.testing.assert_close(call(x), model(x))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_training_in_every_mode(mode):
    model, other = mlp(), mlp()
    call = lamina.compile(other, mode=mode)
    for k in range(8):
        torch.manual_seed(k)
        x = torch.randn(32, 64, device="cuda")
        want, got = step(model, x), step(call, x)
        torch.testing.assert_close(got, want)
        for p, q in zip(model.parameters(), other.parameters()):
            torch.testing.assert_close(q.grad, p.grad)
        with torch.no_grad():
            for p, q in zip(model.parameters(), other.parameters()):
                p -= 0.1 * p.grad
                q -= 0.1 * q.grad
                p.grad = q.grad = None


def test_results_of_replays_stay_valid():
    model = mlp().eval()
    call = lamina.compile(model, mode="reduce-overhead")
    x = torch.randn(16, 64, device="cuda")
    kept, wanted = [], []
    with torch.no_grad():
        for k in range(12):
            x.copy_(torch.full_like(x, float(k)) + torch.arange(64, device="cuda"))
            kept.append(call(x))
            wanted.append(model(x))
        for got, want in zip(kept, wanted):
            torch.testing.assert_close(got, want)


def test_replays_with_inputs_that_move_and_change_shape():
    model = mlp().eval()
    call = lamina.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for k in range(20):
            x = torch.randn(8 if k % 3 else 24, 64, device="cuda")
            torch.testing.assert_close(call(x), model(x))


def test_numbers_in_cpu_tensors():
    def program(x, scale):
        y = x * scale + torch.tensor(3.0)
        z = torch.ones_like(x).masked_fill(x > 0, scale)
        y[1:] = scale
        return y, z, scale * 2, torch.zeros(4, dtype=torch.long, device=x.device).fill_(torch.tensor(7))

    x, scale = torch.randn(5, 3, device="cuda"), torch.tensor(2.5)
    for got, want in zip(lamina.compile(program)(x, scale), program(x, scale)):
        assert got.device == want.device and got.dtype == want.dtype
        torch.testing.assert_close(got, want)


def attend(q, k, v, bias):
    n = q.shape[-2]
    causal = torch.arange(n, device=q.device)[None, :] <= torch.arange(n, device=q.device)[:, None]
    everything = torch.ones(n, n, dtype=torch.bool, device=q.device)
    a = F.scaled_dot_product_attention(q, k, v, attn_mask=causal)
    b = F.scaled_dot_product_attention(q, k, v, attn_mask=everything)
    return a + b + F.scaled_dot_product_attention(q, k, v, attn_mask=bias.permute(2, 0, 1)[None])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_with_masks(dtype):
    def inputs():
        torch.manual_seed(0)
        shapes = [(2, 4, 64, 32)] * 3 + [(64, 64, 4)]
        return [torch.randn(*s, device="cuda", dtype=dtype).requires_grad_() for s in shapes]

    mine, theirs = inputs(), inputs()
    tolerance = dict(rtol=2e-3, atol=2e-3) if dtype is torch.float32 else dict(rtol=5e-2, atol=5e-2)
    got, want = lamina.compile(attend)(*mine), attend(*theirs)
    torch.testing.assert_close(got, want, **tolerance)
    got.float().sum().backward()
    want.float().sum().backward()
    for a, b in zip(mine, theirs):
        torch.testing.assert_close(a.grad, b.grad, **tolerance)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 32, 3, padding=1)
        self.norm = nn.BatchNorm2d(32)
        self.b = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.c = nn.Conv2d(32, 64, 1)

    def forward(self, x):
        y = F.relu(self.norm(self.a(x)))
        z = self.c(F.max_pool2d(self.b(y), 2))
        return y, z, z.mean((2, 3))


@pytest.mark.parametrize("amp", [False, True])
def test_images_keep_the_strides_of_eager(amp):
    torch.manual_seed(0)
    model = Images().cuda()
    other = copy.deepcopy(model)
    call = lamina.compile(other)
    x = torch.randn(4, 3, 24, 24, device="cuda")
    tolerance = dict(rtol=5e-2, atol=5e-2) if amp else dict(rtol=5e-3, atol=5e-3)
    with torch.autocast("cuda", torch.bfloat16, enabled=amp):
        want, got = model(x), call(x)
    for a, b in zip(got, want):
        assert a.stride() == b.stride() and a.dtype == b.dtype
        torch.testing.assert_close(a, b, **tolerance)
    sum(t.float().square().mean() for t in want).backward()
    sum(t.float().square().mean() for t in got).backward()
    for p, q in zip(model.parameters(), other.parameters()):
        assert q.grad.stride() == p.grad.stride()
        torch.testing.assert_close(q.grad, p.grad, **tolerance)
    for p, q in zip(model.buffers(), other.buffers()):
        torch.testing.assert_close(q, p, **tolerance)


def test_a_vocabulary_of_odd_size():
    torch.manual_seed(0)
    head = nn.Linear(256, 9001, bias=False).cuda()
    other = copy.deepcopy(head)
    call = lamina.compile(lambda h, x, t: F.cross_entropy(h(x), t))
    x, target = torch.randn(512, 256, device="cuda"), torch.randint(0, 9001, (512,), device="cuda")
    xs = [x.clone().requires_grad_() for _ in range(2)]
    with torch.autocast("cuda", torch.bfloat16):
        want, got = F.cross_entropy(head(xs[0]), target), call(other, xs[1], target)
    torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)
    want.backward()
    got.backward()
    torch.testing.assert_close(other.weight.grad, head.weight.grad, rtol=5e-2, atol=1e-4)
    torch.testing.assert_close(xs[1].grad, xs[0].grad, rtol=5e-2, atol=1e-4)


def test_another_thread_calls_what_this_one_compiled():
    import threading

    model = mlp().eval()
    x = torch.randn(16, 64, device="cuda")
    for mode in ("default", "reduce-overhead"):
        call, got = lamina.compile(model, mode=mode), []
        with torch.no_grad():
            for _ in range(4):
                call(x)

        def run(call=call, got=got):
            with torch.no_grad():
                got.append(call(x))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        torch.testing.assert_close(got[0], model(x))


def test_random_numbers_of_a_recording_differ_between_calls():
    call = lamina.compile(lambda x: F.dropout(x, 0.5), mode="reduce-overhead")
    x = torch.ones(4096, device="cuda")
    seen = [call(x).clone() for _ in range(6)]
    assert all(not torch.equal(a, b) for k, a in enumerate(seen) for b in seen[:k])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel, stride", [(3, 1), (5, 2)])
def test_depthwise_training(dtype, kernel, stride):
    torch.manual_seed(0)
    make = lambda: nn.Sequential(  # noqa: E731
        nn.Conv2d(3, 24, 1), nn.Conv2d(24, 24, kernel, stride, kernel // 2, groups=24, bias=False), nn.Hardswish()
    ).to("cuda", dtype)
    model, other = make(), make()
    other.load_state_dict(model.state_dict())
    x = torch.randn(4, 3, 17, 15, device="cuda", dtype=dtype)
    tolerance = {"rtol": 3e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-3, "atol": 1e-4}
    with torch.backends.cudnn.flags(allow_tf32=False):
        torch.testing.assert_close(step(lamina.compile(other), x), step(model, x), **tolerance)
    for p, q in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(q.grad, p.grad, **tolerance)


@pytest.mark.parametrize("rows", [1, 8, 200])
def test_products_with_what_follows_them(rows):
    torch.manual_seed(0)
    w, v, b = (torch.randn(*s, device="cuda", dtype=torch.bfloat16) / 16 for s in ((256, 512), (256, 512), (256,)))
    x = torch.randn(rows, 512, device="cuda", dtype=torch.bfloat16)
    fn = lambda x: F.silu(F.linear(x, w, b)) * F.linear(x, v) + 1  # noqa: E731
    for mode in ("default", "max-autotune-no-cudagraphs"):
        torch.testing.assert_close(lamina.compile(fn, mode=mode)(x), fn(x), rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("offset", [1, 2, 3])
def test_inputs_that_are_not_aligned(mode, offset):
    """A kernel without error messages of its own, one with (an index), and a call after one that was aligned."""

    def compare(x):
        return x != -1

    def take(x, i):
        return x.index_select(0, i) * 2

    base = torch.arange(-3, 20, device="cuda")
    call, pick = lamina.compile(compare, mode=mode), lamina.compile(take, mode=mode)
    i = torch.tensor([2, 0, 1], device="cuda")
    for start in (0, offset, 0, offset, offset):
        x = base[start : start + 9]
        assert torch.equal(call(x), compare(x))
        assert torch.equal(pick(x.float(), i), take(x.float(), i))
        assert torch.equal(pick(x, i), take(x, i))
        row = base.float()[start : start + 9]
        assert torch.equal(pick(row, i), take(row, i))


def test_float8_casts_and_products():
    def quantize(x):
        scale = 448.0 / x.abs().amax()
        return (x * scale).to(torch.float8_e4m3fn), (x * 1e4).to(torch.float8_e5m2), scale

    def linear(x, w):
        a, b = x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn)
        one = torch.ones((), device=x.device)
        return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16).relu()

    x = torch.randn(64, 128, device="cuda") * 100
    x.view(-1)[:5] = torch.tensor([465.0, 1e9, float("inf"), float("nan"), -0.0], device="cuda")
    cast = lamina.compile(lambda v: (v.to(torch.float8_e4m3fn), v.to(torch.float8_e5m2)))
    for got, want in zip(cast(x), (x.to(torch.float8_e4m3fn), x.to(torch.float8_e5m2))):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got.float(), want.float(), rtol=0, atol=0, equal_nan=True)
    y = torch.randn(64, 128, device="cuda")
    for got, want in zip(lamina.compile(quantize)(y), quantize(y)):
        torch.testing.assert_close(got.float(), want.float(), rtol=0.13, atol=0.1)
    w = torch.randn(32, 128, device="cuda")
    torch.testing.assert_close(lamina.compile(linear)(y, w), linear(y, w))
