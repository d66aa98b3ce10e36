"""Shape rule of products of row groups: also of dtypes that a release's meta kernel refuses."""

import pytest
import torch

from lamina_primtorch.shape_rules import RULES

if not hasattr(torch.ops.aten, "_grouped_mm"):
    pytest.skip("this torch has no grouped products", allow_module_level=True)

op = torch.ops.aten._grouped_mm.default


def operands(dtype, columns=24):
    ends = torch.tensor([3, 3, 10], dtype=torch.int32)
    return torch.randn(10, 16).to(dtype), torch.randn(3, 16, columns).to(dtype), ends


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rule_agrees_with_eager(dtype):
    args = operands(dtype)
    shape, stride, found, _ = RULES[op](args, {})
    want = op(*args)
    assert (tuple(shape), tuple(stride), found) == (tuple(want.shape), want.stride(), want.dtype)


def test_padded_rows_are_left_to_torch():
    with pytest.raises(NotImplementedError):
        RULES[op](operands(torch.float32, 23), {})
