"""``AveragedModel.update_parameters``: how often it was called is a tensor, of which it asks only whether it is 0."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel

from ..source import PythonSource
from .base import VariableTracker
from .function import UserFunctionVariable
from .tensor import TensorVariable
from .torch_api import handles


def sign(count: torch.Tensor) -> int:
    """-1, 0 or 1; for guards."""
    value = count.item()
    return (value > 0) - (value < 0)


@handles(AveragedModel.update_parameters)
def _update(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    if args and args[0].has_attr(tx, "n_averaged"):
        _note_count(tx, args[0].get_attr(tx, "n_averaged").realize())
    return tx.inline(UserFunctionVariable(AveragedModel.update_parameters, None), args, kwargs)  # type: ignore[no-any-return]


def _note_count(tx: Any, count: VariableTracker) -> None:
    """Guards the sign of the count, and tells its fake whether it is 0."""
    if not isinstance(count, TensorVariable) or count.source is None or count.real is None:
        return
    if count.fake.dim() or count.fake._version or count.real.device.type != "cpu" or count.fake.is_inference():
        return
    known = sign(count.real)
    tx.output.guard(PythonSource(count.source, sign), "CONSTANT", known)
    if known >= 0:
        count.fake.zero = (known == 0, count.fake._version)
