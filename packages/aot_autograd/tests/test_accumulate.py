"""Large gradients are added to `.grad` while a backward graph runs that can do so."""

from __future__ import annotations

import threading

import pytest
import torch

from lamina_aot_autograd import aot_compile
from lamina_aot_autograd.wrappers.boxing import run_eagerly

WIDE = 1100  # a square weight of this width is above both limits


class Adding:
    """A compiled backward that takes the tensors its results are to be added to."""

    _boxed_call = True

    def __init__(self, gm):
        self.run, self.added = run_eagerly(gm), []

    def __call__(self, args):
        return list(self.run(args))

    def call_into(self, args, sinks):
        out = list(self.run(args))
        for k, sink in enumerate(sinks):
            if sink is not None:
                sink.add_(out[k])
                out[k] = None
                self.added.append(k)
        return out


def compiled_for(fn, *args):
    made = []

    def compiler(gm, inputs):
        made.append(Adding(gm))
        return made[-1]

    gm = torch.fx.symbolic_trace(fn)
    return aot_compile(gm, list(args), forward_compiler=lambda g, i: run_eagerly(g), backward_compiler=compiler), made


def product(x, w, v):
    return (x @ w).tanh() @ v


def tensors():
    torch.manual_seed(0)
    return (
        torch.randn(3, WIDE),
        torch.randn(WIDE, WIDE, requires_grad=True),
        torch.randn(WIDE, 2, requires_grad=True),
    )


def gradients(fn, args, steps=2):
    for t in args[1:]:
        t.grad = None
    for _ in range(steps):
        fn(*args).sum().backward()
    return [t.grad.clone() for t in args[1:]]


def test_second_backward_adds_large_gradients_in_place():
    args = tensors()
    want = gradients(product, args)
    fast, made = compiled_for(product, *args)
    torch.testing.assert_close(gradients(fast, args), want)
    assert len(made[0].added) == 1  # the large one of the second step
    held = args[1].grad
    version = held._version
    fast(*args).sum().backward()
    assert args[1].grad is held and held._version == version + 1


@pytest.mark.parametrize("what", ["hook", "post hook", "autograd.grad", "inputs", "create_graph"])
def test_everything_else_gets_the_gradient_itself(what):
    args = tensors()
    fast, made = compiled_for(product, *args)
    want = gradients(product, args, 1)
    gradients(fast, args, 1)
    w = args[1]
    seen = []
    if what == "hook":
        handle = w.register_hook(lambda g: seen.append(g) or g * 2)
        fast(*args).sum().backward()
        handle.remove()
        torch.testing.assert_close((seen[0], w.grad), (want[0], want[0] * 3))
    elif what == "post hook":
        handle = w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        fast(*args).sum().backward()
        handle.remove()
        torch.testing.assert_close(seen[0], want[0] * 2)
    elif what == "autograd.grad":
        [g] = torch.autograd.grad(fast(*args).sum(), [w])
        torch.testing.assert_close((g, w.grad), (want[0], want[0]))
    elif what == "inputs":
        fast(*args).sum().backward(inputs=[args[2]])
        torch.testing.assert_close((w.grad, args[2].grad), (want[0], want[1] * 2))
    else:
        torch.set_warn_always(True)  # another test of the process may have had the warning already
        try:
            with pytest.warns(UserWarning, match="create_graph"):
                fast(*args).sum().backward(create_graph=True)
        finally:
            torch.set_warn_always(False)
        torch.testing.assert_close(w.grad, want[0] * 2)
        w.grad = None
    assert not made[0].added


def test_backwards_of_several_threads_lose_nothing():
    """Each adds under the lock of the parameter, as eager's engine does."""
    args = tensors()
    fast, made = compiled_for(product, *args)
    want = gradients(product, args, 1)
    gradients(fast, args, 1)
    rounds, threads = 12, 4
    errors = []

    def work():
        try:
            for _ in range(rounds):
                fast(*args).sum().backward()
        except Exception as error:
            errors.append(error)

    others = [threading.Thread(target=work) for _ in range(threads)]
    for t in others:
        t.start()
    for t in others:
        t.join()
    assert not errors
    assert len(made[0].added) == rounds * threads
    torch.testing.assert_close(args[1].grad, want[0] * (1 + rounds * threads), rtol=1e-4, atol=1e-4)


def test_a_gradient_of_another_dtype_or_shape_is_left_alone():
    args = tensors()
    fast, made = compiled_for(product, *args)
    want = gradients(product, args, 1)
    gradients(fast, args, 1)
    args[1].grad = args[1].grad.to_sparse()
    fast(*args).sum().backward()
    torch.testing.assert_close(args[1].grad.to_dense(), want[0] * 2)
    assert not made[0].added


def test_a_gradient_that_only_a_missing_tangent_reaches():
    def two(x, w, v):
        return x @ w, (x * 2).sum() + v.sum()

    args = tensors()
    gm = torch.fx.symbolic_trace(two)
    made = []

    def compiler(g, i):
        made.append(Adding(g))
        return made[-1]

    fast = aot_compile(gm, list(args), forward_compiler=lambda g, i: run_eagerly(g), backward_compiler=compiler)
    sum(o.sum() for o in fast(*args)).backward()
    before = args[1].grad.clone()
    fast(*args)[1].backward()
    assert torch.equal(args[1].grad, before) and not made[0].added
    torch.testing.assert_close(args[2].grad, torch.full_like(args[2], 2))
    fast(*args)[0].sum().backward()
    assert made[0].added
    torch.testing.assert_close(args[1].grad, before * 2)
