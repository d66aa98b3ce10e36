"""Metadata of any overload by torch itself, on tensors of the meta device: the slow route where no rule of ours
exists.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from .spec import TensorMeta


def meta_by_torch(op: Any, args: tuple, kwargs: dict) -> Any:
    """Run ``op`` on meta tensors with the metadata of ``args``; returns TensorMeta, or a tuple of them. Raises what
    torch raises.
    """
    device = None

    def to_meta(x: Any) -> Any:
        nonlocal device
        if hasattr(x, "dtype") and hasattr(x, "stride"):
            device = device or x.device
            return torch.empty_strided(tuple(x.shape), tuple(x.stride()), dtype=x.dtype, device="meta")
        if isinstance(x, torch.device):
            device = device or x
            return torch.device("meta")
        return x

    args, kwargs = pytree.tree_map(to_meta, (args, kwargs))
    out = op(*args, **kwargs)

    def back(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return TensorMeta(tuple(x.shape), tuple(x.stride()), x.dtype, device or torch.device("cpu"))
        return x

    return tuple(back(x) for x in out) if isinstance(out, (tuple, list)) else back(out)
