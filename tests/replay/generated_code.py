"""Print the scheduled loops of a few programs, forward and backward, from the target that needs no compiler."""

from __future__ import annotations

import torch
from torch.nn import functional as F

import lamina
from lamina import events


def pointwise(x, y):
    return torch.sigmoid(F.gelu(x) * torch.tanh(y)) + x


def normalised(x, w):
    return F.softmax(F.layer_norm(x, (8,)) @ w, -1)


def indexed(x, w):
    return F.cross_entropy(x @ w, torch.tensor([1, 0, 3, 2]))


PROGRAMS = {
    "pointwise": (pointwise, (4, 8), (4, 8)),
    "normalised": (normalised, (4, 8), (8, 5)),
    "indexed": (indexed, (4, 8), (8, 5)),
}


def main() -> None:
    for name, (fn, *shapes) in PROGRAMS.items():
        torch.manual_seed(0)
        inputs = [torch.randn(s, requires_grad=True) for s in shapes]
        found: list[str] = []

        def listen(event, found=found):
            if isinstance(event, events.Event) and event.name == "wrapper":
                found.append(event.payload.source)

        with events.listening(listen):
            lamina.compile(fn, backend="reference")(*inputs).sum().backward()
        for part, source in zip(("forward", "backward"), found, strict=True):
            print(f"=== {name} {part}\n{source}")


if __name__ == "__main__":
    main()
