"""Objects, classes, exceptions, context managers, dataclasses, enums inside a captured region."""

# ruff: noqa: E501, B006, B018, F524, F525, F841, UP031 - the programs are written as users write them

import abc
import builtins
import collections
import contextlib
import dataclasses
import enum
import types
import typing

import pytest
import torch
from differential import CASES, case, check

START = len(CASES)


class Point:
    count = 0
    shared = []

    def __init__(self, a, b=2):
        self.a = a
        self.b = b

    def total(self):
        return self.a + self.b

    def __eq__(self, other):
        return isinstance(other, Point) and (self.a, self.b) == (other.a, other.b)

    def __hash__(self):
        return hash((self.a, self.b))

    def __repr__(self):
        return f"Point({self.a}, {self.b})"

    def __add__(self, other):
        return Point(self.a + other.a, self.b + other.b)

    def __radd__(self, other):
        return self if other == 0 else NotImplemented

    def __lt__(self, other):
        return self.a < other.a

    def __getitem__(self, i):
        return (self.a, self.b)[i]

    def __contains__(self, v):
        return v in (self.a, self.b)

    def __call__(self, v):
        return v * self.a


@case(make=lambda: (torch.ones(2), Point(1)))
def object_from_outside(x, p):
    p.a += 4
    p.new = [x]
    del p.b
    return x * p.a, hasattr(p, "b"), "new" in vars(p), list(p.__dict__)


@case
def object_made_inside(x):
    p, q = Point(1), Point(3, 4)
    r = p + q
    me = Point(0)
    me.me = me
    return (
        x + r.total(),
        r,
        sum([p, q]),
        p < q,
        p == Point(1),
        {p: 1}[Point(1)],
        p[0],
        4 in q,
        p(5),
        str([p]),
        me,
        max(p, q),
        list(q),
    )


@case
def class_attributes(x):
    Point.count = 0
    Point.count += 1
    Point.shared.append(1)
    p = Point(1)
    p.count = 9
    out = (Point.count, p.count, len(Point.shared), Point.__name__, type(p) is Point, Point.__mro__[-1] is object)
    Point.shared.clear()
    return x + 1, out


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@case(make=lambda: (torch.ones(2), Slots(1)))
def slots(x, s):
    s.b = s.a + 1
    s.a = x
    errors = []
    try:
        s.c = 1
    except AttributeError as e:
        errors.append(str(e))
    try:
        Slots(1).b
    except AttributeError as e:
        errors.append(str(e))
    t = Slots(3)
    del t.a
    return x + s.b, errors, t, hasattr(s, "__dict__")


class Magic:
    def __init__(self):
        object.__setattr__(self, "store", {})

    def __getattr__(self, name):
        if name.startswith("x"):
            return name * 2
        raise AttributeError(name)

    def __setattr__(self, name, value):
        self.store[name] = value

    def __delattr__(self, name):
        del self.store[name]


class Intercept:
    def __init__(self):
        self.seen = []

    def __getattribute__(self, name):
        if name == "seen":
            return super().__getattribute__(name)
        object.__getattribute__(self, "seen").append(name)
        return 5


@case
def attribute_hooks(x):
    m = Magic()
    m.q = 1
    m.r = 2
    del m.r
    i = Intercept()
    v = i.anything
    return x + v, m.xy, getattr(m, "nope", None), m.store, i.seen, hasattr(m, "zz")


class Base:
    registry = []

    def __init_subclass__(cls, tag=None, **kw):
        super().__init_subclass__(**kw)
        Base.registry.append((cls.__name__, tag))

    def hello(self):
        return "base"

    @classmethod
    def make(cls):
        return cls()


class Left(Base):
    def hello(self):
        return "left " + super().hello()


class Right(Base):
    def hello(self):
        return "right " + super().hello()


class Both(Left, Right):
    def hello(self):
        return "both " + super().hello()


@case
def inheritance(x):
    b = Both.make()
    return (
        x + 1,
        b.hello(),
        isinstance(b, Base),
        issubclass(Both, Right),
        [c.__name__ for c in Both.__mro__],
        super(Left, b).hello(),
    )


@case
def classes_made_inside(x):
    k = 2

    class A:
        unit = 10

        def value(self):
            return self.unit + k

    class B(A):
        unit = 20

        def value(self):
            return super().value() + 1

        @property
        def p(self):
            return self.unit

        @staticmethod
        def s():
            return "static"

    C = type("C", (B,), {"unit": 30, "extra": lambda self: self.unit})
    c = C()
    A.unit = 11
    return x + B().value(), c.extra(), c.p, C.s(), C.__name__, isinstance(c, A), A().value()


@case
def made_object_leaves(x):
    class Holder:
        def __init__(self, t):
            self.t = t

        def get(self):
            return self.t

    h = Holder(x + 1)
    return h.get() * 2, h.__class__.__name__


class Meta(type):
    def __call__(cls, *args):
        obj = super().__call__(*args)
        obj.tagged = cls.__name__
        return obj

    def __instancecheck__(cls, obj):
        return getattr(obj, "duck", False)

    @property
    def size(cls):
        return 7

    def __len__(cls):
        return 3

    def __iter__(cls):
        return iter("abc")


class WithMeta(metaclass=Meta):
    def __new__(cls, v):
        self = super().__new__(cls)
        self.made = True
        return self

    def __init__(self, v):
        self.v = v


class Duck:
    duck = True


@case
def metaclasses(x):
    w = WithMeta(3)
    return (
        x + w.v,
        w,
        isinstance(Duck(), WithMeta),
        isinstance(1, WithMeta),
        WithMeta.size,
        len(WithMeta),
        list(WithMeta),
    )


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

    @property
    def double(self):
        return self.area() * 2


class Square(Shape):
    def __init__(self, s):
        self.s = s

    def area(self):
        return self.s**2


@case
def abstract_classes(x):
    s = Square(x)
    return (
        s.double,
        isinstance(s, Shape),
        isinstance([], collections.abc.Sequence),
        isinstance({}, collections.abc.Mapping),
        issubclass(int, collections.abc.Hashable),
    )


class Ints(list):
    def append(self, v):
        super().append(int(v))

    @property
    def top(self):
        return self[-1]


class Config(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __missing__(self, key):
        return "missing " + key


class Pair(tuple):
    def __new__(cls, a, b):
        return super().__new__(cls, (a, b))

    def swap(self):
        return Pair(self[1], self[0])


class Name(str):
    def shout(self):
        return self.upper() + "!"


class Big(int):
    def __add__(self, o):
        return Big(int(self) + o + 100)


@case(make=lambda: (torch.ones(2), Ints([1]), Config(a=1)))
def builtin_subclasses(x, lst, cfg):
    lst.append("7")
    lst.extra = 3
    cfg["b"] = x
    n = Name("bob")
    p = Pair(1, 2)
    b = Big(1)
    made = Ints()
    made.append(2.5)
    return (
        x + lst.top, lst, cfg.a, cfg["zz"], list(cfg), n.shout(), n == "bob", len(n), {n: 1}["bob"], p.swap(), p == (1, 2), p + (3,), b + 1, int(b),
        made, isinstance(made, list), sorted(Ints([3, 1])), Config(q=2), [*p], f"{n:>5}", hash(n) == hash("bob"), "b" in cfg, made == [2],
    )  # fmt: skip


Coord = collections.namedtuple("Coord", "x y", defaults=[0])


class Typed(typing.NamedTuple):
    a: int
    b: str = "b"


class Movie(typing.TypedDict):
    name: str


@case(make=lambda: (torch.ones(2), Coord(1, 2)))
def named_tuples(x, c):
    d = c._replace(x=x)
    e = Typed(1)
    m = Movie(name="n")
    return (
        x + c.x,
        d,
        d._asdict(),
        e,
        e.b,
        Coord._fields,
        Coord(5),
        m,
        c == (1, 2),
        repr(c),
        [v for v in e],
        Coord._make([3, 4]),
    )


@dataclasses.dataclass
class Data:
    a: int
    b: list = dataclasses.field(default_factory=list)
    c: int = dataclasses.field(default=3, compare=False)
    d: str = dataclasses.field(init=False, default="d")

    def __post_init__(self):
        self.e = self.a * 2


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int = 1
    b: tuple = ()


@case
def data_classes(x):
    d = Data(1)
    d.b.append(x)
    e = dataclasses.replace(d, a=5)
    f = Frozen()
    try:
        f.a = 2
    except dataclasses.FrozenInstanceError as err:
        text = str(err)
    return (
        x + e.e, d.b is e.b, Data(1, [2]) == Data(1, [2], 9), f, Frozen(1) < Frozen(2), {f: 1}[Frozen()], text, repr(Data(1)), dataclasses.is_dataclass(f),
        [g.name for g in dataclasses.fields(d)], dataclasses.asdict(Data(1, [2])), dataclasses.astuple(Frozen(2)), e,
    )  # fmt: skip


class Color(enum.Enum):
    RED = 1
    GREEN = "g"

    def nice(self):
        return self.name.lower()

    @classmethod
    def first(cls):
        return cls.RED


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()


@case(make=lambda: (torch.ones(2), Color.RED, {Color.RED: "r"}))
def enums(x, c, d):
    return (
        x + Level.HIGH, c is Color.RED, c == Color.GREEN, d[c], Color("g"), Color["RED"], c.nice(), Color.first(), [m.name for m in Color], Level.LOW < Level.HIGH,
        Level(2).name, isinstance(Level.LOW, int), len(Color), Flags.A in (Flags.A | Flags.B), repr(c), f"{Level.LOW}", c in (Color.RED,), {Level.LOW: 1}.get(1), c.value,
    )  # fmt: skip


class AppError(Exception):
    def __init__(self, code, msg="m"):
        super().__init__(msg)
        self.code = code


@case([])
def exceptions(x, log):
    def fail(n):
        try:
            if n == 0:
                raise AppError(5)
            if n == 1:
                raise KeyError("k")
            if n == 2:
                return 1 / 0
            return "fine"
        except KeyError as e:
            raise ValueError("wrapped") from e
        except ZeroDivisionError:
            raise
        else:
            log.append("else")
        finally:
            log.append(f"finally {n}")

    for n in range(4):
        try:
            log.append(fail(n))
        except AppError as e:
            log.append((e.code, e.args, str(e), repr(e)))
        except (ValueError, ArithmeticError) as e:
            log.append(
                (
                    type(e).__name__,
                    str(e),
                    type(e.__cause__).__name__,
                    e.__context__ is e.__cause__,
                    e.__suppress_context__,
                )
            )
    return x + len(log)


@case
def exception_objects(x):
    e = ValueError("a", 1)
    e.add_note("note")
    e.extra = x
    try:
        raise e
    except Exception as caught:
        same = caught is e
    return x + 1, same, e.args, e.__notes__, isinstance(e, ValueError)


@case
def exception_groups(x):
    kind = getattr(builtins, "ExceptionGroup", None)
    if kind is None:
        return x + 1
    g = kind("many", [ValueError(1), TypeError(2)])
    try:
        raise g
    except Exception as e:
        caught = e
    return x + 1, str(g), len(g.exceptions), g.message, caught is g


@case([1], full=False)
def exception_leaves(x, lst):
    lst.append(x + 1)
    try:
        {}["k"]
    except KeyError as e:
        raise AppError(3, "out") from e


class Manager:
    def __init__(self, log, swallow=False):
        self.log = log
        self.swallow = swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, tb):
        self.log.append(("exit", None if kind is None else kind.__name__, str(value)))
        return self.swallow


@contextlib.contextmanager
def managed(log):
    log.append("start")
    try:
        yield len(log)
    except KeyError:
        log.append("key error")
    finally:
        log.append("end")


@case([])
def context_managers(x, log):
    with Manager(log) as m, managed(log) as n:
        y = x + n
    with Manager(log, swallow=True):
        raise ValueError("gone")
    with managed(log):
        {}["k"]
    with contextlib.suppress(IndexError):
        [][0]
    with contextlib.nullcontext(5) as five:
        y = y + five
    try:
        with Manager(log):
            raise TypeError("t")
    except TypeError:
        log.append("caught")
    return y, m.log is log


@case([])
def exit_stack(x, log):
    with contextlib.ExitStack() as stack:
        stack.enter_context(Manager(log, swallow=True))
        stack.callback(log.append, "callback")
        stack.push(lambda *exc: log.append(exc[0] is not None))
        y = x + 1
        raise ValueError("inside")
    return y, log


@case([])
def generators(x, log):
    def gen(n):
        log.append("start")
        try:
            for i in range(n):
                got = yield x + i
                log.append(got)
            return "result"
        finally:
            log.append("closed")

    def outer():
        r = yield from gen(2)
        log.append(r)

    g = gen(3)
    next(g)
    g.send("sent")
    g.close()
    total = x
    for v in outer():
        total = total + v
    try:
        next(iter(()))
    except StopIteration:
        log.append("stop")
    return total


@case(7)
def matching(x, v):
    out = []
    for subject in (1, "a", [1, 2, 3], {"k": 1, "z": 2}, Coord(1, 2), Frozen(3), (), None, Color.RED):
        match subject:
            case 1 | 2:
                out.append("small")
            case str(s):
                out.append(s)
            case [a, *rest] if len(rest) == 2:
                out.append((a, rest))
            case {"k": k, **others}:
                out.append((k, others))
            case Coord(x=a, y=b):
                out.append((a, b))
            case Frozen(a):
                out.append(a)
            case Color.RED:
                out.append("red")
            case None:
                out.append("none")
            case _:
                out.append("other")
    return x + v, out


@case(make=lambda: (torch.ones(2), types.SimpleNamespace(a=1)))
def simple_namespace(x, ns):
    ns.b = ns.a + 1
    return x + ns.b, types.SimpleNamespace(q=1), repr(ns)


class Proxy:
    @property
    def __class__(self):
        return Point


@case
def class_override(x):
    p = Proxy()
    return x + 1, isinstance(p, Point), p.__class__ is Point, type(p) is Proxy


@case([1, 2, 3])
def identity(x, lst):
    a = []
    b = {"k": a}
    p = Point(a)
    return x + 1, b["k"] is a, p.a is a, [] != a, p is p, None is None, lst is lst, (a, b, p)


@pytest.mark.parametrize(("name", "fn", "make", "full"), CASES[START:], ids=[c[0] for c in CASES[START:]])
def test_case(name, fn, make, full):
    check(fn, make, full)
