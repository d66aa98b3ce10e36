"""Comparing a compiled graph with eager."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from lamina_inductor.compile import CompiledGraph, choose_target, compile_graph

TARGETS = ["reference"]
if choose_target(None, "cpu")[0].name == "cpp" and os.environ.get("LAMINA_TEST_TARGETS", "") != "reference":
    TARGETS.append("cpp")


def compare(got: Any, expected: Any, rtol: float | None = None, atol: float | None = None, stride: bool = True) -> None:
    """Values, dtype, shape and stride are those of eager."""
    if not isinstance(expected, torch.Tensor):
        assert got == expected
        return
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if stride and expected.numel():
        for n, a, b in zip(expected.shape, got.stride(), expected.stride(), strict=True):
            assert n == 1 or a == b, f"stride {got.stride()} instead of {expected.stride()}"
    torch.testing.assert_close(got, expected, rtol=rtol, atol=atol, equal_nan=True)


def run(gm: GraphModule, inputs: Sequence[Any], target: str = "reference", **checks: Any) -> CompiledGraph:
    """Compiles, runs twice, compares with the values the graph was recorded with; returns the compiled graph."""
    compiled = compile_graph(gm, target=target)
    assert compiled.fallback is None, compiled.fallback
    expected = [n.meta["val"] if isinstance(n, torch.fx.Node) else n for n in gm.graph.output_node().args[0]]
    before = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    for _ in range(2):
        for got, want in zip(compiled(list(inputs)), expected, strict=True):
            compare(got, want, **checks)
    for x, y in zip(inputs, before, strict=True):
        if isinstance(x, torch.Tensor):
            assert torch.equal(
                x.nan_to_num() if x.is_floating_point() else x, y.nan_to_num() if y.is_floating_point() else y
            )
    return compiled
