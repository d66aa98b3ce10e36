"""The guard program in C against the Python form of each guard, on live objects that are changed one at a time."""

from __future__ import annotations

import collections
import gc
import random
import types

import pytest
import torch

import lamina_dynamo
from lamina_dynamo.guards import KINDS, Guard, ShapeExpr, TensorExpect, check_guard
from lamina_dynamo.guards.build import build, compile_shape, complete
from lamina_dynamo.roots import BuiltinSource, ClosureSource, GlobalSource, GlobalsSource, LocalSource, ModuleSource
from lamina_dynamo.source import (
    AttrSource,
    CellContentsSource,
    ClassAttrSource,
    DefaultsSource,
    DictKeySource,
    DictValueSource,
    GradSource,
    InstanceAttrSource,
    ItemSource,
    ModuleMemberSource,
    PythonSource,
    Scope,
    SelfDictSource,
    SuperSource,
    TensorMetaSource,
    TypeSource,
    WeakRefCallSource,
)


class Base:
    rate = 0.5

    def method(self):
        return 1


class Thing(Base):
    limit = 3

    def __init__(self):
        self.count = 1
        self.names = ["a", "b"]
        self.table = {"x": 1, "y": (1, 2.0)}
        self.flag = True
        self.nothing = None


def helper(a, b=2, *, c=3):
    return a + b + c


def make_frame_function():
    captured = 4.0

    def frame(obj, x, y, module, *args, **kwargs):
        return captured

    return frame


FRAME = make_frame_function()
CODE = FRAME.__code__


def new_scope() -> Scope:
    obj = Thing()
    x = torch.randn(24)[:6].view(2, 3).requires_grad_()
    y = torch.randn(4, 6)[::2, ::2]
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    function = make_frame_function()
    names = {"obj": obj, "x": x, "y": y, "module": module, "args": (1, [2, 3]), "kwargs": {"k": "v"}, "captured": 4.0}
    fresh_helper = types.FunctionType(helper.__code__, globals(), "helper", (2,))
    fresh_helper.__kwdefaults__ = {"c": 3}
    scope_globals = {
        "helper": fresh_helper,
        "SCALE": 2.5,
        "__builtins__": __builtins__,
        "ordered": collections.OrderedDict(a=1, b=2),
    }
    return Scope(names, scope_globals, {"len": len}, function.__closure__, CODE.co_freevars)


OBJ, X, Y, MODULE = (LocalSource(n) for n in ("obj", "x", "y", "module"))


def all_guards() -> list[Guard]:
    table = InstanceAttrSource(OBJ, "table")
    return [
        Guard(None, "GLOBAL_STATE"),
        Guard(OBJ, "TYPE"),
        Guard(OBJ, "ID"),
        Guard(InstanceAttrSource(OBJ, "count"), "CONSTANT"),
        Guard(AttrSource(OBJ, "flag"), "CONSTANT"),
        Guard(InstanceAttrSource(OBJ, "nothing"), "NONE"),
        Guard(InstanceAttrSource(OBJ, "names"), "LENGTH"),
        Guard(InstanceAttrSource(OBJ, "names"), "TRUTH"),
        Guard(ItemSource(InstanceAttrSource(OBJ, "names"), -1), "CONSTANT"),
        Guard(table, "DICT_KEYS"),
        Guard(ItemSource(table, "y"), "CONSTANT"),
        Guard(table, "DICT_CONTAINS", "x"),
        Guard(table, "DICT_NOT_CONTAINS", "z"),
        Guard(ItemSource(table, "w"), "ABSENT"),
        Guard(DictKeySource(table, 1), "CONSTANT"),
        Guard(DictValueSource(table, 0), "CONSTANT"),
        Guard(OBJ, "HAS_ATTR", "count"),
        Guard(OBJ, "NO_ATTR", "missing"),
        Guard(OBJ, "NO_INSTANCE_ATTR", "limit"),
        Guard(TypeSource(OBJ), "NO_CLASS_ATTR", "other"),
        Guard(ClassAttrSource(TypeSource(OBJ), "limit"), "CONSTANT"),
        Guard(ClassAttrSource(TypeSource(OBJ), "rate"), "CONSTANT"),
        Guard(TypeSource(OBJ), "CLASS_ATTR", ("method", Base.method)),
        Guard(SuperSource(OBJ, Thing, "method"), "FUNCTION_CODE"),
        Guard(SelfDictSource(OBJ), "LENGTH"),
        Guard(X, "TENSOR"),
        Guard(Y, "TENSOR"),
        Guard(GradSource(X), "NONE"),
        Guard((X, Y), "NO_OVERLAP"),
        Guard((X, Y), "NOT_SAME"),
        Guard(ModuleMemberSource(ModuleMemberSource(MODULE, "_modules", "0"), "_parameters", "weight"), "TENSOR"),
        Guard(ModuleMemberSource(ModuleMemberSource(MODULE, "_modules", "1"), "_buffers", "running_mean"), "TENSOR"),
        Guard(ModuleMemberSource(MODULE, "_modules", "1"), "MODULE_HOOKS"),
        Guard(InstanceAttrSource(MODULE, "training"), "CONSTANT"),
        Guard(
            (ModuleMemberSource(MODULE, "_modules", "0"), ItemSource(SelfDictSource(MODULE), "first")), "SAME_OBJECT"
        ),
        Guard(LocalSource("args"), "LENGTH"),
        Guard(ItemSource(ItemSource(LocalSource("args"), 1), 0), "CONSTANT"),
        Guard(ItemSource(LocalSource("kwargs"), "k"), "CONSTANT"),
        Guard(CellContentsSource(ClosureSource(None, "captured"), "captured"), "CONSTANT"),
        Guard(GlobalSource("SCALE"), "CONSTANT"),
        Guard(GlobalSource("helper"), "FUNCTION_CODE"),
        Guard(DefaultsSource(GlobalSource("helper"), 0), "CONSTANT"),
        Guard(DefaultsSource(GlobalSource("helper"), "c"), "CONSTANT"),
        Guard(GlobalSource("ordered"), "DICT_KEYS"),
        Guard(GlobalsSource(), "DICT_NOT_CONTAINS", "len"),
        Guard(BuiltinSource("len"), "ID"),
        Guard(AttrSource(ModuleSource("math"), "pi"), "CONSTANT"),
        Guard(PythonSource(InstanceAttrSource(OBJ, "names"), len), "CONSTANT"),
        Guard(
            tuple(TensorMetaSource(s, "size", d) for s, d in ((X, 0), (Y, 0), (Y, 1))),
            "SHAPE_EXPR",
            ShapeExpr(
                "a == b and c % 3 == 0 and max(a, c) < 10 and not a > c", ("a", "b", "c"), "x.shape[0] == y.shape[0]"
            ),
        ),
    ]


def _set(holder, name, value):
    return lambda s: setattr(s.f_locals[holder], name, value)


def _local(name, value):
    return lambda s: s.f_locals.__setitem__(name, value() if callable(value) else value)


def _replace_code(s):
    s.f_globals["helper"].__code__ = (lambda a, b=2, *, c=3: 0).__code__


def _two_times(s):
    s.f_globals["ordered"].move_to_end("a")


MUTATIONS = {
    "another object": _local("obj", Thing),
    "object of another type": _local("obj", Base),
    "int attribute": _set("obj", "count", 2),
    "int became bool": _set("obj", "count", True),
    "flag": _set("obj", "flag", False),
    "flag became int": _set("obj", "flag", 1),
    "none became something": _set("obj", "nothing", 0),
    "list grows": lambda s: s.f_locals["obj"].names.append("c"),
    "list empties": lambda s: s.f_locals["obj"].names.clear(),
    "list item": lambda s: s.f_locals["obj"].names.__setitem__(1, "z"),
    "key added": lambda s: s.f_locals["obj"].table.__setitem__("z", 1),
    "key w": lambda s: s.f_locals["obj"].table.__setitem__("w", 1),
    "key removed": lambda s: s.f_locals["obj"].table.pop("x"),
    "keys reordered": lambda s: s.f_locals["obj"].table.__setitem__("x", s.f_locals["obj"].table.pop("x")),
    "value type inside tuple": lambda s: s.f_locals["obj"].table.__setitem__("y", (1, 2)),
    "value inside tuple": lambda s: s.f_locals["obj"].table.__setitem__("y", (1, 2.5)),
    "attribute added": _set("obj", "missing", 1),
    "class attribute hidden": _set("obj", "limit", 9),
    "attribute removed": lambda s: delattr(s.f_locals["obj"], "count"),
    "x shape": _local("x", lambda: torch.randn(2, 4, requires_grad=True)),
    "x dtype": _local("x", lambda: torch.randn(2, 3, dtype=torch.float64, requires_grad=True)),
    "x strides": _local("x", lambda: torch.randn(3, 2).t().requires_grad_()),
    "x requires no grad": _local("x", lambda: torch.randn(2, 3)),
    "x is a parameter": _local("x", lambda: torch.nn.Parameter(torch.randn(2, 3))),
    "x is no tensor": _local("x", 3),
    "x is sparse": _local("x", lambda: torch.randn(2, 3).to_sparse().requires_grad_()),
    "x has a grad": lambda s: setattr(s.f_locals["x"], "grad", torch.zeros(2, 3)),
    "x is meta": _local("x", lambda: torch.empty(2, 3, device="meta", requires_grad=True)),
    "y is a view of x": lambda s: s.f_locals.__setitem__("y", s.f_locals["x"].detach()[:, :]),
    "y overlaps x": lambda s: s.f_locals.__setitem__("y", torch.as_strided(s.f_locals["x"].detach(), (2, 3), (12, 2))),
    "y is x": lambda s: s.f_locals.__setitem__("y", s.f_locals["x"]),
    "y conj": _local("y", lambda: torch.randn(2, 3, dtype=torch.complex64).conj()),
    "y bigger": _local("y", lambda: torch.randn(6, 6)[::2, ::2]),
    "train mode": lambda s: s.f_locals["module"].eval(),
    "weight replaced by equal": lambda s: setattr(
        s.f_locals["module"][0], "weight", torch.nn.Parameter(torch.randn(3, 3))
    ),
    "weight replaced by bigger": lambda s: setattr(
        s.f_locals["module"][0], "weight", torch.nn.Parameter(torch.randn(5, 3))
    ),
    "weight frozen": lambda s: s.f_locals["module"][0].weight.requires_grad_(False),
    "buffer replaced": lambda s: setattr(s.f_locals["module"][1], "running_mean", torch.zeros(3, dtype=torch.float64)),
    "hook": lambda s: s.f_locals["module"][1].register_forward_hook(lambda *a: None),
    "module replaced": lambda s: s.f_locals["module"].__setattr__("0", torch.nn.Linear(3, 3)),
    "args grow": _local("args", (1, [2, 3], 4)),
    "args item": _local("args", (1, [5, 3])),
    "args item became a tuple": _local("args", (1, (2, 3))),
    "kwargs value": _local("kwargs", {"k": "w"}),
    "kwargs gone": _local("kwargs", {}),
    "closure": lambda s: setattr(s.closure[0], "cell_contents", 5.0),
    "closure emptied": lambda s: delattr(s.closure[0], "cell_contents"),
    "global": lambda s: s.f_globals.__setitem__("SCALE", 2.0),
    "global minus zero": lambda s: s.f_globals.__setitem__("SCALE", -2.5),
    "global gone": lambda s: s.f_globals.pop("SCALE"),
    "function code": _replace_code,
    "function defaults": lambda s: setattr(s.f_globals["helper"], "__defaults__", (3,)),
    "function defaults gone": lambda s: setattr(s.f_globals["helper"], "__defaults__", None),
    "function keyword defaults": lambda s: setattr(s.f_globals["helper"], "__kwdefaults__", {"c": 4}),
    "function replaced": lambda s: s.f_globals.__setitem__("helper", lambda a: a),
    "ordered moved": _two_times,
    "builtin hidden": lambda s: s.f_globals.__setitem__("len", None),
    "builtin replaced": lambda s: s.f_builtins.__setitem__("len", print),
    "nothing": lambda s: None,
    "equal list": lambda s: setattr(s.f_locals["obj"], "names", ["a", "b"]),
}


def prepared() -> tuple[Scope, list[Guard]]:
    scope = new_scope()
    module = scope.f_locals["module"]
    module.__dict__["first"] = module[0]
    return scope, all_guards()


def _first_failing(guards: list[Guard], scope: Scope) -> set[int]:
    return {i for i, g in enumerate(guards) if not check_guard(g, scope)}


@pytest.mark.parametrize("name", MUTATIONS)
def test_c_program_agrees_with_python_after_one_mutation(name):
    scope, guards = prepared()
    completed = [complete(g, scope) for g in guards]
    built = build(guards, CODE, scope)
    assert built.check(scope) == -1
    keep = list(scope.f_locals.values())
    MUTATIONS[name](scope)
    failing = _first_failing(completed, scope)
    found = built.check(scope)
    if built.program.valid:
        assert (found >= 0) == bool(failing), (found, [str(completed[i]) for i in failing])
        if found >= 0:
            # A path that is gone is reported by the first guard that walks it; otherwise the guard named must itself
            # fail.
            assert found in failing
    else:
        assert found >= 0 and failing
    del keep


@pytest.mark.parametrize("seed", range(8))
def test_single_guards_agree_under_random_mutations(seed):
    """Each guard alone, so that no earlier failure hides it."""
    chooser = random.Random(seed)
    for name in chooser.sample(sorted(MUTATIONS), 20):
        scope, guards = prepared()
        programs = [(complete(g, scope), build([g], CODE, scope)) for g in guards]
        keep = dict(scope.f_locals), dict(scope.f_globals)
        MUTATIONS[name](scope)
        for guard, built in programs:
            assert (built.check(scope) < 0) == check_guard(guard, scope), (name, str(guard))
        del keep


STATES = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("name", STATES)
def test_global_state(name):
    scope, _ = prepared()
    built = build([Guard(None, "GLOBAL_STATE")], CODE, scope)
    assert built.check(scope) == -1
    with STATES[name]():
        assert built.check(scope) == 0
        inside = build([Guard(None, "GLOBAL_STATE")], CODE, scope)
        assert inside.check(scope) == -1
    assert built.check(scope) == -1
    assert inside.check(scope) == 0


def test_default_dtype_and_deterministic_mode():
    scope, _ = prepared()
    built = build([Guard(None, "GLOBAL_STATE")], CODE, scope)
    torch.set_default_dtype(torch.float64)
    try:
        assert built.check(scope) == 0
    finally:
        torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        assert built.check(scope) == 0
    finally:
        torch.use_deterministic_algorithms(False)
    assert built.check(scope) == -1


def test_autocast_dtype_counts():
    scope, _ = prepared()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        built = build([Guard(None, "GLOBAL_STATE")], CODE, scope)
        assert built.check(scope) == -1
    with torch.autocast("cpu", dtype=torch.float16):
        assert built.check(scope) == 0


def test_dynamic_dimensions_are_free():
    scope, _ = prepared()
    expect = TensorExpect.of(scope.f_locals["x"], dynamic_sizes=(0,), dynamic_strides=())
    built = build([Guard(X, "TENSOR", expect)], CODE, scope)
    scope.f_locals["x"] = torch.randn(7, 3, requires_grad=True)
    assert built.check(scope) == -1
    scope.f_locals["x"] = torch.randn(7, 4, requires_grad=True)
    assert built.check(scope) == 0


def test_program_keeps_nothing_alive_and_turns_invalid():
    scope, guards = prepared()
    built = build(guards, CODE, scope)
    ref = __import__("weakref").ref(scope.f_locals["obj"])
    scope.f_locals["obj"] = None
    gc.collect()
    assert ref() is None
    assert not built.program.valid
    scope.f_locals["obj"] = Thing()
    assert built.check(scope) >= 0


def test_weak_reference_source():
    import weakref

    scope, _ = prepared()
    target = Thing()
    scope.f_locals["obj"] = weakref.ref(target)
    built = build([Guard(OBJ, "WEAKREF_ALIVE"), Guard(WeakRefCallSource(OBJ), "TYPE")], CODE, scope)
    assert built.check(scope) == -1
    del target
    gc.collect()
    assert built.check(scope) == 0


def test_nan_and_signed_zero_are_told_apart_from_other_floats():
    scope, _ = prepared()
    for value, other in ((float("nan"), 1.0), (0.0, -0.0), (1.0, 1), (2, 2.0), (True, 1), ("a", b"a"), (1 + 0j, 1.0)):
        scope.f_locals["obj"] = value
        built = build([Guard(OBJ, "CONSTANT")], CODE, scope)
        assert built.check(scope) == -1
        if isinstance(value, float):
            scope.f_locals["obj"] = float(repr(value))
            assert built.check(scope) == -1
        scope.f_locals["obj"] = other
        assert built.check(scope) == 0


SHAPES = [
    "a + b == 7",
    "a - b == -1",
    "a * b == 12",
    "a // 2 == 1",
    "-a // 2 == -2",
    "a % b == 3",
    "-a % b == 1",
    "a ** 2 == 9",
    "min(a, b) == 3",
    "max(a, b, c) == 10",
    "abs(a - b) == 1",
    "not a == b",
    "a < b < c",
    "a < b > c",
    "(a == 1 or b == 4) and c >= 10",
    "a // (b - 4) == 0",
    "2 <= a",
    "True",
]


@pytest.mark.parametrize("text", SHAPES)
def test_shape_expressions(text):
    scope, _ = prepared()
    expr = ShapeExpr(text, ("a", "b", "c"))
    assert compile_shape(expr) is not None
    sources = tuple(ItemSource(OBJ, i) for i in range(3))
    for values in ((3, 4, 10), (4, 3, 10), (0, 0, 0), (-7, 5, 2), (1, 4, 1 << 40)):
        scope.f_locals["obj"] = values
        guard = Guard(sources, "SHAPE_EXPR", expr)
        assert (build([guard], CODE, scope).check(scope) == -1) == check_guard(guard, scope)


def test_shape_expression_of_floats_runs_in_python():
    scope, _ = prepared()
    assert compile_shape(ShapeExpr("a * 0.5 > 1.0", ("a",))) is None
    scope.f_locals["obj"] = 3.0
    built = build([Guard((OBJ,), "SHAPE_EXPR", ShapeExpr("a * 0.5 > 1.0", ("a",)))], CODE, scope)
    assert built.check(scope) == -1
    scope.f_locals["obj"] = 1.0
    assert built.check(scope) == 0


def test_every_kind_is_used_by_a_test():
    used = {g.kind for g in all_guards()} | {
        "NOT_NONE",
        "SET_CONTENTS",
        "TYPE_VERSION",
        "EMPTY_CELL",
        "WEAKREF_ALIVE",
        "PYTHON",
    }
    assert used == set(KINDS)


@pytest.mark.parametrize(
    ("kind", "value", "good", "bad"),
    [
        ("NOT_NONE", None, 1, None),
        ("SET_CONTENTS", None, {1, "a"}, {1}),
        ("PYTHON", callable, len, 3),
        ("EMPTY_CELL", None, types.CellType(), types.CellType(1)),
        ("TYPE_VERSION", None, Thing, Base),
    ],
)
def test_remaining_kinds(kind, value, good, bad):
    scope, _ = prepared()
    scope.f_locals["obj"] = good
    guard = complete(Guard(OBJ, kind, value), scope)
    built = build([guard], CODE, scope)
    assert built.check(scope) == -1 and check_guard(guard, scope)
    scope.f_locals["obj"] = bad
    assert built.check(scope) == 0 and not check_guard(guard, scope)


def test_shape_guards_with_one_text_over_different_sizes_all_count():
    lamina_dynamo.reset()
    seen = []

    def count(gm, inputs):
        seen.append(gm)
        return gm.forward

    def f(x, y):
        return (x * 2 if x.shape[0] > 3 else x * 3), (y * 2 if y.shape[0] > 3 else y * 3)

    compiled = lamina_dynamo.optimize(count, dynamic=True)(f)
    for n, m in ((5, 6), (2, 6), (5, 2), (7, 8)):
        for have, want in zip(compiled(torch.ones(n), torch.ones(m)), f(torch.ones(n), torch.ones(m))):
            torch.testing.assert_close(have, want)
    assert len(seen) == 3


@pytest.mark.parametrize(
    "condition",
    [
        lambda a: a / 3 > 1.4,
        lambda a: a * 1.5 > 7,
        lambda a: (a | 4) == 4,
        lambda a: a**0.5 > 2.1,
        lambda a: int(a * 0.4) == 2,
        lambda a: round(a / 2) == 2,
        lambda a: (a << 2) > 17,
    ],
)
def test_conditions_on_sizes_become_guards(condition):
    lamina_dynamo.reset()

    def f(x):
        return x * 2 if condition(x.shape[0]) else x * 3

    compiled = lamina_dynamo.optimize("eager", dynamic=True, fullgraph=True)(f)
    for n in (4, 5, 7, 9, 4, 3):
        torch.testing.assert_close(compiled(torch.ones(n)), f(torch.ones(n)))
