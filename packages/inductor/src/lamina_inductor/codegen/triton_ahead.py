"""Compile one Triton function to machine code without a device. Imports nothing but Triton, so that worker processes
start fast and hold no GPU context.
"""

from __future__ import annotations

from typing import Any


def compile_ahead(module: Any, request: dict[str, Any]) -> Any:
    """Compile ``module.<function>`` as `request` says: function, signature (parameter -> type), constexprs, aligned
    (parameters that are multiples of 16), arch, options.

    Returns Triton's compiled kernel: `.asm["cubin"]`, `.asm["ptx"]`, `.metadata` (shared memory, warps, name).
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = request["signature"]
    attrs = {(k,): [["tt.divisibility", 16]] for k, name in enumerate(signature) if name in request["aligned"]}
    source = ASTSource(getattr(module, request["function"]), signature, constexprs=request["constexprs"], attrs=attrs)
    return triton.compile(source, target=GPUTarget("cuda", request["arch"], 32), options=request["options"])


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
