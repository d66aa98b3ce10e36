"""Replays the operator samples that torch ships and shows every ATen call they make, forward and backward, to a
checker.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten_namespaces = ("aten",)


class Watch(TorchDispatchMode):
    """Calls ``check(op, args, kwargs, result)`` after each ATen call; no more than ``limit`` calls an overload and
    dtype.
    """

    def __init__(self, check: Callable[..., None], limit: int) -> None:
        super().__init__()
        self.check = check
        self.limit = limit
        self.seen: Counter = Counter()
        self.before: Callable[..., Any] | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        key = (func, next((a.dtype for a in args if isinstance(a, torch.Tensor)), None))
        wanted = func.namespace == "aten" and self.seen[key] < self.limit and not func._schema.is_mutable
        state = torch.get_rng_state() if wanted else None
        out = func(*args, **kwargs)
        if wanted:
            self.seen[key] += 1
            self.check(func, args, kwargs, out, state)
        return out


def ops(names: str | None = None) -> Iterator[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        if names is None or any(info.name == n for n in names.split(",")):
            yield info


def relaid(sample: Any, layout: str) -> Any:
    """The sample with its tensors in another memory layout: "plain", "strided" (gaps between elements) or
    "transposed".
    """
    if layout == "plain":
        return sample
    if layout == "strided":
        return sample.noncontiguous()

    def turn(t: Any) -> Any:
        if not isinstance(t, torch.Tensor) or t.dim() < 2 or t.layout is not torch.strided:
            return t
        with torch.no_grad():
            u = t.transpose(1, -1).contiguous().transpose(1, -1) if t.dim() > 2 else t.t().contiguous().t()
        return u.detach().requires_grad_(t.requires_grad)

    return sample.transform(turn)


def replay(
    watch: Watch, infos: Any, dtypes: Any, per_op: int, backward: bool = True, layout: str = "plain"
) -> list[str]:
    """Run ``per_op`` samples of each operator and dtype under ``watch``. Returns samples torch itself could not run."""
    failed = []
    for info in infos:
        for dtype in dtypes:
            if dtype not in info.dtypes:
                continue
            grad = backward and info.supports_autograd and dtype in info.backward_dtypes
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    torch.manual_seed(0)
                    samples = info.sample_inputs("cpu", dtype, requires_grad=grad)
                    for k, sample in enumerate(samples):
                        if k >= per_op:
                            break
                        with contextlib.suppress(StopIteration):
                            _one(watch, info, relaid(sample, layout), grad)
            except Exception as e:  # a sample that torch itself cannot run is not ours to judge
                failed.append(f"{info.name} {dtype}: {type(e).__name__}: {str(e)[:100]}")
    return failed


def _one(watch: Watch, info: Any, sample: Any, grad: bool) -> None:
    with watch:
        out = info.op(sample.input, *sample.args, **sample.kwargs)
        if not grad:
            return
        flat = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
        if not flat:
            return
        leaves = [
            t
            for t in torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
            if isinstance(t, torch.Tensor) and t.requires_grad
        ]
        torch.autograd.grad(flat, leaves, [torch.randn_like(t) for t in flat], allow_unused=True)
