"""Generators of random numbers of Python and numpy: the hidden ones behind `random.random` and `numpy.random.rand`,
those of the program, and those made inside the region.

A call draws from the real generator, each time the compiled code runs (see `draws`). Here it is tried on a generator of
no concern, to learn what kind of value comes out and which errors the arguments cause. A generator made inside from a
constant seed gives the same numbers at each run: it is a `MirrorVariable`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

from ..draws import Draw, DrawSource
from ..graph_break import GraphBreak
from ..source import ItemSource, PythonSource
from .attributes import raise_attribute_error
from .base import VariableTracker
from .builder import wraps_if, wraps_type
from .builtin import CONSTRUCTORS, BuiltinVariable
from .constant import raise_real
from .container import ListVariable, content
from .mirrors import MirrorVariable

_BELOW_ONE = 1.0 - 2.0**-53
_LARGEST = (1 << 63) - 1


def _numpy_random() -> Any:
    return sys.modules.get("numpy.random")


def is_stream(value: Any) -> bool:
    """Is it a generator whose methods draw from a state that it keeps (and no subclass of the program's)?"""
    if type(value) is random.Random:
        return True
    module = _numpy_random()
    return module is not None and type(value) in (module.RandomState, module.Generator)


def _scratch(kind: type) -> Any:
    module = _numpy_random()
    if module is not None and kind is module.Generator:
        return module.default_rng(0)
    return kind(0)


class StreamVariable(VariableTracker):
    """A generator that exists when the region runs; `kind` is its class."""

    __slots__ = ("kind", "value")

    def __init__(self, kind: type, source: Any, value: Any = None):
        super().__init__(source)
        self.kind = kind
        self.value = value

    def describe(self) -> str:
        return f"generator of random numbers {'' if self.source is None else self.source.name}"

    def python_type(self) -> type:
        return self.kind

    def truth(self, tx: Any) -> bool:
        return True

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "__class__":
            return self.class_vt(tx)
        if self.kind is random.Random and type(self.source) is not DrawSource:
            if self.value is not None and name in vars(self.value):
                tx.graph_break("random_draw", attribute=name)
            tx.output.guard(self.source, "NO_INSTANCE_ATTR", name)
        found = getattr(self.kind, name, None)
        if found is None:
            raise_attribute_error(tx, self, name)
        if not callable(found) or name.startswith("__"):
            tx.graph_break("random_draw", attribute=name)
        return DrawMethodVariable(self, name)

    def call_method(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return self.get_attr(tx, name).call_function(tx, args, kwargs)

    call_builtin_method = call_method


class DrawMethodVariable(VariableTracker):
    """A bound method of a generator."""

    __slots__ = ("name", "stream")

    def __init__(self, stream: StreamVariable, name: str, source: Any = None):
        super().__init__(source)
        self.stream = stream
        self.name = name

    def describe(self) -> str:
        return f"method {self.name} of {self.stream.describe()}"

    def python_type(self) -> type:
        return type(getattr(_scratch(self.stream.kind), self.name))

    def truth(self, tx: Any) -> bool:
        return True

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "__self__":
            return self.stream
        if name == "__name__":
            return tx.const(self.name)
        tx.graph_break("random_draw", attribute=name)

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        kind, name = self.stream.kind, self.name
        if name in _WRITING:
            tx.graph_break("random_draw", function=name, reason="it writes to its argument")
        given = [_given(tx, self, a) for a in args]
        named = {k: _given(tx, self, v) for k, v in kwargs.items()}
        if any(isinstance(v, DrawSource) for v in (*given, *named.values())):
            if name not in ("setstate", "set_state", "seed") or named:
                tx.graph_break("random_draw", function=name, reason="an argument that was drawn itself")
            result = None
        else:
            try:
                result = getattr(_scratch(kind), name)(*given, **named)
            except Exception as e:
                raise_real(tx, e)
        limits = _LIMITS.get(name, _no_limits) if kind is random.Random else _NUMPY_LIMITS.get(name, _no_limits)
        return record(tx, name, self.push, given, named, result, limits(*given, **named), self.stream.source)

    def push(self, codegen: Any) -> None:
        if self.source is not None:
            self.source.reconstruct(codegen)
            return
        codegen.push_source(self.stream.source)
        codegen.load_attr(self.name)

    def children(self) -> Any:
        return (self.stream,)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.stream)
        codegen.load_attr(self.name)


class DrawnStateVariable(VariableTracker):
    """What `getstate()` gave: to be handed back or out."""

    __slots__ = ("kind",)

    def __init__(self, source: Any, kind: type):
        super().__init__(source)
        self.kind = kind

    def python_type(self) -> type:
        return self.kind

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        tx.graph_break("random_draw", operation="a look at the state of a generator")

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        tx.graph_break("random_draw", operation="a look at the state of a generator")

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        tx.graph_break("random_draw", operation="a look at the state of a generator")

    def truth(self, tx: Any) -> bool:
        return True

    iterate = unpack = length = hash_key = unary_op = lambda self, tx, *args: self.get_item(tx, self)  # noqa: E731

    def binary_op(self, tx: Any, op: Any, other: VariableTracker, reflected: bool = False) -> Any:
        return self.get_item(tx, self)


def record(
    tx: Any,
    name: str,
    push: Callable[[Any], None],
    args: list[Any],
    kwargs: dict[str, Any],
    result: Any,
    limits: tuple[Any, Any],
    stream_source: Any = None,
) -> VariableTracker:
    """The call as a draw; `result` is what a trial gave."""
    output = tx.output
    if output.graph is not output.root_graph:
        tx.graph_break("random_draw", function=name, reason="inside a function that is a graph of its own")
    source = DrawSource(len(output.draws_before), name)
    vt = _drawn(tx, source, name, result, limits)
    fresh = stream_source is None or type(stream_source) is DrawSource
    output.draws_before.append(Draw(source, push, args, kwargs, fresh))
    return vt


def _drawn(tx: Any, source: Any, name: str, value: Any, limits: tuple[Any, Any]) -> VariableTracker:
    """Tracker of what was drawn, a value like `value`."""
    kind = type(value)
    if value is None:
        return tx.const(None)  # type: ignore[no-any-return]
    if kind is float or kind is int:
        return _number(tx, source, name, kind, limits)
    if kind is list and value and all(type(v) is type(value[0]) and type(v) in (int, float) for v in value):
        return ListVariable([_number(tx, ItemSource(source, i), name, type(v), limits) for i, v in enumerate(value)])
    if is_stream(value):
        return StreamVariable(kind, source)
    if name in ("getstate", "get_state"):
        return DrawnStateVariable(source, kind)
    numpy = sys.modules.get("numpy")
    if numpy is not None and (kind is numpy.ndarray or isinstance(value, numpy.generic)):
        return _array(tx, source, name, value)
    tx.graph_break("random_draw", function=name, result=kind.__name__)


def _number(tx: Any, source: Any, name: str, kind: type, limits: tuple[Any, Any]) -> VariableTracker:
    from .symint import SymNumberVariable

    low, high = limits
    if kind is int:
        if not tx.output.captures(scalar=True):
            tx.graph_break("random_draw", function=name, reason="an int that only the run knows")
        if high is not None and not -_LARGEST <= low <= high <= _LARGEST:
            tx.graph_break("random_draw", function=name, reason="more than 64 bits")
    number = tx.output.symbols.drawn(kind, low, high)
    return SymNumberVariable(None, number, source, number)


def _array(tx: Any, source: Any, name: str, value: Any) -> VariableTracker:
    import torch

    from .. import fake as fakes
    from .numpy_arrays import NumpyArrayVariable
    from .tensor import TensorVariable

    try:
        real = tensor_of_drawn(value)
    except (TypeError, ValueError):
        raise GraphBreak("random_draw", function=name, dtype=str(value.dtype)) from None
    fake = fakes.from_real(real)
    vt = TensorVariable(None, fake, PythonSource(source, tensor_of_drawn), torch.Tensor)
    vt.real = real
    tx.output.track(fake, vt)
    return NumpyArrayVariable(vt, not isinstance(value, sys.modules["numpy"].ndarray), source)


def tensor_of_drawn(value: Any) -> Any:
    """An array (or a number of numpy) as a tensor; of an array the memory is shared."""
    from ..numpy_calls import tensor_of

    return tensor_of(value if value.shape else sys.modules["numpy"].asarray(value))


def _given(tx: Any, method: Any, vt: VariableTracker) -> Any:
    """An argument of a draw: a constant, or where it was drawn itself its source."""
    vt = vt.realize()
    if isinstance(vt, DrawnStateVariable):
        return vt.source
    if getattr(vt, "is_symbolic_number", False):
        if type(vt.source) is DrawSource:
            return vt.source
        vt = vt.specialize(tx)  # type: ignore[attr-defined]
    if not vt.is_python_constant():
        vt = content(vt)
    try:
        return vt.as_python_constant()
    except GraphBreak:
        tx.graph_break("random_draw", function=method.name, argument=vt.describe())


# -- what numbers may come out -----------------------------------------------------------------------------------------


def _no_limits(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    return None, None


def _of_choices(population: Any = (), *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    found = [v for v in population if type(v) in (int, float)]
    return (min(found), max(found)) if found else (None, None)


def _of_range(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    numbers = range(*args) if not kwargs else range(0)
    return (min(numbers), max(numbers)) if numbers else (None, None)


_LIMITS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "random": lambda: (0.0, _BELOW_ONE),
    "getrandbits": lambda k: (0, (1 << k) - 1),
    "randint": lambda a, b: (int(a), int(b)),
    "randrange": _of_range,
    "choice": _of_choices,
    "choices": _of_choices,
    "sample": _of_choices,
}
_NUMPY_LIMITS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "rand": lambda *shape: (0.0, _BELOW_ONE),
    "random": lambda *args, **kwargs: (0.0, _BELOW_ONE),
    "random_sample": lambda *args, **kwargs: (0.0, _BELOW_ONE),
}
_WRITING = frozenset({"shuffle", "bytes", "randbytes", "spawn"})


# -- from outside, and made inside -------------------------------------------------------------------------------------


@wraps_type(random.Random)
def wrap_stream(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
    return StreamVariable(type(value), source, value)


wraps_if(is_stream, priority=60)(wrap_stream)


def wrap_drawing_method(tx: Any, value: Any, source: Any) -> VariableTracker:
    """A bound method of a generator (`random.random`, `numpy.random.rand`)."""
    from ..roots import ConstantSource
    from ..source import AttrSource

    if source is None:
        source = ConstantSource(value.__name__, value)
    tx.output.guard(source, "ID", value)
    stream = StreamVariable(type(value.__self__), AttrSource(source, "__self__"), value.__self__)
    return DrawMethodVariable(stream, value.__name__, source)


def make_stream(
    tx: Any, maker: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """`maker(*args)`: a constant seed makes a generator known now, no seed one that the run makes."""
    try:
        given = [content(a).as_python_constant() for a in args]
        named = {k: content(v).as_python_constant() for k, v in kwargs.items()}
    except GraphBreak:
        tx.graph_break("random_draw", function=maker.__name__, reason="a seed that is not known")
    try:
        made = maker(*given, **named)
    except Exception as e:
        raise_real(tx, e)
    if all(v is None for v in (*given, *named.values())):
        return record(tx, maker.__name__, lambda cg: cg.load_const(maker), given, named, made, (None, None))
    return MirrorVariable(tx, made)


CONSTRUCTORS[random.Random] = lambda tx, *args, **kwargs: make_stream(tx, random.Random, list(args), kwargs)


class StreamMakerVariable(BuiltinVariable):
    """`numpy.random.default_rng` or `numpy.random.RandomState`."""

    __slots__ = ()

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return make_stream(tx, self.fn, args, kwargs)


def _is_maker(value: Any) -> bool:
    module = _numpy_random()
    return module is not None and (value is module.default_rng or value is module.RandomState)


@wraps_if(_is_maker, priority=60)
def wrap_stream_maker(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return StreamMakerVariable(value, source)
