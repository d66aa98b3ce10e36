"""Target "core_aten": only what is outside the core set is rewritten, and every prim can be spelled in ATen."""

import pytest
import torch
import torch.fx as fx
from one_op import graph_of

import lamina_primtorch as lp
from lamina_primtorch.core_aten import spell_in_aten

aten = torch.ops.aten


def lowered(op, *args, **kwargs):
    gm, inputs = graph_of(op, args, kwargs, op(*args, **kwargs))
    return lp.decompose(gm, "core_aten"), inputs


def targets(gm):
    return {n.target for n in gm.graph.nodes if n.op == "call_function"}


def test_core_ops_stay():
    gm, _ = lowered(aten.gelu.default, torch.randn(4))
    assert targets(gm) == {aten.gelu.default}


@pytest.mark.parametrize(
    "call",
    [
        (aten.silu.default, torch.randn(3, 4)),
        (aten.silu_backward.default, torch.randn(3, 4), torch.randn(3, 4)),
        (aten.glu_backward.default, torch.randn(3, 2), torch.randn(3, 4), 1),
        (aten.std.correction, torch.randn(3, 4), [1]),
        (aten.tril.default, torch.randn(4, 4)),
        (aten.stack.default, [torch.randn(3), torch.randn(3)], 1),
        (aten.all.dim, torch.randn(3, 4) > 0, 1),
        (aten._softmax_backward_data.default, torch.randn(3, 4), torch.rand(3, 4), 1, torch.float32),
        (aten.lerp.Scalar, torch.randn(3), torch.randn(3), 0.7),
        (aten.transpose.int, torch.randn(3, 4), 0, 1),
        (aten.nll_loss_forward.default, torch.randn(3, 4), torch.tensor([0, 3, 1]), None, 1, -100),
    ],
    ids=lambda c: str(c[0]),
)
def test_others_become_core_ops_with_eagers_values(call):
    op, *args = call
    gm, inputs = lowered(op, *args)
    assert op not in targets(gm)
    assert all(isinstance(t, torch._ops.OpOverload) or t.__module__ == "_operator" for t in targets(gm))
    got = gm(*inputs)
    want = op(*args)
    for g, w in zip(got, want if isinstance(want, (tuple, list)) else (want,), strict=True):
        torch.testing.assert_close(g, w)
        assert g.stride() == w.stride()


@pytest.mark.parametrize("prim", [p for p in lp.PRIMS.values() if "extern" not in p.spec.tags], ids=lambda p: p.name)
def test_every_prim_can_be_spelled(prim):
    for args, kwargs in prim.spec.samples[:3]:
        graph = fx.Graph()
        inputs = []

        def place(x, graph=graph, inputs=inputs):
            if not isinstance(x, torch.Tensor):
                return x
            node = graph.placeholder(f"x{len(inputs)}")
            node.meta["val"] = x
            inputs.append(x)
            return node

        fx_args = torch.utils._pytree.tree_map(place, args)
        want = prim(*args, **kwargs)
        node = graph.call_function(prim, fx_args, kwargs)
        node.meta["val"] = want
        if isinstance(want, (tuple, list)):
            if prim.name != "var_mean":
                continue
            import operator

            outs = [graph.call_function(operator.getitem, (node, k)) for k in range(len(want))]
            graph.output(tuple(outs))
        else:
            want = (want,)
            graph.output((node,))
        gm = spell_in_aten(fx.GraphModule({}, graph))
        if prim.name == "empty_strided":
            continue
        for g, w in zip(gm(*inputs), want, strict=True):
            torch.testing.assert_close(g, w, equal_nan=True, rtol=1e-5, atol=1e-6)
