"""Ops that return numbers beside tensors, as fused attention does: the numbers follow from metadata and are constants
of the graph.
"""

import pytest
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


BIG = 3.4028234663852886e38
"""The largest float32."""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int8])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, m: (x.masked_fill(m, BIG),),
        lambda x, m: (torch.full_like(x, -BIG),),
        lambda x, m: (torch.clamp(x, min=-BIG),),
        lambda x, m: (x.masked_fill(m, 300),),
        lambda x, m: (torch.nn.functional.hardtanh(x, -1e300, 1e300),),
        lambda x, m: (torch.add(x, x, alpha=1e300),),
        lambda x, m: (x + BIG, x * 1e300, x > 1e300, torch.where(m, x, BIG)),
        lambda x, m: (x.masked_fill(m, float("-inf")),),
    ],
)
def test_numbers_that_a_dtype_does_not_hold(fn, dtype):
    """Raises where eager raises, and the same values elsewhere."""
    x, m = torch.tensor([1, 2], dtype=dtype), torch.tensor([True, False])
    gm = torch.fx.symbolic_trace(fn)
    compiled = aot.aot_compile(gm, [x, m])
    try:
        want = fn(x, m)
    except RuntimeError as error:
        with pytest.raises(RuntimeError) as found:
            compiled(x, m)
        assert str(found.value).splitlines()[0] == str(error).splitlines()[0]
    else:
        for a, b in zip(compiled(x, m), want, strict=True):
            assert a.dtype is b.dtype and torch.equal(a, b)
