"""Calls of torch functions: which become graph nodes, which are answered at translation, which break the graph."""

from __future__ import annotations

import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from .. import _torch as private
from .. import trace_policy
from ..graph_break import GraphBreak
from .base import VariableTracker
from .builder import wraps_type
from .builtin import CONSTRUCTORS
from .constant import ConstantVariable
from .known import KnownVariable
from .user_object import UserObjectVariable

Handler = Callable[[Any, list[VariableTracker], dict[str, VariableTracker]], VariableTracker]
HANDLERS: dict[Any, Handler] = {}
NAMED_HANDLERS: dict[str, Handler] = {}
"""The same by module and name, for functions of modules that are not imported for it."""


def handles(*functions: Any) -> Callable[[Handler], Handler]:
    """Register how calls of these functions are translated."""

    def register(handler: Handler) -> Handler:
        for fn in functions:
            if fn is not None:
                HANDLERS[fn] = handler
        return handler

    return register


class TorchFunctionVariable(KnownVariable):
    """A torch function."""

    __slots__ = ()

    def describe(self) -> str:
        return f"torch function {getattr(self.value, '__name__', self.value)}"

    def binary_op(self, tx: Any, op: Any, other: VariableTracker, reflected: bool = False) -> Any:
        other = other.realize()
        if op in (operator.eq, operator.ne) and isinstance(other, TorchFunctionVariable):
            return tx.const(op(self.value, other.value))
        return super().binary_op(tx, op, other, reflected)

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if not hasattr(self.value, name):
            tx.raise_exception(AttributeError, f"'{self.python_type().__name__}' object has no attribute '{name}'")
        found = getattr(self.value, name)
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            return tx.const(found)
        return tx.wrap(found, None)

    def has_attr(self, tx: Any, name: str) -> bool:
        return hasattr(self.value, name)

    def descriptor_get(self, tx: Any, obj: VariableTracker | None, cls: Any) -> VariableTracker:
        if obj is None or not isinstance(self.value, types.FunctionType):
            return self
        from .methods import BoundMethodVariable

        return BoundMethodVariable(self, obj)

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        value = self.value
        tx.direct_call = False
        args = [a.realize() for a in args]
        if kwargs:
            kwargs = {k: a.realize() for k, a in kwargs.items()}
        if tx.output.overrides or any([type(a) is UserObjectVariable for a in args]):
            from .torch_function import intercept

            taken = intercept(tx, self, args, kwargs)
            if taken is not None:
                return taken
        handler = HANDLERS.get(value)
        if handler is not None:
            return handler(tx, args, kwargs)
        if type(value) in _DESCRIPTORS:
            return _call_descriptor(tx, value, args, kwargs)
        if not trace_policy.is_allowed_c_function(value) and not has_tensor(args, kwargs):
            raise GraphBreak("torch_unsupported", function=trace_policy.qualified_name(value))
        if isinstance(value, types.FunctionType):
            method = _tensor_methods.get(value)
            if method is not None and args and has_tensor(args[:1], {}):
                return args[0].call_method(tx, method, args[1:], kwargs)
            return call_or_inline(tx, value, self.source, args, kwargs)
        return tx.output.create_call("call_function", value, args, kwargs)


def call_or_inline(
    tx: Any, fn: Any, source: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """A call of a Python function of torch: one node if it can be one, else what it does is followed."""
    try:
        return tx.output.create_call("call_function", fn, args, kwargs)
    except GraphBreak:
        from .function import UserFunctionVariable

        return tx.inline(UserFunctionVariable(fn, source), args, kwargs)


# Methods of tensors that are Python functions.
_tensor_methods = {f: name for name, f in vars(torch.Tensor).items() if isinstance(f, types.FunctionType)}
_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType)


def _call_descriptor(
    tx: Any, value: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """``torch.Tensor.add(x, y)``: the method of the first argument."""
    if not args:
        raise GraphBreak("torch_unsupported", function=value.__name__)
    return args[0].call_method(tx, value.__name__, args[1:], kwargs)


def has_tensor(args: Any, kwargs: Any) -> bool:
    """Is there a tensor among the arguments?"""
    from .tensor import TensorVariable

    def inside(vt: VariableTracker, depth: int) -> bool:
        vt = vt.realize()
        if isinstance(vt, TensorVariable):
            return True
        items = getattr(vt, "items", None)
        return depth > 0 and isinstance(items, list) and any(inside(i, depth - 1) for i in items)

    return any(inside(a, 2) for a in args) or any(inside(a, 2) for a in kwargs.values())


def wrap_torch(tx: Any, value: Any, source: Any) -> VariableTracker | None:
    """Tracker of a callable of torch, or None if it is none."""
    try:
        known = value in HANDLERS
    except TypeError:
        return None
    if not known and type(value) is types.FunctionType:
        named = NAMED_HANDLERS.get(f"{value.__module__}.{value.__qualname__}")
        if named is not None:
            HANDLERS[value], known = named, True
    if not known and not trace_policy.is_graph_function(value):
        return None
    if source is not None:
        tx.output.guard(source, "ID", value)
    return TorchFunctionVariable(value, source)


_CALLABLE_TYPES = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    type(torch.ops.aten.add),
    type(torch.ops.aten.add.Tensor),
)
CALLABLE_TYPES = frozenset(_CALLABLE_TYPES)
"""Types of values about which the builder asks ``wrap_torch`` first."""


def wrap_op(tx: Any, value: Any, source: Any) -> VariableTracker:
    return TorchFunctionVariable(value, source)


wraps_type(type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor))(wrap_op)


# -- objects of torch that are constants
# ---------------------------------------------------------------------------------


class TorchConstantVariable(ConstantVariable):
    """A dtype, device, layout, memory format, finfo or iinfo."""

    __slots__ = ()

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        from lamina_dynamo.variables.constant import wrap_result

        if not hasattr(self.value, name):
            tx.raise_exception(AttributeError, f"'{type(self.value).__name__}' object has no attribute '{name}'")
        found = getattr(self.value, name)
        if callable(found) and not isinstance(found, torch.dtype):
            return FoldedCallable(found)
        return wrap_result(tx, found)

    def has_attr(self, tx: Any, name: str) -> bool:
        return hasattr(self.value, name)

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        return self.get_attr(tx, name).call_function(tx, args, kwargs)

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(self, tx: Any, args: Any, kwargs: Any) -> VariableTracker:
        raise GraphBreak("unknown_call", value=self.describe())


class FoldedCallable(KnownVariable):
    """A pure callable that is run at translation on constants."""

    __slots__ = ()

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        from .constant import fold

        return fold(tx, self.value, [a.realize() for a in args], {k: a.realize() for k, a in kwargs.items()})


@wraps_type(torch._C._SDPBackend)
def wrap_backend_enum(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "CONSTANT", value)
    return TorchConstantVariable(value, source)


@wraps_type(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo)
def wrap_torch_constant(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(
            source, "CONSTANT" if isinstance(value, (torch.device, torch.finfo, torch.iinfo)) else "ID", value
        )
    return TorchConstantVariable(value, source)


def _fold_class(cls: Any) -> Callable[..., VariableTracker]:
    def constructor(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        from .constant import fold

        return fold(tx, cls, [a.realize() for a in args], {k: a.realize() for k, a in kwargs.items()})

    return constructor


for _cls in (torch.device, torch.finfo, torch.iinfo):
    CONSTRUCTORS[_cls] = _fold_class(_cls)


def _make_size(tx: Any, *args: VariableTracker) -> VariableTracker:
    from .container import SizeVariable

    return SizeVariable([i.realize() for i in args[0].realize().unpack(tx)] if args else [])


CONSTRUCTORS[torch.Size] = _make_size


# -- answered at translation
# ---------------------------------------------------------------------------------------------


def _answers(value: Any) -> Handler:
    def handler(tx: Any, args: Any, kwargs: Any) -> VariableTracker:
        return tx.const(value)

    return handler


_false, _true = _answers(False), _answers(True)
handles(
    torch.jit.is_scripting,
    torch.jit.is_tracing,
    torch._jit_internal.is_scripting,
    torch._C._get_tracing_state,
    torch.compiler.is_exporting,
    getattr(sys.modules.get("torch.onnx"), "is_in_onnx_export", None),
    getattr(torch._C, "_is_tracing", None),
    getattr(torch._jit_internal, "is_tracing", None),
)(_false)
handles(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)(_true)
HANDLERS[torch._C._get_tracing_state] = _answers(None)
handles(torch._C._log_api_usage_once, torch._assert_async if hasattr(torch, "_assert_async") else None)(_answers(None))
handles(torch.compiler.is_compiling)(_true)


@handles(torch.is_tensor)
def _is_tensor(tx: Any, args: list[VariableTracker], kwargs: Any) -> VariableTracker:
    return tx.const(issubclass(args[0].python_type(), torch.Tensor))


@handles(torch._assert)
def _assert(tx: Any, args: list[VariableTracker], kwargs: Any) -> VariableTracker:
    truth = args[0].truth(tx)
    if truth is None:
        raise GraphBreak("data_dependent_branch", value=args[0].describe())
    if not truth:
        tx.raise_exception(AssertionError, args[1])
    return tx.const(None)


@handles(torch._check, getattr(torch, "_check_value", None), getattr(torch, "_check_index", None))
def _check(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    condition = args[0] if args else kwargs["cond"]
    if not getattr(condition, "is_symbolic_number", False):
        if condition.is_python_constant() and condition.as_python_constant() is True:
            return tx.const(None)
        raise GraphBreak("data_dependent_branch", value=condition.describe())
    torch._check(condition.fake)  # type: ignore[attr-defined]  # what the symbols may be from here on
    node = tx.output.graph.create_node("call_function", torch._check, (condition.as_proxy(),), {})
    node.meta.update(val=None, impure=True, stack_trace=tx.stack_trace())
    return tx.const(None)


@handles(torch._check_is_size)
def _check_is_size(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    number = args[0]
    if not getattr(number, "is_symbolic_number", False):
        return tx.const(None)
    return _check(tx, [number.binary_op(tx, operator.ge, tx.const(0)).realize()], {})


@handles(torch._C._set_grad_enabled)
def _set_grad_enabled(tx: Any, args: list[VariableTracker], kwargs: Any) -> VariableTracker:
    from .context import set_grad_mode

    set_grad_mode(tx.output, bool(args[0].as_python_constant()))
    return tx.const(None)


def _breaks(kind: str) -> Handler:
    def handler(tx: Any, args: Any, kwargs: Any) -> VariableTracker:
        raise GraphBreak(kind)

    return handler


@handles(private.group_tensors)
def _group_tensors(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    from ..translator import polyfills

    return tx.inline(tx.wrap(polyfills.group_tensors, None), args, kwargs)  # type: ignore[no-any-return]


handles(torch.seed, torch.initial_seed)(_breaks("random_state"))
handles(torch.save, torch.load)(_breaks("torch_unsupported"))


def _array_tensor(tx: Any, args: list[VariableTracker]) -> VariableTracker | None:
    """A new tensor over the memory of the numpy array that is the only argument; None if it is no such call."""
    from .numpy_arrays import NumpyArrayVariable

    array = args[0].realize() if args else None
    if not isinstance(array, NumpyArrayVariable) or array.is_number:
        return None
    return array.tensor.call_method(tx, "detach", [], {})


@handles(torch.from_numpy)
def _from_numpy(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    made = _array_tensor(tx, args)
    if made is None or kwargs or len(args) > 1:
        raise GraphBreak("torch_unsupported", target="from_numpy")
    return made


@handles(torch.as_tensor)
def _as_tensor(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    made = _array_tensor(tx, args)
    if made is None:
        return tx.output.create_call("call_function", torch.as_tensor, args, kwargs)
    if len(args) > 1 or set(kwargs) - {"dtype"}:
        raise GraphBreak("torch_unsupported", target="as_tensor")
    return made.call_method(tx, "to", list(kwargs.values()), {}) if kwargs else made


@handles(torch.as_strided)
def _as_strided(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    return _as_method(tx, "as_strided", args, kwargs)


@handles(torch.as_strided_scatter)
def _as_strided_scatter(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    return _as_method(tx, "as_strided_scatter", args, kwargs)


def _as_method(tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    subject = args[0] if args else kwargs["input"]
    return subject.call_method(tx, name, args[1:], {k: v for k, v in kwargs.items() if k != "input"})


@handles(torch.numel)
def _numel(tx: Any, args: list[VariableTracker], kwargs: Any) -> VariableTracker:
    return args[0].call_method(tx, "numel", [], {})


@handles(torch.tensor)
def _tensor(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """``torch.tensor(n)`` of symbolic numbers must not read them: a fill, or a stack of fills."""
    made = _array_tensor(tx, args)
    if made is not None:
        if len(args) > 1 or set(kwargs) - {"dtype"}:
            raise GraphBreak("torch_unsupported", target="tensor")
        copy = made.call_method(tx, "clone", [], {})
        return copy.call_method(tx, "to", list(kwargs.values()), {}) if kwargs else copy
    data = args[0] if args else kwargs.get("data")
    if data is not None and _is_symbolic_data(data):
        rest = {k: a for k, a in kwargs.items() if k != "data"}
        return _filled(tx, data, rest)
    return tx.output.create_call("call_function", torch.tensor, args, kwargs)


def _is_symbolic_data(data: VariableTracker) -> bool:
    items = getattr(data, "items", None)
    if isinstance(items, list):
        return bool(items) and any(_is_symbolic_data(i.realize()) for i in items)
    return getattr(data, "is_symbolic_number", False)


def _filled(tx: Any, data: VariableTracker, kwargs: dict[str, VariableTracker]) -> VariableTracker:
    items = getattr(data, "items", None)
    if isinstance(items, list):
        parts = [_filled(tx, i.realize(), kwargs) for i in items]
        from .container import ListVariable

        return tx.output.create_call("call_function", torch.stack, [ListVariable(parts)], {})
    kind = data.python_type()
    if "dtype" not in kwargs:
        dtype = {int: torch.int64, bool: torch.bool}.get(kind) or torch.get_default_dtype()
        kwargs = {**kwargs, "dtype": tx.wrap(dtype, None)}
    from .container import ListVariable

    return tx.output.create_call("call_function", torch.full, [ListVariable([]), data], kwargs)


# -- switches of the attention kernels
# -----------------------------------------------------------------------------------


class _Switch:
    """A switch set for real while translating; put back when the translation ends."""

    def __init__(self, setter: Any, before: Any):
        self.setter = setter
        self.before = before

    def undo_real(self) -> None:
        from .context import open_contexts

        open_contexts.remove(self)
        self.setter(self.before)


def _switch(setter: Any, getter: Any) -> Handler:
    def handler(tx: Any, args: list[VariableTracker], kwargs: Any) -> VariableTracker:
        from .context import open_contexts

        value = args[0].as_python_constant()
        node = tx.output.graph.create_node("call_function", setter, (value,), {})
        node.meta.update(val=None, impure=True, stack_trace=tx.stack_trace())
        open_contexts.append(_Switch(setter, getter()))
        setter(value)
        return tx.const(None)

    return handler


for _setter, _getter in (
    ("_set_sdp_use_flash", "_get_flash_sdp_enabled"),
    ("_set_sdp_use_mem_efficient", "_get_mem_efficient_sdp_enabled"),
    ("_set_sdp_use_math", "_get_math_sdp_enabled"),
    ("_set_sdp_use_cudnn", "_get_cudnn_sdp_enabled"),
    ("_set_sdp_use_overrideable", "_get_overrideable_sdp_enabled"),
):
    if hasattr(torch._C, _setter) and hasattr(torch._C, _getter):
        HANDLERS[getattr(torch._C, _setter)] = _switch(getattr(torch._C, _setter), getattr(torch._C, _getter))
