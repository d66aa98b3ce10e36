"""compile_graph as a whole: fallbacks, reasons, sources, events, contract checks."""

import operator

import pytest
import torch
from check import TARGETS, run
from programs import Tracer
from torch.fx import Graph, GraphModule

from lamina_inductor import compile_graph, config
from lamina_inductor.compile import choose_target, find_target
from lamina_inductor.contract import check_graph, check_program
from lamina_inductor.errors import ContractError, InductorError, TargetUnavailable
from lamina_inductor.ir.program import Alloc
from lamina_inductor.observe import on_event


def small_graph():
    x = torch.randn(4, 8)
    t = Tracer(x)
    return t.finish(t.sum(t.exp(x), (1,), torch.float32)), x


def test_boxed_and_unboxed_calls():
    gm, x = small_graph()
    compiled = compile_graph(gm, target="reference")
    inputs = [x]
    boxed = compiled(inputs)
    assert inputs == []
    assert torch.equal(boxed[0], list(compiled.unboxed(x))[0])


def test_mutating_op_runs_in_eager_and_says_why():
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.zeros(3)
    y = graph.call_function(torch.ops.aten.add_.Tensor, (x, 1))
    y.meta["val"] = torch.zeros(3)
    graph.output((y,))
    compiled = compile_graph(GraphModule({}, graph), target="reference")
    assert compiled.target == "eager" and "mutates" in compiled.fallback
    assert torch.equal(compiled([torch.zeros(3)])[0], torch.ones(3))


def test_internal_errors_raise_when_strict_and_fall_back_otherwise(monkeypatch):
    gm, x = small_graph()
    monkeypatch.setattr("lamina_inductor.compile.schedule", lambda *a: 1 / 0)
    with pytest.raises(InductorError, match="ZeroDivisionError"):
        compile_graph(gm, target="reference")
    with config.patch(strict=False):
        compiled = compile_graph(gm, target="reference")
    assert "ZeroDivisionError" in compiled.fallback
    assert torch.allclose(compiled([x])[0], x.exp().sum(1))


def test_unknown_target():
    gm, _ = small_graph()
    with pytest.raises(TargetUnavailable):
        compile_graph(gm, target="abacus")


def test_missing_compiler_gives_the_reference_target_and_a_reason(monkeypatch):
    monkeypatch.setattr(type(find_target("cpp")), "unavailable", lambda self: "no compiler")
    target, reason = choose_target(None, "cpu")
    assert target.name == "reference" and "no compiler" in reason


def test_ops_without_lowering_keep_their_reason():
    x = torch.rand(5) + 1
    t = Tracer(x)
    compiled = run(t.finish(t.polygamma(1, x)), [x])
    assert compiled.reasons and len(compiled.externs) == 1


def test_multi_output_extern():
    x = torch.randn(4, 9)
    t = Tracer(x)
    values, indices = t.call(torch.ops.aten.topk.default, x, 3)
    run(t.finish(t.mul(values, 2.0), indices), [x])


def test_scalar_and_none_outputs():
    gm, x = small_graph()
    out = gm.graph.output_node()
    out.args = ((out.args[0][0], None, 7),)
    result = compile_graph(gm, target="reference")([x])
    assert result[1:] == [None, 7]


def test_events():
    seen = []
    remove = on_event(lambda e: seen.append(e.name))
    try:
        compile_graph(small_graph()[0], target="reference")
    finally:
        remove()
    assert "kernel" in seen and "program" in seen
    before = len(seen)
    compile_graph(small_graph()[0], target="reference")
    assert len(seen) == before


def test_dump(tmp_path):
    with config.patch(dump_dir=str(tmp_path)):
        compile_graph(small_graph()[0], target="reference", name="demo")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "10_demo_prims.py",
        "11_demo_program.py",
        "12_demo_kernels.py",
    ]


def test_check_graph_names_the_node():
    gm, _ = small_graph()
    check_graph(gm)
    node = next(n for n in gm.graph.nodes if n.op == "call_function" and n.target is not operator.getitem)
    del node.meta["val"]
    with pytest.raises(ContractError, match=node.name):
        check_graph(gm)


def test_check_program_finds_missing_memory():
    program = compile_graph(small_graph()[0], target="reference").program
    check_program(program)
    program.steps[:] = [s for s in program.steps if not isinstance(s, Alloc)]
    with pytest.raises(ContractError):
        check_program(program)


def test_random_ops_keep_eagers_stream():
    x = torch.randn(100)
    t = Tracer(x)
    a = t.call(torch.ops.aten.rand.default, [100])
    b = t.call(torch.ops.aten.randn.default, [100])
    compiled = compile_graph(t.finish(t.add(b, x), t.mul(a, x)), target="reference")
    torch.manual_seed(3)
    got = compiled([x])
    torch.manual_seed(3)
    u, n = torch.rand(100), torch.randn(100)
    assert torch.equal(got[0], n + x) and torch.equal(got[1], u * x)


def test_float64_on_float_inputs_and_empty_graph():
    graph = Graph()
    graph.output(())
    assert compile_graph(GraphModule({}, graph), target="reference")([]) == []


@pytest.mark.parametrize("target", TARGETS)
def test_rows_that_do_not_exist_are_scaled_by_weights_that_do(target):
    x, w = torch.randn(0, 5), torch.randn(5)
    t = Tracer(x, w)
    rows = t.broadcast_in_dim(t.rsqrt(t.sum(t.mul(x, x), (1,), torch.float32)), (0, 5), (0,))
    scaled = t.mul(t.mul(x, rows), t.broadcast(w, (0, 5)))
    run(t.finish(scaled, t.sum(t.mul(x, rows), (0,), torch.float32)), [x, w], target)


class SlowTarget:
    """Stands for a target whose compilers run for a while: it notes when they are started and waited for."""

    name = "slow"

    def __init__(self, error=None):
        self.log = []
        self.error = error

    def unavailable(self):
        return None

    def can_lower(self, op, dtype):
        return None

    def build(self, program, config):
        return self.begin(program, config)()

    def begin(self, program, config):
        self.log.append("begun")

        def wait():
            self.log.append("waited")
            if self.error is not None:
                raise self.error
            return find_target("reference").build(program, config)

        return wait


def test_deferred_graphs_are_finished_before_they_are_called():
    gm, x = small_graph()
    target = SlowTarget()
    compiled = compile_graph(gm, target=target, defer=True)
    assert compiled.is_pending and target.log == ["begun"]
    with pytest.raises(InductorError, match="before `finish`"):
        compiled.unboxed(x)
    compiled.finish()
    compiled.finish()
    assert not compiled.is_pending and target.log == ["begun", "waited"]
    torch.testing.assert_close(compiled.unboxed(x)[0], x.exp().sum(1))
    assert not compile_graph(gm, target=SlowTarget()).is_pending
    assert not compile_graph(gm, target="reference", defer=True).is_pending


def test_a_deferred_graph_that_cannot_be_built_falls_back():
    gm, x = small_graph()
    with config.patch(strict=False):
        compiled = compile_graph(gm, target=SlowTarget(RuntimeError("no")), defer=True)
        compiled.finish()
    assert "no" in compiled.fallback and compiled.output_strides == []
    torch.testing.assert_close(compiled([x])[0], x.exp().sum(1))
    with config.patch(strict=True):
        strict = compile_graph(gm, target=SlowTarget(RuntimeError("no")), defer=True)
        with pytest.raises(InductorError, match="no"):
            strict.finish()
