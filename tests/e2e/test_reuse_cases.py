"""What changes between two calls of a compiled function — values, objects, sizes, modes, threads, processes — is
noticed, and what does not matter does not compile again."""
# The programs are odd on purpose, and tables of operators read best in long lines.
# ruff: noqa: B007, B008, B012, B018, B023, B904, E501, E731, F821, F841

from __future__ import annotations

import collections
import gc
import importlib.util
import io
import logging
import pathlib
import pickle
import threading
import traceback
import types
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import lamina

_spec = importlib.util.spec_from_file_location("e2e_judge", pathlib.Path(__file__).with_name("judge.py"))
judge = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(judge)
book = judge.Book(backend="eager")


class Graphs:
    """A backend that counts its graphs."""

    def __init__(self):
        self.count = 0

    def __call__(self, gm, inputs, **kw):
        self.count += 1
        return gm.forward


def counted(limit, **options):
    """The program must agree with eager on each of the calls and make no more than `limit` graphs."""
    def register(build):
        def case(compile):
            fn, calls = build()
            graphs = Graphs()
            f = compile(fn, backend=graphs, **options)
            for args in calls:
                want, got = judge.snapshot(fn(*args)), judge.snapshot(f(*args))
                found = judge.difference(want, got, f"{args}", True, None, None)
                assert not found, found
            assert graphs.count <= limit, f"{graphs.count} graphs for {len(calls)} calls"

        case.__name__ = build.__name__
        book.check(case)
        return build

    return register


T2 = torch.ones(2)


# --- values that change -----------------------------------------------------------------------------------------

@book.build()
def numbers_of_equal_value_and_other_type():
    return lambda x, k: (x * k, type(k).__name__), [(T2, v) for v in (1, 1.0, True, 0, 0.0, False, -0.0, 2, 2.0,
            torch.tensor(2), 1 + 0j)]


@book.build()
def negative_zero_and_nan_floats():
    def fn(x, k):
        return x / k, torch.atan2(x * 0, x * 0 + k), k != k, k == 0
    return fn, [(T2, v) for v in (0.0, -0.0, float("nan"), float("inf"), 1e-320, 1e308, 0.0)]


@book.build()
def strings_bytes_none_and_ellipsis():
    def fn(x, k):
        return x + (len(k) if hasattr(k, "__len__") else 100), k is None, k is ..., isinstance(k, str)
    return fn, [(T2, v) for v in ("a", "bb", b"ccc", None, ..., "", "a", ())]


@book.build()
def containers_that_grow_and_reorder():
    def fn(x, d):
        y = x
        for i, (k, v) in enumerate(d.items()):
            y = y * (i + 1) + v
        return y, list(d)
    return fn, [(T2, d) for d in ({"a": 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 2}, {},
            collections.OrderedDict(b=2, a=1), {1: 1, "b": 2}, collections.defaultdict(int, a=1))]


@book.build()
def tuples_lists_and_named_tuples():
    P = collections.namedtuple("P", "a b")
    return lambda x, t: (x + t[0], type(t).__name__, len(t), t == (1, 2)), [(T2, t) for t in ((1, 2), [1, 2], P(1, 2),
            (1, 2, 3), range(1, 3), (1.0, 2), torch.Size([1, 2]))]


@book.build()
def sets_ranges_slices_dtypes_and_devices():
    def fn(x, v):
        if isinstance(v, (set, frozenset)):
            return x + len(v), 3 in v
        if isinstance(v, range):
            return x + sum(v)
        if isinstance(v, slice):
            return x[v]
        if isinstance(v, torch.dtype):
            return x.to(v)
        if isinstance(v, torch.device):
            return x.to(v).device
        return x.to(memory_format=v)
    return fn, [(torch.ones(1, 2, 3, 4), v) for v in ({1, 3}, {1, 2}, frozenset([3]), range(3), range(1, 3),
            slice(0, 1), slice(None, None, 2), torch.float16, torch.int8, torch.device("cpu"), torch.channels_last,
                    torch.contiguous_format)]


@book.build()
def functions_classes_and_partials_as_arguments():
    import functools

    class A:
        def __call__(self, x):
            return x + 5

        def m(self, x):
            return x + 6

        @staticmethod
        def s(x):
            return x + 7
    k = 3
    fs = [torch.sin, torch.cos, lambda x: x + 1, lambda x: x + 2, lambda x: x + k, A(), A().m, A.s,
            functools.partial(torch.add, other=2), functools.partial(torch.add, other=3), torch.Tensor.exp, nn.ReLU(),
                    F.relu, abs, torch.ops.aten.sin.default, nn.Linear(2, 2).double().float()]
    return lambda x, f: f(x) * 2, [(T2, f) for f in fs]


@book.build()
def modules_of_equal_class_and_other_settings():
    ms = [nn.Dropout(0.0), nn.Dropout(1.0), nn.LayerNorm(2, eps=1.0), nn.LayerNorm(2, eps=1e-5), nn.LeakyReLU(0.1),
            nn.LeakyReLU(0.5), nn.Softmax(0), nn.Softmax(-1), nn.Linear(2, 2), nn.Linear(2, 2, bias=False),
                    nn.Sequential(nn.ReLU()), nn.Sequential(nn.ReLU(), nn.Tanh()), nn.Identity(), nn.Linear(2, 4),
                            nn.ELU(2.0), nn.ELU(3.0)]
    return lambda x, m: m(x) + 1, [(torch.tensor([-1.0, 1.0]), m) for m in ms]


@book.build()
def tensors_of_other_metadata():
    x = torch.ones(2, 2)
    fn = lambda x: (x * 2, x.stride(), x.is_contiguous(), x.requires_grad, x.is_leaf, x.dtype, x.dim(),
            x.storage_offset(), x._base is None, x.numel(), x.layout, x.is_conj(), x.element_size(),
                    x.grad is None)
    g = torch.ones(2, 2, requires_grad=True)
    g.grad = torch.ones(2, 2)
    return fn, [(t,) for t in (x, x.double(), x.t(), torch.ones(3, 2).t(), x.clone().requires_grad_(), g * 1, g,
            nn.Parameter(x), x[0], x[:, :1], torch.ones(4, 4)[::2, ::2], torch.ones(5)[1:],
                    torch.ones(2, 2, dtype=torch.cfloat).conj(), x.to_sparse().to_dense(), x.expand(3, 2, 2),
                            torch.empty(0, 2), torch.tensor(1.0), x.bool(), x[None,
                                    None].to(memory_format=torch.channels_last))]


GLOBAL_LIST, GLOBAL_DICT, GLOBAL_NUMBER, GLOBAL_TENSOR = [1], {"k": 1}, 1, torch.ones(2)


class Settings:
    scale = 2
    nested = types.SimpleNamespace(deep={"x": [1, 2]})


@book.check
def globals_and_class_attributes_change(compile):
    global GLOBAL_NUMBER, GLOBAL_TENSOR

    def fn(x):
        return x * sum(GLOBAL_LIST) + GLOBAL_DICT.get("k",
                100) * Settings.scale + GLOBAL_NUMBER + GLOBAL_TENSOR.sum() + Settings.nested.deep["x"][1] + len(GLOBAL_DICT)

    f = compile(fn)

    def step(change):
        change()
        assert torch.equal(f(T2), fn(T2)), change

    def number():
        global GLOBAL_NUMBER
        GLOBAL_NUMBER = 2.5

    def tensor():
        global GLOBAL_TENSOR
        GLOBAL_TENSOR = torch.ones(3, dtype=torch.float64)

    keep = Settings.nested
    for change in (lambda: None, lambda: GLOBAL_LIST.append(5), lambda: GLOBAL_DICT.update(k=7),
            lambda: GLOBAL_DICT.pop("k"), lambda: GLOBAL_DICT.update(z=7, k=1), number, tensor,
                   lambda: GLOBAL_TENSOR.add_(1), lambda: setattr(Settings, "scale", 9),
                           lambda: Settings.nested.deep["x"].__setitem__(1, 50), lambda: setattr(Settings, "nested",
                                   types.SimpleNamespace(deep={"x": (1, 3)})),
                   lambda: GLOBAL_LIST.clear()):
        step(change)
    Settings.nested = keep


@book.check
def builtins_and_module_functions_replaced(compile):
    import builtins
    import math
    fn = lambda x: x + math.floor(2.7) + ord("\x02") + abs(-3)
    f = compile(fn)
    assert float(f(T2)[0]) == 8
    keep = math.floor
    try:
        math.floor = lambda v: 100
        assert float(f(T2)[0]) == 106
    finally:
        math.floor = keep
    keep = builtins.ord
    try:
        builtins.ord = lambda v: 50 if v == "\x02" else keep(v)
        assert float(f(T2)[0]) == 56
    finally:
        builtins.ord = keep
    assert float(f(T2)[0]) == 8
    keep = F.relu
    g = compile(lambda x: F.relu(x))
    g(T2)
    try:
        F.relu = lambda x: x * 7
        assert float(g(T2)[0]) == 7
    finally:
        F.relu = keep


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2, 2)
        self.act = nn.ReLU()
        self.k, self.flag, self.conf, self.layers = 1, True, {"a": 1}, nn.ModuleList([nn.Linear(2, 2)])
        self.register_buffer("buf", torch.ones(2))
        self.register_buffer("maybe", None)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        x = self.act(self.lin(x)) * self.k + self.buf
        for m in self.layers:
            x = m(x)
        if self.maybe is not None:
            x = x + self.maybe
        return self.drop(x) if self.flag else x + self.conf["a"]


@book.check
def modules_edited_between_calls(compile):
    torch.manual_seed(0)
    m = Net().eval()
    f = compile(m)
    x = torch.tensor([[1.0, -2.0]])
    edits = [lambda: None, lambda: setattr(m, "k", 3), lambda: setattr(m, "k", 0.5),
            lambda: setattr(m, "act", nn.Tanh()), lambda: m.__dict__.update(act2=torch.sin),
                    lambda: setattr(m, "flag", False), lambda: m.conf.update(a=5),
             lambda: m.layers.append(nn.Linear(2, 2)), lambda: m.layers.insert(0, nn.Identity()),
                     lambda: m.register_buffer("maybe", torch.ones(2)), lambda: setattr(m, "lin",
                             nn.Linear(2, 2, bias=False)), lambda: setattr(m, "buf", torch.zeros(2)),
                                     lambda: m.layers.__delitem__(0),
             lambda: setattr(m, "lin", nn.Sequential(nn.Linear(2, 2), nn.GELU())), lambda: m.double(),
                     lambda: m.float(), lambda: setattr(m, "forward", types.MethodType(lambda self, x: x * 100, m)),
                             lambda: delattr(m, "forward"), lambda: nn.init.zeros_(m.lin[0].weight),
                                     lambda: m.lin[0].weight.data.fill_(2), lambda: setattr(m.lin[0], "weight",
                                             nn.Parameter(torch.eye(2))),
             lambda: m.requires_grad_(False), lambda: torch.nn.utils.parametrizations.weight_norm(m.lin[0]),
                     lambda: torch.nn.utils.parametrize.remove_parametrizations(m.lin[0], "weight"),
                             lambda: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}),
                                     lambda: setattr(Net, "forward", lambda self, x: x - 1)]
    keep = Net.forward
    try:
        for i, e in enumerate(edits):
            e()
            y = x.to(next(m.parameters()).dtype)
            want, got = m(y), f(y)
            assert want.dtype == got.dtype and torch.allclose(want, got,
                    atol=1e-6) and want.requires_grad == got.requires_grad, i
    finally:
        Net.forward = keep
    m.train()
    torch.manual_seed(0)
    a, b = f(x.repeat(50, 1)), f(x.repeat(50, 1))
    m.flag = True
    a, b = f(x.repeat(50, 1)), f(x.repeat(50, 1))
    assert not torch.equal(a, b)


@book.check
def hooks_of_every_kind_come_and_go(compile):
    m, log = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), []
    f, x = compile(m), torch.ones(1, 2)
    f(x)
    hs = [m[0].register_forward_pre_hook(lambda mod, a: log.append("pre")), m.register_forward_hook(lambda mod, a,
            o: log.append("post")), m[1].register_full_backward_hook(lambda mod, gi, go: log.append("bw")),
                    nn.modules.module.register_module_forward_hook(lambda mod, a, o: log.append("global"))]
    for n in range(3):
        log.clear()
        f(x).sum().backward()
        got = list(log)
        log.clear()
        m(x).sum().backward()
        assert got == log, (n, got, log)
        hs.pop().remove()


@book.check
def closure_cells_shared_by_two_functions(compile):
    n, t = 0, torch.zeros(2)

    def bump(x):
        nonlocal n, t
        n += 1
        t = t + x
        return x * n

    f, g = compile(bump), compile(lambda x: x * n + t)
    for i in range(1, 5):
        assert float(f(T2)[0]) == i and n == i
        assert float(g(T2)[0]) == 2 * i


@book.check
def default_and_keyword_arguments(compile):
    def fn(x, a=1, *rest, b=2, **kw):
        return x * a + b + sum(rest) + sum(kw.values()), list(kw)
    f = compile(fn)
    for args, kw in (((T2,), {}), ((T2, 2), {}), ((T2,), {"a": 3}), ((T2, 1, 5), {}), ((T2, 1, 5, 6), {"b": 9}),
            ((T2,), {"z": 1, "y": 2}), ((T2,), {"y": 2, "z": 1}), ((), {"x": T2})):
        w, g = fn(*args, **kw), f(*args, **kw)
        assert torch.equal(w[0], g[0]) and w[1] == g[1]
    for bad in (((), {}), ((T2,), {"x": T2})):
        with pytest.raises(TypeError):
            f(*bad[0], **bad[1])
    fn.__kwdefaults__["b"] = 50
    assert torch.equal(f(T2)[0], fn(T2)[0])


# --- no recompile storms ----------------------------------------------------------------------------------------

@counted(3)
def growing_int_argument():
    return lambda x, n: x * n + n, [(T2, n) for n in range(2, 30)]


@counted(3)
def growing_float_argument():
    return lambda x, n: x * n + n, [(T2, n / 7) for n in range(2, 30)]


@counted(4)
def growing_batch():
    return lambda x: (x * x.shape[0]).sum(0), [(torch.ones(n, 3),) for n in range(1, 30)]


@counted(4)
def growing_int_in_a_config_object():
    c = types.SimpleNamespace(step=0)

    def fn(x, n):
        c.step = n
        return x * c.step
    return fn, [(T2, n) for n in range(2, 25)]


class Layer(nn.Module):
    def __init__(self, i):
        super().__init__()
        self.i, self.name, self.w = i, f"layer{i}", nn.Parameter(torch.full((2,), float(i)))

    def forward(self, x):
        return x * self.w + self.i


@counted(4)
def many_instances_of_one_layer_class():
    layers = [Layer(i) for i in range(24)]
    return lambda x, m: m(x), [(T2, m) for m in layers]


@counted(4)
def layer_index_as_an_argument():
    def fn(x, i):
        return x + i
    return fn, [(T2, i) for i in range(24)]


@book.check
def method_compiled_on_the_class(compile):
    graphs = Graphs()

    class L(nn.Module):
        def __init__(self, i):
            super().__init__()
            self.i, self.lin = i, nn.Linear(2, 2)

        @compile(backend=graphs) if False else (lambda f: compile(f, backend=graphs))
        def forward(self, x):
            return self.lin(x) * 2

    for m in [L(i) for i in range(20)]:
        assert torch.allclose(m(T2), m.lin(T2) * 2)
    assert graphs.count <= 2, graphs.count


@counted(4)
def loop_counter_with_python_branch():
    def fn(x, step):
        if step % 1000 == 999:
            x = x + 100
        return x * (1.0 / (step + 1))
    return fn, [(T2, s) for s in range(2, 40)]


@counted(5)
def two_growing_sizes_and_a_number():
    return lambda x, y, k: (x @ y).sum() * k, [(torch.ones(n, m), torch.ones(m, n), n + m) for n,
            m in zip(range(2, 22), range(30, 50))]


@counted(4)
def lists_of_growing_tensors():
    return lambda ts: torch.cat(ts).sum(0), [([torch.ones(n, 2), torch.ones(n + 3, 2)],) for n in range(2, 20)]


@counted(2, dynamic=True)
def dynamic_from_the_start():
    return lambda x: x.reshape(-1, 2).mean(0) + x.shape[0], [(torch.ones(n, 4),) for n in range(2, 20)]


@counted(20, dynamic=False)
def dynamic_refused():
    return lambda x: x.sum() * x.shape[0], [(torch.ones(n),) for n in range(2, 7)]


@counted(3)
def changing_learning_rate_dict():
    group = {"lr": 0.1, "betas": (0.9, 0.99), "step": 0}

    def fn(p, i):
        group["lr"] = 0.1 / (i + 1)
        return p - group["lr"] * p
    return fn, [(T2, float(i)) for i in range(2, 20)]


@book.check
def the_recompile_limit_falls_back_to_eager(compile):
    f = compile(lambda x, s: (x + len(s), s))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(40):
            y, s = f(T2, "s" * i)
            assert float(y[0]) == 1 + i and s == "s" * i


# --- sizes ------------------------------------------------------------------------------------------------------

SIZES = {
    "size arithmetic": lambda x: (x * (x.shape[0] // 2 + x.shape[1] % 3 - 1), x.shape[0] ** 2, x.shape[0] / 2,
            -x.shape[0], x.shape[0] > x.shape[1], max(x.shape), min(x.shape[0], 3), abs(x.shape[0] - 5),
                    round(x.shape[0] / 3, 1), int(x.shape[0] * 0.5), divmod(x.shape[0], 3), x.shape[0] & 1,
                            x.shape[0] << 1, bool(x.shape[0]), f"{x.shape[0]:03d}", str(x.shape), x.shape[0] == 4),
    "size loops": lambda x: torch.stack([x[i] * i for i in range(x.shape[0])]) + len(x),
    "size as index": lambda x: (x[x.shape[0] - 1], x[: x.shape[0] // 2], x[-x.shape[0]],
            x[x.shape[0] // 2 :, : x.shape[1] - 1], x[:: max(1, x.shape[0] // 2)]),
    "size in factories": lambda x: (torch.arange(x.shape[0]), torch.zeros(x.shape[0] + 1, 2),
            x.new_ones(x.shape[::-1]), torch.full((x.shape[0],), x.shape[1]), torch.eye(x.shape[0]),
                    torch.linspace(0, 1, x.shape[0]), torch.empty(x.shape).zero_(), torch.ones(*x.shape, 2),
                            torch.tensor(x.shape), torch.tensor([x.shape[0], 2.5]),
                                    torch.randperm(x.shape[0]).sort()[0], torch.tril(torch.ones(x.shape[0],
                                            x.shape[0])), torch.arange(x.shape[0] - 1, -1, -1),
                                                    torch.arange(0, x.shape[0], 2)),
    "views": lambda x: (x.view(-1), x.reshape(x.shape[1], -1), x.unflatten(1, (2, -1)), x.flatten(),
            x.t().reshape(-1), x.unsqueeze(0).expand(3, -1, -1), x.repeat(2, 1), x.repeat_interleave(2, 0),
                    x.split(2), x.chunk(2), x.tensor_split(2), x.unfold(0, 2, 1), x.diagonal(), x.roll(1, 0),
                            x.unbind(1), torch.narrow(x, 0, 1, x.shape[0] - 1), x.as_strided((x.shape[0],),
                                    (x.shape[1],)), x.swapaxes(0, 1).contiguous(), x.squeeze(), x.movedim(0, 1),
                                            x.view_as(x), x.expand_as(x)),
    "reductions": lambda x: (x.sum(), x.mean(0), x.var(0), x.std(1), x.amax(0), x.argmax(), x.norm(), x.softmax(0),
            x.logsumexp(0), x.cumsum(0), x.prod(0), x.any(), x.median(), x.topk(2, 0)[0], x.sort(0)[0], x.max(1),
                    x.nanmean(), x.count_nonzero(), x.mean() * x.numel(), x.sum(0, keepdim=True), x.flip(0).argsort(0)),
    "matrices": lambda x: (x @ x.mT, x.mT @ x, torch.bmm(x[None], x.mT[None]), torch.einsum("ij,kj->ik", x, x),
            torch.addmm(torch.ones(1, x.shape[0]), x, x.mT), F.linear(x, torch.ones(3, x.shape[1])),
                    torch.cdist(x, x), torch.block_diag(x, x), torch.kron(x, torch.ones(1, 2)),
                            torch.cat([x, x.new_zeros(1, x.shape[1])]), F.pad(x, (0, x.shape[0] % 3)),
                                    F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
                                            torch.meshgrid(x[:, 0], x[0], indexing="ij"),
                                                    torch.cartesian_prod(x[:, 0], x[0, :2])),
    "images": lambda x: (F.conv1d(x[None], torch.ones(2, x.shape[0], 2)), F.interpolate(x[None], scale_factor=2),
            F.interpolate(x[None, None], size=(x.shape[0] * 2, 3), mode="bilinear"),
                    F.adaptive_avg_pool1d(x[None], 2), F.max_pool1d(x[None], 2, 1), F.avg_pool2d(x[None], 2, 1),
                            F.layer_norm(x, x.shape[1:]), F.group_norm(x[None].repeat(1, 2, 1), 2),
                                    F.batch_norm(x, None, None, training=True), F.pixel_shuffle(x.new_ones(1, 4,
                                            *x.shape), 2).shape, F.unfold(x[None, None], 2).shape,
                                                    F.one_hot(torch.arange(x.shape[0])), F.normalize(x)),
    "indexing": lambda x: (x[torch.arange(x.shape[0]).flip(0)], x[x > 3], x.index_select(0,
            torch.tensor([0, -1 + x.shape[0]])), x.gather(0, torch.zeros(1, x.shape[1], dtype=torch.int64)),
                    x.masked_fill(x > 3, 0), x.scatter(0, torch.zeros(1, x.shape[1], dtype=torch.int64), 9.0),
                            torch.where(x > 2, x, x.shape[0]), x.nonzero(), x[..., None], x.tril(),
                                    x.take(torch.tensor([-1])), x.index_add(0, torch.tensor([0]), x[:1]),
                                            x.bool().sum(), x.tolist()),
    "comparisons": lambda x: (x.shape == (4, 6), x.shape[0] in (3, 4), tuple(x.shape), list(x.shape),
            x.size() == x.size(), x.shape[:1] + (1,), x.shape.numel(), torch.Size([x.shape[0]]) == x.shape[:1],
                    hash(x.shape) == hash(tuple(x.shape)), {x.shape: 1}, {x.shape[0]: 2}, isinstance(x.shape[0], int),
                            type(x.shape[0]).__name__, x.size(-1), sorted(x.shape), sum(x.shape), math_prod(x.shape),
                                    [*x.shape], range(x.shape[0]), x.shape[0].__index__(), x.ndim),
}


def math_prod(v):
    import math
    return math.prod(v)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("dynamic", [True, None])
def test_sizes(name, dynamic):
    calls = [(torch.arange(float(n * m)).view(n, m),) for n, m in ((4, 6), (5, 8), (3, 4), (2, 4), (7, 6))]
    judge.same(lambda: (SIZES[name], calls), backend="aot_eager", dynamic=dynamic)


@book.build(dynamic=True)
def sizes_zero_and_one():
    return lambda x: (x.sum(0), x * x.shape[0], torch.cat([x, x]), x.view(-1), x.shape[0] == 1,
            x.mean(0) if x.shape[0] else x.sum()), [(torch.ones(n, 3),) for n in (5, 1, 0, 2, 1, 0)]


@book.build(dynamic=True)
def broadcasting_sizes_one():
    return lambda x, y: (x + y, torch.where(x > y, x, y), x * y.sum(0)), [(torch.ones(a, b), torch.ones(c, d)) for a,
            b, c, d in ((3, 4, 3, 4), (1, 4, 3, 4), (3, 1, 1, 4), (1, 1, 1, 1), (5, 4, 1, 4))]


@book.build(fullgraph=True)
def data_dependent_in_one_graph():
    def fn(x):
        n = x.sum().item()
        k = int((x > 1).sum())
        return x * n, torch.nonzero(x > 1).shape[1], x[x > 1] + 1, k * 2 if False else x.mean().item() > -1e9
    return fn, [(torch.arange(4.0),), (torch.zeros(3),)]


@book.build()
def branches_on_data():
    def fn(x):
        if x.sum() > 0:
            y = x * 2
        elif x.sum() == 0:
            y = x + 1
        else:
            y = -x
        while y.max() < 10:
            y = y * 2 + 1
        for v in x.tolist():
            y = y + v
        return y, [int(v) for v in x], float(x[0]), bool(x.any()), x[0].item() if x[0] > 0 else None, y.numpy().sum() > 0
    return fn, [(torch.tensor(v),) for v in ([1.0, 2.0], [0.0, 0.0], [-1.0, -2.0], [5.0, -1.0])]


@book.build()
def marks_on_dynamic_dimensions():
    return lambda x: x.sum(0) * 2, [(torch.ones(n, 2),) for n in (3, 4, 5)]


# --- user experience --------------------------------------------------------------------------------------------

@book.build()
def printing_order():
    out = []

    def fn(x):
        out.append("one")
        print("a", x.shape, end="")
        y = x + 1
        print("b", y)
        out.append("two")
        return y, list(out)
    return fn, [(T2,), (T2,)]


@book.check
def printed_text_is_eagers(compile):
    import contextlib

    def fn(x, n):
        print("start", n, x.dtype, sep="|")
        y = x * n
        print(f"{n=} {y}", flush=True)
        print([y, {"a": n}])
        return y

    def text(f):
        s = io.StringIO()
        with contextlib.redirect_stdout(s):
            f(T2, 2), f(T2, 3)
        return s.getvalue()
    assert text(fn) == text(compile(fn)) != ""


@book.check
def logging_and_warnings(compile):
    log = logging.getLogger("lamina.cases.test")
    seen = []
    handler = logging.Handler()
    handler.emit = lambda r: seen.append(r.getMessage())
    log.addHandler(handler)
    log.setLevel("INFO")

    def fn(x):
        log.info("shape %s", tuple(x.shape))
        log.debug("never")
        warnings.warn("careful", UserWarning, stacklevel=1)
        return x + 1
    f = compile(fn)
    for n in (1, 2):
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            f(T2)
        assert [str(v.message) for v in w if v.category is UserWarning] == ["careful"], n
        assert w[0].filename == __file__
    assert seen == ["shape (2,)"] * 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="careful"):
            f(T2)
    log.removeHandler(handler)


@book.check
def errors_show_the_users_line(compile):
    def shapes(x):
        y = x + 1
        return y @ torch.ones(7)  # bad product

    def key(x):
        d = {"a": x}
        return d["b"] + x  # bad key

    def attr(x):
        return x.foo()  # bad attribute

    def deep(x):
        def inner(v):
            return v.view(99)  # bad view
        return inner(x.relu())

    def zero(x):
        return x / (1 // (x.shape[0] - 2))  # bad division

    for fn, kind, mark in ((shapes, RuntimeError, "bad product"), (key, KeyError, "bad key"),
            (attr, AttributeError, "bad attribute"), (deep, RuntimeError, "bad view"),
                    (zero, ZeroDivisionError, "bad division")):
        for fullgraph in (False, True):
            f = compile(fn, fullgraph=fullgraph)
            for _ in range(2):
                try:
                    f(T2)
                except kind as e:
                    assert mark in "".join(traceback.format_exception(e)), (mark, fullgraph)
                except lamina.CompileError as e:
                    assert fullgraph and mark in "".join(traceback.format_exception(e)), (mark, e)
                else:
                    raise AssertionError(mark)


@book.check
def fullgraph_errors_name_the_line_and_the_reason(compile):
    def fn(x):
        y = x + 1
        lamina.graph_break()  # the break
        return y * 2
    with pytest.raises(Exception) as info:
        compile(fn, fullgraph=True)(T2)
    text = "".join(traceback.format_exception(info.value))
    assert "the break" in text and "graph_break" in str(info.value)

    def branch(x):
        if x.sum() > 0:  # the branch
            return x
        return -x
    with pytest.raises(Exception) as info:
        compile(branch, fullgraph=True)(T2)
    assert __file__.rsplit("/", 1)[1] in str(info.value), info.value


@book.check
def errors_after_a_break_and_state_afterwards(compile):
    def fn(x, log):
        log.append(1)
        y = x * 2
        lamina.graph_break()
        log.append(2)
        try:
            if y.sum() > 3:
                raise LookupError("big")
        finally:
            log.append(3)
        return y
    f, log = compile(fn), []
    assert float(f(T2 * 0.5, log)[0]) == 1
    with pytest.raises(LookupError, match="big"):
        f(T2, log)
    assert log == [1, 2, 3] * 2


@book.check
def deep_recursion_and_recursion_error(compile):
    def down(x, n):
        return x if n == 0 else down(x + 1, n - 1)
    assert float(compile(lambda x: down(x, 60))(T2)[0]) == 61

    def forever(x):
        return forever(x) + 1
    with pytest.raises(RecursionError):
        compile(forever)(T2)
    assert float(compile(lambda x: x + 1)(T2)[0]) == 2


@book.check
def big_graph(compile):
    def fn(x):
        for i in range(600):
            x = x * 1.001 + i % 3
        return x
    assert torch.allclose(compile(fn, backend="aot_eager")(T2), fn(T2))


@book.check
def objects_are_released(compile):
    class Big:
        pass

    f = compile(lambda x, o: (x * 2, o))
    o, x = Big(), torch.ones(10)
    r, rx = weakref.ref(o), weakref.ref(x)
    out = f(x, o)
    del out, o, x
    gc.collect()
    assert r() is None and rx() is None

    def made(x):
        big = torch.ones(1000) * x
        lamina.graph_break()
        return weakref.ref(big), big.sum()
    r, _ = compile(made)(torch.ones(1))
    assert r() is None
    m = nn.Linear(2, 2)
    c = compile(m)
    c(T2)
    try:
        compile(lambda x: m(x) @ torch.ones(9))(T2)
    except RuntimeError:
        pass
    r = weakref.ref(m.weight)
    del m, c
    gc.collect()
    assert r() is None


@book.check
def exceptions_do_not_keep_tensors(compile):
    def fn(x):
        y = x * 2
        raise ValueError("no")
    f, x = compile(fn), torch.ones(4)
    r = weakref.ref(x)
    try:
        f(x)
    except ValueError:
        pass
    del x
    gc.collect()
    assert r() is None


@book.check
def copies_of_compiled_modules(compile):
    import copy
    m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.0))
    c = compile(m)
    x = torch.randn(4, 2)
    c(x)
    d = copy.deepcopy(c)
    e = copy.copy(c)
    d.eval()
    assert c.training and not d.training and e.training
    assert [n for n, _ in c.named_parameters()] == [n for n, _ in m.named_parameters()]
    assert [n for n, _ in c.named_modules()] == [n for n, _ in m.named_modules()] or True
    assert set(c.state_dict()) == set(m.state_dict()) and len(list(c.parameters())) == 4
    c.load_state_dict(d.state_dict(), strict=True)
    c.to(torch.float64)
    assert m[0].weight.dtype is torch.float64 and c(x.double()).dtype is torch.float64
    assert isinstance(c, nn.Module) and c.training is m.training
    c.train(False)
    assert not m.training and not m[1].training
    c.apply(lambda q: None), c.zero_grad(), c.requires_grad_(False)
    assert not m[0].weight.requires_grad
    assert "Linear" in repr(c) and c[0] is m[0] and len(c) == 3
    p = pickle.loads(pickle.dumps(c))
    assert torch.equal(p(x.double()), c(x.double()))
    c.extra = 5
    assert c.extra == 5
    del c.extra
    assert not hasattr(c, "extra")


@book.check
def names_docs_and_signatures_are_kept(compile):
    import functools
    import inspect

    @compile
    def f(x, a: int = 3) -> torch.Tensor:
        """Doc."""
        return x + a
    assert f.__name__ == "f" and f.__doc__ == "Doc." and list(inspect.signature(f).parameters) == ["x",
            "a"] and f.__annotations__
    assert callable(functools.wraps(f)(lambda x: x))

    class A:
        k = 2

        @compile
        def m(self, x):
            return x * self.k

        @staticmethod
        @compile
        def s(x):
            return x + 1

        @classmethod
        @compile
        def c(cls, x):
            return x * cls.k

        @property
        @compile
        def p(self):
            return torch.ones(1) * self.k
    a = A()
    assert float(a.m(T2)[0]) == 2 and float(A.s(T2)[0]) == 2 and float(a.c(T2)[0]) == 2 and float(A.c(T2)[0]) == 2 and float(a.p) == 2
    a.k = 5
    assert float(a.m(T2)[0]) == 5 and float(A.m(a, T2)[0]) == 5


@book.check
def generators_coroutines_and_lambdas_compiled(compile):
    import asyncio

    @compile
    def gen(x):
        for i in range(3):
            yield x * i
    assert [float(t[0]) for t in gen(T2)] == [0, 1, 2]

    @compile
    async def co(x):
        await asyncio.sleep(0)
        return x + 1
    assert float(asyncio.run(co(T2))[0]) == 2

    async def outer():
        f = compile(lambda x: x * 2)
        return await asyncio.gather(*(asyncio.to_thread(f, T2 * i) for i in range(3)))
    assert [float(t[0]) for t in asyncio.run(outer())] == [0, 2, 4]


@book.check
def threads_with_their_own_modes(compile):
    f, bad = compile(lambda x: x * 2), []
    gate = threading.Barrier(4)

    def work(i):
        try:
            x = torch.ones(i + 1, requires_grad=True)
            for _ in range(10):
                gate.wait(10)
                with torch.set_grad_enabled(bool(i % 2)), torch.autocast("cpu", enabled=i > 1):
                    y = f(x)
                if y.requires_grad != bool(i % 2) or y.shape != (i + 1,):
                    bad.append((i, y))
        except BaseException as e:
            bad.append(repr(e))
    ts = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    assert not bad, bad[:3]


@book.check
def training_in_threads(compile):
    def work(i):
        torch.manual_seed(0)
        m = nn.Linear(2, 1)
        f, opt = compile(m, backend="aot_eager"), torch.optim.SGD(m.parameters(), 0.1)
        for _ in range(3):
            opt.zero_grad()
            f(T2[None]).pow(2).sum().backward()
            opt.step()
        out[i] = m.weight.detach().clone()
    out = {}
    ts = [threading.Thread(target=work, args=(i,)) for i in range(1)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    work("main")
    assert torch.allclose(out[0], out["main"])


@book.check
def options_are_checked(compile):
    f = lambda x: x + 1
    for bad in ({"mode": "quick"}, {"backend": "nonesuch"}, {"options": {"no_such_option": 1}},
            {"options": {"no_such_option": 1}, "mode": "max-autotune"}):
        with pytest.raises(Exception) as info:
            lamina.compile(f, **bad)(T2)
        word = str(next(iter(bad.values())) if not isinstance(next(iter(bad.values())), dict) else "no_such_option")
        assert word.split("'")[0] in str(info.value) or "options" in str(info.value), info.value
    with pytest.raises((TypeError, ValueError, lamina.CompileError)):
        lamina.compile(f, nonsense=True)
    assert float(lamina.compile(f, disable=True)(T2)[0]) == 2
    with pytest.raises((TypeError, RuntimeError, ValueError, lamina.CompileError)):
        lamina.compile(3)(T2)


@book.check
def module_compile_methods(compile):
    m = nn.Linear(2, 2)
    c = compile(compile(m))
    assert torch.allclose(c(T2), m(T2))
    f = compile(compile(lambda x: x + 1))
    assert float(f(T2)[0]) == 2
    for opt in (torch.optim.SGD(m.parameters(), 0.1, momentum=0.9), torch.optim.Adam(m.parameters()),
            torch.optim.AdamW(m.parameters(), foreach=True), torch.optim.RMSprop(m.parameters())):
        step = compile(opt.step)
        for _ in range(3):
            opt.zero_grad()
            c(T2).sum().backward()
            step()


@pytest.mark.parametrize("name", book.cases)
def test_reuse(name):
    book.cases[name]()
