"""Keys of dicts and sets during translation: real hashable objects that compare as the traced objects would."""

from __future__ import annotations

from typing import Any

from .base import VariableTracker, break_graph


class ConstantKey:
    """Key of an object known exactly; equality and hash are those of the real value."""

    __slots__ = ("hash", "value")

    def __init__(self, value: Any):
        self.value = value
        self.hash = hash(value)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ConstantKey):
            return self.value is other.value or bool(self.value == other.value)
        return NotImplemented

    def __repr__(self) -> str:
        return f"key({self.value!r})"


class IdentityKey:
    """Key of an object whose type compares by identity. ``made`` counts them: what is looked up by identity is known of
    one object only."""

    __slots__ = ("vt",)
    made = 0

    def __init__(self, vt: VariableTracker):
        IdentityKey.made += 1
        self.vt = vt

    def __hash__(self) -> int:
        return id(self.vt)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, IdentityKey):
            return self.vt is other.vt
        return NotImplemented


class TupleKey:
    """Key of a tuple (or frozenset): compares part by part."""

    __slots__ = ("parts",)

    def __init__(self, parts: Any):
        self.parts = parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TupleKey):
            return self.parts == other.parts
        return NotImplemented


class TracedKey:
    """Key of an object with its own `__hash__` / `__eq__`; comparing runs the traced `__eq__`."""

    __slots__ = ("hash", "tx", "vt")

    def __init__(self, tx: Any, vt: VariableTracker, hash_value: int):
        self.tx = tx
        self.vt = vt
        self.hash = hash_value

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        from .operators import is_same, values_equal

        other_vt = getattr(other, "vt", None)
        if other_vt is None:
            if not isinstance(other, ConstantKey):
                return NotImplemented
            other_vt = self.tx.wrap(other.value, None)
        return is_same(self.tx, self.vt, other_vt) or values_equal(self.tx, self.vt, other_vt)


class StoredKey(TracedKey):
    """A traced key that a real container holds already: it differs from the container's other keys."""

    __slots__ = ("container",)

    def __init__(self, tx: Any, vt: VariableTracker, hash_value: int, container: Any):
        super().__init__(tx, vt, hash_value)
        self.container = container

    __hash__ = TracedKey.__hash__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, StoredKey) and other.container is self.container:
            return self.vt is other.vt
        return super().__eq__(other)


def stored_key(tx: Any, container: Any, vt: VariableTracker) -> Any:
    """Key of an object with its own `__hash__` met in a container from outside.

    The real container keeps the hash and does not call `__hash__` again, so its code must leave no traces.
    """
    effects = tx.output.side_effects
    before = (len(effects.modified), len(effects.global_stores), len(effects.calls))
    key = vt.hash_key(tx)
    if (len(effects.modified), len(effects.global_stores), len(effects.calls)) != before:
        break_graph("unknown_object", type=vt.python_type().__name__, reason="a key whose __hash__ has side effects")
    return StoredKey(tx, vt, key.hash, container) if isinstance(key, TracedKey) else key


def push_traced_keys(codegen: Any, keys: Any) -> None:
    """Finishes the new objects with an own `__hash__` before generated code puts them into a dict or set.

    `keys`: pairs (key stand-in, tracker).
    """
    for key, vt in keys:
        if isinstance(key, (ConstantKey, IdentityKey)) or vt.source is not None or vt.is_python_constant():
            continue
        codegen(vt)
        codegen.pop()
        codegen.output.side_effects.drain(codegen)


def key_of_object(tx: Any, vt: VariableTracker) -> Any:
    """Key by the rules of the object's type: identity, or its traced `__hash__`."""
    from lamina_dynamo.variables.attributes import find_in_type

    found = find_in_type(tx, vt, "__hash__")
    if found is None or found.is_none:
        tx.raise_exception(TypeError, f"unhashable type: '{vt.python_type().__name__}'")
    equal = find_in_type(tx, vt, "__eq__")
    if found.real is object.__hash__:
        if equal is None or equal.real in (object.__eq__, type.__dict__.get("__eq__")):
            tx.output.told_apart.setdefault(vt)
            return IdentityKey(vt)
        # object.__hash__ with an own __eq__ (`__hash__ = object.__hash__`): identity decides
        tx.output.told_apart.setdefault(vt)
        return IdentityKey(vt)
    result = vt.call_special(tx, "__hash__", []).realize()
    value = result.as_python_constant()
    if type(value) is not int:
        tx.raise_exception(TypeError, "__hash__ method should return an integer")
    return TracedKey(tx, vt, value)
