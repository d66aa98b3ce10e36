"""Loops that are left inside by a graph break: what follows is captured with the loop's iterator, whatever it is."""

from __future__ import annotations

import itertools

import pytest
import torch

import lamina_dynamo

LOG: list[object] = []


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(4))


MODEL = Layers()


def over_enumerate(x):
    for i, k in enumerate([1, 2, 3, 4, 5]):
        x = x * k
        if i == 1:
            lamina_dynamo.graph_break()
        x = x + i
    return x


def over_modules(x):
    for i, layer in enumerate(MODEL.layers):
        x = layer(x)
        if i == 1:
            lamina_dynamo.graph_break()
    return x


def over_parameters(x):
    for name, p in MODEL.named_parameters():
        x = x + p.sum()
        if name == "layers.1.bias":
            lamina_dynamo.graph_break()
    return x


def over_zip(x):
    for p, q in zip(MODEL.parameters(), reversed(list(MODEL.parameters())), strict=True):
        x = x + p.sum() - 2 * q.sum()
        if p.dim() == 1 and q is MODEL.layers[3].weight:
            lamina_dynamo.graph_break()
    return x


def over_items(x):
    for key, v in {"a": x, "b": x + 1, "c": x + 2}.items():
        x = x + v
        if key == "a":
            lamina_dynamo.graph_break()
    return x


def over_map_of_generator(x):
    def squares(n):
        for i in range(n):
            yield i * i

    for k in map(lambda n: n + 1, filter(None, squares(5))):
        x = x * k
        if k == 2:
            lamina_dynamo.graph_break()
    return x


def over_delegating_generator(x):
    def inner(y):
        for i in range(4):
            yield y + i

    def outer(y):
        last = inner(y)
        yield from last

    for i, t in enumerate(outer(x)):
        x = x + t
        if i == 1:
            lamina_dynamo.graph_break()
    return x


def over_reversed_and_range(x):
    for i in reversed([1, 2, 3]):
        for j in range(3):
            x = x + i * j
            if i == 2 and j == 1:
                lamina_dynamo.graph_break()
    return x


ONCE = [
    over_enumerate,
    over_modules,
    over_parameters,
    over_zip,
    over_items,
    over_map_of_generator,
    over_delegating_generator,
    over_reversed_and_range,
]


@pytest.mark.parametrize("fn", ONCE, ids=lambda f: f.__name__)
def test_one_break_in_a_loop_is_one_break(fn):
    lamina_dynamo.reset()
    compiled = lamina_dynamo.optimize("eager")(fn)
    x = torch.arange(3.0)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), fn(x))
    counters = lamina_dynamo.counters()
    assert sum(counters["breaks"].values()) == 1, counters["breaks"]
    assert counters["graphs"] == 2
    assert not counters["recompiles"]


def always_list(x):
    for k in [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5, 11.5, 12.5]:
        x = x + k
        lamina_dynamo.graph_break()
        x = x * 2
    return x


def always_range(x):
    for i in range(15):
        x = x + i
        lamina_dynamo.graph_break()
        x = x * 2
    return x


def always_layers(x):
    for layer in MODEL.layers:
        x = layer(x)
        lamina_dynamo.graph_break()
        x = x * 2
    return x


def always_parameters(x):
    many = [p for _ in range(3) for p in MODEL.parameters()]

    def all_of(things):
        seen = set()
        for t in things:
            seen.add(len(seen))
            yield t

    for p in all_of(many):
        x = x + p.sum()
        lamina_dynamo.graph_break()
        x = x * 2
    return x


@pytest.mark.parametrize("fn", [always_list, always_range, always_layers, always_parameters], ids=lambda f: f.__name__)
def test_loop_that_always_breaks_is_not_compiled_for_each_step(fn, recwarn):
    lamina_dynamo.reset()
    compiled = lamina_dynamo.optimize("eager")(fn)
    x = torch.arange(3.0)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), fn(x))
    assert lamina_dynamo.counters()["compiled"] <= 8
    assert not [w for w in recwarn if issubclass(w.category, lamina_dynamo.RecompileWarning)]


def ended_generator(x, n):
    def steps():
        try:
            for i in range(4):
                LOG.append(("step", i))
                yield i
        finally:
            LOG.append("end")

    for i in steps():
        x = x + i
        lamina_dynamo.graph_break()
        LOG.append(("body", i))
        if i == n:
            break
    return x * 2


def raising_generator(x, n):
    def steps():
        for i in range(4):
            if i == n:
                raise ValueError(i)
            yield i

    try:
        for i in steps():
            x = x + i
            lamina_dynamo.graph_break()
    except ValueError as e:
        x = x - e.args[0]
    return x * 2


def list_that_grows(x, n):
    items = [1, 2]
    for i in items:
        x = x + i
        lamina_dynamo.graph_break()
        if len(items) < 5:
            items.append(i * n)
    return x, items


def dict_that_changes(x, n):
    items = {"a": 1, "b": 2, "c": 3}
    for _key, v in items.items():
        x = x + v
        lamina_dynamo.graph_break()
        items["c"] = n
    return x, items


def seen_by_others(x, n):
    made = iter([1, 2, 3, 4, 5])
    kept = enumerate(made)
    for i, v in kept:
        x = x + v
        lamina_dynamo.graph_break()
        if i == n:
            x = x * next(made)
    return x, list(kept), list(made)


def pairs(x, n):
    it = iter(range(8))
    for a, b in zip(it, it):
        x = x * a + b
        if a == 2 * n:
            lamina_dynamo.graph_break()
    return x


@pytest.mark.parametrize(
    "fn",
    [ended_generator, raising_generator, list_that_grows, dict_that_changes, seen_by_others, pairs],
    ids=lambda f: f.__name__,
)
def test_effects_of_and_on_the_iterator(fn):
    lamina_dynamo.reset()
    compiled = lamina_dynamo.optimize("eager")(fn)
    for n in (0, 1, 2, 3, 9):
        outcomes = []
        for f in (fn, compiled):
            LOG.clear()
            value = f(torch.arange(3.0), n)
            outcomes.append((str(value), list(LOG)))
        assert outcomes[0] == outcomes[1]


def test_iterators_of_the_caller_are_advanced():
    def two(x, it):
        return x * next(it) + next(it)

    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(two)
    lamina_dynamo.reset()
    for values in ([1, 2, 3, 4, 5, 6], (1, 2, 3, 4, 5, 6), range(1, 7), {1: 0, 2: 0, 3: 0, 4: 0}):
        it, other = iter(values), iter(values)
        for _ in range(2):
            torch.testing.assert_close(compiled(torch.ones(2), it), two(torch.ones(2), other))
        assert list(it) == list(other)
    with pytest.raises(StopIteration):
        compiled(torch.ones(2), iter([1]))


SERIAL = itertools.count(3, 2)


def test_counters_of_the_program():
    def fn(x):
        return x * next(SERIAL) + next(SERIAL), SERIAL

    lamina_dynamo.reset()
    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(fn)
    for start in (3, 7, 11, 15):
        value, same = compiled(torch.ones(2))
        assert value.tolist() == [start + start + 2] * 2 and same is SERIAL
    assert next(SERIAL) == 19
    assert lamina_dynamo.counters()["compiled"] == 2
    halves = itertools.count(0.5)
    assert lamina_dynamo.optimize("eager")(lambda x: x * next(halves))(torch.ones(1)).item() == 0.5


def test_extremes_of_sizes_that_only_the_run_knows():
    def fn(x):
        kept = x[x > 0]
        return x.new_zeros(min(kept.numel(), 3)), x.new_ones(max(2, kept.numel()))

    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(fn)
    for n in (1, 3, 5):
        x = torch.tensor([1.0] * n + [-1.0] * 2)
        assert [tuple(t.shape) for t in compiled(x)] == [(min(n, 3),), (max(2, n),)]


def test_a_class_of_autograd_functions_made_inside_is_compiled_once():
    """torch numbers such classes by a counter that moves with every compilation: no guard on it would hold."""

    def fn(x):
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a):
                return a * 2

            @staticmethod
            def backward(ctx, g):
                return g * 2

        return Double.apply(x) + 1

    compiled = lamina_dynamo.optimize("eager")(fn)
    for _ in range(4):
        x = torch.ones(3, requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        assert torch.equal(y, torch.full((3,), 3.0)) and torch.equal(x.grad, torch.full((3,), 2.0))
    assert not any("AUTOGRAD_FUNCTION_COUNTER" in key for key in lamina_dynamo.counters()["recompiles"])
