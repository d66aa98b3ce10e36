"""One `KernelSpec` as Triton source.

Forms (`TritonKernel.form`)
===========================

* ``pointwise``: all outer loops flattened into one block axis ``x``.
* ``tiled``: two block axes ``y`` and ``x``, where reads and writes are contiguous along different loops (transposes).
* ``persistent``: rows ``x`` by one block ``r`` that holds the whole inner range: every phase is straight-line code in
registers.
* ``looped``: rows ``x``, and each phase walks its inner range in blocks of ``r``; scratch values are computed again
instead of stored.
* ``split``: too few rows to fill a device: a first kernel reduces parts of the inner range into a workspace, a second
one combines the parts in a fixed order (so the result
  does not depend on scheduling) and runs what follows.
* ``dot``: sums of products of two tiles, on matrix instructions (`triton_dot`).
* ``attention``: products, softmax and products of one attention (`triton_attention`).
* ``attention gradient``: the backward of one attention (`triton_attention_gradient`).
* ``grouped``: products of row groups whose ends are data (`triton_grouped`).
* ``serial``: iterations may write to the same element in an order that matters: one program, one element after the
other.

Block sizes are ``tl.constexpr`` parameters; `TritonKernel.configs` lists the candidates, the default first.
"""

from __future__ import annotations

from ..index import product
from . import triton_dot, triton_ops
from .attention_kernel import AttentionGradientKernel, AttentionKernel
from .grouped_kernel import GroupedKernel
from .kernel import KernelSpec
from .softmax_stats import merge_softmax_stats
from .triton_attention import write_attention
from .triton_attention_gradient import write_attention_gradient
from .triton_blocks import PERSISTENT_LIMIT, can_split, inner_contiguous
from .triton_emitter import Axis
from .triton_forms import write_pointwise, write_rows, write_serial, write_split
from .triton_grouped import write_grouped
from .triton_launch import CannotGenerate, Launch, Parameter, TritonKernel, Workspace
from .triton_ops import POINTER


def generate(spec: KernelSpec) -> TritonKernel:
    """Triton source and launch description of `spec`. Raises CannotGenerate with the reason."""
    kernel = _generate(spec)
    kernel.program_key = spec.key()
    return kernel


def _generate(spec: KernelSpec) -> TritonKernel:
    for b in spec.buffers:
        if b.dtype not in POINTER:
            raise CannotGenerate(f"Triton has no {b.dtype}")
    for op in spec.ops():
        why = triton_ops.reason_against(op.name, op.dtype)
        if why is not None:
            raise CannotGenerate(why)
    if isinstance(spec, AttentionKernel):
        return write_attention(spec)
    if isinstance(spec, AttentionGradientKernel):
        return write_attention_gradient(spec)
    if isinstance(spec, GroupedKernel):
        return write_grouped(spec)
    inner = [p for p in spec.phases if p.loops]
    if not inner:
        ordered = any(o.name == "store" and (o.args[3] not in (None, "add", "min", "max")) for o in spec.ops())
        serial = any(v.kind == "serial" for v in spec.loops)
        if serial and (ordered or any(o.name == "store" and o.args[3] is None for o in spec.ops())):
            return write_serial(spec)
        return write_pointwise(spec)
    if any(v.kind == "serial" for v in spec.loops):
        raise CannotGenerate("ordered outer loops around inner loops")
    products = triton_dot.find_products(spec)
    if products is not None:
        return triton_dot.write_products(spec, products)
    axis = Axis("x", spec.loops)
    sizes = {product(v.size for v in p.loops) for p in inner}
    largest = max((s.hi for s in sizes), default=1)
    if largest <= PERSISTENT_LIMIT and len(sizes) == 1 and (inner_contiguous(spec) or largest <= 64):
        return write_rows(spec, axis, "persistent")
    spec = merge_softmax_stats(spec)
    if can_split(spec, axis):
        return write_split(spec, axis)
    return write_rows(spec, axis, "looped")


__all__ = ["CannotGenerate", "Launch", "Parameter", "TritonKernel", "Workspace", "generate"]
