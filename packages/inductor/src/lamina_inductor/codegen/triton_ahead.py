"""Compile one Triton function to machine code without a device. Imports nothing but Triton, so that worker processes
start fast and hold no GPU context.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any


def compile_ahead(module: Any, request: dict[str, Any]) -> Any:
    """Compile ``module.<function>`` as `request` says: function, signature (parameter -> type), constexprs, aligned
    (parameters that are multiples of 16), arch (see `gpu_target`), options.

    Returns Triton's compiled kernel: `.asm["cubin"]` and `.asm["ptx"]` (NVIDIA) or `.asm["hsaco"]` and
    `.asm["amdgcn"]` (AMD), `.metadata` (shared memory, warps, name).
    """
    import triton
    from triton.compiler import ASTSource

    if isinstance(request["arch"], str):  # AMD's matrix units multiply float32 themselves
        from . import triton_math

        triton_math.dot_in_parts = triton_math.dot
    signature = request["signature"]
    attrs = {(k,): [["tt.divisibility", 16]] for k, name in enumerate(signature) if name in request["aligned"]}
    source = ASTSource(getattr(module, request["function"]), signature, constexprs=request["constexprs"], attrs=attrs)
    with _short_key():
        return triton.compile(source, target=gpu_target(request["arch"]), options=request["options"])


def warm(arch: int | str) -> None:
    """Import and start what a first compilation would: it compiles a kernel, and keeps nothing of it."""
    from triton import knobs

    from . import triton_warm

    request = {
        "function": "first",
        "signature": {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        "constexprs": {"BLOCK": 128},
        "aligned": ["x", "y"],
        "arch": arch,
        "options": {"num_warps": 4, "num_stages": 1},
    }
    before = knobs.compilation.always_compile
    knobs.compilation.always_compile = True  # what lies in Triton's cache would start no compiler
    try:
        compile_ahead(triton_warm, request)
    finally:
        knobs.compilation.always_compile = before


@contextlib.contextmanager
def _short_key() -> Iterator[None]:
    """Triton names entries of its cache by a hash of its whole library, which takes longer than most kernels: here
    version, size and time of the file do."""
    from triton.runtime import cache

    old = getattr(cache, "triton_key", None)
    if old is None:
        yield
        return
    cache.triton_key = _key
    try:
        yield
    finally:
        cache.triton_key = old


def _key() -> str:
    import triton
    from triton._C import libtriton

    facts = os.stat(libtriton.__file__)
    return f"{triton.__version__}-{facts.st_size}-{facts.st_mtime_ns}"


def gpu_target(arch: int | str) -> Any:
    """Triton's name of an architecture: a number such as 90 is NVIDIA's sm_90, a text such as "gfx942" is AMD's
    (compiled to assembly in the tests, never run by them). AMD's data-centre chips (gfx9) have waves of 64 threads.
    """
    from triton.backends.compiler import GPUTarget

    if isinstance(arch, str):
        return GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32)
    return GPUTarget("cuda", arch, 32)


def describe(done: Any) -> dict[str, Any]:
    """What a launcher must know about a compiled kernel."""
    ptx = done.asm["ptx"]
    start = ptx.index(".visible .entry")
    m = done.metadata
    return {
        "name": m.name,
        "shared": m.shared,
        "warps": m.num_warps,
        "parameters": ptx[start : ptx.index(")", start)].count(".param"),
    }
