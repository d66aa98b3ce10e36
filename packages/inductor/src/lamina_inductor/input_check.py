"""Check of the inputs of a compiled graph.

Generated code trusts dtype, sizes and strides: a tensor that differs would be read out of bounds.

Behind guards (`lamina.compile`) the check is off; whoever calls a compiled graph directly has it on (config field
``check_inputs``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .errors import InputError
from .index import evaluate
from .ir.program import GraphProgram


class CheckedGraph:
    """A compiled program that looks at its inputs first. Raises InputError naming the first that does not fit."""

    def __init__(self, run: Callable[..., Sequence[Any]], program: GraphProgram) -> None:
        self.run = run
        self.count = program.input_count
        self.sizes = list(program.sizes)
        self.tensors = [(d.index, d.layout) for d in program.buffers.values() if d.kind == "input"]
        self.fixed = not self.sizes
        self.expected = [
            (k, a.dtype, a.device, tuple(map(int, a.shape)), tuple(map(int, a.stride)))
            for k, a in (self.tensors if self.fixed else ())
        ]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.run, name)

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        self.check(inputs)
        return self.run(*inputs)

    unboxed = __call__

    def boxed(self, inputs: list[Any]) -> list[Any]:
        """The same, taking the items out of one list."""
        if not isinstance(inputs, list):
            raise TypeError(f"a boxed compiled graph takes one list of inputs, not {type(inputs).__name__}")
        self.check(inputs)
        boxed = getattr(self.run, "boxed", None)
        if boxed is not None:
            return boxed(inputs)
        args = tuple(inputs)
        inputs.clear()
        return list(self.run(*args))

    def check(self, inputs: Sequence[Any]) -> None:
        """Raises InputError unless `inputs` are what the program was compiled for."""
        if len(inputs) != self.count:
            raise InputError(f"{len(inputs)} inputs, the graph takes {self.count}")
        for k, _ in self.tensors:
            if not isinstance(inputs[k], torch.Tensor):
                raise InputError(f"input {k} is {type(inputs[k]).__name__}, the graph takes a tensor")
        for k, dtype, device, shape, stride in self.expected if self.fixed else self._wanted(inputs):
            t = inputs[k]
            if t.dtype is not dtype or t.device != device or t.shape != shape:
                raise InputError(
                    f"input {k} is {_text(t.dtype, t.shape, t.stride(), t.device)},"
                    f" the graph was compiled for {_text(dtype, shape, stride, device)}",
                    hint="compile the graph again for these inputs",
                )
            if t.stride() != stride and 0 not in shape:
                for n, have, want in zip(shape, t.stride(), stride, strict=True):
                    if n != 1 and have != want:
                        raise InputError(
                            f"input {k} has strides {tuple(t.stride())}, the graph was compiled for {stride}",
                            hint="pass it in that layout, or compile the graph again for these inputs",
                        )

    def _wanted(self, inputs: Sequence[Any]) -> list[tuple[int, Any, Any, tuple[int, ...], tuple[int, ...]]]:
        """What the tensors must be, given the values that the size symbols take in these inputs."""
        env: dict[str, int] = {}
        for symbol, k, what, dim in self.sizes:
            given = inputs[k]
            if what == "int":
                if type(given) is not int:
                    raise InputError(f"input {k} is {type(given).__name__}, the graph takes an int")
                env[symbol] = given
            elif not isinstance(given, torch.Tensor) or dim >= given.dim():
                raise InputError(f"input {k} has no dimension {dim}")
            else:
                env[symbol] = given.shape[dim] if what == "size" else given.stride(dim)
        return [
            (k, a.dtype, a.device, tuple(evaluate(e, env) for e in a.shape), tuple(evaluate(e, env) for e in a.stride))
            for k, a in self.tensors
        ]


def _text(dtype: torch.dtype, shape: Sequence[int], stride: Sequence[int], device: torch.device) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)} with strides {tuple(stride)} on {device}"
