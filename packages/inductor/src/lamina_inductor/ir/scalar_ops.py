"""What printed programs run on: `Ops` gives every call of a printed kernel and program its meaning, one scalar at a
time and with plain torch, so that a dumped file can be read, changed and run.

Values are 0-dimensional tensors, indices are Python ints, buffers are flat tensors. Slow by design; the functions are
those of the reference target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..codegen.reference import ERRORS, FUNCTIONS, flat_view, reduce_values, scan_values
from ..errors import TargetError

EXAMPLE_SIZE = 5
"""What `main` takes for a size that only a call knows."""


class Accumulator:
    """What a reduction or a scan has seen so far. As an operand it is its result (the first of several)."""

    def __init__(self, kind: str, dtype: torch.dtype) -> None:
        self.kind, self.dtype = kind, dtype
        self.values: list[torch.Tensor] = []
        self.index: list[torch.Tensor] = []
        self.scans = False

    def results(self) -> tuple[torch.Tensor, ...]:
        """All results, each without dimensions."""
        n = len(self.values)
        value = torch.stack(self.values) if n else torch.empty(0, dtype=self.dtype)
        index = torch.stack(self.index) if self.index else torch.empty(0, dtype=torch.int64) if n == 0 else None
        if self.scans:
            found = scan_values(value, self.kind, index, 0, [n])
            found = tuple(f[-1] for f in found) if isinstance(found, tuple) else (found[-1],)
        else:
            found = reduce_values(value, self.kind, index, self.dtype, 0, [n])
            found = found if isinstance(found, tuple) else (found,)
        return tuple(f.reshape(()) for f in found)


def _dtype(name: str) -> torch.dtype:
    return getattr(torch, name)


def _value(x: Any) -> Any:
    return x.results()[0] if isinstance(x, Accumulator) else x


class Ops:
    """The calls of printed code. Every row of `lamina_inductor.ops.TABLE` is a method: operands, then the dtype."""

    def __getattr__(self, name: str) -> Callable[..., torch.Tensor]:
        function = FUNCTIONS.get(name)
        if function is None:
            raise AttributeError(name)
        return lambda *args: function(*map(_value, args[:-1])).to(_dtype(args[-1]))

    # kernels

    def constant(self, value: Any, dtype: str) -> torch.Tensor:
        """A number."""
        return torch.tensor(value, dtype=_dtype(dtype))

    def index_expr(self, value: int, dtype: str) -> torch.Tensor:
        """The value of an index."""
        return torch.tensor(value, dtype=_dtype(dtype))

    def load(self, buffer: torch.Tensor, index: int, mask: Any, dtype: str) -> torch.Tensor:
        """The element at `index`; 0 where `mask` is false, without touching memory."""
        if mask is not None and not bool(_value(mask)):
            return torch.zeros((), dtype=_dtype(dtype))
        return buffer[index].to("cpu", _dtype(dtype))

    def store(self, buffer: torch.Tensor, index: int, value: Any, mode: str | None, mask: Any) -> None:
        """Write an element, or combine it with what stands there."""
        if mask is not None and not bool(_value(mask)):
            return
        new = _value(value).to(buffer.device, buffer.dtype)
        if mode is not None:
            combine = {"add": torch.add, "mul": torch.mul, "max": torch.maximum, "min": torch.minimum}[mode]
            new = combine(buffer[index], new)
        buffer[index] = new

    def indirect(self, value: Any) -> int:
        """A computed value as an index."""
        return int(_value(value))

    def check(self, condition: Any, message: str, kind: str, mask: Any, dtype: str) -> None:
        """Raise unless the condition holds."""
        if (mask is None or bool(_value(mask))) and not bool(_value(condition)):
            raise ERRORS.get(kind, RuntimeError)(message)

    def to_dtype(self, x: Any, dtype: str) -> torch.Tensor:
        """Conversion."""
        return _value(x).to(_dtype(dtype))

    def round_to(self, x: Any, narrow: str, dtype: str) -> torch.Tensor:
        """A float32 rounded to the values of a narrow dtype."""
        return _value(x).to(_dtype(narrow)).to(_dtype(dtype))

    def bitcast(self, x: Any, dtype: str) -> torch.Tensor:
        """The same bits as another dtype."""
        return _value(x).view(_dtype(dtype))

    def scratch(self, numel: int, dtype: str) -> torch.Tensor:
        """Memory of one outer iteration."""
        return torch.zeros(numel, dtype=_dtype(dtype))

    def accumulator(self, kind: str, dtype: str) -> Accumulator:
        """What a reduction or a scan starts from."""
        return Accumulator(kind, _dtype(dtype))

    def reduction(self, into: Accumulator, value: Any, index: Any, dtype: str) -> Accumulator:
        """Take one value in."""
        into.values.append(_value(value))
        if index is not None:
            into.index.append(_value(index))
        return into

    def scan(self, into: Accumulator, value: Any, index: Any, dtype: str) -> Accumulator:
        """Take one value in; the result is that of all so far."""
        into.scans = True
        return self.reduction(into, value, index, dtype)

    def item(self, x: Accumulator, k: int, dtype: str) -> torch.Tensor:
        """Result `k` of several."""
        return x.results()[k].to(_dtype(dtype))

    # programs

    def empty(self, shape: Sequence[int], stride: Sequence[int], offset: int, dtype: str, device: str) -> torch.Tensor:
        """A buffer with memory of its own."""
        last = offset + sum((n - 1) * s for n, s in zip(shape, stride)) + 1 if 0 not in shape else offset
        return torch.empty(last, dtype=_dtype(dtype), device=device).as_strided(shape, stride, offset)

    def at(self, memory: torch.Tensor, shape: Sequence[int], stride: Sequence[int], offset: int, dtype: str):
        """Other sizes over the memory of a buffer; `offset` counts elements of `dtype` from the buffer's first one."""
        wanted = _dtype(dtype)
        start = memory.storage_offset() * memory.dtype.itemsize // wanted.itemsize + offset
        made = torch.empty(0, dtype=wanted, device=memory.device)
        return made.set_(memory.untyped_storage(), start, shape, stride)

    def take_over(self, old: torch.Tensor, shape: Sequence[int], stride: Sequence[int], offset: int, dtype: str):
        """A new buffer in the memory of a dead one, from its very beginning."""
        made = torch.empty(0, dtype=_dtype(dtype), device=old.device)
        return made.set_(old.untyped_storage(), offset, shape, stride)

    def flat(self, buffer: torch.Tensor, span: int) -> torch.Tensor:
        """The memory of a buffer, from its first element on."""
        return flat_view(buffer, span)

    def results(self, result: Any) -> list[Any]:
        """What an operator returned, lists in it flattened."""
        flat: list[Any] = []
        for r in result if isinstance(result, (tuple, list)) else (result,):
            flat.extend(r) if isinstance(r, (tuple, list)) else flat.append(r)
        return flat

    def laid_out(self, t: torch.Tensor, shape: Sequence[int], stride: Sequence[int], dtype: str) -> torch.Tensor:
        """A result of an operator in the layout that the program counts on."""
        if list(t.shape) != list(shape) or (list(t.stride()) == list(stride) and t.dtype == _dtype(dtype)):
            return t
        return torch.empty_strided(shape, stride, dtype=_dtype(dtype), device=t.device).copy_(t)

    def not_printed(self, what: str) -> Callable[..., Any]:
        """Stands for something that is no torch operator and has no text of its own."""

        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise TargetError(
                f"{what} is written by hand or belongs to the program that was compiled; this file cannot run it",
                hint="Replace the call by torch operators.",
            )

        return refuse


def example(shape: Sequence[int], stride: Sequence[int], dtype: str, device: str) -> torch.Tensor:
    """A tensor to run a printed program on: normal floats, small integers."""
    t = Ops().empty(shape, stride, 0, dtype, device)
    floating = t.dtype.is_floating_point or t.dtype.is_complex
    fill = torch.randn(t.shape) if floating else torch.randint(0, 2, t.shape)
    return t.copy_(fill.to(t.dtype))


def main(call: Callable[..., list[Any]], inputs: Sequence[Any], constants: Sequence[Any] = ()) -> list[Any]:
    """Run a printed program on random inputs and print its results. `inputs` and `constants`: one entry each, a tuple
    of the arguments of `example`, or a number."""
    torch.manual_seed(0)
    made = [[example(*e) if isinstance(e, tuple) else e for e in entries] for entries in (inputs, constants)]
    outputs = call(Ops(), *made)
    for k, out in enumerate(outputs):
        print(f"output {k}: {out}")
    return outputs


__all__ = ["EXAMPLE_SIZE", "Accumulator", "Ops", "example", "main"]
