"""Reductions and scans. Reduced dimensions are dropped; keepdim is a later reshape."""

from __future__ import annotations

from typing import Any

import torch

from .. import strides
from ..spec import TensorMeta, define

ACCUMULATE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def _reduced(x: Any, dims: Any, dtype: torch.dtype | None = None) -> TensorMeta:
    dims = set(dims)
    shape = tuple(n for d, n in enumerate(x.shape) if d not in dims)
    return TensorMeta(shape, strides.contiguous(shape), dtype or x.dtype, x.device)


def _sum(x: torch.Tensor, dims: tuple, dtype: torch.dtype) -> torch.Tensor:
    return torch.sum(x, dims, dtype=dtype) if dims else x.to(dtype, copy=True)


def _prod(x: torch.Tensor, dims: tuple, dtype: torch.dtype) -> torch.Tensor:
    x = x.to(dtype)
    for d in sorted(dims, reverse=True):
        x = torch.prod(x, d)
    return x


def _fold(fn: Any) -> Any:
    def eager(x: torch.Tensor, dims: tuple) -> torch.Tensor:
        return fn(x, dims) if dims else x.clone()

    return eager


def _any(x: torch.Tensor, dims: tuple) -> torch.Tensor:
    return torch.any(x != 0, dims) if dims else x != 0


def _all(x: torch.Tensor, dims: tuple) -> torch.Tensor:
    return torch.all(x != 0, dims) if dims else x != 0


def _typed_meta(x: Any, dims: tuple, dtype: torch.dtype) -> TensorMeta:
    return _reduced(x, dims, dtype)


def _bool_meta(x: Any, dims: tuple) -> TensorMeta:
    return _reduced(x, dims, torch.bool)


define(
    "sum",
    "(Tensor x, int[] dims, dtype dtype) -> Tensor",
    _sum,
    _typed_meta,
    ["reduction"],
    "sum over dims in `dtype` (operands converted first; half types accumulate in float32 and round once); of"
    " nothing 0;"
    " integers wrap around",
)
define(
    "prod",
    "(Tensor x, int[] dims, dtype dtype) -> Tensor",
    _prod,
    _typed_meta,
    ["reduction"],
    "product over dims in `dtype`; of nothing 1",
)
define(
    "amax",
    "(Tensor x, int[] dims) -> Tensor",
    _fold(torch.amax),
    _reduced,
    ["reduction"],
    "largest element; NaN if there is one; of nothing raises IndexError",
)
define(
    "amin",
    "(Tensor x, int[] dims) -> Tensor",
    _fold(torch.amin),
    _reduced,
    ["reduction"],
    "smallest element; NaN if there is one; of nothing raises IndexError",
)
define(
    "any",
    "(Tensor x, int[] dims) -> Tensor",
    _any,
    _bool_meta,
    ["reduction"],
    "some element is not 0 (NaN is not 0); of nothing false; bool",
)
define(
    "all", "(Tensor x, int[] dims) -> Tensor", _all, _bool_meta, ["reduction"], "no element is 0; of nothing true; bool"
)


def _arg_meta(x: Any, dim: int | None) -> TensorMeta:
    return _reduced(x, range(len(x.shape)) if dim is None else (dim,), torch.int64)


define(
    "argmax",
    "(Tensor x, int? dim) -> Tensor",
    lambda x, dim: torch.argmax(x, dim),
    _arg_meta,
    ["reduction"],
    "int64 index of the first largest element along dim (row-major position for None); the first NaN wins; of"
    " nothing raises",
)
define(
    "argmin",
    "(Tensor x, int? dim) -> Tensor",
    lambda x, dim: torch.argmin(x, dim),
    _arg_meta,
    ["reduction"],
    "int64 index of the first smallest element along dim (row-major position for None); the first NaN wins; of"
    " nothing raises",
)


def _var_mean(x: torch.Tensor, dims: tuple, correction: float) -> Any:
    return torch.var_mean(x, dims, correction=correction)


def _var_mean_meta(x: Any, dims: tuple, correction: float) -> tuple:
    from .elementwise import REAL_OF

    return _reduced(x, dims, REAL_OF.get(x.dtype)), _reduced(x, dims)


define(
    "var_mean",
    "(Tensor x, int[] dims, float correction) -> (Tensor, Tensor)",
    _var_mean,
    _var_mean_meta,
    ["reduction", "multi_output"],
    "variance (sum of squared distances from the mean over max(n - correction, 0)) and mean of floats,"
    " numerically stable (Welford);"
    " of nothing both NaN; half types in float32, rounded once",
)


def _scan_meta(x: Any, dim: int) -> TensorMeta:
    shape = tuple(x.shape)
    return TensorMeta(shape, strides.contiguous(shape), x.dtype, x.device)


for _name, _fn, _doc in [
    (
        "cumsum",
        torch.cumsum,
        "running sum along dim, in x's dtype (half types accumulate in float32); integers wrap around",
    ),
    ("cumprod", torch.cumprod, "running product along dim, in x's dtype"),
    ("logcumsumexp", torch.logcumsumexp, "log of the running sum of exp along dim; -inf for all -inf"),
]:

    def _scan(x: torch.Tensor, dim: int, _fn: Any = _fn) -> torch.Tensor:
        return _fn(x, dim, dtype=x.dtype).contiguous() if _fn is not torch.logcumsumexp else _fn(x, dim).contiguous()

    define(_name, "(Tensor x, int dim) -> Tensor", _scan, _scan_meta, ["scan"], _doc)


def _cummax_meta(x: Any, dim: int) -> tuple:
    m = _scan_meta(x, dim)
    return m, m._replace(dtype=torch.int64)


for _name, _fn, _doc in [
    (
        "cummax",
        torch.cummax,
        "running maximum along dim and the index of the last element equal to it; NaN stays once met",
    ),
    (
        "cummin",
        torch.cummin,
        "running minimum along dim and the index of the last element equal to it; NaN stays once met",
    ),
]:

    def _pair(x: torch.Tensor, dim: int, _fn: Any = _fn) -> Any:
        v, i = _fn(x.contiguous(), dim)
        return v, i

    define(_name, "(Tensor x, int dim) -> (Tensor, Tensor)", _pair, _cummax_meta, ["scan", "multi_output"], _doc)
