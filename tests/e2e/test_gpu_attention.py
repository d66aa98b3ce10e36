"""Flexible attention on a CUDA device: one kernel, right in all dtypes and with gradients. Run with ``-m gpu``."""

import math

import pytest
import torch

import lamina

flexible = pytest.importorskip("torch.nn.attention.flex_attention")
flex_attention, create_block_mask = flexible.flex_attention, flexible.create_block_mask

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def plain(s, b, h, i, j):
    return s


def slope(s, b, h, i, j):
    return s - (h + 1) * 0.01 * (i - j)


def cap(s, b, h, i, j):
    return 5.0 * torch.tanh(s / 5.0)


def causal(b, h, i, j):
    return i >= j


def window(b, h, i, j):
    return (i >= j) & (i - j < 100)


def pieces(b, h, i, j):
    return (i // 150 == j // 150) & (i > j)


def reference(q, k, v, score, mask):
    """In float64."""
    q, k, v = (x.double() for x in (q, k, v))
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    h = torch.arange(s.shape[1], device="cuda")[:, None, None]
    i, j = (torch.arange(n, device="cuda") for n in s.shape[2:])
    s = torch.where(mask(0, h, i[:, None], j), score(s, 0, h, i[:, None], j), float("-inf"))
    return s.softmax(-1).nan_to_num() @ v


def operands(dtype, d, n=600, **more):
    torch.manual_seed(0)
    return [torch.randn(2, 4, n, d, device="cuda", dtype=dtype, **more) for _ in range(3)]


@pytest.mark.parametrize("mask", [causal, window, pieces])
@pytest.mark.parametrize("score", [plain, slope, cap])
@pytest.mark.parametrize("dtype, d", [(torch.bfloat16, 64), (torch.float16, 128), (torch.float32, 64)])
def test_agrees_with_a_reference(dtype, d, score, mask):
    q, k, v = operands(dtype, d)
    blocks = create_block_mask(mask, None, None, q.shape[2], q.shape[2], device="cuda")
    call = lamina.compile(lambda q, k, v: flex_attention(q, k, v, score_mod=score, block_mask=blocks), fullgraph=True)
    with torch.no_grad():
        got = call(q, k, v)
    bound = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(got.double(), reference(q, k, v, score, mask), rtol=bound, atol=bound)


@pytest.mark.parametrize("mask", [causal, window, pieces])
@pytest.mark.parametrize("score", [plain, cap])
@pytest.mark.parametrize("dtype, d", [(torch.bfloat16, 64), (torch.float16, 128), (torch.float32, 32)])
def test_gradients_agree_with_a_reference_and_repeat(dtype, d, score, mask):
    q, k, v = operands(dtype, d, requires_grad=True)
    weights = torch.randn_like(q)
    blocks = create_block_mask(mask, None, None, q.shape[2], q.shape[2], device="cuda")
    call = lamina.compile(lambda q, k, v: flex_attention(q, k, v, score_mod=score, block_mask=blocks), fullgraph=True)
    got, again = (torch.autograd.grad(call(q, k, v), (q, k, v), weights) for _ in range(2))
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    want = torch.autograd.grad(reference(*wide, score, mask), wide, weights.double())
    for a, b, c in zip(got, again, want):
        assert torch.equal(a, b)
        assert (a.double() - c).norm() / c.norm() < (1e-5 if dtype == torch.float32 else 2e-2)


def test_gradients_of_operands_and_of_a_captured_table():
    q, k, v = operands(torch.float32, 32, 200, requires_grad=True)
    table = torch.randn(4, 400, device="cuda", requires_grad=True)
    blocks = create_block_mask(causal, None, None, 200, 200, device="cuda")

    def score(s, b, h, i, j):
        return s + table[h, i - j + 200]

    call = lamina.compile(lambda q, k, v: flex_attention(q, k, v, score_mod=score, block_mask=blocks), fullgraph=True)
    weights = torch.randn(2, 4, 200, 32, device="cuda")
    (call(q, k, v) * weights).sum().backward()
    got = [x.grad.clone() for x in (q, k, v, table)]
    for x in (q, k, v, table):
        x.grad = None
    i, j = torch.arange(200, device="cuda")[:, None], torch.arange(200, device="cuda")
    s = q @ k.transpose(-1, -2) / math.sqrt(32) + table[:, i - j + 200]
    (s.masked_fill(i < j, float("-inf")).softmax(-1) @ v * weights).sum().backward()
    for a, b in zip(got, (q, k, v, table)):
        torch.testing.assert_close(a, b.grad, rtol=1e-3, atol=1e-3)


def test_written_out_attention_is_one_kernel():
    q, k, v = operands(torch.bfloat16, 64, 512)
    bias = torch.randn(4, 512, 512, device="cuda", dtype=torch.bfloat16)

    def fn(q, k, v, bias):
        s = q @ k.transpose(-2, -1) / 8.0 + bias
        keep = torch.ones(512, 512, dtype=torch.bool, device="cuda").tril()
        return s.masked_fill(~keep, float("-inf")).softmax(-1) @ v

    with torch.no_grad():
        got = lamina.compile(fn)(q, k, v, bias)
        want = fn(*(x.double() for x in (q, k, v, bias)))
        eager = fn(q, k, v, bias)
    assert (got - want).abs().max() <= 2 * (eager - want).abs().max()
