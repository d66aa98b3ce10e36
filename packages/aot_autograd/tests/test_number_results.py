"""Ops that return numbers beside tensors, as fused attention does: the numbers follow from metadata and are constants
of the graph.
"""

import torch
import torch.fx as fx

import lamina_aot_autograd as aot

_lib = torch.library.Library("lamina_test_numbers", "DEF")
_lib.define("with_length(Tensor x) -> (Tensor, SymInt)")
_lib.define("with_length_backward(Tensor g, SymInt n) -> Tensor")
for _key in ("CPU", "Meta"):
    _lib.impl("with_length", lambda x: (x * 2, x.shape[0]), _key)
    _lib.impl("with_length_backward", lambda g, n: g * 2 + 0 * n, _key)


class WithLength(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out, n = torch.ops.lamina_test_numbers.with_length(x)
        ctx.n = n
        return out

    @staticmethod
    def backward(ctx, g):
        return torch.ops.lamina_test_numbers.with_length_backward(g, ctx.n)


def with_length(x):
    return WithLength.apply(x)


def test_number_is_a_constant_of_the_graph():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(with_length, (x,)),))
    gm = fx.GraphModule({}, graph)
    run = aot.aot_compile(gm, [torch.randn(3, requires_grad=True)], forward_compiler=lambda g, _: g)
    a = torch.randn(3, requires_grad=True)
    out = run(a)[0]
    assert torch.equal(out, a * 2)
    out.sum().backward()
    assert torch.equal(a.grad, torch.full((3,), 2.0))
