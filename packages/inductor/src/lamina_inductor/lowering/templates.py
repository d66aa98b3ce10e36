"""Parts of a graph that become one kernel of a template: planned before the walk, lowered at their last node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.fx import Node

from ..ir.tensor import TensorValue
from .attention import lower_attention, plan_attention
from .attention_gradient import lower_attention_gradient, plan_attention_gradients
from .grouped import lower_grouped, plan_grouped


@dataclass(frozen=True)
class Template:
    """`parts`: the nodes before the last that wait for it, in the graph's order; `lower(g)`: the last one's value, or
    None where all are lowered one by one."""

    parts: tuple[Node, ...]
    lower: Callable[[Any], TensorValue | None]


def plan_templates(g: Any) -> dict[Node, Template]:
    """The templates of the graph that `g` lowers, by their last node; no node belongs to two."""
    found: dict[Node, Template] = {}
    for a in plan_attention(g):
        found[a.last] = Template((a.product, *a.between), partial(lower_attention, found=a))
    for b in plan_attention_gradients(g):
        *earlier, last = (r.node for r in b.results)
        found[last] = Template(
            (b.product, b.gradient, *b.between, *earlier), partial(lower_attention_gradient, found=b)
        )
    for p in plan_grouped(g):
        parts = tuple(n for n in (p.product, *p.behind) if n is not p.last)
        found[p.last] = Template(parts, partial(lower_grouped, one=p))
    taken: set[Node] = set()
    for last, template in list(found.items()):
        own = {last, *template.parts}
        if own & taken:
            del found[last]
        else:
            taken |= own
    return found


__all__ = ["Template", "plan_templates"]
