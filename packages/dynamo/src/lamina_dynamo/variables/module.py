"""``nn.Module`` objects: members read with guards, calls go straight to ``forward`` where no hook is in the way."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from ..source import InstanceAttrSource, ModuleMemberSource
from .attributes import DELETED, find_in_mro, note_presence
from .base import VariableTracker
from .builder import wraps_if
from .module_walk import note_change
from .user_object import UserObjectVariable

_MEMBER_DICTS = ("_parameters", "_buffers", "_modules")
_HOOK_DICTS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(
    name
    for name in (
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
    )
    if hasattr(torch_module, name)
)
_PLAIN_GETATTR = torch.nn.Module.__getattr__
_PLAIN_CALL = torch.nn.Module.__call__
_PLAIN_SETATTR = torch.nn.Module.__setattr__


class ModuleVariable(UserObjectVariable):
    """A module that exists before the region."""

    __slots__ = ("_members", "_hooks_checked")
    is_transparent_call = True

    def __init__(self, value: torch.nn.Module, source: Any = None):
        super().__init__(value, source)
        self._members: dict[str, VariableTracker] = {}
        self._hooks_checked: bool | None = None

    def describe(self) -> str:
        return f"module {self.source.name if self.source is not None else type(self.value).__name__}"

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        member = self._members.get(name)
        if member is not None and name not in self.attrs and not self._dicts_changed():
            if not self._any_overlay(tx):
                return member
            self._members.clear()
        if name in self.attrs or self._dicts_changed():
            return super().get_attr(tx, name)
        found = self._member(tx, name)
        if found is not None:
            self._members[name] = found
            return found
        return super().get_attr(tx, name)

    def _dicts_changed(self) -> bool:
        """Did the region touch the dicts of members? Then the general rules apply."""
        return any(d in self.attrs for d in _MEMBER_DICTS)

    def _member(self, tx: Any, name: str) -> VariableTracker | None:
        cls = self.cls
        real = self.value.__dict__
        if name in real or name in _MEMBER_DICTS:
            return None
        getattr_ = find_in_mro(tx, cls, "__getattr__")
        if getattr_ is None or getattr_.real is not _PLAIN_GETATTR or find_in_mro(tx, cls, name) is not None:
            return None
        if find_in_mro(tx, cls, "__getattribute__").real is not object.__getattribute__:  # type: ignore[union-attr]
            return None
        for kind in _MEMBER_DICTS:
            members = real.get(kind)
            if members is None or type(members) is not dict or name not in members:
                continue
            value = members[name]
            if self._overlay_has(tx, kind):
                return None
            source = None
            if self.source is not None:
                source = ModuleMemberSource(self.source, kind, name)
            return tx.lazy(value, source) if source is not None else tx.wrap(value, None)
        return None

    def _overlay_has(self, tx: Any, kind: str) -> bool:
        """Was the dict of members changed through its own tracker?"""
        known = tx.output.builder.by_id.get(id(self.value.__dict__[kind]))
        return known is not None and tx.output.side_effects.is_modified(known[1])

    def _any_overlay(self, tx: Any) -> bool:
        """Was any dict of members changed through its own tracker, as `Module.__setattr__` does?"""
        return any(kind in self.value.__dict__ and self._overlay_has(tx, kind) for kind in _MEMBER_DICTS)

    def has_attr(self, tx: Any, name: str) -> bool:
        known = self._members.get(name)
        if known is not None and not self._dicts_changed() and not self._any_overlay(tx):
            note_presence(known)
            return True
        return super().has_attr(tx, name)

    def set_attr(self, tx: Any, name: str, value: VariableTracker) -> None:
        if name == "_modules" and tx.output.walked_members:
            note_change(tx.output)
        value = value.realize()
        setattr_ = find_in_mro(tx, self.cls, "__setattr__")
        real = self.value.__dict__
        if (
            setattr_ is not None
            and setattr_.real is _PLAIN_SETATTR
            and not issubclass(value.python_type(), (torch.nn.Parameter, torch.nn.Module))
            and not any(name in (real.get(d) or ()) for d in _MEMBER_DICTS)
            and not self._dicts_changed()
        ):
            from .attributes import generic_setattr

            generic_setattr(tx, self, name, value)
            return
        self._members.clear()
        super().set_attr(tx, name, value)

    # -- calling ------------------------------------------------------------------------------------------------

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        direct, tx.direct_call = tx.direct_call, False
        call = find_in_mro(tx, self.cls, "__call__")
        if call is None or call.real is not _PLAIN_CALL:
            return super().call_function(tx, args, kwargs)
        output = tx.output
        stack = output.module_stack
        key = self.source.name if self.source is not None else f"{type(self.value).__name__}@{id(self.value)}"
        had = key in stack
        if not had:
            stack[key] = (key, self.cls)
            output._module_stack_copy = None
        try:
            if self.source is None:
                return self._follow(tx, direct, args, kwargs)
            stamped = output.stamps.stamp(tx, self, args, kwargs)
            if stamped is not None:
                return stamped
            begun = output.stamps.begin(tx, self, args, kwargs)
            result = self._follow(tx, direct, args, kwargs)
            if begun is not None:
                output.stamps.end(begun, result)
            return result
        finally:
            tx.direct_call = False
            if not had:
                stack.pop(key, None)
                output._module_stack_copy = None

    def _follow(
        self, tx: Any, direct: bool, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if self.has_hooks(tx) or "forward" in self.value.__dict__ or "_compiled_call_impl" in self.attrs:
            return tx.call(self.get_attr(tx, "_call_impl"), args, kwargs)
        forward = find_in_mro(tx, self.cls, "forward", None)
        if forward is None or not isinstance(forward.real, types.FunctionType):
            return tx.call(self.get_attr(tx, "_call_impl"), args, kwargs)
        self.guard_forward(tx)
        fn = forward_function(tx, self, forward)
        tx.direct_call = direct
        return fn.call_function(tx, [self, *args], kwargs)

    def guard_forward(self, tx: Any) -> None:
        if self.source is not None:
            tx.output.guard(self.source, "NO_INSTANCE_ATTR", "forward")

    def has_hooks(self, tx: Any) -> bool:
        """Does any hook run around this module's forward? Guarded either way."""
        if self._hooks_checked is None:
            real = self.value.__dict__
            own = any(real.get(name) for name in _HOOK_DICTS)
            shared = any(getattr(torch_module, name) for name in _GLOBAL_HOOKS)
            if self.source is not None and not own:
                tx.output.guard(self.source, "MODULE_HOOKS")
            self._hooks_checked = bool(own or shared)
        if self._hooks_checked:
            return True
        for name in _HOOK_DICTS:
            known = tx.output.builder.by_id.get(id(self.value.__dict__.get(name)))
            if known is not None and tx.output.side_effects.is_modified(known[1]):
                return True
        return False


def forward_function(tx: Any, module: ModuleVariable, forward: Any) -> VariableTracker:
    """Tracker of the class's ``forward``; its source is the class attribute."""
    return forward.value(tx) if forward.via is not None else _class_attribute(tx, module, forward)


def _class_attribute(tx: Any, module: ModuleVariable, found: Any) -> VariableTracker:
    from ..source import ClassAttrSource

    cls_source = module.class_vt(tx).source if module.source is not None else None
    return tx.wrap(found.real, None if cls_source is None else ClassAttrSource(cls_source, found.name))


@wraps_if(lambda v: issubclass(type(v), torch.nn.Module), priority=15)
def wrap_module(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
    return ModuleVariable(value, source)


__all__ = ["DELETED", "InstanceAttrSource", "ModuleVariable"]
