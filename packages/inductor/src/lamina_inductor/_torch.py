"""Every private torch name that this package uses, one line each saying what for."""

from __future__ import annotations

import torch

below_autograd = torch._C._AutoDispatchBelowAutograd  # guard: kernels run without autograd and without view tracking


def storage_use_count(storage: torch.UntypedStorage) -> int:
    """How many owners a storage has: tells whether results of a CUDA graph are still held by someone."""
    return torch._C._storage_Use_Count(storage._cdata)


def has_onednn() -> bool:
    """Whether this build of torch has oneDNN (``mkldnn::`` operators)."""
    return bool(torch._C._has_mkldnn)
