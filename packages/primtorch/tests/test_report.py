"""The coverage table, and that importing the package is cheap."""

import subprocess
import sys

import torch

import lamina_primtorch as lp


def test_nothing_is_missing():
    table = lp.coverage()
    assert table.counts["decomposed"] > 300
    assert not table.of("missing")
    assert "add.Tensor" in str(table)


def test_operators_without_a_kernel_in_this_build_stay_calls():
    names = [name for name, _, reason in lp.coverage().rows if reason.startswith("no kernel")]
    assert names
    for name in names:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        graph = torch.fx.Graph()
        graph.output((graph.call_function(op, ()),))
        kept = [n.target for n in lp.decompose(torch.fx.GraphModule({}, graph)).graph.nodes]
        assert op in kept, name


def test_import_is_light():
    code = (
        "import torch, sys, time; before = set(sys.modules); t = time.process_time(); import lamina_primtorch;"
        "t = time.process_time() - t; new = set(sys.modules) - before;"
        "assert 'sympy' not in new and not any(m.startswith('torch.testing') for m in new), new; print(t)"
    )
    best = min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    )
    assert best < 0.3


def test_every_row_has_a_reason():
    """For decomposed ones who does it, for kept ones why."""
    rows = lp.coverage().rows
    assert [name for name, kind, reason in rows if not reason] == []
    reasons = {name: reason for name, _, reason in rows}
    assert reasons["add.Tensor"] == "by pointwise.add" or reasons["add.Tensor"].startswith("by pointwise.")
    assert "library" in reasons["linalg_qr"] or lp.PRIMS["qr"]


def flat_graph(fn, *inputs):
    """A graph of one call of each ATen overload that `fn` names."""
    graph = torch.fx.Graph()
    nodes = []
    for i, x in enumerate(inputs):
        nodes.append(graph.placeholder(f"x{i}"))
        nodes[-1].meta["val"] = x
    for op, *args in fn:
        real = [n.meta["val"] if isinstance(n, torch.fx.Node) else n for n in (nodes[a] if type(a) is int else a
                                                                              for a in args)]
        node = graph.call_function(op, tuple(nodes[a] if type(a) is int else a for a in args))
        node.meta["val"] = op(*real)
        nodes.append(node)
    graph.output((nodes[-1],))
    return torch.fx.GraphModule({}, graph)


def test_completeness_says_what_is_missing():
    aten = torch.ops.aten
    x = torch.randn(3, 3)
    graphs = {
        "gelu": flat_graph([(aten.gelu.default, 0)], x),
        "product": flat_graph([(aten.mm.default, 0, 0), (aten.relu.default, 1)], x),
        "digamma": flat_graph([(aten.digamma.default, 0)], x),
    }
    report = lp.completeness(graphs, {"mul", "add", "erf", "maximum"})
    by_name = {n.name: n for n in report.needs}
    assert by_name["mm"].kind == "extern" and not by_name["mm"].have and by_name["mm"].graphs == ("product",)
    assert by_name["mul"].have and by_name["mul"].kind == "prim"
    assert not report.needs[0].have and report.needs[-1].have
    assert "mm" in report.missing["product"] and not report.is_complete
    assert "MISSING" in str(report) and "product: lacks" in str(report)
    everything = lp.completeness(graphs, lambda name: True)
    assert everything.is_complete and "digamma: runs" in str(everything)
    low = {name: lp.decompose(gm) for name, gm in graphs.items()}
    assert lp.completeness(low).needs == lp.completeness(graphs).needs


def test_graphs_are_collected():
    gm = flat_graph([(torch.ops.aten.gelu.default, 0)], torch.randn(3))
    with lp.collect_graphs() as graphs:
        low = lp.decompose(gm)
    lp.decompose(gm)
    assert list(graphs.values()) == [low]
