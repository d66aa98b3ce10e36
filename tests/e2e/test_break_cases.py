"""Graph breaks in the middle of everything: what stands around the break goes on as in eager."""
# The programs are odd on purpose.
# ruff: noqa: B007, B008, B012, B018, B023, B904, E501, E731, F821

from __future__ import annotations

import collections
import contextlib
import functools
import importlib.util
import itertools
import pathlib
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import lamina

_spec = importlib.util.spec_from_file_location("e2e_judge", pathlib.Path(__file__).with_name("judge.py"))
judge = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(judge)
book = judge.Book(backend="aot_eager")
brk = lamina.graph_break
ones = lambda *s, **k: lambda: (torch.ones(*s or (2,), **k),)


@book.calls(ones(), ones(3))
def inside_loops_and_branches(x):
    out = []
    for i in range(3):
        y = x * i
        if i == 1:
            brk()
            y = y + 10
        elif i == 2:
            out.append("two")
        for j in range(2):
            if j:
                brk()
            y = y + j
        out.append(y)
    while len(out) < 6:
        out.append(x)
        brk()
    return out


@book.calls(ones(requires_grad=True), train=True)
def inside_grad_modes(x):
    with torch.no_grad():
        a = x * 2
        brk()
        b = x * 3
        with torch.enable_grad():
            brk()
            c = x * 4
        d = x * 5
    e = x * 6
    return [t.requires_grad for t in (a, b, c, d, e)], torch.is_grad_enabled(), c + e


@book.calls(ones(2, 2))
def inside_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ x
        brk()
        b = x @ x
        with torch.autocast("cpu", enabled=False):
            brk()
            c = x @ x
        d = x @ x
    brk()
    return a.dtype, b.dtype, c.dtype, d.dtype, (x @ x).dtype, torch.is_autocast_enabled("cpu")


@contextlib.contextmanager
def noted(log, name):
    log.append("+" + name)
    brk()
    try:
        yield len(log)
    except ValueError:
        log.append("v")
        brk()
    finally:
        brk()
        log.append("-" + name)


@book.calls(lambda: (torch.ones(2), []), lambda: (torch.ones(2), []))
def inside_context_managers(x, log):
    with noted(log, "a") as n, noted(log, "b") as m:
        x = x + n * m
        brk()
        x = x * 2
        raise ValueError
    with contextlib.ExitStack() as stack:
        k = stack.enter_context(noted(log, "c"))
        brk()
        x = x + k
    return x, log


@book.calls(lambda: (torch.ones(2), []), lambda: (torch.ones(2), []))
def inside_try_blocks(x, log):
    def f(n):
        try:
            x2 = x * n
            brk()
            if n == 1:
                raise KeyError(n)
            if n == 2:
                return x2 + 100
            x2 = x2 + 1
        except KeyError as e:
            log.append(repr(e))
            brk()
            try:
                raise RuntimeError("in") from e
            except RuntimeError as r:
                brk()
                log.append((str(r), type(r.__cause__).__name__, r.__context__ is e))
            return x2
        else:
            log.append("else")
        finally:
            brk()
            log.append(n)
        return x2
    return [f(n) for n in range(4)], log


@book.calls(ones(), ones())
def inside_generators(x):
    log = []

    def g(n):
        try:
            for i in range(n):
                brk()
                got = yield x * i
                log.append(got)
        finally:
            brk()
            log.append("end")
        return "r"

    def outer():
        r = yield from g(2)
        brk()
        yield r
    a = list(g(2))
    b = g(3)
    c = [next(b), b.send("s")]
    b.close()
    d = list(outer())
    e = [v + 1 for v in g(2)]
    brk()
    return a, c, d, e, log


@book.calls(ones(), ones())
def inside_closures_and_cells(x):
    n, fs = 0, []

    def bump(k):
        nonlocal n, x
        n += k
        brk()
        x = x + n
        return lambda: n * k
    for k in range(3):
        fs.append(bump(k))
        brk()

    class C:
        total = n

        def m(self, v):
            nonlocal n
            brk()
            n += v
            return self.total + n
    r = C().m(5)
    return x, n, r, [f() for f in fs]


@book.calls(ones(), ones())
def inside_comprehensions_and_callbacks(x):
    def f(i):
        if i % 2:
            brk()
        return x * i
    a = [f(i) for i in range(4)]
    b = {i: f(i).sum().item() for i in range(3)}
    c = sorted([3, 1, 2], key=lambda v: float(f(v)[0]))
    d = list(map(f, range(3)))
    e = functools.reduce(lambda p, q: (brk(), p + q)[1], a)
    g = max([1, 2, 3], key=lambda v: -f(v).sum().item())
    h = sum((f(i) for i in range(3)), x)
    return a, b, c, d, e, g, h, any(bool(f(i).sum() > 3) for i in range(4)), list(itertools.accumulate([1, 2, 3], lambda p, q: (brk(), p * q)[1]))


class Obj:
    def __init__(self, x):
        brk()
        self.x = x
        self.log = []

    @property
    def p(self):
        brk()
        return self.x * 2

    @p.setter
    def p(self, v):
        self.log.append("set")
        brk()
        self.x = v

    def __add__(self, o):
        brk()
        return self.x + o

    def __getitem__(self, k):
        brk()
        return self.x[k]

    def __call__(self, *a, k=1):
        brk()
        return self.x * k + len(a)

    def __enter__(self):
        brk()
        return self

    def __exit__(self, *e):
        brk()
        self.log.append(e[0] is not None)
        return True

    def __getattr__(self, k):
        if k.startswith("dyn"):
            brk()
            return self.x + 7
        raise AttributeError(k)

    def __iter__(self):
        brk()
        return iter([self.x, self.x + 1])

    def __eq__(self, o):
        brk()
        return True

    def __len__(self):
        brk()
        return 4

    def __bool__(self):
        brk()
        return False

    @classmethod
    def make(cls, x):
        brk()
        return cls(x)

    @staticmethod
    def st(v):
        brk()
        return v + 3


@book.calls(ones(), ones())
def inside_special_methods(x):
    o = Obj.make(x)
    o.p = o.p + 1
    with o:
        y = o[0] + 1
        raise KeyError
    a, b = o
    return o + 1, o.p, y, o(1, 2, k=3), o.dyn, a, b, o == 3, len(o), "t" if o else "f", Obj.st(x), o.log, [v for v in o]


@book.build()
def inside_modules_with_hooks_and_children():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(2, 2)
            self.n = 0

        def forward(self, x, flag=False):
            self.n += 1
            y = self.lin(x)
            brk()
            if flag:
                y = y * self.n
            return y

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.seq = Inner(), nn.ModuleDict({"k": Inner()}), nn.Sequential(Inner(), nn.ReLU(), Inner())
            self.log = []
            self.a.register_forward_hook(lambda m, i, o: (self.log.append(m.n), brk(), o + 1)[2])
            self.seq[0].register_forward_pre_hook(lambda m, i: (i[0] * 2,))
            self.register_buffer("buf", torch.zeros(2))

        def forward(self, x):
            self.buf.add_(1)
            y = self.seq(self.b["k"](self.a(x), flag=True))
            self.buf = self.buf * 2
            brk()
            return y + self.buf, list(self.log)
    return Net(), [(torch.ones(2),), (torch.ones(3, 2),), (torch.zeros(2),)]


@book.calls(ones(3, requires_grad=True), ones(3, requires_grad=True), train=True)
def between_forward_parts_that_share_tensors(x):
    a = x * 2
    v = a[1:]
    brk()
    b = a.sin() + v.sum()
    w = b.view(-1)
    brk()
    c = w * a
    d = {"c": c, "v": v, "l": [a, b]}
    brk()
    return d, c.sum() * b.detach()


@book.calls(ones(4), ones(4))
def in_place_on_views_across_breaks(x):
    y = x.clone()
    v = y[1:3]
    brk()
    v.mul_(5)
    brk()
    y.add_(v.sum())
    x[0] = 100
    brk()
    z = y.view(2, 2).t()
    brk()
    z[0].zero_()
    return x, y, v, z


@book.calls(lambda: (torch.ones(2), [torch.zeros(2)], {"k": torch.ones(1)}, collections.deque([1])), lambda: (torch.ones(2), [torch.zeros(2)] * 2, {"k": torch.ones(1)}, collections.deque([1])))
def containers_across_breaks(x, items, d, dq):
    items.append(x + 1)
    same = items
    brk()
    same[0].add_(3)
    d["new"] = items
    dq.appendleft(len(items))
    brk()
    d["new"].append(d["k"])
    it = iter(items)
    first = next(it)
    brk()
    rest = list(it)
    e = enumerate(rest)
    next(e)
    brk()
    z = zip(rest, "abc")
    p = next(z)
    brk()
    return first, rest, [k for k, _ in e], p[1], [q for _, q in z], d, list(dq), d["new"] is items


@book.calls(ones(), ones())
def star_arguments_and_defaults_across_breaks(x):
    def f(a, *rest, k=2, **kw):
        brk()
        return a * k + sum(rest) + len(kw), list(kw), rest
    args, kw = (x, 1, 2), {"k": 3, "z": 1}
    g = functools.partial(f, x, k=5)
    a, *b = f(*args, **kw)
    brk()
    (c, d), e = (x, [1, 2]), 5
    brk()
    c, x = x + 1, c
    return a, b, c, d, e, g(7), f(x), f(a=x)


@book.calls(ones(), ones())
def recursion_across_breaks(x):
    def tree(n):
        if n == 0:
            brk()
            return x
        left = tree(n - 1)
        right = tree(n - 1)
        return left + right * n
    return tree(3)


@book.calls(ones(), ones())
def strings_and_numbers_across_breaks(x):
    n = x.shape[0]
    s = f"{n}-{x.dtype}"
    m = n * 2.5
    brk()
    t = s + str(m) + f"{m:.2f}"
    k = n**2 + len(t)
    big = 2**70 + n
    brk()
    return x * k, t, big, m // 2, complex(n, 1), s.upper(), b"q" * n, None if n > 1 else 0, ..., slice(n), range(n), x[:n]


@book.build(dynamic=True)
def symbolic_sizes_across_breaks():
    def fn(x):
        n, m = x.shape
        k = n * m // 2
        brk()
        y = x.view(-1)[:k]
        brk()
        z = torch.zeros(n + 1, k)
        return y * k, z.shape, [n, m, k], y.view(1, k) + n, n == 3, x.reshape(m, n), f"{n}x{m}"
    return fn, [(torch.ones(n, m),) for n, m in ((3, 4), (4, 6), (5, 2), (1, 2))]


@book.calls(ones(3, requires_grad=True), train=True)
def hooks_and_retained_gradients_across_breaks(x):
    h = x * 2
    h.register_hook(lambda g: g * 10)
    h.retain_grad()
    brk()
    k = h * h
    k.register_hook(lambda g: g + 1)
    brk()
    return k.sum()


@book.build(train=True)
def checkpoints_and_breaks():
    lin = nn.Linear(3, 3)

    def part(t):
        y = lin(t)
        brk()
        return y.tanh()

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = lin

        def forward(self, x):
            return checkpoint(part, x, use_reentrant=False) * 2
    return M(), [(torch.ones(2, 3, requires_grad=True),), (torch.ones(4, 3, requires_grad=True),)]


@book.calls(lambda: (torch.ones(2), 1), lambda: (torch.ones(2), 2), lambda: (torch.ones(2), 3), fails=True)
def errors_escape_after_breaks(x, n):
    y = x * n
    brk()
    try:
        if n == 2:
            raise LookupError("two")
    finally:
        y.add_(1)
        brk()
    if n == 3:
        return y.view(5)
    return y


@book.check
def tracebacks_after_breaks_show_the_users_lines(compile):
    import traceback

    def inner(v):
        brk()
        return v.view(77)  # here it fails

    def middle(v):
        w = v + 1
        brk()
        return inner(w)  # called from here

    f = compile(lambda x: middle(x * 2))
    for _ in range(2):
        with pytest.raises(RuntimeError) as info:
            f(torch.ones(2))
        text = "".join(traceback.format_exception(info.value))
        assert "here it fails" in text and "called from here" in text


@book.check
def objects_die_after_the_call(compile):
    died = []

    class D:
        def __init__(self, n):
            self.n = n
            weakref.finalize(self, died.append, n)

    def fn(x):
        a = D("a")
        brk()
        b = D(a.n + "b")
        try:
            with Obj(x):
                raise KeyError(b.n)
        finally:
            y = x + len(b.n)
        brk()
        return y
    compile(fn)(torch.ones(1))
    assert sorted(died) == ["a", "ab"], died


@book.check
def disabled_and_allowed_functions(compile):
    calls = []

    @lamina.disable
    def plain(x, n=1):
        calls.append(type(x).__name__)
        return x * n

    def fn(x):
        y = x + 1
        y = plain(y, n=3)
        with torch.no_grad():
            z = plain(y)
        return y, z, len(calls)
    f = compile(fn)
    for k in (1, 2):
        y, z, n = f(torch.ones(1))
        assert float(y) == 6 and n == 2 * k
    assert calls == ["Tensor"] * 4
    m = nn.Sequential(nn.Linear(2, 2), lamina.disable(nn.Linear(2, 2)))
    g = compile(m)
    assert torch.allclose(g(torch.ones(2)), m(torch.ones(2)))


@book.check
def number_of_breaks_and_graphs(compile):
    count = []

    def backend(gm, inputs):
        count.append(len([n for n in gm.graph.nodes if n.op.startswith("call")]))
        return gm.forward

    def fn(x):
        y = x + 1
        brk()
        y = y * 2
        print("", end="")
        y = y.sin()
        if x.shape[0] > 100:
            brk()
        return y
    f = compile(fn, backend=backend)
    f(torch.ones(2)), f(torch.ones(2))
    assert len(count) == 2 and sum(count) == 3, count


@pytest.mark.parametrize("name", book.cases)
def test_breaks(name):
    book.cases[name]()
