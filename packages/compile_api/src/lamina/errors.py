"""Errors of the umbrella package.

    LaminaError
    ├── CompileError (RuntimeError)      a stage failed and falling back was not allowed
    │   └── StageMissingError            the package that does the stage is not installed or does not load
    ├── OptionError (ValueError)         an unknown mode, backend or option, or a value of the wrong kind
    └── CheckError (AssertionError)      lamina.check found a stage that differs from eager

CompileWarning (UserWarning) is what a user sees when a stage failed and the program went on in eager.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

REPORT = (
    "how to report: run `python -m lamina env` and send its output with the script that fails; "
    "`lamina.minify(model)(*args)` makes one of a few lines"
)
GO_ON = {
    "capture": 'lamina.disable(fn) keeps one function in eager',
    "aot": 'backend="eager" stops before this stage',
    "prims": 'backend="aot_eager" stops before this stage',
    "inductor": 'backend="aot_prims" stops before this stage, backend="reference" needs no compiler',
}


class LaminaError(Exception):
    """Root of this package's errors. `stage`, `node`, `user_line` and `hint` say where it happened and what to do."""

    def __init__(
        self,
        message: str,
        *,
        stage: str | None = None,
        node: str | None = None,
        user_line: str | None = None,
        hint: str | None = None,
        script: str | None = None,
    ) -> None:
        self.message = message
        self.stage, self.node, self.user_line, self.hint, self.script = stage, node, user_line, hint, script
        super().__init__(message)

    def __str__(self) -> str:
        lines = [self.message]
        for label, value in (
            ("stage", self.stage),
            ("node", self.node),
            ("your code", self.user_line),
            ("what to do", self.hint),
            ("how to go on", GO_ON.get(self.stage or "")),
            ("script that fails", self.script),
        ):
            if value:
                lines.append(f"  {label}: {value}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        state = {k: getattr(self, k) for k in ("stage", "node", "user_line", "hint", "script")}
        return _rebuild, (type(self), self.message, state)


def _rebuild(cls: type[LaminaError], message: str, state: dict[str, Any]) -> LaminaError:
    return cls(message, **state)


class CompileError(LaminaError, RuntimeError):
    """A stage of the compiler failed while `LAMINA_STRICT=1` or `fullgraph=True` forbids falling back to eager."""


class StageMissingError(CompileError):
    """A package of the stack cannot be imported; the hint names the pip command."""


class OptionError(LaminaError, ValueError):
    """An argument of `lamina.compile` is not one of the values it takes."""


class CheckError(LaminaError, AssertionError):
    """A rung of the ladder gave another result than eager."""


class CompileWarning(UserWarning):
    """A stage failed; the part of the program that it was given runs in eager instead."""


def unknown(kind: str, value: object, known: Iterable[str], hint: str | None = None) -> OptionError:
    """Make the error for a name that is not in `known`, with the nearest known names."""
    names = sorted(known)
    close = get_close_matches(str(value), names, n=2)
    guess = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    return OptionError(f"unknown {kind} {value!r}.{guess} Known: {', '.join(map(repr, names))}", hint=hint)
