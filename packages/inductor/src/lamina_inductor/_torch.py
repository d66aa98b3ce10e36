"""Every private torch name that this package uses, one line each saying what for."""

from __future__ import annotations

import torch

below_autograd = torch._C._AutoDispatchBelowAutograd  # guard: kernels run without autograd and without view tracking
_stream_is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", bool)  # the public one has a slow layer
use_count = torch._C._storage_Use_Count  # owners of a storage, given its address


def is_capturing() -> bool:
    """Whether the current CUDA stream is being recorded; False where this process has not touched a device (asking
    would need one)."""
    return torch.cuda.is_initialized() and _stream_is_capturing()


def philox_offset(device: torch.device) -> int:
    """How far a CUDA device's default generator has come (0 for other devices): it moves when random numbers are drawn,
    by a replayed recording, too."""
    if device.type != "cuda":
        return 0
    return torch.cuda.default_generators[device.index or 0].get_offset()


def has_onednn() -> bool:
    """Whether this build of torch has oneDNN (``mkldnn::`` operators)."""
    return bool(torch._C._has_mkldnn)
