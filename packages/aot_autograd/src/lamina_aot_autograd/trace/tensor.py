"""The trace tensor: metadata of an eager tensor, no data, and a place in the functional graph.

A trace tensor names a storage and a chain of views from the storage's root value. The storage names the graph node of
the root's current value and a generation that every write raises. So a write is one new root value, and a view whose
cached node is of an older generation is computed again when it is read (see `functionalize`).
"""

from __future__ import annotations

from typing import Any

import torch

from .._torch import disabled_torch_function, make_wrapper


class Storage:
    """One memory block of the traced program.

    node: graph node of the root's current value. gen: number of writes so far. shape, stride: those of the root.
    grad_writes: True when a write happened in grad mode. input_index: position of the input it belongs to, or -1.
    real: the real tensor behind a constant, else None.
    """

    __slots__ = (
        "node",
        "gen",
        "shape",
        "stride",
        "dtype",
        "device",
        "offset",
        "input_index",
        "real",
        "root",
        "grad_writes",
    )

    def __init__(self, node: Any, shape: Any, stride: Any, dtype: Any, device: Any, offset: Any = 0) -> None:
        self.node = node
        self.gen = 0
        self.shape = shape
        self.stride = stride
        self.dtype = dtype
        self.device = device
        self.offset = offset
        self.input_index = -1
        self.real = None
        self.root = None
        self.grad_writes = False


class ViewStep:
    """One view: `func(parent, *args, **kwargs)`, its result `index` when there are many.

    node, gen: cached graph node of the view's value and the storage generation that it belongs to.
    shape, stride, offset, dtype: metadata of the result. grad_mode: whether autograd recorded the view.
    """

    __slots__ = (
        "parent",
        "func",
        "args",
        "kwargs",
        "index",
        "node",
        "gen",
        "shape",
        "stride",
        "dtype",
        "offset",
        "parent_shape",
        "parent_dtype",
        "grad_mode",
        "own_counter",
    )

    def __init__(
        self,
        parent: ViewStep | None,
        func: Any,
        args: tuple,
        kwargs: dict,
        index: int,
        parent_shape: Any,
        parent_dtype: Any,
        grad_mode: bool,
    ) -> None:
        self.parent = parent
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.index = index
        self.parent_shape = parent_shape
        self.parent_dtype = parent_dtype
        self.grad_mode = grad_mode
        self.own_counter = False  # `tensor.data`
        self.node = None
        self.gen = -1


class TraceTensor(torch.Tensor):
    """A tensor with metadata and no data. `_s`: its Storage (None: a bare value that is not part of a trace).
    `_v`: its last ViewStep, None for the root."""

    __slots__ = ("_s", "_v")
    __torch_function__ = disabled_torch_function
    _s: Storage | None
    _v: ViewStep | None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        from .fallback import call_on_fakes

        return call_on_fakes(func, args, kwargs or {})

    @property
    def data(self) -> Any:
        """`tensor.data`: an alias outside autograd with a version counter of its own."""
        alias = torch.Tensor.data.__get__(self)
        if alias._v is not None:
            alias._v.own_counter = True
        return alias

    @data.setter
    def data(self, value: Any) -> None:
        from ..errors import UnsupportedError

        raise UnsupportedError("assignment to .data")

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"TraceTensor({tuple(self.shape)}, stride={self.stride()}, {self.dtype}, {self.device})"

    def tolist(self) -> Any:
        from ..errors import DataDependentError

        raise DataDependentError("tolist() reads values")


def make_value(
    shape: Any, stride: Any, dtype: torch.dtype, device: torch.device, requires_grad: bool = False, offset: Any = 0
) -> TraceTensor:
    """A bare value for `node.meta["val"]`: right metadata, no part in any trace."""
    if offset:
        tensor = make_wrapper(
            TraceTensor,
            shape,
            strides=stride,
            storage_offset=offset,
            dtype=dtype,
            device=device,
            requires_grad=requires_grad,
        )
    else:
        tensor = make_wrapper(
            TraceTensor, shape, strides=stride, dtype=dtype, device=device, requires_grad=requires_grad
        )
    tensor._s = None
    tensor._v = None
    return tensor


def make_root(storage: Storage, requires_grad: bool = False) -> TraceTensor:
    """A trace tensor that is the root of `storage`."""
    tensor = make_value(storage.shape, storage.stride, storage.dtype, storage.device, requires_grad, storage.offset)
    tensor._s = storage
    return tensor
