"""Small programs, compiled with backend eager, must do what plain Python does; most of them in one graph."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from lamina_dynamo import optimize
from lamina_dynamo.contract import check_graph

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and torch.allclose(a, b, equal_nan=True)
        )
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    return a == b


PROGRAMS = []
BREAKING = []


def program(fn):
    PROGRAMS.append(fn)
    return fn


def breaking(fn):
    BREAKING.append(fn)
    return fn


@program
def arithmetic(x):
    y = x + 1
    return (y * 2 - x) / 3, -y, y @ y.t(), x > 0, 2 ** x.abs()


@program
def lists(x):
    items = [x * i for i in range(3)]
    items.append(items.pop(0))
    return items, len(items), [y + 1 for y in items if y is not None], sorted([3, 1, 2], key=lambda v: -v)


@program
def dicts(x):
    d = {"a": x, "b": x + 1}
    d["c"] = d["a"] * 2
    for k, v in d.items():
        d[k] = v + 1
    return d, {k: len(k) for k in d}


@program
def closure_with_nonlocal(x):
    n = 0

    def g(y):
        nonlocal n
        n += 1
        return y * n

    return g(x) + g(x), n


@program
def keywords(x):
    def g(a, *b, c=2, **d):
        return a + sum(b) * c + d["e"]

    return g(x, x, 1, c=3, e=4), g(*(x, 1), **{"e": 1})


@program
def exceptions(x):
    try:
        raise ValueError("a")
    except ValueError as e:
        z = str(e)
    finally:
        y = x + 1
    try:
        {}["k"]
    except (KeyError, IndexError):
        y = y * 2
    return y, z


@program
def with_blocks(x):
    with torch.no_grad():
        y = x * 2
    with contextlib.nullcontext(3) as n:
        y = y + n
    return y


@program
def generators(x):
    def g(n):
        for i in range(n):
            yield x + i

    def outer():
        yield from g(2)
        yield x

    return list(g(3)), sum(y for y in g(2)), [*outer()]


@program
def generator_protocol(x):
    log = []

    def g():
        try:
            got = yield 1
            log.append(got)
            yield x * got
        finally:
            log.append("closed")

    it = g()
    first = next(it)
    second = it.send(5)
    it.close()
    return first, second, log


@program
def format_strings(x):
    return x + 1, f"{x.shape[0]}-{x.dtype!r:>20}-{3.14159:.2f}-{'s'!r}"


@program
def patterns(x):
    out = []
    for s in [(1, 2), {"k": 3, "z": 4}, "s", [1, 2, 3], Point(x, 5)]:
        match s:
            case (a, b):
                out.append(a + b)
            case {"k": v, **r}:
                out.append((v, r))
            case [a, *b]:
                out.append(b)
            case Point(a=q, b=n) if n > 4:
                out.append(q + n)
            case _:
                out.append(None)
    return x + 1, out


@dataclasses.dataclass
class Point:
    a: object
    b: int = 2


Pair = collections.namedtuple("Pair", "a b")


@program
def dataclass_objects(x):
    d = Point(x)
    d.b += 1
    return d.a * d.b, dataclasses.replace(d, b=7).b


@program
def named_tuples(x):
    p = Pair(x, 1)
    return p.a + p.b, p._replace(b=3).b


@program
def functional(x):
    return (
        F.relu(x),
        F.softmax(x, dim=-1),
        F.layer_norm(x, (4,)),
        F.dropout(x, 0.5, False),
        torch.cat([x, x], 0),
        x.view(-1, 2).sum(1, keepdim=True),
        x.T,
        x.mT,
        F.pad(x, (1, 1)),
    )


@program
def several_results(x):
    v, i = x.max(dim=1)
    r = torch.max(x, dim=0)
    return v, i, r.values, r[1], x.shape, x.size(0), x.dtype, x.numel(), x.unbind(0)[1]


@program
def classes_made_inside(x):
    class A:
        k = 3

        def __init__(self, v):
            self.v = v

        def go(self):
            return self.v * self.k

        @property
        def p(self):
            return self.v + 1

    a = A(x)
    a.v = a.v + 1
    return a.go(), a.p


@program
def in_place(x):
    y = x.clone()
    y += 1
    y.mul_(2)
    y[0] = 0
    y[:, 1] += 5
    return y


@program
def autocast_nested(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        with torch.autocast("cpu", enabled=False):
            z = x @ x.t()
    return y, z


@program
def walrus_and_unpacking(x):
    a, *b, c = [x, 1, 2, x + 1]
    if (n := len(b)) > 1:
        a = a * n
    return a, b, c, [*b, *(3, 4)], {**{"p": 1}, "q": 2}


@program
def loops_with_else(x):
    for i in range(4):
        if i == 2:
            continue
        x = x + i
    else:
        x = x * 2
    n = 0
    while True:
        n += 1
        if n > 3:
            break
    return x, n


@program
def return_through_finally(x):
    out = []

    def g():
        for i in range(3):
            try:
                if i == 1:
                    return x + i
            finally:
                out.append(i)

    return g(), out


@breaking
def branch_on_value(x):
    y = x + 1
    if y.sum() > 0:
        z = y * 2
    else:
        z = y * 3
    return z + 1


@breaking
def item(x):
    y = x.sum().item()
    return x + y


@breaking
def in_nested_call(x):
    def g(a):
        b = a * 2
        c = b.sum().item()
        return b + c

    try:
        q = g(x) + 1
    except ValueError:
        q = None
    return q * 3


@breaking
def two_levels_deep(x):
    def h(a, k):
        t = a + k
        n = t.sum().item()
        return t * n

    def g(a):
        b = a * 2
        c = h(b, k=3)
        return b + c

    return g(x) + g(x + 1)


@breaking
def in_a_loop(x):
    for i in range(30):
        x = x + i
        if x.sum().item() > 1e9:
            break
    return x


@breaking
def in_a_with_block(x):
    with torch.no_grad():
        y = x * 2
        v = y.sum().item()
        z = y + v
        inside = torch.is_grad_enabled()
    return z, inside, torch.is_grad_enabled()


@breaking
def in_keyword_argument(x):
    return dict(a=x.sum().item(), b=2)["a"] + x


@breaking
def in_an_except_block(x):
    try:
        {}["q"]
    except KeyError as e:
        y = x * 2
        v = y.sum().item()
        s = str(e)
        try:
            raise RuntimeError("second")
        except RuntimeError as inner:
            context = type(inner.__context__).__name__
    return y + v, s, context


@breaking
def broken_call_raises(x):
    y = x + 1
    try:
        y = y.view(7, 7)
    except RuntimeError as e:
        return y * 2, type(e).__name__
    return y


@breaking
def live_generator(x):
    def g():
        n = 0
        while True:
            yield x + n
            n += 1

    it = g()
    a = next(it)
    v = a.sum().item()
    b = next(it)
    return a + b + v


@breaking
def cells_and_break(x):
    n = 1

    def g(y):
        return y * n

    a = g(x)
    v = a.sum().item()
    n = 2
    return g(a) + v


@breaking
def list_object_kept(x):
    items = [x]
    alias = items
    v = x.sum().item()
    items.append(x + v)
    return items is alias, alias


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_one_graph(fn):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    expected = fn(X.clone())
    compiled = optimize(backend, fullgraph=True)(fn)
    for _ in range(2):
        assert equal(expected, compiled(X.clone()))
    assert len(graphs) == 1
    check_graph(graphs[0])


@pytest.mark.parametrize("fn", BREAKING, ids=lambda f: f.__name__)
def test_breaks_and_goes_on(fn):
    expected = fn(X.clone())
    compiled = optimize("eager")(fn)
    for _ in range(2):
        assert equal(expected, compiled(X.clone()))
    assert torch.is_grad_enabled()


def test_capture_goes_on_around_a_break_in_a_callee():
    graphs = []

    def backend(gm, inputs):
        graphs.append([n.target for n in gm.graph.nodes if n.op.startswith("call")])
        return gm.forward

    def callee(y):
        y = y.cos()
        if y.sum() > 1000:
            y = y + 1
        return y.exp()

    def caller(x):
        x = x.sin()
        x = callee(x)
        return x.tanh()

    assert torch.equal(optimize(backend)(caller)(X), caller(X))
    assert graphs[0] == ["sin", "cos", "sum", __import__("operator").gt]
    assert ["exp"] in graphs and ["tanh"] in graphs


def test_loops_that_break_do_not_compile_for_ever():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    def fn(x):
        n = 0
        while n < 50:
            x = x * 1.01
            n += int(x.numel() > 0) if x.sum().item() < 1e9 else 1
        return x

    assert torch.allclose(optimize(backend)(fn)(X.clone()), fn(X.clone()))
    assert len(graphs) < 20


def test_first_translation_imports_nothing_heavy():
    """The hot path of a static program needs neither sympy nor torch's own compiler. Where no package gives shape
    rules, torch's meta kernels are asked, and most of them import torch._dynamo by themselves: there only the import
    of this package is looked at.
    """
    code = """
import sys, torch
from importlib.metadata import entry_points
before = set(sys.modules)
from lamina_dynamo import optimize
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
compiled = optimize("eager")(model)
if entry_points(group="lamina.shape_rules"):
    compiled(torch.randn(3, 4))
heavy = ("torch._inductor", "torch.distributed.tensor", "torch._functorch._aot_autograd")
print([m for m in heavy if m in sys.modules and m not in before])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


class _Shy:
    """Everything that looks at it by way of its attributes fails."""

    def __getattribute__(self, name):
        raise AssertionError(name)


def test_translation_reads_no_attribute_that_the_program_does_not():
    compiled = optimize("eager")(lambda x, o, n: (x + 1, o))
    shy, other = _Shy(), _Shy()
    for n, o in ((1, shy), (2, other), (3, 5), (4, shy)):
        result, back = compiled(X, o, n)
        assert torch.equal(result, X + 1) and back is o
    typed = optimize("eager")(lambda x, o: x + 1 if type(o) is int else x - 1)
    assert torch.equal(typed(X, 3), X + 1) and torch.equal(typed(X, shy), X - 1)


def test_vectors_times_matrices_in_composite_calls():
    compiled = optimize("eager", fullgraph=True)(lambda x, w: (x @ w, w.t() @ x, torch.einsum("i,ij->j", x, w)))
    x, w = torch.randn(3), torch.randn(3, 3)
    for a, b in zip(compiled(x, w), (x @ w, w.t() @ x, torch.einsum("i,ij->j", x, w))):
        assert torch.equal(a, b) and a.stride() == b.stride()
