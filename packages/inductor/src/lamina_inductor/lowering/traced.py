"""Values traced for one position of a kernel that is written as a template: what stands around its products.

Nodes of the graph are lowered once more with the template's own values (a product, a softmax's term) as lazy values,
and the result is evaluated at one position; the body that comes out is part of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Node

from ..codegen.kernel import LoopVar, Phase
from ..errors import LoweringError
from ..index import ZERO, Expr
from ..ir.loops import Builder, Index
from ..ir.tensor import TensorValue
from ..ops import Op


class Refused(Exception):
    """The parts stay what they are."""


class Body:
    """Traces the parts of a kernel. `leaves`: names of the template's own values, with their dtypes."""

    def __init__(self, g: Any, leaves: dict[str, torch.dtype]) -> None:
        self.b = Builder(lambda name: leaves[name] if name in leaves else g.buffers[name].layout.dtype, g.fresh)
        self.leaves = leaves
        self.loads: dict[str, None] = {}

    def end(self, name: str, value: Op, loops: tuple[LoopVar, ...], index: Expr = ZERO) -> Phase:
        """A phase that stores `value`."""
        ops = self.b.next_phase()
        ops.append(Op("store", (name, index, value, None, None), value.dtype))
        for op in ops:
            if op.name == "load" and op.args[0] not in self.leaves:
                self.loads.setdefault(op.args[0])
        return Phase(loops, tuple(ops))


def lazy_leaf(g: Any, val: Any, name: str, note: Callable[[Builder, Index], None]) -> TensorValue:
    """A value with the metadata of `val` that the template has; `note` is told where it is read."""

    def inner(b: Builder, index: Index) -> Op:
        note(b, index)
        return b.load(name, ZERO)

    return g.lazy(g.meta_of(val), inner, reads=1)


def evaluate(g: Any, nodes: Iterable[Node]) -> None:
    """Lowers nodes once more."""
    for node in nodes:
        g.node = node
        try:
            g.env[node] = g._call(node)
        except LoweringError as error:
            raise Refused(error.message) from error


def is_kept(g: Any, known: int, leaves: Iterable[str]) -> bool:
    """True if a node behind the first `known` stores what depends on the template's values."""
    names = set(leaves)
    return any(names.intersection(node.reads) for node in g.nodes[known:])


@contextmanager
def attempt(g: Any, node: Node, what: str, leaves: Iterable[str]) -> Iterator[None]:
    """Inside, values are traced and nodes may be lowered once more. `Refused` ends it, is noted as the reason, and
    leaves nothing behind."""
    before, env, metas, known = g.node, g.env, g._metas, len(g.nodes)
    g.env, g.inlines = dict(env), True
    try:
        yield
    except Refused as reason:
        g.reasons.append((node.name, f"{what} is not one kernel: {reason}"))
        _forget(g, known, set(leaves))
    finally:
        g.node, g.env, g._metas, g.inlines = before, env, metas, False


def _forget(g: Any, known: int, leaves: set[str]) -> None:
    """Removes the nodes behind the first `known` that depend on values which only a kernel has."""
    tainted = set(leaves)
    kept = []
    for node in g.nodes[known:]:
        if tainted.intersection(node.reads):
            tainted.update(node.writes)
        else:
            kept.append(node)
    for name in tainted - leaves:
        del g.buffers[name]
    g.nodes[known:] = kept


def is_linear(op: Op, leaf: str) -> bool:
    """True for the value `leaf` itself, rounded or times factors that do not depend on it."""
    if op.name == "load":
        return op.args[0] == leaf
    if op.name in ("to_dtype", "round_to"):
        return op.dtype.is_floating_point and is_linear(op.args[0], leaf)
    if op.name == "mul":
        a, b = op.args
        return (is_linear(a, leaf) and not _reads(b, leaf)) or (is_linear(b, leaf) and not _reads(a, leaf))
    return False


def _reads(op: Op, leaf: str) -> bool:
    return (op.name == "load" and op.args[0] == leaf) or any(_reads(o, leaf) for o in op.operands())


def not_called(*tensors: torch.Tensor) -> torch.Tensor:
    """The function of a kernel that only its target runs."""
    raise LoweringError("a kernel of a target was called as a function")


__all__ = ["Body", "Refused", "attempt", "evaluate", "is_kept", "is_linear", "lazy_leaf", "not_called"]
