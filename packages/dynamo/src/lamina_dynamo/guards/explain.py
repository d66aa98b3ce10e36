"""Why a frame was compiled again: which assumption failed, what was expected, what came, and how to avoid it."""

from __future__ import annotations

import collections
import dataclasses
import os
import re
import types
import weakref
from typing import Any

import torch

from ..source import Scope
from .kinds import KINDS, MISSING, Guard, TensorExpect, describe, evaluate_source

__all__ = ["Recompile", "explain_failure", "explain_recompile", "record"]


@dataclasses.dataclass(frozen=True)
class Recompile:
    """One recompile. ``expression``: what was guarded, as the user wrote it; ``kind``: kind of guard; ``old`` /
    ``new``: values as text;
    ``reason``: the difference in words; ``hint``: how to avoid it; ``where``: ``file:line in function`` that made
    the assumption, not one inside torch if there is another."""

    function: str
    expression: str
    kind: str
    old: str
    new: str
    reason: str
    hint: str
    where: str

    def __str__(self) -> str:
        text = f"{self.function} is compiled again: {self.expression}: {self.reason}"
        if self.where:
            text += f"\n  assumed at {self.where}"
        if self.hint:
            text += f"\n  hint: {self.hint}"
        return text


_WAITING = re.compile(r"\b__lamina_stack(\d+)\b")  # operands that the interrupted instruction had ready

_TORCH = os.path.dirname(torch.__file__) + os.sep
_log: collections.deque[Recompile] = collections.deque(maxlen=1000)


def _expected_of(guard: Guard) -> Any:
    """The expected value where it is still there (objects are held weakly); text otherwise."""
    value = guard.value
    return value() if isinstance(value, weakref.ref) else value


def _hint(guard: Guard, value: Any, expected: Any) -> str:
    if (
        guard.kind == "CONSTANT"
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
        and type(value) is type(expected)
    ):
        return (
            "a number that changes becomes symbolic at the next compilation; compile with dynamic=True to have it so "
            "at once, or pass a tensor"
        )
    if guard.kind == "TENSOR" and isinstance(expected, TensorExpect):
        difference = expected.mismatch(value) or ""
        if difference.startswith("size"):
            return "mark the dimension with mark_dynamic, or compile with dynamic=True"
        if difference.startswith("requires_grad"):
            return "call it with tensors that all do, or all do not, require gradients"
        return ""
    if guard.kind == "GLOBAL_STATE":
        return "each combination of these modes has its own compiled version"
    return KINDS[guard.kind].hint


def explain_failure(guard: Guard, scope: Scope, code: types.CodeType) -> Recompile:
    """The failure of one guard on the frame's inputs, in words."""
    row = KINDS[guard.kind]
    expected = _expected_of(guard)
    value: Any = evaluate_source(guard.source, scope)
    if guard.kind != "ABSENT" and (value is MISSING or (row.relation and any(v is MISSING for v in value))):
        reason, new = "it is no longer there", "missing"
    else:
        try:
            reason = row.explain(value, expected)
        except Exception:  # the value has another type than the check expects
            reason = f"was {describe(expected)}, now {describe(value)}"
        new = ", ".join(describe(v) for v in value) if row.relation else describe(value)
    if expected is None and isinstance(guard.value, weakref.ref):
        reason = "the object that was there is gone"
    where = ""
    if guard.stack:
        own = [frame for frame in guard.stack if not frame[0].startswith(_TORCH)]
        file, line, function = (own or guard.stack)[-1]
        where = f"{file}:{line} in {function}"
    try:
        hint = _hint(guard, value, expected)
    except Exception:  # a hint is an extra; values of any kind come by here
        hint = row.hint
    return Recompile(
        function_of(code, scope),
        _WAITING.sub(r"value \1 waiting at a graph break", guard.name),
        guard.kind,
        describe(expected),
        new,
        reason,
        hint,
        where,
    )


def function_of(code: types.CodeType, scope: Scope) -> str:
    """The name of a frame: the qualified name of its code; of the frame by which torch calls every module, the module's
    class."""
    module = scope.f_locals.get("self")
    if code.co_name == "_wrapped_call_impl" and isinstance(module, torch.nn.Module):
        return type(module).__qualname__
    return code.co_qualname if hasattr(code, "co_qualname") else code.co_name


def record(entry: Recompile) -> None:
    """Remember it for `explain_recompile`."""
    _log.append(entry)


def explain_recompile(function: Any = None) -> list[Recompile]:
    """Recompiles so far, oldest first; of one function (or its compiled form) only, if given."""
    if function is None:
        return list(_log)
    function = getattr(function, "__wrapped__", function)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    name = (
        getattr(code, "co_qualname", None)
        or getattr(code, "co_name", None)
        or getattr(function, "__qualname__", str(function))
    )
    return [r for r in _log if r.function == name]


def clear() -> None:
    """Forget them."""
    _log.clear()
