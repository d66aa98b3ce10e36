"""What leaves a graph has memory of its own where eager's result has, without a copy where nobody else has that."""

import pytest
import torch
from check import TARGETS, compare
from programs import Tracer

import lamina_primtorch
from lamina_inductor import compile_graph

aten = torch.ops.aten


def product_as_heads(t, x, w):
    y = t.call(aten.bmm.default, x, w)
    return y, t.call(aten._unsafe_view.default, y, [2, 3, *y.shape[1:]])


def results_of(program, target, *inputs):
    """(compiled graph, its results), which are those of eager."""
    t = Tracer(*inputs)
    outs = program(t, *inputs)
    compiled = compile_graph(lamina_primtorch.decompose(t.finish(*outs), "prims"), list(inputs), target=target)
    got = compiled(list(inputs))
    for a, b in zip(got, outs, strict=True):
        compare(a, b)
    return compiled, got


def operands():
    return torch.randn(6, 4, 5), torch.randn(6, 5, 7)


@pytest.mark.parametrize("target", TARGETS)
def test_a_fresh_view_of_a_product_is_no_copy(target):
    compiled, _ = results_of(lambda t, x, w: product_as_heads(t, x, w)[1:], target, *operands())
    assert not compiled.kernels


@pytest.mark.parametrize("target", TARGETS)
def test_two_results_of_one_product_share_no_memory(target):
    for order in (lambda y, z: (y, z), lambda y, z: (z, y)):
        _, (a, b) = results_of(lambda t, x, w, order=order: order(*product_as_heads(t, x, w)), target, *operands())
        assert a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr()


@pytest.mark.parametrize("target", TARGETS)
def test_a_view_of_the_product_beside_a_fresh_one(target):
    def program(t, x, w):
        y, z = product_as_heads(t, x, w)
        return z, t.call(aten.view.default, y, [3, 2, *y.shape[1:]])

    _, (a, b) = results_of(program, target, *operands())
    assert a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr()


@pytest.mark.parametrize("target", TARGETS)
def test_a_fresh_view_of_an_input_is_a_copy(target):
    x = torch.randn(3, 4, 5)
    _, (a,) = results_of(lambda t, x: (t.call(aten._unsafe_view.default, x, [12, 5]),), target, x)
    assert a.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


@pytest.mark.parametrize("target", TARGETS)
def test_part_of_a_product_does_not_keep_all_of_it(target):
    def program(t, x, w):
        y = t.call(aten.bmm.default, x, w)
        part = t.call(aten.slice.Tensor, y, 0, 0, 2)
        return (t.call(aten.clone.default, part, memory_format=torch.contiguous_format),)

    _, (a,) = results_of(program, target, *operands())
    assert a.untyped_storage().nbytes() < 6 * 4 * 7 * 4


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("target", TARGETS)
def test_operands_that_kernels_do_not_carry_are_laid_out_by_the_library(target, dtype):
    """The gaps of a strided tensor are no part of what a library's call is given."""
    def program(t, x, w):
        dense = t.call(lamina_primtorch.PRIMS["restride"], x, (12, 4, 1))
        return (t.call(aten.bmm.default, dense, w), dense)

    x = torch.randn(2, 3, 8, dtype=dtype)[..., ::2]
    results_of(program, target, x, torch.randn(2, 4, 5, dtype=dtype))
