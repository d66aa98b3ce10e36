"""Graphs as Python text that runs on its own."""

from __future__ import annotations

import itertools
import os
from typing import Any

import torch.fx as fx

from . import config
from .contract import require_graph

_HEADER = """import math
import operator
from math import inf, nan
import torch
from torch import device
"""
_numbers = itertools.count(1)


def code_of(gm: fx.GraphModule, name: str, seconds: float = 0.0) -> str:
    """Source of a function `name(*inputs)`, headed by its pass and time. Tensor constants are module-level names."""
    require_graph(gm)
    code = gm.graph.python_code("self")
    lines = [f"# {name}: {len(gm.graph.nodes)} nodes, {seconds:.3f} s", _HEADER]
    for key, value in code.globals.items():
        if key not in ("torch", "device", "inf", "nan", "math", "operator"):
            module = getattr(value, "__module__", None)
            qualified = getattr(value, "__qualname__", None)
            if module and qualified and key != "NoneType" and "<locals>" not in qualified:
                lines.append(f"from {module} import {qualified.split('.')[0]}  # as {key}")
    source = code.src.strip().replace("def forward(self, ", f"def {name}(").replace("def forward(self", f"def {name}(")
    constants = [n.target for n in gm.graph.nodes if n.op == "get_attr"]
    for target in constants:
        value = getattr(gm, str(target), None)
        if value is not None:
            lines.append(f"{target} = torch.tensor({value.tolist()!r}, dtype={value.dtype})")
            source = source.replace(f"self.{target}", str(target))
    lines.append(source)
    return "\n".join(lines) + "\n"


def dump(gm: Any, name: str, seconds: float = 0.0) -> None:
    """Write the graph to a numbered file when a dump folder is set."""
    folder = config.get().dump_dir
    if not folder:
        return
    try:
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{next(_numbers):02d}_{name}.py"), "w") as file:
            file.write(code_of(gm, name, seconds))
    except OSError as error:
        from .observe import report

        report("fallback", f"dump of {name} failed: {error}")
