"""What this package takes and gives, and the check of both."""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule

from .errors import ContractError
from .ir.program import Alloc, BufferRef, ExternCall, Free, GraphProgram, KernelCall, Reuse, View

CONTRACT_VERSION = 1

META_KEYS = {
    "val": "tensor whose metadata is right and whose data is not read, SymInt, number, or a tuple of these",
    "stack_trace": "the user's file and line (optional)",
}


def check_graph(gm: GraphModule) -> None:
    """Raises ContractError naming the first node that breaks the contract of a prim graph."""
    for node in gm.graph.nodes:
        if node.op not in ("placeholder", "get_attr", "call_function", "output"):
            raise ContractError(f"{node.op} nodes are not allowed", node=node.name)
        if node.op == "call_function":
            if "val" not in node.meta:
                raise ContractError("meta['val'] is missing", node=node.name)
            schema = getattr(node.target, "_schema", None)
            if schema is not None and schema.is_mutable:
                raise ContractError(f"{node.target} mutates its arguments", node=node.name)


def check_program(program: GraphProgram) -> None:
    """Raises ContractError when a step uses a buffer that is not there."""
    ready = {b.name for b in program.buffers.values() if b.kind in ("input", "constant") or b.arena is not None}

    def use(name: str, what: str) -> None:
        if name not in ready:
            raise ContractError(f"{what} uses {name}, which is not ready", node=name)

    def refs(a: Any) -> Any:
        if isinstance(a, BufferRef):
            yield a.name
        elif isinstance(a, (list, tuple)):
            for x in a:
                yield from refs(x)
        elif isinstance(a, dict):
            yield from refs(list(a.values()))

    for step in program.steps:
        if isinstance(step, Alloc):
            ready.add(step.name)
        elif isinstance(step, Reuse):
            use(step.old, "reuse")
            ready.discard(step.old)
            ready.add(step.name)
        elif isinstance(step, View):
            use(step.base, "view")
            ready.add(step.name)
        elif isinstance(step, Free):
            use(step.name, "free")
            ready.discard(step.name)
        elif isinstance(step, KernelCall):
            if len(step.args) != len(step.kernel.arguments):
                raise ContractError(
                    f"{step.kernel.name} takes {len(step.kernel.arguments)} buffers, not {len(step.args)}"
                )
            for x, b in zip(step.args, step.kernel.arguments, strict=True):
                use(x, step.kernel.name)
                if program.buffers[x].layout.dtype != b.dtype:
                    raise ContractError(
                        f"{step.kernel.name}: {x} has dtype {program.buffers[x].layout.dtype}, not {b.dtype}"
                    )
        elif isinstance(step, ExternCall):
            for x in refs((step.args, step.kwargs)):
                use(x, str(step.target))
            ready.update(n for n in step.outputs if n is not None)
    for o in program.outputs:
        if o.name:
            use(o.name, "output")


__all__ = ["CONTRACT_VERSION", "META_KEYS", "check_graph", "check_program"]
