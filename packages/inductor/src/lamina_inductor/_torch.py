"""Every private torch name that this package uses, one line each saying what for."""

from __future__ import annotations

import torch

below_autograd = torch._C._AutoDispatchBelowAutograd  # guard: kernels run without autograd and without view tracking
if torch.backends.cuda.is_built():
    is_capturing = torch._C._cuda_isCurrentStreamCapturing  # the public function has a slow Python layer
else:
    is_capturing = bool
use_count = torch._C._storage_Use_Count  # owners of a storage, given its address


def has_onednn() -> bool:
    """Whether this build of torch has oneDNN (``mkldnn::`` operators)."""
    return bool(torch._C._has_mkldnn)
