"""Gather, scatter, indices, their bounds checks and duplicates."""

import pytest
import torch
from check import TARGETS, run
from programs import Tracer

targets = pytest.mark.parametrize("target", TARGETS)


@targets
@pytest.mark.parametrize("dim", [0, 1])
def test_gather(dim, target):
    x, i = torch.randn(5, 6), torch.randint(0, 5, (4, 3))
    t = Tracer(x, i)
    run(t.finish(t.gather(x, dim, i)), [x, i], target)


@targets
def test_rows(target):
    x, i = torch.randn(7, 6), torch.randint(0, 7, (2, 3))
    j = torch.tensor([3, 3, 0])
    t = Tracer(x, i, j)
    run(t.finish(t.take_rows(x, i), t.index_select(x, 1, j)), [x, i, j], target)


@targets
def test_rows_out_of_range(target):
    x, i = torch.randn(7, 6), torch.tensor([0, 6])
    t = Tracer(x, i)
    compiled = run(t.finish(t.mul(t.take_rows(x, i), 2.0)), [x, i], target)
    for bad in ([0, 7], [-1, 0]):
        with pytest.raises(IndexError):
            compiled([x, torch.tensor(bad)])


@targets
@pytest.mark.parametrize("where", ["first", "middle", "two", "apart", "broadcast"])
def test_index(where, target):
    x = torch.randn(4, 5, 6)
    i, j = torch.tensor([[0, -1, 2]]), torch.tensor([[3], [-4]])
    indices = {
        "first": (i, None, None), "middle": (None, i, None), "two": (None, j, i), "apart": (j, None, i),
        "broadcast": (i, j, None),
    }[where]  # fmt: skip
    t = Tracer(x, i, j)
    run(t.finish(t.index(x, indices)), [x, i, j], target, stride=False)


@targets
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8], ids=str)
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(dtype, accumulate, target):
    x = torch.arange(20).reshape(4, 5).to(dtype)
    i = torch.tensor([1, 3, 1, -1]) if accumulate else torch.tensor([1, 3, -2])
    v = torch.arange(i.numel() * 5).reshape(-1, 5).to(dtype)
    t = Tracer(x, i, v)
    run(t.finish(t.index_put(x, (i, None), v, accumulate)), [x, i, v], target)


@targets
def test_scatter(target):
    x, i, s = torch.randn(4, 5), torch.tensor([[0, 1, 2], [3, 3, 0]]), torch.randn(2, 3)
    j = torch.tensor([[0, 1, 4], [3, 2, 0]])
    t = Tracer(x, i, s, j)
    outs = [t.scatter_add(x, 0, i, s), t.scatter(x, 1, j, s), t.scatter(x, 1, j, 2.5)]
    outs += [t.scatter_reduce(x, 0, i, s, r, True) for r in ("sum", "prod", "amax", "amin", "mean")]
    run(t.finish(*outs), [x, i, s, j], target)


@targets
def test_index_add(target):
    x, i, s = torch.randn(4, 5), torch.tensor([0, 2, 2]), torch.randn(3, 5)
    t = Tracer(x, i, s)
    run(t.finish(t.index_add(x, 0, i, t.mul(s, 2.0)), t.exp(x)), [x, i, s], target)


@targets
def test_gather_of_computed_values(target):
    x, i = torch.randn(6, 5), torch.randint(0, 6, (6, 5))
    t = Tracer(x, i)
    run(t.finish(t.gather(t.exp(t.mul(x, 2.0)), 0, i), t.gather(t.neg(x), 0, i)), [x, i], target)


@targets
def test_empty_index(target):
    x, i = torch.randn(6, 5), torch.empty(0, dtype=torch.int64)
    t = Tracer(x, i)
    run(t.finish(t.take_rows(x, i), t.index_put(x, (i, None), t.take_rows(x, i), True)), [x, i], target)


@targets
@pytest.mark.parametrize("padding", [-1, 3])
def test_gradient_of_an_embedding(padding, target):
    grad, index = torch.randn(3, 5, 6), torch.randint(0, 7, (3, 5))
    t = Tracer(grad, index)
    compiled = run(t.finish(t.embedding_dense_backward(grad, index, 7, padding, False)), [grad, index], target)
    assert not compiled.externs


@targets
def test_gradient_of_an_embedding_is_added_in_place(target):
    grad, index, a, b = torch.randn(5, 6), torch.randint(0, 70, (5,)), torch.randn(70, 4), torch.randn(4, 6)
    t = Tracer(grad, index, a, b)
    other = t.call(torch.ops.aten.mm.default, a, b)
    total = t.add(other, t.embedding_dense_backward(grad, index, 70, -1, False))
    compiled = run(t.finish(total), [grad, index, a, b], target)
    assert len(compiled.kernels) == 1  # the rows; no table of zeros and no pass over the whole table


@targets
def test_gradient_of_an_embedding_keeps_what_others_read(target):
    grad, index, a = torch.randn(5, 6), torch.randint(0, 70, (5,)), torch.randn(70, 6)
    t = Tracer(grad, index, a)
    other = t.exp(a)
    total = t.add(other, t.embedding_dense_backward(grad, index, 70, -1, False))
    run(t.finish(total, t.mul(other, 2.0)), [grad, index, a], target)
    t = Tracer(grad, index, a)
    run(t.finish(t.add(a, t.embedding_dense_backward(grad, index, 70, -1, False))), [grad, index, a], target)
