"""Python modules."""

from __future__ import annotations

import types
from typing import Any

from .. import _torch as private
from .attributes import DELETED, raise_attribute_error
from .base import VariableTracker
from .builder import wraps_if, wraps_type
from .known import KnownVariable

_NAMESPACES_OF_TORCH = frozenset({"torch._VF", "torch._ops", "torch._classes"})


class PyModuleVariable(KnownVariable):
    """A Python module: attributes are read through it with guards."""

    __slots__ = ("attrs",)
    has_identity = True
    is_mutable = True

    def __init__(self, value: types.ModuleType, source: Any = None):
        super().__init__(value, source)
        self.attrs: dict[str, Any] = {}

    def describe(self) -> str:
        return f"module {self.value.__dict__.get('__name__')}"

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        from lamina_dynamo.source import AttrSource

        value = tx.output.side_effects.load_global_of(self.value.__dict__, name)
        if value is DELETED:
            raise_attribute_error(tx, self, name)
        if value is not None:
            return value
        if name == "__dict__":
            tx.graph_break("unknown_attribute", type="module", attribute="__dict__")
        if name in self.value.__dict__:
            source = None if self.source is None else AttrSource(self.source, name)
            return tx.wrap(self.value.__dict__[name], source)
        if name == "__class__":
            return self.class_vt(tx)
        if type(self.value).__module__ in _NAMESPACES_OF_TORCH:
            # torch._VF, torch.ops: what a name means there never changes
            try:
                return tx.wrap(getattr(self.value, name), None)
            except AttributeError:
                raise_attribute_error(tx, self, name)
        if f"{self.value.__dict__.get('__name__')}.{name}" == private.OTHER_COMPILERS[0]:
            from .flexible_attention import UnloadedCompilerVariable

            return UnloadedCompilerVariable(self)
        return self.get_unknown(tx, name)

    def get_unknown(self, tx: Any, name: str) -> VariableTracker:
        """An attribute that the module's dict has not."""
        from lamina_dynamo.source import AttrSource

        getattr_ = self.value.__dict__.get("__getattr__")
        if getattr_ is not None:
            source = None if self.source is None else AttrSource(self.source, "__getattr__")
            return tx.wrap(getattr_, source).call_function(tx, [tx.const(name)], {})
        if type(self.value) is not types.ModuleType:
            # lazily loading module classes (transformers): reading the attribute imports; do it as the import would
            try:
                value = getattr(self.value, name)
            except AttributeError:
                raise_attribute_error(tx, self, name)
            ours = self.source is None or type(self.value).__module__.startswith("torch.")  # torch's own tables
            return tx.wrap(value, None if ours else AttrSource(self.source, name))
        if self.source is not None:
            tx.output.guard(self.source, "NO_ATTR", name)
            tx.output.guard(self.source, "NO_INSTANCE_ATTR", "__getattr__")
        raise_attribute_error(tx, self, name)

    def set_attr(self, tx: Any, name: str, value: VariableTracker) -> None:
        if self.value.__dict__.get("__name__") in ("sys", "builtins", "os") or type(self.value) is not types.ModuleType:
            tx.graph_break("side_effect", module=self.value.__dict__.get("__name__"), attribute=name)
        tx.output.side_effects.store_global_of(self.value.__dict__, name, value, self)

    def del_attr(self, tx: Any, name: str) -> None:
        self.get_attr(tx, name)
        tx.output.side_effects.store_global_of(self.value.__dict__, name, DELETED, self)

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_global_alias("module", self.value)


@wraps_if(lambda v: issubclass(type(v), types.ModuleType), priority=30)
def wrap_module_of_subclass(tx: Any, value: Any, source: Any) -> VariableTracker:
    return wrap_module(tx, value, source)


@wraps_type(types.ModuleType)
@wraps_if(lambda v: issubclass(type(v), types.ModuleType), priority=12)
def wrap_module(tx: Any, value: Any, source: Any) -> VariableTracker:
    if type(value).__getattribute__ is not types.ModuleType.__getattribute__:
        tx.graph_break("unknown_object", type=type(value).__name__)
    if source is not None:
        tx.output.guard(source, "ID", value)
    return PyModuleVariable(value, source)
