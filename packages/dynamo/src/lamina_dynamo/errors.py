"""What this package raises.

DynamoError                        base: carries stage, node, user_line, hint
├── GraphBreakError                a break where none is allowed (fullgraph=True)
├── RecompileLimitError            recompiled too often where falling back is not allowed (fullgraph=True)
├── BackendCompilerFailed          a backend raised; the original is __cause__
│   └── BackendResultError         what a backend returned, or its callable, is not what the contract asks for
├── InternalError                  a fault of this package (raised under LAMINA_STRICT=1 or fullgraph=True, otherwise
a warning)
├── ContractError                  a graph breaks the contract with backends (also an AssertionError)
└── ExportError                    export or a loaded program met an input or program it cannot serve
    └── ConstraintError            an input breaks a constraint of an exported program (names the input; also a
    ValueError)
"""

from __future__ import annotations

__all__ = [
    "BackendCompilerFailed",
    "BackendResultError",
    "ConstraintError",
    "ContractError",
    "DynamoError",
    "ExportError",
    "GraphBreakError",
    "InternalError",
    "RecompileLimitError",
]


class DynamoError(RuntimeError):
    """Base of this package's errors.

    ``stage``: part of the compiler ("capture", "guards", "backend", ...); ``node``: name of the FX node or
    instruction, if any;
    ``user_line``: ``"file:line, in function\\n    source"``; ``hint``: what to change.
    """

    stage: str = "capture"

    def __init__(
        self,
        message: str,
        *,
        stage: str | None = None,
        node: str | None = None,
        user_line: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.message = message
        self.stage = stage or type(self).stage
        self.node = node
        self.user_line = user_line
        self.hint = hint
        parts = [message]
        if user_line:
            parts.append(f"  at {user_line}")
        if node:
            parts.append(f"  node: {node}")
        if hint:
            parts.append(f"  hint: {hint}")
        super().__init__("\n".join(parts))


class GraphBreakError(DynamoError):
    """A graph break under ``fullgraph=True``. ``kind`` is the id in the table of break kinds."""

    def __init__(self, message: str, *, kind: str = "", **where: str | None) -> None:
        self.kind = kind
        super().__init__(message, **where)  # type: ignore[arg-type]


class RecompileLimitError(DynamoError):
    """A frame was recompiled too often and ``fullgraph=True`` forbids running it in eager."""

    stage = "guards"


class BackendCompilerFailed(DynamoError):
    """A backend raised while it compiled a graph. ``backend`` is its name; the original exception is ``__cause__``."""

    stage = "backend"

    def __init__(
        self, backend: str, cause: BaseException, *, user_line: str | None = None, hint: str | None = None
    ) -> None:
        self.backend = backend
        self.inner_exception = cause
        super().__init__(f"backend {backend!r} raised {type(cause).__name__}: {cause}", user_line=user_line, hint=hint)
        self.__cause__ = cause


class BackendResultError(BackendCompilerFailed):
    """A backend returned something that is not callable, or its callable results of another number or kind than its
    graph has. ``backend`` is its name."""

    def __init__(
        self, backend: str, what: str, *, node: str | None = None, user_line: str | None = None, hint: str | None = None
    ) -> None:
        self.backend = backend
        self.inner_exception = self
        message = f"backend {backend!r} {what}"
        DynamoError.__init__(self, message, node=node, user_line=user_line, hint=hint)


class InternalError(DynamoError):
    """A fault of this package itself."""


class ContractError(DynamoError, AssertionError):
    """A graph that breaks the contract with backends; ``node`` names the first offending node."""

    stage = "contract"


class ExportError(DynamoError):
    """A program that cannot be exported, saved or loaded as asked."""

    stage = "export"


class ConstraintError(ExportError, ValueError):
    """An input of an exported program that breaks one of its constraints."""
