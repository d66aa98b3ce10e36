"""What each input and output of a graph stands for (`node.meta["desc"]`)."""

from __future__ import annotations

import dataclasses
from typing import Literal

InputKind = Literal[
    "parameter", "buffer", "user_input", "synthetic_base", "constant", "tangent", "saved_tensor", "saved_symint"
]
OutputKind = Literal[
    "user_output", "mutated_input", "intermediate_base", "view_size", "saved_tensor", "saved_symint", "gradient"
]


@dataclasses.dataclass(frozen=True)
class InputDesc:
    """An input: its kind, and which one.

    `index` is the position among the captured graph's placeholders for parameter, buffer, user_input; the position
    among the forward's outputs for a tangent; the position among the saved values for saved_*. `name` is a readable
    name.
    """

    kind: InputKind
    index: int
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}[{self.index}]" + (f" {self.name}" if self.name else "")


@dataclasses.dataclass(frozen=True)
class OutputDesc:
    """An output: its kind, and which one.

    `index` is the position among the user's outputs for user_output; among the captured graph's placeholders for
    mutated_input and gradient; among the saved values for saved_*; a running number for intermediate_base and view_size
    (a symbolic number that the runtime needs to make a view again).
    """

    kind: OutputKind
    index: int
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}[{self.index}]" + (f" {self.name}" if self.name else "")
