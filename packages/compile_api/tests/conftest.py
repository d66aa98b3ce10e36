"""Stand-ins for the four layers, so that the umbrella's own behaviour is tested without them."""

from __future__ import annotations

import contextlib
import importlib
import types

import pytest
import torch

from lamina import config, failures, pipeline


class CaptureError(Exception):
    """What the stand-in for capture raises on purpose."""


class StandIns:
    """Records what the umbrella asks of each layer; `fail[stage]` makes a stage raise."""

    CaptureError = CaptureError

    def __init__(self):
        self.calls = []
        self.fail = {}
        self.dynamo = types.SimpleNamespace(
            optimize=self.optimize, reset=lambda: self.calls.append(("reset",)), list_backends=lambda: ["registered"]
        )
        self.aot = types.SimpleNamespace(
            __name__="aot", aot_compile=self.aot_compile, run_eagerly=lambda gm, inputs=None: gm.forward)
        self.prims = types.SimpleNamespace(__name__="prims", decompose=self.decompose)
        self.inductor = types.SimpleNamespace(__name__="inductor", compile_graph=self.compile_graph)

    def import_stage(self, stage):
        return {"capture": self.dynamo, "aot": self.aot, "prims": self.prims, "inductor": self.inductor}[stage]

    def _maybe_fail(self, stage):
        if stage in self.fail:
            raise self.fail[stage]

    def optimize(self, backend, fullgraph=False, dynamic=None):
        self.calls.append(("optimize", backend, fullgraph, dynamic))

        def decorate(fn):
            def run(*args, **kwargs):
                self.calls.append(("call", fn))
                self._maybe_fail("capture")
                return fn(*args, **kwargs)

            return run

        return decorate

    def aot_compile(
        self, gm, example_inputs, *, forward_compiler, backward_compiler, inference_compiler, regions=False
    ):
        self.calls.append(("aot_compile",))
        self._maybe_fail("aot")
        return inference_compiler(gm, example_inputs)

    def decompose(self, gm, target):
        self.calls.append(("decompose", target))
        self._maybe_fail("prims")
        return gm

    def compile_graph(self, gm, example_inputs, target=None, name="", defer=False):
        self.calls.append(("compile_graph", target, name))
        self._maybe_fail("inductor")
        return gm.forward


@pytest.fixture
def layers(monkeypatch):
    stand_ins = StandIns()
    compile_module = importlib.import_module("lamina.compile")
    monkeypatch.setattr(pipeline, "import_stage", stand_ins.import_stage)
    monkeypatch.setattr(compile_module, "import_stage", stand_ins.import_stage)
    monkeypatch.setattr(compile_module, "stage_errors", lambda: (CaptureError,))
    monkeypatch.setattr(importlib.import_module("lamina.module"), "stage_errors", lambda: (CaptureError,))
    monkeypatch.setattr(pipeline, "_patched", lambda package, values: contextlib.nullcontext())
    failures.forget()
    return stand_ins


@pytest.fixture
def lenient():
    with config.patch(strict=False):
        yield


@pytest.fixture
def graph():
    g = torch.fx.Graph()
    x, w = g.placeholder("x"), g.placeholder("w")
    y = g.call_function(torch.nn.functional.linear, (x, w))
    y.meta["stack_trace"] = '  File "model.py", line 7, in forward\n    return linear(x, w)\n'
    g.output((g.call_function(torch.relu, (y,)),))
    return torch.fx.GraphModule({}, g)


@pytest.fixture
def inputs():
    return [torch.randn(3, 4), torch.randn(2, 4, requires_grad=True)]
