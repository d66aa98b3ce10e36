"""What happens when a stage fails: one warning that a person can act on, or an exception where that is asked for."""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections.abc import Sequence
from typing import Any

from . import config, events
from .errors import GO_ON, REPORT, CompileError, CompileWarning

_said: set[tuple[Any, ...]] = set()
_PLACE = re.compile(r'(?:File ")?(.+?)(?:", line |:)(\d+)')
_FRAME = re.compile(r'File "([^"]+)", line (\d+)(?:, in (\S+))?')


def handle(error: Exception, *, stage: str, gm: Any, example_inputs: Sequence[Any], rung: Any) -> None:
    """Raise `error` as a CompileError where strict, else warn once; the caller then runs `gm` in eager."""
    compile_error = describe(error, stage=stage, gm=gm)
    raises = config.current().strict or rung.settings.fullgraph
    if compile_error.script is None and (raises or _key(compile_error, error) not in _said):
        compile_error.script = save_script(gm, example_inputs, rung, stage, error)
    events.emit(compile_error.stage or stage, "fallback", compile_error)
    if raises:
        raise compile_error from (compile_error.__cause__ or error)
    warn(compile_error, error)


def describe(error: BaseException, *, stage: str | None = None, gm: Any = None) -> CompileError:
    """Wrap a layer's error: node, user's line and hint are taken from it, or found in the graph.

    `stage` is the layer that was at work; capture names a part of itself ("guards", "backend").
    """
    inner = compile_error_in(error)
    if inner is not None:
        return inner
    node = _first(error, "node", "node_name")
    return CompileError(
        f"{type(error).__name__}: {_message(error)}",
        stage=stage if stage in ("aot", "prims", "inductor") else _first(error, "stage") or stage,
        node=None if node is None else str(node),
        user_line=_first(error, "user_line", "user_source", "source_line", "line") or user_line(gm, node),
        hint=_first(error, "hint"),
    )


def _message(error: BaseException) -> str:
    """Return the message alone: the layers' errors print their line and hint with it, which are shown apart here."""
    message = getattr(error, "message", None)
    return message if isinstance(message, str) else str(error).partition("\n  hint:")[0]


def compile_error_in(error: BaseException) -> CompileError | None:
    """Return the CompileError among an exception and its causes."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, CompileError):
            return inner
        inner = inner.__cause__
    return None


def _first(error: BaseException, *names: str) -> Any:
    for name in names:
        value = getattr(error, name, None)
        if value:
            return value
    return None


def user_line(gm: Any, node: Any = None) -> str | None:
    """Return "file:line: source" of a node, or of the last node of the graph that knows where it came from."""
    nodes = list(getattr(getattr(gm, "graph", None), "nodes", ()))
    chosen = [n for n in nodes if n is node or n.name == str(node)] or nodes[::-1]
    for candidate in chosen:
        where = line_of_stack(candidate.meta.get("stack_trace"))
        if where:
            return where
    return None


def line_of_stack(stack: str | None) -> str | None:
    """Return "file:line: source" of the innermost frame in a formatted stack."""
    if not stack:
        return None
    found = list(_FRAME.finditer(stack))
    if not found:
        return None
    last = found[-1]
    source = stack[last.end():].strip().splitlines()
    return f"{last[1]}:{last[2]}" + (f": {source[0].strip()}" if source else "")


def _key(compile_error: CompileError, cause: BaseException) -> tuple[Any, ...]:
    """What makes two failures one to the user: where files lie and how things are numbered does not."""
    return compile_error.stage, type(cause), re.sub(r"/\S+|\d+", "", brief(compile_error.message))


def warn(compile_error: CompileError, cause: BaseException) -> None:
    """Warn once for each stage and error: forward and backward of one frame fail alike."""
    key = _key(compile_error, cause)
    if key in _said:
        return
    _said.add(key)
    stage = compile_error.stage or "compiler"
    text = [f"lamina: the {stage} stage failed and this part of your program runs in eager (same results, not faster)."]
    text += [f"  why: {brief(compile_error.message)}"]
    for label, value in (
        ("your code", compile_error.user_line),
        ("node", compile_error.node),
        ("what to do", compile_error.hint),
        ("how to go on", GO_ON.get(stage)),
        ("script that fails", compile_error.script),
    ):
        if value:
            text.append(f"  {label}: {value}")
    text.append(f"  {REPORT}")
    text.append("  LAMINA_STRICT=1 raises this as an exception with its full traceback.")
    where = _PLACE.match(compile_error.user_line or "")
    if where is None:
        warnings.warn("\n".join(text), CompileWarning, stacklevel=3)
    else:  # shown at the user's line: the place in here says nothing
        warnings.warn_explicit("\n".join(text), CompileWarning, where[1], int(where[2]))


def brief(message: str) -> str:
    """Return the first line of a message; where that only announces what follows, as of a compiler's output, with the
    lines that tell of errors, or else the next ones."""
    first, *rest = message.splitlines() or [""]
    if not first.rstrip().endswith(":"):
        return first
    telling = [line for line in rest if "error" in line.lower()] or rest
    return "\n    ".join([first, *(line.strip()[:200] for line in telling[:3])])


def forget() -> None:
    """Forget what has been warned about (part of `lamina.reset`)."""
    _said.clear()


def save_script(gm: Any, example_inputs: Sequence[Any], rung: Any, stage: str, error: Exception) -> str | None:
    """Write a script that compiles the part of the graph that fails, without user data; None if it cannot be written.

    The graph is cut down by compiling parts of it, for `config.failure_seconds`; nothing of the program is run.
    """
    seconds = config.current().failure_seconds
    if not config.current().failure_script:
        return None
    from .scripts import script_of

    try:
        inputs = list(example_inputs)
        if seconds > 0:
            from .minifier import shrink_crash

            with config.patch(failure_script=False, dump_dir=""), events.silenced():
                gm, inputs = shrink_crash(gm, inputs, rung, stage, error, seconds)
        text = script_of(gm, inputs, rung=rung.__name__)
        folder = config.current().dump_dir or os.path.join(tempfile.gettempdir(), f"lamina_failures_{os.getuid()}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.stat(folder).st_uid != os.getuid():
            return None
        handle_, path = tempfile.mkstemp(".py", "failure_", folder, text=True)
        with os.fdopen(handle_, "w") as out:
            out.write(text)
        return path
    except Exception:  # a report must never be the reason that a program stops
        return None
