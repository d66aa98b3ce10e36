"""The calls that are judged: torch's operator samples (as function, method, in-place or out= call), its module samples
and its error inputs, in several dtypes and memory layouts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

DTYPES = ("float32", "float64", "bfloat16", "float16", "complex64", "complex128", "int64", "int32", "int16", "int8",
          "uint8", "bool")  # fmt: skip
LAYOUTS = ("plain", "transposed", "strided")
VARIANTS = ("function", "method", "inplace", "out")


class Case:
    """One call: `apply(*tensors)` on a fresh copy of the tensors, in their layout."""

    def __init__(self, name: str, call: Callable[..., Any], sample: Any, label: str) -> None:
        self.name, self.call, self.sample, self.label = name, call, sample, label

    def arguments(self) -> tuple[Any, list[torch.Tensor]]:
        """A copy of the arguments and, of these, the tensors that require gradients."""
        copied = copy_tree(self.sample)
        return copied, self.leaves_of(copied)

    def leaves_of(self, arguments: Any) -> list[torch.Tensor]:
        return [t for t in tensors_of(arguments) if t.requires_grad]

    def widened(self, arguments: Any, convert: Callable[[Any], Any]) -> Any:
        """The arguments with every leaf converted."""
        return pytree.tree_map(convert, arguments)

    def state(self, arguments: Any) -> list[torch.Tensor]:
        """What the call may have written to: the tensors among the arguments."""
        return tensors_of(arguments)

    def structure(self) -> Any:
        """Equal for calls that differ in the sizes of tensors only."""
        return repr(pytree.tree_map(
            lambda t: (t.dtype, t.dim(), t.requires_grad) if isinstance(t, torch.Tensor) else t, self.sample
        ))  # fmt: skip


class ModuleCase(Case):
    """A call of a module; every run gets a copy of the module."""

    def __init__(self, name: str, module: Any, sample: Any, label: str) -> None:
        super().__init__(name, run_module, sample, label)
        self.module = module

    def arguments(self) -> tuple[Any, list[torch.Tensor]]:
        made = (copy.deepcopy(self.module), *copy_tree(self.sample)[1:])
        return made, self.leaves_of(made)

    def leaves_of(self, arguments: Any) -> list[torch.Tensor]:
        return super().leaves_of(arguments[1:]) + [p for p in arguments[0].parameters() if p.requires_grad]

    def widened(self, arguments: Any, convert: Callable[[Any], Any]) -> Any:
        return (arguments[0].double(), *pytree.tree_map(convert, arguments[1:]))

    def state(self, arguments: Any) -> list[torch.Tensor]:
        return [*tensors_of(arguments[1:]), *arguments[0].buffers()]

    def structure(self) -> Any:
        return id(self)


def run_module(module: Any, *args: Any, **kwargs: Any) -> Any:
    return module(*args, **kwargs)


def copy_tree(tree: Any) -> Any:
    """Copies every tensor with its strides and its requires_grad; other leaves stay."""
    return pytree.tree_map(lambda t: copy_tensor(t) if isinstance(t, torch.Tensor) else t, tree)


def copy_tensor(t: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides."""
    if t.layout is not torch.strided or t.is_quantized or type(t) is not torch.Tensor:
        return t
    out = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype) if not overlaps(t) else t.detach().clone()
    out.untyped_storage().fill_(0)  # as_strided reads what lies between the elements
    with torch.no_grad():
        out.copy_(t.detach())
    return out.requires_grad_(t.requires_grad)


def overlaps(t: torch.Tensor) -> bool:
    return any(n > 1 and s == 0 for n, s in zip(t.shape, t.stride(), strict=True))


def relay(t: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values in other strides: last two dimensions swapped in memory, or every second element."""
    if layout == "plain" or t.layout is not torch.strided or t.dim() < (2 if layout == "transposed" else 1):
        return t
    with torch.no_grad():
        d = t.detach()
        if layout == "transposed":
            out = torch.empty_like(d.mT, memory_format=torch.contiguous_format).mT
        else:
            out = torch.zeros((*d.shape[:-1], 2 * d.shape[-1]), dtype=d.dtype)[..., ::2]
        out.copy_(d)
    return out.requires_grad_(t.requires_grad)


def in_layout(sample: Any, layout: str) -> Any:
    return pytree.tree_map(lambda t: relay(t, layout) if type(t) is torch.Tensor else t, sample)


def spread(items: list[Any], count: int) -> list[Any]:
    """`count` of the items, evenly over the list, the first and the last among them."""
    if len(items) <= count:
        return items
    if count == 1:
        return items[:1]
    return [items[round(k * (len(items) - 1) / (count - 1))] for k in range(count)]


def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def describe(tree: Any) -> str:
    """Short text of arguments."""
    def one(t: Any) -> Any:
        return f"{str(t.dtype)[6:]}{list(t.shape)}" if isinstance(t, torch.Tensor) else t

    return repr(pytree.tree_map(one, tree))[:200]


def in_place(op: Callable[..., Any]) -> Callable[..., Any]:
    """The in-place variant on a copy of its first argument, so that it may be given a leaf."""
    def call(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return op(x.clone(), *args, **kwargs)

    return call


def with_out(op: Callable[..., Any], results: list[torch.Tensor]) -> Callable[..., Any]:
    """The call with `out=` tensors made inside, alike the results; the last dimension is strided where that fits."""
    metas = [(tuple(r.shape), r.dtype) for r in results]

    def call(*args: Any, **kwargs: Any) -> Any:
        out = []
        wide = any(t.dtype is torch.float64 for t in tensors_of((args, kwargs)))
        for shape, dtype in metas:
            if wide and dtype in (torch.float16, torch.bfloat16):  # the same call in float64, as the measure
                dtype = torch.float64
            if shape:
                out.append(torch.zeros((*shape[:-1], 2 * shape[-1]), dtype=dtype)[..., ::2])
            else:
                out.append(torch.zeros(shape, dtype=dtype))
        return op(*args, **kwargs, out=out[0] if len(out) == 1 else tuple(out))

    return call


def variant_of(info: Any, sample: Any, variant: str) -> Callable[..., Any] | None:
    """The callable of a variant for one sample, or None where the operator has none."""
    if variant == "function":
        return info.op
    if variant == "method":
        return info.method_variant
    if variant == "inplace":
        op = info.inplace_variant
        return in_place(op) if op is not None and isinstance(sample[0], torch.Tensor) else None
    if not info.supports_out or "out" in sample[2]:
        return None
    x, args, kwargs = copy_tree(sample)
    try:
        with torch.no_grad():
            results = info.op(x, *args, **kwargs)
    except Exception:
        return None
    if not isinstance(results, (torch.Tensor, tuple, list)):
        return None
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    if not results or not all(isinstance(r, torch.Tensor) for r in results):
        return None
    return with_out(info.op, results)


def cases_of(
    info: Any, dtypes: list[torch.dtype], layouts: list[str], per_op: int, variant: str = "function"
) -> Iterator[Case]:
    """The calls of one OpInfo."""
    supported = info.supported_dtypes("cpu")
    for number, dtype in enumerate(dtypes):
        if dtype not in supported:
            continue
        differentiable = dtype.is_floating_point or dtype.is_complex
        backward = differentiable and dtype in info.supported_backward_dtypes("cpu") and variant != "out"
        torch.manual_seed(0)
        try:
            samples = list(info.sample_inputs("cpu", dtype, requires_grad=backward))
        except Exception:
            continue
        for k, s in enumerate(spread(samples, per_op)):
            layout = layouts[(k + number) % len(layouts)]
            if any(t.layout is not torch.strided for t in tensors_of((s.input, s.args, s.kwargs))):
                continue
            sample = in_layout((s.input, tuple(s.args), dict(s.kwargs)), layout)
            call = variant_of(info, sample, variant)
            if call is not None:
                yield Case(info.name, call, sample, f"{str(dtype)[6:]} {layout} {describe(sample)}")


def error_cases(info: Any) -> Iterator[Case]:
    """Calls that eager rejects."""
    if info.error_inputs_func is None:
        return
    for bad in info.error_inputs("cpu"):
        s = bad.sample_input
        sample = (s.input, tuple(s.args), dict(s.kwargs))
        yield Case(info.name, info.op, sample, f"error {describe(sample)}")


def module_cases(info: Any, dtypes: list[torch.dtype], per_op: int) -> Iterator[Case]:
    """The calls of one ModuleInfo; the module itself is an argument, its parameters are leaves."""
    for dtype in dtypes:
        if dtype not in info.dtypes or not dtype.is_floating_point:
            continue
        for training in (True, False):
            torch.manual_seed(0)
            try:
                inputs = list(info.module_inputs_func(info, "cpu", dtype, True, training))
            except Exception:
                continue
            for m in spread([m for m in inputs if m.forward_input is not None], per_op):
                torch.manual_seed(0)
                made = info.module_cls(*m.constructor_input.args, **m.constructor_input.kwargs)
                module = made.to(dtype).train(training)
                args, kwargs = tuple(m.forward_input.args), dict(m.forward_input.kwargs)
                made_with = describe((m.constructor_input.args, m.constructor_input.kwargs))
                label = f"{str(dtype)[6:]} {'train' if training else 'eval'} {made_with} {describe((args, kwargs))}"
                yield ModuleCase(info.name, module, (None, args, kwargs), label)


def module_error_cases(info: Any) -> Iterator[Case]:
    """Constructions and calls of one ModuleInfo that eager rejects, in training mode and not."""
    from torch.testing._internal.common_modules import ModuleErrorEnum

    if info.module_error_inputs_func is None:
        return
    for training in (True, False):
        torch.manual_seed(0)
        for bad in info.module_error_inputs_func(info, "cpu", torch.float32, False, training):
            made = bad.module_error_input.constructor_input
            label = f"error {'train' if training else 'eval'} {describe((made.args, made.kwargs))}"
            if bad.error_on is ModuleErrorEnum.CONSTRUCTION_ERROR:
                yield Case(info.name, construct, (info.module_cls, tuple(made.args), dict(made.kwargs)), label)
                continue
            module = info.module_cls(*made.args, **made.kwargs).train(training)
            given = bad.module_error_input.forward_input
            args, kwargs = tuple(given.args), dict(given.kwargs)
            yield ModuleCase(info.name, module, (None, args, kwargs), f"{label} {describe((args, kwargs))}")


def construct(kind: Any, *args: Any, **kwargs: Any) -> Any:
    return kind(*args, **kwargs).weight.sum()
