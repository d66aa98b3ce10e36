"""Inference with weights that stay as they are: parameters become constants of the compiled graph.

What follows from them alone is computed once, batch norms (and other scales and shifts of channels) go into the
weights of the convolution before them, a rectifier behind it into the call, and weights are kept in the layout that the
library computes with (`lowering.frozen`).

A frozen graph looks at every call whether it got the tensors it was made from, as they were: when a parameter was
replaced or written to, it hands over to an ordinary graph, compiled then. Writes that leave no trace
in a tensor's version (through ``.data``, another process, another library) are not seen: that is what freezing means.

The library's rectifier makes NaN zero. It is used only where no NaN can come about unless one, or an infinity, comes
in: then every call looks at its inputs, and one that is not finite runs the ordinary graph, too.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .lowering.frozen import EPILOGUE
from .observe import report

_CHAIN = {"add", "sub", "mul", "div"}


class FrozenGraph:
    """`frozen` for the tensors it was made from, `thaw()` (compiled on first use) for any others. Boxed.

    `values`: input position -> tensor; `finite`: positions of inputs that must be finite. `thawed` tells whether the
    ordinary graph was needed.
    """

    _boxed_call = True

    def __init__(
        self,
        frozen: Callable[..., Any],
        values: Mapping[int, torch.Tensor],
        count: int,
        thaw: Callable[[], Any],
        finite: Sequence[int] = (),
    ) -> None:
        self.frozen = frozen
        self._finite = tuple(finite)
        self._run = getattr(frozen, "unboxed", frozen)
        self._watched = tuple((k, t, t._version, t.data_ptr()) for k, t in values.items())
        self._kept = tuple(k for k in range(count) if k not in values)
        self._pick = operator.itemgetter(*self._kept) if len(self._kept) > 1 else None
        self._thaw = thaw
        self._ordinary: Callable[..., Any] | None = None

    @property
    def thawed(self) -> bool:
        """True once a call has come with other tensors, or with NaN where that matters."""
        return self._ordinary is not None

    def unboxed(self, *args: Any) -> Sequence[Any]:
        """The results for the inputs, one by one."""
        for k, tensor, version, address in self._watched:
            given = args[k]
            if given is not tensor or given._version != version or given.data_ptr() != address:
                return self._run_ordinary(args, "a frozen parameter was replaced or written to")
        for k in self._finite:
            if not math.isfinite(args[k].sum(dtype=torch.float32).item()):
                return self._run_ordinary(args, "an input that is not finite")
        if self._pick is not None:
            return self._run(*self._pick(args))
        return self._run(*(args[k] for k in self._kept))

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
    finite: list[int] = []
    if any(EPILOGUE in n.meta for n in frozen.graph.nodes):
        kept = [k for k in range(len(placeholders)) if k not in values]
        finite = [k for k in kept if _is_floating(placeholders[k])]
    return FrozenGraph(compile_(frozen), values, len(placeholders), lambda: compile_(gm), finite)


def with_constants(gm: GraphModule, values: Mapping[int, torch.Tensor]) -> GraphModule:
    """A copy of `gm` with these inputs as constants, and everything that follows from them folded."""
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
    if _stays_finite(out, known):
        for node in out.graph.nodes:
            if getattr(node.target, "name", "") == "convolution":
                _absorb_rectifier(node)
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


# Finite for finite operands (but where a result is too large for its dtype). ``div`` by a number is, too.
_FINITE = frozenset(
    "convolution addmm mm bmm baddbmm add sub mul neg abs maximum minimum sum amax amin max_pool2d avg_pool2d reshape "
    "permute slice broadcast_in_dim cat concatenate restride as_strided clone convert_element_type sigmoid tanh erf "
    "where eq ne lt le gt ge".split()
)


def _is_floating(node: Node) -> bool:
    dtype = getattr(node.meta.get("val"), "dtype", None)
    return dtype is not None and dtype.is_floating_point


def _stays_finite(gm: GraphModule, known: _Constants) -> bool:
    """Whether all values of a graph are finite if its inputs are."""
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            tensor = known.tensors.get(node)
            if tensor is None or not math.isfinite(tensor.sum(dtype=torch.float64).item()):
                return False
        elif node.op == "call_function" and node.target is not operator.getitem:
            name = getattr(node.target, "name", "")
            by = node.args[1] if name == "div" and len(node.args) > 1 else None
            if name not in _FINITE and not (isinstance(by, (int, float)) and by != 0):
                return False
        numbers = [a for a in node.args if isinstance(a, float)]
        if not all(map(math.isfinite, numbers)):
            return False
    return True


def _absorb_rectifier(conv: Node) -> None:
    """Notes on a convolution that only ``maximum(result, 0)`` is wanted."""
    if len(conv.users) != 1:
        return
    user = next(iter(conv.users))
    if getattr(user.target, "name", "") == "maximum" and user.args[0] is conv and user.args[1] == 0 and not user.kwargs:
        conv.meta[EPILOGUE] = "relu"
        user.replace_all_uses_with(conv)


__all__ = ["FrozenGraph", "freeze", "with_constants"]
