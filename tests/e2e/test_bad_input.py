"""Bad input to every public function of the five packages: an error that names what was wrong and what is allowed, and
nothing is left behind: no listener, no hook, no file, no changed module."""

from __future__ import annotations

import pytest
import torch

import lamina
import lamina_aot_autograd as aot
import lamina_dynamo as dynamo
import lamina_inductor as inductor
import lamina_inductor.config
import lamina_inductor.errors
import lamina_inductor.observe
import lamina_primtorch as primtorch
from lamina import events
from lamina.errors import LaminaError


def add_one(x):
    return x + 1


def passes(gm, example_inputs):
    return gm.forward


X = torch.ones(2)
GM = torch.fx.symbolic_trace(lambda x: (x + 1,))
D = aot.trace_joint(GM, [torch.ones(2, requires_grad=True)])


def prim_graph():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(4, 8)
    y = graph.call_function(primtorch.prims.exp, (x,))
    y.meta["val"] = torch.empty(4, 8)
    graph.output((y,))
    return torch.fx.GraphModule({}, graph)


O, T, V, L = lamina.OptionError, TypeError, ValueError, LaminaError
# public name -> (call, type of the error, words in its message)
CASES = {
    "lamina.compile": [
        (lambda: lamina.compile(3), O, "callable int"),
        (lambda: lamina.compile([add_one]), O, "callable list"),
        (lambda: lamina.compile(dict), O, "class dict instance"),
        (lambda: lamina.compile(add_one, mode="fast"), O, "mode fast default max-autotune"),
        (lambda: lamina.compile(add_one, mode=["default"]), O, "mode default max-autotune"),
        (lambda: lamina.compile(add_one, dynamic="yes"), O, "dynamic None True False yes"),
        (lambda: lamina.compile(add_one, dynamic=1), O, "dynamic None True False 1"),
        (lambda: lamina.compile(add_one, fullgraph=None), O, "fullgraph True False None"),
        (lambda: lamina.compile(add_one, disable="no"), O, "disable True False no"),
        (lambda: lamina.compile(add_one, backend="induktor"), O, "backend induktor inductor reference"),
        (lambda: lamina.compile(add_one, backend=None), O, "backend name callable NoneType"),
        (lambda: lamina.compile(add_one, options=["fusion"]), O, "options dict list"),
        (lambda: lamina.compile(add_one, options={"fusoin": True}), O, "option fusoin fusion"),
        (lambda: lamina.compile(add_one, options={3: True}), O, "option 3 fusion"),
        (lambda: lamina.compile(add_one, options={"fusion": "x"}), O, "fusion True False 'x'"),
        (lambda: lamina.compile(add_one, options={"freezing": 2}), O, "freezing True False 2"),
        (lambda: lamina.compile(add_one, options={"target": "gpu"}), O, "target gpu cpp reference triton"),
        (lambda: lamina.compile(add_one, options={"target": []}), O, "target cpp reference"),
        (lambda: lamina.compile(add_one, options={"partitioner": "best"}), O, "partitioner best min_cut"),
        (lambda: lamina.compile(add_one, options={"aot.memory_budget": "big"}), O, "memory_budget number 'big'"),
        (lambda: lamina.compile(add_one, options={"dynamo.inline_depth": 1.5}), O, "inline_depth integer 1.5"),
        (lambda: lamina.compile(add_one, bakend="eager"), T, "bakend"),
        (lambda: lamina.compile(add_one, backend=lambda gm, i: None)(X), lamina.CompileError, "None callable"),
        (lambda: lamina.compile(add_one)(), T, "missing 1 required positional argument"),
    ],
    "lamina.explain": [
        (lambda: lamina.explain(3), O, "explain callable int"),
        (lambda: lamina.explain(None), O, "explain callable NoneType"),
        (lambda: lamina.explain(add_one, calls=0), O, "calls integer 1 0"),
        (lambda: lamina.explain(add_one, calls="2"), O, "calls integer '2'"),
        (lambda: lamina.explain(add_one, backward=None), O, "backward True False None"),
        (lambda: lamina.explain(add_one, mod="default"), O, "argument lamina.explain 'mod' mode"),
        (lambda: lamina.explain(add_one, mode="fast"), O, "mode fast"),
    ],
    "lamina.check": [
        (lambda: lamina.check(3), O, "check callable int"),
        (lambda: lamina.check(torch.nn.Linear), O, "class Linear instance"),
        (lambda: lamina.check(add_one, backends="eager"), O, "backends list 'eager'"),
        (lambda: lamina.check(add_one, backends=[]), O, "backends list []"),
        (lambda: lamina.check(add_one, backends=None), O, "backends list None"),
        (lambda: lamina.check(add_one, backends=["egaer"]), O, "backend egaer eager"),
        (lambda: lamina.check(add_one, tolerance="x"), O, "tolerance number 'x'"),
        (lambda: lamina.check(add_one, tolerance=-1), O, "tolerance number 0 -1"),
        (lambda: lamina.check(add_one, backend="eager"), O, "argument lamina.check 'backend' dynamic"),
    ],
    "lamina.bisect": [
        (lambda: lamina.bisect("f"), O, "bisect callable str"),
        (lambda: lamina.bisect(add_one, backends=["x"]), O, "backend 'x' eager"),
        (lambda: lamina.bisect(add_one, foo=1), O, "argument lamina.bisect 'foo' mode"),
        (lambda: lamina.bisect(add_one, backward=0), O, "backward True False 0"),
    ],
    "lamina.minify": [
        (lambda: lamina.minify(None), O, "minify callable NoneType"),
        (lambda: lamina.minify(add_one, backend="torch_inductor"), O, "rung torch_inductor inductor"),
        (lambda: lamina.minify(add_one, path=3), O, "path script 3"),
        (lambda: lamina.minify(add_one, path="/nowhere/small.py"), O, "folder /nowhere/small.py exist"),
        (lambda: lamina.minify(add_one, timeout=0, isolate=True), O, "timeout number 1 0"),
        (lambda: lamina.minify(add_one, seconds=None), O, "seconds number None"),
        (lambda: lamina.minify(add_one, isolate="yes"), O, "isolate True False yes"),
        (lambda: lamina.minify(add_one, foo=1), O, "argument lamina.minify 'foo' mode"),
        (lambda: lamina.minify(add_one)(), T, "missing 1 required positional argument"),
    ],
    "lamina.save_cache": [
        (lambda: lamina.save_cache(None), O, "save_cache path None"),
        (lambda: lamina.save_cache(""), O, "save_cache path ''"),
        (lambda: lamina.save_cache("/nowhere/kernels.tgz"), L, "packed /nowhere/kernels.tgz"),
        (lambda: lamina.save_cache("/tmp"), L, "/tmp folder"),
    ],
    "lamina.load_cache": [
        (lambda: lamina.load_cache(None), O, "load_cache path None"),
        (lambda: lamina.load_cache("/nowhere"), L, "no file /nowhere"),
        (lambda: lamina.load_cache(__file__), L, "packed lamina cache"),
    ],
    "lamina.config": [
        (lambda: lamina.config.patch(strickt=True).__enter__(), T, "setting 'strickt' known: strict"),
        (lambda: lamina.config.patch(strict="maybe").__enter__(), T, "strict True False 'maybe'"),
        (lambda: lamina.config.patch(progress_after="soon").__enter__(), T, "progress_after number 'soon'"),
    ],
    "lamina.list_modes": [(lambda: lamina.list_modes(1), T, "list_modes argument")],
    "lamina.list_backends": [(lambda: lamina.list_backends(1), T, "list_backends argument")],
    "lamina.reset": [(lambda: lamina.reset(1), T, "reset argument")],
    "lamina_dynamo.optimize": [
        (lambda: dynamo.optimize(None), T, "backend name callable NoneType"),
        (lambda: dynamo.optimize("nope"), V, "nope known: eager"),
        (lambda: dynamo.optimize("eager", fullgraph="x"), T, "fullgraph True False 'x'"),
        (lambda: dynamo.optimize("eager", dynamic="x"), T, "dynamic None True False 'x'"),
        (lambda: dynamo.optimize("eager")(3), T, "optimize() callable int"),
        (lambda: dynamo.optimize("eager")(dict), T, "optimize() class"),
    ],
    "lamina_dynamo.disable": [
        (lambda: dynamo.disable(3), T, "disable() callable int"),
        (lambda: dynamo.disable(add_one, recursive="x"), T, "recursive True False 'x'"),
    ],
    "lamina_dynamo.run": [(lambda: dynamo.run(3), T, "run() callable int")],
    "lamina_dynamo.allow_in_graph": [(lambda: dynamo.allow_in_graph(3), T, "allow_in_graph callable int")],
    "lamina_dynamo.disallow_in_graph": [(lambda: dynamo.disallow_in_graph(3), T, "disallow_in_graph callable int")],
    "lamina_dynamo.assume_constant_result": [
        (lambda: dynamo.assume_constant_result(3), T, "assume_constant_result callable int"),
    ],
    "lamina_dynamo.capture": [
        (lambda: dynamo.capture(3), T, "capture function module int"),
        (lambda: dynamo.capture(add_one, backend="nope"), V, "nope known: eager"),
    ],
    "lamina_dynamo.explain": [(lambda: dynamo.explain(None, X), T, "function module NoneType")],
    "lamina_dynamo.export": [
        (lambda: dynamo.export(3, (X,)), T, "export function module int"),
        (lambda: dynamo.export(add_one, X), T, "args tuple Tensor"),
        (lambda: dynamo.export(add_one, (X,), [X]), T, "kwargs dict list"),
        (lambda: dynamo.export(add_one, (X,), dynamic_shapes="x"), dynamo.ConstraintError, "dynamic_shapes dict str"),
        (lambda: dynamo.export(add_one, (X,), dynamic_shapes={"x": 3}), dynamo.ConstraintError, "'x' dict int"),
        (lambda: dynamo.export(add_one, (X,), dynamic_shapes={"y": {0: None}}), dynamo.ConstraintError, "'y' ['x']"),
        (lambda: dynamo.export(add_one, (X,), dynamic_shapes={"x": {7: None}}), IndexError, "dimension 7"),
        (lambda: dynamo.export(add_one, ()), T, "missing 1 required positional argument"),
    ],
    "lamina_dynamo.Dim": [
        (lambda: dynamo.Dim("batch"), T, "min elements 'batch'"),
        (lambda: dynamo.Dim(min=5, max=2), V, "empty range 5 2"),
        (lambda: dynamo.Dim(min=-1), V, "min -1"),
    ],
    "lamina_dynamo.load": [
        (lambda: dynamo.load(None), T, "load path NoneType"),
        (lambda: dynamo.load("/nowhere"), FileNotFoundError, "/nowhere"),
        (lambda: dynamo.load(__file__), dynamo.ExportError, "exported program zip"),
    ],
    "lamina_dynamo.mark_dynamic": [
        (lambda: dynamo.mark_dynamic(None), T, "tensor NoneType"),
        (lambda: dynamo.mark_dynamic(X, 5), IndexError, "dimension 5 1 dimensions"),
        (lambda: dynamo.mark_dynamic(X, "a"), T, "dimension integer 'a'"),
        (lambda: dynamo.mark_dynamic(X, 0, min=5, max=2), V, "empty range 5 2"),
        (lambda: dynamo.mark_dynamic(X, 0, min="a"), T, "min elements 'a'"),
        (lambda: dynamo.mark_dynamic(X, 0, max=-3), V, "max -3"),
    ],
    "lamina_dynamo.mark_static": [
        (lambda: dynamo.mark_static([X]), T, "tensor list"),
        (lambda: dynamo.mark_static(X, [0, 4]), IndexError, "dimension 4"),
    ],
    "lamina_dynamo.on_event": [(lambda: dynamo.on_event(3), T, "on_event callable int")],
    "lamina_dynamo.register_backend": [
        (lambda: dynamo.register_backend("", passes), V, "name"),
        (lambda: dynamo.register_backend(3, passes), V, "name"),
    ],
    "lamina_dynamo.get_backend": [
        (lambda: dynamo.get_backend("nope"), V, "nope known: eager"),
        (lambda: dynamo.get_backend(None), T, "name callable NoneType"),
    ],
    "lamina_dynamo.patch": [
        (lambda: dynamo.patch(foo=1).__enter__(), T, "'foo' known: strict"),
        (lambda: dynamo.patch(recompile_limit="8").__enter__(), T, "recompile_limit integer '8'"),
        (lambda: dynamo.patch(dynamic=3).__enter__(), T, "dynamic None True False 3"),
    ],
    "lamina_aot_autograd.trace_joint": [
        (lambda: aot.trace_joint(None, [X]), T, "GraphModule NoneType"),
        (lambda: aot.trace_joint(GM, None), T, "example_inputs list NoneType"),
        (lambda: aot.trace_joint(GM, X), T, "example_inputs list Tensor"),
        (lambda: aot.trace_joint(GM, []), T, "takes 1 0"),
        (lambda: aot.trace_joint(GM, [X, X]), T, "takes 1 2"),
    ],
    "lamina_aot_autograd.partition": [
        (lambda: aot.partition(GM), T, "JointGraph trace_joint"),
        (lambda: aot.partition(D, "best"), aot.AotError, "policy best min_cut"),
    ],
    "lamina_aot_autograd.aot_compile": [
        (lambda: aot.aot_compile(None, [X]), T, "GraphModule NoneType"),
        (lambda: aot.aot_compile(GM, X), T, "example_inputs list Tensor"),
        (lambda: aot.aot_compile(GM, [X], forward_compiler=3), T, "forward_compiler function int"),
        (lambda: aot.aot_compile(GM, [X], partitioner="best"), aot.AotError, "policy best min_cut"),
    ],
    "lamina_aot_autograd.check_graph": [
        (lambda: aot.check_graph(None), T, "GraphModule NoneType"),
        (lambda: aot.check_graph(GM), aot.AotError, "placeholder desc"),
    ],
    "lamina_aot_autograd.make_boxed": [(lambda: aot.make_boxed(3), T, "make_boxed callable int")],
    "lamina_aot_autograd.parameters_as_inputs": [
        (lambda: aot.parameters_as_inputs(torch.relu, []), T, r"parameters_as_inputs torch.nn.Module"),
    ],
    "lamina_aot_autograd.run_eagerly": [(lambda: aot.run_eagerly(3), T, "run_eagerly GraphModule int")],
    "lamina_aot_autograd.on_event": [(lambda: aot.on_event(None), T, "on_event callable NoneType")],
    "lamina_aot_autograd.code_of": [(lambda: aot.code_of(None, "f"), T, "GraphModule NoneType")],
    "lamina_primtorch.decompose": [
        (lambda: primtorch.decompose(None), T, "GraphModule NoneType"),
        (lambda: primtorch.decompose(GM, "aten"), V, "target aten prims core_aten"),
        (lambda: primtorch.decompose(GM, None), V, "target None prims core_aten"),
    ],
    "lamina_primtorch.decomposition_table": [
        (lambda: primtorch.decomposition_table("x"), V, "target 'x' prims core_aten"),
    ],
    "lamina_primtorch.check_graph": [(lambda: primtorch.check_graph(add_one), T, "GraphModule function")],
    "lamina_primtorch.completeness": [
        (lambda: primtorch.completeness(None), T, "list GraphModules dict NoneType"),
        (lambda: primtorch.completeness([3]), T, "GraphModule int"),
        (lambda: primtorch.completeness([prim_graph()], "mm"), T, "implemented names predicate 'mm'"),
        (lambda: primtorch.completeness([prim_graph()], 3), T, "implemented names predicate 3"),
    ],
    "lamina_primtorch.prims_needed": [
        (lambda: primtorch.prims_needed(None), T, "list GraphModules NoneType"),
        (lambda: primtorch.prims_needed([3]), T, "GraphModule int"),
    ],
    "lamina_primtorch.on_event": [(lambda: primtorch.on_event(3), T, "on_event callable int")],
    "lamina_primtorch.coverage": [(lambda: primtorch.coverage(3), T, "coverage argument")],
    "lamina_primtorch.collect_graphs": [(lambda: primtorch.collect_graphs(3), T, "collect_graphs argument")],
    "lamina_inductor.compile_graph": [
        (lambda: inductor.compile_graph(None), T, "GraphModule NoneType"),
        (lambda: inductor.compile_graph(add_one), T, "GraphModule function"),
        (lambda: inductor.compile_graph(prim_graph(), target="nope"), inductor.errors.InductorError, "nope cpp"),
        (lambda: inductor.compile_graph(prim_graph(), target=3), T, "target list_targets() 3"),
        (lambda: inductor.compile_graph(prim_graph(), config={}), T, "config {}"),
        (lambda: inductor.compile_graph(prim_graph(), name=3), T, "name text 3"),
    ],
    "lamina_inductor.list_targets": [(lambda: inductor.list_targets(3), T, "list_targets argument")],
    "lamina_inductor.CompiledGraph": [
        (lambda: program()([]), inductor.errors.InputError, "0 inputs 1"),
        (lambda: program()([torch.ones(2, 2)]), inductor.errors.InputError, "float32[2, 2] float32[4, 8] again"),
        (lambda: program()([torch.ones(4, 8).double()]), inductor.errors.InputError, "float64 float32"),
        (lambda: program()(["a"]), inductor.errors.InputError, "input 0 str tensor"),
        (lambda: program()(None), T, "list NoneType"),
        (lambda: program()((torch.ones(4, 8),)), T, "list tuple"),
    ],
}
WITHOUT_ARGUMENTS = {
    "lamina.is_compiling", "lamina_dynamo.is_compiling", "lamina_dynamo.counters", "lamina_dynamo.list_backends",
    "lamina_dynamo.reset", "lamina_dynamo.graph_break", "lamina_dynamo.explain_recompile",
}
SAME_OBJECTS = {"disable", "is_compiling", "graph_break", "mark_dynamic", "mark_static", "counters"}


def program():
    return inductor.compile_graph(prim_graph(), target="reference")


def listeners():
    return [len(events._own), len(dynamo.observe.listeners), len(aot.observe._listeners),
            len(primtorch.observe.LISTENERS), len(inductor.observe._listeners)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


ROWS = [pytest.param(*case, id=f"{name}-{i}") for name, cases in CASES.items() for i, case in enumerate(cases)]


@pytest.mark.parametrize("call, error, words", ROWS)
def test_bad_input_is_named_and_leaves_nothing(call, error, words, folder):
    with lamina.config.patch(cache_dir=str(folder)):
        lamina.compile(add_one)(X)
        heard, kept, settings = listeners(), sorted(folder.rglob("*")), lamina.config.current()
        with pytest.raises(error) as info:
            call()
        assert (listeners(), sorted(folder.rglob("*")), lamina.config.current()) == (heard, kept, settings)
        assert not dynamo.is_compiling()
        assert torch.equal(lamina.compile(add_one)(X), X + 1)
    text = str(info.value)
    missing = [word for word in words.split() if word not in text]
    assert not missing, text
    assert type(info.value).__module__ != "lamina_inductor.errors" or "internal error" not in text


def test_every_public_callable_is_in_the_table():
    missing = []
    for package in (lamina, dynamo, aot, primtorch, inductor):
        for name in package.__all__:
            value = getattr(package, name)
            full = f"{package.__name__}.{name}"
            known = full in CASES or full in WITHOUT_ARGUMENTS or package is lamina and name in SAME_OBJECTS
            if not known and callable(value) and not (isinstance(value, type) and full != "lamina_dynamo.optimize"):
                missing.append(full)
    assert not missing


def test_a_module_that_fails_to_compile_is_as_it_was():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    before = {k: (id(v), v.clone()) for k, v in model.state_dict(keep_vars=True).items()}
    attributes = {k: dict(vars(m)) for k, m in model.named_modules()}

    def broken(gm, example_inputs):
        raise ZeroDivisionError("in the backend")

    with pytest.raises(lamina.CompileError, match="in the backend"):
        lamina.compile(model, backend=broken)(torch.randn(4, 3))
    with pytest.raises(RuntimeError):
        lamina.compile(model)(torch.randn(4, 5))  # mismatched: eager's own error
    with pytest.raises((TypeError, AttributeError)):
        lamina.compile(model)(None)
    after = model.state_dict(keep_vars=True)
    assert all(id(after[k]) == i and torch.equal(after[k], v) for k, (i, v) in before.items())
    assert {k: dict(vars(m)) for k, m in model.named_modules()} == attributes
    assert torch.equal(lamina.compile(model.eval(), backend="eager")(torch.ones(2, 3)), model(torch.ones(2, 3)))


@pytest.mark.parametrize("name, text, words", [
    ("LAMINA_STRICT", "maybe", "LAMINA_STRICT 'maybe' true false"),
    ("LAMINA_FAILURE_SECONDS", "soon", "LAMINA_FAILURE_SECONDS 'soon' number"),
    ("LAMINA_AOT_COPY_LIMIT", "1MB", "LAMINA_AOT_COPY_LIMIT '1MB' integer"),
    ("LAMINA_COMPILE_JOBS", "two", "LAMINA_COMPILE_JOBS 'two' integer"),
    ("LAMINA_VERIFY", "x", "LAMINA_VERIFY 'x' true false"),
])
def test_a_wrong_environment_variable_is_named(monkeypatch, name, text, words):
    monkeypatch.setenv(name, text)
    read = {
        "LAMINA_STRICT": lamina.config.from_environment, "LAMINA_FAILURE_SECONDS": lamina.config.from_environment,
        "LAMINA_AOT_COPY_LIMIT": aot.config.from_environment, "LAMINA_COMPILE_JOBS": inductor.config.current,
        "LAMINA_VERIFY": dynamo.config._from_environment,
    }[name]
    with pytest.raises(ValueError) as info:
        read()
    assert all(word in str(info.value) for word in words.split())
