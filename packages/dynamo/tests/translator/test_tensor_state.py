"""Gradients, hooks, parameters, ``data``, ``requires_grad`` and inference mode inside a region: as in eager.

``ONE_GRAPH`` programs must be captured whole; the others may break, with the same results.
"""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn as nn
from program_tables import ProgramTable, leaf

import lamina_dynamo

TABLE = ProgramTable()
ONE_GRAPH, MAY_BREAK = TABLE.whole, TABLE.others
one_graph, may_break = TABLE.one_graph, TABLE.may_break


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 2)
        self.handle = None

    def forward(self, x):
        return self.second(self.first(x).relu())


SCALE = 10.0

# Each function gives (program, arguments). A program returns tensors and plain values.


@one_graph
def hook_with_closure_and_global():
    def program(x, w):
        y = x * 2
        y.register_hook(lambda g: g * w * SCALE)
        return y.sin() + y, y

    return program, lambda: (leaf(3), torch.tensor([1.0, 2.0, 3.0]))


@one_graph
def two_hooks_and_one_removed():
    def program(x):
        y = x * 2
        first = y.register_hook(lambda g: g + 1)
        y.register_hook(lambda g: g * 3)
        y.register_hook(lambda g: None)
        z = y.cos()
        first.remove()
        return z

    return program, lambda: (leaf(3),)


@one_graph
def hook_on_an_argument():
    def program(x):
        x.register_hook(lambda g: g.clamp(max=0.5))
        return x.exp()

    return program, lambda: (leaf(3),)


@one_graph
def hooks_in_a_loop():
    def program(x):
        for i in range(3):
            x = x * (i + 2)
            x.register_hook(lambda g, i=i: g + i)
        return x

    return program, lambda: (leaf(3),)


@one_graph
def handle_kept_on_a_module():
    net = Net()

    def program(x):
        y = net.first(x)
        net.handle = y.register_hook(lambda g: g * 2)
        return net.second(y), type(net.handle).__name__

    return program, lambda: (leaf(2, 3),)


@may_break
def hook_with_effects():
    seen = []

    def program(x):
        y = x * 2
        y.register_hook(lambda g: seen.append(g.sum().item()))
        return y.sin(), list(seen)

    return program, lambda: (leaf(3),)


@may_break
def hook_before_a_break():
    def program(x):
        y = x * 2
        y.register_hook(lambda g: g * 5)
        n = int(y.detach().sum() * 0) + 1
        return y.sin() * n, y

    return program, lambda: (leaf(3),)


@one_graph
def retained():
    def program(x):
        y = x * 2
        y.retain_grad()
        z = y.sin() * y
        z.retain_grad()
        return z.exp(), y, z, y.retains_grad

    return program, lambda: (leaf(3),)


@one_graph
def parameters_made_inside():
    def program(x):
        w = nn.Parameter(torch.arange(3.0))
        b = nn.Parameter(x.detach()[0], requires_grad=False)
        e = nn.Parameter()
        return x * w + b, w, isinstance(w, nn.Parameter), b.requires_grad, w.is_leaf, tuple(e.shape)

    return program, lambda: (leaf(2, 3),)


@one_graph
def a_layer_made_inside():
    def program(x):
        layer = nn.Linear(3, 2)
        with torch.no_grad():
            layer.weight.fill_(0.5)
            layer.bias.zero_()
        return layer(x), layer.weight, len(list(layer.parameters()))

    return program, lambda: (leaf(2, 3),)


@one_graph
def data_of_weights_replaced():
    net = Net()

    def program(x):
        for p in net.parameters():
            p.data = p.data * 0.5
        out = net(x)
        net.first.weight.data.mul_(2)
        net.second.bias.data -= 1
        return out, net.first.weight, net.second.bias

    return program, lambda: (leaf(2, 3),)


@one_graph
def data_written_behind_autograd():
    def program(x):
        y = x * x
        x.data.mul_(2)
        return y, x._version if False else 0

    return program, lambda: (leaf(3),)


@one_graph
def data_of_another_shape():
    def program(x):
        y = x.detach().clone()
        view = y[0]
        y.data = torch.ones(5, dtype=torch.float64)
        return y + 1, view * 2, tuple(y.shape), y.dtype

    return program, lambda: (leaf(2, 3),)


@one_graph
def gradients_cleared_and_set():
    net = Net()

    def program(x):
        for p in net.parameters():
            p.grad = None
        cleared = [p.grad is None for p in net.parameters()]
        net.first.weight.grad = torch.ones_like(net.first.weight)
        net.first.weight.grad += 2
        return net.first.weight.grad * 3, cleared, net(x)

    return program, lambda: (leaf(2, 3),)


@one_graph
def gradient_of_something_made_inside():
    def program(x):
        w = x.detach().clone().requires_grad_()
        before = w.grad
        w.grad = torch.ones_like(w)
        return w, w.grad, before, w * 2

    return program, lambda: (leaf(3),)


@one_graph
def frozen_and_thawed():
    net = Net()

    def program(x):
        for p in net.first.parameters():
            p.requires_grad_(False)
        net.second.bias.requires_grad = False
        out = net(x)
        net.second.bias.requires_grad = True
        return out, net.first.weight.requires_grad, net.second.bias.requires_grad

    return program, lambda: (torch.randn(2, 3),)


@may_break
def integers_require_no_grad():
    def program(x):
        n = (x * 10).long()
        try:
            n.requires_grad_()
        except RuntimeError as e:
            return x + 1, str(e)[:40]

    return program, lambda: (leaf(3),)


@one_graph
def attributes_stored_on_tensors():
    def program(x):
        y = x * 2
        y.note = ["a"]
        x.other = y.note
        return y, y.note, x.other is y.note

    return program, lambda: (leaf(3),)


@one_graph
def gradient_penalty():
    net = Net()

    def program(x):
        x = x.detach().requires_grad_()
        out = net(x).sum()
        (g,) = torch.autograd.grad(out, x, create_graph=True)
        return out, (g.norm(dim=1) - 1).pow(2).mean(), g

    return program, lambda: (torch.randn(4, 3),)


@one_graph
def forces():
    def program(positions):
        positions = positions.clone().requires_grad_(True)
        energy = (positions.unsqueeze(0) - positions.unsqueeze(1)).pow(2).sum()
        return energy.detach(), -torch.autograd.grad(energy, positions)[0]

    return program, lambda: (torch.randn(4, 3),)


@one_graph
def second_derivative():
    net = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))

    def program(t):
        t = t.detach().requires_grad_()
        u = net(t)
        du = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]
        d2 = torch.autograd.grad(du[:, 0].sum(), t, create_graph=True)[0]
        return ((d2 - u) ** 2).mean()

    return program, lambda: (torch.randn(4, 1),)


@one_graph
def gradients_of_unused_tensors():
    def program(x, w):
        y = x.detach().clone().requires_grad_()
        return torch.autograd.grad((x * w).sum(), [w, y], allow_unused=True)

    return program, lambda: (leaf(3), leaf(3))


@may_break
def gradients_that_do_not_exist():
    def program(x):
        try:
            return torch.autograd.grad((x.detach() * 2).sum(), x)
        except RuntimeError as e:
            return x + 1, str(e)[:30]

    return program, lambda: (leaf(3),)


@one_graph
def inference_block():
    def program(x):
        y = x * 2
        with torch.inference_mode():
            z = y * 3
            view = x[1:]
            made = torch.ones(3)
        return z, z.is_inference(), view.is_inference(), made + 1, (z * 2).is_inference(), y.sin()

    return program, lambda: (leaf(3),)


@one_graph
def inference_modes_nested():
    def program(x):
        with torch.inference_mode():
            a = x * 2
            with torch.inference_mode(False), torch.enable_grad():
                b = x * 3
            c = b * 4
            with torch.no_grad():
                d = x + 1
        return a, b, c, d, torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    return program, lambda: (leaf(3),)


@one_graph
def inference_decorator():
    @torch.inference_mode()
    def inner(x):
        return x.sin()

    def program(x):
        return inner(x), torch.inference_mode(lambda t: t * 2)(x)

    return program, lambda: (leaf(3),)


@may_break
def break_inside_an_inference_block():
    def program(x):
        with torch.inference_mode():
            y = x * 2
            n = int(y.sum() * 0) + 2
            z = y * n
        return z, z.is_inference(), torch.is_inference_mode_enabled(), x * 3

    return program, lambda: (leaf(3),)


@may_break
def exception_out_of_an_inference_block():
    def program(x):
        try:
            with torch.inference_mode():
                y = x * 2
                raise ValueError("no")
        except ValueError:
            return y, x * 3, torch.is_inference_mode_enabled()

    return program, lambda: (leaf(3),)


@may_break
def inference_tensors_in_autograd():
    def program(x):
        with torch.inference_mode():
            y = torch.ones(3)
        try:
            return x * y
        except RuntimeError as e:
            return x + 1, str(e)[:30]

    return program, lambda: (leaf(3),)


def flat(value):
    if isinstance(value, (list, tuple)):
        return [i for v in value for i in flat(v)]
    return [value]


def report(program, args):
    """Everything that can be seen of a run, and of a backward pass through its results."""
    torch.manual_seed(3)
    results = flat(program(*args))
    tensors = [t for t in results if isinstance(t, torch.Tensor)]
    seen = [r if not isinstance(r, torch.Tensor) else (type(r), r.dtype, r.is_leaf, r.requires_grad, r.is_inference(),
            r.detach().clone()) for r in results]  # fmt: skip
    seen += [getattr(t, "note", None) for t in tensors]
    parts = [t.sum() for t in tensors if t.requires_grad and not t.is_leaf]
    if parts:
        sum(parts).backward()
    watched = [*tensors, *(a for a in args if isinstance(a, torch.Tensor))]
    seen += [t.grad.clone() if (t.is_leaf or t.retains_grad) and t.grad is not None else None for t in watched]
    return seen


def assert_same(a, b):
    assert type(a) is type(b), (a, b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and torch.allclose(a, b), (a, b)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            assert_same(x, y)
    else:
        assert a == b, (a, b)


def compare(make, **options):
    state = torch.random.get_rng_state()
    program, arguments = make()
    torch.random.set_rng_state(state)
    compiled_program, _ = make()
    args = arguments()
    copies = [copy.deepcopy(args) for _ in range(2)]
    compiled = lamina_dynamo.optimize("eager", **options)(compiled_program)
    for other in copies:
        mine = copy.deepcopy(args)
        assert_same(report(program, mine), report(compiled, other))


@pytest.mark.parametrize("make", ONE_GRAPH.values(), ids=ONE_GRAPH)
def test_one_graph(make):
    compare(make, fullgraph=True)


@pytest.mark.parametrize("make", MAY_BREAK.values(), ids=MAY_BREAK)
def test_may_break(make):
    compare(make)


def test_inference_mode_is_left_when_the_graph_fails():
    def program(x, i):
        with torch.inference_mode():
            y = x[i]  # fails at run time
        return y

    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(program)
    assert torch.equal(compiled(torch.ones(3), torch.tensor([1])), torch.ones(1))
    with pytest.raises(IndexError):
        compiled(torch.ones(3), torch.tensor([7]))
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()


def _two_blocks(block):
    def program(x):
        with block():
            lamina_dynamo.graph_break()
            x = x + 1
        x = x * 2
        with block():
            lamina_dynamo.graph_break()
            y = x + 2
        return x * y, y.requires_grad, torch.is_grad_enabled()

    return program


def _in_a_loop(block):
    def program(x):
        seen = []
        for _ in range(3):
            with block():
                lamina_dynamo.graph_break()
                seen.append((x + 1).requires_grad)
            x = x * 2
        return x, seen, torch.is_grad_enabled()

    return program


@pytest.mark.parametrize("make", [_two_blocks, _in_a_loop])
@pytest.mark.parametrize(
    "block",
    [torch.no_grad, torch.enable_grad, torch.inference_mode, lambda: torch.set_grad_enabled(False)],
    ids=["no_grad", "enable_grad", "inference_mode", "set_grad_enabled"],
)
@pytest.mark.parametrize("outside", [True, False])
def test_blocks_entered_after_a_break_in_another(make, block, outside):
    program = make(block)
    lamina_dynamo.reset()
    compiled = lamina_dynamo.optimize("eager")(program)
    with torch.set_grad_enabled(outside):
        for _ in range(2):
            x = torch.ones(2, requires_grad=True)
            assert_same(list(compiled(x)), list(program(x)))
            assert torch.is_grad_enabled() == outside
