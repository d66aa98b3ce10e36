"""Records that describe a traced graph: its inputs, its outputs, and how both tie to the caller's tensors."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch.fx as fx

from .descriptors import InputDesc, OutputDesc


@dataclasses.dataclass
class InputInfo:
    """One placeholder of the captured graph.

    is_tensor; requires_grad; is_leaf; mutates_data: its memory is written; under_no_grad: all writes were outside
    autograd; version_bumps: how often eager raises its version counter; group: number of the synthetic base that it
    is a view of, or -1.
    """

    is_tensor: bool
    requires_grad: bool = False
    is_leaf: bool = True
    mutates_data: bool = False
    under_no_grad: bool = False
    version_bumps: int = 0
    group: int = -1
    name: str = ""


@dataclasses.dataclass(frozen=True)
class SlotRef:
    """A symbolic number in a recipe: value `slot` of the forward graph's outputs."""

    slot: int


@dataclasses.dataclass
class ViewRecipe:
    """One view to replay on a real tensor: `func(x, *args, **kwargs)[index]`, recorded by autograd if grad_mode."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[Any, Any]
    index: int
    grad_mode: bool


@dataclasses.dataclass
class OutputInfo:
    """One output of the captured graph.

    kind: "value" (a result of the graph), "input" (is input `source` itself), "input_view" (view of input `source`),
    "same" (is output `source`), "view" (view of output `source`, itself a view), "base_view" (view of intermediate base
    `source`), "output_view" (view of value `source`), "constant" (`value`).
    writes: what the version counter of a view under `.data` counts. slot: position among the forward graph's outputs,
    for "value". differentiable: has requires_grad in eager.
    """

    kind: str
    slot: int = -1
    source: int = -1
    recipe: tuple[ViewRecipe, ...] = ()
    differentiable: bool = False
    value: Any = None
    writes: int = 0


@dataclasses.dataclass
class GraphMetadata:
    """How a functional graph ties to the caller's tensors.

    inputs, outputs: one record each of the captured graph. mutated: placeholders whose new value the graph returns,
    in the
    order of those outputs. num_mutated, num_values, num_bases: the forward graph's outputs are the mutated inputs'
    values,
    then values for the user, then intermediate bases. differentiable: per forward output, whether it carries gradient.
    versions: per forward output what its version counter counts in eager (0 for what is not fresh).
    grad_inputs: forward-graph inputs that get a gradient. grad_enabled: grad mode at the start. final_grad_enabled:
    at the end. num_forward_inputs: inputs of the forward graph.
    """

    inputs: list[InputInfo]
    outputs: list[OutputInfo]
    mutated: list[int]
    num_values: int
    num_bases: int
    differentiable: list[bool]
    grad_inputs: list[int]
    grad_enabled: bool
    num_forward_inputs: int
    output_is_tuple: bool = True
    keeps_inputs: bool = False  # for a gradient of gradients that the program itself takes
    final_grad_enabled: bool = True
    frees: bool = True  # eager's backward cannot run twice without retain_graph
    versions: list[int] = dataclasses.field(default_factory=list)

    @property
    def written_outputs(self) -> dict[int, int]:
        """Forward outputs that the program wrote to after it made them, and how often."""
        return {i: count for i, count in enumerate(self.versions) if count}

    @property
    def num_mutated(self) -> int:
        return len(self.mutated)

    @property
    def num_forward_outputs(self) -> int:
        return len(self.mutated) + self.num_values + self.num_bases

    @property
    def needs_autograd(self) -> bool:
        """True when some forward output carries gradient to some input."""
        return any(self.differentiable) and bool(self.grad_inputs)


@dataclasses.dataclass
class JointGraph:
    """Forward and backward in one functional graph: `gm(*inputs, *tangents) -> (*forward_outputs, *gradients)`.

    tangents: positions of the forward outputs that have one. gradients: one per entry of `metadata.grad_inputs`, None
    where eager gives None. `print(joint)` is runnable Python.
    """

    gm: fx.GraphModule
    metadata: GraphMetadata
    inputs: list[InputDesc]
    outputs: list[OutputDesc]
    tangents: list[int]
    seconds: float = 0.0

    def __str__(self) -> str:
        from .printing import code_of

        return code_of(self.gm, "joint", self.seconds)

    @property
    def graph(self) -> fx.Graph:
        return self.gm.graph

    def __call__(self, *args: Any) -> Any:
        return self.gm(*args)
