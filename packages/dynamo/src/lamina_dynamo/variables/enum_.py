"""Enum classes and members: members are known by identity, so what they hold is known as well."""

from __future__ import annotations

import enum
from typing import Any

from ..roots import ConstantSource
from ..source import InstanceAttrSource
from .base import VariableTracker
from .builder import wraps_if
from .constant import ConstantVariable, fold, wrap_result
from .user_class import CLASS_FACTORIES, ClassVariable
from .user_object import UserObjectVariable, real_instance_dict


class EnumVariable(UserObjectVariable):
    """An enum member."""

    __slots__ = ()
    is_mutable = False
    is_enum_member = True
    has_identity = False

    def __init__(self, value: enum.Enum, source: Any = None):
        super().__init__(value, source)
        for base in (int, str, float, bytes):
            if isinstance(value, base):
                plain = base.__str__(value) if base is str else base.__new__(base, value) if base is bytes else None
                if base is int:
                    plain = int.__int__(value)  # type: ignore[arg-type]
                elif base is float:
                    plain = float.__float__(value)  # type: ignore[arg-type]
                self.storage = ConstantVariable(plain)
                break

    def describe(self) -> str:
        return f"enum member {type(self.value).__name__}.{self.value.name}"

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def as_proxy(self) -> Any:
        return self.value if self.storage is None else self.storage.as_proxy()

    def hash_key(self, tx: Any) -> Any:
        from .keys import ConstantKey

        return ConstantKey(self.value)

    def same_object(self, tx: Any, other: VariableTracker) -> bool | None:
        return isinstance(other, EnumVariable) and other.value is self.value

    def instance_attr(self, tx: Any, name: str, shadowing: bool) -> VariableTracker | None:
        real = real_instance_dict(self.value) or {}
        if name not in real:
            return None
        member = self.source or ConstantSource(str(self.value), self.value)
        known = self.read.get(name)
        if known is None:
            known = self.read[name] = tx.wrap(real[name], InstanceAttrSource(member, name))
        return known

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "name" and not _redefines(self.value, "name"):
            return tx.const(self.value.name)
        if name == "value" and not _redefines(self.value, "value"):
            known = self.instance_attr(tx, "_value_", True)
            return wrap_result(tx, self.value.value) if known is None else known
        return super().get_attr(tx, name)

    def set_attr(self, tx: Any, name: str, value: VariableTracker) -> None:
        tx.graph_break("side_effect", operation="attribute of an enum member")

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_global_alias("member", self.value)


def _redefines(member: enum.Enum, name: str) -> bool:
    for klass in type(member).__mro__:
        if name in klass.__dict__:
            return klass is not enum.Enum
    return False


@wraps_if(lambda v: issubclass(type(v), enum.Enum), priority=30)
def wrap_enum(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return EnumVariable(value, source)


class EnumClassVariable(ClassVariable):
    """An enum class from outside: members, look-up by value and by name, iteration."""

    __slots__ = ()

    def members(self) -> dict[str, Any]:
        return self.value.__dict__.get("_member_map_", {})

    def generic_get(self, tx: Any, name: str) -> VariableTracker:
        members = self.members()
        if name in members:
            return tx.wrap(members[name], None)
        if name == "__members__":
            from .dict_views import MappingProxyVariable
            from .dicts import DictVariable

            return MappingProxyVariable(
                DictVariable.from_pairs(tx, [(tx.const(k), tx.wrap(v, None)) for k, v in members.items()])
            )
        return super().generic_get(tx, name)

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if len(args) == 1 and not kwargs and self.members():
            from .container import content

            arg = args[0].realize()
            inner = arg if isinstance(arg, EnumVariable) else content(arg)
            if inner.is_python_constant():
                return fold(tx, self.value, [inner], {})
        if not self.members():
            tx.graph_break("class_statement", reason="functional enum API")
        return super().call_function(tx, args, kwargs)

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        return fold(tx, type(self.value).__getitem__, [self, key.realize()], {})

    def iterate(self, tx: Any) -> VariableTracker:
        from .container import TupleVariable

        return TupleVariable(self.unpack(tx)).iterate(tx)

    def unpack(self, tx: Any) -> list[VariableTracker]:
        return [tx.wrap(m, None) for m in self.value]  # type: ignore[attr-defined]

    def length(self, tx: Any) -> VariableTracker:
        return tx.const(len(self.value))  # type: ignore[arg-type]

    def contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        item = item.realize()
        if item.is_python_constant():
            return fold(tx, type(self.value).__contains__, [self, item], {})
        return super().contains(tx, item)


CLASS_FACTORIES.insert(0, (lambda cls: isinstance(cls, enum.EnumMeta), EnumClassVariable))
