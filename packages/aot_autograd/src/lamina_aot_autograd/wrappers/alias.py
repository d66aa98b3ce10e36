"""Outputs that share memory with inputs or with each other, made again on real tensors so that autograd knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..schemas import SlotRef, ViewRecipe


def compile_recipe(recipe: tuple[ViewRecipe, ...], first_value: int = 0) -> Callable[..., torch.Tensor]:
    """One function `(tensor, graph outputs) -> view` for a chain of views, each recorded by autograd as in the program.

    first_value: position of the first user value among the graph's outputs; symbolic numbers count from there.
    """
    steps = [(r.func, r.args, r.kwargs, r.index, r.grad_mode) for r in recipe]
    symbolic = any(has_slot(r.args) for r in recipe)

    def replay(tensor: torch.Tensor, outs: Any) -> torch.Tensor:
        enabled = torch.is_grad_enabled()
        try:
            for func, args, kwargs, index, grad_mode in steps:
                torch._C._set_grad_enabled(grad_mode)
                if symbolic:
                    args = fill_slots(args, outs, first_value)
                tensor = func(tensor, *args, **kwargs)
                if index >= 0:
                    tensor = tensor[index]
        finally:
            torch._C._set_grad_enabled(enabled)
        return tensor

    return replay


def has_slot(value: Any) -> bool:
    """True when a symbolic number is in the arguments."""
    if isinstance(value, (list, tuple)):
        return any(has_slot(v) for v in value)
    return isinstance(value, SlotRef)


def fill_slots(value: Any, outs: Any, first_value: int) -> Any:
    """The arguments with the actual numbers in place."""
    if isinstance(value, SlotRef):
        return outs[first_value + value.slot]
    if isinstance(value, (list, tuple)):
        return type(value)([fill_slots(v, outs, first_value) for v in value])
    return value


def describe(recipe: tuple[ViewRecipe, ...]) -> str:
    """The chain as text, for generated code's comments."""
    names = [getattr(r.func, "_schema", None) for r in recipe]
    return (
        "".join(f".{s.name.split('::')[-1]}{r.args}" if s else ".data" for s, r in zip(names, recipe, strict=True))
        or "(itself)"
    )
