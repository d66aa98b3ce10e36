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


def test_draws_with_several_results_are_made_again(h):
    """rrelu gives its result and the slopes it drew."""

    def body(x, w):
        return F.rrelu(x @ w, 0.1, 0.5, training=True) @ w

    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    y = graph.call_function(checkpoint, (graph.get_attr("body"), x, w), {"use_reentrant": False})
    graph.output((graph.call_function(torch.sin, (y,)),))
    root = torch.nn.Module()
    root.body = fx.symbolic_trace(body)
    c = h.compare(fx.GraphModule(root, graph), lambda: [leaf(SIDE, SIDE), leaf(SIDE, SIDE, seed=1)])
    targets = [str(n.target) for n in c.partition.backward.graph.nodes if n.op == "call_function"]
    assert sum("rrelu" in t and "backward" not in t for t in targets) == 1
    assert sum("exchange_rng_state" in t for t in targets) == 2


class Generator:
    """In the place of a CUDA device's generator."""

    def __init__(self):
        self.state = torch.arange(16, dtype=torch.uint8)

    def get(self, device):
        assert device == 1
        return self.state.clone()

    def set(self, state, device):
        assert device == 1
        self.state = state.clone()


def test_draws_on_a_cuda_device_use_its_generator(monkeypatch):
    """No device is needed to see which generator's state is kept and put back."""
    device = torch.device("cuda", 1)
    from lamina_aot_autograd.partition import replay
    from lamina_aot_autograd.trace.tensor import make_value

    joint = aot.trace_joint(checkpointed(2), [leaf(SIDE, SIDE), leaf(SIDE, SIDE, seed=1)])
    for node in joint.graph.nodes:
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor):
            node.meta["val"] = make_value(val.shape, val.stride(), val.dtype, device)
    forward, backward = aot.partition(joint, "min_cut")
    reads = [n for n in forward.graph.nodes if n.target is replay.read_cuda_state]
    swaps = [n for n in backward.graph.nodes if n.target is replay.exchange_cuda_state]
    assert [n.args for n in reads] == [(1,), (1,)] and len(swaps) == 12 and {n.args[1] for n in swaps} == {1}
    assert all(n.meta["val"].device.type == "cpu" and n.meta["val"].shape == (16,) for n in (*reads, *swaps))
    assert not any("lamina_aot.exchange_rng" in str(n.target) for n in backward.graph.nodes)

    generator = Generator()
    monkeypatch.setattr(torch.cuda, "get_rng_state", generator.get)
    monkeypatch.setattr(torch.cuda, "set_rng_state", generator.set)
    before = generator.state
    saved = replay.read_cuda_state(1)
    generator.state = generator.state + 1  # somebody draws
    behind = replay.exchange_cuda_state(saved, 1)
    assert torch.equal(generator.state, saved) and torch.equal(behind, before + 1)
    replay.exchange_cuda_state(behind, 1)
    assert torch.equal(generator.state, before + 1)
