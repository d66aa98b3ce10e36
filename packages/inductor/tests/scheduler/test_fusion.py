"""What becomes one kernel, and what does not and why."""

import pytest
import torch
from check import TARGETS, run
from programs import Tracer

targets = pytest.mark.parametrize("target", TARGETS)


def softmax(t, x, dim=1):
    keep = tuple(d for d in range(x.dim()) if d != dim)
    shape = tuple(x.shape)
    e = t.exp(t.sub(x, t.broadcast_in_dim(t.amax(x, (dim,)), shape, keep)))
    return t.div(e, t.broadcast_in_dim(t.sum(e, (dim,), x.dtype), shape, keep))


def layer_norm(t, x, w, b):
    shape = tuple(x.shape)
    keep = tuple(range(x.dim() - 1))
    var, mean = t.var_mean(x, (x.dim() - 1,), 0.0)
    rstd = t.rsqrt(t.add(var, 1e-5))
    y = t.mul(t.sub(x, t.broadcast_in_dim(mean, shape, keep)), t.broadcast_in_dim(rstd, shape, keep))
    return t.add(t.mul(y, t.broadcast(w, shape)), t.broadcast(b, shape)), mean, rstd


@targets
@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_is_one_kernel(dim, target):
    x = torch.randn(6, 70)
    t = Tracer(x)
    compiled = run(t.finish(softmax(t, x, dim)), [x], target)
    assert len(compiled.kernels) == 1


@targets
def test_softmax_backward_is_one_kernel(target):
    y, g = torch.softmax(torch.randn(6, 70), 1), torch.randn(6, 70)
    t = Tracer(y, g)
    p = t.mul(g, y)
    s = t.broadcast_in_dim(t.sum(p, (1,), torch.float32), (6, 70), (0,))
    compiled = run(t.finish(t.sub(p, t.mul(y, s))), [y, g], target)
    assert len(compiled.kernels) == 1


@targets
def test_layer_norm_with_what_surrounds_it_is_one_kernel(target):
    x, r, w, b = torch.randn(4, 8, 32), torch.randn(4, 8, 32), torch.randn(32), torch.randn(32)
    t = Tracer(x, r, w, b)
    y, mean, rstd = layer_norm(t, t.add(x, r), w, b)
    compiled = run(t.finish(t.tanh(y), mean, rstd), [x, r, w, b], target, rtol=1e-4, atol=1e-5)
    assert len(compiled.kernels) == 1


@targets
def test_layer_norm_backward(target):
    x, g, w = torch.randn(16, 32), torch.randn(16, 32), torch.randn(32)
    mean, rstd = x.mean(1), 1 / (x.var(1, unbiased=False) + 1e-5).sqrt()
    t = Tracer(x, g, w, mean, rstd)
    S, K = (16, 32), (0,)
    xhat = t.mul(t.sub(x, t.broadcast_in_dim(mean, S, K)), t.broadcast_in_dim(rstd, S, K))
    gw = t.mul(g, t.broadcast(w, S))
    a = t.broadcast_in_dim(t.sum(gw, (1,), torch.float32), S, K)
    b = t.broadcast_in_dim(t.sum(t.mul(gw, xhat), (1,), torch.float32), S, K)
    inner = t.sub(t.sub(t.mul(gw, 32.0), a), t.mul(xhat, b))
    dx = t.mul(inner, t.broadcast_in_dim(t.mul(rstd, 1 / 32), S, K))
    dw, db = t.sum(t.mul(g, xhat), (0,), torch.float32), t.sum(g, (0,), torch.float32)
    compiled = run(t.finish(dx, dw, db), [x, g, w, mean, rstd], target, rtol=1e-4, atol=1e-4)
    assert len(compiled.kernels) <= 2


@targets
def test_independent_reductions_of_one_input_share_a_kernel(target):
    x = torch.randn(8, 40)
    t = Tracer(x)
    compiled = run(t.finish(t.sum(x, (1,), torch.float32), t.amax(x, (1,)), t.argmin(x, 1)), [x], target)
    assert len(compiled.kernels) == 1


@targets
def test_several_outputs_of_one_loop(target):
    x, y = torch.randn(4, 50), torch.randn(4, 50)
    t = Tracer(x, y)
    a = t.tanh(t.add(x, y))
    compiled = run(t.finish(a, t.mul(a, x), t.mul(a, y)), [x, y], target)
    assert len(compiled.kernels) == 1


@targets
def test_reshape_between_fused_nodes(target):
    x, w = torch.randn(4, 6, 8), torch.randn(8)
    t = Tracer(x, w)
    a = t.tanh(t.mul(x, t.broadcast(w, (4, 6, 8))))
    b = t.exp(t.reshape(a, (24, 8)))
    s = t.sum(t.reshape(a, (24, 8)), (1,), torch.float32)
    compiled = run(t.finish(a, b, s), [x, w], target)
    assert len(compiled.kernels) == 1


@targets
def test_transposed_consumers_are_correct(target):
    x = torch.randn(12, 12)
    t = Tracer(x)
    a = t.exp(x)
    run(t.finish(a, t.add(a, t.permute(a, (1, 0))), t.sum(t.permute(a, (1, 0)), (1,), torch.float32)), [x], target)


@targets
def test_shifted_reads_are_refused_with_a_reason(target):
    x = torch.randn(100)
    t = Tracer(x)
    a = t.exp(x)
    b = t.add(t.slice(a, (1,), (100,), (1,)), t.slice(a, (0,), (99,), (1,)))
    compiled = run(t.finish(a, b), [x], target)
    assert len(compiled.kernels) == 2
    assert compiled.fusion_log and all(r.reason for r in compiled.fusion_log)


@targets
def test_no_cycles_through_an_extern_call(target):
    x = torch.randn(8, 8)
    t = Tracer(x)
    a = t.exp(x)
    m = t.mm(a, a)
    run(t.finish(t.add(m, a), t.mul(a, 2.0), t.add(t.mul(m, 2.0), t.exp(a))), [x], target, rtol=1e-4, atol=1e-4)


@targets
def test_reductions_over_different_dims(target):
    x = torch.randn(16, 24)
    t = Tracer(x)
    a = t.exp(x)
    run(
        t.finish(t.sum(a, (0,), torch.float32), t.sum(a, (1,), torch.float32), t.sum(a, (0, 1), torch.float32)),
        [x],
        target,
    )


@targets
def test_batch_norm_channels_last(target):
    x = torch.randn(4, 3, 5, 6).to(memory_format=torch.channels_last)
    t = Tracer(x)
    var, mean = t.var_mean(x, (0, 2, 3), 0.0)
    S = tuple(x.shape)
    y = t.mul(t.sub(x, t.broadcast_in_dim(mean, S, (1,))), t.broadcast_in_dim(t.rsqrt(t.add(var, 1e-5)), S, (1,)))
    compiled = run(t.finish(t.maximum(y, 0.0), var, mean), [x], target, rtol=1e-4, atol=1e-5)
    assert len(compiled.kernels) == 1


@targets
def test_dead_code_is_dropped(target):
    x = torch.randn(4, 4)
    t = Tracer(x)
    t.mm(x, x)
    t.sum(t.exp(x), (0,), torch.float32)
    compiled = run(t.finish(t.neg(x)), [x], target)
    assert len(compiled.kernels) == 1 and not compiled.externs


def test_equal_kernels_are_the_same_object():
    x = torch.randn(6, 8)
    w = torch.randn(8, 8)
    t = Tracer(x, w)
    y = x
    for _ in range(5):
        y = t.mm(softmax(t, y), w)
    compiled = run(t.finish(y), [x, w], rtol=1e-4, atol=1e-4)
    assert len(compiled.kernels) == 5 and len({id(k) for k in compiled.kernels}) == 1


def test_memory_is_reused():
    x = torch.randn(64, 64)
    t = Tracer(x)
    y = x
    for _ in range(10):
        y = t.exp(t.neg(t.mm(t.mul(y, 0.01), x)))
    program = run(t.finish(y), [x], rtol=1e-3, atol=1e-3).program
    assert program.peak_bytes <= 4 * 64 * 64 * 4


@targets
def test_small_independent_kernels_with_equal_loops_share_one(target):
    xs = [torch.randn(40) for _ in range(6)]
    gs = [torch.randn(40) for _ in range(6)]
    t = Tracer(*xs, *gs)
    outs = [t.sub(x, t.mul(g, 0.1)) for x, g in zip(xs, gs, strict=True)]
    compiled = run(t.finish(*outs), [*xs, *gs], target)
    assert len(compiled.kernels) == 1


@targets
def test_small_dependent_kernels_keep_their_order(target):
    x, w = torch.randn(6, 6), torch.randn(6, 6)
    t = Tracer(x, w)
    a = t.exp(x)
    m = t.mm(a, w)
    b = t.tanh(w)
    c = t.mul(m, b)
    d = t.mm(c, b)
    run(t.finish(t.neg(d), a, c), [x, w], target, rtol=1e-4, atol=1e-4)
