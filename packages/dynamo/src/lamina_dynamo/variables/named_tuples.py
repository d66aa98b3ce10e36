"""`collections.namedtuple` called inside the region."""

from __future__ import annotations

import collections
from typing import Any, NoReturn

from ..graph_break import GraphBreak
from .base import VariableTracker
from .builtin import handles
from .constant import raise_real
from .mirrors import plain
from .user_class import ClassVariable


class MadeNamedTupleClass(ClassVariable):
    """The class that was made while translating. Each run makes its own, with the same ``given`` arguments, where the
    class or an instance leaves the region."""

    __slots__ = ("given",)

    def __init__(self, value: type, given: tuple[Any, ...]):
        super().__init__(value)
        self.given = given

    def is_python_constant(self) -> bool:
        return False

    def as_python_constant(self) -> Any:
        raise GraphBreak("class_statement", operation=f"a use of {self.value.__name__}, made by namedtuple() inside")

    def hash_key(self, tx: Any) -> Any:
        from .keys import IdentityKey

        return IdentityKey(self)

    def generic_set(self, tx: Any, name: str, value: Any) -> NoReturn:
        tx.graph_break("class_statement", operation=f"assignment to {name} of a class made by namedtuple()")

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(make_named_tuple)
        codegen.load_const(self.given)
        codegen.call_function(1)


def make_named_tuple(given: tuple[Any, ...]) -> Any:
    """The class, for generated code."""
    name, fields, rename, defaults, module = given
    return collections.namedtuple(name, fields, rename=rename, defaults=defaults, module=module)  # type: ignore[misc]


@handles(collections.namedtuple)
def _named_tuple(
    tx: Any,
    typename: VariableTracker,
    field_names: VariableTracker,
    *,
    rename: VariableTracker | None = None,
    defaults: VariableTracker | None = None,
    module: VariableTracker | None = None,
) -> VariableTracker:
    try:
        name, fields = plain(tx, typename), plain(tx, field_names)
        options = [None if v is None else plain(tx, v) for v in (rename, defaults, module)]
    except GraphBreak:
        tx.graph_break("class_statement", function="namedtuple", reason="arguments that are not constants")
    where = options[2] if options[2] is not None else tx.f_globals.get("__name__", "__main__")
    given = (name, tuple(fields) if isinstance(fields, list) else fields, bool(options[0]), options[1], where)
    try:
        real = make_named_tuple(given)
    except Exception as e:
        raise_real(tx, e)
    made = MadeNamedTupleClass(real, given)
    tx.output.side_effects.made_classes[real] = made
    return made
