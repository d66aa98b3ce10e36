"""The protocol of variable trackers: one tracker stands for one Python object of the traced program.

A tracker of a mutable object is mutated in place while the frame is translated, exactly as the object would be; nothing
of this touches the real object.  `side_effects` replays the difference at the end of the traced region.

Whatever a tracker cannot do exactly ends in a graph break with a named kind, never in a guess.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..graph_break import ObservedException
from ..graph_break import graph_break as break_graph

if TYPE_CHECKING:
    from ..source import Source

__all__ = ["ObservedException", "VariableTracker", "break_graph"]


def is_argument_error(error: TypeError) -> bool:
    """Whether a model was called with other arguments than it takes (and not: a fault inside it)."""
    text = str(error)
    words = ("positional argument", "keyword argument", "multiple values for argument", "missing required argument")
    return any(w in text for w in words)


class VariableTracker:
    """Base of all trackers; every method has the semantics of the Python operation it is named after.

    `source` says how to get the object from the frame's inputs; None means that the object was made inside the region
    (or is a constant).  Methods take the translator as `tx`.
    """

    __slots__ = ("source", "__weakref__")

    #: True where equality of trackers is identity of objects; constants override it.
    has_identity = True
    #: True for objects whose contents can change; side_effects then replays or rebuilds them with their identity.
    is_mutable = False
    #: True for generators: letting go of one may run code of the program
    notices_drop = False

    def __init__(self, source: Source | None = None):
        self.source = source

    # -- what it is ---------------------------------------------------------------------------------------------

    def realize(self) -> VariableTracker:
        """The tracker itself; a LazyVariable gives the tracker of its value and records the guards."""
        return self

    def python_type(self) -> type:
        """Type of the real object."""
        break_graph("unknown_object", tracker=self.describe())

    def class_vt(self, tx: Any) -> VariableTracker:
        """Tracker of `type(object)`."""
        from lamina_dynamo.variables.user_class import class_of

        return class_of(tx, self)

    def is_python_constant(self) -> bool:
        return False

    def as_python_constant(self) -> Any:
        break_graph("not_a_constant", tracker=self.describe())

    def as_proxy(self) -> Any:
        """The object as an argument of an FX node."""
        if self.is_python_constant():
            return self.as_python_constant()
        break_graph("not_graph_argument", tracker=self.describe())

    is_class_like = False

    def describe(self) -> str:
        """A few words for messages."""
        where = f" from {self.source.name}" if self.source is not None else ""
        return f"{type(self).__name__}{where}"

    def __repr__(self) -> str:
        return f"<{self.describe()}>"

    def children(self) -> Iterable[VariableTracker]:
        """Trackers of the objects that this one refers to (what `reconstruct` would have to build)."""
        return ()

    def parked_parts(self) -> tuple[Any, list[VariableTracker], int] | None:
        """For iterators: (function, arguments, references that this object holds to each argument), such that
        ``function(*arguments)`` is an equal one; None if there is no such thing. See ``parked``."""
        return None

    # -- attributes ---------------------------------------------------------------------------------------------

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        from lamina_dynamo.variables.attributes import object_getattribute

        return object_getattribute(tx, self, name)

    def set_attr(self, tx: Any, name: str, value: VariableTracker) -> None:
        from .attributes import object_setattr

        object_setattr(tx, self, name, value)

    def del_attr(self, tx: Any, name: str) -> None:
        from .attributes import object_delattr

        object_delattr(tx, self, name)

    def has_attr(self, tx: Any, name: str) -> bool:
        from .attributes import note_presence

        try:
            note_presence(self.get_attr(tx, name))
        except ObservedException as e:
            if e.matches(AttributeError):
                return False
            raise
        return True

    # -- calls --------------------------------------------------------------------------------------------------

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        from .attributes import lookup_special

        method = lookup_special(tx, self, "__call__")
        if method is None:
            tx.raise_exception(TypeError, f"'{self.python_type().__name__}' object is not callable")
        return method.call_function(tx, args, kwargs)

    def call_method(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return self.get_attr(tx, name).call_function(tx, args, kwargs)

    def call_builtin_method(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """Runs the C-implemented method `name` of the object's builtin type (after all look-ups)."""
        handler = getattr(self, "method_" + name.strip("_"), None)
        if handler is None:
            from .slots import call_protocol

            result = call_protocol(tx, self, name, args, kwargs)
            if result is None:
                tx.graph_break("unsupported_builtin_method", type=self.python_type().__name__, method=name)
            return result
        try:
            return handler(tx, *args, **kwargs)
        except TypeError as e:
            if is_argument_error(e):
                # wrong number of arguments for the method: the program's own error, left to eager for its text
                tx.graph_break("bad_builtin_arguments", type=self.python_type().__name__, method=name, error=str(e))
            raise

    # -- protocols; the defaults look up the special method on the type --------------------------------------------

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        return self.call_special(tx, "__getitem__", [key], "'{type}' object is not subscriptable")

    def set_item(self, tx: Any, key: VariableTracker, value: VariableTracker) -> None:
        self.call_special(tx, "__setitem__", [key, value], "'{type}' object does not support item assignment")

    def del_item(self, tx: Any, key: VariableTracker) -> None:
        self.call_special(tx, "__delitem__", [key], "'{type}' object doesn't support item deletion")

    def contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        from .attributes import lookup_special
        from .operators import contains_by_iteration

        method = lookup_special(tx, self, "__contains__")
        if method is not None:
            return tx.const(tx.truth(method.call_function(tx, [item], {})))
        return contains_by_iteration(tx, self, item)

    def length(self, tx: Any) -> VariableTracker:
        return self.call_special(tx, "__len__", [], "object of type '{type}' has no len()")

    def iterate(self, tx: Any) -> VariableTracker:
        from .attributes import find_in_mro, lookup_special
        from .iterators import SequenceIterator

        method = lookup_special(tx, self, "__iter__")
        if method is not None:
            result = method.call_function(tx, [], {}).realize()
            if find_in_mro(tx, result.python_type(), "__next__") is None:
                kind = result.python_type().__name__
                tx.raise_exception(TypeError, f"iter() returned non-iterator of type '{kind}'")
            return result
        if lookup_special(tx, self, "__getitem__") is not None:
            return SequenceIterator(self)
        tx.raise_exception(TypeError, f"'{self.python_type().__name__}' object is not iterable")

    def next(self, tx: Any) -> VariableTracker:
        return self.call_special(tx, "__next__", [], "'{type}' object is not an iterator")

    def unpack(self, tx: Any) -> list[VariableTracker]:
        """All elements, as `list(obj)` would give them."""
        iterator = self.iterate(tx)
        out: list[VariableTracker] = []
        while True:
            try:
                out.append(iterator.next(tx))
            except ObservedException as e:
                if e.matches(StopIteration):
                    return out
                raise

    def truth(self, tx: Any) -> bool | None:
        """Truth value; None if it cannot be known during translation."""
        from .attributes import lookup_special

        method = lookup_special(tx, self, "__bool__")
        if method is not None:
            result = method.call_function(tx, [], {}).realize()
            if result.python_type() is not bool:
                tx.raise_exception(TypeError, f"__bool__ should return bool, returned {result.python_type().__name__}")
            return result.truth(tx)
        method = lookup_special(tx, self, "__len__")
        if method is not None:
            return self.length(tx).truth(tx)
        return True

    def binary_op(
        self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False
    ) -> VariableTracker | Any:
        """`op(self, other)`, or `op(other, self)` when reflected; NotImplemented: ask the other operand."""
        from .operators import special_binary

        return special_binary(tx, self, op, other, reflected)

    def unary_op(self, tx: Any, op: Callable[..., Any]) -> VariableTracker:
        from .operators import UNARY_SPECIAL

        if op is operator.not_:
            return tx.const(not tx.truth(self))
        name, symbol = UNARY_SPECIAL[op]
        return self.call_special(tx, name, [], f"bad operand type for unary {symbol}: '{{type}}'")

    def hash_key(self, tx: Any) -> Any:
        """A hashable stand-in: two trackers have equal keys if and only if a dict would take the objects as one key."""
        from lamina_dynamo.variables.keys import key_of_object

        return key_of_object(tx, self)

    def call_special(
        self, tx: Any, name: str, args: list[VariableTracker], missing: str | None = None
    ) -> VariableTracker:
        """Calls a special method found on the type; TypeError(missing) in the traced program if none."""
        from .attributes import lookup_special

        method = lookup_special(tx, self, name)
        if method is None:
            text = missing or "'{type}' object has no " + name
            tx.raise_exception(TypeError, text.format(type=self.python_type().__name__))
        return method.call_function(tx, args, {})

    # -- leaving the region -------------------------------------------------------------------------------------

    def reconstruct(self, codegen: Any) -> None:
        """Emits bytecode that pushes the real object."""
        if self.is_python_constant():
            codegen.load_const(self.as_python_constant())
            return
        break_graph("reconstruct", tracker=self.describe())
