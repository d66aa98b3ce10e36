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
