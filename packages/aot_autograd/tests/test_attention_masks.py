"""Masks that follow from constants are replaced by what they say; the results stay eager's."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import lamina_aot_autograd as aot

N = 12


def traced(program, *inputs):
    """(result of the compiled program, the aten ops of its graph)."""
    gm = torch.fx.symbolic_trace(program)
    ops = []

    def compiler(graph, example_inputs):
        ops.extend(str(n.target) for n in graph.graph.nodes if n.op == "call_function")
        return graph.forward

    with torch.no_grad():
        compiled = aot.aot_compile(gm, list(inputs), forward_compiler=compiler, inference_compiler=compiler)
        return compiled(*inputs), ops


def everything(q):
    n = q.size(2)
    rows = torch.arange(n).view(1, 1, n, 1)
    return (rows >= 0).expand(2, -1, -1, n)


def triangle(q):
    n = q.size(2)
    rows, columns = torch.arange(n)[:, None], torch.arange(n)[None, :]
    return (columns <= rows).expand(2, 1, n, n)


def added_triangle(q):
    hidden = torch.full((q.size(2), q.size(2)), torch.finfo(torch.float32).min)
    return torch.triu(hidden, diagonal=1)[None, None]


def shifted_triangle(q):
    return torch.arange(q.size(2))[None, :] < torch.arange(q.size(2))[:, None] + 2


def from_an_input(q):
    return q[:, :1, :, :1].expand(2, 1, N, N) > -100.0


def qkv():
    torch.manual_seed(0)
    return [torch.randn(2, 3, N, 8) for _ in range(3)]


@pytest.mark.parametrize("mask", [everything, triangle, added_triangle, shifted_triangle, from_an_input])
def test_results_are_those_of_eager(mask):
    def program(q, k, v):
        return (F.scaled_dot_product_attention(q, k, v, attn_mask=mask(q)),)

    inputs = qkv()
    torch.testing.assert_close(traced(program, *inputs)[0][0], program(*inputs)[0])


@pytest.mark.parametrize("mask", [everything, triangle, added_triangle])
def test_a_known_mask_is_not_made(mask):
    def program(q, k, v):
        return (F.scaled_dot_product_attention(q, k, v, attn_mask=mask(q)),)

    _, ops = traced(program, *qkv())
    assert not any("arange" in op or "full" in op or "triu" in op for op in ops)


@pytest.mark.parametrize("mask", [shifted_triangle, from_an_input])
def test_any_other_mask_stays(mask):
    def program(q, k, v):
        return (F.scaled_dot_product_attention(q, k, v, attn_mask=mask(q)),)

    _, ops = traced(program, *qkv())
    assert any(w in op for op in ops for w in ("arange", "aten.gt"))


def test_positional_arguments_and_scale():
    def program(q, k, v):
        return (F.scaled_dot_product_attention(q, k, v, triangle(q), 0.0, False, scale=0.3),)

    inputs = qkv()
    got, ops = traced(program, *inputs)
    torch.testing.assert_close(got[0], program(*inputs)[0])
    assert not any("arange" in op for op in ops)


def test_a_triangle_that_is_no_square_stays():
    def program(q, k, v):
        mask = torch.arange(k.size(2))[None, :] <= torch.arange(q.size(2))[:, None]
        return (F.scaled_dot_product_attention(q, k, v, attn_mask=mask),)

    q, k, v = qkv()
    inputs = [q[:, :, :5].contiguous(), k, v]
    got, ops = traced(program, *inputs)
    torch.testing.assert_close(got[0], program(*inputs)[0])
    assert any("arange" in op for op in ops)


def test_gradients_with_a_known_mask():
    def program(q, k, v):
        return (F.scaled_dot_product_attention(q, k, v, attn_mask=triangle(q)),)

    inputs = [t.requires_grad_() for t in qkv()]
    compiled = aot.aot_compile(torch.fx.symbolic_trace(program), inputs)
    compiled(*inputs)[0].square().sum().backward()
    got = [t.grad for t in inputs]
    again = [t.detach().clone().requires_grad_() for t in inputs]
    program(*again)[0].square().sum().backward()
    for a, b in zip(got, again):
        torch.testing.assert_close(a, b.grad)


def test_a_mask_with_gradient_stays():
    def program(q, k, v, bias):
        return (F.scaled_dot_product_attention(q, k, v, attn_mask=bias),)

    inputs = [*qkv(), torch.randn(1, 3, N, N)]
    inputs = [t.requires_grad_() for t in inputs]
    compiled = aot.aot_compile(torch.fx.symbolic_trace(program), inputs)
    compiled(*inputs)[0].sum().backward()
    assert inputs[3].grad is not None


def test_masks_of_cuda_are_put_in_rows():
    from lamina_aot_autograd.trace.attention import in_rows

    mask = torch.randn(5, 7, 3).permute(2, 0, 1)[None].expand(4, 3, 5, 7)
    assert mask.stride(-1) != 1
    rows = in_rows(mask)
    assert rows.stride() == (0, 35, 7, 1)
    assert torch.equal(rows, mask)
    assert in_rows(rows) is rows
