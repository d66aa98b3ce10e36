"""Operators of tensors that get only Python numbers: torch makes 0-dim tensors of them."""

import pytest
import torch

import lamina

PROGRAMS = {
    "divided": lambda x: x.view(torch.div(x.shape[0], 2, rounding_mode="trunc"), -1),
    "integers": lambda x: x + torch.add(3, 4) - torch.floor_divide(7, 2),
    "floats": lambda x: x * torch.mul(2.5, 2),
    "true_division": lambda x: x + torch.div(3, 2),
    "alpha": lambda x: x - torch.sub(2, 3, alpha=2),
    "beside_a_tensor": lambda x: x + torch.remainder(7, torch.tensor(4, dtype=torch.int32)),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float16])
@pytest.mark.parametrize("program", PROGRAMS)
def test_numbers_alone(program, dtype, dynamic):
    x = (torch.arange(32.0).reshape(8, 4) - 9).to(dtype)
    want = PROGRAMS[program](x)
    got = lamina.compile(PROGRAMS[program], dynamic=dynamic)(x)
    assert got.dtype == want.dtype and torch.equal(got, want)
