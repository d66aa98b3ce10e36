"""``__torch_function__``: tensor subclasses, other objects with the protocol, and torch function modes.

In the graph a subclass is a plain tensor: inputs are taken as plain aliases, and a result that leaves the region gets
its class back. The calls of the program go to the ``__torch_function__`` of its arguments (or modes), which is inlined;
``Tensor.__torch_function__`` itself makes the call and converts the result.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from .. import _torch as private
from .. import fake as fakes
from .. import trace_policy
from ..graph_break import GraphBreak
from ..source import PythonSource
from .attributes import bind, find_in_mro
from .base import VariableTracker
from .container import ListVariable, TupleVariable
from .context import CONTEXT_CLASSES, ContextVariable
from .dicts import DictVariable
from .tensor import METHODS, TensorVariable
from .torch_api import TorchFunctionVariable, handles
from .user_object import UserObjectVariable

_PLAIN_CLASSES = (torch.Tensor, torch._C.TensorBase, object)
_DEFAULT = torch.Tensor.__dict__["__torch_function__"].__func__


def plain_alias(tensor: torch.Tensor) -> torch.Tensor:
    """The same values without the class."""
    with private.plain_tensor_access():
        return tensor.as_subclass(torch.Tensor)  # type: ignore[arg-type]


def with_class(tensor: torch.Tensor, cls: Any) -> torch.Tensor:
    """The same values as an object of a subclass."""
    with private.plain_tensor_access():
        return tensor.as_subclass(cls)


def is_followed(kind: type) -> bool:
    """Is this a tensor subclass whose only speciality is ``__torch_function__``?"""
    return (
        issubclass(kind, torch.Tensor)
        and not issubclass(kind, (torch.nn.Parameter, torch.nn.Buffer))
        and kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        and kind.__torch_function__ is not private.disabled_torch_function
    )


class SubclassTensorVariable(TensorVariable):
    """A tensor of a class with ``__torch_function__``."""

    __slots__ = ("plain",)

    def __init__(self, node: Any, fake: Any, source: Any, cls: type):
        super().__init__(node, fake, source, cls)
        self.plain: TensorVariable | None = None

    def as_proxy(self) -> Any:
        if self.node is None and self.plain is not None:
            self.node = self.plain.as_proxy()
        return self.node

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if self.attrs is not None and name in self.attrs:
            return self.attrs[name]
        found = find_in_mro(tx, self.cls, name)
        if found is not None and found.owner not in _PLAIN_CLASSES:
            if self.real is not None and name in self.real.__dict__:
                raise GraphBreak("tensor_attribute", type=self.cls.__name__, name=name)
            return bind(tx, found, self, self.class_vt(tx))
        if name in ("grad", "_grad") and self.source is not None:
            raise GraphBreak("tensor_attribute", type=self.cls.__name__, name=name)
        return super().get_attr(tx, name)

    def set_attr(self, tx: Any, name: str, value: VariableTracker) -> None:
        found = find_in_mro(tx, self.cls, name)
        setter = find_in_mro(tx, self.cls, "__setattr__")
        if found is not None or (setter is not None and setter.owner not in _PLAIN_CLASSES):
            raise GraphBreak("tensor_subclass", type=self.cls.__name__, attribute=name)
        super().set_attr(tx, name, value)

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        found = find_in_mro(tx, self.cls, name)
        if found is not None and found.owner not in _PLAIN_CLASSES:
            return self.get_attr(tx, name).call_function(tx, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def own_special(self, tx: Any, name: str) -> VariableTracker | None:
        """A special method that the class itself defines."""
        found = find_in_mro(tx, self.cls, name)
        if found is None or found.owner in _PLAIN_CLASSES:
            return None
        return bind(tx, found, self, self.class_vt(tx))

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        own = self.own_special(tx, "__getitem__")
        return own.call_function(tx, [key], {}) if own is not None else super().get_item(tx, key)

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        from .operators import special_binary

        if self.defines_operators(tx):
            return special_binary(tx, self, op, other, reflected)
        return super().binary_op(tx, op, other, reflected)

    def length(self, tx: Any) -> VariableTracker:
        own = self.own_special(tx, "__len__")
        if own is not None:
            return own.call_function(tx, [], {})
        taken = intercept_method(tx, self, "__len__", [], {})
        return taken if taken is not None else super().length(tx)

    def defines_operators(self, tx: Any) -> bool:
        own = (k for k in self.cls.__mro__ if k not in _PLAIN_CLASSES)
        return any(name.startswith("__") and name in _OPERATOR_NAMES for k in own for name in vars(k))

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(with_class)
        codegen.graph_output(self.as_proxy())
        codegen.load_const(self.cls)
        codegen.call_function(2)
        if self.attrs:
            codegen.remember(self)
            codegen.output.side_effects.pending_fill.append(self)


_OPERATOR_NAMES = frozenset(
    f"__{prefix}{name}__"
    for prefix in ("", "r", "i")
    for name in "add sub mul matmul truediv floordiv mod pow lshift rshift and or xor eq ne lt le gt ge".split()
)


def wrap_subclass_tensor(tx: Any, value: Any, source: Any) -> VariableTracker:
    """Tracker of an outside tensor of a followed class."""
    if source is None:
        raise GraphBreak("unknown_object", type="tensor constant")
    output = tx.output
    plain_value = plain_alias(value)
    try:
        fake = fakes.from_real(plain_value)
    except fakes.Unsupported as e:
        raise GraphBreak("sparse_or_nested", reason=str(e)) from None
    output.guard(source, "TENSOR", None)
    vt = SubclassTensorVariable(None, fake, source, type(value))
    vt.real = value
    vt.plain = TensorVariable(None, fake, PythonSource(source, plain_alias), torch.Tensor)
    vt.plain.real = plain_value
    output.track(fake, vt)
    output.overrides = True
    return vt


def in_class(tx: Any, vt: VariableTracker, cls: type, known: list[VariableTracker]) -> VariableTracker:
    """``vt`` as an object of ``cls``; ``known``: objects that the program has already, which keep their class."""
    vt = vt.realize()
    if not isinstance(vt, TensorVariable):
        if isinstance(vt, (ListVariable, TupleVariable)) and isinstance(getattr(vt, "items", None), list):
            for i, item in enumerate(vt.items):
                vt.items[i] = in_class(tx, item, cls, known)
        return vt
    if cls is torch.Tensor or issubclass(vt.cls, cls):
        return vt
    if vt.source is not None or any(vt is k for k in known) or isinstance(vt, SubclassTensorVariable):
        vt = alias(tx, vt)
    made = SubclassTensorVariable(vt.as_proxy(), vt.fake, None, cls)
    tx.output.track(vt.fake, made)
    tx.output.overrides = True
    return made


def alias(tx: Any, vt: TensorVariable) -> TensorVariable:
    """Another plain tensor object with the same memory."""
    with switched_off(tx):
        return tx.output.create_call("call_method", "view_as", [vt, vt])  # type: ignore[no-any-return]


class switched_off:
    """Calls go straight to torch."""

    def __init__(self, tx: Any):
        self.output = tx.output

    def __enter__(self) -> None:
        self.output.overrides_off += 1

    def __exit__(self, *exc: Any) -> None:
        self.output.overrides_off -= 1


# -- the protocol ------------------------------------------------------------------------------------------------------


def _overriding(tx: Any, values: list[VariableTracker]) -> list[VariableTracker]:
    """The arguments (one of each class) with a ``__torch_function__`` of their own, subclasses first."""
    found: list[VariableTracker] = []

    def look(vt: VariableTracker, depth: int) -> None:
        vt = vt.realize()
        if isinstance(vt, (SubclassTensorVariable, UserObjectVariable)):
            cls = vt.python_type()
            if isinstance(vt, UserObjectVariable) and find_in_mro(tx, cls, "__torch_function__") is None:
                return
            if any(k.python_type() is cls for k in found):
                return
            at = next((i for i, k in enumerate(found) if issubclass(cls, k.python_type())), len(found))
            found.insert(at, vt)
        elif depth and isinstance(vt, (ListVariable, TupleVariable)) and isinstance(getattr(vt, "items", None), list):
            for item in vt.items:
                look(item, depth - 1)

    for value in values:
        look(value, 1)
    return found


_NEVER: set[Any] = {
    _DEFAULT,
    torch.Tensor.as_subclass, torch.Tensor._make_subclass, torch.Tensor._make_wrapper_subclass, torch.from_numpy,
}  # fmt: skip
_METHOD_WRAPPER = type(torch.Tensor.shape.__get__)  # type: ignore[attr-defined]


def _is_overridable(value: Any) -> bool:
    """Do calls of this function of torch go to ``__torch_function__``?"""
    if value in _NEVER:
        return False
    if isinstance(value, types.FunctionType):
        return value.__module__ in trace_policy.GRAPH_MODULES
    if isinstance(value, types.BuiltinFunctionType):
        named = getattr(torch._C._VariableFunctions, value.__name__, None) is not None
        return named or (value.__module__ or "") in trace_policy.OPERATOR_OWNERS
    return isinstance(value, (*_TENSOR_METHODS, torch._ops.OpOverload, torch._ops.OpOverloadPacket))


_TENSOR_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, _METHOD_WRAPPER)


def intercept(
    tx: Any, func: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    """The result of a call that a mode or an argument takes over; None if nobody does."""
    if tx.output.overrides_off and not tx.output.function_modes:
        return None
    value = func.as_python_constant()
    if not _is_overridable(value):
        return None
    values = [*args, *kwargs.values()]
    if not takes_part(tx, values):
        return None
    if isinstance(value, types.FunctionType) and value.__module__ in trace_policy.GRAPH_MODULES:
        # It asks `has_torch_function` itself, and hands on its arguments in an order of its own.
        from .function import UserFunctionVariable

        return tx.inline(UserFunctionVariable(value, None), list(args), kwargs)  # type: ignore[no-any-return]
    return hand_over(tx, func, values, args, kwargs)


def takes_part(tx: Any, values: list[VariableTracker]) -> bool:
    """Is a mode active, or has one of the values the protocol?"""
    return bool(tx.output.function_modes or not tx.output.overrides_off and _overriding(tx, values))


def hand_over(
    tx: Any,
    func: VariableTracker,
    relevant: list[VariableTracker],
    args: Any,
    kwargs: dict[str, VariableTracker] | None,
) -> VariableTracker:
    """Calls the innermost mode or the first ``__torch_function__`` that takes the call."""
    output = tx.output
    overriding = [] if output.overrides_off else _overriding(tx, relevant)
    modes = output.function_modes
    types_vt = TupleVariable([vt.class_vt(tx) for vt in overriding])
    given: list[VariableTracker] = [func, types_vt, TupleVariable(list(args))]
    if kwargs is not None and (kwargs or isinstance(func.as_python_constant(), types.FunctionType)):
        named = DictVariable()
        for name, value in kwargs.items():
            named.set_item(tx, tx.const(name), value)
        given.append(named)
    tx.direct_call = False
    if modes:
        mode = modes.pop()
        try:
            result = mode.call_method(tx, "__torch_function__", given, {}).realize()
        finally:
            modes.append(mode)
        if not _is_not_implemented(result):
            return result
    for vt in overriding:
        found = find_in_mro(tx, vt.python_type(), "__torch_function__", vt.class_vt(tx))  # type: ignore[arg-type]
        assert found is not None
        result = bind(tx, found, vt, vt.class_vt(tx)).call_function(tx, given, {}).realize()
        if not _is_not_implemented(result):
            return result
    raise GraphBreak("tensor_subclass", reason="no __torch_function__ takes the call")


def _is_not_implemented(vt: VariableTracker) -> bool:
    return vt.is_python_constant() and vt.as_python_constant() is NotImplemented


def _has(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    given = args[0].unpack(tx) if len(args) == 1 and isinstance(args[0], (TupleVariable, ListVariable)) else args
    return tx.const(takes_part(tx, list(given)))  # type: ignore[no-any-return]


for _name in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
    handles(getattr(torch.overrides, _name), getattr(torch._C, "_" + _name))(_has)


@handles(torch.overrides.handle_torch_function)
def _handle(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    func, relevant, *rest = args
    real = getattr(func, "fn", None)
    if not isinstance(func, TorchFunctionVariable) and real is not None:
        func = TorchFunctionVariable(real)
    return hand_over(tx, func, relevant.unpack(tx), rest, kwargs)


@handles(_DEFAULT)
def _default(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """``Tensor.__torch_function__(func, types, args, kwargs)``: the call, and the result in the class."""
    names = ("cls", "func", "types", "args", "kwargs")
    given = dict(zip(names, args)) | kwargs
    cls = given["cls"].realize().as_python_constant()
    func = given["func"].realize()
    call_args = given["args"].realize().unpack(tx) if "args" in given else []
    named = given.get("kwargs")
    call_kwargs: dict[str, VariableTracker] = {}
    if named is not None and isinstance(named.realize(), DictVariable):
        part: Any = named.realize()
        call_kwargs = {k.realize().as_python_constant(): v for k, v in part.entries.values()}
    with switched_off(tx):
        result = func.call_function(tx, call_args, call_kwargs)
    known = [v.realize() for v in (*call_args, *call_kwargs.values())]
    return in_class(tx, result, cls, known)


class TensorGetter(TorchFunctionVariable):
    """``torch.Tensor.shape.__get__``: what a mode or subclass sees when the program reads ``tensor.shape``."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        super().__init__(getattr(torch.Tensor, name).__get__, None)
        self.name = name

    def call_function(self, tx: Any, args: Any, kwargs: Any) -> VariableTracker:
        return args[0].realize().get_attr(tx, self.name)  # type: ignore[no-any-return]


def intercept_attribute(tx: Any, vt: TensorVariable, name: str) -> VariableTracker | None:
    """Reading metadata is a call, too."""
    if name.startswith("__") or not hasattr(getattr(torch.Tensor, name, None), "__get__"):
        return None
    if callable(getattr(torch.Tensor, name)):
        return None
    return intercept(tx, TensorGetter(name), [vt], {})


def intercept_method(tx: Any, vt: TensorVariable, name: str, args: Any, kwargs: Any) -> VariableTracker | None:
    found = getattr(torch.Tensor, name, None)
    if found is None or not callable(found):
        return None
    return intercept(tx, TorchFunctionVariable(found), [vt, *args], kwargs)


def intercept_node(tx: Any, op: str, target: Any, args: Any, kwargs: Any) -> VariableTracker | None:
    """A call that is about to become a node."""
    if op == "call_method":
        return intercept_method(tx, args[0], target, list(args[1:]), kwargs or {})
    if getattr(target, "__module__", None) == "_operator" or target in _PLAIN_OPERATORS:
        first = isinstance(args[0].realize(), TensorVariable)
        found = _function_of_operator(target, len(args), first)
        if found is None:
            raise GraphBreak("tensor_subclass", operator=target.__name__)
        func, order = found
        return intercept(tx, TorchFunctionVariable(func), [args[i] for i in order], kwargs or {})
    return intercept(tx, TorchFunctionVariable(target), list(args), kwargs or {})


_PLAIN_OPERATORS = {abs, divmod, pow}
_operators: dict[Any, Any] = {}


def _function_of_operator(op: Any, count: int, first: bool) -> tuple[Any, tuple[int, ...]] | None:
    """(function, order of the operands) that ``__torch_function__`` sees for a Python operator: looked up by trying."""
    key = (op, count, first)
    if key in _operators:
        return _operators[key]  # type: ignore[no-any-return]
    seen: list[Any] = []

    class Probe(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if not seen:
                seen.append((func, args))
            return args[0]

    with private.no_function_modes():
        for dtype in (torch.float32, torch.int64, torch.bool):
            probe = torch.ones(2, 2, dtype=dtype).as_subclass(Probe)
            if op is operator.getitem or op is operator.setitem:
                values: list[Any] = [probe, 0, 1.0][:count]
            else:
                other: Any = torch.ones(2, 2, dtype=dtype) if op in (operator.matmul, operator.imatmul) else 1
                values = [probe, other][:count] if first else [other, probe]
            try:
                op(*values)
            except Exception:
                seen.clear()
                continue
            break
    found = None
    if seen:
        func, args = seen[0]
        order = [next((i for i, v in enumerate(values) if v is a), -1) for a in args]
        found = (func, tuple(order)) if -1 not in order and len(order) == count else None
    _operators[key] = found
    return found


# -- classes and modes -------------------------------------------------------------------------------------------------


def _as_subclass(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
    (cls,) = [a.realize().as_python_constant() for a in (*args, *kwargs.values())]
    if cls is torch.Tensor:
        return alias(tx, vt)
    if not is_followed(cls):
        raise GraphBreak("tensor_subclass", type=cls.__name__)
    return in_class(tx, alias(tx, vt), cls, [])


METHODS["as_subclass"] = _as_subclass


@handles(torch.Tensor._make_subclass)
def _make_subclass(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    if len(args) < 2 or kwargs or (len(args) > 2 and tx.truth(args[2])) or len(args) > 3:
        raise GraphBreak("tensor_subclass", function="_make_subclass")
    cls, data = args[0].as_python_constant(), args[1]
    if not isinstance(data, TensorVariable) or not is_followed(cls):
        raise GraphBreak("tensor_subclass", type=cls.__name__)
    with switched_off(tx):
        plain = tx.output.create_call("call_method", "detach", [data])
    return in_class(tx, plain, cls, [])


@handles(torch._C._push_on_torch_function_stack)
def _push(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    if not isinstance(args[0], UserObjectVariable):
        raise GraphBreak("torch_function_mode", mode=args[0].describe())
    tx.output.function_modes.append(args[0])
    tx.output.overrides = True
    return tx.const(None)  # type: ignore[no-any-return]


@handles(torch._C._pop_torch_function_stack)
def _pop(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    if not tx.output.function_modes:
        raise GraphBreak("torch_function_mode", reason="entered outside")
    return tx.output.function_modes.pop()  # type: ignore[no-any-return]


class DisabledOverridesVariable(ContextVariable):
    """``torch._C.DisableTorchFunctionSubclass()``."""

    __slots__ = ()

    def set(self, tx: Any) -> None:
        tx.output.overrides_off += 1

    def reset(self, output: Any) -> None:
        output.overrides_off -= 1


CONTEXT_CLASSES[torch._C.DisableTorchFunctionSubclass] = DisabledOverridesVariable
