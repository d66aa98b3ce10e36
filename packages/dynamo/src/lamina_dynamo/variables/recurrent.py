"""``flatten_parameters`` of recurrent modules: it packs weights into one piece of memory for cuDNN, which no program
sees but by their addresses. Done while translating, so that the region needs no break for the addresses that it reads.
"""

from __future__ import annotations

from typing import Any

import torch

from .base import VariableTracker

FLATTEN = torch.nn.RNNBase.flatten_parameters


def is_packed_by_cudnn(weight: torch.Tensor) -> bool:
    """Does the function do anything to it?"""
    return weight.is_cuda


def flatten_now(tx: Any, module: VariableTracker) -> VariableTracker | None:
    """None: follow the function, which does nothing to weights on a CPU."""
    from .module import ModuleVariable

    module = module.realize()
    if type(module) is not ModuleVariable or module.source is None or tx.output.side_effects.is_modified(module):
        return None
    weights = [w for w in getattr(module.value, "_flat_weights", ()) if isinstance(w, torch.Tensor)]
    if not any(map(is_packed_by_cudnn, weights)):
        return None
    FLATTEN(module.value)
    return tx.const(None)  # type: ignore[no-any-return]
