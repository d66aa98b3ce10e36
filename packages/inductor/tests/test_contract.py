"""Contracts 9.5 to 9.8 as this package keeps them."""

from __future__ import annotations

import dataclasses
from importlib.metadata import entry_points

import pytest
import torch
from check import TARGETS
from programs import Tracer

from lamina_inductor import compile_graph, config, list_targets
from lamina_inductor.observe import on_event


def turned():
    """A graph whose output is strided unlike its input, with an extern and a kernel."""
    x, w = torch.randn(6, 4), torch.randn(4, 5)
    t = Tracer(x, w)
    y = t.permute(t.exp(t.call(torch.ops.aten.mm.default, x, w)), (1, 0))
    return t.finish(y), [x, w], y


@pytest.mark.parametrize("target", TARGETS)
def test_a_compiled_graph_is_called_and_looked_at(target):
    gm, inputs, want = turned()
    compiled = compile_graph(gm, target=target, name="turned")
    boxed = list(inputs)
    [got] = compiled(boxed)
    assert boxed == [] and got.stride() == want.stride()  # the list is emptied, strides are eager's
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(list(compiled.unboxed(*inputs))[0], want)
    assert compiled.source and compiled.kernels and len(compiled.externs) == 1
    assert compiled.timings["total"] > 0 and isinstance(compiled.fusion_log, list) and compiled.error is None


def test_the_target_follows_the_device_and_operators_that_are_not_lowered_are_called():
    x = torch.randn(4, 4)
    t = Tracer(x)
    y = t.call(torch.ops.aten.erfinv.default, t.sin(x))
    compiled = compile_graph(t.finish(y))
    torch.testing.assert_close(compiled([x])[0], y, equal_nan=True)
    assert compiled.target in ("cpp", "reference")


def test_targets_are_registered_by_entry_point():
    names = {e.name for e in entry_points(group="lamina.targets")}
    assert {"cpp", "triton", "reference"} <= names and names == set(list_targets())


def test_settings_are_frozen_and_described():
    fields = dataclasses.fields(config.Config)
    assert all(f.metadata["doc"] and {"env", "key"} <= set(f.metadata) for f in fields)
    assert {"LAMINA_STRICT", "LAMINA_DUMP_DIR", "LAMINA_CACHE_DIR"} <= {f.metadata["env"] for f in fields}
    with config.patch(fusion=False):
        assert not config.current().fusion
        assert ("fusion", False) in config.key_fields(config.current())
    assert config.current().fusion


def test_events_are_heard_until_removed():
    heard = []
    remove = on_event(heard.append)
    gm, _, _ = turned()
    compile_graph(gm, target="reference")
    remove()
    count = len(heard)
    compile_graph(gm, target="reference")
    assert count == len(heard) and {"kernel", "program"} <= {e.name for e in heard}
