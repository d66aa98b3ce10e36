"""Kinds of guards: one row a kind.

A row says what the expected value is made from (``snapshot``), how plain Python checks it (``check``) and how a
failure is told
(``explain``). The C program has one opcode a row, named after the kind; its meaning is that of ``check``, and a test
compares the two on
mutated objects. `guard(source, kind)` may leave the value out: it is then taken from the live object when the
program is built, before the
compiled code runs for the first time (translation changes nothing, so the object is still as it was read).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .. import _torch
from ..source import Scope, Source, class_attribute

__all__ = ["KINDS", "Guard", "Kind", "ShapeExpr", "TensorExpect", "check_guard", "Values", "evaluate_source"]

#: what a source evaluates to whose access fails
MISSING = type("Missing", (), {"__repr__": lambda self: "<missing>", "__bool__": lambda self: False})()


@dataclasses.dataclass(eq=False, slots=True)
class Guard:
    """One assumption of a compiled frame. Never changed once made (not frozen: that makes making one three times as
    slow, and a model has thousands).

    ``source``: where the value comes from (a tuple of sources for relations, None for GLOBAL_STATE); ``kind``: a key
    of `KINDS`; ``value``: what was
    expected (None: taken from the live object); ``stack``: ``((file, line, function), ...)`` of the user's code that
    made the assumption.
    """

    source: Source | tuple[Source, ...] | None
    kind: str
    value: Any = None
    stack: tuple[tuple[str, int, str], ...] = ()

    @property
    def name(self) -> str:
        """The user's expression that is guarded."""
        if self.source is None:
            return "global state"
        if isinstance(self.source, tuple):
            return ", ".join(s.name for s in self.source)
        return self.source.name

    def __str__(self) -> str:
        return f"{self.kind}({self.name}{'' if self.value is None else f' : {describe(self.value)}'})"


@dataclasses.dataclass(frozen=True)
class TensorExpect:
    """What a TENSOR guard expects. ``dynamic_sizes`` / ``dynamic_strides``: dimensions whose size / stride is free
    (bound by SHAPE_EXPR instead).
    """

    python_type: type
    keys: int
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    sizes: tuple[int | None, ...] | None
    strides: tuple[int | None, ...] | None

    def __str__(self) -> str:
        name = "" if self.python_type is torch.Tensor else f"{self.python_type.__name__} "
        sizes = "any" if self.sizes is None else ", ".join("*" if s is None else str(s) for s in self.sizes)
        strides = "any" if self.strides is None else ", ".join("*" if s is None else str(s) for s in self.strides)
        grad = ", requires_grad" if self.requires_grad else ""
        return f"{name}{str(self.dtype).removeprefix('torch.')}[{sizes}], strides [{strides}], {self.device}{grad}"

    @classmethod
    def of(
        cls,
        tensor: torch.Tensor,
        dynamic_sizes: Iterable[int] = (),
        dynamic_strides: Iterable[int] = (),
        any_stride: bool = False,
    ) -> TensorExpect:
        """Metadata of ``tensor``; sizes and strides of the dimensions named are free; ``any_stride`` frees all
        strides.
        """
        free_size, free_stride = frozenset(dynamic_sizes), frozenset(dynamic_strides)
        with _torch.plain_tensor_access():
            sizes = (
                None
                if _torch.has_no_plain_sizes(tensor)
                else tuple(None if i in free_size else int(s) for i, s in enumerate(tensor.shape))
            )
            if any_stride or sizes is None or tensor.layout is not torch.strided:
                strides = None
            else:
                strides = tuple(None if i in free_stride else int(s) for i, s in enumerate(tensor.stride()))
            return cls(
                type(tensor),
                _torch.dispatch_keys(tensor),
                tensor.dtype,
                tensor.device,
                tensor.requires_grad,
                sizes,
                strides,
            )

    def mismatch(self, value: Any) -> str | None:
        """The first difference, in words, or None."""
        if type(value) is not self.python_type:
            return f"type was {self.python_type.__name__}, now {type(value).__name__}"
        with _torch.plain_tensor_access():
            if value.dtype != self.dtype:
                return f"dtype was {self.dtype}, now {value.dtype}"
            if value.device != self.device:
                return f"device was {self.device}, now {value.device}"
            if value.requires_grad != self.requires_grad:
                return f"requires_grad was {self.requires_grad}, now {value.requires_grad}"
            if _torch.dispatch_keys(value) != self.keys:
                return (
                    "dispatch keys (layout, conjugate or negative view, inference tensor, functional transform) differ"
                )
            for what, expected in (("size", self.sizes), ("stride", self.strides)):
                if expected is None:
                    continue
                if value.dim() != len(expected):
                    return f"number of dimensions was {len(expected)}, now {value.dim()}"
                actual = value.shape if what == "size" else value.stride()
                for i, (want, have) in enumerate(zip(expected, actual)):
                    # The stride of a dimension of size 1 or of an empty tensor is part of the metadata too: eager's
                    # results depend on it.
                    if want is not None and want != have:
                        return f"{what} of dimension {i} was {want}, now {have}"
        return None


@dataclasses.dataclass(frozen=True)
class ShapeExpr:
    """A relation between numbers that were read from the inputs.

    ``expr``: Python source of a boolean expression over ``names``, built from integers, floats, arithmetic and bitwise
    operators, ``min max abs float int floor ceil``, comparisons and ``and or not``;
    ``names[i]`` stands for the value of source number i of the guard. ``text``: the same in the user's expressions,
    for messages.
    """

    expr: str
    names: tuple[str, ...]
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Kind:
    """One row: see the module's docstring. ``snapshot(value, scope)``: the expected value from the live object(s)."""

    name: str
    doc: str
    snapshot: Callable[[Any, Scope], Any]
    check: Callable[[Any, Any], bool]
    explain: Callable[[Any, Any], str]
    relation: bool = False
    """True: ``source`` is a tuple and ``value`` a list of all their values."""
    missing_ok: bool = False
    """True: the source may be absent (the check gets `MISSING`)."""
    hint: str = ""


KINDS: dict[str, Kind] = {}


_SPELT = {
    int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.Size, TensorExpect, ShapeExpr,
}  # fmt: skip


def describe(value: Any, limit: int = 80) -> str:
    """A short text of a value that never runs the program's own ``__repr__``."""
    kind = type(value)  # isinstance would ask the object for its __class__
    if issubclass(kind, type):
        return value.__qualname__
    if kind is weakref.ref:  # guards hold objects weakly
        target = value()
        return "an object that is gone" if target is None else describe(target, limit)
    if kind in (TensorExpect, types.CodeType):
        text = str(value) if kind is TensorExpect else f"code of {value.co_name}, line {value.co_firstlineno}"
    elif kind in _SPELT:
        text = repr(value)
    elif kind in (tuple, list, set, frozenset):
        first = ", ".join(describe(v, 20) for v in list(value)[:6])
        text = f"{kind.__name__}({first}{', ...' if len(value) > 6 else ''})"
    elif kind is dict and all(type(k) is str for k in value):
        text = ", ".join(f"{k}={describe(v, 20)}" for k, v in list(value.items())[:12])
    elif issubclass(kind, torch.Tensor):
        with _torch.plain_tensor_access():
            text = f"tensor of shape {tuple(value.shape)} and {value.dtype}"
    else:
        functions = (types.FunctionType, types.BuiltinFunctionType)
        name = getattr(value, "__qualname__", None) if issubclass(kind, functions) else None
        name = value.__name__ if kind is types.ModuleType else name
        text = name if isinstance(name, str) else f"{kind.__qualname__} object"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def same_constant(a: Any, b: Any) -> bool:
    """Equal as constants: same types all the way down, floats by their bits (NaN equals NaN, 0.0 differs from -0.0)."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, torch.Tensor):
        return False
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, complex):
        return struct.pack("dd", a.real, a.imag) == struct.pack("dd", b.real, b.imag)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same_constant(x, y) for x, y in zip(a, b))
    if isinstance(a, frozenset):
        return a == b and sorted(map(_typed, a)) == sorted(map(_typed, b))
    if isinstance(a, slice):
        return same_constant((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return bool(a == b)


def _typed(value: Any) -> str:
    return f"{type(value).__qualname__}:{value!r}"


def _row(name: str, doc: str, snapshot: Any, check: Any, explain: Any = None, **more: Any) -> None:
    if name in KINDS:
        raise ValueError(f"two rows for guard kind {name}")
    KINDS[name] = Kind(
        name, doc, snapshot, check, explain or (lambda v, e: f"was {describe(e)}, now {describe(v)}"), **more
    )


def _keys(value: Any) -> tuple[Any, ...]:
    if isinstance(value, OrderedDict):  # keeps its order apart from the table of the dict below it
        return tuple(OrderedDict.keys(value))
    return tuple(dict.keys(value))


def _same_keys(value: Any, expected: tuple[Any, ...]) -> bool:
    keys = _keys(value)
    return len(keys) == len(expected) and all(k is e or same_constant(k, e) for k, e in zip(keys, expected))


def _length(value: Any) -> int:
    for kind in (list, tuple, dict, set, frozenset, str, bytes):
        if isinstance(value, kind):
            return kind.__len__(value)
    return len(value)


def _function_shape(value: Any) -> tuple[Any, int, tuple[str, ...]]:
    defaults, keyword = value.__defaults__, value.__kwdefaults__
    return (value.__code__, len(defaults or ()), tuple(keyword or ()))


def _instance_has(value: Any, name: str) -> bool:
    namespace = getattr_raw_dict(value)
    if namespace is not None and name in namespace:
        return True
    try:
        class_attribute(type(value), name)
    except AttributeError:
        return False
    return True


def getattr_raw_dict(value: Any) -> dict[str, Any] | None:
    """The instance dict, or None; a class's own namespace for a class."""
    try:
        return object.__getattribute__(value, "__dict__")  # type: ignore[no-any-return]
    except (AttributeError, TypeError):
        return None


def _first_equal(values: list[Any]) -> tuple[int, ...]:
    """For each value the position of the first that is the same object."""
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(id(v), i) for i, v in enumerate(values))


def _overlap(values: list[Any]) -> tuple[tuple[int, int], ...]:
    """For each tensor: the first one with the same storage, and its distance from it in bytes (the relation that
    aliasing depends on).
    """
    seen: dict[int, tuple[int, int]] = {}
    result = []
    for i, tensor in enumerate(values):
        storage, start = _torch.storage_and_start(tensor)
        first, origin = seen.setdefault(storage, (i, start)) if storage else (i, start)
        result.append((first, start - origin))
    return tuple(result)


def evaluate_shape(expr: ShapeExpr, values: list[Any]) -> bool:
    names = {n: v for n, v in zip(expr.names, values)}
    try:
        return bool(eval(_shape_code(expr.expr), _SHAPE_NAMES, names))  # noqa: S307 - text made by this package
    except (ArithmeticError, TypeError, ValueError):
        return False


_SHAPE_NAMES: dict[str, Any] = {
    "__builtins__": {}, "min": min, "max": max, "abs": abs, "float": float, "int": int, "floor": math.floor,
    "ceil": math.ceil,
}  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _shape_code(text: str) -> types.CodeType:
    return compile(text, "<shape guard>", "eval")


def _explain_tensor(value: Any, expected: TensorExpect) -> str:
    if value is MISSING:
        return "is gone"
    return expected.mismatch(value) or "no difference left"


def _hooks(value: Any) -> tuple[tuple[int, ...], ...]:
    namespace = object.__getattribute__(value, "__dict__")
    return tuple(tuple(namespace.get(name) or ()) for name in _torch.MODULE_HOOK_DICTS)


_row(
    "TYPE",
    "type(x) is the type",
    lambda v, s: type(v),
    lambda v, e: type(v) is e,
    lambda v, e: f"type was {e.__qualname__}, now {type(v).__qualname__}",
)
_row(
    "ID",
    "x is the object",
    lambda v, s: v,
    lambda v, e: v is e,
    lambda v, e: f"another object: was {describe(e)}, now {describe(v)}",
    hint="keep using the same object, or pass what changes as an argument",
)
_row(
    "CONSTANT",
    "x equals the constant and has its type",
    lambda v, s: v,
    same_constant,
    hint="pass it as a tensor, or mark it dynamic, if it changes from call to call",
)
_row("NONE", "x is None", lambda v, s: None, lambda v, e: v is None, lambda v, e: f"was None, now {describe(v)}")
_row("NOT_NONE", "x is not None", lambda v, s: None, lambda v, e: v is not None, lambda v, e: "was not None, now None")
_row(
    "TENSOR",
    "metadata of a tensor",
    lambda v, s: TensorExpect.of(v),
    lambda v, e: e.mismatch(v) is None,
    _explain_tensor,
    hint="mark dimensions that vary with mark_dynamic, or compile with dynamic=True",
)
_row(
    "LENGTH",
    "len(x) of a list, tuple, dict, set or str",
    lambda v, s: _length(v),
    lambda v, e: _length(v) == e,
    lambda v, e: f"length was {e}, now {_length(v)}",
    hint="a container that grows is read anew for each length",
)
_row(
    "TRUTH",
    "bool(x) of a container or number",
    lambda v, s: bool(v),
    lambda v, e: bool(v) is e,
    lambda v, e: f"truth was {e}, now {not e}",
)
_row(
    "DICT_KEYS",
    "the keys, in order",
    lambda v, s: _keys(v),
    _same_keys,
    lambda v, e: f"keys were {describe(e)}, now {describe(_keys(v))}",
)
_row(
    "SET_CONTENTS",
    "the elements of a set (by value)",
    lambda v, s: frozenset(v),
    lambda v, e: same_constant(frozenset(v), e),
)
_row(
    "DICT_CONTAINS",
    "key (the value) is in the dict",
    lambda v, s: None,
    lambda v, e: dict.__contains__(v, e),
    lambda v, e: f"key {describe(e)} is gone",
)
_row(
    "DICT_NOT_CONTAINS",
    "key (the value) is not in the dict",
    lambda v, s: None,
    lambda v, e: not dict.__contains__(v, e),
    lambda v, e: f"key {describe(e)} is there now",
)
_row(
    "HAS_ATTR",
    "attribute (the value) is in the instance dict or on the class",
    lambda v, s: None,
    _instance_has,
    lambda v, e: f"attribute {e} is gone",
)
_row(
    "NO_ATTR",
    "attribute (the value) is neither in the instance dict nor on the class",
    lambda v, s: None,
    lambda v, e: not _instance_has(v, e),
    lambda v, e: f"attribute {e} is there now",
)
_row(
    "NO_INSTANCE_ATTR",
    "attribute (the value) is not in the instance dict",
    lambda v, s: None,
    lambda v, e: e not in (getattr_raw_dict(v) or ()),
    lambda v, e: f"instance attribute {e} now hides the class's",
)
_row(
    "NO_CLASS_ATTR",
    "attribute (the value) is nowhere along the MRO of the class x",
    lambda v, s: None,
    lambda v, e: _class_lookup(v, e) is MISSING,
    lambda v, e: f"class attribute {e} is there now",
)
_row(
    "FUNCTION_CODE",
    "code, number of defaults and names of keyword defaults",
    lambda v, s: _function_shape(v),
    lambda v, e: _function_shape(v) == e,
    lambda v, e: "the function's code or its defaults were replaced",
)
_row(
    "CLASS_ATTR",
    "value: (name, object): the lookup along the MRO of the class finds this very object (or nothing: object missing)",
    lambda v, s: None,
    lambda v, e: _class_lookup(v, e[0]) is (e[1] if len(e) > 1 else MISSING),
    lambda v, e: f"class attribute {e[0]} was replaced",
)
_row(
    "TYPE_VERSION",
    "nothing about the class changed: its attributes along the MRO",
    lambda v, s: _class_version(v),
    lambda v, e: _class_version(v) == e,
    lambda v, e: "the class was changed",
)
_row(
    "EMPTY_CELL",
    "a cell holds nothing",
    lambda v, s: None,
    lambda v, e: _cell_is_empty(v),
    lambda v, e: "the variable has a value now",
)
_row(
    "MODULE_HOOKS",
    "ids of the hooks of an nn.Module",
    lambda v, s: _hooks(v),
    lambda v, e: _hooks(v) == e,
    lambda v, e: "hooks were added or removed",
)
_row(
    "WEAKREF_ALIVE",
    "a weak reference is alive",
    lambda v, s: None,
    lambda v, e: v() is not None,
    lambda v, e: "the referent is gone",
)
_row(
    "ABSENT",
    "the access (item or attribute) fails",
    lambda v, s: None,
    lambda v, e: v is MISSING,
    lambda v, e: "is there now",
    missing_ok=True,
)
_row(
    "PYTHON",
    "value: function(x) -> bool, run in Python: for what has no row of its own",
    lambda v, s: None,
    lambda v, e: bool(e(v)),
    lambda v, e: f"{getattr(e, '__name__', e)} no longer holds",
)
_row(
    "SAME_OBJECT",
    "the sources are one object",
    lambda v, s: None,
    lambda v, e: all(x is v[0] for x in v),
    lambda v, e: "no longer one object",
    relation=True,
)
_row(
    "NOT_SAME",
    "the sources are different objects",
    lambda v, s: None,
    lambda v, e: len({id(x) for x in v}) == len(v),
    lambda v, e: "two of them are one object now",
    relation=True,
)
_row(
    "NO_OVERLAP",
    "how the tensors share memory (by default the pattern of the first call)",
    lambda v, s: _overlap(v),
    lambda v, e: _overlap(v) == e,
    lambda v, e: "the tensors share memory in another way",
    relation=True,
    hint="clone arguments that are views of one another, or always pass them alike",
)
_row(
    "SHAPE_EXPR",
    "a relation of sizes and numbers",
    lambda v, s: None,
    lambda v, e: evaluate_shape(e, v),
    lambda v, e: f"{e.text or e.expr} no longer holds ({', '.join(f'{n}={x}' for n, x in zip(e.names, v))})",
    relation=True,
)
_row(
    "GLOBAL_STATE",
    "grad and inference mode, autocast, default dtype and device, deterministic mode, function modes",
    lambda v, s: _torch.global_state(),
    lambda v, e: _torch.global_state() == e,
    lambda v, e: _explain_state(e),
)


def _class_lookup(cls: type, name: str) -> Any:
    try:
        return class_attribute(cls, name)
    except AttributeError:
        return MISSING


def _class_version(cls: type) -> tuple[tuple[str, int], ...]:
    return tuple(
        (name, id(value))
        for klass in cls.__mro__
        if klass is not object
        for name, value in vars(klass).items()
        if name not in ("__dict__", "__weakref__")
    )


def _cell_is_empty(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - the access is the test
    except ValueError:
        return True
    return False


def _explain_state(expected: dict[str, Any]) -> str:
    now = _torch.global_state()
    changed = [
        f"{name} was {expected.get(name)}, now {now.get(name)}" for name in now if now[name] != expected.get(name)
    ]
    return "; ".join(changed) or "no difference left"


Values = dict[Source, Any]
"""What sources were found to be, while nothing of the program runs."""


def evaluate_source(
    source: Source | tuple[Source, ...] | None, scope: Scope, values: Values | None = None
) -> Any:
    """The value of a guard's source(s) now; `MISSING` if the access fails. With `values` each step of a path is taken
    once for all the sources that share it."""
    if source is None:
        return None
    if isinstance(source, tuple):
        return [evaluate_source(s, scope, values) for s in source]
    if values is None:
        try:
            return source.eval(scope)
        except Exception:  # whatever the access raises: the value is not there
            return MISSING
    if source in values:
        return values[source]
    base = None if source.base is None else evaluate_source(source.base, scope, values)
    try:
        found = MISSING if base is MISSING else source.step(base, scope)
    except Exception:
        found = MISSING
    values[source] = found
    return found


def check_guard(guard: Guard, scope: Scope) -> bool:
    """Plain Python form of one guard (``guard.value`` filled in): what the C program must agree with."""
    kind = KINDS[guard.kind]
    value = evaluate_source(guard.source, scope)
    if not kind.missing_ok and (value is MISSING or (kind.relation and any(v is MISSING for v in value))):
        return False
    if kind.missing_ok and isinstance(guard.source, Source) and guard.source.base is not None:
        # Absent is the last step: the object that it starts from must be there.
        if evaluate_source(guard.source.base, scope) is MISSING:
            return False
    try:
        return kind.check(value, guard.value)
    except Exception:  # a value of another type: certainly not what was expected
        return False
