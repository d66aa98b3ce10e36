"""Group norm keeps a channels-last layout on CPU."""

import pytest
import torch

from lamina_primtorch.shape_rules import RULES

CASES = [
    ((2, 4, 5, 6), torch.channels_last),
    ((2, 4, 3, 5, 6), torch.channels_last_3d),
    ((2, 4, 5, 6), torch.contiguous_format),
    ((2, 4, 7), torch.contiguous_format),
    ((0, 4, 5, 6), torch.channels_last),
    ((2, 4, 1, 1), torch.channels_last),
]


@pytest.mark.parametrize("shape, format", CASES)
def test_strides_are_eagers(shape, format):
    x = torch.randn(shape).contiguous(memory_format=format)
    pixels = x[:1].numel() // 4 if shape[0] else 30
    args = (x, None, None, shape[0], 4, pixels, 2, 1e-5)
    want = torch.native_group_norm(*args)
    got = RULES[torch.ops.aten.native_group_norm.default](args, {})
    assert [tuple(m.stride) for m in got] == [t.stride() for t in want]
    assert [tuple(m.shape) for m in got] == [tuple(t.shape) for t in want]
