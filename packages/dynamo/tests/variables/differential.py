"""Runs a function as plain Python and captured, and compares everything that can be seen from outside."""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
from collections.abc import Callable
from typing import Any

import torch

import lamina_dynamo

#: (name, function, arguments factory, must be captured whole)
CASES: list[tuple[str, Callable[..., Any], Callable[[], tuple[Any, ...]], bool]] = []


def case(*args: Any, full: bool = True, make: Callable[[], tuple[Any, ...]] | None = None) -> Any:
    """Adds a function to the table; it is called with a tensor and copies of `args`."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        factory = make or (lambda: (torch.arange(3.0), *copy.deepcopy(args)))
        CASES.append((fn.__name__, fn, factory, full))
        return fn

    if len(args) == 1 and callable(args[0]) and not isinstance(args[0], type) and make is None and full:
        fn = args[0]
        args = ()
        return register(fn)
    return register


def describe(value: Any, seen: dict[int, int] | None = None) -> Any:
    """A comparable picture of a value: types, contents, attributes, and which parts are one object."""
    seen = {} if seen is None else seen
    if isinstance(value, (int, float, str, bytes, bool, type(None), complex, type(Ellipsis), range)):
        return (type(value).__name__, repr(value))
    if type(value) is tuple and not value:
        return ("tuple", [])  # empty tuples are one object, except where an older Python makes another
    if id(value) in seen:
        return ("again", seen[id(value)])
    seen[id(value)] = len(seen)
    seen.setdefault("keep", []).append(value)  # type: ignore[attr-defined, call-overload]
    name = type(value).__qualname__
    if isinstance(value, torch.Tensor):
        return (name, value.dtype, tuple(value.shape), value.detach().tolist(), value.requires_grad)
    parts: list[Any] = [name]
    if isinstance(value, BaseException):
        links = [value.__cause__, value.__context__, value.__suppress_context__, getattr(value, "__notes__", None)]
        parts.append([describe(a, seen) for a in (*value.args, *links)])
    if isinstance(value, dict):
        parts.append([(describe(k, seen), describe(v, seen)) for k, v in value.items()])
        parts.append(describe(getattr(value, "default_factory", None), seen))
    elif isinstance(value, (list, tuple)) or name == "deque":
        parts.append([describe(v, seen) for v in value])
    elif isinstance(value, (set, frozenset)):
        parts.append(sorted(repr(describe(v, dict(seen))) for v in value))
    elif isinstance(value, type) or callable(value) and hasattr(value, "__qualname__"):
        return (name, value.__qualname__, getattr(value, "__module__", None))
    elif hasattr(value, "__next__"):
        parts.append([describe(v, seen) for v in itertools.islice(value, 20)])
    if hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module):
        parts.append([(k, describe(v, seen)) for k, v in vars(value).items() if k != "__notes__"])
    for klass in type(value).__mro__:
        slots = klass.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, slot):
                parts.append((slot, describe(getattr(value, slot), seen)))
    return tuple(parts)


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """(result or exception, arguments afterwards, what was printed)."""
    out = io.StringIO()
    seen: dict[int, int] = {}
    with contextlib.redirect_stdout(out):
        try:
            result = ("returned", describe(fn(*args), seen))
        except Exception as e:
            if isinstance(e, (lamina_dynamo.DynamoError, AssertionError)):
                raise
            result = ("raised", describe(e, seen))
    return result, [describe(a, seen) for a in args], out.getvalue()


def check(fn: Callable[..., Any], make: Callable[[], tuple[Any, ...]], full: bool) -> None:
    """Compares two calls (the second answered from the cache) with plain Python."""
    lamina_dynamo.reset()
    expected = [outcome(fn, make()) for _ in range(2)]
    captured = lamina_dynamo.optimize("eager", fullgraph=full)(fn)
    for i in range(2):
        actual = outcome(captured, make())
        assert actual == expected[i], f"call {i + 1}:\n  plain    {expected[i]}\n  captured {actual}"
