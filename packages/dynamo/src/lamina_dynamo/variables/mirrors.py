"""Objects made inside the region that are nothing but their own state: text and byte buffers, byte arrays, seeded
generators of random numbers.

While translating the region has a real object of the kind, the mirror, on which its calls run with constant arguments.
Where the object leaves the region, generated code makes a copy of the mirror as it is then.
"""

from __future__ import annotations

import copy
import io
import random
import types
from collections.abc import Callable
from typing import Any

from ..graph_break import GraphBreak
from .attributes import raise_attribute_error
from .base import VariableTracker
from .builtin import CONSTRUCTORS
from .constant import raise_real, wrap_result
from .container import ListVariable, TupleVariable, content
from .owner_method import OwnerMethodVariable


class MirrorVariable(VariableTracker):
    """`value` is the mirror; `home` the graph under translation when it was made."""

    __slots__ = ("home", "value")
    is_mutable = True

    def __init__(self, tx: Any, value: Any):
        super().__init__(None)
        self.value = value
        self.home = tx.output.graph

    def describe(self) -> str:
        return f"{type(self.value).__name__} made inside"

    def python_type(self) -> type:
        return type(self.value)

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "__class__":
            return self.class_vt(tx)
        found = getattr(type(self.value), name, None)
        if callable(found):
            kind = types.MethodType if isinstance(found, types.FunctionType) else types.BuiltinMethodType
            return OwnerMethodVariable(self, name, kind)
        try:
            value = getattr(self.value, name)
        except AttributeError:
            raise_attribute_error(tx, self, name)
        except ValueError as e:  # of a closed buffer
            raise_real(tx, e)
        if name.startswith("__"):
            tx.graph_break("unknown_attribute", type=type(self.value).__name__, attribute=name)
        return wrap_result(tx, value)

    def set_attr(self, tx: Any, name: str, value: VariableTracker) -> None:
        tx.graph_break("side_effect", type=type(self.value).__name__, attribute=name)

    def call_method(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if isinstance(self.value, random.Random) and name in _ON_ANY_ITEMS:
            found = _ON_ANY_ITEMS[name](tx, self, *args, **kwargs)
            if found is not None:
                return found
        if name == "__exit__":
            args = [tx.const(None)] * len(args)
        return self.run(tx, getattr(type(self.value), name), args, kwargs)

    call_builtin_method = call_method

    def run(
        self, tx: Any, method: Callable[..., Any], args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """`method(mirror, *args, **kwargs)`."""
        if tx.output.graph is not self.home:
            tx.graph_break("side_effect", operation=f"a change of a {type(self.value).__name__} in a graph of its own")
        given = [plain(tx, a) for a in args]
        named = {k: plain(tx, v) for k, v in kwargs.items()}
        try:
            result = method(self.value, *given, **named)
        except Exception as e:
            raise_real(tx, e)
        return self.wrap(tx, result)

    def wrap(self, tx: Any, result: Any) -> VariableTracker:
        if result is self.value:
            return self
        if result is NotImplemented:
            return tx.const(NotImplemented)  # type: ignore[no-any-return]
        if type(result) in _KINDS:
            return MirrorVariable(tx, result)
        if type(result).__module__ == "numpy" and type(result).__name__ == "ndarray":
            return _known_array(tx, result)
        if type(result) not in _RESULTS:
            tx.graph_break("unknown_object", type=type(result).__name__)
        return wrap_result(tx, result)

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        other = other.realize()
        if not isinstance(other, MirrorVariable) and not other.is_python_constant():
            return super().binary_op(tx, op, other, reflected)
        if reflected:
            return self.run(tx, lambda mirror, x: op(x, mirror), [other], {})
        return self.run(tx, op, [other], {})

    def iterate(self, tx: Any) -> VariableTracker:
        if isinstance(self.value, bytearray):
            from .iterators import SequenceIterator

            return SequenceIterator(self)
        return super().iterate(tx)

    def truth(self, tx: Any) -> bool | None:
        return bool(self.value)

    def method_repr(self, tx: Any) -> VariableTracker:
        if not isinstance(self.value, bytearray):
            tx.graph_break("object_identity", operation="repr", type=type(self.value).__name__)
        return tx.const(repr(self.value))  # type: ignore[no-any-return]

    def hash_key(self, tx: Any) -> Any:
        if type(self.value).__hash__ is None:
            return super().hash_key(tx)
        from .keys import IdentityKey

        return IdentityKey(self)

    def copy_object(self, tx: Any, memo: Any) -> VariableTracker:
        """`copy.copy` and `copy.deepcopy`."""
        return MirrorVariable(tx, copy_of(self.value))

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(copy_of)
        codegen.load_const(copy_of(self.value))
        codegen.call_function(1)


def copy_of(mirror: Any) -> Any:
    """Another object in the mirror's state."""
    if getattr(mirror, "closed", False):
        made = type(mirror)()
        made.close()
        return made
    return copy.deepcopy(mirror)


def plain(tx: Any, vt: VariableTracker) -> Any:
    """An argument of a call on a mirror."""
    vt = vt.realize()
    if isinstance(vt, MirrorVariable):
        return vt.value
    if getattr(vt, "is_symbolic_number", False) or hasattr(vt, "specialize"):
        vt = vt.specialize(tx)  # type: ignore[attr-defined]
    if not vt.is_python_constant():
        vt = content(vt)
    if not vt.is_python_constant():
        items = getattr(vt, "items", None)
        if type(vt) in (ListVariable, TupleVariable) and isinstance(items, list):
            return vt.python_type()([plain(tx, i) for i in items])
    return vt.as_python_constant()


def _known_array(tx: Any, value: Any) -> VariableTracker:
    """An array that is the same at each run, though each time another object."""
    from ..roots import ConstantSource
    from ..source import PythonSource

    return tx.wrap(value, PythonSource(ConstantSource("array", value), copy.copy))  # type: ignore[no-any-return]


def print_to_mirror(
    tx: Any, file: MirrorVariable, texts: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """`print(*texts, file=file)`."""
    named = {k: plain(tx, v) for k, v in kwargs.items()}
    return file.run(tx, lambda mirror, *given: print(*given, file=mirror, **named), texts, {})


# -- a seeded generator and items that need not be constants -----------------------------------------------------------


def _indices(vt: VariableTracker) -> tuple[Any, list[VariableTracker]] | None:
    inner = content(vt.realize())
    items = getattr(inner, "items", None)
    if type(inner) in (ListVariable, TupleVariable) and isinstance(items, list):
        return range(len(items)), items
    return None


def _shuffle(tx: Any, mirror: MirrorVariable, x: VariableTracker) -> VariableTracker:
    x = x.realize()
    if type(x) is not ListVariable:
        tx.graph_break("random_draw", function="shuffle", argument=x.describe())
    order = list(range(len(x.items)))
    mirror.value.shuffle(order)
    tx.output.side_effects.mutation(x)
    x.items[:] = [x.items[i] for i in order]
    return tx.const(None)  # type: ignore[no-any-return]


def _choice(tx: Any, mirror: MirrorVariable, seq: VariableTracker) -> VariableTracker | None:
    found = _indices(seq)
    if found is None or not found[1]:
        return None
    return found[1][mirror.value.choice(found[0])]


def _sample(tx: Any, mirror: MirrorVariable, population: Any, k: Any, **kwargs: Any) -> VariableTracker | None:
    found = _indices(population)
    if found is None or kwargs:
        return None
    number = plain(tx, k)
    try:
        picked = mirror.value.sample(found[0], number)
    except Exception as e:
        raise_real(tx, e)
    return ListVariable([found[1][i] for i in picked])


_ON_ANY_ITEMS: dict[str, Callable[..., VariableTracker | None]] = {
    "shuffle": _shuffle,
    "choice": _choice,
    "sample": _sample,
}


# -- making them -------------------------------------------------------------------------------------------------------

_KINDS: set[type] = {io.StringIO, io.BytesIO, bytearray}
_RESULTS = (
    int, float, bool, str, bytes, complex, type(None), list, tuple, dict, set,
)  # fmt: skip


def _maker(kind: type) -> Callable[..., VariableTracker]:
    def make(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        given = [_initial(tx, kind, a) for a in args]
        named = {k: plain(tx, v) for k, v in kwargs.items()}
        try:
            return MirrorVariable(tx, kind(*given, **named))
        except Exception as e:
            raise_real(tx, e)

    return make


def _initial(tx: Any, kind: type, vt: VariableTracker) -> Any:
    if kind is bytearray:
        try:
            return plain(tx, vt)
        except GraphBreak:
            return [plain(tx, i) for i in vt.realize().unpack(tx)]
    return plain(tx, vt)


for _kind in (io.StringIO, io.BytesIO, bytearray):
    CONSTRUCTORS[_kind] = _maker(_kind)

__all__ = ["MirrorVariable", "copy_of", "plain"]
