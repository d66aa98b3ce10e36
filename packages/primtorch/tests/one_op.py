"""One ATen call as a graph: decompose it, run it node by node, and compare values and metadata with eager."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.fx as fx

from lamina_primtorch import Prim, decompose

RTOL = {torch.float32: 2e-5, torch.float64: 1e-9, torch.bfloat16: 1.6e-2, torch.float16: 2e-3, torch.complex64: 2e-5}
ATOL = {torch.float32: 2e-6, torch.float64: 1e-10, torch.bfloat16: 1e-2, torch.float16: 1e-3, torch.complex64: 2e-6}


# Eager computes x * scale + shift where scale may be huge: its own rounding error is larger than the formula's.
SLACK = {"aten.native_layer_norm_backward.default": 50.0, "aten.native_group_norm_backward.default": 50.0}


def graph_of(op: Any, args: tuple, kwargs: dict, out: Any) -> tuple[fx.GraphModule, list]:
    """A graph with one placeholder a tensor argument (by position in the flattened arguments) and the one call."""
    graph = fx.Graph()
    inputs: list = []

    def place(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            node = graph.placeholder(f"x{len(inputs)}")
            node.meta["val"] = x
            inputs.append(x)
            return node
        return x

    flat, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    fx_args, fx_kwargs = torch.utils._pytree.tree_unflatten([place(x) for x in flat], spec)
    call = graph.call_function(op, fx_args, fx_kwargs)
    call.meta["val"] = out
    if isinstance(out, (tuple, list)):
        import operator

        items = []
        for k, o in enumerate(out):
            if o is None:
                items.append(None)
                continue
            item = graph.call_function(operator.getitem, (call, k))
            item.meta["val"] = o
            items.append(item)
        graph.output(tuple(items))
    else:
        graph.output((call,))
    return fx.GraphModule({}, graph), inputs


class Checked(fx.Interpreter):
    """Runs a graph and compares each node's metadata with what it computes."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self.wrong: list[str] = []

    def run_node(self, n: fx.Node) -> Any:
        out = super().run_node(n)
        val = n.meta.get("val")
        if n.op == "call_function" and isinstance(out, torch.Tensor) and hasattr(val, "dtype"):
            want = (tuple(val.shape), val.dtype, tuple(val.stride()))
            got = (tuple(out.shape), out.dtype, out.stride())
            if want[:2] != got[:2]:
                self.wrong.append(f"{n.target}: val says {want}, computed {got}")
            elif want[2] != got[2] and out.numel() > 0:
                if any(n_ > 1 and a != b for n_, a, b in zip(want[0], want[2], got[2])):
                    self.wrong.append(f"{n.target}: stride of val {want[2]}, computed {got[2]}")
        return out


def close(got: torch.Tensor, want: torch.Tensor, slack: float = 1.0) -> str | None:
    """None if equal within the tolerance of the dtype, else what differs."""
    if got.dtype is not want.dtype:
        return f"dtype {got.dtype}, eager {want.dtype}"
    if got.shape != want.shape:
        return f"shape {tuple(got.shape)}, eager {tuple(want.shape)}"
    if got.stride() != want.stride():
        return f"stride {got.stride()}, eager {want.stride()} of shape {tuple(got.shape)}"
    if got.device != want.device:
        return f"device {got.device}, eager {want.device}"
    if got.dtype is torch.complex32:
        got, want = torch.view_as_real(got), torch.view_as_real(want)
    if got.dtype in RTOL:
        if not torch.allclose(got, want, RTOL[got.dtype] * slack, ATOL[got.dtype] * slack, equal_nan=True):
            diff = (got - want).abs().nan_to_num(math.inf).max().item()
            return f"values differ by {diff}: {got.flatten()[:4].tolist()} eager {want.flatten()[:4].tolist()}"
        return None
    return (
        None if torch.equal(got, want) else f"values {got.flatten()[:5].tolist()}, eager {want.flatten()[:5].tolist()}"
    )


def compare(op: Any, args: tuple, kwargs: dict, out: Any, state: Any = None) -> tuple[str | None, bool]:
    """(what is wrong or None, whether the call was rewritten into prims other than its extern)."""
    gm, inputs = graph_of(op, args, kwargs, out)
    low = decompose(gm)
    targets = [n.target for n in low.graph.nodes if n.op == "call_function"]
    rewritten = op not in targets and not any(isinstance(t, Prim) and t.spec.aten is op for t in targets)
    if state is not None:
        torch.set_rng_state(state)
    run = Checked(low)
    got = run.run(*inputs)
    if run.wrong:
        return "; ".join(run.wrong[:2]), rewritten
    want = out if isinstance(out, (tuple, list)) else (out,)
    if len(got) != len(want):
        return f"{len(got)} results, eager {len(want)}", rewritten
    for k, (g, w) in enumerate(zip(got, want)):
        if isinstance(w, torch.Tensor):
            if not isinstance(g, torch.Tensor):
                return f"result {k} is {g}", rewritten
            wrong = close(g, w, SLACK.get(str(op), 1.0))
            if wrong:
                return f"result {k}: {wrong}", rewritten
        elif (g is None) != (w is None):
            return f"result {k}: {g}, eager {w}", rewritten
    return None, rewritten
