"""Small real models that the end-to-end tests share: name -> builder of (module, arguments)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)) + x)


class Attention(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = (t.reshape(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, w))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 6)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], 6)
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
        return h


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, ids):
        logits = self.head(self.table(ids))
        return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(5))

    def forward(self, x):
        mask = x > 0
        y = torch.where(mask, x * self.scale, x.exp() - 1)
        return {"y": y, "count": mask.sum(), "top": y.amax(-1)}


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), (torch.randn(5, 8),)


PROGRAMS = {
    "mlp": mlp,
    "residual": lambda: (nn.Sequential(Residual(), Residual(), nn.AdaptiveAvgPool2d(1)), (torch.randn(2, 8, 6, 6),)),
    "attention": lambda: (nn.Sequential(Attention(), Attention()), (torch.randn(2, 5, 16),)),
    "recurrent": lambda: (Recurrent(), (torch.randn(3, 4, 4),)),
    "embedded": lambda: (Embedded(), (torch.randint(0, 20, (3, 6)),)),
    "masked": lambda: (Masked(), (torch.randn(4, 5),)),
}
