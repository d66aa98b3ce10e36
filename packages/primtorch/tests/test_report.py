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
