"""The loop-level IR that LAMINA_DUMP_DIR writes: each file runs by itself."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import lamina


def step(dynamic):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 3))
    compiled = lamina.compile(model, dynamic=dynamic)
    nn.functional.cross_entropy(compiled(torch.randn(5, 4)), torch.tensor([0, 1, 2, 1, 0])).backward()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_every_file_runs(dynamic, tmp_path):
    with lamina.config.patch(dump_dir=str(tmp_path)):
        lamina.reset()
        step(dynamic)
    files = sorted(f for f in os.listdir(tmp_path) if "_ir." in f)
    assert files and all(f.endswith(".py") for f in files), os.listdir(tmp_path)
    programs = 0
    for f in files:
        text = (tmp_path / f).read_text()
        assert text.startswith("# stage: inductor; pass: ")
        programs += "def call(" in text
    assert programs == 2  # forward and backward
    script = "import runpy, sys\nfor f in sys.argv[1:]: runpy.run_path(f, run_name='__main__')"
    run = [sys.executable, "-c", script, *(str(tmp_path / f) for f in files)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "output 0: tensor(" in done.stdout
