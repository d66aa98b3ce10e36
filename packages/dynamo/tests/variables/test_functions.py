"""Functions, closures, descriptors, builtins, functools, itertools inside a captured region."""

# ruff: noqa: E501, B006, B018, F524, F525, F841, UP031 - the programs are written as users write them

import copy
import functools
import inspect
import itertools
import math
import operator
import re
import types

import pytest
import torch
from differential import CASES, case, check

import lamina_dynamo

START = len(CASES)
LOG = []
COUNT = 0


def helper(a, /, b, *args, c=3, d=(), **kw):
    return (a, b, args, c, d, kw)


@case
def argument_binding(x):
    out = [helper(1, 2), helper(1, b=2), helper(1, 2, 3, 4, c=5, z=6), helper(*[1, 2], **{"c": 1, "a": 2})]
    errors = []
    for call in (
        lambda: helper(),
        lambda: helper(1),
        lambda: helper(1, 2, b=3),
        lambda: (lambda: 0)(1),
        lambda: (lambda a, b: 0)(1),
        lambda: (lambda a, b=1: 0)(1, 2, 3),
        lambda: (lambda *, k: 0)(),
        lambda: (lambda a: 0)(z=1),
        lambda: (lambda a, /: 0)(a=1),
    ):
        try:
            call()
        except TypeError as e:
            errors.append(str(e))
    return x + 1, out, errors


@case
def closures(x):
    total = 0

    def add(n):
        nonlocal total
        total += n
        return total

    def make():
        return lambda: total * 2

    f = make()
    add(2)
    add(3)
    return x + f(), total, [g() for g in [lambda i=i: i for i in range(3)]]


@case([])
def closure_returned(x, lst):
    n = 1

    def later(v, k=[1]):
        lst.append(n)
        return v + n + len(k)

    n = 5
    return later(x), later.__name__, later.__defaults__


def make_counter():
    hits = {"n": 0}
    level = 1

    def count(x):
        nonlocal level
        hits["n"] += 1
        level += 1
        return x + hits["n"] * level

    return count, hits


def test_cells_from_outside_are_written():
    import lamina_dynamo

    plain, plain_hits = make_counter()
    fn, hits = make_counter()
    lamina_dynamo.reset()
    captured = lamina_dynamo.optimize("eager", fullgraph=True)(fn)
    for _ in range(3):
        assert torch.equal(plain(torch.ones(2)), captured(torch.ones(2)))
    assert hits == plain_hits
    assert fn.__closure__[1].cell_contents == plain.__closure__[1].cell_contents


@case
def globals_written(x):
    global COUNT
    COUNT = 10
    COUNT += 1
    LOG.clear()
    LOG.append(COUNT)
    return x + COUNT, list(LOG)


@case
def recursion(x):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    return x + fact(5)


@case
def function_attributes(x):
    def f():
        """doc"""

    f.tag = 3
    f.__name__ = "renamed"
    return x + f.tag, f.__name__, f.__doc__, hasattr(f, "nothing"), f.__dict__, f.__kwdefaults__


@case
def partials(x):
    p = functools.partial(helper, 1, c=9)
    q = functools.partial(p, 2, d=7)
    return x + 1, q(5, z=1), q.args, q.keywords, q.func is helper, p(0)


@case
def reduce_and_cmp(x):
    s = functools.reduce(lambda a, b: a + b, [1, 2, 3], 10)
    o = sorted(["b", "a", "c"], key=functools.cmp_to_key(lambda a, b: (a < b) - (a > b)))
    try:
        functools.reduce(operator.add, [])
    except TypeError as e:
        text = str(e)
    return x + s, o, text


@functools.lru_cache(None)
def cached(n):
    return n * 2


@functools.singledispatch
def dispatch(v):
    return "object"


@dispatch.register
def _(v: int):
    return "int"


@dispatch.register(list)
def _(v):
    return "list"


def decorated(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        LOG.append(fn.__name__)
        return fn(*args, **kwargs) + 1

    return wrapper


@decorated
def inner(x):
    """Doc of inner."""
    return x * 2


@case
def decorators(x):
    y = inner(x)

    @decorated
    def local(v):
        return v * 3

    return (
        local(y),
        inner.__name__,
        inner.__doc__,
        local.__name__,
        cached(3) + cached(3),
        dispatch(1),
        dispatch([]),
        dispatch("s"),
    )


class Cached:
    def __init__(self):
        self.calls = 0

    @functools.cached_property
    def value(self):
        self.calls += 1
        return self.calls * 10

    @staticmethod
    def stat(a):
        return a + 1

    @classmethod
    def cls_name(cls):
        return cls.__name__

    @property
    def prop(self):
        return self.calls

    @prop.setter
    def prop(self, v):
        self.calls = v


@case
def descriptors(x):
    c = Cached()
    first, second = c.value, c.value
    c.prop = 7
    c.prop += 1
    try:
        Cached().prop.nothing
    except AttributeError as e:
        text = str(e)
    return x + first + second, c.calls, c, Cached.stat(2), c.stat(3), c.cls_name(), Cached.prop.fget is not None, text


@case(make=lambda: (torch.ones(2), Cached()))
def cached_property_outside(x, c):
    return x + c.value + c.value, c


@case
def builtins_table(x):
    return (
        x + 1, callable(len), callable(3), isinstance(True, int), isinstance(3, (str, int)), isinstance([], list | int), issubclass(bool, int),
        abs(-3), round(2.567, 2), divmod(7, 3), pow(2, 5, 7), int("12"), int("ff", 16), float("1e3"), bool([]), str(3.0), repr("a"),
        format(3.14159, ".2f"), chr(65), ord("a"), hex(255), bin(5), hash("a") == hash("a"), any([0, 1]), all([]), int is int, type(x) is torch.Tensor,
        getattr(3, "nothing", "default"), hasattr("", "upper"), next(iter([]), None), max(3, 1, 2), complex(1, 2).imag, bytes([1, 2]), tuple("ab"),
    )  # fmt: skip


@case
def builtin_errors(x):
    errors = []
    for call in (lambda: len(3), lambda: int("x"), lambda: [] < 3, lambda: "a" + 1, lambda: 1 / 0, lambda: None(), lambda: iter(3), lambda: next([]),
                 lambda: isinstance(1, 2), lambda: max([]), lambda: sum(["a"], ""), lambda: {}.nothing, lambda: float([]), lambda: chr(-1), lambda: 3 @ 4,
                 lambda: abs("a"), lambda: -[], lambda: (1).x, lambda: hash([]), lambda: "%d" % "a", lambda: "{}".format(), lambda: [1, 2] * "a"):  # fmt: skip
        try:
            call()
        except Exception as e:
            errors.append((type(e).__name__, str(e)))
    return x + 1, errors


@case
def operators_module(x):
    get = operator.itemgetter(1, 0)
    attr = operator.attrgetter("real")
    call = operator.methodcaller("upper")
    lst = [1]
    operator.setitem(lst, 0, 5)
    return (
        operator.add(x, 1),
        get([3, 4]),
        attr(3),
        call("a"),
        operator.contains([1], 1),
        operator.not_(3),
        lst,
        operator.index(True),
        operator.iadd(lst, [2]) is lst,
    )


@case
def mathematics(x):
    return (
        x * math.sqrt(4),
        math.floor(2.5),
        math.ceil(-0.5),
        math.prod([2, 3]),
        math.isnan(math.nan),
        math.pi,
        math.gcd(12, 8),
        math.inf > 3,
        math.fsum([0.1] * 3),
    )


@case
def tools(x):
    c = itertools.count(5, 2)
    cy = itertools.cycle("ab")
    ch = itertools.chain([1], (2,), "c")
    return (
        x + next(c) + next(c), [next(cy) for _ in range(3)], list(ch), list(itertools.chain.from_iterable([[1], [2]])), list(itertools.takewhile(lambda v: v < 3, [1, 3, 1])),
        list(itertools.dropwhile(lambda v: v < 3, [1, 3, 1])), list(itertools.islice(range(10), 2, 8, 3)), list(itertools.accumulate([1, 2, 3])),
        [(k, list(g)) for k, g in itertools.groupby("aabc")], list(itertools.product("ab", repeat=2)), c, list(itertools.zip_longest([1, 2], [3], fillvalue=0)),
        list(itertools.pairwise([1, 2, 3])), list(itertools.starmap(pow, [(2, 3)])), list(itertools.combinations([1, 2, 3], 2)), itertools.islice([1, 2, 3], 1, None),
    )  # fmt: skip


@case
def regular_expressions(x):
    m = re.match(r"(\w+)-(\d+)", "ab-12")
    p = re.compile("a+")
    return (
        x + int(m.group(2)),
        m.groups(),
        p.findall("aabaa"),
        re.sub("b", lambda k: k.group(0).upper(), "abc"),
        bool(p.search("zzz")),
        p.sub("-", "aab"),
    )


@case([[1], {"k": [2]}])
def copies(x, data):
    shallow, deep = copy.copy(data), copy.deepcopy(data)
    deep[0].append(9)
    shallow[1]["n"] = x
    shared = [1]
    twice = copy.deepcopy([shared, shared])
    return x + 1, deep, shallow[0] is data[0], deep[0] is data[0], twice[0] is twice[1], data


@case
def inspection(x):
    s = inspect.signature(helper)
    return (
        x + len(s.parameters),
        list(s.parameters),
        str(s),
        inspect.isfunction(helper),
        inspect.isclass(Cached),
        s.parameters["c"].default,
    )


@case
def method_objects(x):
    c = Cached()
    m = c.cls_name
    bound = types.MethodType(lambda self, v: (self.calls, v), c)
    up = str.upper
    app = [].append
    app(1)
    return (
        x + 1,
        m(),
        bound(3),
        up("a"),
        app.__self__,
        list(map(str.strip, [" a "])),
        c.cls_name == c.cls_name,
        m.__func__ is not None,
    )


@case
def printing(x):
    print("a", 1, [2, "b"], sep="|", end=".\n")
    y = x + 1
    print(f"{y.shape}")
    return y


@case
def order_of_evaluation(x):
    log = []

    def note(v):
        log.append(v)
        return v

    d = {note("k"): note("v")}
    note(1) + note(2) * note(3)
    r = note(0) and note(5) or note(6)
    q = note(1) < note(0) < note(9)
    return x + 1, log, d, r, q


@case
def walrus_and_conditions(x):
    if (n := len([1, 2])) > 1:
        y = n
    while True:
        y += 1
        if y > 5:
            break
    else:
        y = -1
    return x + y, n, [m for v in range(3) if (m := v * 2)], not [] and 3, None or "z"


class LazyModule(types.ModuleType):
    """A module that makes an attribute when it is asked for, as packages that load their parts late do."""

    def __getattr__(self, name):
        if name.startswith("number_"):
            return int(name.removeprefix("number_"))
        raise AttributeError(name)


LAZY = LazyModule("lazy")
LAZY.there = 3


@case
def module_subclasses(x):
    hx = torch.lstm_cell(x[:1, None], [x[:1, None]] * 2, *[torch.ones(4, 1)] * 2)[0]
    same = torch._VF.lstm_cell(x[:1, None], [x[:1, None]] * 2, *[torch.ones(4, 1)] * 2)[0]
    return hx - same, LAZY.there + LAZY.number_7, hasattr(LAZY, "nothing"), isinstance(LAZY, types.ModuleType)


@pytest.mark.parametrize(("name", "fn", "make", "full"), CASES[START:], ids=[c[0] for c in CASES[START:]])
def test_case(name, fn, make, full):
    check(fn, make, full)


@torch.jit.script
def scripted(q: torch.Tensor, k: int):
    return torch.sqrt(torch.tensor(q.size(-1), dtype=torch.float) * k)


def test_scripted_functions_are_followed():
    def fn(x):
        return x * scripted(x, 2), scripted

    x = torch.ones(2, 3)
    got, same = lamina_dynamo.optimize("eager", fullgraph=True)(fn)(x)
    torch.testing.assert_close(got, fn(x)[0])
    assert same is scripted


def test_traced_functions_are_not():
    def doubled(x):
        return x * 2 if x.sum() > 0 else x * 3

    traced = torch.jit.trace(doubled, torch.ones(2))
    fn = lamina_dynamo.optimize("eager")(lambda x: traced(x) + 1)
    torch.testing.assert_close(fn(-torch.ones(2)), torch.full((2,), -1.0))
