"""Gradients of products: eager divides where no factor is zero, and multiplies the others where one is."""

import math

import pytest
import torch
import torch.fx as fx

import lamina_aot_autograd as aot


@pytest.fixture
def compiled():
    return lambda fn, x: aot.aot_compile(fx.symbolic_trace(fn), [x])


VALUES = {
    "plain": [2.0, -1.5, 0.5, 3.0, 1.0, -2.0],
    "one zero": [2.0, 0.0, 0.5, 3.0, 1.0, -2.0],
    "two zeros": [2.0, 0.0, 0.5, 0.0, 1.0, -2.0],
    "infinite": [2.0, -1.5, math.inf, 3.0, 1.0, -2.0],
    "infinite and zero": [2.0, 0.0, math.inf, 3.0, 1.0, -2.0],
    "nan": [2.0, math.nan, 0.5, 3.0, 1.0, -2.0],
    "overflow": [3e38, -1.5, 100.0, 3.0, 1.0, -2.0],
}

PROGRAMS = {
    "all": lambda x: (x.prod(),),
    "function": lambda x: (torch.prod(x),),
    "dim": lambda x: (x.prod(0),),
    "last, kept": lambda x: (torch.prod(x, -1, keepdim=True),),
    "keyword": lambda x: (x.prod(dim=1, keepdim=False) * 2,),
    "dtype": lambda x: (x.prod(dtype=torch.float64),),
    "of an intermediate": lambda x: (x.mul(1).sin().prod(1).sum(),),
}


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_products(values, program, compiled):
    grads = []
    fn = PROGRAMS[program]
    for layout in (lambda t: t, lambda t: t.t()):
        grads = []
        for call in (fn, None):
            x = layout(torch.tensor(VALUES[values]).reshape(2, 3)).detach().requires_grad_()
            out = (call or compiled(fn, x))(x)
            (out[0] * 1.5).sum().backward()
            grads.append((out[0], x.grad))
        torch.testing.assert_close(grads[1], grads[0], equal_nan=True)
        if values in ("plain", "infinite", "nan", "overflow"):  # else eager's layout depends on the values
            assert grads[1][1].stride() == grads[0][1].stride()


def test_complex_products_and_second_gradients(compiled):
    def fn(x):
        return (x.prod(0),)

    for dtype in (torch.complex128, torch.float64):
        x = torch.randn(3, 2, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()
        assert torch.autograd.gradcheck(lambda x: compiled(fn, x)(x)[0], (x,))
        assert torch.autograd.gradgradcheck(lambda x: compiled(fn, x)(x)[0], (x,))


def product_over(dim):
    return lambda x: (x.prod() if dim is None else x.prod(dim),)


def test_products_of_one_factor_and_of_nothing(compiled):
    for shape in ((), (1,), (1, 3), (0, 3), (3, 0)):
        x = torch.ones(shape).mul(2).requires_grad_()
        y = x.detach().clone().requires_grad_()
        for dim in (None, *range(len(shape))):
            fn = product_over(dim)
            got, want = compiled(fn, x)(x)[0], fn(y)[0]
            torch.testing.assert_close(got, want)
            grads = torch.autograd.grad(got.sum(), x)[0], torch.autograd.grad(want.sum(), y)[0]
            torch.testing.assert_close(*grads)
