"""What a Triton kernel is to the rest of the target: its launches, their parameters, and the memory between them."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ..errors import InductorError
from ..index import Expr
from .kernel import KernelSpec
from .triton_ops import POINTER


class CannotGenerate(InductorError):
    """This kernel has a shape that the Triton target does not write; the message says which."""


@dataclass(frozen=True)
class Parameter:
    """One run-time parameter of a kernel: a pointer (kind "buffer" or "workspace") or an integer (kind "size")."""

    name: str
    type: str
    kind: str


@dataclass(frozen=True)
class Workspace:
    """Memory that one launch writes and the next reads: `numel` elements of `dtype` (`split` parts a row)."""

    name: str
    dtype: torch.dtype
    rows: Expr


@dataclass
class Launch:
    """One `triton.jit` function and how to start it. `grid` has (axis size, constexpr block name) pairs; ("split",
    name) stands for the number of parts.
    """

    name: str
    params: list[Parameter]
    constexprs: list[str]
    grid: list[tuple[Expr, str]]
    checks: bool = False


@dataclass
class TritonKernel:
    """The launches of one kernel, their common source text, and candidate block sizes."""

    spec: KernelSpec
    form: str
    source: str
    launches: list[Launch]
    configs: list[dict[str, int]]
    workspaces: list[Workspace] = field(default_factory=list)
    program_key: str = ""  # key of the spec that the program calls; `spec` may be a rewritten one


def parameters_of(spec: KernelSpec) -> list[Parameter]:
    """The buffers of a kernel, then its sizes."""
    out = [Parameter(b.name, POINTER[b.dtype], "buffer") for b in spec.arguments]
    return out + [Parameter(s, "i64", "size") for s in spec.sizes]


def function_text(name: str, params: list[Parameter], constexprs: list[str], lines: list[str]) -> str:
    """One `triton.jit` function with the body `lines`."""
    args = ", ".join([p.name for p in params] + [f"{c}: tl.constexpr" for c in constexprs])
    return "\n".join(["@triton.jit", f"def {name}({args}):", *lines]) + "\n"
