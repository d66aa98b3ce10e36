"""View prims: values, strides, and that no copies are made where none are needed."""

import pytest
import torch
from check import TARGETS, run
from programs import Tracer

targets = pytest.mark.parametrize("target", TARGETS)

VIEWS = {
    "permute": lambda t, x: t.permute(x, (2, 0, 1)),
    "merge": lambda t, x: t.reshape(x, (12, 6)),
    "split": lambda t, x: t.reshape(x, (3, 2, 2, 3, 2)),
    "flat": lambda t, x: t.reshape(x, (72,)),
    "regroup": lambda t, x: t.reshape(x, (4, 18)),
    "odd": lambda t, x: t.reshape(x, (8, 9)),
    "ones": lambda t, x: t.reshape(x, (1, 3, 1, 4, 6, 1)),
    "slice": lambda t, x: t.slice(x, (1, 0, 1), (3, 4, 6), (1, 2, 3)),
    "flip": lambda t, x: t.flip(x, (0, 2)),
    "diagonal": lambda t, x: t.diagonal(x, 1, 1, 2),
    "diagonal_below": lambda t, x: t.diagonal(x, -1, 0, 2),
    "unfold": lambda t, x: t.unfold(x, 2, 3, 2),
    "broadcast": lambda t, x: t.broadcast_in_dim(x, (2, 3, 4, 6), (1, 2, 3)),
    "restride": lambda t, x: t.restride(x, (1, 18, 3)),
}


@targets
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_view_then_compute(name, lazy, target):
    x = torch.randn(3, 4, 6)
    t = Tracer(x)
    source = t.exp(x) if lazy else x
    run(t.finish(t.mul(VIEWS[name](t, source), 2.0)), [x], target)


@targets
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_view_as_output(name, lazy, target):
    x = torch.randn(3, 4, 6)
    t = Tracer(x)
    source = t.exp(x) if lazy else x
    out = VIEWS[name](t, source)
    if out is x or 0 in out.stride():
        return
    run(t.finish(out), [x], target)


@targets
def test_views_of_transposed_input(target):
    x = torch.randn(6, 4, 3).permute(2, 1, 0)
    for fn in VIEWS.values():
        t = Tracer(x)
        run(t.finish(t.mul(fn(t, x), 2.0)), [x], target)


@targets
def test_chain_of_views_is_one_kernel(target):
    x = torch.randn(4, 6, 8)
    t = Tracer(x)
    y = t.permute(t.reshape(t.permute(x, (1, 0, 2)), (24, 8)), (1, 0))
    compiled = run(t.finish(t.exp(y)), [x], target)
    assert len(compiled.kernels) == 1


@targets
def test_as_strided_reads_the_storage(target):
    x = torch.randn(4, 6)[1:]
    t = Tracer(x)
    run(
        t.finish(t.mul(t.as_strided(x, (3, 2), (6, 2), None), 2.0), t.mul(t.as_strided(x, (2, 2), (1, 1), 3), 2.0)),
        [x],
        target,
    )


@targets
def test_output_that_is_view_of_input_shares_memory(target):
    x = torch.randn(3, 4)
    t = Tracer(x)
    compiled = run(t.finish(t.permute(x, (1, 0)), x), [x], target)
    view, same = compiled([x])
    assert view.data_ptr() == x.data_ptr() and same is x
    assert not compiled.kernels


@targets
def test_expanded_output(target):
    x = torch.randn(3, 1)
    t = Tracer(x)
    run(t.finish(t.broadcast_in_dim(t.exp(x), (3, 4), (0, 1))), [x], target, stride=False)
