"""The backward is compiled beside the forward where the forward's compiler returns early."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.fx as fx

import lamina_aot_autograd as aot
from lamina_aot_autograd import run_eagerly


class Early:
    """What a compiler returns while other processes work for it."""

    def __init__(self, gm, strides=(), ready_strides=()):
        self.gm, self.output_strides, self.ready_strides = gm, list(strides), list(ready_strides)
        self.completed = 0

    def complete(self):
        self.completed += 1
        call = run_eagerly(self.gm)
        call.output_strides = self.ready_strides
        return call


def program(x, w):
    return (torch.tanh(x @ w) * 2,)


def inputs():
    torch.manual_seed(0)
    return [torch.randn(4, 3, requires_grad=True), torch.randn(3, 5, requires_grad=True)]


def train(forward, backward, x, w):
    compiled = aot.aot_compile(
        fx.symbolic_trace(program), [x, w], forward_compiler=forward, backward_compiler=backward
    )
    out = compiled(x, w)[0]
    out.sum().backward()
    return out


def check(forward, backward):
    given, want = inputs(), inputs()
    program(*want)[0].sum().backward()
    torch.testing.assert_close(train(forward, backward, *given), program(*want)[0])
    for a, b in zip(given, want):
        torch.testing.assert_close(a.grad, b.grad)


def test_both_run_at_the_same_time():
    """The forward is complete only once the backward's compiler has been called."""
    begun, threads = threading.Event(), []

    class Waiting(Early):
        def complete(self):
            assert begun.wait(20)
            return super().complete()

    def backward(gm, fakes):
        threads.append(threading.get_ident())
        begun.set()
        return Early(gm)

    check(lambda gm, fakes: Waiting(gm), backward)
    assert len(threads) == 1 and threads[0] != threading.get_ident()


def test_a_compiler_that_returns_late_changes_nothing():
    order = []

    def compiler(name):
        def compile_(gm, fakes):
            order.append((name, threading.get_ident()))
            return run_eagerly(gm)

        return compile_

    given = inputs()
    compiled = aot.aot_compile(
        fx.symbolic_trace(program), given, forward_compiler=compiler("forward"), backward_compiler=compiler("backward")
    )
    compiled(*given)
    assert [n for n, _ in order] == ["forward"]


def test_an_error_of_the_backwards_compiler_comes_where_it_is_needed():
    calls = []

    def backward(gm, fakes):
        calls.append(threading.get_ident())
        raise ValueError("cannot compile this")

    given = inputs()
    compiled = aot.aot_compile(
        fx.symbolic_trace(program), given, forward_compiler=lambda gm, fakes: Early(gm), backward_compiler=backward
    )
    out = compiled(*given)[0]
    with pytest.raises(ValueError, match="cannot compile this"):
        out.sum().backward()
    assert len(calls) == 2


def test_a_forward_that_falls_back_takes_its_promise_back():
    """Saved tensors were to lie transposed; the forward that runs leaves them as eager does."""
    seen = []

    def forward(gm, fakes):
        outputs = next(n for n in reversed(gm.graph.nodes) if n.op == "output").args[0]
        return Early(gm, [(1, 4) if tuple(o.meta["val"].shape) == (4, 5) else None for o in outputs])

    def backward(gm, fakes):
        seen.append([n.meta.get("physical_stride") for n in gm.graph.nodes if n.op == "placeholder"])
        return run_eagerly(gm)

    check(forward, backward)
    assert any(s is not None for s in seen[0])
    assert all(s is None for s in seen[-1]) and len(seen) == 2


def test_symbolic_sizes_keep_to_one_thread():
    threads = []

    def backward(gm, fakes):
        threads.append(threading.get_ident())
        return run_eagerly(gm)

    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    given = inputs()
    gm = fx.symbolic_trace(program)
    mode = FakeTensorMode(shape_env=ShapeEnv())
    for node, value in zip((n for n in gm.graph.nodes if n.op == "placeholder"), given):
        node.meta["val"] = mode.from_tensor(value, static_shapes=False)
    compiled = aot.aot_compile(gm, given, forward_compiler=lambda gm, fakes: Early(gm), backward_compiler=backward)
    compiled(*given)
    assert not threads or threads[0] == threading.get_ident()
