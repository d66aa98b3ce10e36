"""``x[i, :n] = 0`` where the bound ``n`` is a tensor: eager reads its value, the graph fills under a mask.

Only what a mask can say: an assignment of one number, by an index of plain numbers, ``None``, ``...`` and slices of
step one. The sizes involved are then those of ``x`` alone; anything else reads the bound and breaks the graph.
"""

from __future__ import annotations

from typing import Any

import torch

from ..fake import known_scalar
from .base import VariableTracker
from .constant import ConstantVariable
from .container import TupleVariable
from .slices import SliceVariable

_RANK = {bool: 0, int: 1, float: 2}


def fill_between_tensors(tx: Any, target: Any, key: VariableTracker, value: VariableTracker) -> bool:
    """Records ``target[key] = value`` if the key has slices bounded by tensors and a mask does it; else says False."""
    parts = [part.realize() for part in (key.items if isinstance(key, TupleVariable) else [key])]
    if not any(isinstance(part, SliceVariable) and _is_bounded(part) for part in parts):
        return False
    if not _is_fill(target.fake, value):
        return False
    view: list[VariableTracker] = []
    bounds: list[VariableTracker] = []
    kept = sum(isinstance(p, SliceVariable) or _is_constant(p, None) for p in parts)
    dim = 0  # of target[key]; counted from the end after an ellipsis
    for part in parts:
        if _is_constant(part, ...):
            dim -= kept
        elif isinstance(part, SliceVariable):
            if _is_bounded(part):
                start, stop, step = (p.realize() for p in part.items)
                if not (_is_constant(step, None) or _is_constant(step, 1)):
                    return False
                if not (_is_bound(start) and _is_bound(stop)):
                    return False
                bounds.append(TupleVariable([tx.const(dim), start, stop]))
                none = tx.const(None)
                part = SliceVariable([none, none, none])
            dim += 1
        elif _is_constant(part, None):
            dim += 1
        elif not _is_integer(part):
            return False
        view.append(part)
    from ..translator.polyfills import fill_between

    tx.inline_real(fill_between, target, TupleVariable(view), TupleVariable(bounds), value)
    return True


def _is_constant(part: VariableTracker, value: Any) -> bool:
    return isinstance(part, ConstantVariable) and type(part.value) is type(value) and part.value == value


def _is_integer(part: VariableTracker) -> bool:
    if isinstance(part, ConstantVariable):
        return type(part.value) is int
    return bool(getattr(part, "is_symbolic_number", False)) and part.python_type() is int


def _is_tensor_bound(part: VariableTracker) -> bool:
    from .tensor import TensorVariable

    if not isinstance(part, TensorVariable):
        return False
    dtype, shape = part.fake.dtype, part.fake.shape
    if known_scalar(part.fake) is not None:
        return False
    whole = not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
    return whole and all(type(n) is int and n == 1 for n in shape)


def _is_bounded(part: Any) -> bool:
    return any(_is_tensor_bound(p.realize()) for p in part.items[:2])


def _is_bound(part: VariableTracker) -> bool:
    return _is_constant(part, None) or _is_integer(part) or _is_tensor_bound(part)


def _is_fill(target: torch.Tensor, value: VariableTracker) -> bool:
    """Whether a masked fill with ``value`` converts it as the assignment does."""
    from .tensor import TensorVariable

    if target.dtype.is_complex:
        return False
    if isinstance(value, TensorVariable):
        fake = value.fake
        return fake.dim() == 0 and fake.dtype is target.dtype and fake.device == target.device
    if not isinstance(value, ConstantVariable) or type(value.value) not in _RANK:
        return False
    kind = float if target.dtype.is_floating_point else bool if target.dtype is torch.bool else int
    return _RANK[type(value.value)] <= _RANK[kind]
