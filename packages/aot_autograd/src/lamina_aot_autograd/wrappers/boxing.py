"""Calling conventions: a boxed callable takes one list and may clear it; a plain one takes positional arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx

from .._torch import DisableAutocast, below_autograd, no_view_tracking


def is_boxed(call: Any) -> bool:
    """True when `call` takes one list."""
    return bool(getattr(call, "_boxed_call", False))


def make_boxed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A boxed callable from a positional one."""
    if not callable(function):
        raise TypeError(f"make_boxed takes a callable, not {type(function).__name__}")

    def boxed(args: list[Any]) -> Any:
        values = tuple(args)
        args.clear()
        return function(*values)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    boxed.unboxed = function  # type: ignore[attr-defined]
    return boxed


def positional(call: Callable[..., Any]) -> Callable[..., Any]:
    """A positional callable from whatever a compiler returned, by the shortest way."""
    direct = getattr(call, "unboxed", None)
    if direct is not None:
        while (inner := getattr(direct, "unboxed", None)) is not None:
            direct = inner
        return direct
    if is_boxed(call):
        return lambda *args: call(list(args))
    return call


def run_eagerly(gm: fx.GraphModule, example_inputs: Any = None) -> Callable[..., Any]:
    """The compiler that compiles nothing: runs the graph's ops one by one, below autograd.

    Views made by it are plain tensors to autograd, as the results of a compiled kernel are.
    """
    if not hasattr(gm, "forward"):
        raise TypeError(f"run_eagerly takes a torch.fx.GraphModule, not {type(gm).__name__}")
    forward = gm.forward

    def run(*args: Any) -> Any:
        nonlocal forward
        with below_autograd(), no_view_tracking(), DisableAutocast():
            result = forward(*args)
        forward = gm.forward
        return result

    return make_boxed(run)


run_eagerly.keeps_contract = True  # type: ignore[attr-defined]


def without_autocast(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` with autocast off: the casts of a traced graph are written out in it."""

    def run(*args: Any) -> Any:
        with DisableAutocast():
            return call(*args)

    return run


def check_flat(outputs: Any) -> tuple[Any, ...]:
    """A compiler's result as a tuple; a single tensor counts as one result."""
    if isinstance(outputs, torch.Tensor):
        return (outputs,)
    return tuple(outputs)
