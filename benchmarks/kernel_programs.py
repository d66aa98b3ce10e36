"""Programs that the kernel benchmarks of CPU and GPU share, and the bytes of tensors."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def size(*tensors: torch.Tensor) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def chain(x, y):
    return torch.sigmoid(F.gelu(x) * torch.tanh(y) + x * 1.5) * y


def add_norm(x, y, w, b):
    return F.layer_norm(x + y, (x.shape[-1],), w, b)
