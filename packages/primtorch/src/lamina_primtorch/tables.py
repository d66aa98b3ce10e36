"""``decomposition_table(target)``: which ATen overload is rewritten by which function, as a mapping that resolves
names on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from .decomps import DECOMPOSITIONS
from .prims import PRIMS as _P

TARGETS = ("prims", "core_aten")
_EXTERN = {p.spec.aten_name[6:]: p for p in _P.values() if p.spec.aten_name}
_FOUND: dict[Any, Any] = {}


def short_name(op: Any) -> str | None:
    """``"add.Tensor"`` for ``torch.ops.aten.add.Tensor``, None for anything that is not an ATen overload."""
    if isinstance(op, torch._ops.OpOverload) and op.namespace == "aten":
        return str(op)[5:]
    return None


def extern_prim(op: Any) -> Any:
    """The extern prim that stands for an ATen overload, or None."""
    if op not in _FOUND:
        name = short_name(op)
        _FOUND[op] = _EXTERN.get(name) if name else None
    return _FOUND[op]


class Table(Mapping[Any, Any]):
    """OpOverload -> decomposition, a function with the overload's own arguments over tensors or ``Value``s."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._found: dict[Any, Any] = {}

    def find(self, op: Any) -> Callable[..., Any] | None:
        """The decomposition of ``op``, or None if it stays."""
        try:
            return self._found[op]
        except KeyError:
            name = short_name(op)
            fn = DECOMPOSITIONS.get(name) if name else None
            if fn is not None and self.target == "core_aten" and torch.Tag.core in op.tags:
                fn = None
            self._found[op] = fn
            return fn

    def __getitem__(self, op: Any) -> Callable[..., Any]:
        fn = self.find(op)
        if fn is None:
            raise KeyError(op)
        return fn

    def __iter__(self) -> Iterator[Any]:
        for name in DECOMPOSITIONS:
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet, None), overload, None)
            if op is not None and self.find(op) is not None:
                yield op

    def __len__(self) -> int:
        return sum(1 for _ in self)


_TABLES: dict[str, Table] = {}


def decomposition_table(target: str = "prims") -> Table:
    """The table for "prims" or "core_aten"; ValueError for another target."""
    if target not in TARGETS:
        raise ValueError(f"unknown target {target!r}; known: {', '.join(TARGETS)}")
    if target not in _TABLES:
        _TABLES[target] = Table(target)
    return _TABLES[target]
