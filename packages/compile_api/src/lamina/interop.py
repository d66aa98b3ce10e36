"""PyTorch's own stages in the place of ours, and ours in the place of theirs: the one module that may name them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from .errors import CompileError
from .pipeline import bind


def torch_dynamo_backend(gm: Any, example_inputs: Sequence[Any], **_options: Any) -> Callable[..., Any]:
    """`torch.compile(model, backend="lamina")`: PyTorch captures, lamina does everything after that.

    torch.compile hands over fake example inputs; their metadata is all that the stages read.
    """
    return bind("inductor")(gm, example_inputs)


def torch_inductor(gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """`lamina.compile(model, backend="torch_inductor")`: lamina captures, PyTorch's inductor compiles."""
    try:
        compile_fx = importlib.import_module("torch._inductor.compile_fx").compile_fx
    except ImportError as error:
        raise CompileError(f"PyTorch's inductor cannot be imported: {error}", stage="backend",
                           hint='use backend="inductor"') from error
    return compile_fx(gm, example_inputs)
