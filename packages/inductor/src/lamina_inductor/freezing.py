"""Inference with weights that stay as they are: parameters become constants of the compiled graph.

What follows from them alone is computed once, batch norms (and other scales and shifts of channels) go into the
weights of the convolution before them, a rectifier behind it into the call, and weights are kept in the layout that the
library computes with (`lowering.frozen`).

A frozen graph looks at every call whether it got the tensors it was made from, as they were: when a parameter was
replaced or written to, it hands over to an ordinary graph, compiled then. Writes that leave no trace
in a tensor's version (through ``.data``, another process, another library) are not seen: that is what freezing means.

The library's rectifier makes NaN zero. It is used only where everything before it is proved to be finite
(`value_bounds`): such a graph also computes the largest magnitude of its inputs and of a few values between, and a call
in which it is too large, or NaN, is computed again by the ordinary graph.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from lamina_primtorch import prims
from lamina_primtorch.value import Value

from .lowering.frozen import EPILOGUE
from .observe import report
from .value_bounds import LOOK, ValueBounds

_CHAIN = {"add", "sub", "mul", "div"}


class FrozenGraph:
    """`frozen` for the tensors it was made from, `thaw()` (compiled on first use) for any others. Boxed.

    `values`: input position -> tensor; `looks`: the last result of `frozen` is the largest magnitude of what must not
    be larger than `LOOK`. `thawed` tells whether the ordinary graph was needed.
    """

    _boxed_call = True

    def __init__(
        self,
        frozen: Callable[..., Any],
        values: Mapping[int, torch.Tensor],
        count: int,
        thaw: Callable[[], Any],
        looks: bool = False,
    ) -> None:
        self.frozen = frozen
        self._looks = looks
        self._run = getattr(frozen, "unboxed", frozen)
        self._watched = tuple((k, t, t._version, t.data_ptr()) for k, t in values.items())
        self._kept = tuple(k for k in range(count) if k not in values)
        self._pick = operator.itemgetter(*self._kept) if len(self._kept) > 1 else None
        self._thaw = thaw
        self._ordinary: Callable[..., Any] | None = None

    @property
    def thawed(self) -> bool:
        """True once a call has come with other tensors, or with values too large for what was proved."""
        return self._ordinary is not None

    def unboxed(self, *args: Any) -> Sequence[Any]:
        """The results for the inputs, one by one."""
        for k, tensor, version, address in self._watched:
            given = args[k]
            if given is not tensor or given._version != version or given.data_ptr() != address:
                return self._run_ordinary(args, "a frozen parameter was replaced or written to")
        if self._pick is not None:
            out = self._run(*self._pick(args))
        else:
            out = self._run(*(args[k] for k in self._kept))
        if not self._looks:
            return out
        if not out[-1].item() <= LOOK:
            return self._run_ordinary(args, "values that are not finite, or very large")
        return out[:-1]

    def __call__(self, inputs: list[Any]) -> list[Any]:
        args = tuple(inputs)
        inputs.clear()
        out = self.unboxed(*args)
        return out if isinstance(out, list) else list(out)

    def _run_ordinary(self, args: tuple, why: str) -> Sequence[Any]:
        if self._ordinary is None:
            report("fallback", f"{why}: compiled again without freezing")
            compiled = self._thaw()
            self._ordinary = getattr(compiled, "unboxed", compiled)
        return self._ordinary(*args)


def freeze(
    gm: GraphModule, values: Mapping[int, torch.Tensor], compile_: Callable[[GraphModule], Callable[..., Any]]
) -> Callable[..., Any]:
    """Compiles `gm`, a graph of prims, with the inputs `values` (position -> tensor) as constants.

    `compile_(graph)` makes a callable of a graph; it is called again with `gm` itself when a call brings other tensors.
    """
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    plain = (torch.Tensor, torch.nn.Parameter)
    values = {k: t for k, t in values.items() if placeholders[k].users and type(t) in plain}
    if not values:
        return compile_(gm)
    frozen = with_constants(gm, values)
    looks = any(EPILOGUE in n.meta for n in frozen.graph.nodes)
    return FrozenGraph(compile_(frozen), values, len(placeholders), lambda: compile_(gm), looks)


def with_constants(gm: GraphModule, values: Mapping[int, torch.Tensor]) -> GraphModule:
    """A copy of `gm` with these inputs as constants, and everything that follows from them folded. Where convolutions
    have taken in a rectifier (`EPILOGUE` in their `meta`), it has one result more: the largest magnitude of the values
    on which that rests."""
    out = GraphModule(dict(gm.named_modules()), copy.deepcopy(gm.graph))
    known = _Constants(out)
    placeholders = [n for n in out.graph.nodes if n.op == "placeholder"]
    for k, tensor in values.items():
        known.replace(placeholders[k], tensor.detach())
    with torch.no_grad():
        for node in list(out.graph.nodes):
            _fold(node, known)
        for node in list(out.graph.nodes):
            if getattr(node.target, "name", "") == "convolution":
                _absorb_affine(node, known)
    out.graph.eliminate_dead_code()  # so that a convolution has only its true users left
    _absorb_rectifiers(out, known)
    out.graph.eliminate_dead_code()
    out.recompile()
    return out


class _Constants:
    """The nodes of a graph whose values are known."""

    def __init__(self, gm: GraphModule) -> None:
        self.gm = gm
        self.tensors: dict[Node, torch.Tensor] = {}

    def make(self, before: Node, tensor: torch.Tensor) -> Node:
        name = f"frozen_{len(self.tensors)}"
        self.gm.register_buffer(name, tensor, persistent=False)
        with self.gm.graph.inserting_before(before):
            node = self.gm.graph.get_attr(name)
        node.meta["val"] = tensor
        self.tensors[node] = tensor
        return node

    def replace(self, node: Node, tensor: torch.Tensor) -> Node:
        new = self.make(node, tensor)
        node.replace_all_uses_with(new)
        self.gm.graph.erase_node(node)
        return new


def _fold(node: Node, known: _Constants) -> None:
    """Computes a node all of whose operands are known, unless its value takes more memory than these."""
    val = node.meta.get("val")
    inputs = node.all_input_nodes
    if node.op != "call_function" or not inputs or not all(n in known.tensors for n in inputs):
        return
    tags = getattr(getattr(node.target, "spec", None), "tags", ())
    if not hasattr(val, "stride") or "random" in tags or getattr(node.target, "is_random", False):
        return
    shape = tuple(val.shape)
    if not all(isinstance(n, int) for n in shape) or math.prod(shape) > sum(known.tensors[n].numel() for n in inputs):
        return
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: known.tensors[n])
    value = node.target(*args, **kwargs)  # type: ignore[operator]
    if value.dtype != val.dtype or tuple(value.shape) != shape:
        return
    if value.stride() != tuple(val.stride()):
        value = torch.empty_strided(shape, val.stride(), dtype=val.dtype).copy_(value)
    known.replace(node, value)


def _per_channel(a: Any, known: _Constants, channels: int) -> torch.Tensor | float | None:
    """The vector that an operand adds to (or multiplies) the channels with; None if it is none."""
    if isinstance(a, (int, float)):
        return float(a)
    if not isinstance(a, Node) or getattr(a.target, "name", "") != "broadcast_in_dim":
        return None
    source, _, dims = a.args[:3]
    tensor = known.tensors.get(source)  # type: ignore[arg-type]
    if tensor is None:
        return None
    if tensor.numel() == 1:
        return tensor.double().reshape(())
    long = [d for d, n in zip(dims, tensor.shape, strict=True) if n != 1]  # type: ignore[arg-type]
    return tensor.double().reshape(-1) if long == [1] and tensor.numel() == channels else None


def _absorb_affine(conv: Node, known: _Constants) -> None:
    """Moves scales and shifts of the channels behind a convolution into its weight and bias."""
    x, weight, bias, *_ = conv.args
    tensor, start = known.tensors.get(weight), known.tensors.get(bias)  # type: ignore[arg-type]
    if tensor is None or (bias is not None and start is None) or conv.args[6] or tensor.dtype != torch.float32:
        return
    channels = tensor.shape[0]
    scale = torch.ones(channels, dtype=torch.float64)
    shift = torch.zeros(channels, dtype=torch.float64) if start is None else start.double()
    last = conv
    while len(last.users) == 1:
        user = next(iter(last.users))
        name = getattr(user.target, "name", "")
        if name not in _CHAIN or len(user.args) != 2 or user.kwargs or user.args[0] is user.args[1]:
            break
        first = user.args[0] is last
        by = _per_channel(user.args[1] if first else user.args[0], known, channels)
        if by is None or name == "div" and not first:
            break
        if name == "add":
            shift = shift + by
        elif name == "sub":
            scale, shift = (scale, shift - by) if first else (-scale, by - shift)
        elif name == "mul":
            scale, shift = scale * by, shift * by
        else:
            scale, shift = scale / by, shift / by
        last = user
    if last is conv:
        return
    wide = (tensor.double() * scale.reshape(-1, *[1] * (tensor.dim() - 1))).to(tensor.dtype)
    new_weight = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(wide)
    conv.args = (x, known.make(conv, new_weight), known.make(conv, shift.to(tensor.dtype)), *conv.args[3:])
    last.replace_all_uses_with(conv)


def _absorb_rectifiers(gm: GraphModule, known: _Constants) -> None:
    """Notes on convolutions that only ``maximum(result, 0)`` is wanted, where the result is proved to be finite."""
    found = {n: user for n in gm.graph.nodes if (user := _rectifier_of(n)) is not None}
    bounds = ValueBounds(gm, known.tensors, list(found))
    found = {conv: user for conv, user in found.items() if conv in bounds.of}
    if not found:
        return
    _return_largest(gm, bounds.looked_at)
    for conv, user in found.items():
        conv.meta[EPILOGUE] = "relu"
        user.replace_all_uses_with(conv)


def _rectifier_of(conv: Node) -> Node | None:
    if getattr(conv.target, "name", "") != "convolution" or len(conv.users) != 1:
        return None
    user = next(iter(conv.users))
    name = getattr(user.target, "name", "")
    fits = name == "maximum" and user.args[0] is conv and user.args[1] == 0 and not user.kwargs
    return user if fits else None


def _return_largest(gm: GraphModule, nodes: Sequence[Node]) -> None:
    """One result more: the largest magnitude of all these values, NaN if one of them is."""
    output = gm.graph.output_node()
    largest: Node | None = None
    with gm.graph.inserting_before(output):
        for node in nodes:
            val = node.meta["val"]
            dims = tuple(range(len(val.shape)))
            size = _call(gm, prims.abs, (node,), Value(tuple(val.shape), tuple(val.stride()), val.dtype, val.device))
            if dims:
                size = _call(gm, prims.amax, (size, dims), Value((), (), val.dtype, val.device))
            if val.dtype != torch.float32:
                args = (size, torch.float32)
                size = _call(gm, prims.convert_element_type, args, Value((), (), torch.float32, val.device))
            if largest is not None:
                size = _call(gm, prims.maximum, (largest, size), Value((), (), torch.float32, val.device))
            largest = size
    output.args = ((*output.args[0], largest),)  # type: ignore[misc]


def _call(gm: GraphModule, prim: Any, args: tuple, val: Any) -> Node:
    node = gm.graph.call_function(prim, args)
    node.meta["val"] = val
    return node


__all__ = ["FrozenGraph", "freeze", "with_constants"]
