"""``coverage()``: what becomes of every ATen overload of the running torch. ``python -m lamina_primtorch.report``
prints it.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field

import torch

from ._torch import all_op_names, has_kernel_for_key
from .contract import require_graph
from .decomps import DECOMPOSITIONS
from .tables import _EXTERN

KINDS = {
    "prim": "an extern prim stands for it",
    "decomposed": "rewritten in prims",
    "composite": "torch itself breaks it into other overloads before a graph sees it",
    "variant": "in-place or out variant: functionalization turns it into its functional overload",
    "extern": "kept as a call of the overload, by the reason given",
    "missing": "nothing handles it; the reason says why no program needs it",
}


@dataclass
class Coverage:
    """Rows ``(overload, kind, reason)`` and their counts; ``str()`` is the table."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        have = Counter(kind for _, kind, _ in self.rows)
        return {kind: have[kind] for kind in KINDS}

    def of(self, kind: str) -> list[str]:
        return [name for name, k, _ in self.rows if k == kind]

    def __str__(self) -> str:
        width = max(len(n) for n, _, _ in self.rows)
        lines = [f"{name:<{width}}  {kind:<10}  {reason}".rstrip() for name, kind, reason in self.rows]
        lines.append("")
        lines += [f"{kind:<10} {n:>5}  {KINDS[kind]}" for kind, n in self.counts.items()]
        return "\n".join(lines)

    __repr__ = __str__


def _is_variant(schema: torch._C.FunctionSchema) -> bool:
    return any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)


_BACKENDS = (
    "CPU",
    "CUDA",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
    "Meta",
    "BackendSelect",
)
_OTHER = (
    "SparseCPU",
    "SparseCsrCPU",
    "QuantizedCPU",
    "MkldnnCPU",
    "MPS",
    "XPU",
    "NestedTensorCPU",
    "SparseCUDA",
    "Vulkan",
)


# Beginnings of names of operators that stay calls, and why.
_FAMILIES = (
    (("linalg_", "_linalg_", "lu_", "cholesky", "_cholesky", "qr", "svd", "geqrf", "orgqr", "ormqr", "lstsq",
      "triangular_solve", "inverse", "logdet", "slogdet", "householder", "ldl", "_lu_", "_det_", "lu_unpack"),
     "a factorisation or a solver: a library's routine"),
    (("fft_", "_fft_", "stft", "istft", "_cufft"), "a Fourier transform: a library's routine"),
    (("sparse", "_sparse", "_coalesce", "to_sparse", "_to_sparse", "indices", "_indices", "values", "_values", "crow",
      "col_indices", "ccol", "row_indices", "_nnz", "coalesce", "is_coalesced", "_dimI", "_dimV", "hspmm", "sspaddmm",
      "_nested", "nested", "_cslt", "_validate_sparse", "_validate_compressed"),
     "works on a layout that is not strided"),
    (("quantize", "_quantize", "dequantize", "fake_quantize", "_fake_quantize", "fbgemm", "q_", "quantized",
      "choose_qparams", "_choose_qparams", "int_repr", "_make_per", "_weight_int", "_convert_weight", "_dyn_quant",
      "qscheme", "_fused_moving"),
     "quantized numbers: a library's routine"),
    (("cudnn", "_cudnn", "miopen", "_miopen", "mkldnn", "_mkldnn", "mkl", "_mkl", "mps", "_mps", "nnpack", "_nnpack",
      "_thnn", "xnnpack"), "a vendor library's routine"),
    (("lstm", "gru", "rnn", "quantized_lstm", "_pad_packed", "_pack_padded"), "a recurrent layer: a library's routine"),
    (("conv", "_conv", "slow_conv", "thnn_conv", "_slow_conv"), "a convolution: a library's routine"),
    (("_foreach", "_amp_foreach", "_fused"), "works on lists of tensors at once"),
    (("segment_reduce", "_segment_reduce", "_embedding_bag", "ctc", "_ctc", "_use_cudnn_ctc"),
     "walks along lengths or offsets given as values"),
    (("upsample", "_upsample", "grid_sampler", "_grid_sampler"), "interpolation: torch's kernel is called"),
    (("special_",), "a special function without a closed form in prims: torch's kernel is called"),
    (("max_pool", "adaptive_max", "fractional", "adaptive_avg", "_adaptive", "avg_pool", "max_unpool"),
     "pooling: torch's kernel is called"),
    (("_scaled_dot", "_flash", "_efficient", "_triton", "_fill_mem", "_transform_bias", "_scaled_mm", "_grouped",
      "_scaled_grouped"), "a fused kernel is called"),
)  # fmt: skip


def _why_kept(op: torch._ops.OpOverload, name: str) -> str:
    """Why an overload with a kernel stays a call."""
    tags = op.tags
    if torch.Tag.dynamic_output_shape in tags:
        return "the size of its result depends on values"
    if torch.Tag.data_dependent_output in tags:
        return "its result is read from values"
    if torch.Tag.nondeterministic_seeded in tags:
        return "draws random numbers: torch's kernel keeps torch's stream"
    for beginnings, why in _FAMILIES:
        if name.startswith(beginnings):
            return why
    if name.endswith(("_backward", "_backward_data", "_double_backward")):
        return "the derivative of a kernel that is kept"
    if not any("Tensor" in str(r.type) for r in op._schema.returns):
        return "gives no tensor: a question about its arguments"
    if not any("Tensor" in str(a.type) for a in op._schema.arguments):
        return "makes a tensor from numbers: torch's kernel is called"
    if any(r.alias_info is not None for r in op._schema.returns):
        return "a view of memory: torch makes it"
    return "not spelled in prims: torch's kernel is called"


def classify(name: str) -> tuple[str, str]:
    """(kind, reason) of one overload by its full name, "aten::add.Tensor"."""
    short = name[6:]
    packet, _, overload = short.partition(".")
    key = f"{packet}.{overload or 'default'}"
    if key in _EXTERN:
        return "prim", _EXTERN[key].name
    if key in DECOMPOSITIONS:
        function = DECOMPOSITIONS[key]
        return "decomposed", f"by {function.__module__.rpartition('.')[2]}.{function.__name__.strip('_')}"
    op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
    if op is None:
        return "missing", "not reachable: TorchScript only, no Python overload"
    schema = op._schema
    if _is_variant(schema):
        kind = "out=" if any(a.is_out for a in schema.arguments) else "in-place"
        return "variant", f"{kind}: the functional overload computes what is written"
    if has_kernel_for_key(name, "CompositeImplicitAutograd"):
        return "composite", "its implementation is calls of other overloads (CompositeImplicitAutograd)"
    for backend in _BACKENDS:
        if has_kernel_for_key(name, backend):
            return "extern", _why_kept(op, packet)
    for backend in _OTHER:
        if has_kernel_for_key(name, backend):
            return "extern", f"{backend} only"
    if not any(str(a.type) in ("Tensor", "Optional[Tensor]", "List[Tensor]") for a in schema.arguments):
        return "extern", "no tensor argument: a scalar or TorchScript operator"
    # Another vendor's or layout's operator: a build with a kernel for it keeps the call, in this one eager raises too.
    return "extern", "no kernel in this build of torch, eager raises as well"


def coverage() -> Coverage:
    """Classify every ATen overload of the running torch."""
    rows = []
    for name in sorted(n for n in all_op_names() if n.startswith("aten::")):
        kind, reason = classify(name)
        rows.append((name[6:], kind, reason))
    return Coverage(rows)


def prims_needed(graphs: list[torch.fx.GraphModule]) -> Counter:
    """How often each prim or kept overload occurs in decomposed graphs: what a backend must implement to run them."""
    from .spec import Prim

    if not isinstance(graphs, list | tuple):
        raise TypeError(f"prims_needed takes a list of GraphModules, not {type(graphs).__name__}")
    need: Counter = Counter()
    for gm in graphs:
        require_graph(gm)
        for node in gm.graph.nodes:
            if node.op == "call_function":
                need[node.target.name if isinstance(node.target, Prim) else str(node.target)] += 1
    return need


if __name__ == "__main__":
    sys.stdout.write(str(coverage()) + "\n")
