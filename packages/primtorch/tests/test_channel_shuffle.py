"""Channels that are shuffled keep channels-last memory, which torch's own shape rule forgets."""

import pytest
import torch
from one_op import graph_of

from lamina_primtorch import decompose
from lamina_primtorch.shape_rules import RULES

OP = torch.ops.aten.channel_shuffle.default
CASES = [
    ((2, 6, 3, 4), torch.channels_last),
    ((1, 6, 3, 4), torch.channels_last),
    ((2, 6, 2, 3, 4), torch.channels_last_3d),
    ((2, 6, 3, 4), torch.contiguous_format),
    ((2, 6, 1, 1), torch.channels_last),
    ((2, 6, 5), torch.contiguous_format),
    ((0, 6, 3, 4), torch.channels_last),
]


@pytest.mark.parametrize("shape, format", CASES)
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_like_eager(shape, format, groups):
    x = torch.randn(shape).contiguous(memory_format=format)
    want = OP(x, groups)
    meta = RULES[OP]((x, groups), {})
    assert (tuple(meta.shape), tuple(meta.stride), meta.dtype) == (tuple(want.shape), want.stride(), want.dtype)
    graph, inputs = graph_of(OP, (x, groups), {}, want)
    got = decompose(graph)(*inputs)
    got = got[0] if isinstance(got, (tuple, list)) else got
    assert torch.equal(got, want) and got.stride() == want.stride()


@pytest.mark.parametrize("shape, groups", [((2, 5, 3), 2), ((4,), 2), ((2, 4, 3), 0), ((2, 4, 3), -1)])
def test_bad_groups_raise(shape, groups):
    x = torch.randn(shape)
    with pytest.raises(RuntimeError):
        OP(x, groups)
    with pytest.raises(RuntimeError, match="channel_shuffle"):
        RULES[OP]((x, groups), {})
