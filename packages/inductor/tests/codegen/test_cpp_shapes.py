"""Shapes that have code of their own: narrow columns, short rows, transposes, scans along memory, periodic indices."""

from __future__ import annotations

import pytest
import torch
from check import TARGETS, run
from programs import Tracer

pytestmark = pytest.mark.skipif("cpp" not in TARGETS, reason="no C++ compiler here")


def _data(shape, dtype):
    return (torch.randn(shape) * 5).to(dtype)


@pytest.mark.parametrize(
    "shape, dim", [((1000, 4), 0), ((777, 3), 0), ((3, 700, 7), 1), ((1000, 2), 0), ((4001, 20), 0)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.bfloat16])
def test_sums_of_narrow_columns(shape, dim, dtype):
    x = _data(shape, dtype)
    scale = _data(shape[-1:], dtype)
    t = Tracer(x, scale)
    wide = t.broadcast_in_dim(scale, shape, (len(shape) - 1,))
    graph = t.finish(t.sum(x, (dim,), dtype), t.amax(t.mul(x, wide), (dim,)), t.amin(x, (dim,)))
    loose = {torch.float32: 1e-3, torch.float64: 1e-9, torch.bfloat16: 2.0}.get(dtype)
    compiled = run(graph, [x, scale], "cpp", rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=loose or 0)
    assert "vperiod" in compiled.source


def test_narrow_columns_keep_nan_and_infinity():
    x = torch.randn(600, 5)
    x[7, 3], x[599, 1] = float("nan"), float("inf")
    t = Tracer(x)
    run(
        t.finish(t.sum(x, (0,), torch.float32), t.amax(x, (0,)), t.any(t.isnan(x), (0,))),
        [x],
        "cpp",
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("shape", [(70, 10), (33, 5), (200, 16), (100, 3, 31), (130, 48), (5, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_short_rows(shape, dtype):
    x = _data(shape, dtype)
    last = len(shape) - 1
    t = Tracer(x)
    best = t.amax(x, (last,))
    kept = t.broadcast_in_dim(best, shape, tuple(range(last)))
    graph = t.finish(t.sub(x, kept), t.sum(x, (last,), dtype), t.argmax(x, last), t.cumsum(x, last))
    run(graph, [x], "cpp")


@pytest.mark.parametrize("shape", [(34, 48), (2, 17, 48), (50, 12), (3, 40, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_short_rows_that_are_written_and_read_again(shape, dtype):
    """A sum that leaves the kernel and whose mean and variance it needs: the rows go to memory after the last phase."""
    x, y, z, scale = (torch.randn(s).to(dtype) for s in (shape, shape, shape, shape[-1:]))
    last = len(shape) - 1
    t = Tracer(x, y, z, scale)
    total = t.add(t.mul(x, y), z)
    wide = t.broadcast_in_dim(scale, shape, (last,))
    var, mean = t.var_mean(total, (last,), 0)
    kept = [t.broadcast_in_dim(v, shape, tuple(range(last))) for v in (mean, var)]
    graph = t.finish(total, t.mul(t.mul(t.sub(total, kept[0]), kept[1]), wide))
    near = 0.1 if dtype == torch.bfloat16 else 1e-4
    run(graph, [x, y, z, scale], "cpp", rtol=near, atol=near)


@pytest.mark.parametrize("shape", [(5, 37), (3, 1024), (1000,), (4, 3, 129)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.bfloat16])
def test_scans_along_memory(shape, dtype):
    x = _data(shape, dtype)
    small = x if not dtype.is_floating_point else (x / 10)
    t = Tracer(small)
    compiled = run(
        t.finish(t.cumsum(small, -1), t.cumprod(small, -1)),
        [small],
        "cpp",
        atol=1e-4 if dtype == torch.float32 else None,
        rtol=1e-5 if dtype == torch.float32 else None,
    )
    assert "row_scan" in compiled.source or dtype == torch.float64  # its products could overflow in between


def test_scan_with_infinities():
    x = torch.randn(2, 100)
    x[0, 40], x[0, 70], x[1, 50] = float("inf"), -float("inf"), float("nan")
    t = Tracer(x)
    run(t.finish(t.cumsum(x, 1)), [x], "cpp")


@pytest.mark.parametrize("shape", [(100, 70), (64, 64), (33, 129), (3, 40, 50)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.bool])
def test_transposes(shape, dtype):
    x = _data(shape, dtype)
    order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    y = _data(tuple(shape[k] for k in order), dtype)
    t = Tracer(x, y)
    compiled = run(
        t.finish(
            t.bitwise_or(t.permute(x, order), y) if not dtype.is_floating_point else t.add(t.permute(x, order), y)
        ),
        [x, y],
        "cpp",
    )
    assert "get_tile" in compiled.source


def test_positions_modulo_a_multiple_of_the_lanes():
    x = torch.randn(10, 64)
    t = Tracer(x)
    wide = t.broadcast_in_dim(x, (10, 3, 64), (0, 2))
    run(t.finish(t.add(t.reshape(wide, (10, 192)), 1.0)), [x], "cpp")


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integer_division(dtype):
    top = 2**31 - 1 if dtype == torch.int32 else 2**62
    a = torch.cat([torch.randint(-top, top, (500,)), torch.randint(-1000, 1000, (500,))]).to(dtype)
    b = torch.cat([torch.randint(1, top, (500,)), torch.randint(1, 30, (500,))]).to(dtype)
    b[::3] *= -1
    t = Tracer(a, b)
    run(t.finish(t.div_floor(a, b), t.div_trunc(a, b), t.remainder(a, b), t.fmod(a, b)), [a, b], "cpp")


def test_one_plus_erf():
    x = torch.cat(
        [torch.linspace(-12, 12, 10001), torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, 1e-40])]
    )
    t = Tracer(x)
    compiled = run(t.finish(t.add(t.erf(x), 1.0)), [x], "cpp", rtol=1e-6, atol=2e-7)
    assert "erf1p_" in compiled.source


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.bool])
def test_narrow_types(dtype):
    a, b = torch.randint(-200, 200, (1003,)).to(dtype), torch.randint(-200, 200, (1003,)).to(dtype)
    t = Tracer(a, b)
    wide = [t.convert_element_type(a, d) for d in (torch.float32, torch.float64, torch.int64, torch.bfloat16)]
    run(t.finish(t.add(a, b), t.mul(a, b), *wide), [a, b], "cpp")


@pytest.mark.parametrize("columns", [8, 64, 512, 515])
def test_sums_of_rows_taken_by_position(columns):
    """Positions are the same for all lanes: they are read and checked once, not lane by lane."""
    w, rows = torch.randn(50, columns), torch.randint(0, 50, (30, 4))
    t = Tracer(w, rows)
    compiled = run(t.finish(t.sum(t.take_rows(w, rows), (1,), torch.float32)), [w, rows], "cpp", rtol=1e-5, atol=1e-5)
    assert "load_splat<vec<i64, 1>>" in compiled.source
    rows[3, 2] = 50
    with pytest.raises(IndexError):
        compiled([w, rows])


@pytest.mark.parametrize("bound", [0.0, -0.0, 1.5, float("inf"), -float("inf"), float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bounds(bound, dtype):
    x = torch.cat([torch.randn(70), torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0])]).to(dtype)
    t = Tracer(x)
    run(t.finish(t.maximum(x, bound), t.minimum(x, bound)), [x], "cpp")


def test_positions_of_rows_and_of_lanes():
    x, rows, columns = torch.randn(20, 90), torch.randint(0, 20, (7, 1)), torch.randint(0, 90, (64,))
    t = Tracer(x, rows, columns)
    wide = [t.broadcast_in_dim(i, (7, 64), d) for i, d in ((rows, (0, 1)), (columns, (1,)))]
    run(t.finish(t.index(x, wide)), [x, rows, columns], "cpp", rtol=0, atol=0, stride=False)


@pytest.mark.parametrize("width", [3, 7, 12])
def test_positions_of_short_rows(width):
    """Rows become lanes: a position of a row is no longer the same for all of them."""
    x, rows = torch.randn(50, width), torch.randint(0, 50, (130,))
    t = Tracer(x, rows)
    taken = t.take_rows(x, rows)
    run(t.finish(t.sum(taken, (1,), torch.float32), t.amax(taken, (1,))), [x, rows], "cpp", rtol=1e-5, atol=1e-6)
