"""Reductions and scans against eager."""

import pytest
import torch
from check import TARGETS, run
from programs import Tracer

from lamina_inductor import compile_graph

targets = pytest.mark.parametrize("target", TARGETS)
DIMS = [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]


@targets
@pytest.mark.parametrize("dims", DIMS, ids=str)
@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "any", "all", "var_mean"])
def test_dims(name, dims, target):
    torch.manual_seed(0)
    x = torch.randn(5, 6, 7)
    x[x < -1] = 0
    t = Tracer(x)
    extra = {"sum": (torch.float32,), "prod": (torch.float32,), "var_mean": (1.0,)}.get(name, ())
    out = getattr(t, name)(x, dims, *extra)
    run(t.finish(*(out if isinstance(out, tuple) else (out,))), [x], target, rtol=1e-4, atol=1e-5)


@targets
@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool],
    ids=str,
)
def test_dtypes(dtype, target):
    torch.manual_seed(0)
    x = (torch.randn(8, 33) * 3).to(dtype)
    wide = dtype if dtype.is_floating_point else torch.int64
    t = Tracer(x)
    outs = [t.sum(x, (1,), wide), t.amax(x, (1,)), t.amin(x, (0,)), t.any(x, (1,)), t.all(x, (0,))]
    if dtype.is_floating_point:
        outs += t.var_mean(x, (1,), 0.0)
    run(t.finish(*outs), [x], target)


@targets
@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dim", [0, 1, None])
def test_arg(name, dim, target):
    x = torch.tensor([[1.0, 5.0, 5.0, 2.0], [7.0, 7.0, 0.0, 0.0], [float("nan"), 1.0, float("nan"), 9.0]])
    t = Tracer(x)
    run(t.finish(getattr(t, name)(x, dim)), [x], target)
    y = torch.randint(-3, 3, (40, 50))
    t = Tracer(y)
    run(t.finish(getattr(t, name)(y, dim)), [y], target)


@targets
def test_nan_and_inf(target):
    x = torch.tensor([[1.0, float("nan"), 2.0], [float("inf"), -float("inf"), 0.0], [-float("inf")] * 3])
    t = Tracer(x)
    run(t.finish(t.amax(x, (1,)), t.amin(x, (1,)), t.sum(x, (1,), torch.float32), t.any(x, (1,))), [x], target)


@targets
@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_empty(shape, target):
    x = torch.randn(shape)
    t = Tracer(x)
    run(
        t.finish(t.sum(x, (0,), torch.float32), t.prod(x, (1,), torch.float32), t.any(x, (0,)), t.all(x, (1,))),
        [x],
        target,
    )


@targets
def test_scalar(target):
    x = torch.randn(())
    t = Tracer(x)
    run(t.finish(t.sum(x, (), torch.float32), t.amax(x, ()), t.argmax(x, None)), [x], target)


@targets
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_scan(name, dim, target):
    torch.manual_seed(0)
    x = torch.randn(4, 5, 6)
    t = Tracer(x)
    out = getattr(t, name)(x, dim)
    run(t.finish(*(out if isinstance(out, tuple) else (out,))), [x], target, rtol=1e-4, atol=1e-5)


@targets
def test_scan_of_integers_and_ties(target):
    x = torch.tensor([[3, 3, 1, 3, 5], [5, 4, 5, 5, 0]])
    t = Tracer(x)
    run(t.finish(t.cumsum(x, 1), *t.cummax(x, 1), *t.cummin(x, 1)), [x], target)


@targets
def test_pointwise_around_scan(target):
    x = torch.randn(4, 50)
    t = Tracer(x)
    run(t.finish(t.mul(t.cumsum(t.exp(x), 1), 2.0)), [x], target, rtol=1e-4, atol=1e-4)


@targets
def test_transposed_input(target):
    x = torch.randn(7, 6, 5).permute(2, 0, 1)
    t = Tracer(x)
    run(t.finish(t.sum(x, (0,), torch.float32), t.sum(x, (2,), torch.float32), t.amax(x, (1,))), [x], target)


@pytest.mark.parametrize("dims", [(0, 2), (0, 1)], ids=str)
def test_long_moments_are_as_accurate_as_their_format(dims):
    """Far from zero, over thousands of values: rounding errors do not pile up."""
    torch.manual_seed(0)
    x = torch.randn(2, 8192 if dims == (0, 1) else 8, 8 if dims == (0, 1) else 8192) + 10
    t = Tracer(x)
    compiled = compile_graph(t.finish(*t.var_mean(x, dims, 0.0)), target="cpp")
    var, mean = compiled([x])
    want_var, want_mean = torch.var_mean(x.double(), dims, correction=0)
    assert ((mean - want_mean).abs() / want_mean).max() < 1.5e-7
    assert ((var - want_var).abs() / want_var).max() < 4e-7


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("target", TARGETS)
def test_the_first_of_equals_where_loops_follow_the_memory(dtype, target):
    """A transposed tensor is read in the order of its memory: the first of equals is not the first that is met."""
    x = torch.randint(0, 3, (40, 33), generator=torch.Generator().manual_seed(1)).to(dtype)
    t = Tracer(x)
    flat = t.reshape(t.permute(x, (1, 0)), (x.numel(),))
    run(t.finish(t.argmax(flat, 0), t.argmin(flat, 0)), [x], target)
