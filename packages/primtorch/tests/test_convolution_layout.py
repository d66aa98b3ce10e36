"""Layout of the result of a one-dimensional convolution, for every order of the operands' dimensions."""

import itertools

import pytest
import torch

from lamina_primtorch.rules.nn import convolution

ORDERS = list(itertools.permutations(range(3)))


def laid_out(shape, order):
    """A tensor of this shape whose memory runs in this order of dimensions."""
    return torch.randn([shape[d] for d in order]).permute([order.index(d) for d in range(3)])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("channels, length", [(6, 8), (1, 8), (6, 1)])
def test_one_dimensional(transposed, channels, length):
    for x_order, w_order, width in itertools.product(ORDERS, ORDERS, (1, 3)):
        x = laid_out((2, channels, length), x_order)
        w = laid_out((channels, 4, width) if transposed else (4, channels, width), w_order)
        args = (x, w, None, [1], [width // 2], [1], transposed, [0], 1)
        got, want = convolution(*args), torch.ops.aten.convolution.default(*args)
        assert tuple(got.shape) == tuple(want.shape)
        for size, a, b in zip(want.shape, got.stride, want.stride()):
            assert size == 1 or a == b, (x.stride(), w.stride(), got.stride, want.stride())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_dtype_and_rank(rank, dtype):
    """A rule that answers gives eager's layout, in float64 as well; three-dimensional ones may be declined."""
    answered = 0
    orders = [tuple(range(rank + 2)), (0, *range(2, rank + 2), 1)]
    for x_order, w_order, groups, transposed in itertools.product(orders, orders, (1, 4), (False, True)):
        x = torch.randn([(2, 4, 5, 6, 7)[d] for d in x_order]).to(dtype)
        x = x.permute([x_order.index(d) for d in range(rank + 2)])
        w = torch.randn([(4, 4 // groups, 3, 3, 3)[d] for d in w_order]).to(dtype)
        w = w.permute([w_order.index(d) for d in range(rank + 2)])
        args = (x, w, None, [1], [1], [1], transposed, [0], groups)
        try:
            got = convolution(*args)
        except NotImplementedError:
            continue
        want = torch.ops.aten.convolution.default(*args)
        assert tuple(got) == (tuple(want.shape), want.stride(), want.dtype, want.device)
        answered += 1
    assert answered > 3
