"""Whole training and inference programs in the forms that users write: modes, recurrent and attention layers, optimizers,
mixed precision, accumulation, freezing, tied weights, dynamic batches, several processes."""
# The programs are odd on purpose.
# ruff: noqa: B007, B008, B018, B023, E501, E731

from __future__ import annotations

import copy
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

_spec = importlib.util.spec_from_file_location("e2e_judge", pathlib.Path(__file__).with_name("judge.py"))
judge = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(judge)
book = judge.Book()


def trained(make, inputs, steps=3, *, loss=lambda out: out.pow(2).mean(), optimizer=lambda p: torch.optim.SGD(p, 0.1), wrap=lambda m: m, around=None):
    """Losses, parameters and buffers after some steps."""
    torch.manual_seed(0)
    model = make()
    call, opt, losses = wrap(model), optimizer(model.parameters()), []
    for i in range(steps):
        opt.zero_grad()
        out = call(*inputs(i)) if around is None else around(call, *inputs(i))
        value = loss(out)
        value.backward()
        opt.step()
        losses.append(value.detach())
    return losses, dict(model.state_dict())


def training(make, inputs, rtol=1e-3, atol=1e-5, compile_options=None, **options):
    def case(compile):
        a = trained(make, inputs, **options)
        b = trained(make, inputs, wrap=lambda m: compile(m, **(compile_options or {})), **options)
        found = judge.difference(judge.snapshot(a), judge.snapshot(b), "state", False, rtol, atol)
        assert not found, found
    return case


def add(name, *args, **options):
    case = training(*args, **options)
    case.__name__ = name
    book.check(case)


def batch(*shape):
    return lambda i: (torch.randn(*shape, generator=torch.Generator().manual_seed(i)),)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(12, 6, padding_idx=0)
        self.rnn = nn.GRU(6, 6, batch_first=True)
        self.out = nn.Linear(6, 12, bias=False)
        self.out.weight = self.emb.weight

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return F.cross_entropy(self.out(h).flatten(0, 1), ids.flatten(), ignore_index=0)


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.d = nn.Conv2d(8, 8, 3, groups=8, padding="same")
        self.n, self.g = nn.BatchNorm2d(8), nn.GroupNorm(4, 8)
        self.t = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.p = nn.PReLU(4)

    def forward(self, x):
        h = F.max_pool2d(F.silu(self.n(self.c(x))), 2, ceil_mode=True)
        h = self.g(self.d(h) + h)
        return F.adaptive_avg_pool2d(self.p(self.t(h)), 2).flatten(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.layer(x, src_mask=mask, is_causal=True)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.r = kind(4, 5, num_layers=2, bidirectional=kind is nn.LSTM)

    def forward(self, x):
        y, h = self.r(x)
        return y.sum(-1)


class Experts(nn.Module):
    """Routing by data: indices, masks and index_add."""

    def __init__(self):
        super().__init__()
        self.gate, self.e = nn.Linear(4, 3), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        w, i = self.gate(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for k, e in enumerate(self.e):
            row, slot = torch.where(i == k)
            out.index_add_(0, row, e(x[row]) * w[row, slot, None])
        return out


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        self.b = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
        self.scale = nn.ParameterDict({"x": nn.Parameter(torch.ones(4))})
        self.bias = nn.ParameterList([nn.Parameter(torch.zeros(4))])

    def forward(self, x):
        return self.b(self.a(x).relu()) * self.scale["x"] + self.bias[0]


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)
        self.a.requires_grad_(False)
        self.h = 0

    def forward(self, x):
        with torch.no_grad():
            f = self.a(x).tanh()
        self.h += 1
        if self.h == 2:
            self.a.requires_grad_(True)
        return self.b(f + self.a(x) * 0.1)


ids = lambda i: (torch.randint(0, 12, (3, 5 + i), generator=torch.Generator().manual_seed(i)),)
add("tied_embedding_and_gru_with_growing_length", Tied, ids, loss=lambda out: out, compile_options={"backend": "aot_eager"})
add("convolutions_channels_last", lambda: Conv().to(memory_format=torch.channels_last), lambda i: (batch(2, 3, 7, 6)(i)[0].to(memory_format=torch.channels_last),), rtol=2e-2, atol=1e-3)
add("transformer_layer_adamw", Block, batch(2, 4, 8), optimizer=lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.1, eps=1e-3))
add("lstm", lambda: Recurrent(nn.LSTM), batch(3, 2, 4))
add("gru_and_tanh_rnn", lambda: nn.Sequential(Recurrent(nn.GRU)), batch(3, 2, 4), optimizer=lambda p: torch.optim.Adam(p, 1e-2, amsgrad=True))
add("mixture_of_experts", Experts, lambda i: (batch(5 + 2 * i, 4)(i)[0],), compile_options={"backend": "aot_eager"})
add("parametrized_layers_and_containers", Normed, batch(3, 4))
add("layers_frozen_and_thawed", Frozen, batch(3, 4), steps=4)
add("double_precision_momentum", lambda: nn.Sequential(nn.Linear(4, 4), nn.Softplus(), nn.Linear(4, 1)).double(), lambda i: (batch(3, 4)(i)[0].double(),), optimizer=lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True), rtol=1e-9, atol=1e-10)
add("bfloat16_autocast", lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)), batch(4, 8), around=lambda f, x: _autocast(f, x), rtol=3e-2, atol=3e-2)
for _mode in ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
    add("mode_" + _mode.replace("-", "_"), lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), batch(3, 4), compile_options={"mode": _mode})
add("fullgraph_and_dynamic", lambda: nn.Sequential(nn.Linear(4, 8), nn.Mish(), nn.BatchNorm1d(8), nn.Linear(8, 1)), lambda i: (batch(3 + i, 4)(i)[0],), steps=4, compile_options={"fullgraph": True, "dynamic": True})


def _autocast(f, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return f(x).float()


def steps(compile, body):
    """The same loop with the whole step compiled."""
    results = []
    for wrap in (lambda f: f, compile):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
        results.append(judge.snapshot((body(net, wrap), dict(net.state_dict()))))
    found = judge.difference(*results, "state", False, 1e-3, 1e-5)
    assert not found, found


@book.check
def whole_step_with_backward_and_optimizer(compile):
    def body(net, wrap):
        opt = torch.optim.Adam(net.parameters(), 0.01)

        def step(x):
            opt.zero_grad(set_to_none=True)
            loss = net(x).pow(2).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
            return loss.detach()
        f = wrap(step)
        return [f(batch(4, 3)(i)[0]) for i in range(4)]
    steps(compile, body)


@book.check
def accumulation_scheduler_and_ema(compile):
    def body(net, wrap):
        opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.5)
        sched = torch.optim.lr_scheduler.StepLR(opt, 2, 0.1)
        ema = copy.deepcopy(net)
        f = wrap(net)

        @wrap
        @torch.no_grad()
        def update(decay):
            for a, b in zip(ema.parameters(), net.parameters()):
                a.mul_(decay).add_(b, alpha=1 - decay)
        for i in range(6):
            (f(batch(4, 3)(i)[0]).pow(2).mean() / 2).backward()
            if i % 2:
                opt.step()
                opt.zero_grad()
                sched.step()
                update(0.5 + i / 20)
        return sched.get_last_lr(), dict(ema.state_dict())
    steps(compile, body)


@book.check
def optimizers_with_compiled_step(compile):
    for make in (lambda p: torch.optim.AdamW(p, 0.01), lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.1, centered=True), lambda p: torch.optim.Adagrad(p), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=False), lambda p: torch.optim.NAdam(p), lambda p: torch.optim.Adam(p, torch.tensor(0.01), capturable=False, foreach=False)):
        def body(net, wrap):
            opt = make(net.parameters())
            step = wrap(opt.step)
            for i in range(3):
                opt.zero_grad()
                net(batch(4, 3)(i)[0]).pow(2).mean().backward()
                step()
                if i == 1:
                    for g in opt.param_groups:
                        g["lr"] = 0.005 if not isinstance(g["lr"], torch.Tensor) else g["lr"].fill_(0.005)
            return [dict(s) for s in opt.state_dict()["state"].values()]
        steps(lambda f: compile(f, backend="aot_eager"), body)


@book.check
def gradient_scaler_and_nan_skip(compile):
    def body(net, wrap):
        opt, scaler = torch.optim.SGD(net.parameters(), 0.1), torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        f, scales = wrap(net), []
        for i in range(4):
            opt.zero_grad()
            x = batch(4, 3)(i)[0]
            if i == 1:
                x[0, 0] = float("inf")
            scaler.scale(f(x).pow(2).mean()).backward()
            scaler.step(opt)
            scaler.update()
            scales.append(scaler.get_scale())
        return scales
    steps(compile, body)


@book.check
def inference_after_training_and_back(compile):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    f, x = compile(net), torch.randn(6, 3)
    f(x).sum().backward()
    net.eval()
    assert torch.equal(f(x), f(x)) and torch.allclose(f(x), net(x), atol=1e-6)
    with torch.no_grad():
        assert not f(x).requires_grad
    with torch.inference_mode():
        assert f(x).is_inference() and torch.allclose(f(x), net(x), atol=1e-6)
    net.train()
    before = net[1].num_batches_tracked.item()
    assert f(x).requires_grad and net[1].num_batches_tracked.item() == before + 1
    net.requires_grad_(False)
    assert not f(x).requires_grad
    y = f(x.clone().requires_grad_())
    assert y.requires_grad


@book.check
def generation_loop_with_cache(compile):
    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.o = nn.Linear(8, 24), nn.Linear(8, 8)

        def forward(self, x, cache, pos):
            q, k, v = self.qkv(x).chunk(3, -1)
            cache[0][:, pos] = k
            cache[1][:, pos] = v
            ks, vs = cache[0][:, : pos + 1], cache[1][:, : pos + 1]
            return self.o(F.scaled_dot_product_attention(q[:, None], ks, vs)[:, 0])
    torch.manual_seed(0)
    m = Step().eval()
    f = compile(m, backend="aot_eager")
    with torch.no_grad():
        caches = [[torch.zeros(2, 10, 8), torch.zeros(2, 10, 8)] for _ in range(2)]
        a = b = torch.randn(2, 8)
        for pos in range(10):
            a, b = m(a, caches[0], pos), f(b, caches[1], pos)
            assert torch.allclose(a, b, atol=1e-5), pos
        for p, q in zip(*caches):
            assert torch.allclose(p, q, atol=1e-5)

    def grow(x, past):
        past = x[:, None] if past is None else torch.cat([past, x[:, None]], 1)
        return past.mean(1), past
    g, p, q = compile(grow, backend="aot_eager"), None, None
    for i in range(8):
        (u, p), (v, q) = grow(torch.full((2, 3), float(i)), p), g(torch.full((2, 3), float(i)), q)
        assert torch.allclose(u, v) and torch.equal(p, q)


@book.check
def outputs_survive_later_calls(compile):
    for mode in ("default", "reduce-overhead"):
        f = compile(lambda x: (x * 2, (x + 1).relu()), mode=mode)
        kept = [f(torch.full((4,), float(i))) for i in range(5)]
        assert [float(a[0]) for a, _ in kept] == [0, 2, 4, 6, 8] and [float(b[0]) for _, b in kept] == [1, 2, 3, 4, 5]
        a, _ = f(torch.ones(4))
        a.mul_(100)
        assert float(f(torch.ones(4))[0][0]) == 2


@book.check
def constants_and_buffers_are_not_baked_in(compile):
    table = torch.arange(4.0)
    scale = torch.tensor(2.0)
    f = compile(lambda x: x * table + scale.item() * scale)
    assert f(torch.ones(4)).tolist() == [4, 5, 6, 7]
    table.add_(1), scale.fill_(3.0)
    assert f(torch.ones(4)).tolist() == [10, 11, 12, 13]
    g = compile(lambda x: x + torch.tensor([1.0, 2.0]) + torch.arange(2))
    a = g(torch.zeros(2))
    a.mul_(9)
    assert g(torch.zeros(2)).tolist() == [1, 3]
    h = compile(lambda: torch.zeros(3))
    h().add_(5)
    assert h().tolist() == [0, 0, 0]


WORKER = '''
import os, sys, torch, torch.nn as nn, torch.distributed as dist, lamina
from torch.nn.parallel import DistributedDataParallel as DDP
import torch.distributed._functional_collectives as fc
rank, path = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=2)
def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
x = torch.randn(4 + rank, 3, generator=torch.Generator().manual_seed(rank))
def grads(build):
    m = make(); f = build(m)
    for i in range(3):
        f(x * (i + 1)).pow(2).mean().backward()
    return [p.grad.clone() for p in m.parameters()]
want = grads(DDP)
for name, build in (("inside", lambda m: DDP(lamina.compile(m, backend="aot_eager"))), ("outside", lambda m: lamina.compile(DDP(m), backend="aot_eager")), ("buckets", lambda m: lamina.compile(DDP(m, bucket_cap_mb=1e-5, gradient_as_bucket_view=True), backend="aot_eager"))):
    for a, b in zip(want, grads(build)):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-5), name
def collectives(t):
    a = fc.all_reduce(t * 2, "sum", dist.group.WORLD)
    b = fc.all_gather_tensor(t, 0, dist.group.WORLD)
    c = fc.reduce_scatter_tensor(torch.cat([t, t + 1]), "sum", 0, dist.group.WORLD)
    y = t + 1
    dist.all_reduce(y, op=dist.ReduceOp.MAX)
    g = [torch.empty_like(t) for _ in range(2)]
    dist.all_gather(g, t)
    z = t.clone()
    dist.broadcast(z, 1)
    return a + 1, b * 2, c, y, torch.stack(g), z, dist.get_rank() + t, dist.get_world_size()
t = torch.arange(6.0).view(2, 3) + 10 * rank
want, got = collectives(t), lamina.compile(collectives, backend="aot_eager")(t)
for i, (a, b) in enumerate(zip(want, got)):
    assert (a == b).all() if isinstance(a, torch.Tensor) else a == b, (i, a, b)
def objects(t):
    out = [None, None]
    dist.all_gather_object(out, {"r": dist.get_rank()})
    dist.barrier()
    w = dist.all_reduce(t, async_op=True)
    w.wait()
    return t, out
want, got = objects(t.clone()), lamina.compile(objects, backend="aot_eager")(t.clone())
assert torch.equal(want[0], got[0]) and want[1] == got[1]
dist.destroy_process_group()
print("fine")
'''


def test_two_processes(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = [subprocess.Popen([sys.executable, str(script), str(r), str(tmp_path / "store")], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for r in range(2)]
    for process in running:
        out, _ = process.communicate(timeout=240)
        assert process.returncode == 0 and "fine" in out, out[-3000:]


@pytest.mark.parametrize("name", book.cases)
def test_training(name):
    book.cases[name]()
