"""Outputs that share memory with inputs or with each other, made again on real tensors so that autograd knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..schemas import ViewRecipe


def compile_recipe(recipe: tuple[ViewRecipe, ...]) -> Callable[[torch.Tensor], torch.Tensor]:
    """One function for a chain of views. Each view is recorded by autograd as it was in the program."""
    steps = [(r.func, r.args, r.kwargs, r.index, r.grad_mode) for r in recipe]

    def replay(tensor: torch.Tensor) -> torch.Tensor:
        enabled = torch.is_grad_enabled()
        try:
            for func, args, kwargs, index, grad_mode in steps:
                torch._C._set_grad_enabled(grad_mode)
                tensor = func(tensor, *args, **kwargs)
                if index >= 0:
                    tensor = tensor[index]
        finally:
            torch._C._set_grad_enabled(enabled)
        return tensor

    return replay


def describe(recipe: tuple[ViewRecipe, ...]) -> str:
    """The chain as text, for generated code's comments."""
    return "".join(f".{r.func._schema.name.split('::')[-1]}{r.args}" for r in recipe) or "(itself)"


