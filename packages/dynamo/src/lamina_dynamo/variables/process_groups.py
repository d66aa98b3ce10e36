"""Process groups of torch.distributed: their name, size and rank are fixed while they live, so collectives that are
given one become graph nodes that name it."""

from __future__ import annotations

from typing import Any

import torch.distributed

from .. import _torch as private
from ..graph_break import GraphBreak
from ..unknown_sizes import has_unknown
from .base import VariableTracker
from .builder import wraps_type
from .owner_method import OwnerMethodVariable
from .tensor import TensorVariable
from .torch_api import HANDLERS, NAMED_HANDLERS
from .user_object import OpaqueObjectVariable

_FIXED = ("group_name", "group_desc")
_ASKED = ("size", "rank", "name")


class ProcessGroupVariable(OpaqueObjectVariable):
    """A group that exists; it is guarded by identity."""

    __slots__ = ()

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name in _FIXED:
            return tx.const(str(getattr(self.value, name)))  # type: ignore[no-any-return]
        if name in _ASKED:
            return OwnerMethodVariable(self, name)
        return super().get_attr(tx, name)

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        if name in _ASKED and not args and not kwargs:
            return tx.const(getattr(self.value, name)())  # type: ignore[no-any-return]
        return super().call_method(tx, name, args, kwargs)


if torch.distributed.is_available():

    @wraps_type(torch.distributed.ProcessGroup)
    def wrap_process_group(tx: Any, value: Any, source: Any) -> VariableTracker:
        """See `ProcessGroupVariable`."""
        if source is not None:
            tx.output.guard(source, "ID", value)
        return ProcessGroupVariable(value, source)


def _has_unknown_sizes(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """What the collectives ask of a tensor before they cut it."""
    if len(args) != 1 or kwargs or not isinstance(args[0], TensorVariable):
        raise GraphBreak("torch_unsupported", function="has_free_unbacked_symbols")
    return tx.const(has_unknown(*args[0].fake.mk[0], *args[0].fake.mk[1]))  # type: ignore[no-any-return]


def _named_group(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """The group of that name; it is the one whose name was read, and that is guarded."""
    (name,) = args
    return ProcessGroupVariable(private.group_of_name(name.as_python_constant()), None)


if private.group_of_name is not None:
    HANDLERS[private.group_of_name] = _named_group
NAMED_HANDLERS["torch.fx.experimental.symbolic_shapes.has_free_unbacked_symbols"] = _has_unknown_sizes
