"""``spell_in_aten(gm)``: write a graph of prims in ATen overloads again (target "core_aten"), prefering torch's core
set.

One row a prim below: most are one overload; views and reductions take two or three. Extern prims become their overload.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx

from . import strides
from .fallback_meta import meta_by_torch
from .shape_rules import RULES
from .spec import Prim, TensorMeta
from .value import Value

aten = torch.ops.aten


class _Writer:
    """Inserts ATen nodes before one prim node; values come from the shape rules."""

    def __init__(self, graph: fx.Graph, node: fx.Node) -> None:
        self.graph = graph
        self.node = node

    def __call__(self, op: Any, *args: Any, **kwargs: Any) -> fx.Node:
        new = self.graph.call_function(op, args, kwargs)
        new.meta.update({k: v for k, v in self.node.meta.items() if k != "val"})
        vals, kwvals = fx.node.map_aggregate(
            (args, kwargs), lambda x: x.meta.get("val") if isinstance(x, fx.Node) else x
        )
        rule = RULES.get(op)
        try:
            meta = rule(vals, kwvals) if rule is not None else meta_by_torch(op, vals, kwvals)
        except NotImplementedError:
            meta = meta_by_torch(op, vals, kwvals)
        new.meta["val"] = _value(meta)
        return new

    def tensor(self, x: Any, like: fx.Node) -> fx.Node:
        """A Python number as a 0-dim tensor of the type of ``like``."""
        if isinstance(x, fx.Node) and hasattr(x.meta.get("val"), "dtype"):
            return x
        val = like.meta["val"]
        return self(aten.full.default, [], x, dtype=val.dtype, device=val.device)


def _value(meta: Any) -> Any:
    if isinstance(meta, TensorMeta):
        return Value(*meta)
    if isinstance(meta, tuple):
        return tuple(_value(m) for m in meta)
    return meta


def _shape(x: fx.Node) -> tuple[Any, ...]:
    return tuple(x.meta["val"].shape)


Spell = Callable[..., Any]
SPELL: dict[str, Spell] = {}


def _spells(name: str) -> Callable[[Spell], Spell]:
    def register(fn: Spell) -> Spell:
        SPELL[name] = fn
        return fn

    return register


def _is_node(x: Any) -> bool:
    return isinstance(x, fx.Node)


def _binary(name: str, scalar: bool, commutes: bool) -> Spell:
    packet = getattr(aten, name)
    overloads = packet.overloads()
    if "Tensor" in overloads:
        both = packet.Tensor
    else:
        both = packet.Tensor_Tensor if "Tensor_Tensor" in overloads else packet.default

    def run(w: _Writer, a: Any, b: Any) -> Any:
        if _is_node(a) and _is_node(b):
            return w(both, a, b)
        if not _is_node(a) and commutes:
            a, b = b, a
        if _is_node(a) and scalar:
            return w(packet.Tensor_Scalar if name == "pow" else packet.Scalar, a, b)
        like = a if _is_node(a) else b
        return w(both, w.tensor(a, like), w.tensor(b, like))

    return run


for _name in ("add", "mul", "eq", "ne", "bitwise_and", "bitwise_or", "bitwise_xor"):
    SPELL[_name] = _binary(_name, True, True)
for _name in ("sub", "div", "lt", "le", "gt", "ge", "remainder", "fmod", "pow"):
    SPELL[_name] = _binary(_name, True, False)
for _name in ("atan2", "hypot", "nextafter", "fmax", "fmin", "gcd", "lcm", "igamma", "igammac"):
    SPELL[_name] = _binary(_name, False, False)
SPELL["shift_left"] = _binary("bitwise_left_shift", False, False)
SPELL["shift_right"] = _binary("bitwise_right_shift", False, False)
SPELL["copysign"] = _binary("copysign", True, False)


def _rounded(mode: str) -> Spell:
    def run(w: _Writer, a: Any, b: Any) -> Any:
        like = a if _is_node(a) else b
        return w(aten.div.Tensor_mode, w.tensor(a, like), w.tensor(b, like), rounding_mode=mode)

    return run


SPELL["div_floor"], SPELL["div_trunc"] = _rounded("floor"), _rounded("trunc")


def _bound(name: str, position: int) -> Spell:
    def run(w: _Writer, a: Any, b: Any) -> Any:
        if _is_node(a) and _is_node(b):
            return w(getattr(aten, name).default, a, b)
        x, n = (a, b) if _is_node(a) else (b, a)
        return w(aten.clamp.default, x, n) if position == 0 else w(aten.clamp.default, x, None, n)

    return run


SPELL["maximum"], SPELL["minimum"] = _bound("maximum", 0), _bound("minimum", 1)
SPELL["where"] = lambda w, c, a, b: w(
    aten.where.self, c, w.tensor(a, b if _is_node(b) else a), w.tensor(b, a if _is_node(a) else b)
)
SPELL["convert_element_type"] = lambda w, x, dtype: w(aten._to_copy.default, x, dtype=dtype)
SPELL["bitcast"] = lambda w, x, dtype: w(aten.view.dtype, x, dtype)
SPELL["conj"] = lambda w, x: w(aten._conj_physical.default, x)
SPELL["permute"] = lambda w, x, dims: w(aten.permute.default, x, list(dims))
SPELL["flip"] = lambda w, x, dims: w(aten.flip.default, x, list(dims))
SPELL["unfold"] = lambda w, *a: w(aten.unfold.default, *a)
SPELL["as_strided"] = lambda w, x, size, stride, offset=None: w(
    aten.as_strided.default, x, list(size), list(stride), offset
)
SPELL["cat"] = lambda w, tensors, dim: w(aten.cat.default, list(tensors), dim)
SPELL["full"] = lambda w, shape, value, dtype, device: w(
    aten.full.default, list(shape), value, dtype=dtype, device=device
)
SPELL["empty_strided"] = lambda w, shape, stride, dtype, device: w(
    aten.empty_strided.default, list(shape), list(stride), dtype=dtype, device=device
)


@_spells("iota")
def _iota(w: _Writer, length: Any, start: Any, step: Any, dtype: Any, device: Any) -> Any:
    end = start + length * step if all(type(n) is int for n in (start, length, step)) else None
    if end is None:
        if step != 1 or start != 0:
            raise NotImplementedError
        end = length
    return w(aten.arange.start_step, start, end, step, dtype=dtype, device=device)


@_spells("broadcast_in_dim")
def _broadcast(w: _Writer, x: fx.Node, shape: Any, dims: Any) -> Any:
    have = 0
    for d in range(len(shape)):
        if d in dims:
            have += 1
        elif have < len(dims) or len(dims) == 0 or d > max(dims):
            x = w(aten.unsqueeze.default, x, d)
    want = tuple(shape)
    return x if _shape(x) == want else w(aten.expand.default, x, list(want))


@_spells("reshape")
def _reshape(w: _Writer, x: fx.Node, shape: Any) -> Any:
    val = x.meta["val"]
    if strides.view(val.shape, val.stride(), tuple(_plain(n) for n in shape)) is None:
        x = w(aten.clone.default, x, memory_format=torch.contiguous_format)
    return w(aten.view.default, x, list(shape))


def _plain(n: Any) -> Any:
    return n.meta["val"] if isinstance(n, fx.Node) else n


@_spells("slice")
def _slice(w: _Writer, x: fx.Node, starts: Any, limits: Any, steps: Any) -> Any:
    for d, (lo, hi, step) in enumerate(zip(starts, limits, steps)):
        n = _shape(x)[d]
        if not (
            lo == 0
            and step == 1
            and _plain(hi) is n
            or (type(hi) is int and type(n) is int and hi == n and lo == 0 and step == 1)
        ):
            x = w(aten.slice.Tensor, x, d, lo, hi, step)
    return x


@_spells("restride")
def _restride(w: _Writer, x: fx.Node, stride: Any) -> Any:
    rank = len(stride)
    order = sorted(range(rank), key=lambda d: (-stride[d], d))
    if order == list(range(rank)):
        return w(aten.clone.default, x, memory_format=torch.contiguous_format)
    y = w(aten.clone.default, w(aten.permute.default, x, order), memory_format=torch.contiguous_format)
    return w(aten.permute.default, y, [order.index(d) for d in range(rank)])


@_spells("pad")
def _pad(w: _Writer, x: fx.Node, value: Any, low: Any, high: Any) -> Any:
    flat = [n for pair in zip(reversed(list(low)), reversed(list(high))) for n in pair]
    return w(aten.constant_pad_nd.default, x, flat, value)


SPELL["sum"] = lambda w, x, dims, dtype: w(aten.sum.dim_IntList, x, list(dims), dtype=dtype)
SPELL["amax"] = lambda w, x, dims: w(aten.amax.default, x, list(dims))
SPELL["amin"] = lambda w, x, dims: w(aten.amin.default, x, list(dims))
SPELL["argmax"] = lambda w, x, dim: w(aten.argmax.default, x, dim)
SPELL["argmin"] = lambda w, x, dim: w(aten.argmin.default, x, dim)
SPELL["cumsum"] = lambda w, x, dim: w(aten.cumsum.default, x, dim, dtype=x.meta["val"].dtype)
SPELL["cumprod"] = lambda w, x, dim: w(aten.cumprod.default, x, dim, dtype=x.meta["val"].dtype)


@_spells("prod")
def _prod(w: _Writer, x: fx.Node, dims: Any, dtype: Any) -> Any:
    for d in sorted(dims, reverse=True):
        x = w(aten.prod.dim_int, x, d, dtype=dtype)
    return x if dims else w(aten._to_copy.default, x, dtype=dtype)


def _truth(negate: bool) -> Spell:
    def run(w: _Writer, x: fx.Node, dims: Any) -> Any:
        y = w(aten.logical_not.default, x) if negate else w(aten.ne.Scalar, x, 0)
        if dims:
            y = w(aten.any.dims, y, list(dims))
        return w(aten.logical_not.default, y) if negate else y

    return run


SPELL["any"], SPELL["all"] = _truth(False), _truth(True)
SPELL["var_mean"] = lambda w, x, dims, correction: (
    w(aten.var.correction, x, list(dims), correction=correction),
    w(aten.mean.dim, x, list(dims)),
)
SPELL["gather"] = lambda w, x, dim, index: w(aten.gather.default, x, dim, index)
SPELL["index_select"] = lambda w, x, dim, index: w(aten.index_select.default, x, dim, index)
SPELL["index"] = lambda w, x, indices: w(aten.index.Tensor, x, list(indices))
SPELL["take_rows"] = lambda w, x, index: (
    w(aten.embedding.default, x, index) if len(_shape(x)) == 2 else w(aten.index.Tensor, x, [index])
)
SPELL["index_put"] = lambda w, x, indices, values, acc: w(aten.index_put.default, x, list(indices), values, acc)
SPELL["scatter"] = lambda w, x, dim, index, src: w(
    aten.scatter.src if _is_node(src) else aten.scatter.value, x, dim, index, src
)
SPELL["scatter_add"] = lambda w, x, dim, index, src: w(aten.scatter_add.default, x, dim, index, src)
SPELL["scatter_reduce"] = lambda w, x, dim, index, src, reduce, include_self: w(
    aten.scatter_reduce.two, x, dim, index, src, reduce, include_self=include_self
)
SPELL["index_add"] = lambda w, x, dim, index, src: w(aten.index_add.default, x, dim, index, src)
SPELL["zeta"] = _binary("special_zeta", False, False)
for _name in ("i0e", "i1", "i1e", "ndtri", "log_ndtr"):
    SPELL[_name] = lambda w, *a, _op="special_" + _name: w(getattr(aten, _op).default, *a)


def spell_in_aten(gm: fx.GraphModule) -> fx.GraphModule:
    """Replace every prim of ``gm`` by ATen overloads, in place; values, strides of values and order of random ops
    stay.
    """
    graph = gm.graph
    for node in list(graph.nodes):
        target = node.target
        if node.op != "call_function" or not isinstance(target, Prim):
            continue
        if target.spec.aten is not None:
            node.target = target.spec.aten
            continue
        with graph.inserting_before(node):
            spell = SPELL.get(target.name)
            w = _Writer(graph, node)
            try:
                new = (
                    spell(w, *node.args, **node.kwargs) if spell else w(getattr(aten, target.name).default, *node.args)
                )
            except NotImplementedError:
                continue
        if isinstance(new, tuple):
            for user in list(node.users):
                if user.target is operator.getitem:
                    user.replace_all_uses_with(new[user.args[1]])
                    graph.erase_node(user)
            graph.erase_node(node)
            graph_dead = [n for n in new if not n.users]
            for n in graph_dead:
                graph.erase_node(n)
            continue
        new.meta["val"] = node.meta["val"] if new is not node.args[0] else new.meta["val"]
        node.replace_all_uses_with(new)
        graph.erase_node(node)
    gm.recompile()
    return gm
