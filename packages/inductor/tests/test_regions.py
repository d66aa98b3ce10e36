"""Graphs called from a graph: one function, many calls."""

import operator

import pytest
import torch
from check import TARGETS, compare, run
from programs import Tracer
from torch.fx import Graph, GraphModule

from lamina_inductor import compile_graph
from lamina_inductor.contract import check_program
from lamina_inductor.ir.region import RegionCallee
from lamina_primtorch import prims

aten = torch.ops.aten


class Region:
    """A graph as a call target, as a tracer above hands it over."""

    def __init__(self, graph_module, name="region"):
        self.graph_module = graph_module
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args):
        return list(self.graph_module(*args))

    def with_graph(self, graph_module):
        return Region(graph_module, self.__name__)


def layer():
    x, w, b = torch.randn(6, 8), torch.randn(8, 8), torch.randn(8)
    t = Tracer(x, w, b)
    y = t.call(aten.mm.default, x, w)
    z = t.tanh(t.add(y, t.broadcast_in_dim(b, (6, 8), (1,))))
    return Region(t.finish(t.add(x, z), z))


def stack(region, count, *shared, first=None):
    """(graph of `count` calls in a row, its inputs)."""
    g = Graph()
    values = [torch.randn(6, 8) if first is None else first]
    weights = [] if shared else [t for _ in range(count) for t in (torch.randn(8, 8) / 3, torch.randn(8))]
    nodes = []
    for k, v in enumerate([*values, *shared, *weights]):
        node = g.placeholder(f"arg{k}")
        node.meta["val"] = v
        nodes.append(node)
    x, kept = nodes[0], []
    for k in range(count):
        args = (x, *(nodes[1:] if shared else nodes[1 + 2 * k : 3 + 2 * k]))
        call = g.call_function(region, args)
        call.meta["val"] = region(*(n.meta["val"] for n in args))
        items = []
        for j, v in enumerate(call.meta["val"]):
            items.append(g.call_function(operator.getitem, (call, j)))
            items[-1].meta["val"] = v
        x = items[0]
        kept.append(items[-1])
    g.output((x, kept[0], kept[-1]))
    return GraphModule({}, g), [n.meta["val"] for n in nodes]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [1, 3, 40])
def test_calls_compute_what_the_graphs_compute(target, count):
    gm, inputs = stack(layer(), count)
    compiled = run(gm, inputs, target, rtol=1e-4, atol=1e-4)
    assert len(compiled.program.callees) == 1
    assert len(compiled.externs) == count
    check_program(compiled.program)


@pytest.mark.parametrize("target", TARGETS)
def test_arguments_shared_by_all_calls(target):
    gm, inputs = stack(layer(), 5, torch.randn(8, 8) / 3, torch.randn(8))
    run(gm, inputs, target, rtol=1e-4, atol=1e-4)


def test_source_grows_by_a_few_lines_a_call():
    sources = [compile_graph(stack(layer(), n)[0]).source for n in (4, 8)]
    if "lamina_run" not in sources[0]:
        pytest.skip("needs the C++ target")
    assert sources[0].count("_region_0(") == sources[1].count("_region_0(")
    assert sources[1].count("tanh") == sources[0].count("tanh")
    assert sources[1].count("mm_out") == sources[0].count("mm_out")


@pytest.mark.parametrize("target", TARGETS)
def test_boxed_calls_let_go_of_inputs_and_stay_right(target):
    gm, inputs = stack(layer(), 6)
    compiled = compile_graph(gm, target=target)
    want = gm(*inputs)
    for _ in range(3):
        boxed = [t.clone() for t in inputs]
        got = compiled(boxed)
        assert boxed == []
        for a, b in zip(got, want, strict=True):
            compare(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
def test_one_tensor_as_two_arguments(target):
    a, b, c = (torch.randn(6, 8) for _ in range(3))
    t = Tracer(a, b, c)
    region = Region(t.finish(t.mul(t.add(a, b), c), t.sub(a, b)))
    g = Graph()
    x = g.placeholder("x")
    x.meta["val"] = torch.randn(6, 8)
    y = x
    for _ in range(3):
        call = g.call_function(region, (y, y, x))
        call.meta["val"] = region(*(n.meta["val"] for n in (y, y, x)))
        y = g.call_function(operator.getitem, (call, 0))
        y.meta["val"] = call.meta["val"][0]
    g.output((y,))
    run(GraphModule({}, g), [x.meta["val"]], target)


@pytest.mark.parametrize("target", TARGETS)
def test_a_result_that_is_an_argument_or_a_view(target):
    x, w = torch.randn(6, 8), torch.randn(6, 8)
    t = Tracer(x, w)
    y = t.exp(x)
    z = t.permute(y, (1, 0))
    inner = t.finish(y, z, w)
    region = Region(inner)
    g = Graph()
    nodes = []
    for k, v in enumerate((x, w)):
        nodes.append(g.placeholder(f"a{k}"))
        nodes[-1].meta["val"] = v
    results = []
    for _ in range(2):
        call = g.call_function(region, tuple(nodes))
        call.meta["val"] = region(x, w)
        for j in range(3):
            item = g.call_function(operator.getitem, (call, j))
            item.meta["val"] = call.meta["val"][j]
            results.append(item)
    total = g.call_function(prims.add, (results[0], results[5]))
    total.meta["val"] = results[0].meta["val"] + results[5].meta["val"]
    g.output((total, results[1]))
    run(GraphModule({}, g), [x, w], target)


@pytest.mark.parametrize("target", TARGETS)
def test_an_argument_in_another_layout_is_another_function(target):
    region = layer()
    b = torch.randn(1).expand(8)
    gm, inputs = stack(region, 2, torch.randn(8, 8) / 3, b)
    run(gm, inputs, target, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
def test_an_error_inside_is_that_of_eager(target):
    table, index = torch.randn(5, 4), torch.tensor([0, 4, 2])
    t = Tracer(table, index)
    region = Region(t.finish(t.call(aten.index_select.default, table, 0, index), t.neg(table)))
    g = Graph()
    nodes = []
    for k, v in enumerate((table, index)):
        nodes.append(g.placeholder(f"a{k}"))
        nodes[-1].meta["val"] = v
    outs = []
    for _ in range(2):
        call = g.call_function(region, tuple(nodes))
        call.meta["val"] = region(table, index)
        outs.append(g.call_function(operator.getitem, (call, 0)))
        outs[-1].meta["val"] = call.meta["val"][0]
    g.output(tuple(outs))
    compiled = run(GraphModule({}, g), [table, index], target)
    for _ in range(2):
        with pytest.raises((IndexError, RuntimeError)):
            compiled([table, torch.tensor([0, 9, 2])])
    compare(compiled([table, index])[0], table.index_select(0, index))


@pytest.mark.parametrize("target", TARGETS)
def test_constants_of_a_region_and_of_the_caller(target):
    class Holder(torch.nn.Module):
        def __init__(self, c):
            super().__init__()
            self.register_buffer("c", c)

    def with_constant(c, x):
        g = Graph()
        a = g.placeholder("a")
        a.meta["val"] = x
        k = g.get_attr("c")
        k.meta["val"] = c
        y = g.call_function(prims.mul, (a, k))
        y.meta["val"] = x * c
        return g, y

    x = torch.randn(4, 5)
    graph, y = with_constant(torch.randn(4, 5), x)
    inner_constant = torch.randn(4, 5)
    graph.output((y,))
    region = Region(GraphModule(Holder(inner_constant), graph))
    outer, z = with_constant(torch.randn(4, 5), x)
    holder = Holder(torch.randn(4, 5))
    z.meta["val"] = x * holder.c
    for _ in range(2):
        call = outer.call_function(region, (z,))
        call.meta["val"] = region(z.meta["val"])
        z = outer.call_function(operator.getitem, (call, 0))
        z.meta["val"] = call.meta["val"][0]
    outer.output((z,))
    run(GraphModule(holder, outer), [x], target)


def test_callee_is_shared_and_named():
    gm, _ = stack(layer(), 4)
    compiled = compile_graph(gm, target="reference")
    targets = [s.target for s in compiled.program.steps if isinstance(getattr(s, "target", None), RegionCallee)]
    assert len(targets) == 4 and len(set(targets)) == 1
    assert "region" in compiled.program.text()
