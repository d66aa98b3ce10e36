"""More of the language and the standard library inside compiled functions: strings, numbers, closures, descriptors,
iterators, classes with unusual methods, numpy, globals and imports."""
# The programs are odd on purpose.
# ruff: noqa: B007, B008, B009, B012, B018, B023, B904, E501, E731, F524, F632, F821, F841, I001, UP031, UP032

from __future__ import annotations

import bisect
import collections
import contextlib
import dataclasses
import datetime
import enum
import fractions
import functools
import importlib.util
import inspect
import itertools
import json
import math
import operator
import os
import pathlib
import random
import re
import string
import sys
import textwrap
import threading
import time
import types
import typing
import weakref

import numpy as np
import pytest
import torch
from torch import nn

_spec = importlib.util.spec_from_file_location("e2e_judge", pathlib.Path(__file__).with_name("judge.py"))
judge = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(judge)
book = judge.Book(backend="eager")
ones = lambda *s: lambda: (torch.ones(*s or (2,)),)


@book.calls(ones())
def string_methods_and_formats(x):
    n = x.shape[0]
    s = f"layer_{n}.weight"
    a, _, b = s.partition("_")
    return (x + len(s), s.split("."), s.upper(), s.replace("a", "o", 1), a, b, "%05.2f|%s|%d" % (1.5, "q", n), "{:>6}|{k!r}".format("a", k=[1]), s[::-1], s.startswith(("x", "l")),
            "-".join(str(i) for i in range(3)), s.find("w"), "abc" < "abd", "a" * 3, s.encode(), b"ab".hex(), s.title(), ord("a"), chr(98), "x" in s, s.rjust(20, "*"), f"{n:>4}{1e-7:.3g}{True!s:>6}", repr("a'b"), ascii("é"), s.isidentifier(), "a,b,,c".split(","), " a ".strip(), "%(k)s" % {"k": 5}, str(None), "\t".expandtabs(4), s.removesuffix("weight"), string.capwords("a b"), textwrap.dedent("  a"), re.sub(r"\d+", "#", s), re.match(r"(\w+)_(\d+)", s).groups(), json.dumps({"a": [1, None, True]}), json.loads("[1, 2.5]"))


@book.calls(ones())
def numbers_of_python(x):
    i, f = x.shape[0] * 5, 2.5
    return (x * i, i // 3, -i // 3, i % -3, divmod(-i, 3), i**-1, f // 0.7, -f % 0.7, round(2.5), round(3.5), round(-2.567, 2), round(1234, -2), int(-2.7), int("ff", 16), float("1e3"), float("inf") > 1e308, 0.1 + 0.2, abs(-3), pow(3, 4, 5), math.floor(-f), math.ceil(f), math.trunc(-f), math.gcd(12, 18), math.isqrt(17), math.sqrt(2), math.log(8, 2), math.log2(8), math.exp(1), math.pi, math.inf, math.isnan(math.nan), math.fsum([0.1] * 10), math.prod([1, 2, 3]), math.copysign(1, -0.0), math.hypot(3, 4), math.comb(5, 2), math.perm(5, 2), math.factorial(5), math.dist((0, 0), (3, 4)), math.fmod(-5, 3), math.remainder(5, 3), math.modf(2.5), math.frexp(8.0), math.degrees(math.pi), i.bit_length(), (10).to_bytes(2, "big"), (2.5).as_integer_ratio(), (3.0).is_integer(), complex(1, 2) * 1j, (1 + 2j).conjugate(), abs(3 + 4j), 5 & 3, 5 | 3, 5 ^ 3, ~5, 1 << 10, -8 >> 1, 1_000, True + True, hex(255), bin(5), oct(8), fractions.Fraction(1, 3) + 1 == fractions.Fraction(4, 3), sum([1, 2], 10), min(3, 1, 2), max([1, 5], key=lambda v: -v), max("ab", "c", key=len), 2**100, 10**20 // 7, hash(1) == hash(1.0), 1 == True, math.isclose(0.1 + 0.2, 0.3), sys.maxsize + 1, int.from_bytes(b"\x01\x00", "big"), 7 .__add__(3), float.hex(1.5), (1).real, (5).__class__ is int, isinstance(True, int), operator.mul(2, 3), math.ulp(1.0) > 0, math.nextafter(1.0, 2.0) > 1)


@book.calls(ones())
def itertools_and_functools(x):
    it = itertools.chain([1], (2, 3), "a")
    add = functools.reduce(lambda a, b: a + b, [x, x, x])

    @functools.wraps(len)
    def w(v):
        return 3

    @functools.lru_cache(maxsize=2)
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    @functools.singledispatch
    def kind(v):
        return "other"

    @kind.register
    def _(v: int):
        return "int"

    @kind.register(list)
    def _(v):
        return "list"

    @functools.total_ordering
    class V:
        def __init__(self, v):
            self.v = v

        def __eq__(self, o):
            return self.v == o.v

        def __lt__(self, o):
            return self.v < o.v
    c = itertools.count(10, 5)
    return (add, list(it), w.__name__, fib(12), kind(3), kind([]), kind(2.0), V(1) >= V(0), [next(c) for _ in range(3)], list(itertools.takewhile(lambda v: v < 3, [1, 2, 5, 1])), list(itertools.dropwhile(lambda v: v < 3, [1, 2, 5, 1])), list(itertools.chain.from_iterable([[1], [2]])), list(itertools.combinations("abc", 2)), list(itertools.accumulate([3, 1, 2], max)), sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a)), operator.attrgetter("v")(V(4)), operator.methodcaller("upper")("a"), operator.itemgetter(1, 2)([5, 6, 7]), bisect.bisect_left([1, 3, 5], 3), [k for k, g in itertools.groupby("aab")], list(map(lambda a, b: a * b, [1, 2], [3, 4])), list(filter(None, [0, 1, "", "a"])), list(zip("ab", [1, 2], strict=True)), list(enumerate("ab", 1)), all([]), any([]), list(reversed(range(3))))


@book.calls(ones())
def zip_strict_and_iterator_errors(x):
    out = []
    for f in (lambda: list(zip([1], [1, 2], strict=True)), lambda: next(iter([])), lambda: [].pop(), lambda: {}.popitem(), lambda: {}["a"], lambda: [1].index(2), lambda: [1].remove(5), lambda: set().pop(), lambda: int("x"), lambda: (1, 2)[5], lambda: "a" + 1, lambda: 1 / 0, lambda: 5 % 0, lambda: math.sqrt(-1), lambda: None.foo, lambda: undefined_name, lambda: (lambda a: a)(), lambda: (lambda: 0)(1), lambda: (lambda *, k: k)(k=1, j=2), lambda: len(5), lambda: iter(5), lambda: 5(), lambda: [1, 2] < [1, "a"], lambda: "%d" % "a", lambda: "{}".format(), lambda: max([]), lambda: dict([1]), lambda: [0] * "a", lambda: {[]: 1}, lambda: range(1, 2, 0), lambda: x.zz, lambda: chr(-1), lambda: "a".index("b"), lambda: float("a"), lambda: tuple(3), lambda: super().foo, lambda: sorted([1, "a"]), lambda: sum(["a"]), lambda: isinstance(1, 2), lambda: setattr(1, "a", 2), lambda: object().a, lambda: math.factorial(-1), lambda: [][0], lambda: bytes([300]), lambda: int.__add__("a", 1), lambda: next(x for x in ())):
        try:
            out.append(f())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    try:
        a, b = [1, 2, 3]
    except ValueError as e:
        out.append(str(e))
    try:
        a, b, *c = [1]
    except ValueError as e:
        out.append(str(e))
    return x + 1, out


class Vec:
    __slots__ = ("t", "__weakref__")
    __match_args__ = ("t",)

    def __init__(self, t):
        self.t = t

    def __getattr__(self, k):
        if k.startswith("plus"):
            return lambda: self.t + int(k[4:])
        raise AttributeError(k)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return ("tf", func.__name__)

    def __bool__(self):
        return False

    def __enter__(self):
        return self.t

    def __exit__(self, *a):
        return True

    def __iter__(self):
        yield self.t
        yield 5

    def __contains__(self, v):
        return v == 3

    def __repr__(self):
        return "Vec!"

    def __setitem__(self, k, v):
        self.t = self.t + v

    def __delitem__(self, k):
        self.t = self.t * 0

    def __missing__(self, k):
        return k

    def __del__(self):
        pass

    def __lshift__(self, o):
        return ("<<", o)

    def __rpow__(self, o):
        return ("pow", o)

    def __divmod__(self, o):
        return "dm"

    def __abs__(self):
        return "abs"

    def __invert__(self):
        return "inv"

    def __complex__(self):
        return 1j

    def __trunc__(self):
        return 7

    def __reversed__(self):
        return iter("rev")

    def __dir__(self):
        return ["a"]

    def __sizeof__(self):
        return 5

    def __hash__(self):
        return 11


@book.calls(ones())
def unusual_special_methods(x):
    v = Vec(x)
    a, b = v
    v[0] = 5
    with v as t:
        raise ValueError
    match v:
        case Vec(t=q):
            m = q
    r = v.t
    del v["k"]
    return r, v.t, a, b, v.plus7(), bool(v), 3 in v, repr(v), f"{v}", str([v]), v << 2, 2**v, divmod(v, 1), abs(v), ~v, complex(v), math.trunc(v), list(reversed(v)), dir(v), torch.add(v, 1), t, m, hash(v), "yes" if v else "no", not v, {v: 1}[v], weakref.ref(v)() is v


class DictLike(dict):
    def __missing__(self, k):
        return k * 2

    def __getitem__(self, k):
        return ("got", super().__getitem__(k))

    def __setitem__(self, k, v):
        super().__setitem__(k, v + 1)


class ListLike(list):
    def append(self, v):
        super().append(v * 10)

    def total(self):
        return sum(self)


class StrLike(str):
    def shout(self):
        return self.upper() + "!"


class IntLike(int):
    def __add__(self, o):
        return IntLike(int(self) + int(o) + 100)


class TupleLike(tuple):
    def __new__(cls, *a):
        return super().__new__(cls, a)

    def first(self):
        return self[0]


class FloatLike(float):
    unit = "m"


class SetLike(set):
    def add(self, v):
        super().add(v)
        super().add(-v)


@book.calls(ones())
def subclasses_of_builtins(x):
    d = DictLike(a=1)
    d["b"] = 2
    e = ListLike([1])
    e.append(2)
    s = SetLike()
    s.add(3)
    t = TupleLike(x, 2)
    return (t.first() + 1, d["a"], d["zz"], d.get("b"), dict(d), e, e.total(), StrLike("hi").shout(), IntLike(3) + 4, type(IntLike(1) + 1).__name__, FloatLike(2.5) * 2, FloatLike(1).unit, sorted(s), len(t), isinstance(t, tuple), StrLike("a") == "a", {StrLike("k"): 1}["k"], x * IntLike(3), x * FloatLike(0.5), d | {"q": 1}, e + [1], type(e + [1]).__name__, type(e[:]).__name__, e == [1, 20], list(d.items()))


@book.build()
def user_objects_from_outside_change():
    class State:
        pass

    st = State()
    st.items, st.n, st.child, st.t = ListLike([1]), 0, types.SimpleNamespace(v=1), torch.zeros(2)
    d, od, dq = DictLike(a=1), collections.OrderedDict(z=1), collections.deque([1, 2], maxlen=2)

    def fn(x, k):
        st.items.append(k)
        st.n -= k
        st.child.v = st.child.v * 2
        st.child.__dict__["w"] = k
        st.t = st.t + x
        st.new = [x]
        d[str(k)] = k
        od.move_to_end("z")
        od[k] = x
        dq.append(k)
        if k == 2:
            del st.n
            st.n = 100
        setattr(st, f"attr{k}", k)
        return x * st.child.v, hasattr(st, "n"), list(dq), list(od), dict(d), list(st.items), vars(st.child), st.t, sorted(vars(st))
    return fn, [(torch.ones(2), k) for k in (1, 2, 3)]


@book.calls(ones(), ones())
def numpy_round_trips(x):
    a = x.numpy()
    b = np.sqrt(a) + np.arange(a.shape[0])
    c = torch.from_numpy(b).float() * 2
    d = np.zeros((2, 2), dtype=np.int32)
    d[0, 1] = 7
    d += 1
    a[0] = 9
    return x + c, d, b.dtype, np.float32(1.5) * x, x * np.int64(3), float(np.mean(a)), np.concatenate([a, b]), torch.tensor(d), torch.as_tensor(d[0]), np.pi, d.sum(axis=0), (d > 1).any(), np.where(d > 1, d, 0), d.T.shape, d.reshape(-1)[::2], np.random.RandomState(0).rand(2), np.linalg.norm(a), np.array([1, 2.5]).tolist(), np.asarray(x), x.detach().cpu().numpy().copy(), np.einsum("i,i", a, a), np.clip(a, 0, 2), np.isnan(a).sum()


@book.calls(ones())
def comprehensions_and_scopes(x):
    n = 3
    a = [y := i * n for i in range(3)]
    b = {i: [j for j in range(i)] for i in range(3)}
    c = {k: v for d in ({"a": 1}, {"b": 2}) for k, v in d.items() if v}
    e = sum(i * j for i in range(3) for j in range(i))
    f = [[(i, j) for j in range(2)] for i in range(2)]
    g = (lambda *a, **k: (a, k))(1, *[2], **{"z": 3})

    class C:
        n = 5
        vals = [n for _ in range(2)] if False else [n]
        inner = staticmethod(lambda: n)

        def m(self):
            return __class__.__name__
    del n
    try:
        n
    except UnboundLocalError:
        h = "unbound"
    return x + y, a, b, c, e, f, g, C.vals, C().m(), h, [*range(2), *"ab"], {**{"a": 1}, "b": 2}, {*[1, 2]}, (*a, 5)


GLOBAL_COUNT = 0
GLOBAL_ITEMS: list = []


@book.build()
def globals_written_deleted_and_made():
    def fn(x):
        global GLOBAL_COUNT, GLOBAL_NEW
        GLOBAL_COUNT += 1
        GLOBAL_NEW = x * GLOBAL_COUNT
        GLOBAL_ITEMS.append(GLOBAL_COUNT)
        r = GLOBAL_NEW + 1
        del GLOBAL_NEW
        return r, GLOBAL_COUNT, "GLOBAL_NEW" in globals(), list(GLOBAL_ITEMS)

    global GLOBAL_COUNT
    GLOBAL_COUNT = 0
    GLOBAL_ITEMS.clear()
    return fn, [(torch.ones(2),)] * 3


@book.calls(ones())
def imports_inside(x):
    import math as m
    import os.path
    from collections import OrderedDict as OD
    from collections import deque

    import torch.nn.init
    from torch.nn import functional as G
    return G.relu(x) * m.floor(2.5), OD(a=1), deque([1]), os.path.join("a", "b"), torch.nn.init.calculate_gain("relu")


@book.calls(ones())
def introspection(x):
    def f(a, b=2, *c, d: int = 4, **e) -> int:
        "Doc"
        return a
    s = inspect.signature(f)
    return x + f.__code__.co_argcount, f.__name__, f.__defaults__, f.__kwdefaults__, f.__doc__, list(s.parameters), f.__annotations__, callable(f), inspect.isfunction(f), type(f).__name__, f.__qualname__.endswith("f"), f.__module__ == __name__, getattr(f, "zz", 0), isinstance(f, types.FunctionType), inspect.isclass(int), f.__closure__ is None, hasattr(x, "relu"), type(x) is torch.Tensor, isinstance(x, (int, torch.Tensor)), issubclass(nn.Linear, nn.Module), x.__class__.__name__, vars(types.SimpleNamespace(a=1)), id(x) == id(x), locals().keys() >= {"x", "f"}, globals()["GLOBAL_ITEMS"] is GLOBAL_ITEMS, typing.get_type_hints is not None


@book.calls(ones(), ones())
def attributes_on_functions_and_tensors(x):
    def f():
        f.calls = getattr(f, "calls", 0) + 1
        return f.calls
    f(), f()
    y = x + 1
    y.tag = "t"
    y.meta_info = [1]
    z = y * 2
    return z, f.calls, y.tag, hasattr(z, "tag"), y, getattr(x, "absent", None)


@book.calls(ones())
def decorators_and_nested_closures(x):
    def scale(k):
        def deco(f):
            @functools.wraps(f)
            def inner(*a, **kw):
                nonlocal k
                k += 1
                return f(*a, **kw) * k
            inner.k = lambda: k
            return inner
        return deco

    @scale(1)
    @scale(10)
    def g(v):
        return v + 1
    a = g(x)
    b = g(x)
    return a, b, g.k(), g.__name__, g.__wrapped__.k()


@book.calls(ones())
def recursion_mutual_and_through_containers(x):
    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    def flat(v):
        if isinstance(v, (list, tuple)):
            for i in v:
                yield from flat(i)
        elif isinstance(v, dict):
            for k in v:
                yield from flat(v[k])
        else:
            yield v
    table = {"add": lambda a, b: a + b, "twice": lambda a: table["add"](a, a)}
    y = lambda f: (lambda g: g(g))(lambda g: f(lambda n: g(g)(n)))
    return table["twice"](x), even(10), list(flat([1, (2, {"a": [3, 4]}), 5])), y(lambda s: lambda n: 1 if n < 2 else n * s(n - 1))(5)


@book.calls(ones())
def generators_as_pipelines(x):
    def src():
        for i in range(5):
            yield x * i

    def double(g):
        for v in g:
            yield v * 2

    def take(g, n):
        for _ in range(n):
            try:
                yield next(g)
            except StopIteration:
                return
    s = src()
    out = list(take(double(s), 2))
    rest = next(s)
    g = (v for v in out if v.dim())
    a = next(g)

    def counter():
        n = 0
        while True:
            got = yield n
            n = got if got is not None else n + 1
    c = counter()
    return out, rest, a, list(g), [next(c), next(c), c.send(10), next(c)], max(v.shape[0] for v in src()), sum(src()), dict((str(i), v) for i, v in enumerate(src()))


@book.calls(ones())
def context_managers_of_every_kind(x):
    log = []

    class A(contextlib.ContextDecorator):
        def __enter__(self):
            log.append("A+")
            return 5

        def __exit__(self, *e):
            log.append("A-")

    @A()
    def f(v):
        log.append("f")
        return v * 2

    @contextlib.contextmanager
    def gen(n):
        log.append(n)
        try:
            yield n
        except KeyError:
            log.append("key")
            raise ValueError("changed") from None
        else:
            log.append("else")
        finally:
            log.append("fin")
    y = f(x)
    with A() as five, gen(1) as one:
        y = y + five + one
    try:
        with gen(2):
            raise KeyError
    except ValueError as e:
        log.append(str(e))

    def early():
        with gen(3), contextlib.closing(types.SimpleNamespace(close=lambda: log.append("closed"))):
            return "r"
    log.append(early())
    with contextlib.ExitStack() as st:
        vals = [st.enter_context(gen(i)) for i in (7, 8)]
        st.pop_all().close()
    with threading.Lock(), contextlib.redirect_stdout(None) if False else contextlib.nullcontext():
        y = y + 1
    return y, log, vals


@book.calls(ones())
def truth_values_and_short_circuits(x):
    log = []

    def t(v, r):
        log.append(v)
        return r
    a = t(1, 0) or t(2, "") or t(3, [1]) or t(4, 5)
    b = t(5, 1) and t(6, 0) and t(7, 2)
    c = 1 < t(8, 2) < t(9, 2) < t(10, 5)
    d = not t(11, []) and True
    e = "x" if None else "y"
    return x + len(log), a, b, c, d, e, log, None is None, () == (), [] == [], bool(x.shape), x is not None and True, (x.sum() > 0).item() and "pos", None or x


@book.calls(ones())
def enums_dataclasses_and_data(x):
    class P(enum.Enum):
        A = (1, "a")
        B = (2, "b")

        def __init__(self, n, s):
            self.n, self.s = n, s

    class S(str, enum.Enum):
        ON = "on"

    @dataclasses.dataclass
    class D:
        t: torch.Tensor
        k: typing.ClassVar[int] = 3
        xs: list = dataclasses.field(default_factory=lambda: [1])

        def __add__(self, o):
            return D(self.t + o.t, self.xs + o.xs)
    d = D(x) + D(x * 2, [5])
    return d, d.k, P.A.n, P((2, "b")).s, S.ON == "on", S("on").value, f"{S.ON.value}", [p.name for p in P], P["B"] is P.B, dataclasses.replace(d, xs=[]), D.k, len(dataclasses.fields(d)), d == d, repr(P.A)


@book.check
def python_random_and_time(compile):
    def fn(x):
        r = random.Random(3)
        a = [r.random(), r.randint(0, 9), r.choice("abc"), r.sample(range(5), 2), r.gauss(0, 1)]
        xs = [1, 2, 3]
        r.shuffle(xs)
        random.seed(4)
        b = random.random(), random.choice([1, 2]), random.shuffle(xs), xs
        np.random.seed(1)
        return x * a[0], a, b, float(np.random.rand()), np.random.randint(5)
    for _ in range(2):
        want, got = judge.snapshot(fn(torch.ones(2))), judge.snapshot(compile(fn)(torch.ones(2)))
        assert not judge.difference(want, got, "r", True, None, None), judge.difference(want, got, "r", True, None, None)
    random.seed(7)
    a = [random.random() for _ in range(3)]
    random.seed(7)
    f = compile(lambda x: (x + 1, random.random()))
    assert [f(torch.ones(1))[1] for _ in range(3)] == a
    g = compile(lambda x: (x, time.time(), time.perf_counter(), datetime.datetime.now()))
    b, c = g(torch.ones(1)), g(torch.ones(1))
    assert b[1] <= c[1] and b[2] < c[2] and b[3] < c[3]
    h = compile(lambda x: (x + len(os.environ.get("LAMINA_CASE", "")), os.getpid(), os.getcwd()))
    os.environ["LAMINA_CASE"] = "abc"
    try:
        assert float(h(torch.zeros(1))[0]) == 3
        os.environ["LAMINA_CASE"] = "abcde"
        assert float(h(torch.zeros(1))[0]) == 5
    finally:
        del os.environ["LAMINA_CASE"]
    assert float(h(torch.zeros(1))[0]) == 0


@book.check
def weak_references_and_identity(compile):
    class Key:
        pass
    o, cache = Key(), weakref.WeakKeyDictionary()
    cache[o] = 5
    r = weakref.ref(o)
    f = compile(lambda x: (x + (cache[o] if o in cache else 0), r() is o, r() is None))
    assert float(f(torch.zeros(1))[0]) == 5 and f(torch.zeros(1))[1]
    cache[o] = 7
    assert float(f(torch.zeros(1))[0]) == 7
    o = Key()
    assert float(f(torch.zeros(1))[0]) == 0 and f(torch.zeros(1))[2]
    ids = compile(lambda x, y: (x is y, id(x) == id(y), x + y))
    t = torch.ones(1)
    assert ids(t, t)[:2] == (True, True) and ids(t, torch.ones(1))[:2] == (False, False) and ids(t, t)[:2] == (True, True)


@book.check
def tensors_kept_in_caches_by_identity(compile):
    memo = {}

    def fn(x):
        if x not in memo:
            memo[x] = x * 2
        return memo[x] + len(memo)
    f = compile(fn)
    a, b = torch.ones(1), torch.ones(1) * 3
    assert [float(f(t)) for t in (a, a, b, a, b)] == [3, 3, 8, 4, 8]
    assert memo[a].tolist() == [2.0] and len(memo) == 2


@book.check
def print_and_debug_helpers(compile):
    import io
    s = io.StringIO()

    def fn(x):
        print("v", x.sum().item(), file=s)
        s.write(f"{x.mean():.2f}|{x.tolist()}|{x}|{x!r:.12}|{x.shape}|{x.dtype}|{x.sum():.1e}|{x[0]:>5.1f}\n")
        return x
    f = compile(fn)
    f(torch.ones(2)), f(torch.ones(2) * 2)
    text = s.getvalue()
    s.truncate(0), s.seek(0)
    fn(torch.ones(2)), fn(torch.ones(2) * 2)
    assert text == s.getvalue(), (text, s.getvalue())


@pytest.mark.parametrize("name", book.cases)
def test_language(name):
    book.cases[name]()
