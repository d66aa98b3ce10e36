"""Normalizations and other overloads that torch's operator samples do not reach in their functional form."""

import pytest
import torch
from one_op import compare

a = torch.ops.aten
torch.manual_seed(0)
X = torch.randn(4, 3, 5, 5)
W, B, M, V = torch.randn(3), torch.randn(3), torch.randn(3), torch.rand(3)
S, R = torch.randn(3), torch.rand(3)
LAST = X.to(memory_format=torch.channels_last)
I = torch.tensor([0, 2])


def half(*xs):
    return [x.bfloat16() if isinstance(x, torch.Tensor) else x for x in xs]


CALLS = [
    (a._native_batch_norm_legit_functional.default, X, W, B, M, V, True, 0.1, 1e-5),
    (a._native_batch_norm_legit_functional.default, X, W, B, M, V, False, 0.1, 1e-5),
    (a._native_batch_norm_legit_functional.default, LAST, W, B, M, V, True, 0.1, 1e-5),
    (a._native_batch_norm_legit_functional.default, *half(X, W, B, M, V), True, 0.1, 1e-5),
    (a._batch_norm_with_update_functional.default, X, W, B, M, V, 0.1, 1e-5),
    (a._native_batch_norm_legit.no_stats, X, W, B, True, 0.1, 1e-5),
    (a._native_batch_norm_legit.no_stats, *half(X, W, B), True, 0.1, 1e-5),
    (a._native_batch_norm_legit_no_training.default, X, W, B, M, V, 0.1, 1e-5),
    (a._native_batch_norm_legit_no_training.default, X, None, None, M, V, 0.1, 1e-5),
    (a.native_batch_norm_backward.default, X, X, W, M, V, S, R, True, 1e-5, [True, True, True]),
    (a.native_batch_norm_backward.default, *half(X, X), W, M, V, S, R, True, 1e-5, [True, True, True]),
    (
        a.native_batch_norm_backward.default,
        X,
        X,
        W,
        M,
        V,
        torch.empty(0),
        torch.empty(0),
        False,
        1e-5,
        [True, True, True],
    ),
    (a.native_layer_norm.default, X, [5], None, None, 1e-5),
    (a.native_layer_norm.default, X.bfloat16(), [5], torch.randn(5), torch.randn(5), 1e-5),
    (a._fused_rms_norm.default, X, [5], torch.randn(5), 1e-5),
    (a._fused_rms_norm.default, X.bfloat16(), [5], torch.randn(5).bfloat16(), None),
    (a.native_dropout.default, X, 0.5, False),
    (a.copy.default, X, torch.randn(5)),
    (a.fill.Tensor, X, torch.tensor(2.0)),
    (a.zero.default, X),
    (a.selu.default, X),
    (a.logsumexp.default, torch.tensor(1028.9), [0]),
    (a.logsumexp.default, torch.tensor(3e-9), [0], True),
    (a._unsafe_index.Tensor, X, [None, I]),
    (a._unsafe_index_put.default, X, [None, I], torch.randn(4, 2, 5, 5), True),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda c: str(c[0])[5:])
def test_equals_eager(call):
    op, *args = call
    problem, rewritten = compare(op, tuple(args), {}, op(*args))
    assert problem is None
    assert rewritten


@pytest.mark.parametrize("params", [(W, B, M, V), (None, None, M, V), half(W, B, M, V)], ids=["mixed", "stats", "half"])
def test_batch_norm_keeps_statistics_in_eagers_dtype(params):
    from lamina_primtorch.rules.nn import native_batch_norm_functional

    args = (X.bfloat16(), *params, True, 0.1, 1e-5)
    want = a._native_batch_norm_legit_functional.default(*args)
    assert [m.dtype for m in native_batch_norm_functional(*args)] == [t.dtype for t in want]
