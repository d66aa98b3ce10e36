"""Contracts 9.2, 9.5, 9.7 and 9.8 as this package keeps them."""

from __future__ import annotations

import dataclasses
from importlib.metadata import entry_points

import pytest
import torch
import torch.fx as fx

import lamina_primtorch as lp
from lamina_primtorch import config
from lamina_primtorch.shape_rules import RULES


def softmax_graph():
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(2, 5)
    y = graph.call_function(torch.ops.aten._softmax.default, (x, 1, False))
    y.meta["val"] = torch.empty(2, 5)
    graph.output((y,))
    return fx.GraphModule({}, graph)


class Shaped:
    """Not a tensor: what a shape rule may look at."""

    dtype, device, shape = torch.float32, torch.device("cpu"), (4, 3)

    def stride(self):
        return (3, 1)


def test_shape_rules_map_overloads_to_metadata():
    add = RULES[torch.ops.aten.add.Tensor]
    shape, stride, dtype, device = add((Shaped(), Shaped()), {})
    assert (tuple(shape), tuple(stride), dtype, device.type) == ((4, 3), (3, 1), torch.float32, "cpu")
    loaded = [e.load() for e in entry_points(group="lamina.shape_rules")]
    assert any(rules is RULES for rules in loaded)


def test_shape_rules_raise_what_eager_raises():
    class Wide(Shaped):
        shape = (4, 5)

    rule = RULES[torch.ops.aten.add.Tensor]
    with pytest.raises(RuntimeError) as eager:
        torch.empty(4, 3) + torch.empty(4, 5)
    with pytest.raises(RuntimeError) as own:
        rule((Shaped(), Wide()), {})
    assert str(own.value) == str(eager.value)


def test_prims_are_targets_with_a_spec():
    low = lp.decompose(softmax_graph())
    lp.check_graph(low)
    for node in low.graph.nodes:
        if node.op == "call_function":
            assert isinstance(node.target, lp.Prim) and lp.PRIMS[node.target.name] is node.target
            assert node.target.spec.schema is not None
            assert tuple(node.meta["val"].stride()) is not None
    assert torch.allclose(low(torch.ones(2, 5))[0], torch.full((2, 5), 0.2))


def test_extern_prims_name_their_overload():
    externs = [p for p in lp.PRIMS.values() if "extern" in p.spec.tags]
    assert externs and all(isinstance(p.spec.aten, torch._ops.OpOverload) for p in externs if p.spec.aten_name)


def test_the_prims_are_functional():
    assert not [n for n, p in lp.PRIMS.items() if "(a!)" in str(p.spec.schema)]


def test_settings_are_few_frozen_and_described():
    fields = dataclasses.fields(config.Config)
    assert len(fields) <= 15 and all(f.metadata["doc"] and "env" in f.metadata for f in fields)
    assert "LAMINA_STRICT" in {f.metadata["env"] for f in fields}


def test_events_are_heard_until_removed():
    heard = []
    remove = lp.on_event(heard.append)
    lp.decompose(softmax_graph())
    remove()
    lp.decompose(softmax_graph())
    assert len(heard) == 1 and {"stage", "name", "payload", "seconds"} <= set(heard[0]._fields)
