"""``torch.nn.attention.flex_attention``: its operator written out, so that score and mask functions are in the graph.

torch's function checks its arguments and then calls one operator that takes the functions themselves. The checks are
followed like any other code; the operator becomes what it stands for (`polyfills.flexible_attention`), with the
functions mapped over all positions. A later stage may make one kernel of it again.
"""

from __future__ import annotations

from typing import Any

import torch

from .._torch import OTHER_COMPILERS
from .base import VariableTracker
from .builder import wraps_if
from .torch_api import HANDLERS, NAMED_HANDLERS, TorchFunctionVariable

_OPERATOR = "torch._higher_order_ops.flex_attention.FlexAttentionHOP"


def _is_operator(value: Any) -> bool:
    return f"{type(value).__module__}.{type(value).__qualname__}" == _OPERATOR


@wraps_if(_is_operator, priority=20)
def _wrap_operator(tx: Any, value: Any, source: Any) -> VariableTracker:
    HANDLERS[value] = _attend
    if source is not None:
        tx.output.guard(source, "ID", value)
    return TorchFunctionVariable(value, source)


def _attend(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    from ..translator import polyfills
    from .function import UserFunctionVariable

    before, tx.output.looks_up = tx.output.looks_up, True
    try:
        return tx.inline(UserFunctionVariable(polyfills.flexible_attention, None), args, kwargs)
    finally:
        tx.output.looks_up = before


def look_up(tx: Any, source: VariableTracker, key: VariableTracker) -> VariableTracker | None:
    """``source[key]`` in a score or mask function, whose positions are tensors without dimensions: they are read as
    tensors, where indexing would ask for their numbers. None where the key is another one."""
    from .container import ListVariable, TupleVariable
    from .tensor import TensorVariable

    places = [k.realize() for k in getattr(key, "items", None) or [key]]
    if not all(isinstance(p, TensorVariable) and p.fake.dtype is not torch.bool for p in places):
        return None
    if not isinstance(key, (TensorVariable, TupleVariable, ListVariable)):
        return None
    index = torch.ops.aten.index.Tensor
    return tx.output.create_call("call_function", index, [source, ListVariable(places)])


class UnloadedCompilerVariable(VariableTracker):
    """torch's own compiler where nobody has loaded it: marks are made without."""

    __slots__ = ("module",)

    def __init__(self, module: VariableTracker):
        self.source = None
        self.module = module

    def describe(self) -> str:
        return "torch's own compiler"

    def truth(self, tx: Any) -> bool:
        return True

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "mark_static":
            return TorchFunctionVariable(_mark)
        loaded = self.module.get_unknown(tx, OTHER_COMPILERS[0].rpartition(".")[2])  # type: ignore[attr-defined]
        return loaded.get_attr(tx, name)  # type: ignore[no-any-return]


def _mark(*args: Any) -> None:
    """Stands for a mark of the other compiler."""


def _ignore(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    return tx.const(None)


# A mark for torch's own compiler, made while a function is translated, says nothing to this one.
NAMED_HANDLERS[f"{OTHER_COMPILERS[0]}.decorators.mark_static"] = HANDLERS[_mark] = _ignore


__all__ = ["UnloadedCompilerVariable", "look_up"]
