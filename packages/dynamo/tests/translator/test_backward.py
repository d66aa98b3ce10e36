"""`backward()` inside a compiled region: the gradients of eager, in one graph, or a break that says why not."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

import lamina_dynamo
from lamina_dynamo.errors import GraphBreakError


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def with_optimizer(cls, **options):
    def build():
        net = network()
        optimizer = cls(net.parameters(), **options)

        def step(x):
            optimizer.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss

        return net, step

    return build


def clipped():
    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad(set_to_none=False)
        net(x).pow(2).mean().backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        return norm

    return net, step


def accumulated():
    net = network()

    def step(x):
        for part in x.chunk(2):
            net(part).pow(2).mean().backward()
        return net[0].weight.grad

    return net, step


def two_losses():
    net = network()

    def step(x):
        y = net(x)
        first, second = y.mean(), y.pow(2).mean()
        first.backward(retain_graph=True)
        grad = net[0].weight.grad.clone()
        second.backward()
        return grad, net[0].weight.grad

    return net, step


def only_some():
    net = network()

    def step(x):
        net(x).sum().backward(inputs=list(net[0].parameters()))
        return net[2].bias.grad is None, net[0].weight.grad

    return net, step


def given_gradient():
    net = network()

    def step(x):
        y = net(x)
        torch.autograd.backward([y], [torch.ones_like(y) * 2])
        return net[2].bias.grad

    return net, step


def leaf_made_inside():
    net = network()

    def step(x):
        x = x.detach().requires_grad_()
        net(x).sum().backward()
        return x.grad, x

    return net, step


def retained():
    net = network()

    def step(x):
        hidden = net[0](x)
        hidden.retain_grad()
        loss = net[2](hidden.relu()).pow(2).sum()
        loss.backward(retain_graph=True)
        first = hidden.grad
        loss.backward()
        return first, hidden.grad, first is hidden.grad

    return net, step


def cleared_between():
    net = network()

    def step(x):
        net(x).sum().backward()
        first = net[0].weight.grad
        net[0].weight.grad = None
        net(x).pow(2).sum().backward()
        return first, net[0].weight.grad, first is net[0].weight.grad

    return net, step


def stored():
    net = network()
    net[0].weight.grad = torch.ones(8, 4)
    kept = net[0].weight.grad

    def step(x):
        net(x).sum().backward()
        return net[0].weight.grad is kept, kept

    return net, step


def steps_by_hand():
    net = network()

    def step(x):
        for _ in range(3):
            loss = net(x).pow(2).sum()
            loss.backward()
            with torch.no_grad():
                for p in net.parameters():
                    p -= 0.01 * p.grad
                    p.grad = None
        return loss

    return net, step


def equal_layers():
    torch.manual_seed(1)
    net = nn.Sequential(*[nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(4)])

    def step(x):
        net(x[:, None].repeat(1, 3, 2)).pow(2).mean().backward()
        return net[0].norm1.weight.grad

    return net, step


def penalty():
    net = network()

    def step(x):
        x = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        (grad.norm() - 1).pow(2).backward()
        return net[0].weight.grad, x.grad

    return net, step


def differentiable():
    net = network()

    def step(x):
        net(x).pow(2).sum().backward(create_graph=True)
        grad = net[0].weight.grad.detach()
        net.zero_grad()
        return grad

    return net, step


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return None


def own_function():
    net = network()

    def step(x):
        Twice.apply(net(x)).sum().backward()
        return net[0].weight.grad is None

    return net, step


class Clipped(torch.autograd.Function):
    """Writes to a tensor of its own in its backward."""

    @staticmethod
    def forward(ctx, x, low):
        ctx.save_for_backward(x)
        ctx.low = low
        return x.clamp(min=low).log1p().add(0)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        result = grad.clone()
        result[x < ctx.low] = 0
        result[0] += 1
        return result, None


def own_steps():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        loss = Clipped.apply(net(x), 0.1).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss

    return net, step


def own_function_beside_others():
    net = network()

    def step(x):
        hidden = net[0](x)
        (Twice.apply(net(x)).sum() + hidden.pow(2).sum()).backward()
        return net[2].weight.grad is None, net[0].weight.grad

    return net, step


def differentiated_twice():
    net = network()

    def step(x):
        net.zero_grad()
        net(x).pow(2).sum().backward(create_graph=True)
        first = net[0].weight.grad
        norm = sum(p.grad.pow(2).sum() for p in net.parameters())
        net.zero_grad()
        norm.backward()
        return first.requires_grad, first.detach(), net[0].weight.grad

    return net, step


def differentiated_and_added():
    net = network()

    def step(x):
        net(x).pow(2).sum().backward(create_graph=True)
        first = net[0].weight.grad
        net(x + 1).pow(2).sum().backward(create_graph=True)
        grad = net[0].weight.grad
        net.zero_grad()
        grad.pow(2).sum().backward()
        return grad is first, grad.detach(), net[2].weight.grad

    return net, step


def checkpointed_batch_norm():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    def step(x):
        net.zero_grad()
        checkpoint(net, x, use_reentrant=False).pow(2).sum().backward()
        return net[1].running_mean.clone(), net[1].num_batches_tracked * 1

    return net, step


def checkpointed():
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        hidden = checkpoint(lambda a: net[1](net[0](a)), x, use_reentrant=False)
        loss = net[2](hidden).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return net, step


def checkpointed_by_the_old_way():
    net = network()

    def step(x):
        checkpoint(lambda a: net[2](net[1](a)), net[0](x), use_reentrant=True).pow(2).sum().backward()
        return net[0].weight.grad

    return net, step


def one_of_two_results():
    net = network()

    def step(x):
        hidden, _ = checkpoint(lambda a: (net[0](a), Twice.apply(net[2](net[0](a)))), x, use_reentrant=False)
        hidden.sum().backward()
        return net[2].weight.grad is None, net[0].weight.grad

    return net, step


def hooks_that_compute():
    net = network()
    for p in net.parameters():
        p.register_hook(lambda g: g.clamp(-0.1, 0.1))

    def step(x):
        net.zero_grad()
        net(x).pow(2).sum().backward()
        return net[0].weight.grad

    return net, step


WHOLE = {
    "sgd": with_optimizer(torch.optim.SGD, lr=0.1, momentum=0.9),
    "adam": with_optimizer(torch.optim.Adam, lr=0.01),
    "clipped": clipped,
    "accumulated": accumulated,
    "two losses": two_losses,
    "only some": only_some,
    "given gradient": given_gradient,
    "leaf made inside": leaf_made_inside,
    "retained": retained,
    "cleared between": cleared_between,
    "stored": stored,
    "steps by hand": steps_by_hand,
    "equal layers": equal_layers,
    "penalty": penalty,
    "create_graph": differentiable,
    "differentiated twice": differentiated_twice,
    "own function without a gradient": own_function,
    "own function in a training step": own_steps,
    "own function beside others": own_function_beside_others,
    "differentiated and added": differentiated_and_added,
    "checkpointed batch norm": checkpointed_batch_norm,
    "checkpointed": checkpointed,
    "checkpointed by the old way": checkpointed_by_the_old_way,
    "one of two results of a checkpoint": one_of_two_results,
    "hooks that compute": hooks_that_compute,
}


def outcomes(build, wrap):
    net, step = build()
    step = wrap(step)
    seen = []
    for i in range(3):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(i))
        result = step(x)
        seen.append([r.detach().clone() if isinstance(r, torch.Tensor) else r for r in _flat(result)])
        seen.append([p.detach().clone() for p in net.parameters()])
        seen.append([None if p.grad is None else p.grad.clone() for p in net.parameters()])
    return seen


def _flat(result):
    return result if isinstance(result, tuple) else (result,)


def assert_equal(got, want):
    for ours, theirs in zip(got, want, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            if isinstance(b, torch.Tensor):
                assert a.stride() == b.stride()
                torch.testing.assert_close(a, b)
            else:
                assert a == b


@pytest.mark.parametrize("name", WHOLE)
def test_one_graph(name):
    want = outcomes(WHOLE[name], lambda f: f)
    got = outcomes(WHOLE[name], lamina_dynamo.optimize("eager", fullgraph=True))
    assert_equal(got, want)


def watched():
    net = network()
    log = []
    net[0].weight.register_hook(lambda g: log.append("hook"))

    def step(x):
        log.append("before")
        net(x).sum().backward()
        log.append("after")
        return tuple(log)

    return net, step


def stepping_hook():
    net = network()

    def update(p):
        p.data.add_(p.grad, alpha=-0.1)
        p.grad = None

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(update)

    def step(x):
        net(x).sum().backward()
        return net[0].weight.grad is None

    return net, step


def caught():
    net = network()

    def step(x):
        loss = net(x).pow(2).sum()
        loss.backward()
        try:
            loss.backward()
        except RuntimeError:
            return "caught", net[0].weight.grad

    return net, step


def failing_later():
    net = network()

    def step(x):
        net(x).sum().backward()
        try:
            return x[torch.tensor([99])]
        except IndexError:
            return "caught", net[0].weight.grad

    return net, step


def spread_parameter():
    net = network()
    net.extra = nn.Parameter(torch.ones(1, 4).expand(3, 4))

    def step(x):
        (x[:3] * net.extra).sum().backward()
        return net.extra.grad

    return net, step


def sparse():
    net = network()
    table = nn.Embedding(10, 4, sparse=True)

    def step(x):
        table(torch.tensor([1, 2])).sum().backward()
        return table.weight.grad.is_sparse

    return net, step


class Counting(torch.autograd.Function):
    calls = []

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        Counting.calls.append(1)
        return grad * 2


def own_function_with_effects():
    net = network()
    Counting.calls.clear()

    def step(x):
        Counting.apply(net(x)).sum().backward()
        return len(Counting.calls)

    return net, step


def hook_to_come():
    net = network()
    seen = []

    def step(x):
        hidden = net[0](x)
        hidden.register_hook(seen.append)
        hidden.pow(2).sum().backward()
        return seen[-1], len(seen)

    return net, step


def differentiated_through_a_checkpoint():
    net = network()

    def step(x):
        net.zero_grad()
        checkpoint(net[0], x, use_reentrant=False).pow(2).sum().backward(create_graph=True)
        return net[0].weight.grad.requires_grad, net[0].weight.grad.detach()

    return net, step


LEFT = {
    "create_graph through a checkpoint": differentiated_through_a_checkpoint,
    "has hooks": watched,
    "a hook with side effects was registered": hook_to_come,
    "Counting may have side effects": own_function_with_effects,
    "hooks": stepping_hook,
    "inside a try block": caught,
    "in a try block behind": failing_later,
    "not dense": spread_parameter,
    "sparse": sparse,
}


@pytest.mark.parametrize("reason", LEFT)
def test_what_is_left_to_eager(reason):
    want = outcomes(LEFT[reason], lambda f: f)
    assert_equal(outcomes(LEFT[reason], lamina_dynamo.optimize("eager")), want)
    with pytest.raises(GraphBreakError, match=reason):
        outcomes(LEFT[reason], lamina_dynamo.optimize("eager", fullgraph=True))


def test_a_hook_may_not_see_what_the_region_has_yet_to_change():
    """The hook would run with the old scale."""
    state = {"scale": 1.0}

    def hook(g):
        return g * state["scale"]

    def build():
        net = network()
        net[0].weight.register_hook(hook)
        state["scale"] = 1.0

        def step(x):
            state["scale"] *= 2
            net.zero_grad()
            net(x).pow(2).sum().backward()
            return net[0].weight.grad

        return net, step

    want = outcomes(build, lambda f: f)
    assert_equal(outcomes(build, lamina_dynamo.optimize("eager")), want)


def test_a_hook_added_later():
    net = network()
    seen = []

    @lamina_dynamo.optimize("eager")
    def step(x):
        net(x).sum().backward()
        return len(seen)

    x = torch.ones(2, 4)
    assert step(x) == 0
    net[2].bias.register_hook(lambda g: seen.append(1))
    net[0].bias.register_post_accumulate_grad_hook(lambda p: seen.append(2))
    assert step(x) == 2


def test_a_tensor_that_is_called_self():
    """torch.fx takes a first input of that name for the module."""

    @lamina_dynamo.optimize("eager", fullgraph=True)
    def double(self):
        return self * 2

    assert torch.equal(double(torch.ones(2)), torch.full((2,), 2.0))


def test_optimizers_beside_another_compiler():
    """It wraps methods of torch's optimizers to keep itself out."""

    class Guarded(torch.optim.SGD):
        pass

    original = torch.optim.SGD._init_group

    namespace = {"__name__": "torch._dynamo.eval_frame", "original": original}
    exec("def kept_out(*args, **kwargs): return original(*args, **kwargs)", namespace)
    namespace["kept_out"]._torchdynamo_orig_callable = original
    Guarded._init_group = namespace["kept_out"]
    weight = nn.Parameter(torch.ones(3))
    optimizer = Guarded([weight], lr=0.5)

    @lamina_dynamo.optimize("eager", fullgraph=True)
    def step():
        weight.sum().backward()
        optimizer.step()
        return weight

    assert torch.equal(step().detach(), torch.full((3,), 0.5))
