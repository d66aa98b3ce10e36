"""Norms and means of rows that hold an infinite value: NaN where eager's running mean is NaN, infinite where it is."""

import math

import pytest
import torch
import torch.nn.functional as F

import lamina

PROGRAMS = {
    "var_mean": lambda x: torch.var_mean(x, -1),
    "std_mean of columns": lambda x: torch.std_mean(x, 0),
    "layer norm": lambda x: torch.native_layer_norm(x, (6,), None, None, 1e-5),
    "group norm": lambda x: torch.native_group_norm(x.reshape(2, 4, 3), None, None, 2, 4, 3, 2, 1e-5),
    "instance norm": lambda x: (F.instance_norm(x.reshape(2, 2, 6)),),
    "batch norm": lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5),
    "var_mean of one": lambda x: torch.var_mean(x[:, 2:3], -1),  # the variance is NaN, the mean is not
    "mean": lambda x: (x.mean(-1), x.norm(dim=-1).mean()),
    "product": lambda x: (x.prod(0),),
}


@pytest.mark.parametrize("backend", ["reference", "inductor"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_rows_with_an_infinite_value(program, dtype, backend):
    fn = PROGRAMS[program]
    results = []
    for call in (fn, lamina.compile(fn, backend=backend)):
        torch.manual_seed(0)
        x = torch.randn(4, 6).to(dtype)
        x[0, 1], x[2, 0], x[2, 3] = math.inf, math.inf, -math.inf
        x.requires_grad_()
        out = call(x)
        loss = sum(o.float().nan_to_num(0, 0, 0).sum() for o in out if o.requires_grad)
        results.append([*out, torch.autograd.grad(loss, x)[0]])
    near = {"rtol": 3e-2, "atol": 1e-2} if dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(results[1], results[0], equal_nan=True, **near)
