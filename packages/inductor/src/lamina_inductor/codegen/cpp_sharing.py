"""One C++ function for kernels that differ in sizes and strides alone.

A network of forty convolution blocks has forty shapes of the same batch norm; compiling each costs the C++ compiler
more than the whole rest of the stack. Every kernel is written with its numbers marked (`cpp_kernel.c_index`), after
all decisions that depend on sizes are made. Kernels whose text between the marks is equal become one function; the
numbers in which they differ become arguments behind the size symbols. A kernel with a text of its own keeps its
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .cpp_kernel import write_template
from .kernel import KernelSpec
from .native_kernel import NativeKernel

_MARK = re.compile("\x01([^\x02]*)\x02")
_NAME = "lamina_kernel_name_"
_SIZES_READ = "(void)B, (void)S;"
_NATIVE_COST = 60


@dataclass
class Function:
    """One C++ function: its name, text, and number of ops; `is_native`: it needs the header of hand-written kernels."""

    name: str
    text: str
    cost: int
    is_native: bool = False


def share_kernels(
    kernels: Sequence[KernelSpec], vector_bytes: int
) -> tuple[list[Function], dict[str, tuple[int, tuple[str, ...]]]]:
    """(functions, kernel key -> (position of its function, extra arguments as C text))."""
    members: dict[tuple[str, ...], list[tuple[KernelSpec, list[str]]]] = {}
    native: dict[str, list[NativeKernel]] = {}
    seen: set[str] = set()
    for spec in kernels:
        key = spec.key()
        if key in seen:
            continue
        seen.add(key)
        if isinstance(spec, NativeKernel):
            native.setdefault(spec.template, []).append(spec)
            continue
        parts = _MARK.split(write_template(spec, _NAME, vector_bytes))
        members.setdefault(tuple(parts[::2]), []).append((spec, parts[1::2]))
    functions: list[Function] = []
    calls: dict[str, tuple[int, tuple[str, ...]]] = {}
    for between, group in members.items():
        first = group[0][0]
        columns = list(zip(*(numbers for _, numbers in group), strict=True))
        arguments: dict[tuple[str, ...], str] = {}
        words = []
        for column in columns:
            if len(set(column)) == 1:
                words.append(column[0])
            else:
                words.append(arguments.setdefault(column, f"c{len(arguments)}_"))
        text = "".join(a + b for a, b in zip(between, [*words, ""], strict=True))
        start = len(first.sizes)
        reads = "".join(f"const i64 {name} = S[{start + k}]; " for k, name in enumerate(arguments.values()))
        name = f"k{len(functions)}"
        text = text.replace(_SIZES_READ, reads + _SIZES_READ, 1).replace(_NAME, name)
        for k, (spec, _) in enumerate(group):
            calls[spec.key()] = (len(functions), tuple(column[k] for column in arguments))
        functions.append(Function(name, text, sum(1 for _ in first.ops()) + 15))
    for template, same in native.items():
        name, call = f"k{len(functions)}", template.replace("{N}", str(max(1, vector_bytes // 4)))
        for spec in same:
            calls[spec.key()] = (len(functions), tuple(map(str, spec.numbers)))
        text = f'extern "C" int {name}(void* const* B, const i64* S) {{ return {call}(B, S); }}\n'
        functions.append(Function(name, text, _NATIVE_COST, True))
    return functions, calls


__all__ = ["Function", "share_kernels"]
