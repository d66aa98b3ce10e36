"""What Python programs do around their tensors — containers, classes, descriptors, generators, errors, modes — is done
the same way when they are compiled."""
# The programs are odd on purpose, and tables of operators read best in long lines.
# ruff: noqa: B007, B008, B012, B018, B023, B904, E501, E731, F821, F841

from __future__ import annotations

import abc
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import heapq
import importlib.util
import itertools
import operator
import pathlib
import types
import typing

import pytest
import torch

_spec = importlib.util.spec_from_file_location("e2e_judge", pathlib.Path(__file__).with_name("judge.py"))
judge = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(judge)
book = judge.Book(backend="eager")
ones = lambda *s: lambda: (torch.ones(*s or (2,)),)


# --- containers -------------------------------------------------------------------------------------------------

class Registry:
    by_name: typing.ClassVar[dict] = {}
    order: typing.ClassVar[collections.deque] = collections.deque(maxlen=3)
    seen: typing.ClassVar[set] = set()
    count = 0


@book.build()
def class_level_dict_set_deque_and_number():
    Registry.by_name.clear(), Registry.order.clear(), Registry.seen.clear()
    Registry.count = 0

    class Child(Registry):
        pass

    def fn(x, k):
        Registry.by_name[k] = x + k
        Child.order.append(k)
        Child.seen |= {k}
        Registry.count += 1
        Child.count += 10
        return x * Registry.count, Child.count, sorted(Child.seen), list(Registry.order), list(Registry.by_name)

    return fn, [(torch.ones(2), k) for k in range(5)]


@book.calls(ones(), ones())
def dict_changes_size_while_iterated(x):
    d = {"a": 1}
    try:
        for k in d:
            d[k + "b"] = 2
    except RuntimeError as e:
        return x + len(d), str(e)


@book.calls(ones())
def list_shrinks_while_iterated(x):
    a, seen = [1, 2, 3, 4, 5, 6], []
    for v in a:
        seen.append(v)
        if v % 2:
            a.remove(v)
    b, n = [1, 2, 3], 0
    it = iter(b)
    next(it)
    b.insert(0, 9)
    for v in it:
        n = n * 10 + v
    e = list(it)
    b.append(7)
    return x + n, seen, a, e, list(it)


@book.calls(ones(), ones())
def deque_methods(x):
    d = collections.deque([1, 2, 3], maxlen=4)
    d.appendleft(x)
    d.rotate(1)
    d.extend([5])
    try:
        for v in d:
            d.append(v)
    except RuntimeError as e:
        msg = str(e)
    return list(d)[0], d.maxlen, len(d), msg


@book.calls(ones())
def set_algebra(x):
    a, b = {1, 2, 3}, frozenset([3, 4])
    c = a ^ b
    a.discard(9)
    a &= {1, 3, 5}
    return (x + len(c), sorted(c), a <= {1, 3}, a.isdisjoint(b), type(b | a).__name__, {1: "a"}.keys() & a,
            {1, 2}.symmetric_difference([2, 3]), {frozenset([1])} == {b - {3, 4} | {1}})


@book.calls(ones())
def counters_and_chained_maps(x):
    c = collections.Counter("abracadabra")
    c.subtract("aab")
    m = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    m["c"] = 4
    child = m.new_child({"b": 0})
    return x * c["a"], c.most_common(2), c + collections.Counter(z=2), dict(m), child["b"], list(child), m.maps[0]


@book.calls(ones())
def default_dict_and_ordered(x):
    d = collections.defaultdict(list)
    d["k"].append(x)
    d["j"]
    o = collections.OrderedDict(a=1, b=2, c=3)
    o.move_to_end("a")
    o.move_to_end("c", last=False)
    k = o.popitem(last=False)
    return d, list(o), k, "z" in d, d.get("z"), len(d), list(reversed(o)), o == {"a": 1, "b": 2}


@book.calls(ones())
def slices_assigned_and_deleted(x):
    a = list(range(10))
    a[2:5] = [x.shape[0]]
    a[::3] = [0] * len(a[::3])
    del a[-2:]
    b = [1, 2, 3]
    b *= 2
    b[1:1] = (7, 8)
    try:
        b[::2] = [1]
    except ValueError as e:
        msg = str(e)
    return x + sum(a), a, b, b.index(3, 5), msg, b[::-1], b[10:], (1, 2) * 2 + (3,)


@book.calls(ones())
def sort_is_stable_and_keyed(x):
    a = [("b", 1), ("a", 1), ("c", 0)]
    a.sort(key=lambda p: p[1])
    b = sorted(a, key=operator.itemgetter(1, 0), reverse=True)
    h = [5, 2, 8]
    heapq.heapify(h)
    heapq.heappush(h, 1)
    return x + heapq.heappop(h), a, b, max(a, key=lambda p: p[1]), min([], default=3), h, sorted("hello",
            key="olhe".index)


@book.build()
def callers_containers_keep_identity():
    log, d, s = [[1], 2], {"a": [0]}, {1}

    def fn(x, log, d, s):
        inner = log[0]
        log.append(inner)
        inner.append(3)
        d["b"] = d["a"]
        d["b"].append(x)
        s.add(len(log))
        log.sort(key=str, reverse=True)
        return x, log[-1] is inner, d["a"] is d["b"], log

    return fn, [(torch.ones(2), log, d, s), (torch.ones(2), log, d, s)]


@book.calls(ones(), ones())
def nested_function_writes_nonlocal(x):
    total, parts = 0, []

    def add(n):
        nonlocal total, x
        total += n
        x = x + n
        parts.append(lambda: total)

        def deeper():
            nonlocal total
            total *= 2
        deeper()

    for i in range(3):
        add(i + 1)
    return x, total, [p() for p in parts]


@book.calls(ones())
def loop_variables_captured_late(x):
    fs = [lambda: i for i in range(3)]
    gs = [lambda i=i: i for i in range(3)]
    return x + fs[0](), [f() for f in fs], [g() for g in gs], [(i, j) for i in range(2) for j in range(i)]


@book.calls(ones())
def named_tuples(x):
    class P(typing.NamedTuple):
        a: int
        t: torch.Tensor = None

        @property
        def twice(self):
            return self.a * 2

    Q = collections.namedtuple("Q", "x y", defaults=[5])
    p = P(1, x)
    q = Q(2)._replace(x=p.twice)
    a, b = q
    return p.t + a, p._fields, q._asdict(), Q._make([1, 2]), p[0], b, isinstance(p, tuple), q == (2,
            5), hash(q) == hash((2, 5))


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @classmethod
    def first(cls):
        return next(iter(cls))

    @property
    def pretty(self):
        return self.name.title()


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Bits(enum.Flag):
    A = enum.auto()
    B = enum.auto()


@book.calls(lambda: (torch.ones(2), Color.RED), lambda: (torch.ones(2), Color.BLUE))
def enums(x, c):
    table = {Color.RED: 2, Color.BLUE: 3}
    y = x * table[c] + Level.HIGH
    return (y, c.pretty, Color["RED"] is Color(1), Color.first().value, Level.LOW < Level.HIGH, Level.HIGH + 1,
            (Bits.A | Bits.B).value,
            Bits.A in (Bits.A | Bits.B), list(Color) == [Color.RED, Color.BLUE], len(Color), c == Color.RED, str(c),
                    isinstance(c, Color))


@dataclasses.dataclass(order=True)
class Rank:
    key: float
    name: str = dataclasses.field(compare=False, default="n")
    hidden: int = dataclasses.field(repr=False, default=3)


@dataclasses.dataclass(slots=True, kw_only=True)
class Slotted:
    t: torch.Tensor
    n: dataclasses.InitVar[int] = 2

    def __post_init__(self, n):
        self.t = self.t * n


@book.calls(ones(), fullgraph=True)
def dataclasses_ordered_slotted_initvar(x):
    a, b = Rank(1.0, "x"), Rank(2.0)
    s = Slotted(t=x, n=3)
    r = dataclasses.replace(b, name="q")
    return s.t, a < b, max(a, b).key, repr(r), dataclasses.astuple(a), dataclasses.asdict(b), a == Rank(1.0,
            "other"), sorted([b, a])[0].name


@dataclasses.dataclass
class Out(collections.OrderedDict):
    logits: torch.Tensor = None
    loss: torch.Tensor = None

    def __post_init__(self):
        for f in dataclasses.fields(self):
            v = getattr(self, f.name)
            if v is not None:
                self[f.name] = v


@book.calls(ones())
def model_output_class(x):
    o = Out(logits=x + 1)
    o2 = Out(x, x.sum())
    return o, list(o2), o2["loss"] + o.logits, len(o), isinstance(o, dict)


# --- classes ----------------------------------------------------------------------------------------------------

class Attr:
    def __init__(self):
        object.__setattr__(self, "store", {})
        self.calls = 0

    def __setattr__(self, k, v):
        self.store[k] = v

    def __getattr__(self, k):
        try:
            return self.__dict__["store"][k]
        except KeyError:
            raise AttributeError(f"no {k} here") from None

    def __delattr__(self, k):
        del self.store[k]


@book.calls(ones())
def attribute_hooks(x):
    a = Attr()
    a.w = x * 2
    a.calls += 1
    del a.calls
    try:
        a.missing
    except AttributeError as e:
        msg = str(e)
    return a.w, hasattr(a, "calls"), getattr(a, "calls", 5), msg, sorted(a.store)


class Lazy:
    def __init__(self, fn):
        self.fn, self.n = fn, 0

    def __get__(self, obj, owner):
        if obj is None:
            return self
        self.n += 1
        v = obj.__dict__[self.fn.__name__] = self.fn(obj)
        return v


class Cached:
    def __init__(self, x):
        self.x, self.made = x, 0

    @functools.cached_property
    def heavy(self):
        self.made += 1
        return self.x.sum() * 2

    @Lazy
    def lazy(self):
        self.made += 10
        return self.x + 1


@book.calls(ones(), ones())
def cached_properties(x):
    c = Cached(x)
    a = c.heavy + c.heavy
    b = c.lazy + c.lazy
    return a, b, c.made, "heavy" in c.__dict__, vars(c).keys() >= {"lazy"}


class Sub:
    registry: typing.ClassVar[list] = []

    def __init_subclass__(cls, tag=None, **kw):
        super().__init_subclass__(**kw)
        cls.tag = tag
        Sub.registry.append(cls.__name__)

    def __class_getitem__(cls, k):
        return (cls.__name__, k)


@book.build()
def init_subclass_and_class_getitem():
    Sub.registry.clear()

    def fn(x):
        class A(Sub, tag="t"):
            __slots__ = ("v",)

            def __init__(self, v):
                self.v = v
        a = A(x)
        return a.v + 1, A.tag, Sub.registry, Sub[3], A["k"], A.__mro__[1] is Sub, hasattr(a, "__dict__")

    return fn, [(torch.ones(1),)]


class Num:
    def __init__(self, v):
        self.v = v

    def __add__(self, o):
        return Num(self.v + (o.v if isinstance(o, Num) else o)) if isinstance(o, (Num, int)) else NotImplemented

    def __radd__(self, o):
        return Num(self.v + o * 10)

    def __iadd__(self, o):
        self.v += 100
        return self

    def __lt__(self, o):
        return self.v < o.v

    def __eq__(self, o):
        return isinstance(o, Num) and self.v == o.v

    def __hash__(self):
        return hash(("n", self.v))

    def __index__(self):
        return self.v

    def __getitem__(self, k):
        return ("got", k)

    def __call__(self, *a, **k):
        return self.v, a, k

    def __neg__(self):
        return Num(-self.v)

    def __matmul__(self, o):
        return "mat"

    def __rmatmul__(self, o):
        return "rmat"

    def __format__(self, s):
        return f"<{s}:{self.v}>"

    def __len__(self):
        return self.v

    def __round__(self, n=None):
        return ("r", n)


@book.calls(ones(4))
def operator_methods(x):
    a, b = Num(2), Num(3)
    c = a
    c += 1
    try:
        a + "s"
    except TypeError as e:
        msg = str(e)
    d = {Num(5): "five"}
    return (x[operator.index(Num(1))], (b + 1).v, (1 + b).v, a.v, c is a, max(b, Num(9)).v, d[Num(5)], b == Num(3),
            b != Num(4), msg, b[1:2, ...],
            b(1, k=2), (-b).v, b @ 1, 1 @ b, f"{b:>3}", [0, 1, 2, 3, 4][b], range(b), round(b, 2),
                    sorted([Num(3), Num(1)])[0].v, hex(b),
            operator.index(b), sum([Num(1), Num(2)], Num(0)).v)


class Seq(collections.abc.Sequence):
    def __init__(self, *v):
        self.v = v

    def __getitem__(self, i):
        return self.v[i]

    def __len__(self):
        return len(self.v)


class Old:
    def __getitem__(self, i):
        if i > 2:
            raise IndexError
        return i * 2


class It:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


@book.calls(ones())
def iteration_protocols(x):
    s = Seq(1, 2, 3, 2)
    a, *rest = It(4)
    k = iter(lambda c=itertools.count(): next(c), 3)
    return (x + sum(Old()), list(s), s.index(2), s.count(2), 2 in s, list(reversed(s)), a, rest, list(k), 4 in Old(),
            dict(enumerate(It(2), 5)),
            list(zip(It(2), Old())), list(map(max, [1, 5], [4, 2])), any(v > 2 for v in s), next(It(0), "end"),
                    isinstance(s, collections.abc.Reversible))


class Base(abc.ABC):
    @abc.abstractmethod
    def go(self): ...

    @property
    @abc.abstractmethod
    def p(self): ...


class Impl(Base):
    p = 3

    def go(self):
        return 4


@book.calls(ones())
def abstract_classes(x):
    try:
        Base()
    except TypeError as e:
        kind = type(e).__name__
    i = Impl()
    return x * i.go() + i.p, kind, isinstance(i, Base), issubclass(Impl, Base), isinstance([], collections.abc.Sized)


class Left:
    def who(self):
        return ["left"]


class Mid(Left):
    def who(self):
        return ["mid", *super().who()]


class Right(Left):
    def who(self):
        return ["right", *super().who()]


class Both(Mid, Right):
    def who(self):
        return ["both", *super().who()]

    @classmethod
    def make(cls, *a):
        return cls(*a)

    def __init__(self, *a):
        self.a = a
        super().__init__()


@book.calls(ones())
def diamond_inheritance(x):
    b = Both.make(x, 1)
    m = b.who
    return b.a[0] + len(m()), b.who(), Mid.who(b), super(Mid, b).who(), [c.__name__ for c
            in type(b).__mro__], m.__self__ is b, m == b.who


@book.calls(ones())
def types_made_by_call(x):
    T = type("T", (Left,), {"k": 3, "who": lambda self: ["t"] + Left.who(self)})
    t = T()
    T.j = property(lambda s: s.k + 1)
    t.k = 5
    ns = types.SimpleNamespace(a=1, b=x)
    ns.c = ns.a + 1
    m = types.MethodType(lambda self, v: self.k + v, t)
    return ns.b * t.j + m(1), t.who(), T.k, repr(types.SimpleNamespace(a=1)), types.MappingProxyType({"a": 2})["a"], T.__name__, ns


class Meta(type):
    def __instancecheck__(cls, o):
        return hasattr(o, "quack")

    def __contains__(cls, v):
        return v == 7

    def __iter__(cls):
        return iter("ab")

    def __len__(cls):
        return 9

    def __getattr__(cls, k):
        return "meta " + k

    @property
    def prop(cls):
        return cls.__name__ + "!"


class Duck(metaclass=Meta):
    pass


class Quacks:
    quack = 1


@book.calls(ones())
def metaclass_protocols(x):
    return x + len(Duck), isinstance(Quacks(), Duck), isinstance(3,
            Duck), 7 in Duck, list(Duck), Duck.other, Duck.prop, bool(Duck)


@book.calls(ones())
def copies_of_objects(x):
    a = {"l": [1, x], "o": types.SimpleNamespace(v=[2])}
    b, c = copy.copy(a), copy.deepcopy(a)
    b["l"].append(5)
    c["o"].v.append(6)
    r = Rank(3.0)
    q = copy.copy(r)
    q.key = 4.0
    return a, b["l"] is a["l"], c["o"].v, c["l"][1] + 1, c["l"][1] is x, r.key, q


class ByKey:
    def __init__(self, n):
        self.n = n


@book.calls(ones())
def objects_and_functions_as_keys(x):
    a, b = ByKey(1), ByKey(1)
    d = {a: 1, b: 2, len: 3, int: 4, None: 5, (1, "a"): 6, 1.0: 7, x: 8, torch.float32: 9}
    d[True] = 70
    return x + d[b] * d[len], d[int], d[None], d[(1, "a")], d[1], len(d), d[x], d[torch.float32], a in d, ByKey(1) in d


# --- generators, context managers, errors ----------------------------------------------------------------------

@book.calls(ones(), ones())
def generator_send_throw_close(x):
    log = []

    def g(n):
        try:
            while True:
                got = yield n
                log.append(got)
                n = n + (got or 0)
        except ValueError as e:
            log.append(str(e))
            yield -1
        finally:
            log.append("closed")
        return

    a = g(1)
    v = [next(a), a.send(5), a.throw(ValueError("v"))]
    a.close()
    b = g(2)
    next(b)
    try:
        b.throw(KeyError("k"))
    except KeyError as e:
        log.append(repr(e))
    return x + sum(v), v, log


@book.calls(ones())
def yield_from_returns_value(x):
    def inner():
        r = yield 1
        yield r
        return "done"

    def outer():
        v = yield from inner()
        yield v
        yield from [7, 8]
        return x * 3

    g = outer()
    out = [next(g), g.send("s"), next(g)]
    try:
        while True:
            out.append(next(g))
    except StopIteration as e:
        return e.value, out


@contextlib.contextmanager
def noted(log, name, swallow=()):
    log.append("enter " + name)
    try:
        yield name * 2
    except swallow as e:
        log.append(f"swallowed {type(e).__name__}")
    finally:
        log.append("exit " + name)


@book.calls(lambda: (torch.ones(2), []), lambda: (torch.ones(2), []))
def context_managers_nested_and_swallowing(x, log):
    with noted(log, "a") as a, noted(log, "b", ValueError):
        x = x + len(a)
        raise ValueError("inside")
    with contextlib.ExitStack() as stack:
        stack.enter_context(noted(log, "c"))
        stack.callback(log.append, "callback")
        x = x * 2
        with contextlib.suppress(KeyError, IndexError):
            {}["q"]
            x = x * 100
    with contextlib.nullcontext(5) as five:
        x = x + five
    return x, log


class Manager:
    def __init__(self, log, answer):
        self.log, self.answer = log, answer

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, value, tb):
        self.log.append((kind.__name__ if kind else None, str(value), tb is not None))
        return self.answer


@book.calls(lambda: (torch.ones(2), []))
def exit_sees_the_error(x, log):
    with Manager(log, True):
        x = x + 1
        x = x.view(7)
    try:
        with Manager(log, False):
            raise KeyError("q")
    except KeyError as e:
        log.append(e.args)
    for i in range(3):
        with Manager(log, None):
            if i == 1:
                continue
            if i == 2:
                break
            x = x * 2
    return x, log


@book.calls(ones())
def error_context_and_notes(x):
    try:
        try:
            raise ValueError("a")
        except ValueError:
            raise KeyError("b")
    except KeyError as e:
        e.add_note("n")
        ctx, notes, sup = type(e.__context__).__name__, e.__notes__, e.__suppress_context__
    try:
        raise RuntimeError("x") from None
    except RuntimeError as e:
        none = (e.__cause__, e.__suppress_context__)
    return x, ctx, notes, sup, none


class Err(Exception):
    def __init__(self, a, *, b):
        self.a, self.b = a, b

    def __str__(self):
        return f"{self.a}/{self.b}"


@book.calls(ones())
def own_errors_caught_inside(x):
    def f(n):
        if n > 2:
            raise Err(n, b=x)
        return f(n + 1)
    try:
        f(0)
    except Err as e:
        y, s, args = e.b * e.a, str(e)[:2], e.args
    try:
        assert x.shape[0] == 5, ("message", 3)
    except AssertionError as e:
        a = e.args
    try:
        raise Err
    except TypeError as e:
        t = "b" in str(e)
    return y, s, args, a, t, "e" in locals()


@book.calls(ones())
def tensor_errors_caught_inside(x):
    out = []
    for f in (lambda: x.view(3, 3), lambda: x @ torch.ones(5), lambda: x[9], lambda: x.sum(4),
            lambda: torch.cat([x, x[None]]),
              lambda: x.expand(7), lambda: int(x), lambda: x.nope, lambda: x + "s",
                      lambda: torch.ones(2, 2).t().view(-1), lambda: bool(x),
              lambda: len(x.sum()), lambda: x.reshape(-1, 0), lambda: torch.zeros(-1), lambda: x.to("nonsense"),
                      lambda: iter(x.sum())):
        try:
            out.append(f())
        except Exception as e:
            out.append(type(e).__name__)
    return x + 1, out


@book.calls(ones())
def else_and_finally_everywhere(x):
    log = []
    for i in range(3):
        if i == 5:
            break
    else:
        log.append("for-else")
    while len(log) < 3:
        log.append("w")
    else:
        log.append("while-else")

    def f(n):
        for _ in range(2):
            try:
                if n:
                    return "try"
            finally:
                log.append("f")
                if n == 2:
                    continue
                if n == 3:
                    return "finally"
        return "end"
    return x, [f(n) for n in range(4)], log


@book.calls(lambda: (torch.ones(2), 0), lambda: (torch.ones(2), [1, 2, 3]), lambda: (torch.ones(2), {"k": 5, "z": 1}),
        lambda: (torch.ones(2), Rank(7.0, "m")),
            lambda: (torch.ones(2), "hi"), lambda: (torch.ones(2), (1, 2)))
def match_statement(x, v):
    match v:
        case 0 | 1:
            return x + 1, "num"
        case [a, *rest] if len(rest) > 1:
            return x + a, rest
        case {"k": k, **other}:
            return x + k, other
        case Rank(key=q, name="m"):
            return x * q, "rank"
        case str() as s:
            return x, s
        case (a, b):
            return x + a + b, None


@pytest.mark.parametrize("name", book.cases)
def test_capture(name):
    book.cases[name]()
