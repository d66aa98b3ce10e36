"""Matrix products with small fixed sizes, written into the wrapper: a call of libtorch's addmm costs 1.9 µs, these a
third of it."""

from __future__ import annotations

from typing import Any

import torch

from ..ir.layout import Layout
from ..ir.program import BufferRef, ExternCall

MOST_WORK = 1 << 16
"""Largest m*n*k; above it the library's blocking and threads win."""

MOST_MEASURED = 1 << 21
"""The same where the product was measured."""

_MOST_PACKED = 1 << 13  # elements of the second matrix, which is copied to the stack

_OPERANDS = {"aten::mm": (None, 0, 1), "aten::addmm": (0, 1, 2)}


def _fixed(layout: Layout) -> bool:
    return all(e.is_const for e in (*layout.shape, *layout.stride, layout.offset))


def is_small_enough(m: int, n: int, k: int, lanes: int, most: int = MOST_WORK) -> bool:
    """Whether a product of that size can be written into the wrapper."""
    return 0 < m * n * k <= most and k * (n + lanes) <= _MOST_PACKED


def write_small_gemm(call: ExternCall, layouts: dict[str, Layout], pointer: Any, lanes: int) -> str | None:
    """The statement that computes `call`, or None when it is no small float32 product with fixed sizes.

    `layouts`: of all buffers by name; `pointer(name)`: C text of a buffer's data pointer.
    """
    if not isinstance(call.target, torch._ops.OpOverload) or not call.out or lanes < 4 or call.outputs[0] is None:
        return None
    if call.form == "library":
        return None
    schema = call.target._schema
    places = _OPERANDS.get(schema.name)
    if places is None or schema.overload_name or set(call.kwargs) - {"beta", "alpha"}:
        return None
    scalars = [call.kwargs.get(k, 1) for k in ("beta", "alpha")]
    if not all(type(v) in (int, float) for v in scalars) or scalars[0] == 0:
        return None
    operands = [None if k is None else call.args[k] for k in places] + [BufferRef(call.outputs[0])]
    if any(o is not None and not isinstance(o, BufferRef) for o in operands):
        return None
    found = [None if o is None else (o.layout or layouts[o.name]) for o in operands]
    if any(x is not None and (x.dtype is not torch.float32 or not _fixed(x)) for x in found):
        return None
    start, a, b, out = found
    (m, k), n = (int(e) for e in a.shape), int(b.shape[1])
    most = MOST_MEASURED if call.form == "inline" else MOST_WORK
    if not is_small_enough(m, n, k, lanes, most) or int(out.stride[1]) != 1:
        return None
    names = [None if o is None else o.name for o in operands]
    if names[3] in names[1:3] or names[3] == names[0] and start.stride != out.stride:
        return None
    where = [
        "nullptr" if o is None else f"((float*){pointer(o.name)} + {int(x.offset)})"
        for o, x in zip(operands, found, strict=True)
    ]
    steps = (0, 0)
    if start is not None:
        full = [0] * (2 - len(start.stride)) + [int(s) for s in start.stride]
        sizes = [1] * (2 - len(start.shape)) + [int(s) for s in start.shape]
        steps = tuple(0 if size == 1 else stride for size, stride in zip(sizes, full, strict=True))
    width = lanes
    while width > 4 and width >= 2 * n:
        width //= 2
    sa, sb = [int(s) for s in a.stride], [int(s) for s in b.stride]
    packing = 2
    if n % width == 0 and (sb[1] == 1 or sb[0] == 1 and k % width == 0):
        packing = 0 if sb[1] == 1 else 1
    return (
        f"lm::small_gemm<{m}, {n}, {k}, {width}, {packing}>({where[3]}, {int(out.stride[0])}, {where[1]}, {sa[0]}, {sa[1]}, {where[2]}, {sb[0]}, {sb[1]}, "  # noqa: E501
        f"{where[0]}, {steps[0]}, {steps[1]}, {float(scalars[0])!r}f, {float(scalars[1])!r}f);"
    )
