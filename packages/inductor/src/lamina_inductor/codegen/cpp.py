"""The C++ target: kernels with vector types and the OpenMP runtime torch loaded, one native function per graph.

Kernels of equal structure are written once. Units (shared objects) hold several kernels; their number follows the
amount of code, so that
they compile side by side and none is a long tail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from .. import build_cache, toolchain
from ..config import current
from ..errors import TargetUnavailable
from ..input_check import CheckedGraph
from ..ir.program import GraphProgram, KernelCall
from ..passes import is_on
from ..runtime import NativeGraph, function_address, native
from .cpp_ops import can_write
from .cpp_saved import Parts, inputs_of, read_graph
from .cpp_sharing import Function, share_kernels
from .wrapper_cpp import write_wrapper
from .wrapper_externs import python_call

_UNIT_COST = 260
"""Ops a unit holds before a new one is begun: about 0.4 s of compile time."""

_KERNEL_HEAD = '#include "lamina.h"\nusing namespace lm;\n'
_NATIVE_HEAD = '#include "lamina_conv.h"\n'
_LONG_STEPS = 100  # the wrapper of a longer program is compiled without optimisation: kernels stay out of it
_GRAPH_HEAD = '#include "lamina_graph.h"\n'


class CppTarget:
    """Target for CPU graphs. See `lamina_inductor.codegen.target.Target`."""

    name = "cpp"

    def unavailable(self) -> str | None:
        """None, or why C++ cannot be used here. Without a compiler it can, for graphs whose units are in the cache."""
        try:
            native()
        except TargetUnavailable as e:
            return f"{e.message} ({e.hint})" if e.hint else e.message
        return None

    def can_lower(self, op: str, dtype: torch.dtype) -> str | None:
        """None, or why an op cannot be generated in that dtype."""
        return can_write(op, dtype)

    def build(self, program: GraphProgram, config: Any) -> NativeGraph:
        """Generates, compiles and loads the program."""
        cache_dir, cxx = getattr(config, "cache_dir", ""), getattr(config, "cxx", "")
        jobs = getattr(config, "compile_jobs", 0)
        module = native(cache_dir, cxx)
        cache = build_cache.shared_cache(cache_dir)
        functions, calls = share_kernels(program.kernels, toolchain.vector_bytes() if is_on("vectors") else 0)
        groups = _divide(functions)
        in_wrapper = len(groups) == 1 and len(program.steps) <= _LONG_STEPS

        def kernel_text(call: KernelCall) -> str:
            k, _ = calls[call.kernel.key()]
            return f"kernels::{functions[k].name}" if in_wrapper else f"f->kernels[{k}]"

        def more_sizes(call: KernelCall) -> tuple[str, ...]:
            return calls[call.kernel.key()][1]

        wrapper = write_wrapper(program, kernel_text, toolchain.vector_bytes() // 4, more_sizes)
        bodies = ["".join(f.text + "\n" for f in group) for group in groups]
        head = ('#include "lamina.h"\n' if wrapper.includes_kernels or in_wrapper else "") + _GRAPH_HEAD
        extra = [_NATIVE_HEAD if any(f.is_native for f in group) else "" for group in groups]
        if in_wrapper:
            body = "".join(bodies).replace('extern "C" int ', "static int ")
            head = "".join(extra) + head
            sources = [f"{head}namespace kernels {{\nusing namespace lm;\n{body}}}\n{wrapper.source}"]
        else:
            sources = [head + wrapper.source] + [e + _KERNEL_HEAD + b for e, b in zip(extra, bodies, strict=True)]
        units = [build_cache.Unit(s) for s in sources]
        if not in_wrapper:
            units[0] = build_cache.Unit(sources[0], extra=wrapper.flags)
        places = [] if in_wrapper else [(1 + k, f.name) for k, group in enumerate(groups) for f in group]
        int_inputs = {index for _, index, what, _ in program.sizes if what == "int"}
        tensor_inputs = {d.index for d in program.buffers.values() if d.kind == "input"}
        kinds = "".join(
            "t" if k in tensor_inputs else "i" if k in int_inputs else "?" for k in range(program.input_count)
        )
        count = max(wrapper.callbacks, default=-1) + 1
        parts = Parts(
            units=units,
            functions=places,
            input_kinds=kinds,
            outputs=wrapper.outputs,
            releases_gil=wrapper.releases_gil,
            constants=[*program.constants, *(t for c in program.callees for t in c.program.constants)],
            calls=[wrapper.calls.get(k) for k in range(count)],
            inputs=inputs_of(program),
            libraries=cache.build_all(units, configured=cxx, jobs=jobs),
        )
        graph = _assemble(module, parts, [wrapper.callbacks.get(k, (None, 0))[0] for k in range(count)])
        graph.routes = wrapper.routes  # type: ignore[attr-defined]
        return graph

    def load(self, path: str) -> CheckedGraph:
        """A graph that `NativeGraph.save` wrote, perhaps in another process; no compiler is needed. Raises TargetError
        where the file does not fit this machine."""
        config = current()
        module = native(config.cache_dir, config.cxx)
        parts = read_graph(path, build_cache.shared_cache(config.cache_dir))
        calls = [None if c is None else python_call(c)[0] for c in parts.calls]
        return CheckedGraph(_assemble(module, parts, calls), parts.inputs)


def _assemble(module: ModuleType, parts: Parts, callbacks: Sequence[Callable[..., Any] | None]) -> NativeGraph:
    """Loads the units and makes the callable."""
    libraries = [build_cache.load(p) for p in parts.libraries]
    return NativeGraph(
        module,
        function_address(libraries[0], "lamina_run"),
        releases_gil=parts.releases_gil,
        input_kinds=parts.input_kinds,
        outputs=parts.outputs,
        constants=parts.constants,
        kernels=[function_address(libraries[k], name) for k, name in parts.functions],
        callbacks=callbacks,
        keep=libraries,
        source="\n".join(f"// unit {k}\n{u.source}" for k, u in enumerate(parts.units)),
        parts=parts,
    )


def _divide(functions: Sequence[Function]) -> list[list[Function]]:
    """Functions in order, divided into units."""
    groups: list[list[Function]] = []
    cost = _UNIT_COST
    for f in functions:
        if cost + f.cost > _UNIT_COST:
            groups.append([])
            cost = 0
        groups[-1].append(f)
        cost += f.cost
    return groups


__all__ = ["CppTarget"]
