"""One program for each kind of thing that a frame can read, and what changes it: the next call must be eager's."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import types

import pytest
import torch

import lamina_dynamo

FACTOR = 2.0


class Mode(enum.Enum):
    PLUS = 1
    MINUS = 2


class Base:
    gain = 2.0

    def scale(self, x):
        return x * self.gain


class Child(Base):
    def __init__(self):
        self.table = {"a": 1.0, "b": 2.0}
        self.names = {"a", "b"}
        self.pair = (1, 2.0)
        self.mode = Mode.PLUS
        self.step = 1

    @property
    def level(self):
        return 1.0

    @staticmethod
    def static(x):
        return x + 1

    @classmethod
    def of_class(cls, x):
        return x * cls.gain


class Slotted:
    __slots__ = ("value", "maybe")


@dataclasses.dataclass
class Settings:
    rate: float = 0.5
    depth: int = 2


class Settled(dict):
    pass


def outer():
    free = 1.0
    holder = [3.0]

    def inner(x):
        return x * free + holder[0]

    def rebind(value):
        nonlocal free
        free = value

    return inner, rebind, holder


def plain(x, k=1.0):
    return x * k


def other(x, k=1.0):
    return x - k - 5


CASES = {}


def case(build):
    CASES[build.__name__] = build
    return build


@case
def closure_cell():
    inner, rebind, _ = outer()
    return inner, [lambda: rebind(2.0), lambda: rebind(torch.ones(3)), lambda: rebind(3)]


@case
def closure_list():
    inner, _, holder = outer()
    return inner, [
        lambda: holder.__setitem__(0, 4.0),
        lambda: holder.insert(0, 1),
        lambda: holder.__setitem__(0, True),
    ]


@case
def function_code():
    f = types.FunctionType(plain.__code__, globals(), "f", (2.0,))
    return (lambda x: f(x)), [
        lambda: setattr(f, "__code__", other.__code__),
        lambda: setattr(f, "__defaults__", (7.0,)),
    ]


@case
def own_code():
    def f(x, k=1.0):
        return x * k

    return f, [lambda: setattr(f, "__code__", other.__code__), lambda: setattr(f, "__defaults__", (4.0,))]


@case
def base_class_attribute():
    o = Child()
    return (lambda x: o.scale(x)), [
        lambda: setattr(Base, "gain", 5.0),
        lambda: setattr(Child, "gain", 6.0),
        lambda: setattr(o, "gain", 7.0),
        lambda: delattr(o, "gain"),
        lambda: delattr(Child, "gain"),
        lambda: setattr(Base, "scale", lambda self, x: x + 9),
        lambda: setattr(Child, "scale", lambda self, x: x + 19),
        lambda: delattr(Child, "scale"),
    ]


@case
def property_replaced():
    o = Child()
    return (lambda x: x * o.level), [
        lambda: setattr(Child, "level", property(lambda self: 3.0)),
        lambda: setattr(Child, "level", 4.0),
    ]


@case
def static_and_class_methods():
    o = Child()
    return (lambda x: o.static(x) + o.of_class(x) + Child.static(x)), [
        lambda: setattr(Child, "static", staticmethod(lambda x: x - 1)),
        lambda: setattr(Child, "of_class", classmethod(lambda cls, x: x * 11)),
        lambda: setattr(Base, "gain", 12.0),
    ]


@case
def class_of_object():
    class Twin(Base):
        gain = 30.0

        def __init__(self):
            pass

    o = Child()
    return (lambda x: o.scale(x) + isinstance(o, Child)), [lambda: setattr(o, "__class__", Twin)]


@case
def bases_of_class():
    class A:
        k = 1.0

    class B:
        k = 2.0

    class C(A):
        pass

    o = C()
    return (lambda x: x * o.k), [lambda: setattr(C, "__bases__", (B,))]


@case
def getattr_added():
    class Lazy:
        pass

    o = Lazy()
    return (lambda x: x + getattr(o, "late", 1.0)), [
        lambda: setattr(Lazy, "__getattr__", lambda self, name: 8.0),
        lambda: setattr(o, "late", 3.0),
    ]


@case
def dict_order_and_keys():
    o = Child()

    def f(x):
        for i, (key, value) in enumerate(o.table.items()):
            x = x * (i + 2) + value + len(key)
        return x

    return f, [
        lambda: o.table.__setitem__("b", o.table.pop("a")),
        lambda: o.table.__setitem__("ccc", 1.0),
        lambda: o.table.update(dict(reversed(list(o.table.items())))),
        lambda: setattr(o, "table", collections.OrderedDict(z=1.0, y=2.0)),
        lambda: o.table.move_to_end("z"),
        lambda: setattr(o, "table", Settled(q=1.5)),
    ]


@case
def dict_views_and_defaults():
    d = collections.defaultdict(lambda: 5.0, a=1.0)
    return (lambda x: x * d.get("k", 3.0) + ("k" in d) + sum(d.values())), [
        lambda: d["k"],
        lambda: d.__setitem__("k", 2.0),
        lambda: d.pop("a"),
    ]


@case
def set_contents():
    o = Child()
    return (lambda x: x * (2 if "a" in o.names else 3) + len(o.names)), [
        lambda: o.names.discard("a"),
        lambda: o.names.add("a"),
        lambda: o.names.add("c"),
        lambda: setattr(o, "names", frozenset(["a"])),
    ]


@case
def tuple_and_types():
    o = Child()
    return (lambda x: x * o.pair[0] + len(o.pair) + (type(o.pair[0]) is int)), [
        lambda: setattr(o, "pair", (1.0, 2.0)),
        lambda: setattr(o, "pair", (True, 2.0)),
        lambda: setattr(o, "pair", [1, 2.0]),
        lambda: setattr(o, "pair", (1, 2.0, 3)),
    ]


@case
def float_bits():
    box = types.SimpleNamespace(v=0.0)
    return (lambda x: torch.atan2(x.abs() * box.v, -x.abs() - 1)), [
        lambda: setattr(box, "v", -0.0),
        lambda: setattr(box, "v", 0),
        lambda: setattr(box, "v", 0.0),
        lambda: setattr(box, "v", False),
    ]


@case
def enum_member():
    o = Child()
    return (lambda x: x + 1 if o.mode is Mode.PLUS else x - 1), [lambda: setattr(o, "mode", Mode.MINUS)]


@case
def slots():
    s = Slotted()
    s.value = 2.0
    return (lambda x: x * s.value + (1 if hasattr(s, "maybe") else 0)), [
        lambda: setattr(s, "value", 3.0),
        lambda: setattr(s, "maybe", 1),
        lambda: delattr(s, "maybe"),
    ]


@case
def dataclass_fields():
    s = Settings()

    def f(x):
        for _ in range(s.depth):
            x = x * s.rate + 1
        return x

    return f, [lambda: setattr(s, "rate", 0.25), lambda: setattr(s, "depth", 3), lambda: setattr(Settings, "rate", 9.0)]


@case
def partial_arguments():
    box = [functools.partial(plain, k=2.0)]
    return (lambda x: box[0](x)), [
        lambda: box.__setitem__(0, functools.partial(plain, k=3.0)),
        lambda: box.__setitem__(0, functools.partial(other)),
        lambda: box.__setitem__(0, plain),
    ]


@case
def global_and_builtin():
    def f(x):
        return x * FACTOR + abs(-2)

    return f, [
        lambda: globals().__setitem__("FACTOR", 3.0),
        lambda: globals().__setitem__("abs", lambda v: 40),
        lambda: globals().pop("abs"),
    ]


@case
def counter():
    o = Child()
    return (lambda x: x * o.step), [lambda: setattr(o, "step", o.step + 1)] * 5


@case
def module_contents():
    m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
    return m, [
        lambda: m.append(torch.nn.Sigmoid()),
        lambda: m.__setitem__(1, torch.nn.ReLU()),
        lambda: m.pop(2),
        lambda: m[0].register_parameter("bias", None),
        lambda: setattr(m[0], "weight", torch.nn.Parameter(torch.randn(3, 3).t())),
        lambda: setattr(m[0], "weight", torch.nn.Parameter(torch.randn(5, 3))),
        lambda: m[0].register_forward_hook(lambda mod, a, out: out * 2),
        lambda: m[0]._forward_hooks.clear(),
        lambda: torch.nn.utils.parametrizations.weight_norm(m[0]),
    ]


@case
def module_dtype():
    m = torch.nn.Linear(3, 3)
    return (lambda x: m(x.to(m.weight.dtype))), [lambda: m.double(), lambda: m.requires_grad_(False), lambda: m.float()]


@case
def tied_weights():
    a, b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    return (lambda x: a(x) * 2 if a.weight is b.weight else b(a(x))), [lambda: setattr(b, "weight", a.weight)]


@case
def buffers():
    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))
            self.register_buffer("late", None)

        def forward(self, x):
            y = x + self.seen
            return y if self.late is None else y * self.late

    m = M()
    return m, [
        lambda: setattr(m, "seen", torch.ones(1)),
        lambda: setattr(m, "late", torch.full((3,), 2.0)),
        lambda: setattr(m, "late", None),
        lambda: m.seen.add_(1),
        lambda: setattr(m, "seen", torch.ones(3, dtype=torch.float64)),
    ]


@case
def default_dtype():
    return (lambda x: x + torch.zeros(3)), [
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_dtype(torch.float32),
    ]


@pytest.fixture(autouse=True)
def restored():
    saved = dict(Base.__dict__), dict(Child.__dict__)
    yield
    for cls, before in zip((Base, Child), saved):
        for name in set(vars(cls)) - set(before):
            delattr(cls, name)
        for name in ("gain", "scale", "level", "static", "of_class"):
            if name in before and vars(cls).get(name) is not before[name]:
                setattr(cls, name, before[name])
    Settings.rate = 0.5
    globals()["FACTOR"] = 2.0
    globals().pop("abs", None)
    torch.set_default_dtype(torch.float32)
    lamina_dynamo.reset()


def outcome(f, *args):
    try:
        torch.manual_seed(0)
        return f(*args)
    except Exception as e:
        return type(e)


def same(have, want):
    if isinstance(want, torch.Tensor):
        assert have.requires_grad == want.requires_grad
        torch.testing.assert_close(have, want, check_stride=True)
        assert torch.equal(torch.signbit(have), torch.signbit(want))
    else:
        assert have == want


@pytest.mark.parametrize("name", CASES)
def test_change(name):
    f, changes = CASES[name]()
    compiled = lamina_dynamo.optimize("eager")(f)
    x = torch.randn(2, 3)
    same(outcome(compiled, x), outcome(f, x))
    for change in changes:
        change()
        for _ in range(2):
            same(outcome(compiled, x), outcome(f, x))


INPUTS = {
    "dtype": lambda x: x.double(),
    "integer": lambda x: x.to(torch.int64),
    "shape": lambda x: torch.randn(4, 3),
    "rank": lambda x: torch.randn(2, 2, 3),
    "scalar": lambda x: torch.tensor(2.0),
    "empty": lambda x: x[:0],
    "transposed": lambda x: torch.randn(3, 2).t(),
    "sliced": lambda x: torch.randn(2, 6)[:, ::2],
    "expanded": lambda x: torch.randn(3).expand(2, 3),
    "requires grad": lambda x: x.clone().requires_grad_(),
    "parameter": lambda x: torch.nn.Parameter(x),
    "number": lambda x: 3.0,
    "conjugate": lambda x: torch.complex(x, x).conj(),
    "negative view": lambda x: torch.complex(x, x).conj().imag,
}


@pytest.mark.parametrize("name", INPUTS)
def test_other_input(name):
    def f(x):
        y = x * 2 + 1
        return y, torch.is_tensor(x) and (x.is_contiguous(), x.dim(), x.dtype, y.requires_grad)

    compiled = lamina_dynamo.optimize("eager")(f)
    x = torch.randn(2, 3)
    for value in (x, INPUTS[name](x), x, INPUTS[name](x)):
        (have, facts), (want, expected) = compiled(value), f(value)
        torch.testing.assert_close(have, want)
        assert facts == expected


class Doubled(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.add else out


STATES = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast half": lambda: torch.autocast("cpu", dtype=torch.float16),
    "device": lambda: torch.device("meta"),
    "function mode": Doubled,
    "no torch function": torch._C.DisableTorchFunctionSubclass,
}


@pytest.mark.parametrize("name", STATES)
def test_other_state(name):
    w = torch.randn(3, 3, requires_grad=True)

    def f(x):
        y = torch.add(x, 1) @ w
        return y, torch.zeros(2).device, torch.is_grad_enabled(), y.requires_grad

    compiled = lamina_dynamo.optimize("eager")(f)
    x = torch.randn(2, 3)

    def both():
        have, want = compiled(x), f(x)
        assert have[1:] == want[1:] and have[0].dtype == want[0].dtype
        torch.testing.assert_close(have[0], want[0])

    for _ in range(2):
        both()
        with STATES[name]():
            both()
    with STATES[name]():
        both()


def test_switching_back_and_forth_compiles_once_a_state():
    seen = []

    def count(gm, inputs):
        seen.append(gm)
        return gm.forward

    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3))
    compiled = lamina_dynamo.optimize(count)(net)
    for _ in range(6):
        for training in (True, False):
            net.train(training)
            for grad in (torch.enable_grad, torch.no_grad):
                with grad():
                    compiled(torch.randn(4, 3))
    assert len(seen) == 4
