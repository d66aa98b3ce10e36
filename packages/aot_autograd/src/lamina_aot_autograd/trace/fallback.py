"""Metadata of an op's results when no shape rule has it: plain meta tensors first, torch's fake tensors last."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from .. import _torch as private
from ..errors import DataDependentError, TraceError
from .tensor import TraceTensor, make_value

_META = torch.device("meta")
_data_dependent = {
    "aten::_local_scalar_dense",
    "aten::item",
    "aten::nonzero",
    "aten::equal",
    "aten::masked_select",
    "aten::unique_dim",
    "aten::_unique2",
    "aten::_unique",
    "aten::unique_consecutive",
    "aten::unique_dim_consecutive",
    "aten::repeat_interleave",
    "aten::is_nonzero",
    "aten::bincount",
    "aten::allclose",
    "aten::_assert_async",
}

# Ops whose results have other metadata on other devices: fake tensors carry the device, meta tensors do not.
_device_dependent = {
    "aten::_fft_c2c",
    "aten::_fft_r2c",
    "aten::_fft_c2r",
    "aten::linalg_eig",
    "aten::_linalg_svd",
    "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only",
    "aten::median",
    "aten::nanmedian",
    "aten::mode",
    "aten::pixel_shuffle",
    "aten::histc",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_mm",
    "aten::_scaled_mm_v2",
    "aten::reflection_pad2d",
    "aten::replication_pad2d",
    "aten::native_batch_norm",
    "aten::native_group_norm",
    "aten::native_layer_norm",
    "aten::_native_batch_norm_legit",
    "aten::_native_batch_norm_legit_functional",
    "aten::convolution",
    "aten::convolution_backward",
}


def to_meta(value: Any) -> Any:
    """The same argument with trace tensors as meta tensors and devices as `meta`."""
    if isinstance(value, torch.Tensor):
        if value.device.type == "meta" and type(value) is torch.Tensor:
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=_META)
    kind = type(value)
    if kind is list or kind is tuple:
        return kind([to_meta(item) for item in value])
    if kind is torch.device:
        return _META
    if isinstance(value, (list, tuple)):
        return [to_meta(item) for item in value]
    return value


def result_device(args: Any, kwargs: dict) -> torch.device:
    """Device of an op's results: the `device` argument, else the tensors' (a 0-dim CPU tensor yields to any other)."""
    device = kwargs.get("device")
    if device is not None:
        return normal_device(device)
    found = _first_device(args) or _first_device(tuple(kwargs.values()))
    if found is None:
        return torch.get_default_device() if hasattr(torch, "get_default_device") else torch.device("cpu")
    return found


def normal_device(device: Any) -> torch.device:
    """A torch.device with its index filled in where tensors of that device carry one."""
    device = torch.device(device)
    if device.index is None and device.type == "cuda":
        return torch.device("cuda", torch.cuda.current_device() if torch.cuda.is_available() else 0)
    return device


def _first_device(args: Any) -> torch.device | None:
    weak = None
    for value in args:
        if isinstance(value, torch.Tensor):
            device = value.device
            if device.type == "cpu" and not value.shape:
                weak = weak or device
            else:
                return device
        elif isinstance(value, (list, tuple)):
            found = _first_device(value)
            if found is not None:
                if found.type != "cpu":
                    return found
                weak = weak or found
        elif isinstance(value, torch.device):
            return normal_device(value)
    return weak


def meta_results(func: Any, args: tuple, kwargs: dict) -> Any:
    """Run `func` on meta tensors; its result holds meta tensors. Falls back to FakeTensorMode where meta has no
    kernel."""
    if func._schema.name in _data_dependent:
        raise DataDependentError(f"the result of {func} depends on values")
    env = _shape_env(args) or (_shape_env(tuple(kwargs.values())) if kwargs else None)
    if env is not None:
        return _symbolic_results(func, args, kwargs, env)
    if func._schema.name in _device_dependent:
        return _fake_results(func, args, kwargs, env)
    meta_args = [to_meta(item) for item in args]
    meta_kwargs = {key: to_meta(item) for key, item in kwargs.items()} if kwargs else {}
    generator = meta_kwargs.get("generator")
    if generator is not None:
        meta_kwargs["generator"] = None
    try:
        return func(*meta_args, **meta_kwargs)
    except NotImplementedError:
        return _fake_results(func, args, kwargs)


class _Unkeyed(Exception):
    """Private: arguments that cannot be compared."""


def _symbolic_results(func: Any, args: tuple, kwargs: dict, env: Any) -> Any:
    """Fake tensors' answer, asked once for equal metadata: symbolic arithmetic costs milliseconds an op, and layers
    repeat. Two sizes are equal when their expressions are, as the shape environment knows them now; what the first
    answer assumed about them stays assumed."""
    if torch.Tag.dynamic_output_shape in func.tags:
        before = _unknown_symbols((args, tuple(kwargs.values())))
        result = _fake_results(func, args, kwargs, env)
        if _unknown_symbols(result) - before:
            # What follows depends on whether the size is 0 or 1 (strides, broadcasting): only the run can say.
            raise DataDependentError(f"the result of {func} depends on values")
        return result
    if func._schema.is_mutable:
        return _fake_results(func, args, kwargs, env)
    try:
        key = (func, _key(args), _key(tuple(kwargs.items())))
        known = env.__dict__.setdefault("_lamina_results", {})  # lives as long as its symbols
        found = known.get(key)
    except (_Unkeyed, TypeError):
        return _fake_results(func, args, kwargs, env)
    if found is None:
        found = known[key] = _fake_results(func, args, kwargs, env)
    return found


def _unknown_symbols(x: Any) -> set[Any]:
    """The symbols in a structure of values that stand for sizes only the run knows."""
    if isinstance(x, torch.Tensor):
        return _unknown_symbols((*x.shape, *x.stride()))
    if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        symbols = getattr(x.node.expr, "free_symbols", ())
        return {s for s in symbols if str(s).startswith(("u", "zu"))}
    if isinstance(x, (tuple, list)):
        return set().union(*map(_unknown_symbols, x))
    return set()


def _key(x: Any) -> Any:
    kind = type(x)
    if kind is torch.SymInt:
        return (kind, x.node.expr)
    if kind in (int, bool, float, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format):
        return (kind, x)
    if isinstance(x, torch.Tensor):
        sizes = (*x.shape, *x.stride(), x.storage_offset())
        return (x.dim(), *map(_key, sizes), x.dtype, x.device, x.layout, type(x) is TraceTensor)
    if isinstance(x, (tuple, list)):
        return (kind, *map(_key, x))
    raise _Unkeyed


def _shape_env(args: Any) -> Any:
    """The ShapeEnv of a symbolic size among the arguments, or None."""
    for value in args:
        if isinstance(value, torch.Tensor):
            for size in (*value.shape, *value.stride(), value.storage_offset()):
                if isinstance(size, torch.SymInt):
                    return size.node.shape_env
        elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value.node.shape_env
        elif isinstance(value, (list, tuple)):
            found = _shape_env(value)
            if found is not None:
                return found
    return None


_plain_mode: Any = None
_modes: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _mode_for(env: Any) -> Any:
    global _plain_mode
    from torch._subclasses.fake_tensor import FakeTensorMode

    if env is None:
        if _plain_mode is None:
            _plain_mode = FakeTensorMode(allow_non_fake_inputs=True)
        return _plain_mode
    if env not in _modes:
        _modes[env] = FakeTensorMode(allow_non_fake_inputs=True, shape_env=env)
    return _modes[env]


def _fake_results(func: Any, args: tuple, kwargs: dict, env: Any = None) -> Any:
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        UnsupportedOperatorException,
    )

    mode = _mode_for(env)

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            with mode:
                return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        if isinstance(value, (list, tuple)):
            return type(value)([convert(item) for item in value])
        return value

    fakes = [convert(item) for item in args]
    fake_kwargs = {key: convert(item) for key, item in kwargs.items()}
    try:
        with mode, private.symbolic_decompositions(), private.quiet_fake_tensors():
            return func(*fakes, **fake_kwargs)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise DataDependentError(f"the result of {func} depends on values") from error
    except UnsupportedOperatorException as error:
        raise TraceError(
            f"{func} has neither a shape rule nor a meta kernel", hint="register one with torch.library.register_fake"
        ) from error


def call_on_fakes(func: Any, args: tuple, kwargs: dict) -> Any:
    """What an op on bare values (`node.meta["val"]`) gives outside a trace: bare values again."""
    result = meta_results(func, args, kwargs)
    device = result_device(args, kwargs)

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return make_value(value.shape, value.stride(), value.dtype, device)
        if isinstance(value, (list, tuple)):
            return type(value)([convert(item) for item in value])
        return value

    if func._schema.is_mutable and args and isinstance(args[0], TraceTensor) and func._schema.name.endswith("_"):
        return args[0]
    return convert(result)
