"""What a region reads must be what it wrote before, and what a later call passes: no value is kept that can change."""

from __future__ import annotations

import collections
import copy
import datetime
import decimal
import fractions
import logging
import pickle
import types

import pytest
import torch
from torch import nn

import lamina_dynamo


@pytest.fixture(autouse=True)
def fresh():
    lamina_dynamo.reset()


def captured(fn, **options):
    return lamina_dynamo.optimize("eager", **options)(fn)


class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x):
        self.total = self.total + x.detach()
        if "total" in self._buffers:
            x = x + self.total
        self._buffers["total"] = self.total * 2
        return x * self.scale + self.total


def test_a_buffer_that_was_assigned_reads_as_assigned():
    module, same = Running(), Running()
    fast = captured(same)
    for _ in range(3):
        assert torch.equal(module(torch.ones(2)), fast(torch.ones(2)))
        assert torch.equal(module.total, same.total)


def test_a_parameter_that_was_replaced_or_deleted_is_gone():
    class Swap(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            y = x * self.weight
            del self.weight
            missing = not hasattr(self, "weight")
            self.weight = nn.Buffer(torch.full((2,), 5.0))
            return y + self.weight, missing

    module, same = Swap(), Swap()
    fast = captured(same)
    for _ in range(2):
        want, got = module(torch.ones(2)), fast(torch.ones(2))
        assert torch.equal(want[0], got[0]) and want[1] is got[1] is True
    assert list(same.state_dict()) == list(module.state_dict())


@pytest.mark.parametrize("dynamic", [None, True])
def test_the_storage_offset_is_that_of_the_call(dynamic):
    base = torch.arange(40.0).view(4, 10)

    def fn(x):
        return x.storage_offset(), x[1:].storage_offset(), x + 1

    fast = captured(fn, dynamic=dynamic)
    for view in (base[:2], base[1:3], base[2:], base[:2]):
        want, got = fn(view), fast(view)
        assert want[:2] == got[:2] and torch.equal(want[2], got[2])


@pytest.mark.parametrize("call", ["method", "function", "in place"])
def test_as_strided_counts_from_the_start_of_the_storage(call):
    def fn(x):
        if call == "function":
            return torch.as_strided(x, (2,), (1,), 3) * 2
        if call == "method":
            return x.as_strided((2,), (1,), storage_offset=3) * 2
        return x.as_strided((2,), (1,), 3).mul_(2)

    fast = captured(fn)
    for rows in (slice(0, 2), slice(1, 3), slice(2, 4)):
        one, two = torch.arange(40.0).view(4, 10), torch.arange(40.0).view(4, 10)
        assert torch.equal(fn(one[rows]), fast(two[rows]))
        assert torch.equal(one, two)


def test_number_of_bytes_of_a_tensor_with_symbolic_size():
    fast = captured(lambda x: (x.nbytes, x * 2), dynamic=True, fullgraph=True)
    for n in (3, 5):
        assert fast(torch.ones(n, dtype=torch.float64))[0] == 8 * n


def test_floats_that_are_not_finite_are_not_taken_as_any_other():
    def fn(x, k):
        return x * k, k == k, k - k == 0, k * 0 == 0

    fast = captured(fn)
    for k in (1.0, 2.0, float("nan"), 3.0, float("inf"), float("nan"), 4.0):
        want, got = fn(torch.ones(1), k), fast(torch.ones(1), k)
        assert want[1:] == got[1:], k
        assert torch.equal(want[0].nan_to_num(7.0), got[0].nan_to_num(7.0))


def test_a_deque_notices_changes_that_keep_its_length():
    def fn(x):
        queue = collections.deque([1, 2, 3], maxlen=3)
        seen = []
        queue[0] = 5
        try:
            for item in queue:
                seen.append(item)
                queue[1] = 7
                if item == 7:
                    queue.append(9)
        except RuntimeError as e:
            seen.append(str(e))
        return x + sum(queue), seen

    want, got = fn(torch.ones(1)), captured(fn, fullgraph=True)(torch.ones(1))
    assert torch.equal(want[0], got[0]) and want[1] == got[1]


def test_keys_view_of_a_dict_with_tensor_keys():
    x = torch.ones(2)
    assert float(captured(lambda keys: sum(k.sum() for k in keys))({x: 1}.keys())) == 2.0


def test_a_failing_call_is_not_logged(caplog):
    def fn(x, w):
        try:
            return x @ w
        except RuntimeError:
            return x

    with caplog.at_level(logging.DEBUG):
        captured(fn, dynamic=True)(torch.ones(2, 3), torch.ones(2, 3))
    assert not [r for r in caplog.records if r.name == "torch._subclasses.fake_tensor" and r.levelno >= logging.ERROR]


def test_a_disabled_module_is_a_module():
    quiet = lamina_dynamo.disable(nn.Linear(2, 2))
    net = nn.Sequential(nn.ReLU(), quiet)
    assert list(net.state_dict()) == ["1.weight", "1.bias"] and isinstance(quiet, nn.Linear)
    x = torch.ones(1, 2)
    assert torch.allclose(captured(net)(x), net(x))
    assert "skipped_callable" in lamina_dynamo.counters()["breaks"]
    for other in (copy.deepcopy(quiet), pickle.loads(pickle.dumps(quiet))):
        assert torch.equal(other(x), quiet(x))
        assert other.weight is not quiet.weight
    assert copy.copy(quiet).weight is quiet.weight


def test_frames_of_the_later_stages_are_left_alone():
    names = {"__name__": "lamina_inductor.stage", "torch": torch}
    exec("def stage(x):\n    return helper(x) * 2\n", names)
    names["helper"] = helper

    def fn(x):
        return names["stage"](x * 3) + 1

    assert torch.equal(captured(fn)(torch.ones(2)), torch.full((2,), 9.0))
    assert lamina_dynamo.counters()["graphs"] == 2, "what comes before and after the stage, nothing in between"


def helper(x):
    return x + 1


def test_attributes_of_tensors_are_kept_and_looked_up_again():
    def fn(x):
        x.calls = getattr(x, "calls", 0) + 1
        y = x[0] * 2
        y.origin = (x, "row")
        z = x + x.calls
        z.me = [z, y]
        return z, y, hasattr(x, "flag")

    def fresh_input(k):
        x = torch.ones(2, 2)
        if k == 1:
            x.flag = True
        return x

    fast = captured(fn, fullgraph=True)
    for k in range(3):
        one, two = fresh_input(k), fresh_input(k)
        for _ in range(2):
            (z, _, flag), (fz, fy, fast_flag) = fn(one), fast(two)
            assert torch.equal(z, fz) and flag is fast_flag is (k == 1)
            assert fz.me[0] is fz and fz.me[1] is fy and fy.origin[0] is two and fy.origin[1] == "row"
        assert one.calls == two.calls == 2


def test_what_isinstance_says_of_buffers():
    module = nn.Module()
    module.register_buffer("plain", torch.ones(1))
    module.made = nn.Buffer(torch.ones(1))

    def fn(x):
        made = nn.Buffer(x * 2)
        kinds = [isinstance(t, nn.Buffer) for t in (x, module.plain, module.made, made)]
        return made, kinds, isinstance(made, nn.Parameter), made.persistent

    want, got = fn(torch.ones(1)), captured(fn)(torch.ones(1))
    assert want[1:] == got[1:] and isinstance(got[0], nn.Buffer)


class Named:
    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return self.number


@pytest.mark.parametrize("number", [-1, 0, 1 << 62, -(1 << 63), 1 << 70])
def test_hash_of_an_object_is_what_its_method_says(number):
    fast = captured(lambda x, o: (hash(o), x + 1), fullgraph=True)
    assert fast(torch.ones(1), Named(number))[0] == hash(Named(number))


@pytest.mark.parametrize(
    "value", [decimal.Decimal("3.10"), datetime.date(2020, 1, 2), datetime.timedelta(1), fractions.Fraction(1, 3)]
)
def test_text_for_people_and_for_programmers(value):
    def fn(x, v):
        return str(v), repr(v), f"{v} {v!r}", "%s %r" % (v, v), str([v]), x + 1  # noqa: UP031

    assert captured(fn)(torch.ones(1), value)[:-1] == fn(torch.ones(1), value)[:-1]


def test_in_place_view_without_gradients_keeps_the_history():
    def fn(x):
        y = x * 2
        with torch.no_grad():
            y.t_()
        return y

    x = torch.ones(2, 2, requires_grad=True)
    captured(fn)(x).sum().backward()
    assert torch.equal(x.grad, torch.full((2, 2), 2.0))


STORED = 0


def test_a_global_stored_through_the_dict_is_read():
    def fn(x):
        globals()["STORED"] = globals()["STORED"] + 1
        return x * STORED

    fast = captured(fn)
    assert [float(fast(torch.ones(1))) for _ in range(3)] == [1.0, 2.0, 3.0]


def test_ints_that_leave_machine_words():
    def fn(x):
        n = x.shape[0]
        return n << 70, n * 10**18, n**30, 2**n, (n * 3) << 2, x + 1

    fast = captured(fn, dynamic=True)
    for n in (3, 5, 13):
        assert fast(torch.ones(n))[:-1] == fn(torch.ones(n))[:-1]


@pytest.mark.parametrize("part", [slice(None, None, 2), slice(0, 2), slice(2, 4)])
def test_as_strided_may_reach_past_the_tensor(part):
    def fn(x):
        x.as_strided((3,), (1,)).fill_(7)
        return x * 1

    fast = captured(fn)
    for rows in (slice(0, 4), part):
        one, two = torch.arange(12.0).view(4, 3).t(), torch.arange(12.0).view(4, 3).t()
        assert torch.equal(fn(one[:, rows]), fast(two[:, rows]))
        assert torch.equal(one, two)


@pytest.mark.parametrize("view", [lambda x: x.view(4, 6), lambda x: x[:, 1:], lambda x: x.T, lambda x: x.detach()])
@pytest.mark.parametrize("change", ["t_", "squeeze_", lambda y: y.unsqueeze_(0), lambda y: y.transpose_(0, 1)])
@pytest.mark.parametrize("with_history", [False, True])
def test_in_place_view_of_a_view_counts_as_a_write_to_the_input(view, change, with_history):
    def program(x):
        y = view(x)
        z = y * 2
        getattr(y, change)() if isinstance(change, str) else change(y)
        return y + 1, y, z

    seen = []
    for call in (program, lamina_dynamo.optimize("eager", fullgraph=True)(program)):
        x = torch.randn(6, 4, requires_grad=with_history)
        x = x * 1 if with_history else x
        out = call(x)
        seen.append((x._version, [t._version for t in out], [t.shape for t in out]))
    assert seen[0] == seen[1]


def _tries(o):
    try:
        return o.z
    except AttributeError:
        return "none"


def _looks(o):
    try:
        o.z  # noqa: B018
    except AttributeError:
        return 0
    return 1


LOOKS = {
    "hasattr": lambda o: hasattr(o, "z"),
    "getattr": lambda o: getattr(o, "z", 7),
    "try": _tries,
    "look": _looks,
    "dict": lambda o: ("z" in vars(o), o.__dict__.get("z", 4)) if hasattr(o, "__dict__") else None,
    "read": lambda o: o.z,
}


class _Slotted:
    __slots__ = ("z",)


class _Plain:
    pass


class _Defaulted:
    z = "of the class"


class _Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("z", torch.ones(1))


OWNERS = {
    "object": _Plain,
    "default of the class": _Defaulted,
    "namespace": types.SimpleNamespace,
    "slots": _Slotted,
    "module": _Module,
    "plain attribute of a module": lambda: torch.nn.Identity(),
    "class": lambda: type("K", (), {}),
    "derived class": lambda: type("K", (_Plain,), {}),
    "function": lambda: lambda: 0,
    "exception": ValueError,
    "tensor": lambda: torch.ones(3),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("owner", OWNERS)
def test_attributes_that_go_and_come_back(owner, look):
    if (owner, look) == ("tensor", "dict"):
        look = "hasattr"

    def follow(compile):
        o = OWNERS[owner]()
        if owner != "module":
            o.z = 1
        fast, seen = compile(lambda x: (x * 2, LOOKS[look](o))), []

        def call():
            try:
                value = fast(torch.ones(2))[1]
            except AttributeError as e:
                value = type(e).__name__
            seen.append(str(value))

        call()
        del o.z
        call()
        o.z = 3 if owner != "module" else torch.zeros(1)
        call()
        return seen

    assert follow(captured) == follow(lambda fn: fn)
