"""``coverage()``: what becomes of every ATen overload of the running torch. ``python -m lamina_primtorch.report``
prints it.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field

import torch

from ._torch import all_op_names, has_kernel_for_key
from .decomps import DECOMPOSITIONS
from .tables import _EXTERN

KINDS = {
    "prim": "an extern prim stands for it",
    "decomposed": "rewritten in prims",
    "composite": "torch itself breaks it into other overloads before a graph sees it",
    "variant": "in-place or out variant: functionalization turns it into its functional overload",
    "extern": "kept as a call of the overload",
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


def classify(name: str) -> tuple[str, str]:
    """(kind, reason) of one overload by its full name, "aten::add.Tensor"."""
    short = name[6:]
    packet, _, overload = short.partition(".")
    key = f"{packet}.{overload or 'default'}"
    if key in _EXTERN:
        return "prim", _EXTERN[key].name
    if key in DECOMPOSITIONS:
        return "decomposed", ""
    op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
    if op is None:
        return "missing", "not reachable: TorchScript only, no Python overload"
    schema = op._schema
    if _is_variant(schema):
        return "variant", "out" if any(a.is_out for a in schema.arguments) else "in-place"
    if has_kernel_for_key(name, "CompositeImplicitAutograd"):
        return "composite", ""
    for backend in _BACKENDS:
        if has_kernel_for_key(name, backend):
            return "extern", ""
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

    need: Counter = Counter()
    for gm in graphs:
        for node in gm.graph.nodes:
            if node.op == "call_function":
                need[node.target.name if isinstance(node.target, Prim) else str(node.target)] += 1
    return need


if __name__ == "__main__":
    sys.stdout.write(str(coverage()) + "\n")
