import io
import subprocess
import sys

import pytest
import torch

import lamina
from lamina import logs, scripts
from lamina.events import Event


def test_unknown_artifacts_are_refused():
    with pytest.raises(lamina.OptionError, match="gaurds"):
        logs.parse("gaurds")
    assert logs.parse("guards, perf") == ["guards", "perf"]


def test_the_printer_prints_only_what_was_asked_for(graph):
    out = io.StringIO()
    printer = logs.Printer(["joint_graph", "perf"], out)
    printer(Event("aot", "joint_graph", graph, 0.5))
    printer(Event("capture", "guards", "x is a tensor"))
    text = out.getvalue()
    assert "linear" in text and "500.00 ms" in text and "x is a tensor" not in text


def test_dumps_are_numbered_and_graphs_run(graph, inputs, tmp_path):
    for node, value in zip(graph.graph.find_nodes(op="placeholder"), inputs, strict=True):
        node.meta["val"] = value
    dump = logs.Dumper(str(tmp_path))
    dump(Event("aot", "joint graph", {"graph": graph}, 0.1))
    dump(Event("inductor", "wrapper", "int main() {}"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["001_joint_graph.py", "002_output_code.cpp"]
    first = tmp_path / "001_joint_graph.py"
    assert first.read_text().startswith("# stage: aot; pass: joint graph; 100.00 ms")
    done = subprocess.run([sys.executable, str(first)], check=True, capture_output=True, text=True)
    assert "tensor(" in done.stdout


def test_a_graph_with_a_subgraph_and_dtype_constants_becomes_a_script():
    body = torch.fx.symbolic_trace(lambda x: x.to(torch.float64) * float("inf"))
    outer = torch.fx.Graph()
    x = outer.placeholder("x")
    inner = outer.get_attr("body")
    outer.output((outer.call_function(torch.ops.aten.add.Tensor, (x, 1)), inner))
    gm = torch.fx.GraphModule({"body": body}, outer)
    space = {}
    exec(scripts.script_of(gm, [torch.ones(2, 2).t()], purpose="run"), space)
    value, fn = space["graph"](*space["inputs"]())
    assert value.shape == (2, 2) and fn(torch.ones(1)).dtype == torch.float64


def test_objects_without_a_name_are_refused_by_name():
    g = torch.fx.Graph()
    g.output((g.call_function(lambda x: x, (g.placeholder("x"),)),))
    with pytest.raises(scripts.CannotWriteScript):
        scripts.script_of(torch.fx.GraphModule({}, g), [torch.ones(1)])
