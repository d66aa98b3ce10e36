"""Example calls of every prim on small real tensors: ``samples_of(spec) -> [(args, kwargs), ...]``; made on demand
from one table.

Elementwise prims get ordinary values and the edge values of each dtype; extern prims one typical call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

INF, NAN = math.inf, math.nan
Call = tuple[tuple, dict]


def _floats(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor([0.5, -1.25, 0.0, -0.0, 1.0, -1.0, 2.5, 3.5, INF, -INF, NAN, 1e-40], dtype=dtype)


def _ints(dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor([3, 1, 0, 7, 2, 100], dtype=dtype)


def _grid(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape) * 0.37 % 2.0 - 0.9).to(dtype)


INTEGER_ONLY = {"gcd", "lcm", "shift_left", "shift_right"}
BITS = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"}
COMPLEX_ONLY = {"real", "imag", "conj", "sgn"}


def _unary(name: str) -> list[Call]:
    if name in COMPLEX_ONLY:
        return [((torch.complex(_grid(6), _grid(6).flip(0)),), {})]
    if name in BITS:
        return [((_ints(),), {}), ((torch.tensor([True, False]),), {})]
    calls: list[Call] = [((_floats(),), {}), ((_grid(3, 4).t(),), {}), ((torch.empty(0),), {})]
    if name not in ("ndtri", "log_ndtr"):  # eager has no half precision kernel of these
        calls.append(((_grid(5).bfloat16(),), {}))
    if name in ("neg", "abs", "sign", "logical_not"):
        calls.append(((_ints(torch.int8),), {}))
    return calls


def _binary(name: str) -> list[Call]:
    if name in INTEGER_ONLY:
        return [((_ints(), _ints().flip(0)), {}), ((_ints(torch.int64), 2), {})]
    if name in BITS:
        return [((_ints(), _ints().flip(0)), {}), ((torch.tensor([True, False]), torch.tensor([True, True])), {})]
    a = _floats()
    calls: list[Call] = [((a, a.flip(0)), {}), ((a, 2.0), {}), ((1.5, a), {}), ((_grid(3, 4).t(), _grid(4, 3)), {})]
    if name in ("add", "sub", "mul", "maximum", "minimum", "eq", "lt", "div_floor", "div_trunc", "remainder", "fmod"):
        calls.append(((torch.tensor([7, -7, 100], dtype=torch.int8), torch.tensor([2, 2, 3], dtype=torch.int8)), {}))
    return calls


F32 = torch.float32
SPECIAL: dict[str, Callable[[], list[Call]]] = {
    "complex": lambda: [((_grid(4), _grid(4)), {})],
    "where": lambda: [((_grid(4) > 0, _grid(4), 0.0), {}), ((_grid(2, 3) > 0, _grid(2, 3), -_grid(2, 3)), {})],
    "convert_element_type": lambda: [
        ((_grid(4), torch.int32), {}),
        ((_floats(), torch.bool), {}),
        ((_ints(), F32), {}),
    ],
    "bitcast": lambda: [((_grid(4), torch.int32), {})],
    "polygamma": lambda: [((1, _grid(4).abs() + 0.5), {})],
    "broadcast_in_dim": lambda: [
        ((_grid(3), (2, 3), (1,)), {}),
        ((_grid(3, 1), (3, 4), (0, 1)), {}),
        ((_grid(3), (3, 2), (0,)), {}),
    ],
    "permute": lambda: [((_grid(2, 3, 4), (2, 0, 1)), {})],
    "reshape": lambda: [((_grid(2, 6), (3, 4)), {}), ((_grid(3, 4).t(), (12,)), {}), ((_grid(1), ()), {})],
    "slice": lambda: [((_grid(5, 6), (1, 0), (4, 6), (2, 1)), {}), ((_grid(5), (2,), (2,), (1,)), {})],
    "as_strided": lambda: [((_grid(12), (3, 2), (4, 1), 1), {})],
    "flip": lambda: [((_grid(2, 3), (0, 1)), {})],
    "diagonal": lambda: [((_grid(3, 4), 1, 0, 1), {}), ((_grid(2, 3, 3), 0, 1, 2), {})],
    "unfold": lambda: [((_grid(7), 0, 3, 2), {})],
    "restride": lambda: [((_grid(2, 3), (1, 2)), {})],
    "view_as_real": lambda: [((torch.complex(_grid(3), _grid(3)),), {})],
    "view_as_complex": lambda: [((_grid(3, 2),), {})],
    "cat": lambda: [(([_grid(2, 3), _grid(1, 3)], 0), {}), (([_grid(2, 0), _grid(2, 3)], 1), {})],
    "pad": lambda: [((_grid(2, 3), 1.0, (1, 0), (0, 2)), {})],
    "sum": lambda: [
        ((_grid(3, 4), (1,), F32), {}),
        ((_grid(3, 4), (0, 1), F32), {}),
        ((torch.empty(0, 3), (0,), F32), {}),
    ],
    "prod": lambda: [((_grid(3, 4), (1,), F32), {}), ((torch.empty(0, 3), (0,), F32), {})],
    "argmax": lambda: [((_grid(3, 4), 1), {}), ((torch.tensor([1.0, NAN, 3.0, NAN]), None), {})],
    "argmin": lambda: [((_grid(3, 4), 0), {}), ((torch.tensor([2, 1, 1]), None), {})],
    "var_mean": lambda: [((_grid(3, 4), (1,), 1.0), {}), ((_grid(3, 4), (0, 1), 0.0), {})],
    "gather": lambda: [((_grid(3, 4), 1, torch.tensor([[0, 3], [1, 1], [2, 0]])), {})],
    "index_select": lambda: [((_grid(3, 4), 1, torch.tensor([3, 0, 3])), {})],
    "take_rows": lambda: [((_grid(3, 4), torch.tensor([[2, 0], [1, 1]])), {})],
    "index": lambda: [
        ((_grid(3, 4), [None, torch.tensor([1, -1])]), {}),
        ((_grid(3, 4), [torch.tensor([0]), torch.tensor([1, 2])]), {}),
    ],
    "index_put": lambda: [((_grid(3, 4), [torch.tensor([0, 0])], _grid(2, 4), True), {})],
    "scatter": lambda: [((_grid(3, 4), 0, torch.tensor([[2, 0, 1, 1]]), 5.0), {})],
    "scatter_add": lambda: [((_grid(3, 4), 0, torch.tensor([[2, 0, 1, 1]]), _grid(1, 4)), {})],
    "scatter_reduce": lambda: [((_grid(3, 4), 0, torch.tensor([[2, 0, 1, 1]]), _grid(1, 4), "amax", True), {})],
    "index_add": lambda: [((_grid(3, 4), 0, torch.tensor([0, 0]), _grid(2, 4)), {})],
    "full": lambda: [(((2, 3), 1.5, F32, "cpu"), {}), (((), True, torch.bool, "cpu"), {})],
    "iota": lambda: [((5, 2, 3, torch.int64, "cpu"), {}), ((0, 0, 1, F32, "cpu"), {})],
    "empty_strided": lambda: [(((2, 3), (1, 2), F32, "cpu"), {})],
}


def _conv() -> tuple:
    return (_grid(2, 3, 6, 6), _grid(4, 3, 3, 3), _grid(4), [1, 1], [1, 1], [1, 1], False, [0, 0], 1)


def _qkv(n: int = 3) -> list:
    return [_grid(2, 2, 5, 4) + k for k in range(n)]


EXTERN: dict[str, Callable[[], list[Call]]] = {
    "mm": lambda: [((_grid(3, 4), _grid(4, 5)), {})],
    "bmm": lambda: [((_grid(2, 3, 4), _grid(2, 4, 5)), {})],
    "addmm": lambda: [((_grid(5), _grid(3, 4), _grid(4, 5)), {"beta": 2})],
    "baddbmm": lambda: [((_grid(2, 3, 5), _grid(2, 3, 4), _grid(2, 4, 5)), {})],
    "mv": lambda: [((_grid(3, 4), _grid(4)), {})],
    "dot": lambda: [((_grid(4), _grid(4)), {})],
    "convolution": lambda: [(_conv(), {})],
    "convolution_backward": lambda: [((_grid(2, 4, 6, 6), *_conv()[:2], [4], *_conv()[3:], [True, True, True]), {})],
    "sdpa_flash_cpu": lambda: [(tuple(_qkv()), {})],
    "max_pool2d": lambda: [((_grid(1, 2, 6, 6), [2, 2], [2, 2]), {})],
    "avg_pool2d": lambda: [((_grid(1, 2, 6, 6), [3, 3], [2, 2], [1, 1], True), {})],
    "adaptive_avg_pool2d": lambda: [((_grid(1, 2, 6, 6), [3, 2]), {})],
    "embedding_dense_backward": lambda: [((_grid(2, 4), torch.tensor([1, 0]), 3, -1, False), {})],
    "sort": lambda: [((_grid(7),), {"stable": True, "dim": 0})],
    "topk": lambda: [((_grid(7), 3), {})],
    "bernoulli_p": lambda: [((_grid(4), 0.5), {})],
    "rand": lambda: [(([3],), {})],
    "randn": lambda: [(([3],), {})],
    "randint": lambda: [((0, 5, [3]), {})],
    "randperm": lambda: [((4,), {})],
    "native_dropout": lambda: [((_grid(4), 0.5, True), {})],
    "nonzero": lambda: [((_grid(4),), {})],
    "masked_select": lambda: [((_grid(4), _grid(4) > 0), {})],
    "item": lambda: [((_grid(1),), {})],
}


def samples_of(spec: Any) -> list[Call]:
    """Example calls of one prim; an extern prim without a row here has none (its ATen samples are torch's own)."""
    name = spec.name
    if name in SPECIAL:
        return SPECIAL[name]()
    if "extern" in spec.tags:
        return EXTERN[name]() if name in EXTERN else []
    if "reduction" in spec.tags:
        return [((_grid(3, 4), (1,)), {}), ((_grid(2, 3, 4), (0, 2)), {}), ((torch.tensor([1.0, NAN, 2.0]), (0,)), {})]
    if "scan" in spec.tags:
        return [((_grid(3, 4), 1), {}), ((_grid(5), 0), {})]
    if " b)" in spec.schema:
        return _binary(name)
    return _unary(name)
