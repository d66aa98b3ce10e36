"""What a decomposed graph promises, and ``check_graph``, which names the first node that breaks it."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from .errors import ContractError
from .spec import Prim, TensorMeta

CONTRACT_VERSION = 1

META_KEYS = {
    "val": "tensor-like (shape, stride(), dtype, device), Python or symbolic number, or a tuple/list of these",
    "stack_trace": "user file and line, copied from the ATen node",
    "nn_module_stack": "copied from the ATen node",
    "seq_nr": "copied from the ATen node",
}

_SCALAR_MODULES = ("_operator", "operator", "math", "torch", "torch.fx.experimental.sym_node")


def _tensor(val: Any) -> bool:
    return hasattr(val, "dtype") and hasattr(val, "stride")


def require_graph(gm: Any) -> None:
    """TypeError unless this is a graph."""
    if not isinstance(gm, fx.GraphModule):
        raise TypeError(f"the graph is a torch.fx.GraphModule, not {type(gm).__name__}")


def check_graph(gm: fx.GraphModule) -> None:
    """Raise ContractError for the first node of a decomposed graph that breaks the contract.

    Checked: targets are prims, non-mutating overloads or scalar functions; every value has ``val``; elementwise prims
    get operands of one
    shape; shape and dtype of each prim's ``val`` are what its meta function says.
    """
    require_graph(gm)
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            continue
        if node.op == "output":
            if not isinstance(node.args[0], (tuple, list)):
                raise ContractError("the output is not a flat tuple", node)
            continue
        if node.op != "call_function":
            raise ContractError(f"{node.op} in a decomposed graph", node)
        target = node.target
        if isinstance(target, Prim):
            _check_prim(node, target)
        elif hasattr(target, "with_graph"):
            check_graph(target.graph_module)
        elif isinstance(target, torch._ops.OpOverload):
            if target._schema.is_mutable and target._schema.name.endswith("_"):
                raise ContractError("an in-place operator in a functional graph", node)
        elif getattr(target, "__module__", None) not in _SCALAR_MODULES and not isinstance(
            target, torch._ops.HigherOrderOperator
        ):
            raise ContractError(f"target {target} is neither a prim nor an overload nor a scalar function", node)


def _val(x: Any) -> Any:
    if isinstance(x, fx.Node):
        return x.meta.get("val")
    if isinstance(x, (tuple, list)):
        return type(x)([_val(y) for y in x]) if type(x) in (tuple, list) else [_val(y) for y in x]
    return x


def _check_prim(node: fx.Node, prim: Prim) -> None:
    if "val" not in node.meta:
        raise ContractError("a prim without val", node)
    if "extern" in prim.spec.tags:
        return
    args = tuple(_val(a) for a in node.args)
    kwargs = {k: _val(v) for k, v in node.kwargs.items()}
    if "elementwise" in prim.spec.tags:
        shapes = {tuple(a.shape) for a in args if _tensor(a) and all(type(n) is int for n in a.shape)}
        if len(shapes) > 1:
            raise ContractError(f"an elementwise prim on operands of shapes {sorted(shapes)}", node)
    want = prim.meta(*args, **kwargs)
    metas = (want,) if isinstance(want, TensorMeta) else want
    val = node.meta["val"]
    vals = (val,) if _tensor(val) else val
    for m, v in zip(metas, vals):
        if _tensor(v) and (tuple(v.shape) != m.shape or v.dtype is not m.dtype):
            raise ContractError(f"val is {v.dtype}{tuple(v.shape)}, the meta function says {m.dtype}{m.shape}", node)
