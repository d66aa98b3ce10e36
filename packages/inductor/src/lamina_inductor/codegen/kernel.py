"""The frozen description of ONE scheduled kernel: what the scheduler hands to a target, whatever the target.

Shape of a kernel
=================

A kernel is a nest of *outer loops*; in each outer iteration the *phases* run one after another; a phase is a nest of
*inner loops* (maybe none) around a flat list of ops (`lamina_inductor.ops`)::

    for i0 in range(size0):            # KernelSpec.loops: kind "parallel" (any order, any thread) or "serial"
        for i1 in range(size1):
            for r0 in range(...):      # KernelSpec.phases[0].loops: kind "reduction", "parallel" or "scan"
                ops of phases[0]
            for r0 in range(...):
                ops of phases[1]
            ops of phases[2]           # a phase without loops: once per outer iteration

* A pointwise kernel has one phase without loops. The last outer loop is then the one to vectorise.
* A phase whose loops are "reduction" may contain `reduction` ops (over *all* loops of that phase) besides pointwise
  ops,
  loads and stores; its loops may be split and reordered. A reduction's result is usable only in *later* phases.
* A phase whose loops are "parallel" is a pointwise loop over the reduced axis.
* A phase with a "scan" loop: that one loop (always the last of its phase, the only one) runs in order; `scan` results
  are usable in
  the same iteration.
* An op may use ops of its own phase (same iteration), and ops of earlier phases if those are reductions (or `item`\\
  s of
  them) or belong to a phase without loops. Any other value that must cross phases is loaded again, recomputed, or
  goes through
  a *scratch* buffer.
* "serial" outer loops: different iterations may store to the same element (mode not None, or index_put with
  duplicates). Run them in order, or use atomics for the modes "add"/"max"/"min"/"mul" where order does not matter.
  "parallel" loops of the
  same nest never collide.
* Loop names are unique in a kernel, except that phases reuse the names of equal inner loops (``r0``), which is a
  hint that their accesses correspond.

Buffers
=======

`KernelSpec.buffers` are the pointer arguments in order. ``role``: "in" (read only, may alias other "in"), "out"
(written,
never read before written by the same kernel at the same index), "inout" (read and written), "scratch" (not an
argument: private to one outer iteration, `numel` elements,
indexed by inner loops only). Index expressions count elements from the buffer's data pointer. "in" and "out" never
overlap unless the
program says so by role "inout" (in-place reuse: each element is read before it is written, by the same outer
iteration and inner position).

`KernelSpec.sizes` are the names of size symbols that sizes and indices mention: int64 arguments after the buffers.

Accesses
========

``load``/``store`` hold a full index expression, so the stride along any loop is
`lamina_inductor.index.coefficient(expr, loop.name)`: an Expr (0: broadcast,
1: contiguous) or None when not affine. `KernelSpec.strides(op)` gives that for all loops. An index that depends on
data names a symbol made by an `indirect` op
(`Op.args == (value, symbol_name)`): bounds were checked and negative indices wrapped by ordinary ops before it. A
mask (bool Op) on a load
means: do not touch memory where false, yield 0. On a store: do not write where false.

Dtypes follow `lamina_inductor.ops`. `constant` args hold a Python number already representable in the op's dtype (or
inf/nan).

Worked example: row softmax of float32[s0, 100] (rows contiguous)
=================================================================

::

    x, out = BufferArg("x", float32, "in", s0*100), BufferArg("out", float32, "out", s0*100)
    loops  = (LoopVar("i0", s0, "parallel"),)
    phase0: loops (LoopVar("r0", 100, "reduction"),)
        a0 = load("x", i0*100 + r0, None)
        a1 = reduction(a0, "max", None)
    phase1: loops (LoopVar("r0", 100, "reduction"),)
        a2 = load("x", i0*100 + r0, None)
        a3 = sub(a2, a1)
        a4 = exp(a3)
        a5 = store("scratch0", r0, a4, None, None)      # BufferArg("scratch0", float32, "scratch", 100)
        a6 = reduction(a4, "sum", None)
    phase2: loops ()
        a7 = reciprocal(a6)
    phase3: loops (LoopVar("r0", 100, "parallel"),)
        a8 = load("scratch0", r0, None)
        a9 = mul(a8, a7)
        a10 = store("out", i0*100 + r0, a9, None, None)

A C++ target makes i0 an OpenMP loop and vectorises r0 (stride 1); a Triton target makes one program per block of
rows, r0 a block axis, keeps scratch in
registers and turns each phase into block code; the reference target evaluates each phase for all iterations at once
with plain torch.

`KernelSpec.text()` prints the kernel as runnable Python (slow scalar loops), `KernelSpec.key()` is a text that is
equal for structurally equal kernels
(names normalised): equal keys need one compilation, with the call's buffers passed in the order of `buffers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

from ..index import Expr, coefficient, render
from ..ops import Op


@dataclass(frozen=True)
class LoopVar:
    """One loop: ``for name in range(size)``; kind "parallel", "serial", "reduction" or "scan"."""

    name: str
    size: Expr
    kind: str = "parallel"


@dataclass(frozen=True)
class BufferArg:
    """One buffer of a kernel: role "in", "out", "inout", "scratch"; `numel` elements are addressable."""

    name: str
    dtype: torch.dtype
    role: str
    numel: Expr


@dataclass(frozen=True, eq=False)
class Phase:
    """Inner loops (maybe none) around ops in execution order."""

    loops: tuple[LoopVar, ...]
    ops: tuple[Op, ...]


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """One kernel. See the module's docstring for the meaning of every part.

    `origins` names the graph nodes it computes (for reading only); `device` is "cpu" or "cuda".
    """

    name: str
    loops: tuple[LoopVar, ...]
    phases: tuple[Phase, ...]
    buffers: tuple[BufferArg, ...]
    sizes: tuple[str, ...] = ()
    device: str = "cpu"
    origins: tuple[str, ...] = ()
    _cache: dict = field(default_factory=dict, repr=False)

    def ops(self) -> Iterator[Op]:
        """All ops in execution order."""
        for phase in self.phases:
            yield from phase.ops

    @property
    def arguments(self) -> tuple[BufferArg, ...]:
        """The buffers that are pointer arguments (everything but scratch), in order."""
        return tuple(b for b in self.buffers if b.role != "scratch")

    def buffer(self, name: str) -> BufferArg:
        """The buffer of that name."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, BufferArg]:
        return {b.name: b for b in self.buffers}

    @cached_property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """(kind, message) of every `check` op in order; kind is "IndexError", "RuntimeError", ..."""
        return tuple((op.args[2], op.args[1]) for op in self.ops() if op.name == "check")

    def strides(self, op: Op, phase: Phase) -> dict[str, Expr | None]:
        """For a load or store: loop name -> stride in elements (None where not affine), outer loops first."""
        expr = op.args[1]
        return {v.name: coefficient(expr, v.name) for v in (*self.loops, *phase.loops)}

    def text(self) -> str:
        """The kernel as a Python function: scalar loops over flat buffers (`file_text` adds what runs it)."""
        return print_kernel(self, self.name, {})

    def file_text(self) -> str:
        """The kernel as a Python file that runs on random buffers."""
        from ..ir.printing import print_kernel_file  # the printer knows this module

        return print_kernel_file(self)

    def key(self) -> str:
        """Text that two kernels share exactly when one compilation serves both."""
        found = self._cache.get("key")
        if found is None:
            names = {b.name: f"b{k}" for k, b in enumerate(self.buffers)}
            loops = [*self.loops, *(v for p in self.phases for v in p.loops)]
            for v in loops:
                names.setdefault(v.name, f"l{len(names)}")
            for k, s in enumerate(self.sizes):
                names[s] = f"s{k}"
            found = self._cache["key"] = print_kernel(self, "kernel", names) + f"# {self.device}\n"
        return found


def elements_touched(e: Expr, loops: Sequence[LoopVar]) -> tuple[int, str | None]:
    """(how many elements an access visits, the loop along which they lie next to each other)."""
    touched, contiguous = 1, None
    for v in loops:
        step = coefficient(e, v.name)
        if step == 0:
            continue
        n = int(v.size) if v.size.is_const else 1 << 10
        touched *= n
        if step == 1 and n > 1:
            contiguous = v.name
    return touched, contiguous


def short_dtype(dtype: torch.dtype) -> str:
    """"float32" for torch.float32."""
    return str(dtype).removeprefix("torch.")


def print_kernel(spec: KernelSpec, title: str, names: dict[str, str]) -> str:
    """Print `spec` as a Python function; `names` renames buffers, loops and size symbols."""
    names = dict(names)
    values: dict[Op, str] = {}

    def arg(a: object) -> str:
        if isinstance(a, Op):
            return values[a]
        if isinstance(a, Expr):
            return render(a, names)
        if isinstance(a, torch.dtype):
            return repr(short_dtype(a))
        if isinstance(a, str):
            return repr(a)
        if isinstance(a, float) and (a != a or a in (float("inf"), float("-inf"))):
            return f"float('{a}')"
        return repr(a)

    def rename(n: str) -> str:
        return names.get(n, n)

    lines = []
    for b in spec.buffers:
        lines.append(f"# {rename(b.name)}: {short_dtype(b.dtype)}[{render(b.numel, names)}] {b.role}")
    params = [rename(b.name) for b in spec.arguments] + [rename(s) for s in spec.sizes]
    lines.append(f"def {title}(ops, {', '.join(params)}):")
    indent = 1

    def open_loop(v: LoopVar) -> None:
        nonlocal indent
        lines.append("    " * indent + f"for {rename(v.name)} in range({render(v.size, names)}):  # {v.kind}")
        indent += 1

    for v in spec.loops:
        open_loop(v)
    for b in spec.buffers:
        if b.role == "scratch":
            lines.append(
                "    " * indent + f"{rename(b.name)} = ops.scratch({render(b.numel, names)}, {short_dtype(b.dtype)!r})"
            )
    top = indent
    for phase in spec.phases:
        indent = top
        reductions = [op for op in phase.ops if op.name in ("reduction", "scan")]
        for op in phase.ops:  # names first: a reduction's accumulator is opened before the loops
            values[op] = f"v{len(values)}"
        for op in phase.ops:
            if op.name == "indirect":
                names[op.args[1]] = values[op]
        for op in reductions:
            lines.append("    " * indent + f"{values[op]} = ops.accumulator({op.args[1]!r}, {short_dtype(op.dtype)!r})")
        for v in phase.loops:
            open_loop(v)
        for op in phase.ops:
            dtype = short_dtype(op.dtype)
            pad = "    " * indent
            if op.name == "store":
                buffer, index, value, mode, mask = op.args
                lines.append(pad + f"ops.store({rename(buffer)}, {arg(index)}, {arg(value)}, {mode!r}, {arg(mask)})")
            elif op.name == "load":
                buffer, index, mask = op.args
                lines.append(pad + f"{values[op]} = ops.load({rename(buffer)}, {arg(index)}, {arg(mask)}, {dtype!r})")
            elif op.name == "indirect":
                lines.append(pad + f"{values[op]} = ops.indirect({arg(op.args[0])})")
            elif op.name in ("reduction", "scan"):
                rest = ", ".join(arg(a) for a in op.args if not isinstance(a, str))
                lines.append(pad + f"{values[op]} = ops.{op.name}({values[op]}, {rest}, {dtype!r})")
            else:
                args = ", ".join(arg(a) for a in op.args)
                lines.append(pad + f"{values[op]} = ops.{op.name}({args}{', ' if args else ''}{dtype!r})")
    return "\n".join(lines) + "\n"
