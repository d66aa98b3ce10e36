"""View prims: they move, repeat or drop elements. In a prim graph they are values: nothing is mutated afterwards, so
aliasing cannot be seen.

The stride of the result is that of eager's view, so that a backend can tell when no copy is needed.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import strides
from ..spec import TensorMeta, define


def _broadcast_strides(x: Any, shape: tuple, dims: tuple) -> tuple:
    """Strides as ``expand`` gives them: 0 where repeated, new dimensions of size 1 continue the layout."""
    have = dict(zip(dims, zip(x.shape, x.stride())))
    out: list = [0] * len(shape)
    for d in range(len(shape) - 1, -1, -1):
        want = shape[d]
        if d in have:
            n, step = have[d]
        else:
            n, step = 1, (shape[d + 1] * out[d + 1] if d + 1 < len(shape) else 1) if have else 0
        if strides.is_int(n, 1) and not strides.is_int(want, 1):
            step = 0
        elif n is not want and n != want:
            raise RuntimeError(f"broadcast_in_dim of {tuple(x.shape)} at {dims} to {shape}")
        out[d] = step
    return tuple(out)


def _broadcast_in_dim(x: torch.Tensor, shape: tuple, dims: tuple) -> torch.Tensor:
    return x.as_strided(shape, _broadcast_strides(x, shape, dims), x.storage_offset())


def _broadcast_meta(x: Any, shape: tuple, dims: tuple) -> TensorMeta:
    shape = tuple(shape)
    return TensorMeta(shape, _broadcast_strides(x, shape, dims), x.dtype, x.device)


define(
    "broadcast_in_dim",
    "(Tensor x, int[] shape, int[] dims) -> Tensor",
    _broadcast_in_dim,
    _broadcast_meta,
    ["view"],
    "dimension k of x becomes dimension dims[k] of the result (dims ascending), of equal size or repeated from"
    " 1; the other dimensions repeat x",
)


def _permute_meta(x: Any, dims: tuple) -> TensorMeta:
    shape, stride = x.shape, x.stride()
    return TensorMeta(tuple(shape[d] for d in dims), tuple(stride[d] for d in dims), x.dtype, x.device)


define(
    "permute",
    "(Tensor x, int[] dims) -> Tensor",
    torch.permute,
    _permute_meta,
    ["view"],
    "dimension i of the result is dimension dims[i] of x",
)


def _reshape_meta(x: Any, shape: tuple) -> TensorMeta:
    new = strides.infer_view(shape, strides.numel(x.shape))
    stride = strides.view(x.shape, x.stride(), new)
    return TensorMeta(new, strides.contiguous(new) if stride is None else stride, x.dtype, x.device)


define(
    "reshape",
    "(Tensor x, int[] shape) -> Tensor",
    torch.reshape,
    _reshape_meta,
    ["view"],
    "the elements in row-major order under another shape with the same number of elements (no -1)",
)


def _slice(x: torch.Tensor, starts: tuple, limits: tuple, steps: tuple) -> torch.Tensor:
    for d, (lo, hi, step) in enumerate(zip(starts, limits, steps)):
        if not (lo == 0 and step == 1 and hi == x.shape[d]):
            x = torch.ops.aten.slice.Tensor(x, d, lo, hi, step)
    return x


def _slice_meta(x: Any, starts: tuple, limits: tuple, steps: tuple) -> TensorMeta:
    shape: list = []
    stride: list = []
    for _n, st, lo, hi, step in zip(x.shape, x.stride(), starts, limits, steps):
        if strides.is_int(lo, 0) and step == 1:
            shape.append(hi)
            stride.append(st)
        else:
            shape.append((hi - lo + step - 1) // step)
            stride.append(st if step == 1 else st * step)
    return TensorMeta(tuple(shape), tuple(stride), x.dtype, x.device)


define(
    "slice",
    "(Tensor x, int[] starts, int[] limits, int[] steps) -> Tensor",
    _slice,
    _slice_meta,
    ["view"],
    "elements starts[d], starts[d]+steps[d], ... below limits[d] of each dimension; 0 <= start <= limit <="
    " size, step >= 1",
)


def _as_strided_meta(x: Any, size: tuple, stride: tuple, offset: int | None = None) -> TensorMeta:
    return TensorMeta(tuple(size), tuple(stride), x.dtype, x.device)


define(
    "as_strided",
    "(Tensor x, int[] size, int[] stride, int? offset=None) -> Tensor",
    lambda x, size, stride, offset=None: torch.as_strided(x, size, stride, offset),
    _as_strided_meta,
    ["view"],
    "element i of the result is read at offset + sum(i*stride) of x's storage, laid out as x's val says (offset"
    " None: where x starts)",
)


def _flip_meta(x: Any, dims: tuple) -> TensorMeta:
    shape = tuple(x.shape)
    return TensorMeta(shape, strides.elementwise(shape, [(shape, x.stride())]), x.dtype, x.device)


define("flip", "(Tensor x, int[] dims) -> Tensor", torch.flip, _flip_meta, ["view"], "reversed along dims")


def _diagonal_meta(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorMeta:
    n1, n2 = x.shape[dim1], x.shape[dim2]
    size = max(min(n1, n2 - offset) if offset >= 0 else min(n1 + offset, n2), 0)
    keep = [d for d in range(len(x.shape)) if d not in (dim1, dim2)]
    stride = x.stride()
    return TensorMeta(
        tuple(x.shape[d] for d in keep) + (size,),
        tuple(stride[d] for d in keep) + (stride[dim1] + stride[dim2],),
        x.dtype,
        x.device,
    )


define(
    "diagonal",
    "(Tensor x, int offset, int dim1, int dim2) -> Tensor",
    torch.diagonal,
    _diagonal_meta,
    ["view"],
    "elements with index(dim2) - index(dim1) == offset, as a new last dimension; empty if there are none",
)


def _unfold_meta(x: Any, dim: int, size: int, step: int) -> TensorMeta:
    shape, stride = list(x.shape), list(x.stride())
    if not shape:
        return TensorMeta((size,), (1,), x.dtype, x.device)
    shape[dim] = (shape[dim] - size) // step + 1
    unit = stride[dim]
    stride[dim] = unit * step
    return TensorMeta((*shape, size), (*stride, unit), x.dtype, x.device)


define(
    "unfold",
    "(Tensor x, int dim, int size, int step) -> Tensor",
    lambda x, dim, size, step: x.unfold(dim, size, step),
    _unfold_meta,
    ["view"],
    "windows of `size` elements every `step` along dim, as a new last dimension",
)


def _restride(x: torch.Tensor, stride: tuple) -> torch.Tensor:
    out = torch.empty_strided(x.shape, stride, dtype=x.dtype, device=x.device)
    return out.copy_(x) if out.numel() else out


def _restride_meta(x: Any, stride: tuple) -> TensorMeta:
    return TensorMeta(tuple(x.shape), tuple(stride), x.dtype, x.device)


define(
    "restride",
    "(Tensor x, int[] stride) -> Tensor",
    _restride,
    _restride_meta,
    ["view"],
    "the same values, laid out in memory with these (non-overlapping) strides; where layout does not matter it"
    " is the identity",
)


def _as_real_meta(x: Any) -> TensorMeta:
    from .elementwise import REAL_OF

    return TensorMeta((*x.shape, 2), (*(2 * s for s in x.stride()), 1), REAL_OF[x.dtype], x.device)


def _as_complex_meta(x: Any) -> TensorMeta:
    from .elementwise import COMPLEX_OF

    return TensorMeta(tuple(x.shape[:-1]), tuple(s // 2 for s in x.stride()[:-1]), COMPLEX_OF[x.dtype], x.device)


define(
    "view_as_real",
    "(Tensor x) -> Tensor",
    lambda x: torch.view_as_real(x.resolve_conj()),
    _as_real_meta,
    ["view"],
    "complex numbers as a last dimension of 2",
)
define(
    "view_as_complex",
    "(Tensor x) -> Tensor",
    torch.view_as_complex,
    _as_complex_meta,
    ["view"],
    "a last dimension of 2 as complex numbers",
)
