"""types.SimpleNamespace."""

from __future__ import annotations

import operator
import types
from typing import Any

from .base import VariableTracker
from .builder import wraps_if
from .formatting import repr_of
from .user_object import UserObjectVariable


@wraps_if(lambda v: type(v) is types.SimpleNamespace, priority=5)
def wrap_namespace(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "TYPE", types.SimpleNamespace)
    return NamespaceVariable(value, source)


class NamespaceVariable(UserObjectVariable):
    """types.SimpleNamespace."""

    __slots__ = ()

    def method_init(self, tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        for name, value in kwargs.items():
            self.store_attr(tx, name, value)
        return tx.const(None)

    def method_repr(self, tx: Any) -> VariableTracker:
        parts = [f"{n}={repr_of(tx, self.instance_attr(tx, n, True))}" for n in self.attr_names(tx)]  # type: ignore[arg-type]
        return tx.const(f"namespace({', '.join(parts)})")

    def binary_op(self, tx: Any, op: Any, other: VariableTracker, reflected: bool = False) -> Any:
        other = other.realize()
        if op in (operator.eq, operator.ne) and isinstance(other, NamespaceVariable):
            mine = self.instance_dict(tx)
            return mine.binary_op(tx, op, other.instance_dict(tx))
        return NotImplemented

    def hash_key(self, tx: Any) -> Any:
        tx.raise_exception(TypeError, "unhashable type: 'types.SimpleNamespace'")


def _register_namespace() -> None:
    from .builtin import CONSTRUCTORS

    def make(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        vt = NamespaceVariable(None, None, types.SimpleNamespace)
        vt.method_init(tx, **kwargs)
        return vt

    CONSTRUCTORS[types.SimpleNamespace] = make


_register_namespace()
