"""Recomputation: draws of checkpointed regions made again, and what a memory budget reaches."""

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import lamina_aot_autograd as aot

SIDE = 64


def leaf(*shape, grad=True, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


def region(x, w):
    y = F.dropout((x @ w).relu(), 0.4) @ w
    return F.dropout(torch.sigmoid(y), 0.2) * torch.rand_like(y) + x


def checkpointed(count):
    """`count` checkpointed regions, one behind the other, with a dropout outside between them."""
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    y = x
    for _ in range(count):
        y = graph.call_function(checkpoint, (graph.get_attr("body"), y, w), {"use_reentrant": False})
        y = graph.call_function(F.dropout, (y, 0.5))
    graph.output((graph.call_function(torch.sin, (y,)),))
    root = torch.nn.Module()
    root.body = fx.symbolic_trace(region)
    return fx.GraphModule(root, graph)


@pytest.mark.parametrize("policy", ["default", "min_cut", "save_everything"])
@pytest.mark.parametrize("count", [1, 3])
def test_draws_of_a_region_are_made_again(h, policy, count):
    """Values and gradients are eager's, and so is the random stream, after the backward too."""
    c = h.compare(
        checkpointed(count), lambda: [leaf(SIDE, SIDE), leaf(SIDE, SIDE, seed=1)], partitioner=policy
    )
    if policy == "save_everything":
        return
    saved = c.partition.report.saved
    state = torch.get_rng_state().numel()
    assert [s.bytes for s in saved].count(state) == count  # one state a region
    drawn = SIDE * SIDE * 4
    # besides: the masks outside regions, and what lies between regions
    assert c.partition.report.saved_bytes <= count * (state + 3 * drawn)
    assert c.partition.report.saved_bytes <= c.partition.report.eager_bytes
    targets = [str(n.target) for n in c.partition.backward.graph.nodes if n.op == "call_function"]
    assert sum("bernoulli" in t for t in targets) == 2 * count
    assert sum("exchange_rng_state" in t for t in targets) == 6 * count


def test_a_backward_draws_nothing_for_others():
    gm = checkpointed(2)
    x, w = leaf(SIDE, SIDE), leaf(SIDE, SIDE, seed=1)
    y = aot.aot_compile(gm, [x, w])(x, w)[0]
    before = torch.get_rng_state()
    y.sum().backward()
    assert torch.equal(before, torch.get_rng_state())


def test_small_draws_are_saved(h):
    """A state is larger than what a small region draws."""
    c = h.compare(checkpointed(1), lambda: [leaf(4, 4), leaf(4, 4, seed=1)])
    targets = [str(n.target) for n in c.partition.backward.graph.nodes if n.op == "call_function"]
    assert not any("rng_state" in t or "bernoulli" in t for t in targets)


def layers(x, w1, b1, w2, b2):
    y = F.gelu(F.linear(x, w1, b1))
    return (F.linear(torch.relu(F.linear(y, w2, b2)), w1.t()).tanh(),)


def layer_inputs():
    return [leaf(128, 16), leaf(32, 16, seed=1), leaf(32, seed=2), leaf(32, 32, seed=3), leaf(32, seed=4)]


def test_a_budget_reaches_behind_layers_with_biases(h):
    """Recomputing a layer needs its bias, which eager does not save."""
    held = []
    for budget in (1.0, 0.5, 0.1, 0.0):
        c = h.compare(layers, layer_inputs, partitioner="min_cut", memory_budget=budget)
        report = c.partition.report
        held.append(report.saved_bytes)
        assert report.saved_bytes <= max(budget, 1e-9) * report.eager_bytes, str(report)
    assert held == sorted(held, reverse=True) and held[-1] == 0


def normed(x, w, mean, var):
    y = F.batch_norm(F.conv2d(x, w), mean, var, None, None, True, 0.1)
    return (F.conv2d(y.relu(), w).sigmoid(),)


def norm_inputs():
    return [leaf(2, 4, 6, 6), leaf(4, 4, 1, 1, seed=1), torch.zeros(4), torch.ones(4)]


def test_running_statistics_are_neither_saved_nor_moved_twice(h):
    c = h.compare(normed, norm_inputs, partitioner="min_cut")
    report = c.partition.report
    assert report.saved_bytes <= report.eager_bytes
    names = [n.name for n in c.partition.backward.graph.nodes if n.op == "placeholder"]
    assert not {"mean", "var"} & set(names)
    norm = next(n for n in c.partition.backward.graph.nodes if "batch_norm_backward" in str(n.target))
    assert norm.args[3:5] == (None, None)
    low = h.compare(normed, norm_inputs, partitioner="min_cut", memory_budget=0.0).partition.report
    assert low.saved_bytes == 0


def test_a_budget_does_not_use_values_that_are_overwritten(h):
    def fn(x, w, cache):
        y = x @ (cache + w)
        z = (y.exp() @ w).sin()
        cache.add_(1)
        return (z @ z.t(),)

    c = h.compare(
        fn, lambda: [leaf(8, 8), leaf(8, 8, seed=1), leaf(8, 8, grad=False, seed=2)], partitioner="min_cut",
        memory_budget=0.0,
    )  # fmt: skip
    assert "cache" not in [s.name for s in c.partition.report.saved]
