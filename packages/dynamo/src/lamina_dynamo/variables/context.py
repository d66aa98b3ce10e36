"""Context managers of torch state: grad mode, inference mode, autocast, attention kernels, profiler ranges.

Entering one records the setter function in the graph and sets the state for real while translating, so that the calls
on fakes behave
as the program's do. A graph always leaves the state as it found it; at a graph break inside a block the compiled code
enters the blocks that
are open (``leave_state``), so that eager goes on under the right state.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from .. import _torch as private
from ..graph_break import GraphBreak
from .base import VariableTracker
from .builder import wraps_if
from .constant import ConstantVariable
from .owner_method import OwnerMethodVariable

open_contexts: list[Any] = []
"""Undo functions of the state changes made for real by the running translation."""

outputs_under_translation: list[Any] = []


def current_output() -> Any:
    """The output graph being recorded."""
    return outputs_under_translation[-1]


class ContextVariable(VariableTracker):
    """A context manager of torch state."""

    __slots__ = ("cls", "args", "kwargs", "undo", "node", "value", "entered", "grad_before")
    has_identity = True

    def __init__(
        self,
        cls: Any,
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker],
        source: Any = None,
        value: Any = None,
    ):
        self.source = source
        self.cls = cls
        self.args = args
        self.kwargs = kwargs
        self.undo: Any = None
        self.node: Any = None
        self.value = value
        self.entered = 0
        self.grad_before = True  # grad mode when it was entered

    def describe(self) -> str:
        return getattr(self.cls, "__name__", str(self.cls))

    def python_type(self) -> type:
        if isinstance(self.cls, type):
            return self.cls
        raise GraphBreak("context_manager", type=self.describe())

    def truth(self, tx: Any) -> bool:
        return True

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name in ("__enter__", "__exit__", "clone"):
            return OwnerMethodVariable(self, name)
        if name == "__class__" and isinstance(self.cls, type):
            return tx.wrap(self.cls, None)
        if name in ("mode", "prev") and self.value is not None and hasattr(self.value, name):
            from ..source import AttrSource

            found = getattr(self.value, name)
            return tx.wrap(found, AttrSource(self.source, name) if self.source is not None else None)
        if isinstance(self.cls, type) and not hasattr(self.cls, name):
            tx.raise_exception(AttributeError, f"'{self.describe()}' object has no attribute '{name}'")
        raise GraphBreak("context_manager", type=self.describe(), attribute=name)

    def has_attr(self, tx: Any, name: str) -> bool:
        return name in ("__enter__", "__exit__", "clone") or hasattr(self.cls, name)

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        if name == "__enter__":
            self.enter(tx)
            return self if issubclass(type(self), ContextVariable) and self.gives_itself else tx.const(None)
        if name == "__exit__":
            self.leave(tx)
            return tx.const(False) if self.returns_false else tx.const(None)
        if name == "clone":
            return type(self)(self.cls, self.args, self.kwargs)
        return super().call_method(tx, name, args, kwargs)

    gives_itself = False
    returns_false = False

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """The manager used as a decorator."""
        return DecoratedVariable(self, args[0].realize())

    def enter(self, tx: Any) -> None:
        if self.entered:
            raise GraphBreak("context_manager", type=self.describe(), reason="entered twice")
        self.entered += 1
        self.grad_before = torch.is_grad_enabled()
        tx.output.context_stack.append(self)
        self.set(tx)

    def leave(self, tx: Any) -> None:
        if self not in tx.output.context_stack:
            raise GraphBreak("context_manager", type=self.describe(), reason="left without being entered")
        self.entered -= 1
        tx.output.context_stack.remove(self)
        self.reset(tx.output)

    def set(self, tx: Any) -> None:
        raise NotImplementedError

    def reset(self, output: Any) -> None:
        raise NotImplementedError

    def children(self) -> Any:
        return (*self.args, *self.kwargs.values())

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(self.cls)
        for a in self.args:
            codegen(a)
        for a in self.kwargs.values():
            codegen(a)
        codegen.call_kw(len(self.args) + len(self.kwargs), tuple(self.kwargs))


class DecoratedVariable(VariableTracker):
    """A function under ``@torch.no_grad()`` made inside the region."""

    __slots__ = ("manager", "fn")

    def __init__(self, manager: ContextVariable, fn: VariableTracker):
        self.source = None
        self.manager = manager
        self.fn = fn

    def python_type(self) -> type:
        return self.fn.python_type()

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        manager = type(self.manager)(self.manager.cls, self.manager.args, self.manager.kwargs)
        manager.enter(tx)
        try:
            return self.fn.call_function(tx, args, kwargs)
        finally:
            if manager in tx.output.context_stack:
                manager.leave(tx)

    def children(self) -> Any:
        return (self.manager, self.fn)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.manager)
        codegen.make_callable()
        codegen(self.fn)
        codegen.call_function(1)


def set_grad_mode(output: Any, mode: bool) -> None:
    """Record and set the grad mode."""
    output.sets_state = True
    node = output.graph.create_node("call_function", private.set_grad_enabled, (mode,), {})
    node.meta["val"] = None
    node.meta["impure"] = True
    node.meta["stack_trace"] = output.current_tx.stack_trace()
    private.set_grad_enabled(mode)


class GradModeVariable(ContextVariable):
    """``torch.no_grad``, ``enable_grad``, ``set_grad_enabled``."""

    __slots__ = ("previous",)

    def mode(self) -> bool:
        if self.cls is torch.no_grad:
            return False
        if self.cls is torch.enable_grad:
            return True
        (mode,) = [*self.args, *self.kwargs.values()]
        return bool(mode.as_python_constant())

    def set(self, tx: Any) -> None:
        self.previous = torch.is_grad_enabled()
        set_grad_mode(tx.output, self.mode())

    def reset(self, output: Any) -> None:
        set_grad_mode(output, self.previous)


class SetGradEnabledVariable(GradModeVariable):
    """``torch.set_grad_enabled(mode)``: sets the mode when it is made; leaving it puts the earlier mode back."""

    __slots__ = ()

    def enter(self, tx: Any) -> None:
        self.entered += 1
        self.grad_before = torch.is_grad_enabled()
        tx.output.context_stack.append(self)
        set_grad_mode(tx.output, self.mode())

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(_grad_context)
        codegen.load_const(self.mode())
        codegen.load_const(self.previous)
        codegen.call_function(2)


def _grad_context(mode: bool, previous: bool) -> Any:
    """A ``set_grad_enabled`` object whose block is entered later; leaving it restores ``previous``."""
    now = torch.is_grad_enabled()
    context = torch.set_grad_enabled(mode)
    context.prev = previous
    torch._C._set_grad_enabled(now)
    return context


class InferenceModeVariable(ContextVariable):
    """``torch.inference_mode``."""

    __slots__ = ("real",)

    def mode(self) -> bool:
        values = [*self.args, *self.kwargs.values()]
        return bool(values[0].as_python_constant()) if values else True

    def set(self, tx: Any) -> None:
        tx.output.sets_state = True
        node = tx.output.graph.create_node("call_function", private.enter_inference_mode, (self.mode(),), {})
        node.meta.update(val=None, impure=True, stack_trace=tx.stack_trace())
        self.node = node
        self.real = private.enter_inference_mode(self.mode())
        open_contexts.append(self)

    def reset(self, output: Any) -> None:
        node = output.graph.create_node("call_function", private.exit_inference_mode, (self.node,), {})
        node.meta.update(val=None, impure=True, stack_trace=output.current_tx.stack_trace())
        self.undo_real()

    def undo_real(self) -> None:
        if self in open_contexts:
            open_contexts.remove(self)
            private.exit_inference_mode(self.real)


class AutocastVariable(ContextVariable):
    """``torch.autocast`` and its device variants."""

    __slots__ = ("real",)
    gives_itself = True

    def values(self) -> tuple[Any, ...]:
        args = [a.as_python_constant() for a in self.args]
        kwargs = {k: a.as_python_constant() for k, a in self.kwargs.items()}
        made = self.cls(*args, **kwargs)
        return made.device, made.fast_dtype, made._enabled, made._cache_enabled

    def set(self, tx: Any) -> None:
        values = self.values()
        tx.output.sets_state = True
        node = tx.output.graph.create_node("call_function", private.enter_autocast, values, {})
        node.meta.update(val=None, impure=True, stack_trace=tx.stack_trace())
        self.node = node
        self.real = private.enter_autocast(*values)
        open_contexts.append(self)

    def reset(self, output: Any) -> None:
        node = output.graph.create_node("call_function", private.exit_autocast, (self.node,), {})
        node.meta.update(val=None, impure=True, stack_trace=output.current_tx.stack_trace())
        self.undo_real()

    def undo_real(self) -> None:
        if self in open_contexts:
            open_contexts.remove(self)
            private.exit_autocast(self.real)


class NoOpContextVariable(ContextVariable):
    """Profiler ranges and the like: no part of what is computed."""

    __slots__ = ()
    gives_itself = True

    def set(self, tx: Any) -> None:
        pass

    def reset(self, output: Any) -> None:
        pass


class NullContextVariable(ContextVariable):
    """``contextlib.nullcontext``."""

    __slots__ = ()

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        if name == "__enter__":
            values = [*self.args, *self.kwargs.values()]
            return values[0] if values else tx.const(None)
        if name == "__exit__":
            return tx.const(None)
        return super().call_method(tx, name, args, kwargs)


CONTEXT_CLASSES: dict[Any, type[ContextVariable]] = {
    torch.no_grad: GradModeVariable,
    torch.enable_grad: GradModeVariable,
    torch.set_grad_enabled: SetGradEnabledVariable,
    torch.inference_mode: InferenceModeVariable,
    torch.autocast: AutocastVariable,
    torch.cpu.amp.autocast: AutocastVariable,
    torch.cuda.amp.autocast: AutocastVariable,
    torch.profiler.record_function: NoOpContextVariable,
    torch.autograd.profiler.record_function: NoOpContextVariable,
    torch.autograd.profiler.profile: NoOpContextVariable,
    contextlib.nullcontext: NullContextVariable,
}


def _is_context_class(value: Any) -> bool:
    return issubclass(type(value), type) and value in CONTEXT_CLASSES


class ContextClassVariable(VariableTracker):
    """One of the classes above; calling it makes the context tracker."""

    __slots__ = ("value",)
    has_identity = False

    def __init__(self, value: Any, source: Any = None):
        self.source = source
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    is_class_like = True

    @property
    def class_name(self) -> str:
        return self.value.__name__

    def truth(self, tx: Any) -> bool:
        return True

    def hash_key(self, tx: Any) -> Any:
        from .keys import ConstantKey

        return ConstantKey(self.value)

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        from .user_class import make_class_vt

        return make_class_vt(tx, self.value, self.source).get_attr(tx, name)

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        args = [a.realize() for a in args]
        kwargs = {k: a.realize() for k, a in kwargs.items()}
        kind = CONTEXT_CLASSES[self.value]
        by_itself = kind is GradModeVariable or kind is InferenceModeVariable
        if by_itself and len(args) == 1 and not isinstance(args[0], ConstantVariable):
            return kind(self.value, [], {}).call_function(tx, args, kwargs)  # @torch.no_grad without parentheses
        vt = kind(self.value, args, kwargs)
        if kind is SetGradEnabledVariable:
            vt.previous = torch.is_grad_enabled()
            set_grad_mode(tx.output, vt.mode())
        return vt

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_const(self.value)


@wraps_if(_is_context_class, priority=60)
def wrap_context_class(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return ContextClassVariable(value, source)


@wraps_if(lambda v: type(v) in (torch.no_grad, torch.enable_grad, torch.set_grad_enabled), priority=60)
def wrap_grad_mode(tx: Any, value: Any, source: Any) -> VariableTracker:
    kind = type(value)
    if source is not None:
        tx.output.guard(source, "TYPE", kind)
    if kind is torch.set_grad_enabled:
        from ..source import AttrSource

        mode = tx.wrap(value.mode, AttrSource(source, "mode") if source is not None else None)
        vt: ContextVariable = SetGradEnabledVariable(kind, [mode], {}, source, value)
        vt.previous = value.prev  # type: ignore[attr-defined]
        return vt
    return GradModeVariable(kind, [], {}, source, value)


@wraps_if(lambda v: type(v) is torch.inference_mode, priority=60)
def wrap_inference_mode(tx: Any, value: Any, source: Any) -> VariableTracker:
    from ..source import AttrSource

    if source is not None:
        tx.output.guard(source, "TYPE", torch.inference_mode)
    mode = tx.wrap(value.mode, AttrSource(source, "mode") if source is not None else None)
    return InferenceModeVariable(torch.inference_mode, [mode], {}, source, value)


@wraps_if(lambda v: issubclass(type(v), torch.autocast), priority=60)
def wrap_autocast(tx: Any, value: Any, source: Any) -> VariableTracker:
    if type(value) not in CONTEXT_CLASSES:
        raise GraphBreak("context_manager", type=type(value).__name__)
    if source is not None:
        from ..source import AttrSource

        tx.output.guard(source, "TYPE", type(value))
        for name in ("device", "fast_dtype", "_enabled", "_cache_enabled"):
            tx.output.guard(AttrSource(source, name), "CONSTANT", getattr(value, name))
    return AutocastVariable(
        torch.autocast,
        [tx.const(value.device)],
        {
            "dtype": tx.wrap(value.fast_dtype, None),
            "enabled": tx.const(value._enabled),
            "cache_enabled": tx.const(value._cache_enabled),
        },
        source,
        value,
    )


# -- leaving the region
# ---------------------------------------------------------------------------------------------------


def leave_state(output: Any, cg: Any) -> None:
    """End of a graph: put the state back in the graph; in the compiled code enter the blocks that are still open."""
    final_grad = torch.is_grad_enabled()
    for context in reversed(list(output.context_stack)):
        context.reset(output)
    if torch.is_grad_enabled() != output.initial_grad_mode:
        set_grad_mode(output, output.initial_grad_mode)
    now = output.initial_grad_mode
    for context in output.context_stack:
        if isinstance(context, NullContextVariable):
            continue
        if now != context.grad_before:  # what it will put back when it is left
            now = context.grad_before
            cg.push_function(private.set_grad_enabled)
            cg.load_const(now)
            cg.call_function(1)
            cg.pop()
        cg(context)
        cg.load_attr("__enter__")
        cg.make_callable()
        cg.call_function(0)
        cg.pop()
        if isinstance(context, GradModeVariable):
            now = context.mode()
        elif isinstance(context, InferenceModeVariable):
            now = not context.mode()
    for mode in output.function_modes:
        cg.push_function(torch._C._push_on_torch_function_stack)
        cg(mode)
        cg.call_function(1)
        cg.pop()
    if now != final_grad:
        cg.push_function(private.set_grad_enabled)
        cg.load_const(final_grad)
        cg.call_function(1)
        cg.pop()


def restore_state() -> None:
    """Undo what a translation set for real and did not undo itself."""
    for context in reversed(list(open_contexts)):
        context.undo_real()
