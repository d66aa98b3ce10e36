"""Programs that resemble what users report: side effects, laziness, lookups and copies that capture must keep exactly."""

# ruff: noqa: E501, E742, B006, B010, B012, B018, B019, B023, B024, F524, F632, B904, C408, E731, F841, RUF012, SIM102, SIM105, SIM107, SIM118, UP031 - the programs are written as users write them

import abc
import bisect
import collections
import contextlib
import contextvars
import copy
import dataclasses
import enum
import functools
import heapq
import itertools
import math
import operator
import random
import string
import types
import typing
import weakref

import numpy as np
import pytest
import torch
from differential import CASES, case, check

from lamina_dynamo import optimize

START = len(CASES)


# containers that live on classes, modules and closures


class Recorder:
    seen = []
    by_name = {}
    total = 0


class LoudRecorder(Recorder):
    pass


def clear_recorder():
    Recorder.seen = []
    Recorder.by_name = {}
    Recorder.total = 0
    LoudRecorder.__dict__.get("total") is not None and delattr(LoudRecorder, "total")


def recorder_args():
    clear_recorder()
    return torch.ones(2), Recorder


@case(make=recorder_args)
def class_level_dict_and_counter(x, kind):
    kind.by_name.setdefault("calls", []).append(len(kind.seen))
    kind.seen.extend(["a", "b"])
    kind.total += 2
    return x * kind.total, list(kind.seen), dict(kind.by_name), Recorder.__dict__["total"]


@case(make=recorder_args)
def class_attribute_through_instance(x, kind):
    r = LoudRecorder()
    r.seen.append(1)
    r.total += 5
    LoudRecorder.total = 9
    return x + r.total, Recorder.seen, Recorder.total, LoudRecorder.total, vars(r)


@case(make=recorder_args)
def class_list_rebound_and_deleted(x, kind):
    old = kind.seen
    kind.seen = [*old, 1]
    kind.seen += [2]
    LoudRecorder.total = 4
    del LoudRecorder.total
    return x + len(kind.seen), old, LoudRecorder.total, LoudRecorder.seen is kind.seen


class CountingModule(torch.nn.Module):
    history = []

    def __init__(self):
        super().__init__()
        self.log = []
        self.lin = torch.nn.Linear(2, 2)
        with torch.no_grad():
            self.lin.weight.fill_(0.5)
            self.lin.bias.fill_(0.25)

    def forward(self, x):
        self.log.append(tuple(x.shape))
        type(self).history.append(len(self.log))
        self.last = x
        return self.lin(x)


def counting_module():
    CountingModule.history = []
    return torch.ones(3, 2), CountingModule()


@case(make=counting_module)
def module_class_list(x, m):
    y = m(m(x))
    return y, m.log, CountingModule.history, m.last is x


@case([1, 2], {"n": 0})
def local_class_changes_closure(x, items, table):
    class Sink:
        def __init__(self):
            self.mine = items

        def put(self, v):
            nonlocal_count[0] += 1
            self.mine.append(v)
            table[v] = table.get(v, 0) + nonlocal_count[0]

        def __setitem__(self, k, v):
            table[k] = v
            items.insert(0, k)

    nonlocal_count = [0]
    s = Sink()
    s.put("a")
    s.put("a")
    s["z"] = 3
    return x + len(items), s.mine is items, nonlocal_count


@case()
def nonlocal_from_method(x):
    n = 0

    class A:
        def bump(self):
            nonlocal n
            n += 1
            return n

    def outer():
        nonlocal x
        x = x * 2
        A().bump()

    outer()
    outer()
    return x + n


# loops over what changes


@case([1, 2, 3])
def queue_grows_while_walked(x, queue):
    order = []
    for item in queue:
        order.append(item)
        if item < 4:
            queue.append(item + 3)
        x = x + item
    return x, order


@case([5, 1, 4, 2])
def list_shrinks_while_walked(x, items):
    seen = []
    for v in items:
        seen.append(v)
        if v % 2:
            items.remove(v)
    for i, v in enumerate(items):
        if i > 3:
            break
        items.append(v)
    return x + len(seen), seen, items


@case({"a": 1, "b": 2})
def dict_changes_while_walked(x, d):
    try:
        for k in d:
            d[k + "x"] = 1
    except RuntimeError as e:
        return x, str(e), d
    return x, "no error", d


@case({"a": 1, "b": 2})
def dict_values_change_while_walked(x, d):
    for k in d:
        d[k] += 1
    for k in list(d):
        del d[k]
        d[k.upper()] = len(d)
    return x + len(d), list(reversed(d.items()))


@case([1, 2, 3])
def iterator_and_zip_see_growth(x, items):
    it = iter(items)
    first = next(it)
    items.append(4)
    pairs = list(zip(it, reversed(items)))
    items.append(5)
    return x + first, pairs, list(it), operator.length_hint(iter(items))


@case(collections.deque([1, 2, 3]))
def deque_changes_while_walked(x, d):
    try:
        for v in d:
            d.append(v)
    except RuntimeError as e:
        return x, str(e), len(d)
    return x, None, len(d)


# properties and descriptors


class Celsius:
    def __init__(self, t=0.0):
        self.t = t
        self.log = []

    @property
    def fahrenheit(self):
        self.log.append("get")
        return self.t * 1.8 + 32

    @fahrenheit.setter
    def fahrenheit(self, v):
        self.log.append(("set", v))
        self.t = (v - 32) / 1.8

    @fahrenheit.deleter
    def fahrenheit(self):
        self.log.append("del")
        self.t = 0.0

    @functools.cached_property
    def slow(self):
        self.log.append("slow")
        return self.t + 1


@case()
def property_set_get_delete(x):
    c = Celsius()
    c.fahrenheit = 212.0
    a = c.fahrenheit
    c.fahrenheit += 18
    del c.fahrenheit
    try:
        c.slow2
    except AttributeError as e:
        a += len(e.name)
    return x + a, c.slow + c.slow, c.log, vars(c)


@case(make=lambda: (torch.ones(2), Celsius(4.0)))
def property_of_outside_object(x, c):
    c.fahrenheit = 50.0
    y = x * c.t
    setattr(c, "fahrenheit", 68.0)
    object.__setattr__(c, "extra", 1)
    try:
        object.__setattr__(c, "fahrenheit", 32.0)
    except AttributeError:
        c.log.append("refused")
    del c.__dict__["extra"]
    return y, c.t, c.slow, "slow" in vars(c)


class Typed:
    def __init__(self, kind):
        self.kind = kind

    def __set_name__(self, owner, name):
        self.name = name
        owner.fields = (*getattr(owner, "fields", ()), name)

    def __get__(self, obj, owner=None):
        if obj is None:
            return self
        return obj.__dict__.get(self.name, self.kind())

    def __set__(self, obj, v):
        if not isinstance(v, self.kind):
            raise TypeError(f"{self.name} wants {self.kind.__name__}")
        obj.__dict__[self.name] = v

    def __delete__(self, obj):
        obj.__dict__.pop(self.name, None)


class Record:
    a = Typed(int)
    b = Typed(str)


@case()
def descriptors_that_check(x):
    r = Record()
    r.a = 3
    try:
        r.b = 4
    except TypeError as e:
        msg = str(e)
    before = r.a
    del r.a
    return x + before, r.a, r.b, msg, Record.fields, Record.a is Record.__dict__["a"]


@case(full=False)
def property_subclass_and_read_only(x):
    class Lazy(property):
        def __get__(self, obj, owner=None):
            return super().__get__(obj, owner) if obj is not None else self

    class P:
        @Lazy
        def w(self):
            return 7

        @property
        def ro(self):
            raise AttributeError("inner")

        def __getattr__(self, name):
            return "fallback " + name

    p = P()
    try:
        p.w = 1
        text = ""
    except AttributeError as e:
        text = "refused"
    return x + p.w, p.ro, p.zzz, text


@case()
def constructors_of_descriptors(x):
    def get(self):
        return self.v

    def put(self, v):
        self.v = v

    class T:
        def __init__(self):
            self.v = 1

    T.v2 = property(get, put, None, "doc of v2")
    T.s = staticmethod(len)
    T.c = classmethod(lambda cls, k: (cls.__name__, k))
    t = T()
    t.v2 = 8
    p = T.__dict__["v2"]
    q = p.getter(lambda self: -self.v)
    T.v3 = q
    m = types.MethodType(get, t)
    return x + t.v2, T.v2.__doc__, t.s("abc"), t.c(1), T.c(2), t.v3, m(), m.__self__ is t, p.fset is put, get.__get__(t)()


# generators


@case()
def generator_interleaves(x):
    log = []

    def gen(n):
        for i in range(n):
            log.append(f"make {i}")
            got = yield i
            log.append(f"got {got}")
        log.append("end")
        return "result"

    def outer():
        r = yield from gen(2)
        log.append(r)
        yield 9

    for v in outer():
        log.append(f"use {v}")
        x = x + v
    g = gen(3)
    next(g)
    g.send("hello")
    g.close()
    return x, log


@case()
def generator_throw_and_finally(x):
    log = []

    def gen():
        try:
            while True:
                try:
                    yield len(log)
                except KeyError as e:
                    log.append(repr(e))
                    yield "handled"
        finally:
            log.append("closed")

    g = gen()
    a = next(g)
    b = g.throw(KeyError("k"))
    next(g)
    try:
        g.throw(ValueError("v"))
    except ValueError as e:
        log.append(str(e))
    return x + a, b, log, list(g)


@case()
def lazy_pipeline(x):
    log = []

    def src():
        for i in range(10):
            log.append(i)
            yield i

    evens = (v for v in src() if v % 2 == 0)
    squares = map(lambda v: v * v, evens)
    first = next(squares)
    second = next(squares)
    taken = list(itertools.islice(squares, 1))
    any_big = any(v > 30 for v in squares)
    return x + first + second, taken, any_big, log


@case(full=False)
def generator_under_modes(x):
    def gen(t):
        for _ in range(3):
            yield t * 2, torch.is_grad_enabled()

    w = torch.ones(2, requires_grad=True)
    g = gen(w)
    a, f0 = next(g)
    with torch.no_grad():
        b, f1 = next(g)
    with torch.inference_mode():
        f2 = next(g)[1]
    return x.sum() + a, b, f0, f1, f2, a.requires_grad, b.requires_grad


@case()
def context_manager_generator_state(x):
    @contextlib.contextmanager
    def frozen(tag):
        log.append("in " + tag)
        prev = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        try:
            yield tag
        except ZeroDivisionError:
            log.append("swallowed")
        finally:
            torch.set_grad_enabled(prev)
            log.append("out " + tag)

    log = []
    with frozen("a") as t:
        y = x * 2
        log.append(torch.is_grad_enabled())
        1 / 0
    with frozen("b"):
        y = y + 1
    return y, log, t, torch.is_grad_enabled()


@case()
def generator_returned_and_used_later(x):
    state = {"n": 0}

    def gen():
        for i in range(4):
            state["n"] += 1
            yield x + i

    g = gen()
    next(g)
    return g, state


# class statements


@case()
def local_class_everything(x):
    registry = []

    class Meta(type):
        def __new__(mcls, name, bases, ns, tag=None):
            cls = super().__new__(mcls, name, bases, ns)
            cls.tag = tag
            registry.append(name)
            return cls

        def __contains__(cls, v):
            return v in cls.allowed

    class A(metaclass=Meta, tag="first"):
        allowed = (1, 2)

        def __init_subclass__(cls, /, mult=1, **kw):
            super().__init_subclass__(**kw)
            cls.mult = mult

        @property
        def size(self):
            return len(self.allowed) * self.mult

    class B(A, tag="second", mult=3):
        allowed = (*A.allowed, 4)

        def __class_getitem__(cls, item):
            return (cls.__name__, item)

    return x + B().size, registry, B.tag, A.tag, 4 in B, B[3], [c.__name__ for c in B.__mro__]


@case()
def metaclass_prepare(x):
    class Ordered(type):
        @classmethod
        def __prepare__(mcls, name, bases, **kw):
            return {"injected": 40}

        def __new__(mcls, name, bases, ns):
            names = [k for k in ns if not k.startswith("__")]
            cls = super().__new__(mcls, name, bases, dict(ns))
            cls.names = names
            return cls

    class T(metaclass=Ordered):
        b = injected + 2  # noqa: F821
        a = 1

        def f(self):
            return self.b

    return x + T().f(), T.names


@case()
def metaclass_prepare_custom_dict(x):
    class Multi(dict):
        def __setitem__(self, k, v):
            if k in self and not k.startswith("__"):
                super().__setitem__(k + "_again", v)
            else:
                super().__setitem__(k, v)

    class M(type):
        @classmethod
        def __prepare__(mcls, name, bases):
            return Multi()

    class T(metaclass=M):
        a = 1
        a = 2

    return x + T.a, T.a_again


@case()
def enum_made_inside(x):
    class Color(enum.Enum):
        RED = 1
        GREEN = 2
        ALSO_RED = 1

        @property
        def half(self):
            return self.value / 2

    class Perm(enum.Flag):
        R = enum.auto()
        W = enum.auto()

    rw = Perm.R | Perm.W
    return x + Color.GREEN.half, Color(1).name, Color["GREEN"].value, [c.name for c in Color], Color.ALSO_RED is Color.RED, Perm.R in rw, rw.value


@case()
def int_enum_made_inside(x):
    class Level(enum.IntEnum):
        LOW = 1
        HIGH = enum.auto()

    return x * Level.HIGH, Level.HIGH > Level.LOW, sorted(Level, reverse=True)[0].name, Level(2) is Level.HIGH, isinstance(Level.LOW, int)


@case(full=False)
def named_tuple_function(x):
    P = collections.namedtuple("P", "a b", defaults=[5])
    p = P(1)._replace(a=3)
    return x + p.a, p._asdict(), p == (3, 5), P._fields


@case(full=False)
def named_tuple_statement(x):
    class Q(typing.NamedTuple):
        u: torch.Tensor
        n: int = 2

        def twice(self):
            return self.u * self.n

    q = Q(x)
    u, n = q
    return q.twice(), Q._fields, u is x, n


@case(full=False)
def dataclass_made_inside(x):
    @dataclasses.dataclass(order=True)
    class D:
        rank: int
        name: str = dataclasses.field(default="n", compare=False)
        items: list = dataclasses.field(default_factory=list, repr=False)

    @dataclasses.dataclass(frozen=True)
    class F:
        a: int = 1
        b: dataclasses.InitVar[int] = 3

        def __post_init__(self, b):
            object.__setattr__(self, "c", self.a + b)

    a, b = D(1), D(2, "z")
    a.items.append(b)
    f = F(2, 9)
    return x + f.c, a < b, repr(b), dataclasses.asdict(b), max(a, b).name, [d.name for d in dataclasses.fields(F)], len(a.items)


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    w: float
    tags: tuple = ()


@dataclasses.dataclass(frozen=True)
class Cfg:
    scale: float = 2.0
    tags: list = dataclasses.field(default_factory=list)
    nested: Slotted = Slotted(1.0)


@dataclasses.dataclass(kw_only=True)
class Opts(collections.abc.Sized):
    n: int
    cfg: Cfg = dataclasses.field(default_factory=Cfg)
    LIMIT: typing.ClassVar[int] = 10

    def __len__(self):
        return self.n


@case()
def frozen_dataclass_operations(x):
    c = Cfg()
    try:
        c.scale = 3.0
    except dataclasses.FrozenInstanceError as e:
        text = str(e)
    d = dataclasses.replace(c, nested=Slotted(4.0, ("q",)))
    o = Opts(n=3, cfg=d)
    e = copy.deepcopy(o)
    s = {Slotted(1.0), Slotted(1.0), Slotted(2.0)}
    return x * o.cfg.nested.w, text, c == Cfg(), d == c, dataclasses.asdict(o), dataclasses.astuple(d), len(o), e == o, e.cfg is o.cfg, len(s), hash(Slotted(2.0)) == hash(Slotted(2.0)), o


@case(make=lambda: (torch.ones(2), Opts(n=2)))
def dataclass_from_outside(x, o):
    o.n += 1
    o.cfg.tags.append(o.n)
    q = dataclasses.replace(o, n=9)
    return x * q.n, q.cfg is o.cfg, {f.name: getattr(o, f.name) for f in dataclasses.fields(o)}, o.LIMIT, repr(q)


# __new__, metaclass calls, singletons


class Single:
    instance = None

    def __new__(cls, *a):
        if cls.instance is None:
            cls.instance = super().__new__(cls)
        return cls.instance

    def __init__(self, v):
        self.v = v


class CachedMeta(type):
    def __call__(cls, *args):
        key = (cls, args)
        if key not in cls.cache:
            cls.cache[key] = super().__call__(*args)
        return cls.cache[key]

    def __getitem__(cls, n):
        return [cls(i) for i in range(n)]

    @property
    def kind(cls):
        return cls.__name__ + "!"

    def __instancecheck__(cls, obj):
        return hasattr(obj, "v")


class Cached(metaclass=CachedMeta):
    cache = {}

    def __init__(self, v):
        self.v = v


class OtherType:
    def __new__(cls, v):
        return [v]

    def __init__(self, v):
        raise RuntimeError("not reached")


class Tup(tuple):
    def __new__(cls, a, b):
        self = super().__new__(cls, (a, b))
        self.extra = a
        return self

    @property
    def total(self):
        return sum(self)


class Meters(float):
    def __new__(cls, v, unit="m"):
        self = float.__new__(cls, v)
        self.unit = unit
        return self

    def __add__(self, other):
        return Meters(float(self) + float(other), self.unit)


class Name(str):
    def __new__(cls, v):
        return super().__new__(cls, v.title())

    def shout(self):
        return self.upper() + "!"


class Count(int):
    def __new__(cls, v):
        return super().__new__(cls, v + 1)

    def __iadd__(self, o):
        return Count(int(self) + o)


def fresh_singletons():
    Single.instance = None
    Cached.cache = {}
    return (torch.ones(2),)


@case(make=fresh_singletons)
def singleton_new(x):
    a = Single(1)
    b = Single(2)
    return x + a.v, a is b, Single.instance is a


@case(make=fresh_singletons)
def caching_metaclass(x):
    a = Cached(3)
    many = Cached[2]
    return x + a.v, Cached(3) is a, Cached.kind, len(Cached.cache), isinstance(a, Cached), isinstance(3, Cached), many[1].v


@case()
def new_returns_other_things(x):
    o = OtherType(4)
    t = Tup(2, 3)
    m = Meters(1.5) + 2
    n = Name("ada lovelace")
    c = Count(3)
    c += 4
    a, b = t
    return x + t.total + m, o, t.extra, t == (2, 3), t + (1,), m.unit, type(m), n.shout(), n, c, type(c), a, t


class LazyNew:
    def __new__(cls, *args, **kw):
        self = object.__new__(cls)
        self.args = args
        return self

    def __reduce__(self):
        return (LazyNew, (1, 2))

    def __copy__(self):
        return LazyNew("copied")


@case()
def new_without_init(x):
    a = LazyNew(x, 3)
    b = copy.copy(a)
    c = copy.deepcopy(a)
    return a.args[0] + 1, b.args, c.args


# missing names, conversions


class Fallback:
    def __getattr__(self, name):
        if name.startswith("d"):
            return len(name)
        raise AttributeError(f"no {name} here")

    def __missing__(self, k):
        return k


class Missing(dict):
    def __missing__(self, key):
        self[key] = len(self)
        return self[key]


@case({"a": 1}, [1, 2], (3,), "text")
def lookups_that_fail(x, d, lst, tup, s):
    out = []
    for f in (
        lambda: d["zz"],
        lambda: lst[5],
        lambda: tup[-4],
        lambda: s[9],
        lambda: int("x1"),
        lambda: float("abc"),
        lambda: lst.index(9),
        lambda: lst.remove(9),
        lambda: s.index("q"),
        lambda: Fallback().other,
        lambda: undefined_name,  # noqa: F821
        lambda: next(iter([])),
        lambda: d.pop("nope"),
        lambda: [].pop(),
        lambda: set().pop(),
        lambda: {}.popitem(),
        lambda: "a" + 1,
        lambda: None.foo,
        lambda: 1 // 0,
        lambda: 1.0 % 0,
        lambda: math.sqrt(-1),
        lambda: "%d" % "x",
        lambda: "{}".format(),
        lambda: [1, 2][1:2:0],
        lambda: tuple(5),
        lambda: len(5),
        lambda: int([1]),
        lambda: chr(-1),
        lambda: ord("ab"),
        lambda: bytes([300]),
        lambda: "abc".encode("ascii").decode("bad-codec"),
        lambda: operator.attrgetter("a.b")(x),
        lambda: operator.itemgetter(3)(lst),
        lambda: getattr(x, "shapee"),  # noqa: B009
        lambda: x.no_such(3),
        lambda: torch.no_such_function(x),
        lambda: int("9" * 3, base=2),
        lambda: range(3)[4],
        lambda: (lambda a: a)(),
        lambda: (lambda a: a)(1, b=2),
        lambda: max([]),
        lambda: sorted([1, "a"]),
        lambda: {[]: 1},
        lambda: frozenset([[]]),
        lambda: dict([1]),
        lambda: dict([(1, 2, 3)]),
        lambda: str(b"a", "ascii", 1),
        lambda: complex("z"),
        lambda: abs("a"),
        lambda: round("a"),
        lambda: "a".join([1]),
        lambda: iter(3),
        lambda: zip([1], [1, 2], strict=True).__next__() and list(zip([1], [1, 2], strict=True)),
    ):
        try:
            f()
            out.append("no error")
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return x + len(out), out


@case()
def fallbacks_that_succeed(x):
    f = Fallback()
    m = Missing(a=1)
    return x + f.depth, hasattr(f, "x"), getattr(f, "y", 5), m["q"], m.get("w"), m, "{q} {new}".format_map(m)


@case({"a": 1})
def suppressed_errors(x, d):
    with contextlib.suppress(KeyError, IndexError):
        x = x + d["a"]
        x = x + d["missing"]
        x = x + 100
    with contextlib.suppress(AttributeError):
        del x.nothing
    return x


# finally and control flow


@case([])
def finally_overrides(x, log):
    def f(n):
        for i in range(3):
            try:
                if i == n:
                    return "r"
                if n == 9:
                    raise ValueError(n)
            except ValueError:
                log.append("caught")
                continue
            finally:
                log.append(i)
                if n == 5 and i == 1:
                    break
        else:
            return "else"
        return "end"

    def g():
        try:
            return "try"
        finally:
            return "finally"  # noqa: B012

    def h():
        try:
            raise KeyError("lost")
        finally:
            return "kept"  # noqa: B012

    def k():
        while True:
            try:
                try:
                    raise OSError("a")
                finally:
                    log.append("inner")
                    break  # noqa: B012
            finally:
                log.append("outer")
        return "k"

    return x + len(log), f(1), f(5), f(9), f(7), g(), h(), k()


@case([])
def exception_chain(x, log):
    def bad():
        try:
            {}["k"]
        except KeyError as e:
            try:
                raise ValueError("v")
            except ValueError:
                log.append("second")
                raise
        finally:
            log.append("fin")

    try:
        bad()
    except ValueError as e:
        log.append((type(e.__context__).__name__, e.__cause__, e.__suppress_context__))
    try:
        try:
            raise TypeError("t")
        except TypeError as e:
            raise RuntimeError("r") from None
    except RuntimeError as e:
        log.append((type(e.__context__).__name__, e.__cause__, e.__suppress_context__))
        saved = e
    try:
        e  # noqa: F821
    except NameError as err:
        log.append(str(err)[:20])
    return x + len(log), saved


@case([])
def raises_out_with_effects(x, log):
    try:
        log.append("a")
        y = x + 1
        log.append(y)
        raise LookupError("out", len(log))
    finally:
        log.append("f")


@case([])
def nested_with_order(x, log):
    class CM:
        def __init__(self, n, swallow=False):
            self.n, self.swallow = n, swallow

        def __enter__(self):
            log.append(f"enter {self.n}")
            return self

        def __exit__(self, kind, value, tb):
            log.append(f"exit {self.n} {kind.__name__ if kind else None} {tb is not None}")
            return self.swallow

    with CM(1) as a, CM(2, True), CM(3):
        x = x + a.n
        raise ValueError("inner")
    with contextlib.ExitStack() as stack:
        stack.enter_context(CM(4))
        stack.callback(log.append, "cb")
        stack.push(CM(5, True))
        raise KeyError("z")
    for i in range(3):
        with CM(i + 6):
            if i == 0:
                continue
            if i == 1:
                break
    with contextlib.nullcontext(3) as n, contextlib.closing(type("C", (), {"close": lambda s: log.append("closed")})()):
        x = x * n
    return x


# functools.partial and friends


def mix(a, b=1, *rest, scale=1, **kw):
    return (a + b + sum(rest)) * scale, sorted(kw)


class WithPartialMethod:
    def base(self, a, b, k=1):
        return (a + b) * k

    doubled = functools.partialmethod(base, 2, k=3)

    @functools.singledispatchmethod
    def show(self, v):
        return "other"

    @show.register
    def _(self, v: int):
        return "int"

    @show.register(list)
    def _(self, v):
        return "list"

    @functools.lru_cache(None)
    def costly(self, n):
        return n * 2


@functools.singledispatch
def describe_value(v):
    return "object"


@describe_value.register(int)
@describe_value.register(float)
def _(v):
    return "number"


@describe_value.register
def _(v: torch.Tensor):
    return v * 2


@case()
def partials(x):
    p = functools.partial(mix, x, scale=2)
    q = functools.partial(p, 3, z=1)
    r = functools.partial(q, scale=5, y=0)
    table = {p: "p", q: "q", r: "r"}
    same = functools.partial(mix, x)
    return p(), q(4), r(), q.func is mix, q.args[1], r.keywords, table[q], len(table), p == same, callable(r), functools.partial(int, base=2)("101")


@case()
def partial_methods_and_dispatch(x):
    w = WithPartialMethod()
    return x + w.doubled(4), w.show(1), w.show([]), w.show("s"), describe_value(1.5), describe_value("s"), describe_value(x), functools.reduce(lambda a, b: a * b, [1, 2, 3], x)


@case()
def total_ordering_and_wraps(x):
    def deco(f):
        @functools.wraps(f)
        def inner(*a, **k):
            inner.calls += 1
            return f(*a, **k)

        inner.calls = 0
        return inner

    @functools.total_ordering
    class V:
        def __init__(self, n):
            self.n = n

        def __eq__(self, o):
            return self.n == o.n

        def __lt__(self, o):
            return self.n < o.n

    @deco
    def f(a):
        "doc"
        return a + 1

    f(x)
    return f(x), f.calls, f.__name__, f.__doc__, f.__wrapped__ is not f, V(1) <= V(1), V(2) > V(1), sorted([V(3), V(1)])[0].n, functools.cmp_to_key(lambda a, b: b - a)(1) < functools.cmp_to_key(lambda a, b: b - a)(0)


# identity


@case(make=lambda: (lambda s: (torch.ones(2), {"a": s, "b": s}, [s, s], s))([1]))
def one_object_on_many_paths(x, d, lst, s):
    d["a"].append(2)
    lst[0] = d["b"]
    d["c"] = lst
    return x + len(s), d["a"] is d["b"], lst[1] is s, d["c"][0] is s, [] is [], (s,) == (lst[0],)


@case(make=lambda: (lambda t: (t, [t], {"t": t}))(torch.ones(2)))
def tensors_on_many_paths(x, lst, d):
    a, b = lst[0], d["t"]
    y = x + 1
    z = [y, y]
    v = x.view(2)
    return y, x is a, a is b, z[0] is z[1], v is x, v.view(2) is v, x.detach() is x, x.to(torch.float32) is x, x.contiguous() is x, lst.index(a) if a is x else -1


@case()
def identity_of_new_objects(x):
    a = [x]
    b = [x]
    o = object()
    c = {"o": o, "l": a}
    f = lambda: 0
    return x + 1, a is a, a is b, c["o"] is o, c["l"] is a, f is f, id(a) == id(c["l"]), None is None, type(a) is list, x.shape is x.shape and 0, (a, a)


# numpy


@case(6, full=False)
def numpy_in_place(x, n):
    a = np.arange(n, dtype=np.float32)
    v = a[1:4]
    v *= 2
    a.put([0], [9])
    np.add(a, 1, out=a)
    a.itemset if False else None
    b = a.reshape(2, 3)
    b[0, :] = b[1, :]
    np.copyto(v, 5)
    a.partition(2)
    t = torch.from_numpy(a)
    t.add_(1)
    return x, a, b, v, t



@case(4, full=False)
def numpy_mixed(x, n):
    a = np.linspace(0, 1, n)
    b = np.where(a > 0.5, a, -a)
    c = np.concatenate([a, b]).astype(np.float32)
    c[::2] = 0
    c.sort()
    m = np.ma.masked_less(c, 0) if False else c
    d = x.numpy().copy()
    d += 1
    return torch.tensor(c) + x.sum(), a.sum().item(), b.tolist(), d, c.shape, np.float64(3.5) * 2, int(np.argmax(c))


# random


@case(full=False)
def random_everything(x):
    random.seed(3)
    a = random.random(), random.randint(1, 9), random.choice("abc"), random.sample(range(10), 3), random.gauss(0, 1)
    lst = [1, 2, 3, 4, 5]
    random.shuffle(lst)
    st = random.getstate()
    b = random.uniform(1, 2)
    random.setstate(st)
    return x * b, a, lst, b == random.uniform(1, 2), random.getrandbits(8), random.choices([1, 2, 3], weights=[1, 0, 0], k=2)


@case(full=False)
def numpy_random_everything(x):
    np.random.seed(5)
    a = np.random.rand(2)
    g = np.random.default_rng(7)
    return x + float(np.random.uniform()), a.tolist(), np.random.randint(0, 10, 3).tolist(), g.normal(), g.integers(5)


@case(full=False, make=lambda: (torch.ones(2), random.Random(4), np.random.RandomState(2)))
def random_generators_from_outside(x, rng, nprng):
    a = rng.random()
    b = rng.choice([1, 2, 3])
    c = nprng.randn()
    lst = list(range(5))
    rng.shuffle(lst)
    return x * a + b, lst, torch.full((2,), a), float(c), rng.getrandbits(16), random.Random(9).random()


@case(full=False)
def torch_random_everything(x):
    torch.manual_seed(4)
    a = torch.rand(2)
    g = torch.Generator().manual_seed(2)
    b = torch.randn(2, generator=g)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        c = torch.rand(1)
    return x[:2] + a, b, c, torch.rand(1), torch.randperm(4)


@pytest.fixture(autouse=True)
def seeded():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


# configs and proxies


class Config(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


class Locked(collections.UserDict):
    def __init__(self, *a, **k):
        self.locked = False
        super().__init__(*a, **k)
        self.locked = True

    def __setitem__(self, k, v):
        if self.locked:
            raise TypeError("locked")
        super().__setitem__(k, v)


class NestedCfg(collections.abc.Mapping):
    def __init__(self, **kw):
        for k, v in kw.items():
            self.__dict__[k] = NestedCfg(**v) if isinstance(v, dict) else v

    def __getitem__(self, k):
        try:
            return self.__dict__[k]
        except KeyError:
            raise KeyError(f"no {k}") from None

    def __iter__(self):
        return iter(self.__dict__)

    def __len__(self):
        return len(self.__dict__)


class ModelOutput(collections.OrderedDict):
    def __post_init__(self):
        pass

    def __getitem__(self, k):
        if isinstance(k, str):
            return dict(self.items())[k]
        return self.to_tuple()[k]

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


def configs():
    return torch.ones(2), Config(a=1, b={"c": 2}), Locked(m=3), NestedCfg(p=1, q={"r": 4, "s": [1]}), types.SimpleNamespace(u=1, v=None), types.MappingProxyType({"k": 7})


@case(make=configs)
def config_objects(x, c, locked, nested, ns, proxy):
    c.new = 5
    c.a += 1
    try:
        locked["m"] = 9
    except TypeError as e:
        text = str(e)
    ns.w = ns.u + 1
    y = x * c.a * locked["m"] + nested.q.r + proxy["k"] + ns.w
    del c.b
    o = ModelOutput(logits=y)
    o["extra"] = 2
    o.logits = y + 1
    merged = {**nested.q, **proxy, **locked}
    return y, text, c.nope, "b" in c, list(nested), nested.get("zz", 0), dict(nested.q), o[0], o, ns, merged, {**c}, [*nested], len(nested), nested == {"p": 1}


class Meta2(type):
    def __eq__(cls, o):
        return True

    def __hash__(cls):
        return 3


class ProxyObj:
    def __init__(self, target):
        object.__setattr__(self, "_t", target)

    def __getattribute__(self, name):
        if name == "own":
            return "mine"
        return getattr(object.__getattribute__(self, "_t"), name)

    def __setattr__(self, name, v):
        setattr(object.__getattribute__(self, "_t"), name, v)

    def __len__(self):
        return 3

    def __iter__(self):
        return iter((1, 2))

    def __bool__(self):
        return False

    def __format__(self, spec):
        return "<" + spec + ">"

    def __index__(self):
        return 1

    def __round__(self, n=0):
        return 10 + n

    def __int__(self):
        return 6

    def __float__(self):
        return 2.5

    def __hash__(self):
        return 77

    def __eq__(self, o):
        return o == 77

    def __ne__(self, o):
        return "ne"

    def __lt__(self, o):
        return ["lt"]

    def __getitem__(self, k):
        return k

    def __reversed__(self):
        return iter("zy")

    def __matmul__(self, o):
        return "mm"

    def __rpow__(self, o):
        return "rpow"

    def __divmod__(self, o):
        return "dm"

    def __invert__(self):
        return "inv"

    def __enter__(self):
        return 5

    def __exit__(self, *a):
        return True

    def __dir__(self):
        return ["b", "a"]

    def __sizeof__(self):
        return 1

    def __complex__(self):
        return 1j

    def __trunc__(self):
        return 4

    def __floor__(self):
        return 3

    def __ceil__(self):
        return 8


@case()
def dunder_protocols(x):
    t = types.SimpleNamespace(v=1)
    p = ProxyObj(t)
    p.v += 4
    with p as five:
        raise ValueError
    return x + t.v, p.own, len(p), [*p], bool(p), f"{p:abc}", [0, 9][p], round(p), round(p, 2), int(p), float(p), hash(p), p == 77, p != 1, p < 2, p[1:2], p["a", ...], list(reversed(p)), p @ 1, 2**p, divmod(p, 2), ~p, five, dir(p), complex(p), math.trunc(p), math.floor(p), math.ceil(p), range(3)[p], {77: "hit"}.get(p), operator.index(p), 2 in p, math.sqrt(p), hex(p)


class FakeClass:
    def __init__(self, cls):
        self._c = cls

    @property
    def __class__(self):
        return self._c


class Duck(abc.ABC):
    @classmethod
    def __subclasshook__(cls, c):
        return any("quack" in k.__dict__ for k in c.__mro__) or NotImplemented


class Quacker:
    def quack(self):
        return 1


class Registered:
    pass


Duck.register(Registered)


class AlwaysMeta(type):
    def __instancecheck__(cls, o):
        return o == 3

    def __subclasscheck__(cls, c):
        return c is int


class Always(metaclass=AlwaysMeta):
    pass


@case()
def isinstance_kinds(x):
    f = FakeClass(dict)
    return x, isinstance(f, dict), isinstance(f, FakeClass), f.__class__, isinstance(Quacker(), Duck), isinstance(Registered(), Duck), isinstance(1, Duck), issubclass(Quacker, Duck), isinstance(3, Always), isinstance(4, Always), issubclass(int, Always), isinstance(True, int), isinstance(x, (int, torch.Tensor)), isinstance(3, int | str), isinstance([], collections.abc.Sequence), isinstance({}, collections.abc.MutableMapping), isinstance(f, (str, FakeClass)), isinstance(Fallback(), collections.abc.Hashable), isinstance(len, collections.abc.Callable), isinstance((i for i in ()), collections.abc.Iterator)


@case()
def class_attribute_assignment(x):
    class A:
        def f(self):
            return "A"

    class B:
        def f(self):
            return "B"

    a = A()
    a.__class__ = B
    b = type("C", (A, B), {"g": lambda self: super(A, self).f(), "k": 3})()
    return x + b.k, a.f(), type(a) is B, b.f(), b.g(), isinstance(a, A)


# itertools


@case()
def more_itertools(x):
    c = itertools.count(3, 2)
    chained = itertools.chain.from_iterable([[1, 2], "ab", (v for v in [9])])
    a, b, d = itertools.tee(iter("wxyz"), 3)
    next(b)
    groups = [(k, "".join(g)) for k, g in itertools.groupby("aaabbca")]
    drop = list(itertools.dropwhile(lambda v: v < 3, [1, 2, 3, 1]))
    take = list(itertools.takewhile(str.isalpha, "ab1c"))
    cyc = itertools.cycle([1, 2, 3])
    return (
        x + next(c) + next(c), list(chained), list(zip(a, b)), list(d), groups, drop, take, [next(cyc) for _ in range(5)], list(itertools.combinations(range(4), 2)),
        list(itertools.product("ab", repeat=2)), list(itertools.accumulate([3, 1, 2], max)), list(itertools.accumulate([x, x], operator.add)), list(itertools.islice(itertools.count(), 2, 9, 3)),
        [list(g) for k, g in itertools.groupby([1, 2, 4, 5], key=lambda v: v // 3)], sum(1 for _ in itertools.repeat(None, 4)), list(map(pow, [2, 3], itertools.repeat(2))),
        list(itertools.permutations("abc"))[-1], list(itertools.starmap(lambda a, b=1: a - b, [(1,), (5, 2)])), list(itertools.zip_longest("ab", "c", [])), list(itertools.compress(range(5), itertools.cycle([True, False]))),
    )  # fmt: skip


# odds and ends of the standard library


@case([3, 1, 2], "the quick brown fox")
def stdlib_medley(x, nums, text):
    h = list(nums)
    heapq.heapify(h)
    heapq.heappush(h, 0)
    counts = collections.Counter(text.replace(" ", ""))
    dd = collections.defaultdict(list)
    for w in text.split():
        dd[len(w)].append(w)
    cm = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    od = collections.OrderedDict(a=1, b=2)
    od.move_to_end("a")
    s = sorted(nums)
    bisect.insort(s, 2)
    tmpl = string.Template("$a-$b").substitute(a=1, b=2)
    return (
        x + heapq.heappop(h), counts.most_common(2), dict(dd), cm["a"], cm["b"], list(od), s, bisect.bisect_left(s, 2), heapq.nlargest(2, nums), counts["zz"], counts - collections.Counter("the"),
        tmpl, text.title(), text.partition(" "), " ".join(reversed(text.split())), f"{3.14159:.2f} {7:>4} {'a'!r} {nums=}", "%s-%03d" % ("a", 7), math.prod(nums), math.isclose(0.1 + 0.2, 0.3), math.gcd(12, 18), divmod(-7, 2), round(2.5),
        sum(nums, 10), max(text.split(), key=len), min(nums, default=0), any([]), all([]), list(enumerate(nums, 1)), sorted(text.split(), key=lambda w: (-len(w), w)), text.translate(str.maketrans("aeiou", "*****")),
        operator.itemgetter(1, 2)(nums), operator.attrgetter("shape")(x), operator.methodcaller("upper")("a"), int.from_bytes(b"\x01\x00", "big"), (5).bit_length(), "a,b,c".rsplit(",", 1), [*range(5)][::-2], bytes([65, 66]).decode(), frozenset([1, 2]) | {3},
    )  # fmt: skip


@case()
def copies(x):
    class Node:
        def __init__(self, v):
            self.v = v
            self.kids = []

        def __deepcopy__(self, memo):
            n = Node(self.v + 1)
            memo[id(self)] = n
            n.kids = copy.deepcopy(self.kids, memo)
            return n

    root = Node(1)
    root.kids = [Node(2), root]
    c = copy.deepcopy(root)
    s = copy.copy(root)
    d = {"a": [1, x], "b": (2, [3])}
    e = copy.deepcopy(d)
    f = copy.copy(d)
    return x + c.v, c.kids[1] is c, s.kids is root.kids, e["a"][1] is x, e["b"][1] is d["b"][1], f["a"] is d["a"], c.kids[0].v


class Reduced:
    def __init__(self, a):
        self.a = a
        self.log = ["init"]

    def __reduce_ex__(self, proto):
        return (Reduced, (self.a,), {"extra": self.a + 1})


class WithState:
    def __init__(self, a):
        self.a = a
        self.cache = object()

    def __getstate__(self):
        return {"a": self.a * 10}

    def __setstate__(self, st):
        self.a = st["a"]
        self.restored = True


@case(full=False)
def copies_by_reduce(x):
    r = copy.copy(Reduced(3))
    w = copy.deepcopy(WithState(4))
    v = copy.copy(WithState(5))
    return x + r.a, r.extra, r.log, w.a, w.restored, v.a, hasattr(w, "cache")


LOCAL_VAR = contextvars.ContextVar("LOCAL_VAR", default=3)


@case(full=False)
def context_variables(x):
    token = LOCAL_VAR.set(8)
    y = x * LOCAL_VAR.get()
    LOCAL_VAR.reset(token)
    return y, LOCAL_VAR.get()


class Key:
    def __init__(self, v):
        self.v = v

    def __hash__(self):
        return self.v % 2

    def __eq__(self, o):
        return isinstance(o, Key) and self.v == o.v

    def __repr__(self):
        return f"Key({self.v})"


@case(make=lambda: (torch.ones(2), {Key(2)}), full=False)
def set_from_outside_with_own_hash(x, s):
    s.add(Key(2))
    s.add(Key(4))
    return x + len(s), Key(4) in s, s


@case(make=lambda: (torch.ones(2), {Key(1): "one", Key(3): "three"}))
def keys_with_own_hash(x, d):
    d[Key(1)] = "uno"
    d[Key(5)] = "five"
    s = {Key(2), Key(2), Key(4)}
    return x + len(d), d[Key(3)], Key(7) in d, Key(4) in s, [k.v for k in d], s - {Key(2)}, d.pop(Key(1)), {Key(8): 1}.get(Key(8)), list(d.values())


@case(full=False)
def weak_references(x):
    class O:
        pass

    o = O()
    o.t = x + 1
    r = weakref.ref(o)
    wd = weakref.WeakKeyDictionary()
    return r().t, r() is o, r


@case(3, full=False)
def matching(x, n):
    def kind(v):
        match v:
            case 0 | 1:
                return "small"
            case int(k) if k > 100:
                return f"big {k}"
            case [a, *rest]:
                return ("seq", a, rest)
            case {"op": op, **kw}:
                return (op, kw)
            case Key(v=q):
                return ("key", q)
            case str() as s:
                return s[::-1]
            case torch.Tensor():
                return v * 2
            case None:
                return "none"
            case _:
                return "?"

    return [kind(v) for v in (0, 200, [1, 2, 3], {"op": "+", "z": 1}, Key(4), "abc", x, None, 2.5, (9,))]


@case([1, 2])
def walrus_star_and_del(x, items):
    if (n := len(items)) > 1:
        first, *rest = items
    (a, (b, *c)), d = (1, (2, 3, 4)), [*items, *"xy"]
    e = {**{"q": 1}, "w": n}
    del items[0], e["q"]
    total = 0
    while (n := n - 1) >= 0:
        total += n

    def f(a, /, b, *args, c=3, **kw):
        return a, b, args, c, kw

    return x + total, first, rest, a, b, c, d, e, f(1, *[2, 3], **{"z": 1}), [y := 3, y**2], [(i, j) for i in range(3) for j in range(i) if (i + j) % 2]


PROGRAMS = CASES[START:]


@pytest.mark.parametrize(("fn", "make", "full"), [c[1:] for c in PROGRAMS], ids=[c[0] for c in PROGRAMS])
def test_like_plain_python(fn, make, full):
    check(fn, make, full)


def test_an_object_that_is_not_made_yet_can_be_guarded():
    class Entry:
        def __init__(self, x):
            super().__init__()
            self.key = 3
            self.y = x + 1

        def __hash__(self):
            return hash(self.key)  # there is none before __init__ has run

    def program(x):
        return Entry(x).y

    x = torch.ones(3)
    init = optimize("eager")(Entry.__init__)
    entry = Entry.__new__(Entry)
    init(entry, x)
    assert torch.equal(entry.y, x + 1)
    assert torch.equal(optimize("eager", fullgraph=True)(program)(x), x + 1)
