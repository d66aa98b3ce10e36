"""One call of a model: inference, or forward, loss and backward."""

from __future__ import annotations

import contextlib

import torch
from torch.utils._pytree import tree_flatten


def floats(tree) -> list[torch.Tensor]:
    if not isinstance(tree, (torch.Tensor, list, tuple, dict)) and hasattr(tree, "to_tuple"):
        tree = tree.to_tuple()
    leaves = tree_flatten(tree)[0]
    return [t for t in leaves if isinstance(t, torch.Tensor) and t.is_floating_point()]


def loss_of(out, weighted: bool = False) -> torch.Tensor:
    """The model's own loss where it gives one, otherwise the mean of all float outputs, squared so that every output
    has a gradient of its own size; `weighted`: each position of the last dimension counts differently.
    """
    loss = out.get("loss") if hasattr(out, "get") else None
    if isinstance(loss, torch.Tensor):
        return loss
    parts = [p.float() if p.dtype in (torch.bfloat16, torch.float16) else p for p in floats(out)]
    if weighted:
        parts = [p * torch.linspace(0.5, 1.5, p.shape[-1], dtype=p.dtype, device=p.device) for p in parts]
    return sum(p.pow(2).mean() for p in parts) / max(len(parts), 1)


def are_unit_vectors(outputs: list[torch.Tensor]) -> bool:
    """Whether the loss without weights is a constant, whose gradient is nothing but rounding."""
    return bool(outputs) and all(
        t.dim() > 1 and t.numel() > 0 and bool((t.pow(2).sum(-1) - 1).abs().max() < 0.05) for t in outputs
    )


class Step:
    """One call of a model. `call` is what is called (the model itself, or what a compiler made of it)."""

    weighted = False

    def __init__(self, model, call, args, kwargs, mode: str, amp: bool, device: str):
        self.model, self.call, self.args, self.kwargs = model, call, args, kwargs
        self.mode, self.amp, self.device = mode, amp, device

    def like(self, model, call, args, kwargs) -> Step:
        """The same step of another model, in its own precision."""
        amp = self.amp and next((p.dtype for p in model.parameters()), None) is not torch.float64
        other = Step(model, call, args, kwargs, self.mode, amp, self.device)
        other.weighted = self.weighted
        return other

    def __call__(self):
        cast = torch.autocast(self.device, dtype=torch.bfloat16) if self.amp else contextlib.nullcontext()
        if self.mode == "infer":
            with torch.no_grad(), cast:
                return self.call(*self.args, **self.kwargs), None
        for p in self.model.parameters():
            p.grad = None
        with cast:
            out = self.call(*self.args, **self.kwargs)
            loss = loss_of(out, self.weighted)
        if loss.requires_grad:
            loss.backward()
        return out, loss

    def snapshot(self, seed: int = 1) -> dict[str, list[torch.Tensor]]:
        """Outputs, loss, gradients and buffers of one call, in float64."""
        torch.manual_seed(seed)
        out, loss = self()
        keep = {"outputs": [t.detach().to(torch.float64, copy=True) for t in floats(out)]}
        if loss is not None:
            keep["loss"] = [loss.detach().to(torch.float64, copy=True)]
            grads = [p.grad for p in self.model.parameters() if p.grad is not None]
            keep["gradients"] = [g.detach().to(torch.float64, copy=True) for g in grads]
            buffers = [b for b in self.model.buffers() if b.is_floating_point()]
            keep["buffers"] = [b.detach().to(torch.float64, copy=True) for b in buffers]
        return keep
