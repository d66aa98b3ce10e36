"""`lamina.minify(model)(*args)`: from a failing compile to a standalone script of a few lines that still fails.

A failure is a crash of a stage, an interpreter that dies, a hang, or a wrong value. The graph is cut by moves that are
each tried and kept only if the failure stays: fewer outputs, an earlier end, a later start, single nodes bypassed.
"""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import config, failures
from .accuracy import copy_tree
from .backends import LADDER
from .bisection import compare
from .compile import stage_errors
from .errors import LaminaError, unknown
from .options import check_arguments
from .recording import Recording, plain, record
from .reduction import Recorder, calls, keep_outputs, output_nodes, replace_with_inputs, values_in_meta
from .scripts import CannotWriteScript, script_of


@dataclass
class Minified:
    """A graph that still fails: `path` of the script, its number of operations, what the failure says, the script's
    text."""

    path: str
    operations: int
    failure: str
    script: str

    def __str__(self) -> str:
        return f"{self.path} ({self.operations} operations): {self.failure}"


def minify(
    model: Any,
    *,
    backend: str = "inductor",
    path: str | None = None,
    isolate: bool = False,
    timeout: float = 60.0,
    seconds: float = 300.0,
    **options: Any,
) -> Callable[..., Minified | None]:
    """Shrink a failing compile to a script of a few lines.

    Args:
        model: function or module.
        backend: a rung of the ladder.
        path: where the script goes; a new file in a temporary folder otherwise.
        isolate: run each try in a process of its own: for failures that end the process or hang.
        timeout: seconds after which a try counts as hanging, with isolate.
        seconds: limit for the whole search; the smallest graph so far is written when it is reached.
        options: as for `lamina.compile`.

    Returns:
        A function to call with the program's arguments; it returns a Minified, or None if nothing fails. The script
        holds no data of the user: inputs are made up with the same shapes, strides and dtypes. Model and arguments are
        copied and stay as they are.

    Raises:
        OptionError: an unknown backend or option, or a backend that is no rung of the ladder.
        LaminaError: capture itself fails (there is no graph to cut), or the failing graph cannot be written down.
    """
    model = plain(model)
    if backend not in LADDER:
        raise unknown("rung of the ladder", backend, LADDER)

    def run(*args: Any, **kwargs: Any) -> Minified | None:
        settings = check_arguments(**{"mode": "default", "dynamic": None, "fullgraph": False, "options": None,
                                      **options, "backend": "eager"})
        own_args, own_kwargs = copy_tree((tuple(args), dict(kwargs)))
        with config.patch(failure_script=False):
            recording = record(copy.deepcopy(model), settings, own_args, own_kwargs, backward=False)
        refuse_capture_failure(recording)
        test = isolated_test(backend, timeout) if isolate else in_process_test(backend)
        for graph in recording.graphs:
            made_up = made_up_inputs(graph.inputs)
            failure = test(graph.gm, made_up)
            if failure is not None:
                small, inputs = shrink(graph.gm, made_up, test, failure, seconds)
                return write(small, inputs, backend, path, test(small, inputs) or failure)
        return None

    return run


def refuse_capture_failure(recording: Recording) -> None:
    """Raise LaminaError if capture failed: what is wrong then is not in a graph. Nothing is said about a program that
    raises by itself."""
    error = recording.error
    for event in recording.events:
        if event.stage == "capture" and event.name == "fallback" and isinstance(event.payload, Mapping):
            error = error or event.payload.get("error")
    if error is None or not isinstance(error, stage_errors()) and recording.error is not None:
        return
    raise LaminaError(
        f"capture itself failed, so there is no graph to cut: {type(error).__name__}: {failures.brief(str(error))}",
        stage="capture", user_line=getattr(error, "user_line", None),
        hint="leave parts of the function out by hand, or mark them with lamina.disable",
    ) from error


def made_up_inputs(inputs: Sequence[Any]) -> list[Any]:
    """Return inputs with the same metadata and no data of the user: what a written script would use."""
    from .scripts import _HEADER, input_expression

    space: dict[str, Any] = {}
    exec(_HEADER.format(title="", imports=""), space)
    return [eval(input_expression(v), space) for v in inputs]


Test = Callable[[torch.fx.GraphModule, Sequence[Any]], "str | None"]


def in_process_test(rung: str) -> Test:
    """Return a test that compiles and compares here; it returns what differs or was raised, None if all is well."""

    def test(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> str | None:
        try:
            gm(*copy_tree(list(inputs)))
        except Exception:
            return None  # not a program that runs in eager, so nothing to compare with
        return compare(gm, inputs, rung)

    return test


def isolated_test(rung: str, timeout: float) -> Test:
    """Return a test that runs the script of the graph in a process of its own."""

    def test(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> str | None:
        try:
            text = script_of(gm, inputs, rung=rung, purpose="compare")
        except CannotWriteScript:
            return None
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script.py")
            with open(script, "w") as out:
                out.write(text)
            try:
                done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=timeout)
            except subprocess.TimeoutExpired:
                return f"no result in {timeout:g} s"
        if done.returncode == 0:
            return None
        if done.returncode < 0:
            return f"the interpreter died with signal {-done.returncode}"
        return raised_in(done.stderr)

    return test


_RAISED = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Warning|Interrupt|Exit))(?:: (.*))?$", re.M)


def raised_in(text: str) -> str:
    """Return what a script ended with, from its standard error: a difference that `check` found, or an exception."""
    found = list(_RAISED.finditer(text))
    if not found:
        return (text.strip().splitlines() or ["exit status 1"])[-1]
    name, message = found[-1][1].rpartition(".")[2], found[-1][2] or ""
    if name == "CheckError":
        lines = [line.strip() for line in text[found[-1].end():].splitlines() if line.strip()]
        return lines[0] if lines else message
    return f"exception: no exception became {name}: {message}"


def kind_of(failure: str) -> str:
    """Return "hang", "signal N", the class of an exception, or "difference"; shrinking stays with one kind."""
    if failure.startswith("no result in"):
        return "hang"
    if failure.startswith("the interpreter died"):
        return failure
    if failure.startswith("exception"):
        return failure.partition(" became ")[2].partition(":")[0]
    return "difference"


def shrink(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], test: Test, failure: str, seconds: float = 300.0, runs: bool = True
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """Return the smallest graph found that fails in the same way. `runs`: see `candidates`."""
    until = time.monotonic() + seconds
    best, left = gm, list(inputs)

    def fails(candidate: torch.fx.GraphModule, candidate_inputs: Sequence[Any]) -> bool:
        why = test(candidate, candidate_inputs)
        return why is not None and kind_of(why) == kind_of(failure)

    changed = True
    while changed and time.monotonic() < until:
        changed = False
        for candidate in candidates(best, left, runs):
            if time.monotonic() > until:
                break
            try:
                smaller, smaller_inputs = candidate()
                if size(smaller) < size(best) and fails(smaller, smaller_inputs):
                    best, left, changed = smaller, list(smaller_inputs), True
                    break
            except Exception:  # a cut that makes no valid graph is no candidate
                continue
    return best, left


def shrink_crash(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], rung: Any, stage: str, error: Exception, seconds: float
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """Return the smallest part of a graph on which `stage` raises an error of the same kind: compiled, never run."""
    wanted = _kind_of_error(error)

    def test(candidate: torch.fx.GraphModule, candidate_inputs: Sequence[Any]) -> str | None:
        try:
            rung.attempt(stage, candidate, list(candidate_inputs))
        except Exception as raised:
            return "Error" if _kind_of_error(raised) == wanted else None
        return None

    if test(gm, inputs) is None:  # an error that does not come again, or not from the stage alone
        return gm, list(inputs)
    return shrink(gm, inputs, test, "Error", seconds, runs=False)


def _kind_of_error(error: BaseException) -> tuple[type, ...]:
    """The classes of an exception and of what caused it."""
    found = [type(error)]
    while error.__cause__ is not None:
        error = error.__cause__
        found.append(type(error))
    return tuple(found)


def size(gm: torch.fx.GraphModule) -> tuple[int, int]:
    """Return (operations, outputs and inputs): what shrinking makes smaller."""
    return len(calls(gm)), len(output_nodes(gm)) + len(gm.graph.find_nodes(op="placeholder"))


Move = Callable[[], tuple[torch.fx.GraphModule, list[Any]]]


def candidates(gm: torch.fx.GraphModule, inputs: Sequence[Any], runs: bool = True) -> list[Move]:
    """Return smaller graphs to try, the boldest cuts first, each made when it is asked for.

    `runs` False: what is in the middle of the graph is made up from its metadata, so that nothing of it is run.
    """
    moves: list[Move] = []
    names = [n.name for n in calls(gm)]
    outputs = [n.name for n in output_nodes(gm)]
    values: dict[str, Any] = {}

    def recorded() -> dict[str, Any]:
        if not values and runs:
            recorder = Recorder(gm)
            recorder.run(*copy_tree(list(inputs)))
            values.update(recorder.values)
        return values or values_in_meta(gm)

    def cut_after(name: str) -> Move:
        return lambda: keep_outputs(gm, inputs, [name])

    def without(name: str) -> Move:
        return lambda: keep_outputs(gm, inputs, [o for o in outputs if o != name])

    def start_at(chosen: list[str]) -> Move:
        def move() -> tuple[torch.fx.GraphModule, list[Any]]:
            tensors = {k: v for k, v in recorded().items() if k in chosen and hasattr(v, "stride")}
            replaced = dict(zip(tensors, made_up_inputs(list(tensors.values())), strict=True))
            replaced = {k: v.requires_grad_(tensors[k].requires_grad) for k, v in replaced.items()}
            return replace_with_inputs(gm, inputs, replaced, list(replaced))

        return move

    if len(outputs) > 1:
        moves += [cut_after(name) for name in outputs]
        moves += [without(name) for name in outputs]
    count = len(names)
    for share in (2, 4, 8):
        step = max(1, count // share)
        moves += [cut_after(names[i]) for i in range(step - 1, count - 1, step)]
        moves += [start_at(names[:i]) for i in range(count - step, 0, -step)]
    moves += [cut_after(name) for name in names[:-1]]
    moves += [start_at([name]) for name in names]
    return moves


def write(gm: torch.fx.GraphModule, inputs: Sequence[Any], backend: str, path: str | None, failure: str) -> Minified:
    """Write the script of a failing graph; LaminaError if the graph cannot be written as one."""
    try:
        purpose = "compile" if failure.startswith("exception: no exception became") else "compare"
        text = script_of(gm, inputs, rung=backend, purpose=purpose,
                         title=f"lamina: backend {backend!r} fails on this graph: {failure.splitlines()[0][:160]}")
    except CannotWriteScript as error:
        raise LaminaError(f"the failing graph cannot be written as a script: {error}", stage="minify") from error
    if path is None:
        handle, path = tempfile.mkstemp(".py", "lamina_minified_")
        os.close(handle)
    with open(path, "w") as out:
        out.write(text)
    return Minified(path, len(calls(gm)), failure, text)
