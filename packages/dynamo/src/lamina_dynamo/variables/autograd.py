"""``torch.autograd.Function``: ``apply`` becomes one graph node, which runs the user's forward (and registers the
user's backward).

The forward is run once on fakes while translating, so it must be free of effects outside its context object; what may
have some is left to
eager.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from .. import _torch as private
from ..graph_break import GraphBreak
from ..source import AttrSource
from . import builtin
from .base import VariableTracker
from .builder import wraps_if
from .function_effects import has_effects
from .torch_api import handles
from .user_object import UserObjectVariable


class ApplyFunction:
    """The target of the graph node: ``cls.apply``."""

    def __init__(self, cls: type):
        self.cls = cls
        self.__name__ = f"{cls.__name__}_apply"
        self.__qualname__ = self.__name__
        self.__module__ = "lamina_dynamo.variables.autograd"

    def __call__(self, *args: Any) -> Any:
        return self.cls.apply(*args)  # type: ignore[attr-defined]


#: A class method in Python up to torch 2.13, one in C from 2.14 on.
_APPLY = torch.autograd.Function.__dict__["apply"]


@handles(getattr(_APPLY, "__func__", None))
def _apply(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    if not args[0].is_python_constant() or kwargs:
        raise GraphBreak("torch_unsupported", function="autograd.Function.apply")
    cls = args[0].as_python_constant()
    if not isinstance(cls, type) or torch._C._are_functorch_transforms_active():
        raise GraphBreak("torch_unsupported", function="autograd.Function.apply")
    forward = getattr(cls, "forward", None)
    if forward is None or has_effects(forward):
        raise GraphBreak("torch_unsupported", function=f"{cls.__name__}.apply", reason="forward may have side effects")
    setup = getattr(cls, "setup_context", None)
    if (
        setup is not torch.autograd.Function.setup_context
        and setup is not None
        and has_effects(setup)
        and _is_own(cls, "setup_context")
    ):
        raise GraphBreak(
            "torch_unsupported", function=f"{cls.__name__}.apply", reason="setup_context may have side effects"
        )
    for vt in args[1:]:
        if getattr(vt, "source", None) is None and getattr(vt, "is_mutable", False) and not vt.is_python_constant():
            raise GraphBreak("torch_unsupported", function=f"{cls.__name__}.apply", reason="mutable argument")
    source = args[0].source
    if source is not None:
        for name in ("forward", "backward", "setup_context", "vjp"):
            for klass in (cls.__mro__ or ()):
                if name in vars(klass):
                    if klass.__module__ != "torch.autograd.function":
                        tx.output.guard(source, "CLASS_ATTR", (name, vars(klass)[name]))
                    break
    fx_args = tuple(a.as_proxy() for a in args[1:])
    return tx.output.create_node("call_function", ApplyFunction(cls), fx_args, {})


if isinstance(_APPLY, types.ClassMethodDescriptorType):

    @builtin.handles(_APPLY)
    def _apply_in_c(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        return _apply(tx, list(args), kwargs)


def _is_own(cls: type, name: str) -> bool:
    return any(name in vars(k) for k in cls.__mro__ if k.__module__ != "torch.autograd.function")


# -- the context object of a function whose forward or backward runs in eager and is captured on its own ---------------

#: Entries in C that the methods of a context write; nothing else of the object depends on them until forward ends.
_WRITTEN_MEMBERS = frozenset(
    {"to_save", "non_differentiable", "dirty_tensors", "materialize_grads", "_materialize_non_diff_grads"}
)
_READ_MEMBERS = frozenset({"saved_tensors", "needs_input_grad"})


class ContextVariable(UserObjectVariable):
    """``ctx``: attributes in its instance dict, and a few entries kept in C."""

    __slots__ = ()

    def set_member(self, tx: Any, name: str, value: VariableTracker) -> bool:
        if name not in _WRITTEN_MEMBERS:
            return super().set_member(tx, name, value)
        tx.output.side_effects.record_call(setattr, [self, tx.const(name), value.realize()], {})
        return True

    def get_member(self, tx: Any, name: str) -> VariableTracker | None:
        if name in _READ_MEMBERS and self.source is not None:
            known = self.read.get(name)
            if known is None:
                known = self.read[name] = tx.wrap(getattr(self.value, name), AttrSource(self.source, name))
            return known
        return super().get_member(tx, name)


@wraps_if(private.is_autograd_context, priority=10)
def wrap_context(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
    return ContextVariable(value, source)
