"""Attention that is written out: what is seen as one, what its masks say, and what stays as it is."""

import pytest
import torch
from programs import Tracer

import lamina_primtorch
from lamina_inductor import compile_graph
from lamina_inductor.attention_pass import find_attention
from lamina_inductor.codegen.attention_kernel import AttentionKernel, Bound, find_bounds, find_masks
from lamina_inductor.codegen.reference import ReferenceTarget
from lamina_inductor.passes import without

aten = torch.ops.aten


class Planned(ReferenceTarget):
    """Takes attention as one kernel, and only keeps the program."""

    name = "planned"

    def can_lower(self, op, dtype):
        return None if op == "attention" else super().can_lower(op, dtype)

    def build(self, program, config):
        class Done:
            source = ""

        return Done()


def attention_of(program, *shapes, dtype=torch.float32):
    """(the kernel or None, the compiled graph) of a traced program."""
    inputs = [torch.randn(*s, dtype=dtype) for s in shapes]
    tracer = Tracer(*inputs)
    out = program(tracer, *inputs)
    outs = out if isinstance(out, tuple) else (out,)
    gm = lamina_primtorch.decompose(tracer.finish(*outs), "prims")
    compiled = compile_graph(gm, inputs, target=Planned())
    found = [k for k in compiled.kernels if isinstance(k, AttentionKernel)]
    return (found[0] if found else None), compiled


QKV = ((2, 32, 16),) * 3


def scores(t, q, k):
    return t.call(aten.bmm.default, q, t.call(aten.permute.default, k, [0, 2, 1]))


def places(t, m=32, n=32):
    rows = t.call(aten.view.default, t.call(aten.arange.default, m), [m, 1])
    return rows, t.call(aten.view.default, t.call(aten.arange.default, n), [1, n])


def masked(condition):
    def program(t, q, k, v):
        s = t.call(aten.masked_fill.Scalar, scores(t, q, k), condition(t), float("-inf"))
        return t.call(aten.bmm.default, t.call(aten._softmax.default, s, -1, False), v)

    return program


def test_plain_attention_is_one_kernel():
    kernel, compiled = attention_of(masked(lambda t: t.call(aten.gt.Scalar, places(t)[1], 20)), *QKV)
    assert kernel.extents == (2, 32, 32, 16, 16)
    assert len(compiled.kernels) == 1 and not compiled.externs
    assert "product" in kernel.text() and kernel.key().startswith("attention")


def test_the_pass_can_be_left_out():
    with without("attention"):
        kernel, compiled = attention_of(masked(lambda t: t.call(aten.gt.Scalar, places(t)[1], 20)), *QKV)
    assert kernel is None and len(compiled.externs) == 2


def negated(t, condition):
    return t.call(aten.logical_not.default, condition)


def tril(t):
    return negated(t, t.call(aten.tril.default, t.call(aten.ones.default, [32, 32], dtype=torch.bool)))


def near(t):
    """False in a window of 8 behind each row."""
    rows, columns = places(t)
    distance = t.call(aten.sub.Tensor, rows, columns)
    inside = t.call(
        aten.logical_and.default, t.call(aten.ge.Scalar, distance, 0), t.call(aten.lt.Scalar, distance, 8)
    )
    return negated(t, inside)


CAUSAL = {Bound(True, 1, 0)}


@pytest.mark.parametrize(
    "condition, bounds",
    [
        (lambda t: t.call(aten.lt.Tensor, *places(t)), CAUSAL),
        (tril, CAUSAL),
        (lambda t: t.call(aten.gt.Tensor, *places(t)[::-1]), CAUSAL),
        (near, {Bound(True, 1, 0), Bound(False, 1, -7)}),
        (lambda t: t.call(aten.ge.Scalar, places(t)[1], 20), {Bound(True, 0, 19)}),
        (lambda t: t.call(aten.le.Tensor, *places(t)), {Bound(True, 1, -1)}),
    ],
)
def test_bounds_of_masks_of_positions(condition, bounds):
    kernel, _ = attention_of(masked(condition), *QKV)
    assert set(find_bounds(kernel.root("score"))) == bounds
    (mask,) = find_masks(kernel.root("score"))
    assert set(mask.bounds) == bounds  # they say all


def test_bounds_agree_with_the_mask_itself():
    """A column outside is masked; where they say all, a column inside is not."""
    for shift in (-3, 0, 5):
        def condition(t, shift=shift):
            rows, columns = places(t)
            return t.call(aten.gt.Tensor, columns, t.call(aten.add.Scalar, rows, shift))

        kernel, _ = attention_of(masked(condition), *QKV)
        (bound,) = find_bounds(kernel.root("score"))
        for m in range(32):
            for n in range(32):
                assert (n <= bound.rows * m + bound.offset) == (not n > m + shift)


def test_a_mask_that_is_read_says_nothing_in_full():
    def program(t, q, k, v, outside):
        off = t.call(aten.gt.Scalar, outside, 0)
        either = t.call(aten.logical_or.default, off, t.call(aten.lt.Tensor, *places(t)))
        s = t.call(aten.masked_fill.Scalar, scores(t, q, k), either, float("-inf"))
        return t.call(aten.bmm.default, t.call(aten._softmax.default, s, -1, False), v)

    kernel, _ = attention_of(program, *QKV, (32, 32))
    assert set(find_bounds(kernel.root("score"))) == CAUSAL
    assert find_masks(kernel.root("score"))[0].bounds is None


def test_a_finite_mask_bounds_nothing():
    """Rows of nothing but such scores are averages of all columns."""

    def program(t, q, k, v):
        s = t.call(aten.masked_fill.Scalar, scores(t, q, k), t.call(aten.lt.Tensor, *places(t)), -1e9)
        return t.call(aten.bmm.default, t.call(aten._softmax.default, s, -1, False), v)

    kernel, _ = attention_of(program, *QKV)
    assert find_bounds(kernel.root("score")) == []


def wanted_elsewhere(t, q, k, v):
    weights = t.call(aten._softmax.default, scores(t, q, k), -1, False)
    return t.call(aten.bmm.default, weights, v), weights


def shifted(t, q, k, v):
    """Each score is that of the row above."""
    s = t.call(aten.flip.default, scores(t, q, k), [1])
    return t.call(aten.bmm.default, t.call(aten._softmax.default, s, -1, False), v)


def added_behind(t, q, k, v):
    weights = t.call(aten.add.Tensor, t.call(aten._softmax.default, scores(t, q, k), -1, False), 0.1)
    return t.call(aten.bmm.default, weights, v)


def along_rows(t, q, k, v):
    return t.call(aten.bmm.default, t.call(aten._softmax.default, scores(t, q, k), 1, False), v)


@pytest.mark.parametrize("program", [wanted_elsewhere, shifted, added_behind, along_rows])
def test_what_is_no_attention_stays_as_it_is(program):
    kernel, compiled = attention_of(program, *QKV)
    assert kernel is None and compiled.fallback is None and len(compiled.externs) == 2


def test_few_rows_stay_with_the_library():
    kernel, _ = attention_of(masked(lambda t: t.call(aten.gt.Scalar, places(t)[1], 20)), (2, 1, 16), *QKV[1:])
    assert kernel is None


def test_a_shift_leaves_nothing_of_the_attempt():
    """The parts are lowered one by one afterwards, and the graph computes what eager does."""

    class Once(ReferenceTarget):
        def can_lower(self, op, dtype):
            return None if op == "attention" else super().can_lower(op, dtype)

    inputs = [torch.randn(*s) for s in QKV]
    tracer = Tracer(*inputs)
    out = shifted(tracer, *inputs)
    gm = lamina_primtorch.decompose(tracer.finish(out), "prims")
    assert len(find_attention(gm.graph)) == 1
    compiled = compile_graph(gm, inputs, target=Once())
    torch.testing.assert_close(compiled(list(inputs))[0], out)
    assert any("not at its own place" in why for _, why in compiled.reasons)
