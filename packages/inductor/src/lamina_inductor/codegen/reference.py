"""The reference target: interprets kernels and programs with plain torch, no toolchain needed.

Each phase of a kernel is evaluated for all iterations at once: a loop is an axis, an op is a torch call on
broadcastable tensors. Slow and memory hungry, but simple: what
another target computes can be compared with it, and a new target can start from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..index import Expr, evaluate
from ..ir.layout import Layout
from ..ir.program import (
    Alloc,
    BindSize,
    BufferRef,
    ExternCall,
    Free,
    GraphProgram,
    KernelCall,
    Reuse,
    View,
)
from ..ops import Op
from .kernel import KernelSpec, Phase
from .native_kernel import NativeKernel

ERRORS: dict[str, type[Exception]] = {"IndexError": IndexError, "RuntimeError": RuntimeError, "ValueError": ValueError}


def _safe(y: torch.Tensor) -> torch.Tensor:
    """Integer divisors without zeros (a check op has reported those that matter)."""
    return y if y.dtype.is_floating_point else torch.where(y == 0, torch.ones_like(y), y)


def _logical(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: fn(*(x.to(torch.bool) for x in xs))


FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "truediv": torch.div,
    "floordiv": lambda x, y: torch.div(x, _safe(y), rounding_mode="floor"),
    "truncdiv": lambda x, y: torch.div(x, _safe(y), rounding_mode="trunc"),
    "remainder": lambda x, y: torch.remainder(x, _safe(y)),
    "fmod": lambda x, y: torch.fmod(x, _safe(y)),
    "square": lambda x: x * x,
    "fma": lambda x, y, z: x * y + z,
    "lgamma": torch.lgamma,
    "digamma": torch.digamma,
    "erfinv": torch.erfinv,
    "i0": torch.special.i0,
    "i0e": torch.special.i0e,
    "i1": torch.special.i1,
    "i1e": torch.special.i1e,
    "ndtri": torch.special.ndtri,
    "bessel_j0": torch.special.bessel_j0,
    "bessel_j1": torch.special.bessel_j1,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "logical_and": _logical(torch.logical_and),
    "logical_or": _logical(torch.logical_or),
    "logical_xor": _logical(torch.logical_xor),
    "logical_not": torch.logical_not,
    "where": lambda c, x, y: torch.where(c.to(torch.bool), x, y),
}
for _name in (
    "neg abs sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan "
    "sinh cosh tanh asinh acosh "
    "atanh erf erfc sigmoid floor ceil trunc round maximum minimum pow atan2 hypot copysign nextafter "
    "isnan isinf signbit "
    "bitwise_and bitwise_or bitwise_xor bitwise_not eq ne lt le gt ge"
).split():
    FUNCTIONS[_name] = getattr(torch, _name)


def run_kernel(spec: KernelSpec, pointers: Sequence[torch.Tensor], sizes: Sequence[int]) -> None:
    """Runs `spec`; `pointers` are flat tensors (one element per index) for `spec.arguments`, `sizes` the values of
    `spec.sizes`.
    Raises what a failed check op says."""
    if isinstance(spec, NativeKernel):
        spec.run(pointers)
        return
    _Run(spec, pointers, sizes).run()


class _Run:
    def __init__(self, spec: KernelSpec, pointers: Sequence[torch.Tensor], sizes: Sequence[int]) -> None:
        self.spec = spec
        self.env: dict[str, Any] = dict(zip(spec.sizes, sizes, strict=True))
        self.device = pointers[0].device if pointers else torch.device("cpu")
        self.outer = [int(evaluate(v.size, self.env)) for v in spec.loops]
        self.buffers = dict(zip((b.name for b in spec.arguments), pointers, strict=True))
        self.rows: dict[str, int] = {}
        for b in spec.buffers:
            if b.role == "scratch":
                self.rows[b.name] = int(evaluate(b.numel, self.env))
                self.buffers[b.name] = torch.zeros(
                    self.rows[b.name] * math.prod(self.outer), dtype=b.dtype, device=self.device
                )
        self.depth = max((len(p.loops) for p in spec.phases), default=0)
        self.rank = len(self.outer) + self.depth
        self.values: dict[Op, Any] = {}

    def axis(self, size: int, k: int) -> torch.Tensor:
        shape = [1] * self.rank
        shape[k] = size
        return torch.arange(size, device=self.device).reshape(shape)

    def run(self) -> None:
        for k, (v, n) in enumerate(zip(self.spec.loops, self.outer, strict=True)):
            self.env[v.name] = self.axis(n, k)
        if 0 in self.outer:
            return
        for phase in self.spec.phases:
            inner = [int(evaluate(v.size, self.env)) for v in phase.loops]
            for k, (v, n) in enumerate(zip(phase.loops, inner, strict=True)):
                self.env[v.name] = self.axis(n, len(self.outer) + k)
            full = [*self.outer, *inner, *[1] * (self.depth - len(inner))]
            for op in phase.ops:
                self.values[op] = self.evaluate(op, phase, full)

    def evaluate(self, op: Op, phase: Phase, full: list[int]) -> Any:
        name, args = op.name, op.args
        if name == "constant":
            return torch.full([1] * self.rank, args[0], dtype=op.dtype, device=self.device)
        if name == "index_expr":
            return self.index(args[0]).to(op.dtype)
        if name == "load":
            return self.load(op)
        if name == "store":
            return self.store(op, full)
        if name == "indirect":
            self.env[args[1]] = self.values[args[0]].to(torch.int64)
            return self.env[args[1]]
        if name == "check":
            return self.check(op, full)
        if name == "to_dtype":
            return self.values[args[0]].to(op.dtype)
        if name == "round_to":
            return self.values[args[0]].to(args[1]).to(torch.float32)
        if name == "bitcast":
            return self.values[args[0]].contiguous().view(op.dtype)
        if name == "reduction":
            return reduce_values(
                self.values[args[0]], args[1], self.values.get(args[2]), op.dtype, len(self.outer), full
            )
        if name == "scan":
            return scan_values(self.values[args[0]], args[1], self.values.get(args[2]), len(self.outer), full)
        if name == "item":
            return self.values[args[0]][args[1]]
        return FUNCTIONS[name](*(self.values[a] for a in args)).to(op.dtype)

    def index(self, e: Expr) -> torch.Tensor:
        value = evaluate(e, self.env)
        if isinstance(value, int):
            return torch.full([1] * self.rank, value, dtype=torch.int64, device=self.device)
        return value

    def place(self, name: str, e: Expr) -> torch.Tensor:
        index = self.index(e)
        row = self.rows.get(name)
        if row is not None:
            flat: Any = torch.zeros([1] * self.rank, dtype=torch.int64, device=self.device)
            for k, n in enumerate(self.outer):
                flat = flat * n + self.axis(n, k)
            index = index + flat * row
        return index

    def load(self, op: Op) -> torch.Tensor:
        name, e, mask = op.args
        index = self.place(name, e)
        data = self.buffers[name]
        if data.numel() == 0:  # in a loop of length zero, or masked out
            return torch.zeros(index.shape, dtype=op.dtype, device=self.device)
        if mask is not None:
            keep = self.values[mask]
            index = torch.where(keep, index, 0)
            value = data[index].to(op.dtype)
            return torch.where(keep, value, torch.zeros((), dtype=op.dtype, device=self.device))
        return data[index].to(op.dtype)

    def store(self, op: Op, full: list[int]) -> None:
        name, e, value, mode, mask = op.args
        index = self.place(name, e).expand(full).reshape(-1)
        data = self.buffers[name]
        new = self.values[value].expand(full).reshape(-1).to(data.dtype)
        if mask is not None:
            keep = self.values[mask].expand(full).reshape(-1)
            index, new = index[keep], new[keep]
        if mode is None:
            data[index] = new
        elif mode == "add":
            data.index_put_((index,), new, accumulate=True)
        else:
            reduce = {"mul": "prod", "max": "amax", "min": "amin"}[mode]
            data.scatter_reduce_(0, index, new, reduce)

    def check(self, op: Op, full: list[int]) -> None:
        condition, message, kind, mask = op.args
        good = self.values[condition]
        if mask is not None:
            good = good | ~self.values[mask]
        if 0 not in full and not bool(good.all()):
            raise ERRORS.get(kind, RuntimeError)(message)


def _extreme(value: torch.Tensor, dims: list[int], largest: bool) -> torch.Tensor:
    if any(value.shape[d] == 0 for d in dims):
        shape = [1 if d in dims else n for d, n in enumerate(value.shape)]
        if value.dtype == torch.bool:
            return torch.full(shape, not largest, dtype=value.dtype, device=value.device)
        if value.dtype.is_floating_point:
            return torch.full(shape, -math.inf if largest else math.inf, dtype=value.dtype, device=value.device)
        info = torch.iinfo(value.dtype)
        return torch.full(shape, info.min if largest else info.max, dtype=value.dtype, device=value.device)
    return (torch.amax if largest else torch.amin)(value, dims, keepdim=True)


def reduce_values(
    value: torch.Tensor, kind: str, index: torch.Tensor | None, dtype: torch.dtype, outer: int, full: list[int]
) -> Any:
    """The results of one reduction of `value` (broadcast to `full`) over the axes from `outer` on, kept as axes of
    size one."""
    value = value.expand(full)
    dims = list(range(outer, len(full)))
    if not dims:
        value, dims = value.unsqueeze(-1), [outer]
        results = reduce_values(
            value, kind, None if index is None else index.expand(full).unsqueeze(-1), dtype, outer, [*full, 1]
        )
        return tuple(r.squeeze(-1) for r in results) if isinstance(results, tuple) else results.squeeze(-1)
    if kind == "sum":
        return torch.sum(value, dims, keepdim=True, dtype=dtype)
    if kind == "prod":
        for d in dims:
            value = torch.prod(value, d, keepdim=True, dtype=dtype)
        return value
    if kind == "any":
        return torch.any(value.to(torch.bool), dims, keepdim=True) if dims else value
    if kind == "all":
        return torch.all(value.to(torch.bool), dims, keepdim=True)
    if kind in ("max", "min"):
        return _extreme(value, dims, kind == "max")
    if kind == "xor":
        flat = value.flatten(outer)
        out = torch.zeros_like(flat[..., :1])
        for k in range(flat.shape[-1]):
            out = out ^ flat[..., k : k + 1]
        return out.reshape([*full[:outer], *[1] * len(dims)])
    if kind in ("argmax", "argmin", "max_with_index", "min_with_index"):
        best = _extreme(value, dims, kind.startswith(("argmax", "max")))
        hit = value == best
        if value.dtype.is_floating_point:
            hit = hit | value.isnan()
        assert index is not None
        position = torch.where(hit, index.expand(full), torch.iinfo(torch.int64).max)
        first = _extreme(position, dims, False)
        return (best, first) if kind.endswith("with_index") else first
    if kind == "welford":
        n = math.prod(full[outer:])
        mean = value.mean(dims, keepdim=True)
        m2 = ((value - mean) ** 2).sum(dims, keepdim=True)
        return mean, m2, torch.full_like(mean, float(n))
    if kind == "softmax_stats":
        best = _extreme(value, dims, True)
        return best, torch.exp(value - best).sum(dims, keepdim=True)
    raise KeyError(kind)


def scan_values(value: torch.Tensor, kind: str, index: torch.Tensor | None, axis: int, full: list[int]) -> Any:
    """The results of one inclusive scan along `axis`."""
    value = value.expand(full)
    if kind == "sum":
        return torch.cumsum(value, axis, dtype=value.dtype)
    if kind == "prod":
        return torch.cumprod(value, axis, dtype=value.dtype)
    if kind == "logcumsumexp":
        return torch.logcumsumexp(value, axis)
    best, where = (torch.cummax if kind == "cummax" else torch.cummin)(value, axis)
    assert index is not None
    return best, index.expand(full).gather(axis, where)


def flat_view(t: torch.Tensor, span: int) -> torch.Tensor:
    """The memory behind `t` as a 1-d tensor of `span` elements that starts at its data pointer."""
    return torch.as_strided(t, (span,), (1,), t.storage_offset())


class ReferenceProgram:
    """A program, interpreted. Call with the graph's inputs."""

    def __init__(self, program: GraphProgram) -> None:
        self.program = program
        kernels = {id(k): k for k in program.kernels}
        self.source = program.text() + "\n" + "\n".join(k.text() for k in kernels.values())

    def __call__(self, *inputs: Any) -> list[Any]:
        """Runs all steps; returns the graph's outputs."""
        p = self.program
        sizes: dict[str, int] = {}
        for symbol, k, what, dim in p.sizes:
            sizes[symbol] = int(inputs[k]) if what == "int" else getattr(inputs[k], what)(dim)
        tensors: dict[str, torch.Tensor] = {}
        for b in p.buffers.values():
            if b.kind == "input":
                tensors[b.name] = inputs[b.index]
            elif b.kind == "constant":
                tensors[b.name] = p.constants[b.index]
        arena = torch.empty(p.arena_bytes, dtype=torch.uint8, device=p.device)

        def number(e: Any) -> Any:
            return evaluate(e, sizes)

        def over(storage: torch.Tensor, layout: Layout, offset: int) -> torch.Tensor:
            shape, stride = [number(s) for s in layout.shape], [number(s) for s in layout.stride]
            return torch.empty(0, dtype=layout.dtype, device=layout.device).set_(
                storage.untyped_storage(), offset + number(layout.offset), shape, stride
            )

        for b in p.buffers.values():
            if b.arena is not None:
                tensors[b.name] = over(arena, b.layout, b.arena // b.layout.itemsize)

        def resolve(a: Any) -> Any:
            if isinstance(a, BufferRef):
                t = tensors[a.name]
                return (
                    t if a.layout is None else over(t, a.layout, _offset(t, p.buffers[a.name].layout, number, a.layout))
                )
            if isinstance(a, Expr):
                return number(a)
            if isinstance(a, (list, tuple)):
                return [resolve(x) for x in a]
            if isinstance(a, dict):
                return {k: resolve(v) for k, v in a.items()}
            return a

        for step in p.steps:
            if isinstance(step, KernelCall):
                numbers = [number(s) for s in step.sizes]
                # by the buffers' own layouts: calls of other sizes may share the kernel and its arguments' sizes
                pointers = [flat_view(tensors[x], number(p.buffers[x].layout.span)) for x in step.args]
                self.run_kernel(step.kernel, pointers, numbers)
            elif isinstance(step, ExternCall):
                self._call(step, resolve, tensors, sizes, over, number)
            elif isinstance(step, Alloc):
                layout = p.buffers[step.name].layout
                flat = torch.empty(number(layout.span), dtype=layout.dtype, device=layout.device)
                tensors[step.name] = over(flat, layout, 0)
            elif isinstance(step, Reuse):
                tensors[step.name] = over(tensors.pop(step.old), p.buffers[step.name].layout, 0)
            elif isinstance(step, View):
                tensors[step.name] = over(
                    tensors[step.base], p.buffers[step.name].layout, tensors[step.base].storage_offset()
                )
            elif isinstance(step, Free):
                tensors.pop(step.name, None)
            elif isinstance(step, BindSize):
                sizes[step.symbol] = tensors[step.buffer].size(step.dim)
        return [self._output(o, inputs, tensors, over, number) for o in p.outputs]

    def run_kernel(self, spec: KernelSpec, buffers: Sequence[torch.Tensor], sizes: Sequence[int]) -> None:
        """Runs one kernel on flat tensors that begin at the buffers' pointers; other targets' interpreters replace
        it."""
        run_kernel(spec, buffers, sizes)

    def _call(self, step: ExternCall, resolve: Any, tensors: Any, sizes: Any, over: Any, number: Any) -> None:
        result = step.target(*resolve(step.args), **resolve(step.kwargs))
        flat: list[Any] = []
        for r in result if isinstance(result, (tuple, list)) else (result,):
            flat.extend(r) if isinstance(r, (tuple, list)) else flat.append(r)
        for name, value in zip(step.outputs, flat, strict=False):
            if name is not None:
                layout = self.program.buffers[name].layout
                for d, e in enumerate(layout.shape):  # what the BindSize steps behind this call will say
                    if e.op == "sym":
                        sizes.setdefault(e.args[0], value.size(d))
                wanted = tuple(number(s) for s in layout.stride)
                shape = tuple(value.shape)
                if shape != tuple(map(number, layout.shape)):
                    if layout.shape and layout.dtype is not torch.uint8:  # bytes: what a backward kernel will read
                        raise RuntimeError(f"{step.target} gave a result of another shape than was predicted")
                elif value.dtype is not layout.dtype or (
                    any(n != 1 and a != b for n, a, b in zip(shape, value.stride(), wanted, strict=True))
                    and value.numel()
                ):
                    copy = torch.empty_strided(shape, wanted, dtype=layout.dtype, device=value.device)
                    value = copy.copy_(value)
                tensors[name] = value
        for position, symbol in step.scalars:
            sizes[symbol] = int(flat[position])

    def _output(self, o: Any, inputs: Any, tensors: Any, over: Any, number: Any) -> Any:
        if o.kind == "input":
            return inputs[o.index]
        if o.kind == "scalar":
            return number(o.value)
        if o.kind == "none":
            return None
        t = tensors[o.name]
        shape, stride = [number(s) for s in o.layout.shape], [number(s) for s in o.layout.stride]
        offset = t.storage_offset() + number(o.layout.offset)
        if list(t.shape) == shape and list(t.stride()) == stride and offset == t.storage_offset():
            return t
        if t.dtype != o.layout.dtype:
            return over(t, o.layout, offset)
        return torch.as_strided(t, shape, stride, offset)


def _offset(t: torch.Tensor, whole: Layout, number: Any, wanted: Layout) -> int:
    return t.storage_offset() - number(whole.offset)


class ReferenceTarget:
    """See `lamina_inductor.codegen.target.Target`."""

    name = "reference"

    def unavailable(self) -> str | None:
        """Always available."""
        return None

    def can_lower(self, op: str, dtype: torch.dtype) -> str | None:
        """Everything torch can do; whole products and convolutions are torch's own."""
        return "torch computes it whole" if op in ("product", "depthwise", "attention") else None

    def build(self, program: GraphProgram, config: Any) -> ReferenceProgram:
        """Nothing to compile."""
        return ReferenceProgram(program)


__all__ = ["ReferenceProgram", "ReferenceTarget", "flat_view", "run_kernel"]
