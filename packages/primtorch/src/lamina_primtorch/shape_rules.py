"""Shape rules (entry point group ``lamina.shape_rules``): ``RULES[op](args, kwargs) -> TensorMeta | tuple``.

Keys are OpOverloads; they are resolved by name on first use, so that importing this module costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .rules import BY_NAME


def rule_by_name(name: str) -> Callable[..., Any] | None:
    """The rule of an ATen overload by its short name (``"add.Tensor"``), or None."""
    return BY_NAME.get(name)


class RuleTable(dict[Any, Any]):
    """A mapping OpOverload -> rule over ``BY_NAME``, filled as overloads are asked for."""

    def __missing__(self, op: Any) -> Callable[..., Any]:
        name = str(op)
        rule = BY_NAME.get(name.removeprefix("aten."))
        if rule is None:
            raise KeyError(op)
        self[op] = rule
        return rule

    def get(self, op: Any, default: Any = None) -> Any:
        try:
            return self[op]
        except KeyError:
            return default

    def __contains__(self, op: Any) -> bool:
        return self.get(op) is not None

    def _resolve(self) -> None:
        for name in BY_NAME:
            packet, _, overload = name.rpartition(".")
            op: Any = torch.ops if "." in packet else torch.ops.aten
            for part in (*packet.split("."), overload):
                op = getattr(op, part, None)
            if op is not None:
                self.get(op)

    def __iter__(self) -> Iterator[Any]:
        self._resolve()
        return super().__iter__()

    def __len__(self) -> int:
        return len(BY_NAME)

    def keys(self) -> Any:
        self._resolve()
        return super().keys()

    def items(self) -> Any:
        self._resolve()
        return super().items()


RULES = RuleTable()
