import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F

import lamina_aot_autograd as aot
from lamina_aot_autograd.partition.flow import INFINITE, Network


def leaf(*shape, grad=True, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


def block(x, w1, w2, g):
    y = F.gelu(F.linear(x, w1))
    y = F.dropout(torch.sigmoid(y) * y.tanh(), 0.1)
    y = F.layer_norm(F.linear(y, w2) + x, (16,), g)
    return (y, y.sum(0).sum())


def inputs():
    return [leaf(8, 16), leaf(32, 16, seed=1), leaf(16, 32, seed=2), leaf(16, seed=3)]


@pytest.mark.parametrize("policy", ["default", "min_cut", "save_everything"])
def test_policies_agree_with_eager(h, policy):
    c = h.compare(block, inputs, partitioner=policy)
    assert c.partition.report.policy == policy
    assert c.partition.report.saved_bytes <= c.partition.report.eager_bytes or policy == "save_everything"
    for gm in c.partition:
        aot.check_graph(gm)


def test_names_of_builtins_do_not_clash(h):
    def fn(a, b):
        x, y, z = (a * b).sum(1), (a * a).sum(1), (b * b).sum(1)
        return ((x / (y * z + 1).sqrt()).exp(),)

    h.compare(fn, lambda: [leaf(5, 5), leaf(5, 5, seed=1)])


def test_min_cut_recomputes_pointwise_chains(h):
    def fn(x):
        return ((x.sin().exp().tanh() * 2).cos(),)

    c = h.compile_fn(fn, [leaf(64)], partitioner="min_cut")
    report = c.partition.report
    assert report.saved_bytes == 0 and report.eager_bytes >= 3 * 64 * 4
    assert {"sin", "exp", "tanh"} <= set(report.recomputed)
    assert "recompute" in str(report) and "save" in str(report)


def test_random_results_are_saved_not_drawn_again(h):
    c = h.compile_fn(lambda x: (F.dropout(x.exp(), 0.5).exp(),), [leaf(64)], partitioner="min_cut")
    for node in c.partition.backward.graph.nodes:
        assert "bernoulli" not in str(node.target) or node.op == "placeholder"


def test_memory_budget(h):
    full = h.compile_fn(block, inputs(), partitioner="min_cut").partition.report
    small = h.compare(block, inputs, partitioner="min_cut", memory_budget=0.3).partition.report
    assert small.saved_bytes <= 0.3 * small.eager_bytes < full.saved_bytes or small.notes
    tiny = h.compare(block, inputs, partitioner="min_cut", memory_budget=2.0).partition.report
    assert any("cannot be met" in note for note in tiny.notes)


def test_own_policy_and_standalone_use(h):
    gm = h.trace(block)
    joint = aot.trace_joint(gm, inputs())
    forward, backward = aot.partition(joint, "default")
    assert "torch.ops.aten" in aot.code_of(forward, "forward")
    seen = []

    def mine(j):
        seen.append(j)
        return aot.partition(j, "save_everything")

    h.compare(block, inputs, partitioner=mine)
    assert seen
    with pytest.raises(aot.AotError, match="no partition policy"):
        aot.partition(joint, "nonsense")


def test_printed_joint_runs(h):
    joint = aot.trace_joint(h.trace(lambda x, w: (F.linear(x, w).relu() + 1,)), [leaf(4, 3), leaf(2, 3, seed=1)])
    scope = {}
    exec(str(joint), scope)
    x, w = leaf(4, 3).detach(), leaf(2, 3, seed=1).detach()
    tangent = torch.ones(4, 2)
    for a, b in zip(scope["joint"](x, w, tangent), joint(x, w, tangent), strict=True):
        assert torch.equal(a, b)


def test_wishes_are_honoured(h):
    gm = h.trace(lambda x: (x.sin().exp().cos(),))
    joint = aot.trace_joint(gm, [leaf(8)])
    for node in joint.graph.nodes:
        if node.name == "exp":
            node.meta["recompute"] = "must_save"
    report = aot.partition(joint, "min_cut").report
    assert "exp" in {s.name for s in report.saved} and "exp" not in report.recomputed


def test_flow():
    network = Network()
    s, a, b, t = (network.add_vertex() for _ in range(4))
    for tail, head, capacity in ((s, a, 3), (s, b, 2), (a, b, 5), (a, t, 2), (b, t, 3)):
        network.add_edge(tail, head, capacity)
    value, side = network.cut(s, t)
    assert value == 5 and s in side and t not in side
    assert INFINITE > 1 << 50


def test_stack_traces_and_order_reach_the_backward(h):
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.sin, (x,))
    y.meta["stack_trace"] = 'File "user.py", line 7, in f\n    y = x.sin()'
    z = graph.call_function(torch.exp, (y,))
    graph.output((z,))
    joint = aot.trace_joint(fx.GraphModule(torch.nn.Module(), graph), [leaf(3)])
    by_name = {n.name: n for n in joint.graph.nodes}
    assert by_name["sin"].meta["stack_trace"] == by_name["cos"].meta["stack_trace"]
    assert by_name["cos"].meta["seq_nr"] == by_name["sin"].meta["seq_nr"] != by_name["exp"].meta["seq_nr"]


def test_forward_may_choose_strides_of_saved_tensors(h):
    """The backward graph is told how a saved tensor lies, and gets it that way."""
    seen = []

    def forward(gm, fakes):
        descs = gm.graph.output_node().meta["desc"]
        turned = [d.kind == "saved_tensor" and d.name != "x" for d in descs]

        def run(*args):
            out = gm(*args)
            return [o.t().contiguous().t() if t else o for o, t in zip(out, turned, strict=True)]

        run.output_strides = [(1, 4) if t else None for t in turned]
        return run

    def backward(gm, fakes):
        marks = [n.meta.get("physical_stride") for n in gm.graph.nodes if n.op == "placeholder"]

        def run(*args):
            for mark, a in zip(marks, args, strict=True):
                if mark is not None:
                    seen.append((mark, a.stride()))
            return gm(*args)

        return run

    graph = fx.Graph()
    a = graph.placeholder("a")
    e = graph.call_function(torch.exp, (a,))
    graph.output((graph.call_function(torch.sin, (graph.call_function(torch.mul, (e, 2.0)),)),))
    x = leaf(4, 6)
    compiled = aot.aot_compile(
        fx.GraphModule({}, graph), [x], forward_compiler=forward, backward_compiler=backward, partitioner="default"
    )
    (out,) = compiled(x)
    out.sum().backward()
    expected = leaf(4, 6)
    (expected.exp() * 2.0).sin().sum().backward()
    torch.testing.assert_close(x.grad, expected.grad)
    assert seen and all(mark == stride == (1, 4) for mark, stride in seen)


def test_of_equal_cuts_the_latest_is_taken(h):
    """A chain of equal sizes is saved where the backward begins to read: nothing is made again."""
    c = h.compile_fn(lambda x, w: (F.linear(F.relu(F.linear(x, w)), w),), [leaf(8, 8), leaf(8, 8, seed=1)],
                     partitioner="min_cut")  # fmt: skip
    assert c.partition.report.saved_bytes == 8 * 8 * 4
    assert not any("relu" in n.name for n in c.partition.backward.graph.nodes if n.op == "call_function")


def test_both_cuts_have_the_same_value():
    n = Network()
    s, a, b, t = (n.add_vertex() for _ in range(4))
    n.add_edge(s, a, 3)
    n.add_edge(a, b, 3)
    n.add_edge(b, t, 3)
    assert n.late_cut(s, t) == {s, a, b}
    assert n.cut(s, t)[1] == {s}
