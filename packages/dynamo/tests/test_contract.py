"""Contracts 9.1, 9.3, 9.7 and 9.8 as this package keeps them."""

from __future__ import annotations

import dataclasses
import operator

import pytest
import torch

import lamina_dynamo
from lamina_dynamo import config, contract, numpy_calls, optimize
from lamina_dynamo.errors import ContractError


def captured(fn, *args):
    found = []

    def backend(gm, inputs):
        found.append((gm, list(inputs)))
        return gm.forward

    result = optimize(backend, fullgraph=True)(fn)(*args)
    return found, result


def modes(x, layer):
    with torch.no_grad():
        y = x * 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = layer(x)
    x.add_(1)
    return y.relu(), [z, x.shape[0]]


def test_a_backend_gets_a_flat_graph_and_real_inputs():
    x, layer = torch.randn(3, 4), torch.nn.Linear(4, 2)
    [(gm, inputs)], result = captured(modes, x, layer)
    contract.check_graph(gm)
    assert all(type(i) in (torch.Tensor, torch.nn.Parameter) for i in inputs)
    assert any(i is layer.weight for i in inputs)  # parameters are inputs
    targets = [n.target for n in gm.graph.nodes]
    assert torch._C._set_grad_enabled in targets and "add_" in targets
    assert any(getattr(t, "__name__", "") == "_enter_autocast" for t in targets)
    for node in gm.graph.nodes:
        if node.op == "call_function":
            assert getattr(node.target, "__module__", "").split(".")[0] in ("torch", "_operator", None) \
                or node.target in (operator.getitem, numpy_calls.numpy_call) or "torch" in str(node.target)
        assert node.op in ("placeholder", "call_function", "call_method", "output")
    assert isinstance(gm.graph.output_node().args[0], tuple) and result[1][1] == 3


def test_vals_have_metadata_and_no_data():
    [(gm, _)], _ = captured(modes, torch.randn(3, 4), torch.nn.Linear(4, 2))
    vals = [n.meta["val"] for n in gm.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    assert vals
    for val in vals:
        assert val.dim() == len(val.stride()) and val.device.type == "cpu" and val.layout is torch.strided


def test_symbolic_sizes_are_torchs():
    found = []

    def backend(gm, inputs):
        found.append(gm)
        return gm.forward

    optimize(backend, dynamic=True)(lambda x: x * x.shape[0])(torch.randn(5, 4))
    [gm] = found
    x = next(iter(gm.graph.find_nodes(op="placeholder"))).meta["val"]
    assert any(isinstance(n, torch.SymInt) for n in x.shape)


def test_the_first_broken_node_is_named():
    [(gm, _)], _ = captured(lambda x: x.relu() + 1, torch.randn(3))
    node = next(n for n in gm.graph.nodes if n.op == "call_method")
    del node.meta["val"]
    with pytest.raises(ContractError, match=node.name):
        contract.check_graph(gm)


def test_settings_are_few_frozen_and_described(monkeypatch):
    fields = dataclasses.fields(config.Config)
    assert len(fields) <= 15 and all(f.metadata["doc"] and {"env", "cache_key"} <= set(f.metadata) for f in fields)
    assert {"LAMINA_STRICT", "LAMINA_LOGS", "LAMINA_DUMP_DIR"} <= {f.metadata["env"] for f in fields}
    with config.patch(recompile_limit=3):
        assert config.get().recompile_limit == 3
    assert config.get().recompile_limit == 8
    with pytest.raises(TypeError), config.patch(no_such_setting=1):
        pass


def test_events_are_heard_until_removed():
    heard = []
    remove = lamina_dynamo.on_event(heard.append)
    captured(lambda x: x + 1, torch.ones(2))
    remove()
    count = len(heard)
    captured(lambda x: x + 2, torch.ones(2))
    assert count == len(heard) > 0 and {"stage", "name", "payload", "seconds"} <= set(heard[0]._fields)
