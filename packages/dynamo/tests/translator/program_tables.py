"""Tables of programs for tests: those that must be captured whole, and those that may break the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Make = Callable[[], Any]


class ProgramTable:
    """Programs by name; its methods are decorators that add one."""

    def __init__(self) -> None:
        self.whole: dict[str, Make] = {}
        self.others: dict[str, Make] = {}

    def one_graph(self, make: Make) -> Make:
        self.whole[make.__name__] = make
        return make

    def may_break(self, make: Make) -> Make:
        self.others[make.__name__] = make
        return make


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)
