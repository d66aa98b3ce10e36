"""Recommendation, control and physics models of the TorchBench list, written here from the published architectures.

Every builder takes ``small`` and returns ``(module, args)``.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mlp(*widths: int, act=nn.ReLU, last=None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        layers.append(nn.Linear(a, b))
        if i < len(widths) - 2:
            layers.append(act())
        elif last is not None:
            layers.append(last())
    return nn.Sequential(*layers)


# --------------------------------------------------------------------------- DLRM (Naumov et al., 2019)
class DLRM(nn.Module):
    """Dense features through an MLP, sparse ones through embedding bags, pairwise dot products, a second MLP."""

    def __init__(self, tables: list[int], dim: int, bottom: list[int], top: list[int]):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.EmbeddingBag(n, dim, mode="sum") for n in tables)
        self.bottom = mlp(*bottom, dim, last=nn.ReLU)
        pairs = (len(tables) + 1) * len(tables) // 2
        self.top = mlp(dim + pairs, *top, 1, last=nn.Sigmoid)

    def forward(self, dense: Tensor, offsets: Tensor, *indices: Tensor) -> Tensor:
        x = self.bottom(dense)
        sparse = [bag(idx, offsets) for bag, idx in zip(self.embeddings, indices)]
        t = torch.stack([x, *sparse], dim=1)
        z = torch.bmm(t, t.transpose(1, 2))
        n = t.size(1)
        rows = torch.tensor([i for i in range(n) for j in range(i)], device=z.device)
        cols = torch.tensor([j for i in range(n) for j in range(i)], device=z.device)
        return self.top(torch.cat([x, z[:, rows, cols]], dim=1))


def dlrm(small: bool):
    tables, dim, bottom, top, n, bag = (
        ([50] * 3, 8, [6, 12], [16], 4, 2)
        if small
        else ([1_000_000] * 8, 64, [512, 512, 512], [1024, 1024, 1024], 2048, 100)
    )
    net = DLRM(tables, dim, bottom, top)
    offsets = torch.arange(0, n * bag, bag)
    return net, (torch.randn(n, bottom[0]), offsets, *[torch.randint(0, t, (n * bag,)) for t in tables])


# --------------------------------------------------------------------------- DeepRecommender (Kuchaiev and Ginsburg,
# 2017)
class AutoEncoder(nn.Module):
    def __init__(self, *widths: int, drop: float):
        super().__init__()
        self.encode = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        back = widths[::-1]
        self.decode = nn.ModuleList(nn.Linear(a, b) for a, b in zip(back, back[1:]))
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.encode:
            x = F.selu(layer(x))
        x = self.drop(x)
        for layer in self.decode:
            x = F.selu(layer(x))
        return x


def deeprecommender(small: bool):
    widths, n = ((60, 16, 16, 24), 4) if small else ((197951, 512, 512, 1024), 256)
    return AutoEncoder(*widths, drop=0.8), (torch.rand(n, widths[0]),)


# --------------------------------------------------------------------------- Lennard-Jones potential learned by a
# small net
class PairPotential(nn.Module):
    """Energy of a pair distance by an MLP (Schoenholz and Cubuk, 2020)."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.net = mlp(1, width, width, width, 1, act=nn.Tanh)

    def forward(self, r: Tensor) -> Tensor:
        return self.net(r)


def lennard_jones(small: bool):
    return PairPotential(), (torch.linspace(0.5, 2.0, 10 if small else 1000).unsqueeze(1),)


# --------------------------------------------------------------------------- soft actor-critic (Haarnoja et al., 2018)
class SoftActorCritic(nn.Module):
    """Squashed Gaussian policy and two critics; one call gives what the actor's loss needs."""

    def __init__(self, obs: int, act: int, width: int):
        super().__init__()
        self.actor = mlp(obs, width, width, 2 * act)
        self.critics = nn.ModuleList(mlp(obs + act, width, width, 1) for _ in range(2))
        self.targets = nn.ModuleList(mlp(obs + act, width, width, 1) for _ in range(2))
        self.log_alpha = nn.Parameter(torch.zeros(()))

    def forward(self, state: Tensor, noise: Tensor):
        mean, log_std = self.actor(state).chunk(2, dim=-1)
        log_std = -10.0 + 6.0 * (torch.tanh(log_std) + 1)
        raw = mean + log_std.exp() * noise
        action = torch.tanh(raw)
        log_prob = -0.5 * (noise**2 + 2 * log_std + math.log(2 * math.pi)) - 2 * (
            math.log(2) - raw - F.softplus(-2 * raw)
        )
        log_prob = log_prob.sum(-1, keepdim=True)
        pair = torch.cat((state, action), -1)
        q = torch.min(*[c(pair) for c in self.critics])
        with torch.no_grad():
            target = torch.min(*[c(pair) for c in self.targets])
        return self.log_alpha.exp() * log_prob - q, q - target, action


def soft_actor_critic(small: bool):
    obs, act, width, n = (3, 1, 16, 4) if small else (3, 1, 512, 256)
    return SoftActorCritic(obs, act, width), (torch.randn(n, obs), torch.randn(n, act))


# --------------------------------------------------------------------------- DrQ (Kostrikov et al., 2020)
class DrQ(nn.Module):
    """Random shifts of the image, a convolutional encoder, Gaussian actor and a double critic."""

    def __init__(self, channels: int, act: int, filters: int, feature: int, hidden: int, side: int):
        super().__init__()
        self.encoder = nn.Sequential(
            *[nn.Conv2d(channels if i == 0 else filters, filters, 3, 2 if i == 0 else 1) for i in range(4)]
        )
        out = (side - 3) // 2 + 1 - 6
        self.head = nn.Sequential(nn.Linear(filters * out * out, feature), nn.LayerNorm(feature))
        self.actor = mlp(feature, hidden, hidden, 2 * act)
        self.critics = nn.ModuleList(mlp(feature + act, hidden, hidden, 1) for _ in range(2))

    def encode(self, image: Tensor, detach: bool = False) -> Tensor:
        h = image / 255.0
        for conv in self.encoder:
            h = torch.relu(conv(h))
        h = h.reshape(h.size(0), -1)
        if detach:
            h = h.detach()
        return torch.tanh(self.head(h))

    def forward(self, image: Tensor, noise: Tensor, shift: Tensor):
        n, _, side, _ = image.shape
        padded = F.pad(image, (4, 4, 4, 4), mode="replicate")
        base = torch.linspace(-1.0 + 1.0 / (side + 8), 1.0 - 1.0 / (side + 8), side + 8, device=image.device)[:side]
        grid = torch.stack(torch.meshgrid(base, base, indexing="xy"), -1).unsqueeze(0).repeat(n, 1, 1, 1) + shift.view(
            n, 1, 1, 2
        ) * 2.0 / (side + 8)
        image = F.grid_sample(padded, grid, padding_mode="zeros", align_corners=False)
        mean, log_std = self.actor(self.encode(image, detach=True)).chunk(2, -1)
        action = torch.tanh(mean + (-10.0 + 6.0 * (torch.tanh(log_std) + 1)).exp() * noise)
        pair = torch.cat([self.encode(image), action], -1)
        return action, *[c(pair) for c in self.critics]


def drq(small: bool):
    channels, act, filters, feature, hidden, side, n = (3, 2, 4, 8, 16, 24, 2) if small else (9, 1, 32, 50, 1024, 84, 1)
    net = DrQ(channels, act, filters, feature, hidden, side)
    return net, (torch.rand(n, channels, side, side) * 255, torch.randn(n, act), torch.randint(0, 9, (n, 2)).float())


BUILDERS = {
    "dlrm": dlrm,
    "nvidia_deeprecommender": deeprecommender,
    "lennard_jones": lennard_jones,
    "soft_actor_critic": soft_actor_critic,
    "drq": drq,
}
