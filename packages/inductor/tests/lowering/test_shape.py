"""Concatenation, padding, creation."""

import pytest
import torch
from check import TARGETS, run
from programs import Tracer

targets = pytest.mark.parametrize("target", TARGETS)


@targets
@pytest.mark.parametrize("dim", [0, 1])
def test_cat(dim, target):
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    t = Tracer(x, y)
    c = t.cat((t.exp(x), y, t.mul(x, y)), dim)
    run(t.finish(c, t.neg(c)), [x, y], target)


@targets
def test_cat_of_many_and_empty(target):
    x, y, z = torch.randn(3, 1), torch.randn(3, 0), torch.randn(3, 5)
    t = Tracer(x, y, z)
    run(t.finish(t.cat((x, y, z), 1), t.cat((y, z), 1)), [x, y, z], target)


@targets
def test_parts_of_equal_size_share_a_kernel(target):
    x, y, z = torch.randn(4, 8), torch.randn(4, 8), torch.randn(4, 8)
    t = Tracer(x, y, z)
    c = t.cat((x, t.exp(y), z), 1)
    compiled = run(t.finish(c, t.sum(c, (1,), torch.float32), t.cat((x, t.neg(x)), 0)), [x, y, z], target)
    assert len(compiled.kernels) == 2


@targets
def test_cat_channels_last(target):
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    t = Tracer(x)
    run(t.finish(t.cat((x, t.exp(x)), 1)), [x], target)


@targets
@pytest.mark.parametrize("low,high", [((1, 2), (3, 0)), ((0, 0), (0, 0)), ((-1, 2), (1, -2)), ((0, -1), (0, -1))])
def test_pad(low, high, target):
    x = torch.randn(3, 4)
    t = Tracer(x)
    run(t.finish(t.pad(x, 1.5, low, high), t.mul(t.pad(t.exp(x), float("-inf"), low, high), 2.0)), [x], target)


@targets
def test_creation(target):
    x = torch.randn(3)
    t = Tracer(x)
    cpu = torch.device("cpu")
    outs = [
        t.full((2, 3), 1.5, torch.float32, cpu), t.full((), 7, torch.int64, cpu), t.full((0, 2), True, torch.bool, cpu),
        t.iota(5, 2, 3, torch.int64, cpu), t.iota(4, 0, -1, torch.float32, cpu),
        t.full((2,), float("nan"), torch.bfloat16, cpu),
        t.add(x, t.iota(3, 0, 1, torch.float32, cpu)),
    ]  # fmt: skip
    run(t.finish(*outs), [x], target)


@targets
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("last", [False, True])
def test_large_results_are_padded_part_by_part(dtype, last, target):
    x = torch.randn(4, 8, 48, 40).mul(3).to(dtype)
    if last:
        x = x.to(memory_format=torch.channels_last)
    t = Tracer(x)
    value = True if dtype is torch.bool else 2
    padded = t.pad(x, value, (0, 1, 2, 3), (1, 0, 0, 4))
    plain = t.pad(x, value, (0, 0, 0, 0), (0, 0, 1, 1))
    compiled = run(t.finish(padded, plain), [x], target)
    assert not compiled.externs


@targets
def test_large_padding_of_a_computed_value(target):
    x = torch.randn(2, 16, 48, 48)
    t = Tracer(x)
    padded = t.pad(t.mul(t.exp(x), 2.0), float("nan"), (0, 0, 1, 1), (0, 0, 1, 1))
    run(t.finish(padded), [x], target)
    t = Tracer(x)
    read = t.add(t.pad(x, 0.0, (0, 0, 1, 1), (0, 0, 1, 1)), 1.0)  # taken in by the loop that reads it
    assert len(run(t.finish(read), [x], target).kernels) == 1
