"""Shape rules of half-precision activations beside float32 parameters, as autocast gives them."""

from __future__ import annotations

import pytest
import torch
import torch.fx as fx

import lamina_primtorch as lp
from lamina_primtorch.config import patch
from lamina_primtorch.errors import ContractError
from lamina_primtorch.shape_rules import RULES

aten = torch.ops.aten
FORMATS = (torch.contiguous_format, torch.channels_last)


def described(results):
    return [None if t is None else (tuple(t.shape), t.stride(), t.dtype) for t in results]


def predicted(op, args):
    return [None if m is None else (tuple(m.shape), tuple(m.stride), m.dtype) for m in RULES[op](args, {})]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16, None])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_group_norm(dtype, weights, format):
    if dtype is torch.float32 and weights is torch.bfloat16:
        weights = torch.float32
    x = torch.randn(2, 4, 5, 6).to(dtype).contiguous(memory_format=format)
    w = None if weights is None else torch.ones(4, dtype=weights)
    args = (x, w, w, 2, 4, 30, 2, 1e-5)
    out, mean, rstd = aten.native_group_norm(*args)
    assert predicted(aten.native_group_norm.default, args) == described((out, mean, rstd))
    args = (out, x, mean, rstd, w, 2, 4, 30, 2, [True, w is not None, w is not None])
    want = aten.native_group_norm_backward(*args)
    assert predicted(aten.native_group_norm_backward.default, args) == described(want)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_a_recurrent_layer_are_float32(dtype):
    if dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        dtype = torch.float32
    found = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if func is aten.mkldnn_rnn_layer_backward.default:
                found.append((args, result))
            return result

    lstm = torch.nn.LSTM(4, 5).to(dtype)
    with Watch():
        lstm(torch.randn(3, 2, 4, dtype=dtype, requires_grad=True))[0].sum().backward()
    for args, result in found:
        assert predicted(aten.mkldnn_rnn_layer_backward.default, args) == described(result)
    assert found


def disagreeing() -> fx.GraphModule:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.zeros(3)
    y = graph.call_function(aten.mul.Tensor, (x, 2))
    y.meta["val"] = torch.zeros(3, dtype=torch.float64)
    graph.output((y,))
    return fx.GraphModule({}, graph)


def test_a_decomposition_of_another_dtype_is_found():
    with patch(strict=True), pytest.raises(ContractError, match=r"aten.mul.Tensor: the graph says torch.float64"):
        lp.decompose(disagreeing())


def test_outside_strict_mode_the_metadata_hold():
    with patch(strict=False):
        low = lp.decompose(disagreeing())
    assert low(torch.ones(3))[0].dtype is torch.float64
