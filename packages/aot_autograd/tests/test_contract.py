"""Contracts 9.1, 9.2, 9.4, 9.7 and 9.8 as this package keeps them."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.fx as fx

import lamina_aot_autograd as aot
from lamina_aot_autograd import config
from lamina_aot_autograd.errors import ContractError


def f(x, w):
    y = torch.nn.functional.linear(x, w)
    y.mul_(2)
    return (torch.tanh(y), y.sum())


def compiled(kind, inputs):
    """Compile `f`; `kind` is the calling convention of the compilers."""
    graphs = {}

    def compiler(role):
        def make(gm, fakes):
            graphs[role] = (gm, list(fakes))
            if kind == "boxed":
                def run(args):
                    values = list(args)
                    args.clear()
                    return list(gm(*values))

                run._boxed_call = True
                return run
            return gm.forward

        return make

    call = aot.aot_compile(fx.symbolic_trace(f), inputs, forward_compiler=compiler("forward"),
                           backward_compiler=compiler("backward"))
    return call, graphs


@pytest.mark.parametrize("kind", ["boxed", "plain"])
def test_compilers_get_flat_functional_graphs_and_give_either_convention(kind):
    x, w = torch.randn(3, 4), torch.randn(2, 4, requires_grad=True)
    call, graphs = compiled(kind, [x, w])
    out = call(x, w)
    (out[0].sum() + out[1]).backward()
    got, w.grad = w.grad, None
    want = f(x, w)
    (want[0].sum() + want[1]).backward()
    assert torch.allclose(got, w.grad) and all(torch.allclose(a, b) for a, b in zip(out, want, strict=True))
    for gm, fakes in graphs.values():
        aot.check_graph(gm)
        places = gm.graph.find_nodes(op="placeholder")
        assert len(places) == len(fakes)
        for node in gm.graph.nodes:
            assert node.op in ("placeholder", "call_function", "output", "get_attr")
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                assert not node.target._schema.is_mutable
    kinds = {n.meta["desc"].kind for gm, _ in graphs.values() for n in gm.graph.find_nodes(op="placeholder")}
    assert {"user_input", "tangent"} <= kinds
    gm, _ = graphs["backward"]
    assert any("seq_nr" in n.meta for n in gm.graph.nodes if n.op == "call_function")


def test_a_direct_callable_is_passed_through():
    call, _ = compiled("plain", [torch.randn(3, 4), torch.randn(2, 4)])
    assert callable(getattr(call, "unboxed", call))


def test_the_first_broken_node_is_named():
    joint = aot.trace_joint(fx.symbolic_trace(f), [torch.randn(3, 4), torch.randn(2, 4)])
    gm = joint.gm
    aot.check_graph(gm)
    node = next(n for n in gm.graph.nodes if n.op == "call_function")
    node.target = torch.ops.aten.add_.Tensor
    with pytest.raises(ContractError, match=node.name):
        aot.check_graph(gm)


def test_settings_are_few_frozen_and_described():
    fields = dataclasses.fields(config.Config)
    assert len(fields) <= 15 and all(f.metadata["doc"] and {"env", "in_cache_key"} <= set(f.metadata) for f in fields)
    assert {"LAMINA_STRICT", "LAMINA_DUMP_DIR"} <= {f.metadata["env"] for f in fields}
    with config.patch(regions=False):
        assert not config.get().regions
    assert config.get().regions


def test_events_are_heard_until_removed():
    heard = []
    remove = aot.on_event(heard.append)
    compiled("plain", [torch.randn(3, 4), torch.randn(2, 4)])
    remove()
    count = len(heard)
    compiled("plain", [torch.randn(3, 4), torch.randn(2, 4)])
    assert count == len(heard) > 0 and {"stage", "name", "payload", "seconds"} <= set(heard[0]._fields)
