"""Operators that the tracer treats one by one: `SPECIAL[overload](tracer, func, args, kwargs)`.

A handler may return NotImplemented to leave the call to the general path.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from .._torch import current_autograd_node, increment_version
from ..errors import DataDependentError, UnsupportedError
from .overlap import refuse_overlap
from .sizes import size_hint
from .tensor import TraceTensor, make_value

aten = torch.ops.aten
SPECIAL: dict[Any, Callable] = {}


def _special(*names: str) -> Callable:
    def register(handler: Callable) -> Callable:
        for name in names:
            packet_name, _, overload = name.partition(".")
            packet = getattr(aten, packet_name, None)
            if packet is None:
                continue
            for each in [overload] if overload else packet.overloads():
                try:
                    SPECIAL[getattr(packet, each)] = handler
                except AttributeError:
                    continue
        return handler

    return register


@_special("_local_scalar_dense", "item", "equal", "is_nonzero")
def _reads_a_value(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    raise DataDependentError(f"{func} reads the value of a tensor")


@_special("_to_copy.default", "clone.default", "detach.default")
def _number(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """Functional transforms unpack a scalar operand to a Python number before they convert it: a 0-dim tensor then."""
    value = args[0]
    if isinstance(value, torch.Tensor) or not isinstance(value, (bool, int, float, complex)):
        return NotImplemented
    natural = torch.result_type(torch.empty((), dtype=torch.bool, device="meta"), value)
    if isinstance(value, (float, complex)):
        natural = torch.float64 if isinstance(value, float) else torch.complex128
    device = kwargs.get("device") or torch.device("cpu")
    with tracer:
        return aten.full.default([], value, dtype=kwargs.get("dtype") or natural, device=device)


# Position of the running statistics and of the flag that says whether they are used, or None: never.
_STATISTICS = {
    aten.native_batch_norm_backward.default: (3, 4, 7),
    aten.cudnn_batch_norm_backward.default: (3, 4, None),
    aten.batch_norm_backward.default: (3, 4, 7),
}


@_special("native_batch_norm_backward.default", "cudnn_batch_norm_backward.default", "batch_norm_backward.default")
def _unused_statistics(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """In training the backward is given the running statistics and does not look at them: they need not be saved."""
    mean, var, flag = _STATISTICS[func]
    if kwargs or args[mean] is None or (flag is not None and args[flag] is not True):
        return NotImplemented
    args = tuple(None if i in (mean, var) else a for i, a in enumerate(args))
    return tracer.__torch_dispatch__(func, (), args, {})


# Autograd nodes that share a gradient out among all elements equal to the result.
_SHARED_OUT = frozenset({"MaxBackward1", "MinBackward1", "MedianBackward0", "NanmedianBackward0"})


@_special("mul.Tensor")
def _shared_out(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """The gradient of `max()`, `min()`, `median()` of a whole tensor: on the CPU eager writes it into zeros, which are
    contiguous and stay 0 beside an infinite gradient; for tensors without data it multiplies by the mask."""
    if tracer.phase != "backward":
        return NotImplemented
    mask, share = args
    if getattr(mask, "dtype", None) is not torch.bool or mask.device.type != "cpu":
        return NotImplemented
    node = current_autograd_node()
    if node is None or node.name() not in _SHARED_OUT:
        return NotImplemented
    with tracer:
        zeros = aten.zeros.default(list(mask.shape), dtype=share.dtype, device=mask.device)
        return aten.masked_fill.Tensor(zeros, mask, share)


@_special("_efficientzerotensor")
def _zeros_without_storage(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """Zeros of derivatives that have no memory: generated code needs some."""
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    with tracer:
        return aten.full.default(list(args[0]), 0, dtype=dtype, device=kwargs.get("device") or torch.device("cpu"))


@_special("_foreach_addcdiv_.Tensor", "_foreach_addcmul_.Tensor", "_foreach_addcdiv.Tensor", "_foreach_addcmul.Tensor")
def _foreach_with_factors(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """Factors in a tensor: eager reads them as numbers, the graph multiplies by them."""
    targets, first, second, factors = args
    name = func._schema.name.split("::")[1]
    combine = aten.div.Tensor if "addcdiv" in name else aten.mul.Tensor
    made = []
    with tracer:
        for i, (target, a, b) in enumerate(zip(targets, first, second, strict=True)):
            scaled = aten.mul.Tensor(combine(a, b), aten.select.int(factors, 0, i))
            made.append((aten.add_ if name.endswith("_") else aten.add).Tensor(target, scaled))
    if name.endswith("_"):
        increment_version(targets)
    return None if name.endswith("_") else made


@_special("set_", "resize_", "resize_as_", "requires_grad_", "rename_", "_resize_output_", "set_data")
def _changes_storage(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    raise UnsupportedError(f"{func} changes the storage of a tensor")


@_special("lift_fresh.default", "lift.default", "lift_fresh_copy.default")
def _lift(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    value = args[0]
    if type(value) is TraceTensor:
        return NotImplemented
    if value.ndim == 0 and value.device.type == "cpu" and value.dtype is not torch.bool and not value.is_complex():
        meta = ((), (), value.dtype, value.device)
        node = tracer.record(
            "full",
            aten.full.default,
            ([], value.item()),
            {"dtype": value.dtype, "device": value.device},
            make_value(*meta),
        )
        return tracer.fresh(node, meta)
    root = tracer.constant(value)
    meta = (tuple(value.shape), value.stride(), value.dtype, value.device)
    node = tracer.record("clone", aten.clone.default, (tracer.read(root),), {}, make_value(*meta))
    return tracer.fresh(node, meta)


@_special("copy_.default")
def _copy(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    target, source = args[0], args[1]
    if type(target) is not TraceTensor:
        target = tracer.constant(target)
    if isinstance(source, torch.Tensor) and type(source) is not TraceTensor:
        source = tracer.constant(source)
    refuse_overlap(target, (source,))
    meta = (tuple(target.shape), target.stride(), target.dtype, target.device)
    same = (
        source.shape == target.shape
        and source.dtype is target.dtype
        and source.device == target.device
        and source.stride() == target.stride()
        and source._v is None
        and source._s is not target._s  # what is read after a write is not what was there before, for the runtime
    )
    if same:
        # the value itself can stand in: a functional graph never writes to it
        node = tracer.read(source)
    else:
        from .rules import broadcast

        if broadcast(tuple(target.shape), tuple(source.shape)) != tuple(target.shape):
            raise RuntimeError(
                f"The size of tensor a ({target.shape}) must match the size of tensor b ({source.shape})"
            )
        from ..functionalize import preserved_strides

        strides = preserved_strides(target)
        meta = (meta[0], strides, meta[2], meta[3])
        node = tracer.record(
            "copy", aten.copy.default, (tracer.read(target), tracer.read(source)), {}, make_value(*meta)
        )
    tracer.store(target, node, meta)
    return args[0]


@_special("native_batch_norm.default", "_native_batch_norm_legit.default")
def _batch_norm(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    x, weight, bias, mean, var, training, momentum, eps = args
    from . import op_info

    if not training or (mean is None) != (var is None):
        return (
            NotImplemented
            if func is aten.native_batch_norm.default
            else tracer.run_pure(op_info.lookup(aten.native_batch_norm.default), args, kwargs)
        )
    if mean is None:
        return NotImplemented
    results = tracer.run_pure(op_info.lookup(aten._native_batch_norm_legit_functional.default), args, {})
    for target, value in ((mean, results[3]), (var, results[4])):
        if type(target) is not TraceTensor:
            target = tracer.constant(target)
        tracer.store(target, tracer.read(value), (tuple(value.shape), value.stride(), value.dtype, value.device))
    return results[:3]


@_special("cudnn_batch_norm.default")
def _cudnn_batch_norm(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    out, save_mean, save_var = (
        _batch_norm(tracer, aten.native_batch_norm.default, args, kwargs)
        if args[5]
        else _run(tracer, aten.native_batch_norm.default, args)
    )
    meta = ((0,), (1,), torch.uint8, args[0].device)
    node = tracer.record(
        "empty", aten.empty.memory_format, ([0],), {"dtype": torch.uint8, "device": meta[3]}, make_value(*meta)
    )
    return out, save_mean, save_var, tracer.fresh(node, meta)


def _run(tracer: Any, func: Any, args: tuple) -> Any:
    from . import op_info

    return tracer.run_pure(op_info.lookup(func), args, {})


@_special("cudnn_batch_norm_backward.default")
def _cudnn_batch_norm_backward(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    x, grad, weight, mean, var, save_mean, save_var, eps = args[:8]
    if save_mean is None or not save_mean.shape[0]:
        return NotImplemented
    return _run(
        tracer,
        aten.native_batch_norm_backward.default,
        (grad, x, weight, mean, var, save_mean, save_var, True, eps, [True, True, True]),
    )


@_special("detach.default", "alias.default")
def _detach(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """An alias needs no graph node: the view step keeps it apart for autograd and for outputs."""
    from .tensor import ViewStep

    parent = args[0]
    if type(parent) is not TraceTensor:
        return NotImplemented
    storage = parent._s
    step = ViewStep(parent._v, func, (), {}, -1, tuple(parent.shape), parent.dtype, torch.is_grad_enabled())
    step.node, step.gen = tracer.read(parent), storage.gen
    return tracer._view_result(storage, step, parent, parent.storage_offset())


@_special("bernoulli_.float")
def _bernoulli_in_memory_order(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """Written in place, draws fall in the order of memory (dropout of a transposed tensor); the functional operator
    gives a contiguous result, drawn in the order of indices. So it draws for the dimensions as they lie in memory."""
    target = args[0]
    if type(target) is not TraceTensor or kwargs.get("generator") is not None:
        return NotImplemented
    if target.is_contiguous():
        return NotImplemented
    from ..functionalize import preserved_strides

    strides = [size_hint(n) for n in preserved_strides(target)]
    sizes = [size_hint(n) for n in target.shape]
    order = sorted(range(len(strides)), key=lambda d: -strides[d] if sizes[d] != 1 else -math.inf)
    back = [order.index(d) for d in range(len(order))]
    p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)  # the default is left out
    with tracer:
        drawn = aten.permute.default(aten.bernoulli.p(aten.permute.default(target, order), p), back)
    meta = (tuple(target.shape), drawn.stride(), target.dtype, target.device)
    tracer.store(target, tracer.read(drawn), meta)
    return target


@_special("_foreach_copy_.default")
def _foreach_copy(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    for target, source in zip(args[0], args[1], strict=True):
        _copy(tracer, aten.copy_.default, (target, source), {})
    increment_version(args[0])
    return None


@_special("rrelu_with_noise.default")
def _rrelu(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    functional = getattr(aten, "rrelu_with_noise_functional", None)
    if functional is None:
        return NotImplemented
    from . import op_info

    out, noise = tracer.run_pure(op_info.lookup(functional.default), args, kwargs)
    target = args[1]
    tracer.store(target, tracer.read(noise), (tuple(noise.shape), noise.stride(), noise.dtype, noise.device))
    return out


@_special("size.default", "stride.default")
def _plain_sizes(tracer: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """C++ code that cannot do with symbols asks for plain numbers: the symbols are held at their present values."""
    values = args[0].shape if func is aten.size.default else args[0].stride()
    return [int(n) for n in values]
