"""Lowering of a call of a graph: the graph is lowered and scheduled once, each call is one extern step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.fx import Node

from ..errors import UnsupportedGraph
from ..ir.layout import Layout
from ..ir.region import RegionCallee
from ..ir.tensor import TensorValue

if TYPE_CHECKING:
    from ..graph import GraphLowering


def lower_region(lowering: GraphLowering, node: Node, args: tuple[Any, ...]) -> RegionCallee:
    """The callee for one call. `args` are the lowered arguments; they are put into memory now.

    Callees are shared by calls of one region whose arguments lie in memory in the same way.
    """
    target: Any = node.target
    layouts: list[Layout] = []
    for a in args:
        if not isinstance(a, TensorValue):
            raise UnsupportedGraph("a region with an argument that is no tensor", node=node.name)
        lowering.store_as_eager(a)
        assert a.layout is not None
        layouts.append(Layout(a.layout.dtype, a.layout.device, a.layout.shape, a.layout.stride))
    key = (target, tuple(layouts))
    callee = lowering.regions.get(key)
    if callee is None:
        callee = lowering.regions[key] = _lower(lowering, node, layouts)
    return callee


def _lower(outer: GraphLowering, node: Node, layouts: list[Layout]) -> RegionCallee:
    from ..graph import GraphLowering
    from ..scheduler.plan import schedule

    target: Any = node.target
    name = f"{target.__name__}_v{len(outer.regions)}" if outer.regions else target.__name__
    inner = GraphLowering(target.graph_module, outer.config, outer.can_lower, input_layouts=layouts)
    inner.regions = outer.regions
    inner.run()
    plan = schedule(inner, name)
    if plan.program.sizes or any(o.kind not in ("buffer", "view", "input", "none") for o in plan.program.outputs):
        raise UnsupportedGraph("a region with symbolic sizes", node=node.name)
    outer.reasons.extend((f"{name}.{inside}", why) for inside, why in inner.reasons)
    outer.region_log.extend(plan.log)
    return RegionCallee(name, plan.program, target)


__all__ = ["lower_region"]
