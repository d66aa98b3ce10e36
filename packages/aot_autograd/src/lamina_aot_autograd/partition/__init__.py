"""Splitting a joint graph into a forward and a backward graph."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .. import config, printing
from ..errors import PartitionError
from ..observe import is_observed, report
from ..schemas import JointGraph
from .default import partition_default, partition_save_everything
from .extract import Partition, PartitionReport, SavedValue, note_saved_strides
from .min_cut import partition_min_cut
from .replay import note_replays

Policy = str | Callable[..., Partition] | None


def partition(
    joint: JointGraph, policy: Policy = None, *, memory_budget: float | None = None, observed: bool = True
) -> Partition:
    """Split `joint`; the result unpacks as `(forward, backward)` and has `.report`.

    policy: "default" (save what eager saves), "min_cut" (recompute what is cheap), "save_everything", or a function
    from a
    JointGraph to a Partition. memory_budget: bytes that may be saved, or a share of eager's when at most 1; min_cut
    only. observed: tell listeners, write dumps.
    """
    if not isinstance(joint, JointGraph):
        raise TypeError(f"partition takes a JointGraph, as trace_joint makes it, not {type(joint).__name__}")
    start = time.perf_counter()
    settings = config.get()
    chosen: Any = policy or settings.partitioner
    if not callable(chosen):
        if chosen not in POLICIES:
            raise PartitionError(f"no partition policy {chosen!r}", hint=f"one of {', '.join(POLICIES)}")
        chosen = POLICIES[chosen]
    note_replays(joint)
    budget = settings.memory_budget if memory_budget is None else memory_budget
    result = chosen(joint, memory_budget=budget) if chosen in POLICIES.values() else chosen(joint)
    seconds = time.perf_counter() - start
    if not observed:
        return result
    if is_observed():
        report("partition", result, seconds)
    printing.dump(result.forward, "forward", seconds)
    printing.dump(result.backward, "backward", seconds)
    return result


POLICIES: dict[str, Callable[..., Partition]] = {
    "default": partition_default,
    "min_cut": partition_min_cut,
    "save_everything": partition_save_everything,
}

__all__ = ["POLICIES", "Partition", "PartitionReport", "SavedValue", "note_saved_strides", "partition"]
