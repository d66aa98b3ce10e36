"""Programs that use more of torch than plain operators: results, gradients and random numbers are those of eager.

``ONE_GRAPH`` programs must be captured whole; the others may break, with the same results.
"""

from __future__ import annotations

import collections
import copy

import pytest
import torch
import torch.nn as nn
from program_tables import ProgramTable, leaf
from torch.autograd import forward_ad
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import lamina_dynamo
from lamina_dynamo.errors import GraphBreakError

TABLE = ProgramTable()
ONE_GRAPH, MAY_BREAK = TABLE.whole, TABLE.others
one_graph, may_break = TABLE.one_graph, TABLE.may_break


# Each function returns (program, arguments). Losses are made of all differentiable results.


@one_graph
def lstm():
    return nn.LSTM(3, 4, 2, batch_first=True), lambda: (torch.randn(2, 5, 3),)


@one_graph
def gru_cell():
    return nn.GRUCell(3, 4), lambda: (torch.randn(2, 3),)


@one_graph
def transformer():
    return nn.Transformer(8, 2, 1, 1, 16, dropout=0.0), lambda: (torch.randn(2, 5, 8), torch.randn(2, 5, 8))


@one_graph
def attention_in_eval_mode():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()

    def program(x):
        with torch.no_grad():
            return layer(x)

    return program, lambda: (torch.randn(2, 5, 8),)


@one_graph
def vmap_with_dims():
    return lambda x, y: vmap(lambda a, b: (a @ b, b), in_dims=(0, None), out_dims=(0, None))(x, y), lambda: (
        leaf(4, 3),
        leaf(3),
    )


@one_graph
def vmap_of_a_gradient_of_an_outer_input():
    def adapted(params, x):
        return (params["w"] - grad(lambda p: (p["w"] * x).tanh().sum())(params)["w"]).sum()

    return lambda params, x: vmap(lambda row: adapted(params, row))(x), lambda: ({"w": leaf(3)}, torch.randn(4, 3))


@may_break
def quantized_inside():
    def program(x):
        q = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
        return q.dequantize() * 2, q.int_repr(), torch.fake_quantize_per_tensor_affine(x, 0.1, 2, -128, 127)

    return program, lambda: (torch.randn(5),)


@one_graph
def vmap_in_chunks():
    return lambda x: vmap(lambda a: a * 2, in_dims=1, out_dims=1, chunk_size=2)(x), lambda: (torch.randn(4, 3),)


@one_graph
def vmap_over_a_dict():
    return lambda x: vmap(lambda d: {"s": d["a"] + d["b"]}, in_dims=({"a": 0, "b": None},))({"a": x, "b": x[0]}), (
        lambda: (torch.randn(4, 3),)
    )


@one_graph
def grad_with_closure():
    w = nn.Parameter(torch.ones(3))
    return lambda x: grad(lambda a: (a * w).sin().sum())(x), lambda: (leaf(4, 3),)


@one_graph
def grad_of_several_with_aux():
    def loss(a, b, scale):
        out = (a * b).sum() * scale
        return out, {"out": out.detach()}

    return lambda x: grad_and_value(loss, argnums=(0, 1), has_aux=True)(x, x + 1, 2.0), lambda: (torch.randn(3),)


@one_graph
def pullback():
    def program(x):
        out, pull = vjp(lambda a: (a.sin(), a * 2), x)
        return out, pull((torch.ones_like(x), x))

    return program, lambda: (leaf(3),)


@one_graph
def forward_derivative():
    return lambda x: jvp(torch.sin, (x,), (torch.ones_like(x),)), lambda: (torch.randn(3),)


@one_graph
def jacobians():
    return lambda x: (jacrev(torch.sin)(x), jacfwd(torch.cos)(x), hessian(lambda a: (a**3).sum())(x)), lambda: (
        torch.randn(3),
    )


@one_graph
def gradients_per_sample():
    net = nn.Linear(3, 1)
    params = dict(net.named_parameters())

    def loss(p, x):
        return functional_call(net, p, (x,)).sum()

    return lambda x: vmap(grad(loss), in_dims=(None, 0))(params, x), lambda: (torch.randn(4, 3),)


@one_graph
def call_with_other_parameters():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    return lambda x, w: functional_call(net, {"0.weight": w}, (x,)), lambda: (torch.randn(2, 3), leaf(3, 3))


class Scaled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        return 3 * ctx.saved_tensors[0] * g

    @staticmethod
    def jvp(ctx, t):
        return 5 * ctx.saved_tensors[0] * t


@one_graph
def own_function_under_transforms():
    def program(x):
        return (
            vmap(Scaled.apply)(x),
            jvp(Scaled.apply, (x,), (torch.ones_like(x),)),
            grad(lambda a: Scaled.apply(a).sum())(x),
        )

    return program, lambda: (torch.randn(4, 3),)


@one_graph
def branches():
    w = torch.ones(3)
    return lambda x: torch.cond(x.sum() > 0, lambda a: a * w, lambda a: a - w, (x,)), lambda: (torch.randn(4, 3),)


@one_graph
def checkpoints():
    layer = nn.Linear(3, 3)

    def block(x, scale=1.0):
        return torch.relu(layer(x)).sin() * scale

    def program(x):
        a = checkpoint(block, x * 2, use_reentrant=False)
        b = checkpoint(block, x * 3, 2.0, use_reentrant=True)
        return a.sum() + b.sum()

    return program, lambda: (leaf(2, 3),)


@one_graph
def sequential_checkpoints():
    net = nn.Sequential(*[nn.Linear(3, 3) for _ in range(4)])
    return lambda x: checkpoint_sequential(net, 2, x, use_reentrant=False), lambda: (leaf(2, 3),)


@one_graph
def values_as_numbers():
    def program(x, n):
        first, second = n.tolist()
        return x * first + second, x * x.argmax().item(), torch.full((2,), int(n[0])), x.sum().item() + 1

    return program, lambda: (torch.arange(8.0), torch.tensor([3, 4]))


@one_graph
def sizes_from_values():
    def program(x):
        kept = x[x > 0]
        return kept * 2, kept.sum(), torch.nonzero(x > 0), torch.where(x > 0)[0] + 1, x.masked_select(x < 0)

    return program, lambda: (torch.randn(8),)


@one_graph
def nothing_selected():
    return lambda x: (x[x > 9] * 2, x.masked_select(x > 9).sum()), lambda: (torch.randn(8),)


@one_graph
def unique_and_counts():
    return lambda x: (torch.unique(x) * 2, torch.bincount(x), torch.ones(3).repeat_interleave(x[:3])), lambda: (
        torch.tensor([1, 2, 2, 3]),
    )


@one_graph
def checked_size():
    def program(x, n):
        k = n.item()
        torch._check_is_size(k)
        torch._check(k <= 8)
        return x.narrow(0, 0, k) * 2, torch.zeros(k)

    return program, lambda: (torch.ones(8), torch.tensor(3))


@one_graph
def own_operator():
    if not hasattr(torch.ops.lamina_features, "double"):
        library = torch.library.Library("lamina_features", "FRAGMENT")
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: x * 2, "CompositeExplicitAutograd")
        KEPT.append(library)
    return lambda x: torch.ops.lamina_features.double(x) + 1, lambda: (torch.randn(3),)


KEPT: list = []


@may_break
def branch_on_a_value():
    return lambda x: x * 2 if x.sum() > 0 else x - 1, lambda: (leaf(8),)


@may_break
def slices_by_a_value():
    return lambda x, n: (x[:n] * 2, x[: n.item()], x.split([int(n), 8 - int(n)])), lambda: (leaf(8), torch.tensor(3))


@may_break
def nested_grad_blocks():
    net = nn.Linear(3, 3)

    def program(x):
        net.weight.grad = torch.ones(3, 3)
        total = nn.utils.clip_grad_norm_([net.weight], 1.0)
        return total, net.weight.grad, x * 2

    return program, lambda: (leaf(3),)


@may_break
def state_dict_inside():
    net = nn.Linear(3, 3)
    state = net.state_dict()

    def program(x):
        net.load_state_dict(state)
        return net(x)

    return program, lambda: (torch.randn(2, 3),)


@may_break
def nested_tensor_inside():
    def program(x):
        return torch.nested.nested_tensor([x, x[:2]]).to_padded_tensor(0.0).sum() * 2

    return program, lambda: (torch.randn(3, 3),)


@may_break
def tensors_leak_from_a_body():
    def program(x):
        kept = []
        out = checkpoint(lambda a: (kept.append(a * 2), a.sin())[1], x, use_reentrant=False)
        return out + kept[0]

    return program, lambda: (leaf(3),)


@may_break
def hooks_and_kept_gradients():
    def program(x):
        y = x * 2
        y.register_hook(lambda g: g * 3)
        y.retain_grad()
        return (y * y).sum()

    return program, lambda: (leaf(3),)


@may_break
def inference_blocks():
    def program(x):
        with torch.inference_mode():
            y = x * 2
            z = y.sum()
        return y, x * 3, z.is_inference(), x.is_inference()

    return program, lambda: (leaf(3),)


@may_break
def backward_inside():
    def program(x):
        (x * x).sum().backward()
        return x.grad * 2

    return program, lambda: (leaf(3),)


def tensors_of(value):
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def plain(value):
    return [x if isinstance(x, torch.Tensor) else x for x in torch.utils._pytree.tree_leaves(value)]


def observe(make, wrap):
    torch.manual_seed(0)
    program, make_args = make()
    call = wrap(program)
    seen = []
    for _ in range(2):
        args = make_args()
        result = call(*args)
        loss = sum(t.sum() for t in tensors_of(result) if t.requires_grad)
        if isinstance(loss, torch.Tensor):
            loss.backward()
        leaves = [a.grad for a in args if isinstance(a, torch.Tensor)]
        if isinstance(program, nn.Module):
            leaves += [p.grad for p in program.parameters()]
        seen.append((result, leaves, torch.is_grad_enabled(), torch.rand(1)))
    return seen


def check_equal(want, got):
    a, b = plain(want), plain(got)
    assert len(a) == len(b)
    for x, y in zip(a, b):
        if isinstance(x, torch.Tensor):
            assert (x.shape, x.dtype, x.requires_grad, type(x)) == (y.shape, y.dtype, y.requires_grad, type(y))
            torch.testing.assert_close(y, x)
        else:
            assert type(x) is type(y) and (x == y or isinstance(x, float))


scan = lamina_dynamo._torch.scan
map_over = lamina_dynamo._torch.map_operator


@one_graph
def scanned_sum():
    def step(carry, x):
        return carry + x, {"product": carry * x, "sine": x.sin()}

    return lambda x: scan(step, x[0].clone(), x), lambda: (leaf(4, 3),)


@one_graph
def scanned_cell_in_reverse():
    w = torch.randn(3, 3, requires_grad=True)

    def cell(state, x):
        h = torch.tanh(state["h"] @ w + x["u"])
        return {"h": h}, h.clone()

    return lambda x: scan(cell, {"h": x[0].clone()}, {"u": x}, reverse=True), lambda: (leaf(4, 3),)


@one_graph
def scanned_along_another_dimension():
    return lambda x: scan(lambda c, a: (c + a, c * a), x[:, 0].clone(), x, dim=1), lambda: (leaf(2, 70),)


@one_graph
def mapped():
    return lambda x, y: map_over(lambda a, b: (a["k"] * b, a["k"].sum()), {"k": x}, y), lambda: (leaf(4, 3), leaf(3))


@one_graph
def vector_times_matrix():
    w = torch.randn(3, 4, requires_grad=True)
    return lambda x: ((x @ w).sin(), torch.randn(2, 4, 3) @ x, x @ x), lambda: (leaf(3),)


@one_graph
def linear_part():
    w = torch.arange(3.0)

    def program(x, t):
        out, push = torch.func.linearize(lambda a: {"s": (a * w).sin(), "p": a * a}, x)
        return out, push(t), push(t * 2)

    return program, lambda: (torch.randn(3), torch.randn(3))


@one_graph
def copies_of_modules():
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    tied = nn.Module()
    tied.a = nn.Linear(3, 3, bias=False)
    tied.b = tied.a

    def program(x):
        other, pair = copy.deepcopy(net), copy.deepcopy(tied)
        with torch.no_grad():
            other[0].weight.mul_(2)
        return net(x), other(x), pair.a is pair.b, pair.a.weight is tied.a.weight, type(other[0].weight) is nn.Parameter

    return program, lambda: (leaf(4, 3),)


@one_graph
def states_of_modules():
    net, other = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

    def program(x):
        y = net(x)
        state = net.state_dict()
        keys = other.load_state_dict({k: v * 2 for k, v in state.items()})
        return y, other(x), list(state), state._metadata[""]["version"], str(keys)

    return program, lambda: (leaf(4, 3),)


@one_graph
def averaged_model():
    net = nn.Linear(3, 3)
    mean = torch.optim.swa_utils.AveragedModel(net)
    decay = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    moving = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=decay, use_buffers=True)

    def program(x):
        with torch.no_grad():
            net.weight.add_(1)
        mean.update_parameters(net)
        moving.update_parameters(net)
        return mean(x), moving(x), mean.n_averaged * 1

    return program, lambda: (torch.randn(2, 3),)


def test_a_lazy_module_is_captured_once_it_has_parameters():
    def make():
        torch.manual_seed(0)
        net = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyBatchNorm1d())
        return net, (lambda x: net(x) * 2)

    x = torch.randn(3, 2)
    net, program = make()
    want = [program(x), program(x + 1)]
    net, program = make()
    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(program)
    lamina_dynamo.reset()
    got = [compiled(x)]
    assert lamina_dynamo.counters()["graphs"] == 0
    got.append(compiled(x + 1))
    compiled(x + 2)
    assert lamina_dynamo.counters()["graphs"] == 1
    check_equal(want, got)


def test_stored_state_is_the_modules_own_memory():
    net = nn.Linear(3, 3)

    @lamina_dynamo.optimize("eager", fullgraph=True)
    def state(x):
        return net(x), net.state_dict()

    _, found = state(torch.ones(1, 3))
    assert type(found) is collections.OrderedDict and found._metadata == net.state_dict()._metadata
    assert found["weight"].data_ptr() == net.weight.data_ptr() and not found["weight"].requires_grad


def test_what_linearize_was_given_may_not_change():
    def program(x, t):
        _, push = torch.func.linearize(torch.sin, x)
        x.add_(1)
        return push(t)

    with pytest.raises(GraphBreakError, match="written to since"):
        lamina_dynamo.optimize("eager", fullgraph=True)(program)(torch.ones(2), torch.ones(2))
    got = lamina_dynamo.optimize("eager")(program)(torch.ones(2), torch.ones(2))
    torch.testing.assert_close(got, program(torch.ones(2), torch.ones(2)))


def dual_tensors():
    def program(x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual((forward_ad.make_dual(x, x * 2)).sin()).tangent

    return program


def module_hook_inside():
    net, seen = nn.Linear(3, 3), []

    def program(x):
        handle = net.register_forward_hook(lambda m, args, out: seen.append(out))
        net(x)
        handle.remove()
        return seen.pop() * 2

    return program


@pytest.mark.parametrize("kind, make", [("forward_ad", dual_tensors), ("module_hook", module_hook_inside)])
def test_named_breaks(kind, make):
    program, x = make(), torch.randn(2, 3)
    torch.testing.assert_close(lamina_dynamo.optimize("eager")(program)(x), program(x))
    with pytest.raises(GraphBreakError) as caught:
        lamina_dynamo.optimize("eager", fullgraph=True)(program)(x)
    assert caught.value.kind == kind


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_one_graph(name):
    want = observe(ONE_GRAPH[name], lambda f: f)
    lamina_dynamo.reset()
    check_equal(want, observe(ONE_GRAPH[name], lambda f: lamina_dynamo.optimize("eager", fullgraph=True)(f)))


@pytest.mark.parametrize("name", [*MAY_BREAK, *ONE_GRAPH])
def test_same_as_eager(name):
    make = {**MAY_BREAK, **ONE_GRAPH}[name]
    want = observe(make, lambda f: f)
    lamina_dynamo.reset()
    check_equal(want, observe(make, lambda f: lamina_dynamo.optimize("eager")(f)))


def test_attributes_of_an_ordered_dict():
    table = collections.OrderedDict(a=1)
    table.note = 3
    f = lamina_dynamo.optimize("eager", fullgraph=True)(lambda x: x * getattr(table, "note", 1))
    assert f(torch.ones(2)).tolist() == [3.0, 3.0]
    table.note = 4
    assert f(torch.ones(2)).tolist() == [4.0, 4.0]


def test_a_body_is_a_graph_of_its_own():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    w = torch.ones(3)
    f = lamina_dynamo.optimize(backend, fullgraph=True)(lambda x: grad(lambda a: (a * w).sum())(x))
    assert f(torch.ones(3)).tolist() == [1.0, 1.0, 1.0]
    (gm,) = graphs
    assert [n.target for n in gm.graph.nodes if n.op == "get_attr"] == ["body_0"]
    assert len([n for n in gm.graph.nodes if n.op == "placeholder"]) == 2


def test_a_view_of_a_list_whose_base_is_written_to_is_eagers_error():
    """Eager refuses a view of a view from a list once its base was written to; no internal error of capture."""

    def fn(x):
        part = x.unbind(0)[-1]
        x.unsqueeze_(0)
        flat = part.view(-1)
        x.relu_()
        return x, flat

    for call in (fn, lamina_dynamo.optimize("eager")(fn)):
        with pytest.raises(RuntimeError, match="Output 2 of Unbind(Backward0)? is a view and its base"):
            call(torch.ones(3, 3, requires_grad=True) * 1)
    assert lamina_dynamo.counters()["fallbacks"] == 0


def test_out_is_written_where_fakes_see_no_write():
    def fn(x):
        out = torch.zeros((), dtype=torch.int64)
        return torch.linalg.matrix_rank(x, out=out), out

    assert [int(t) for t in lamina_dynamo.optimize("eager")(fn)(torch.eye(5))] == [5, 5]


def test_weights_of_recurrent_modules_are_packed_while_translating(monkeypatch):
    """As on a card, where the function reads addresses."""
    from lamina_dynamo.variables import recurrent

    asked = []
    monkeypatch.setattr(recurrent, "is_packed_by_cudnn", lambda weight: not asked.append(weight))
    lstm = torch.nn.LSTM(3, 4)

    @lamina_dynamo.optimize("eager", fullgraph=True)
    def run(x):
        lstm.flatten_parameters()
        return lstm(x)[0]

    x = torch.ones(2, 1, 3)
    expected = lstm(x)[0]
    for _ in range(2):
        torch.testing.assert_close(run(x), expected)
    assert len(asked) == 1 and asked[0] is lstm.weight_ih_l0
