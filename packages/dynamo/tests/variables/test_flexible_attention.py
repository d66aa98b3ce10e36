"""``flex_attention`` is captured whole, with its score and mask functions as operations of the graph."""

import warnings

import pytest
import torch

import lamina_dynamo

flexible = pytest.importorskip("torch.nn.attention.flex_attention")
flex_attention, create_block_mask = flexible.flex_attention, flexible.create_block_mask


def heads(h=4, n=48, d=16, dtype=torch.float32, b=2):
    return torch.randn(b, h, n, d, dtype=dtype)


def eager(fn, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it is slow
        return fn(*args)


TABLE = torch.randn(2, 4, 95)
SLOPES = torch.rand(4)
PIECES = torch.arange(48) // 15


def causal(b, h, i, j):
    return i >= j


def pieces(b, h, i, j):
    return (PIECES[i] == PIECES[j]) & (i >= j)


SCORES = {
    "identity": None,
    "slope of a head": lambda s, b, h, i, j: s + SLOPES[h] * (j - i),
    "table by parts": lambda s, b, h, i, j: s + TABLE[b][h][i - j + 47],
    "table at once": lambda s, b, h, i, j: s + TABLE[b, h, i - j + 47],
    "cap": lambda s, b, h, i, j: 5.0 * torch.tanh(s / 5.0),
    "branches": lambda s, b, h, i, j: torch.where((i + h) % 2 == 0, s, s * 0.5),
}


@pytest.fixture
def compiled():
    """A function compiled whole, its graphs run as they are."""
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    def make(fn):
        graphs.clear()
        return lamina_dynamo.optimize(backend, fullgraph=True)(fn), graphs

    return make


@pytest.mark.parametrize("name", sorted(SCORES))
@pytest.mark.parametrize("mask", [None, causal, pieces])
def test_score_and_mask_functions(compiled, name, mask):
    q, k, v = heads(), heads(), heads()
    blocks = None if mask is None else create_block_mask(mask, None, None, 48, 48, device="cpu")

    def fn(q, k, v):
        return flex_attention(q, k, v, score_mod=SCORES[name], block_mask=blocks)

    call, graphs = compiled(fn)
    torch.testing.assert_close(call(q, k, v), eager(fn, q, k, v))
    assert len(graphs) == 1


def test_fewer_heads_of_keys_and_a_scale(compiled):
    q, k, v = heads(), heads(2), heads(2)

    def fn(q, k, v):
        return flex_attention(q, k, v, scale=0.3, enable_gqa=True)

    call, _ = compiled(fn)
    torch.testing.assert_close(call(q, k, v), eager(fn, q, k, v))


def test_the_result_lies_in_memory_like_the_query(compiled):
    q, k, v = torch.randn(2, 48, 4, 16).transpose(1, 2), heads(), heads()

    def fn(q, k, v):
        return flex_attention(q, k, v)

    call, _ = compiled(fn)
    got, want = call(q, k, v), eager(fn, q, k, v)
    torch.testing.assert_close(got, want)
    assert got.stride() == want.stride()


def test_rows_without_columns_are_zeros_and_sums_are_returned(compiled):
    q, k, v = heads(), heads(), heads()

    def after(b, h, i, j):
        return i > j

    blocks = create_block_mask(after, None, None, 48, 48, device="cpu")

    def fn(q, k, v):
        return flex_attention(q, k, v, block_mask=blocks, return_lse=True)

    call, _ = compiled(fn)
    got, want = call(q, k, v), eager(fn, q, k, v)
    torch.testing.assert_close(got, want)
    assert not got[0][:, :, 0].any() and got[1][0, 0, 0] == float("-inf")


def test_half_precision_and_autocast(compiled):
    q, k, v = heads(dtype=torch.bfloat16), heads(dtype=torch.bfloat16), heads(dtype=torch.bfloat16)

    def fn(q, k, v):
        return flex_attention(q, k, v)

    call, _ = compiled(fn)
    torch.testing.assert_close(call(q, k, v), eager(fn, q, k, v))
    wide = [x.float() for x in (q, k, v)]
    with torch.autocast("cpu", torch.bfloat16):
        call, _ = compiled(fn)
        got, want = call(*wide), eager(fn, *wide)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want)


def test_wrong_arguments_raise_what_eager_raises(compiled):
    def fn(q, k, v):
        return flex_attention(q, k, v)

    call, _ = compiled(fn)
    with pytest.raises(ValueError, match="same number of heads"):
        call(heads(), heads(2), heads(2))
