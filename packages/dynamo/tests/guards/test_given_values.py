"""The inputs of a graph come from the guard program, which has walked to them, not from a second walk in bytecode."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from torch import nn

import lamina_dynamo
from lamina_dynamo import _eval_frame
from lamina_dynamo.codegen import GIVEN


def graphs_counted():
    seen = []

    def backend(gm, example_inputs):
        seen.append(gm)
        return gm.forward

    return seen, backend


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))


def entries_of(function):
    return _eval_frame.code_entries(function.__code__)


def test_code_takes_what_the_guards_found():
    model = net()
    seen, backend = graphs_counted()

    def f(x):
        return model(x) * 2

    x = torch.randn(2, 4)
    torch.testing.assert_close(lamina_dynamo.optimize(backend)(f)(x), f(x))
    (entry,) = entries_of(f)
    assert entry.code.co_varnames[:2] == ("x", GIVEN)
    assert "_parameters" not in entry.code.co_names
    assert len(seen) == 1


def test_replaced_parameters_are_used():
    model = net()
    seen, backend = graphs_counted()
    compiled = lamina_dynamo.optimize(backend)(model)
    x = torch.randn(2, 4)
    compiled(x)
    model[0].weight = nn.Parameter(torch.randn(4, 4))
    model[2].bias.data = torch.randn(3)
    torch.testing.assert_close(compiled(x), model(x))
    assert len(seen) == 1


def test_one_entry_serves_many_objects():
    seen, backend = graphs_counted()

    def f(model, x):
        return model(x)

    compiled = lamina_dynamo.optimize(backend)(f)
    x = torch.randn(2, 4)
    for _ in range(3):
        model = net()
        nn.init.normal_(model[0].weight)
        torch.testing.assert_close(compiled(model, x), f(model, x))


def test_nothing_is_kept_alive_behind_the_call():
    class Holder:
        pass

    @lamina_dynamo.disable
    def is_gone(ref):
        gc.collect()
        return ref() is None

    def f(holder, ref):
        y = holder.x * holder.scale + holder.shift
        lamina_dynamo.graph_break()
        holder.x = None
        return y, is_gone(ref)

    for _ in range(2):  # compiled now, found in the cache the second time
        holder = Holder()
        holder.x, holder.scale, holder.shift = (torch.randn(3) for _ in range(3))
        want = holder.x * holder.scale + holder.shift
        ref = weakref.ref(holder.x)
        y, gone = lamina_dynamo.optimize("eager")(f)(holder, ref)
        torch.testing.assert_close(y, want)
        assert gone


def test_frames_that_are_too_small_for_the_new_code():
    """Recursion fills the chunks of the interpreter's stack: somewhere the new code does not fit in place."""
    model = net()

    def f(x, depth):
        y = model(x)
        return y if depth == 0 else y + f(x, depth - 1)

    x = torch.randn(2, 4)
    with lamina_dynamo.config.patch(inline_depth=0):
        got = lamina_dynamo.optimize("eager", dynamic=True)(f)(x, 150)
    torch.testing.assert_close(got, f(x, 150))


def test_arguments_in_cells_and_keywords():
    model = net()

    def f(x, *rest, scale, **more):
        inner = lambda: x * scale  # noqa: E731
        return model(inner()) + sum(rest) + more["shift"]

    x, r, shift = torch.randn(2, 4), torch.randn(3), torch.randn(2, 3)
    compiled = lamina_dynamo.optimize("eager")(f)
    for scale in (torch.tensor(2.0), torch.tensor(3.0)):
        torch.testing.assert_close(compiled(x, r, r, scale=scale, shift=shift), f(x, r, r, scale=scale, shift=shift))


@pytest.mark.parametrize("length", [5, 7])
def test_symbolic_sizes_are_given(length):
    model = net()
    seen, backend = graphs_counted()

    def f(x, n):
        return model(x)[: x.shape[0] - 1] * n

    compiled = lamina_dynamo.optimize(backend, dynamic=True)(f)
    for rows in (length, length + 4):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x, rows), f(x, rows))
    assert len(seen) == 1


def test_threads_do_not_mix_values():
    model = net()
    compiled = lamina_dynamo.optimize("eager")(lambda m, x: m(x))
    models = [net() for _ in range(4)]
    for m in models:
        nn.init.normal_(m[0].weight)
    compiled(model, torch.randn(2, 4))
    wrong = []

    def work(m):
        for _ in range(200):
            x = torch.randn(2, 4)
            if not torch.equal(compiled(m, x), m(x)):
                wrong.append(m)

    threads = [threading.Thread(target=work, args=(m,)) for m in models]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_program_cannot_give_what_it_has_no_register_for():
    with pytest.raises(ValueError, match="register"):
        _eval_frame.GuardProgram([], [], [], 1, (1,))


def test_code_needs_a_local_for_what_is_given():
    program = _eval_frame.GuardProgram([(_eval_frame.ACCESSES["LOCAL"], -1, None, None, 0, 0, 0)], [], [], 1, (0,))

    def f(x):
        return x

    with pytest.raises(ValueError, match="local"):
        _eval_frame.Entry(object(), f.__code__, f.__code__, program, None, True)
