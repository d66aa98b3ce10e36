"""Functionalization: reads and writes through storages and view chains.

Invariant: `read(t)` is the graph node whose value equals what eager's `t` would hold now. A write makes a new root
value by putting the written value back through the chain of views, innermost last (each view has a scatter inverse).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .errors import UnsupportedError
from .trace.tensor import Storage, TraceTensor, ViewStep

aten = torch.ops.aten
_INVERSES: dict[Any, Callable] = {}


def _inverse(*funcs: Any) -> Callable:
    def register(rule: Callable) -> Callable:
        for func in funcs:
            _INVERSES[func] = rule
        return rule

    return register


def read_step(emit: Callable, storage: Storage, step: ViewStep | None) -> Any:
    """Graph node of the current value at `step` of a chain (None: the root)."""
    if step is None:
        return storage.node
    if step.gen != storage.gen:
        parent = read_step(emit, storage, step.parent)
        step.node = _emit_view(emit, step, parent)
        step.gen = storage.gen
    return step.node


_PHYSICAL = {aten._conj.default: aten._conj_physical.default, aten._neg_view.default: aten.neg.default}
_ALIASES = {aten.detach.default, aten.alias.default}


def _emit_view(emit: Callable, step: ViewStep, parent: Any) -> Any:
    if step.func in _ALIASES:
        return parent
    if step.func in _PHYSICAL:
        # as a value a pending conjugation is the conjugated value: ops that read memory must not see the flag
        return emit(_PHYSICAL[step.func], (parent,), {}, step)
    if step.index < 0:
        return emit(step.func, (parent, *step.args), step.kwargs, step)
    func, args = single_view(step)
    return emit(func, (parent, *args), {}, step)


def single_view(step: ViewStep) -> tuple[Any, tuple]:
    """A view with one result equal to result `step.index` of a view with many."""
    func, args, kwargs, index, shape = step.func, step.args, step.kwargs, step.index, step.parent_shape
    name = func._schema.name
    dim = _argument(args, kwargs, 0 if name == "aten::unbind" else 1, "dim", 0)
    dim = dim % len(shape) if shape else 0
    if name == "aten::unbind":
        return aten.select.int, (dim, index)
    if name == "aten::split":
        size = _argument(args, kwargs, 0, "split_size", None)
        if isinstance(size, (list, tuple)):
            start = sum(size[:index])
            return aten.slice.Tensor, (dim, start, start + size[index])
        return aten.slice.Tensor, (dim, index * size, index * size + step.shape[dim])
    if name == "aten::split_with_sizes":
        sizes = _argument(args, kwargs, 0, "split_sizes", None)
        start = sum(sizes[:index])
        return aten.slice.Tensor, (dim, start, start + sizes[index])
    raise UnsupportedError(f"a write through {func}")


def _argument(args: tuple, kwargs: dict, position: int, name: str, default: Any) -> Any:
    if len(args) > position:
        return args[position]
    return kwargs.get(name, default)


def write(emit: Callable, tensor: TraceTensor, node: Any, stride: Any) -> None:
    """Let `node` (shape and dtype of `tensor`, strides `stride`) be the new value of `tensor`'s memory."""
    storage, step = tensor._s, tensor._v
    assert storage is not None
    value = node
    chain_step = step
    while chain_step is not None:
        parent = read_step(emit, storage, chain_step.parent)
        value, stride = put_back(emit, chain_step, parent, value)
        chain_step = chain_step.parent
    if stride is not None and tuple(stride) != tuple(storage.stride):
        value = emit(aten.copy.default, (storage.node, value), {}, storage)
    storage.node = value
    storage.gen += 1
    if torch.is_grad_enabled():
        storage.grad_writes = True


def put_back(emit: Callable, step: ViewStep, parent: Any, value: Any) -> tuple[Any, Any]:
    """Value of the parent after `value` is written through `step`; and its strides where they may differ, else None."""
    func, args = (step.func, step.args) if step.index < 0 else single_view(step)
    kwargs = step.kwargs if step.index < 0 else {}
    rule = _INVERSES.get(func)
    if rule is None:
        raise UnsupportedError(f"a write through {func}")
    return rule(emit, step, parent, value, args, kwargs)


class _Meta:
    """Stand-in with the metadata of a parent, for `emit`."""

    __slots__ = ("shape", "stride", "dtype", "offset")

    def __init__(self, shape: Any, stride: Any, dtype: Any) -> None:
        self.shape, self.stride, self.dtype, self.offset = shape, stride, dtype, 0


def _strides_of(node: Any) -> Any:
    return node.meta["val"].stride()


def contiguous_strides(shape: Any) -> tuple:
    """Row-major strides of a shape."""
    strides = []
    step = 1
    for size in reversed(tuple(shape)):
        strides.append(step)
        step = step * (size if not isinstance(size, int) or size > 1 else 1)
    return tuple(reversed(strides))


@_inverse(
    aten.view.default,
    aten._unsafe_view.default,
    aten._reshape_alias.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
)
def _put_reshape(emit: Callable, step: ViewStep, parent: Any, value: Any, args: tuple, kwargs: dict) -> tuple:
    strides = contiguous_strides(step.shape)
    if tuple(_strides_of(value)) != strides:
        value = emit(
            aten.clone.default,
            (value,),
            {"memory_format": torch.contiguous_format},
            _Meta(step.shape, strides, step.dtype),
        )
    shape = step.parent_shape
    strides = contiguous_strides(shape)
    return emit(aten.view.default, (value, list(shape)), {}, _Meta(shape, strides, step.parent_dtype)), strides


@_inverse(aten.permute.default)
def _put_permute(emit: Callable, step: ViewStep, parent: Any, value: Any, args: tuple, kwargs: dict) -> tuple:
    dims = [dim % len(args[0]) for dim in args[0]]
    order = [0] * len(dims)
    for i, dim in enumerate(dims):
        order[dim] = i
    stride = _strides_of(value)
    strides = tuple(stride[i] for i in order)
    return emit(aten.permute.default, (value, order), {}, _Meta(step.parent_shape, strides, step.dtype)), strides


@_inverse(aten.transpose.int, aten.t.default)
def _put_transpose(emit: Callable, step: ViewStep, parent: Any, value: Any, args: tuple, kwargs: dict) -> tuple:
    strides = list(_strides_of(value))
    if step.func is aten.t.default or not args:
        strides.reverse()
    else:
        a, b = args[0] % max(len(strides), 1), args[1] % max(len(strides), 1)
        if strides:
            strides[a], strides[b] = strides[b], strides[a]
    return (
        emit(step.func, (value, *args), kwargs, _Meta(step.parent_shape, tuple(strides), step.dtype)),
        tuple(strides),
    )


@_inverse(aten.detach.default, aten.alias.default, aten.lift_fresh.default)
def _put_alias(emit: Callable, step: ViewStep, parent: Any, value: Any, args: tuple, kwargs: dict) -> tuple:
    return value, _strides_of(value)


@_inverse(aten.view.dtype)
def _put_dtype(emit: Callable, step: ViewStep, parent: Any, value: Any, args: tuple, kwargs: dict) -> tuple:
    strides = contiguous_strides(step.shape)
    if tuple(_strides_of(value)) != strides:
        value = emit(
            aten.clone.default,
            (value,),
            {"memory_format": torch.contiguous_format},
            _Meta(step.shape, strides, step.dtype),
        )
    strides = contiguous_strides(step.parent_shape)
    return (
        emit(aten.view.dtype, (value, step.parent_dtype), {}, _Meta(step.parent_shape, strides, step.parent_dtype)),
        strides,
    )


@_inverse(aten.view_as_real.default)
def _put_real(emit: Callable, step: ViewStep, parent: Any, value: Any, args: tuple, kwargs: dict) -> tuple:
    strides = contiguous_strides(step.shape)
    if tuple(_strides_of(value)) != strides:
        value = emit(
            aten.clone.default,
            (value,),
            {"memory_format": torch.contiguous_format},
            _Meta(step.shape, strides, step.dtype),
        )
    strides = contiguous_strides(step.parent_shape)
    meta = _Meta(step.parent_shape, strides, step.parent_dtype)
    return emit(aten.view_as_complex.default, (value,), {}, meta), strides


@_inverse(aten.view_as_complex.default)
def _put_complex(emit: Callable, step: ViewStep, parent: Any, value: Any, args: tuple, kwargs: dict) -> tuple:
    strides = tuple(s * 2 for s in _strides_of(value)) + (1,)
    meta = _Meta(step.parent_shape, strides, step.parent_dtype)
    return emit(aten.view_as_real.default, (value,), {}, meta), strides


@_inverse(aten._conj.default, aten._neg_view.default)
def _put_lazy(emit: Callable, step: ViewStep, parent: Any, value: Any, args: tuple, kwargs: dict) -> tuple:
    strides = _strides_of(value)
    return emit(_PHYSICAL[step.func], (value,), {}, _Meta(step.parent_shape, strides, step.parent_dtype)), strides


@_inverse(aten.expand.default)
def _put_expand(emit: Callable, step: ViewStep, parent: Any, value: Any, args: tuple, kwargs: dict) -> tuple:
    extra = len(step.shape) - len(step.parent_shape)
    if extra == 0 and tuple(step.shape) == tuple(step.parent_shape):
        return value, _strides_of(value)
    if any(size > 1 for size in step.shape[:extra]) or tuple(step.shape[extra:]) != tuple(step.parent_shape):
        raise UnsupportedError("a write to a tensor whose elements share memory with each other")  # eager may refuse
    return _put_reshape(emit, step, parent, value, args, kwargs)


def _scatter(func: Any) -> Callable:
    def put(emit: Callable, step: ViewStep, parent: Any, value: Any, args: tuple, kwargs: dict) -> tuple:
        strides = preserved_strides(parent.meta["val"])
        node = emit(func, (parent, value, *args), kwargs, _Meta(step.parent_shape, strides, step.parent_dtype))
        return node, strides

    return put


_INVERSES[aten.slice.Tensor] = _scatter(aten.slice_scatter.default)
_INVERSES[aten.select.int] = _scatter(aten.select_scatter.default)
_INVERSES[aten.diagonal.default] = _scatter(aten.diagonal_scatter.default)


@_inverse(aten.as_strided.default)
def _put_as_strided(emit: Callable, step: ViewStep, parent: Any, value: Any, args: tuple, kwargs: dict) -> tuple:
    from .wrappers.dedup import strides_overlap

    if strides_overlap(step.shape, step.stride):
        raise UnsupportedError("a write to a tensor whose elements share memory with each other")
    strides = tuple(parent.meta["val"].stride())
    node = emit(
        aten.as_strided_scatter.default,
        (parent, value, list(step.shape), list(step.stride), step.offset),
        {},
        _Meta(step.parent_shape, strides, step.parent_dtype),
    )
    return node, strides


def preserved_strides(val: Any) -> tuple:
    """Strides of `val.clone()` (memory format preserved): its own if dense and non-overlapping, else packed in
    order."""
    from .trace.rules import elementwise_strides

    return tuple(elementwise_strides(tuple(val.shape), [(tuple(val.shape), tuple(val.stride()))]))
