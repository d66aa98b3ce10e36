"""The coverage table, and that importing the package is cheap."""

import subprocess
import sys

import lamina_primtorch as lp


def test_nothing_reachable_is_missing():
    table = lp.coverage()
    assert table.counts["decomposed"] > 300
    for name, kind, reason in table.rows:
        assert kind != "missing" or reason.startswith("not reachable"), name
    assert "add.Tensor" in str(table)


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
