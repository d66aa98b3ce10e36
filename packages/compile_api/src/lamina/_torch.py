"""The private names of torch that this package uses, each with what it is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def allocations(call: Callable[[], Any]) -> list[int]:
    """Call something and return the bytes of each allocation on the CPU (negative when freed), in order; empty where
    torch does not tell. The profiler without Kineto is used: it starts in no time and prints nothing."""
    begin = getattr(torch.autograd, "_enable_profiler_legacy", None)  # starts the profiler
    end = getattr(torch.autograd, "_disable_profiler_legacy", None)  # ends it; returns its records by thread
    if begin is None or end is None:
        call()
        return []
    options = torch._C._profiler._ExperimentalConfig()  # the part of the settings that has no public class
    config = torch.autograd.ProfilerConfig(
        torch.autograd.ProfilerState.CPU, False, True, False, False, False, options  # type: ignore[attr-defined]
    )
    begin(config)
    try:
        call()
    finally:
        records = end()
    return [r.cpu_memory_usage() for thread in records for r in thread if r.kind() == "memory_alloc"]
