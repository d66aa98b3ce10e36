"""Builds one hand-written kernel and calls it on tensors."""

from __future__ import annotations

import ctypes

import torch

from lamina_inductor import build_cache, toolchain
from lamina_inductor.codegen.cpp_kernel import write_kernel
from lamina_inductor.codegen.kernel import BufferArg, KernelSpec, LoopVar, Phase
from lamina_inductor.index import Expr, const, symbol, to_expr
from lamina_inductor.ops import Op, compute_dtype

HEAD = '#include "lamina.h"\nusing namespace lm;\n'


class Kernel:
    """A loaded kernel: call with tensors (buffers in order) and ints (size symbols in order)."""

    def __init__(self, address: int) -> None:
        self.function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(address)

    def __call__(self, *arguments: torch.Tensor | int) -> int:
        pointers = [a.data_ptr() for a in arguments if isinstance(a, torch.Tensor)]
        sizes = [a for a in arguments if isinstance(a, int)]
        buffers = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
        numbers = (ctypes.c_longlong * max(1, len(sizes)))(*sizes)
        return self.function(ctypes.addressof(buffers), ctypes.addressof(numbers))


def compile_kernels(
    specs: list[KernelSpec], cache: build_cache.BuildCache, vector_bytes: int | None = None
) -> list[Kernel]:
    """All `specs` in one unit."""
    width = toolchain.vector_bytes() if vector_bytes is None else vector_bytes
    text = HEAD + "\n".join(write_kernel(s, f"k{n}", width) for n, s in enumerate(specs))
    library = build_cache.load(cache.build(build_cache.Unit(text)))
    return [Kernel(ctypes.cast(getattr(library, f"k{n}"), ctypes.c_void_p).value) for n in range(len(specs))]


def pointwise(name: str, sources: list[torch.dtype], result: torch.dtype, extra: tuple = ()) -> KernelSpec:
    """out[i] = name(x0[i], x1[i], ...) over a dynamic length s0; the op's dtype is that of `result`."""
    s0 = symbol("s0", lo=0)
    i0 = symbol("i0", s0)
    ops = [Op("load", (f"x{k}", i0, None), compute_dtype(d)) for k, d in enumerate(sources)]
    value = Op(name, (*ops, *extra), compute_dtype(result))
    store = Op("store", ("out", i0, value, None, None), compute_dtype(result))
    buffers = [BufferArg(f"x{k}", d, "in", s0) for k, d in enumerate(sources)] + [BufferArg("out", result, "out", s0)]
    return KernelSpec("pointwise", (LoopVar("i0", s0),), (Phase((), (*ops, value, store)),), tuple(buffers), ("s0",))


def reduction(
    kind: str, source: torch.dtype, result: torch.dtype, along: str, shape: tuple[int, ...], items: int = 1
) -> KernelSpec:
    """Reduces a [rows, cols] buffer: along "row" (inner, contiguous), "column" (outer) or "all"."""
    rows, cols = shape
    i, r, q = (
        symbol("i0", rows if along == "row" else cols),
        symbol("r0", cols if along == "row" else rows),
        symbol("r1", cols),
    )
    if along == "all":
        loops = (LoopVar("r0", const(rows), "reduction"), LoopVar("r1", const(cols), "reduction"))
        outer: tuple[LoopVar, ...] = ()
        where, number, target = r * cols + q, r * cols + q, const(0)
    elif along == "row":
        loops, outer = (LoopVar("r0", const(cols), "reduction"),), (LoopVar("i0", const(rows)),)
        where, number, target = i * cols + r, r, i
    else:
        loops, outer = (LoopVar("r0", const(rows), "reduction"),), (LoopVar("i0", const(cols)),)
        where, number, target = r * cols + i, r, i
    lane = compute_dtype(source)
    load = Op("load", ("x", where, None), lane)
    index = Op("index_expr", (number,), torch.int64)
    with_index = "arg" in kind or "index" in kind
    acc = Op("reduction", (load, kind, index if with_index else None), compute_dtype(result))
    last: list[Op] = []
    if items == 1:
        last.append(Op("store", ("out0", target, acc, None, None), compute_dtype(result)))
    for k in range(items if items > 1 else 0):
        dtype = torch.int64 if with_index and k == 1 else compute_dtype(result)
        item = Op("item", (acc, k), dtype)
        last += [item, Op("store", (f"out{k}", target, item, None, None), dtype)]
    first = (load, index, acc) if with_index else (load, acc)
    n = to_expr(1) if along == "all" else outer[0].size
    outs = [BufferArg(f"out{k}", torch.int64 if with_index and k == 1 else result, "out", n) for k in range(items)]
    return KernelSpec(
        "reduce",
        outer,
        (Phase(loops, first), Phase((), tuple(last))),
        (BufferArg("x", source, "in", const(rows * cols)), *outs),
    )


__all__ = [
    "BufferArg",
    "Expr",
    "Kernel",
    "KernelSpec",
    "LoopVar",
    "Op",
    "Phase",
    "compile_kernels",
    "pointwise",
    "reduction",
]
