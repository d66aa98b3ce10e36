"""Equal modules are followed once and stamped out: same results, same guards; whatever differs is followed."""

from __future__ import annotations

import contextvars
import copy
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import lamina_dynamo
from lamina_dynamo import observe


class Layer(nn.Module):
    """A residual block that takes more than a hundred instructions to follow."""

    def __init__(self, d=4, eps=1.0):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.first, self.second = nn.Linear(d, d), nn.Linear(d, d)
        self.eps = eps

    def forward(self, x, mask=None):
        total = 0
        for i in range(12):
            total += i * 2
        y = self.second(F.relu(self.first(self.norm(x)))) * self.eps
        if mask is not None:
            y = y * mask
        return self.more(x + y, total)

    def more(self, x, total):
        return x


class Stack(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, **kwargs):
        for layer in self.layers:
            x = layer(x, **kwargs)
        return x


def watched(f, backend="eager"):
    """The compiled function and the list of numbers of stamped calls, one a compiled frame."""
    copies = []
    remove = observe.on_event(
        lambda e: copies.append(e.payload["result"].output.stamps.copies) if e.name == "frame compiled" else None
    )
    return lamina_dynamo.optimize(backend)(f), copies, remove


def check(net, *args, expected=None, calls=2, grad=False, **kwargs):
    """Eager and compiled copies of ``net`` give the same; ``expected``: the number of stamped calls (None: any)."""
    torch.manual_seed(7)
    for p in net.parameters():
        nn.init.normal_(p, std=0.3)
    plain = copy.deepcopy(net)
    compiled, copies, remove = watched(net)
    try:
        for k in range(calls):
            results = []
            for f, owner in ((plain, plain), (compiled, net)):
                torch.manual_seed(k)
                random.seed(k)
                inputs = [a.clone().requires_grad_(grad and a.is_floating_point()) for a in args]
                with torch.set_grad_enabled(grad):
                    out = f(*inputs, **kwargs)
                first = out[0] if isinstance(out, tuple) else out
                if grad:
                    first.sum().backward()
                results.append((out, [i.grad for i in inputs], [p.grad for p in owner.parameters()],
                                list(owner.buffers())))
                owner.zero_grad(set_to_none=True)
            torch.testing.assert_close(results[0], results[1])
    finally:
        remove()
    if expected is not None:
        assert copies[0] == expected
    return compiled, net


X = torch.randn(3, 4)


@pytest.mark.parametrize("grad", [False, True])
def test_equal_layers_are_followed_twice(grad):
    # the first layer reads the argument itself, the others what the layer before made
    check(Stack([Layer() for _ in range(6)]), X, expected=4, grad=grad)


def test_graph_is_that_of_following_each_call():
    def graph_of(n):
        found = []
        net = Stack([Layer() for _ in range(n)]).eval()
        with torch.no_grad():
            lamina_dynamo.optimize(lambda gm, _: (found.append(gm), gm.forward)[1])(net)(X)
        return found[0].graph

    six = graph_of(6)
    names = [n.meta["source"].name for n in six.nodes if n.op == "placeholder"]
    per_layer = [n for n in names if "[4]" in n]
    assert [n.replace("[4]", "[1]") for n in per_layer] == [n for n in names if "[1]" in n]
    assert len(set(names)) == len(names) == 1 + 6 * 6
    calls = [(n.target, len(n.all_input_nodes)) for n in six.nodes if n.op.startswith("call")]
    assert calls == calls[: len(calls) // 6] * 6
    stacks = [list(n.meta["nn_module_stack"])[-1] for n in six.nodes if n.op.startswith("call")]
    assert [s.replace("[5]", "[1]") for s in stacks if "[5]" in s] == [s for s in stacks if "[1]" in s]
    six.lint()


def test_other_constants_are_followed():
    check(Stack([Layer(eps=1.0 + (k == 3)) for k in range(6)]), X)
    check(Stack([Layer(eps=k * 1.0) for k in range(6)]), X, expected=0)


def test_guards_of_stamped_layers_hold():
    compiled, net = check(Stack([Layer() for _ in range(6)]), X, expected=4)
    with torch.no_grad():
        before = compiled(X)
        net.layers[4].eps = 3.0
        torch.testing.assert_close(compiled(X), net.forward(X))
        assert not torch.equal(before, compiled(X))
        net.layers[5].first.bias = None
        torch.testing.assert_close(compiled(X), net.forward(X))
        net.layers[3].second = nn.Linear(4, 4, dtype=torch.float32).requires_grad_(False)
        torch.testing.assert_close(compiled(X), net.forward(X))
        net.layers[4].norm.register_forward_hook(lambda m, a, out: out * 2)
        torch.testing.assert_close(compiled(X), net.forward(X))
        net.layers[5].more = lambda x, total: x + total
        torch.testing.assert_close(compiled(X), net.forward(X))


def test_weights_shared_between_layers():
    layers = [Layer() for _ in range(6)]
    layers[3].first.weight = layers[2].second.weight
    layers[5].second = layers[4].second
    check(Stack(layers), X, grad=True)
    compiled, net = check(Stack([layers[0]] * 5), X, grad=True)
    same = [Layer() for _ in range(6)]
    for layer in same:
        layer.second = layer.first
    check(Stack(same), X, grad=True, expected=4)
    same[4].second = nn.Linear(4, 4)
    check(Stack(same), X, grad=True)


def test_a_submodule_of_its_own_class_or_dtype():
    layers = [Layer() for _ in range(6)]
    layers[3].norm = nn.Identity()
    layers[4].first.requires_grad_(False)
    check(Stack(layers), X, grad=True)


SCALES: dict = {}
SEEN: list = []
CALLS = [0]
LAST: list = [None]


class ByIdentity(Layer):
    def more(self, x, total):
        return x * SCALES[self]


class IsLast(Layer):
    def more(self, x, total):
        return x * 5 if self is LAST[0] else x


class InList(Layer):
    def more(self, x, total):
        return x * 5 if any(m is self for m in SEEN) else x


def test_identity_of_a_layer_counts():
    layers = [ByIdentity() for _ in range(6)]
    SCALES.clear()
    SCALES.update({layer: float(k + 1) for k, layer in enumerate(layers)})
    net = Stack(layers)
    with torch.no_grad():
        want = net(X)
        torch.testing.assert_close(lamina_dynamo.optimize("eager")(net)(X), want)
    for k in (2, 4, 5):
        layers = [IsLast() for _ in range(6)]
        LAST[0] = layers[k]
        net = Stack(layers)
        with torch.no_grad():
            want = net(X)
            torch.testing.assert_close(lamina_dynamo.optimize("eager")(net)(X), want)
    layers = [InList() for _ in range(6)]
    SEEN[:] = [layers[3]]
    net = Stack(layers)
    with torch.no_grad():
        want = net(X)
        torch.testing.assert_close(lamina_dynamo.optimize("eager")(net)(X), want)


class Counts(Layer):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def more(self, x, total):
        self.calls += 1
        return x * self.calls


class CountsAll(Layer):
    def more(self, x, total):
        CALLS[0] += 1
        return x * CALLS[0]


def test_changes_are_followed():
    net = Stack([Counts() for _ in range(5)])
    check(net, X, expected=0)
    assert [layer.calls for layer in net.layers] == [2] * 5
    CALLS[0] = 0
    net = Stack([CountsAll() for _ in range(5)])
    with torch.no_grad():
        want = net(X)
        assert CALLS == [5]
        CALLS[0] = 0
        torch.testing.assert_close(lamina_dynamo.optimize("eager")(net)(X), want)
        assert CALLS == [5]


DEPTH = contextvars.ContextVar("depth", default=1)


class Contexts(Layer):
    def more(self, x, total):
        DEPTH.set(DEPTH.get() + 1)
        return x * DEPTH.get()


class Draws(Layer):
    def more(self, x, total):
        return x * random.random()


class Drops(Layer):
    def more(self, x, total):
        return F.dropout(x, 0.5, self.training)


@pytest.mark.parametrize("kind", [Contexts, Draws, Drops])
def test_state_outside_of_the_layer(kind):
    net = Stack([kind() for _ in range(6)]).train()

    def run(f):
        torch.manual_seed(3)
        random.seed(3)
        return contextvars.copy_context().run(lambda: f(X))

    with torch.no_grad():
        want = run(net)
        torch.testing.assert_close(run(lamina_dynamo.optimize("eager")(net)), want)


class Appends(nn.Module):
    """Hands the layers a list that they read and write."""

    def __init__(self, n):
        super().__init__()
        self.layers = nn.ModuleList(_Appending() for _ in range(n))

    def forward(self, x):
        seen = []
        for layer in self.layers:
            x = layer(x, seen)
        return x, len(seen)


class _Appending(Layer):
    def forward(self, x, seen):
        seen.append(x)
        return super().forward(x) * len(seen)


class Writes(Layer):
    def more(self, x, total):
        return x.mul_(2)


class WritesArgument(Layer):
    def forward(self, x):
        y = super().forward(x)
        x.add_(1)
        return y


class TwoResults(Layer):
    def more(self, x, total):
        return x, (None, total, x * 2)


class TwoStack(Stack):
    def forward(self, x):
        for layer in self.layers:
            x, (_, total, y) = layer(x)
            x = x + y * total
        return x, total


class ViewResult(Layer):
    def more(self, x, total):
        return x.view(3, 4)


class Views(Stack):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            x.add_(1)
        return x


class Normed(Layer):
    def __init__(self):
        super().__init__()
        self.batch = nn.BatchNorm1d(4)

    def more(self, x, total):
        return self.batch(x)


def test_kinds_of_results_arguments_and_writes():
    check(Appends(5), X, expected=0)
    check(Stack([Writes() for _ in range(5)]), X, expected=3)
    check(Stack([WritesArgument() for _ in range(5)]), X, expected=0)
    check(TwoStack([TwoResults() for _ in range(5)]), X, expected=3, grad=True)
    check(Views([ViewResult() for _ in range(5)]), X)
    check(Stack([Normed() for _ in range(5)]).train(), X, grad=True)
    check(Stack([Normed() for _ in range(5)]).eval(), X, grad=True, expected=3)
    check(Stack([Layer() for _ in range(5)]), X, mask=torch.ones(4) / 2, expected=3, grad=True)


class Alternating(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer(eps=1.0 + k % 2) for k in range(8))

    def forward(self, x):
        for k, layer in enumerate(self.layers):
            with torch.set_grad_enabled(k % 3 != 2):
                x = layer(x)
        return x


def test_layers_of_two_kinds_and_modes():
    check(Alternating(), X, grad=False)
    check(Alternating(), X, grad=True)
    compiled, copies, remove = watched(Stack([Layer(eps=1.0 + k % 2) for k in range(8)]))
    with torch.no_grad():
        compiled(X)
    remove()
    assert copies == [5]  # two of one kind are followed before the first can be stamped out


class BreaksLater(Stack):
    def forward(self, x):
        for k, layer in enumerate(self.layers):
            x = layer(x)
            if k == 4:
                torch._C._get_tracing_state()
                print(end="")
                x = x * float(x.sum() > 0)
        return x


def test_graph_break_between_layers():
    net = BreaksLater([Layer() for _ in range(7)])
    with torch.no_grad():
        want = net(X)
        torch.testing.assert_close(lamina_dynamo.optimize("eager")(net)(X), want)


def test_sizes_that_vary():
    net = Stack([Layer() for _ in range(5)])
    compiled = lamina_dynamo.optimize("eager", dynamic=True)(net)
    auto = lamina_dynamo.optimize("eager")(net)
    with torch.no_grad():
        for n in (3, 5, 6):
            x = torch.randn(n, 4)
            torch.testing.assert_close(compiled(x), net(x))
            torch.testing.assert_close(auto(x), net(x))


def test_autocast_and_inference_mode():
    net = Stack([Layer() for _ in range(5)])
    compiled, copies, remove = watched(net)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(compiled(X), net(X))
    with torch.inference_mode():
        got = compiled(X)
        torch.testing.assert_close(got, net(X))
        assert got.is_inference()
    remove()
    assert copies == [3, 3]


@pytest.mark.parametrize("layer", [0, 2])
def test_a_recompile_names_the_line_of_the_layer(layer):
    net = nn.Sequential(*[Layer() for _ in range(4)])
    compiled = lamina_dynamo.optimize("eager")(net)
    x = torch.ones(2, 4)
    lamina_dynamo.reset()
    compiled(x)
    net[layer].first.weight.requires_grad_(False)
    compiled(x)
    found = lamina_dynamo.explain_recompile()[-1]
    assert found.expression == f"self._modules['{layer}'].first.weight"
    assert __file__ in found.where
