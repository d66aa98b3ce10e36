"""Slices of tensors that grow: sizes stay, strides change; they become symbolic as sizes do."""

from __future__ import annotations

import pytest
import torch

import lamina_dynamo
from lamina_dynamo.counters import reset_counters


def graphs_for(fn, inputs, **options):
    reset_counters()
    compiled = lamina_dynamo.optimize("eager", fullgraph=True, **options)(fn)
    for x in inputs:
        torch.testing.assert_close(compiled(x), fn(x))
    return lamina_dynamo.counters()["graphs"]


@pytest.mark.parametrize("dynamic", [None, True])
def test_last_column_of_a_growing_matrix_is_compiled_twice(dynamic):
    assert graphs_for(lambda x: x.sin() + 1, [torch.randn(3, n)[:, -1:] for n in range(5, 25)], dynamic=dynamic) == 2


def test_inner_slices_and_views():
    inputs = [torch.randn(4, 3, n)[:, :, 1:4] for n in range(5, 15)]
    assert graphs_for(lambda x: x.transpose(0, 1) * x.shape[0], inputs) == 2


def test_strides_and_contiguity_are_those_of_eager():
    def fn(x):
        return x.stride(), x.is_contiguous(), x.t().stride(), (x + 1) * x.stride(0)

    compiled = lamina_dynamo.optimize("eager")(fn)
    for x in (*(torch.randn(3, n)[:, 1:4] for n in (5, 7, 9)), torch.randn(3, 3), torch.randn(3, 3).t()):
        got, want = compiled(x), fn(x)
        assert got[:3] == want[:3]
        torch.testing.assert_close(got[3], want[3])


def test_in_place_changes_reach_the_whole_tensor():
    def fn(x):
        return x.mul_(2) + 1

    compiled = lamina_dynamo.optimize("eager")(fn)
    for n in (5, 7, 9, 12):
        whole = torch.randn(3, n)
        other = whole.clone()
        torch.testing.assert_close(compiled(whole[:, 1:3]), fn(other[:, 1:3]))
        assert torch.equal(whole, other)


def test_never_with_dynamic_false():
    assert graphs_for(lambda x: x + 1, [torch.randn(3, n)[:, -1:] for n in (5, 6, 7)], dynamic=False) == 3
