"""What a backend's callable returns, held to the contract: one flat tuple or list, a value for each result of the
graph, tensors where the graph has tensors.

The bytecode around a graph takes the results apart; a tensor in place of a tuple would silently be taken apart along
its first dimension. Backends of this project keep the contract and are not looked at (attribute ``keeps_contract``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import torch
import torch.fx

from .errors import BackendResultError

__all__ = ["check_callable", "checked"]

_EXPECTED = "a tuple or list with one value for each result of the graph, (out,) for a single one"


def check_callable(fn: Any, name: str, code: CodeType) -> None:
    """Raises BackendResultError unless what a backend returned can be called."""
    if not callable(fn):
        raise BackendResultError(
            name,
            f"returned {_described(fn)} for a graph; expected a callable that runs it",
            user_line=_line(code),
            hint="return gm.forward, or a function of the graph's inputs",
        )


def checked(fn: Callable[..., Any], name: str, nodes: Sequence[torch.fx.Node], code: CodeType) -> Callable[..., Any]:
    """``fn``, whose results are compared with what the graph's output nodes promise: their number, and tensor or not.
    Raises BackendResultError before the program sees any of them."""
    if not nodes:
        return fn
    tensors = tuple(isinstance(n.meta.get("val"), torch.Tensor) for n in nodes)
    names = tuple(n.name for n in nodes)
    count, line = len(nodes), _line(code)

    def run(*args: Any) -> Any:
        results = fn(*args)
        if not isinstance(results, (tuple, list)):
            raise BackendResultError(
                name, f"returned {_described(results)} from a call of its graph; expected {_EXPECTED}", user_line=line
            )
        if len(results) != count:
            raise BackendResultError(
                name, f"returned {len(results)} results from a call of its graph; expected {count}: {', '.join(names)}",
                user_line=line,
            )
        for k, (result, wanted) in enumerate(zip(results, tensors, strict=True)):
            if wanted and not isinstance(result, torch.Tensor):
                raise BackendResultError(
                    name, f"returned {_described(result)} as result {k} of its graph; expected a tensor",
                    node=names[k], user_line=line,
                )
        return results

    return run


def _described(value: Any) -> str:
    """A value in a message, without its data."""
    if value is None:
        return "None"
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, (bool, int, float)):
        return f"the {kind} {value!r}"
    if isinstance(value, (tuple, list)):
        return f"a {kind} of {len(value)}"
    return f"an object of class {kind}"


def _line(code: CodeType) -> str:
    return f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"
