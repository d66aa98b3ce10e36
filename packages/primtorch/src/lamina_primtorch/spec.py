"""What a prim is.

``Prim`` is a callable: on real tensors it runs its eager implementation, inside a recording (see ``record``) it
appends one row to the
graph being made. Everything that is known about it hangs on ``prim.spec``, an ``OpSpec``.

``TensorMeta`` is the currency of all meta functions and shape rules: a plain tuple ``(shape, stride, dtype, device)``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

__all__ = ["OpSpec", "Prim", "TensorMeta", "PRIMS", "TAGS"]

TAGS = {
    "elementwise": "one result element per element of the (equally shaped) tensor operands",
    "view": "moves or repeats elements without computing; a value, not an alias",
    "shape": "joins or pads tensors",
    "reduction": "folds dimensions; reduced dimensions are dropped",
    "scan": "running fold along one dimension",
    "indexing": "reads or writes at positions given by integer tensors; raises IndexError/RuntimeError out of range",
    "creation": "no tensor operand",
    "random": "draws from the generator of its device; never merged, moved or removed",
    "extern": "keeps the semantics of the ATen overload in spec.aten; a backend calls it, or lowers it if it can",
    "data_dependent": "the result's shape depends on values",
    "comparison": "result is bool",
    "multi_output": "the result is a tuple",
}


class TensorMeta(NamedTuple):
    """Metadata of one tensor result: shape and stride (tuples of int or SymInt), dtype, device."""

    shape: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device


class _State(threading.local):
    recorder: Any = None


STATE = _State()


@dataclass(frozen=True)
class OpSpec:
    """All that is known about one prim.

    schema   text: argument names and kinds
    meta     same arguments as the prim (any objects with .shape .stride() .dtype .device) -> TensorMeta or tuple of
             them
    eager    same arguments on real tensors -> tensor(s)
    tags     subset of TAGS
    doc      one line: what it computes, edge values included
    aten_name  for extern prims, the ATen overload ("aten::mm.default") whose semantics it keeps
    """

    name: str
    schema: str
    meta: Callable[..., Any]
    eager: Callable[..., Any]
    tags: frozenset[str]
    doc: str
    aten_name: str | None = None

    @property
    def aten(self) -> Any:
        """The OpOverload behind an extern prim, or None."""
        if self.aten_name is None:
            return None
        packet, _, overload = self.aten_name.partition("::")[2].partition(".")
        return getattr(getattr(torch.ops.aten, packet), overload or "default")

    @property
    def samples(self) -> Sequence[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Example calls ``(args, kwargs)`` on real tensors, made on demand."""
        from .samples import samples_of

        return samples_of(self)


class Prim:
    """One primitive operation; an FX ``call_function`` target. ``prim.name``, ``prim.spec``."""

    def __init__(self, spec: OpSpec) -> None:
        self.spec = spec
        self.name = spec.name
        self.eager = spec.eager
        self.meta = spec.meta
        self.is_random = "random" in spec.tags
        self.__name__ = self.__qualname__ = spec.name
        self.__module__ = "lamina_primtorch.prims"
        self.__doc__ = f"{spec.schema}\n\n{spec.doc}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        recorder = STATE.recorder
        if recorder is None:
            return self.eager(*args, **kwargs)
        return recorder.emit(self, args, kwargs)

    def __repr__(self) -> str:
        return f"prims.{self.name}"

    def __reduce__(self) -> str:
        return self.name

    def __copy__(self) -> Prim:
        return self

    def __deepcopy__(self, memo: Any) -> Prim:
        return self


PRIMS: dict[str, Prim] = {}


def define(
    name: str,
    schema: str,
    eager: Callable[..., Any],
    meta: Callable[..., Any],
    tags: Sequence[str],
    doc: str,
    aten: str | None = None,
) -> Prim:
    """Add one prim to ``PRIMS``. A second definition of a name, an unknown tag or an empty doc raises ValueError."""
    if name in PRIMS:
        raise ValueError(f"prim {name!r} is defined twice")
    unknown = set(tags) - TAGS.keys()
    if unknown or not doc:
        raise ValueError(f"prim {name!r}: unknown tags {sorted(unknown)} or no definition")
    prim = Prim(OpSpec(name, f"{name}{schema}", meta, eager, frozenset(tags), doc, aten))
    PRIMS[name] = prim
    return prim
