"""`lamina.minify(model)(*args)`: from a failing compile to a standalone script of a few lines that still fails.

A failure is a crash of a stage, an interpreter that dies, a hang, or a wrong value. The graph is cut by moves that are
each tried and kept only if the failure stays: fewer outputs, an earlier end, a later start, single nodes bypassed.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import config, failures, trials
from .accuracy import copy_tree
from .backends import LADDER
from .bisection import compare
from .compile import stage_errors
from .errors import LaminaError, OptionError, unknown
from .options import check_flag, check_model, check_number, settings_of
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
    data: bool = False,
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
        data: keep the values of the inputs, for failures that depend on them. The script then holds them.
        options: as for `lamina.compile`.

    Returns:
        A function to call with the program's arguments; it returns a Minified, or None if nothing fails. Unless `data`
        is asked for, the script holds none of the user's: inputs are made up with the same shapes, strides and dtypes.
        Model and arguments are copied and stay as they are.

    Raises:
        OptionError: an unknown backend or option, or a backend that is no rung of the ladder.
        What the program itself raises on these arguments before anything is compiled.
        LaminaError: capture itself fails (there is no graph to cut), or the failing graph cannot be written down.
    """
    check_model("minify", model)
    check_flag("minify", "isolate", isolate)
    check_flag("minify", "data", data)
    check_number("minify", "timeout", timeout, 1)
    check_number("minify", "seconds", seconds, 0)
    if path is not None and not isinstance(path, str | os.PathLike):
        raise OptionError(f"path of lamina.minify takes the name of the script to write, not {path!r}")
    if path is not None and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise OptionError(f"the folder of {os.fspath(path)!r} does not exist", hint="make it first")
    settings = settings_of("minify", options, backend="eager")
    model = plain(model)
    if backend not in LADDER:
        raise unknown("rung of the ladder", backend, LADDER)

    def run(*args: Any, **kwargs: Any) -> Minified | None:
        own_args, own_kwargs = copy_tree((tuple(args), dict(kwargs)))
        with config.patch(failure_script=False), watched(timeout) if isolate else contextlib.nullcontext():
            recording = record(copy.deepcopy(model), settings, own_args, own_kwargs, backward=False)
        refuse_capture_failure(recording)
        if recording.error is not None and not recording.graphs:
            raise recording.error  # the program's own: nothing was compiled that could be cut
        test = IsolatedTest(backend, timeout, data) if isolate else in_process_test(backend)
        try:
            for graph in recording.graphs:
                inputs = list(graph.inputs) if data else made_up_inputs(graph.inputs)
                failure = test(graph.gm, inputs)
                if failure is not None:
                    small, left, failure = smallest(graph.gm, inputs, test, failure, seconds, data)
                    return write(small, left, backend, path, failure, data)
        finally:
            if isinstance(test, IsolatedTest):
                test.trials.close()
        return None

    return run


def smallest(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], test: Test, failure: str, seconds: float, data: bool
) -> tuple[torch.fx.GraphModule, list[Any], str]:
    """Return the smallest graph found that fails in the same way, its inputs, and how it fails.

    Of a hang the parts are tried for less time, and the smallest for the whole time again.
    """
    if kind_of(failure) == "hang" and isinstance(test, IsolatedTest):
        test.hurry(gm, inputs)
        small, left = shrink(gm, inputs, test, failure, seconds, data=data)
        test.wait()
        again = test(small, left)
        if again is not None and kind_of(again) == "hang":
            return small, left, again
    small, left = shrink(gm, inputs, test, failure, seconds, data=data)
    return small, left, test(small, left) or failure


@contextlib.contextmanager
def watched(seconds: float) -> Iterator[None]:
    """Raise LaminaError in a with-block that is not through after `seconds`: capture is Python, which a signal can
    interrupt. Without effect outside of the main thread."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(_signal: int, frame: Any) -> None:
        raise _Hangs(*where_capture_is(frame))

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _Hangs as hang:
        place, line = hang.args
        raise LaminaError(
            f"capture itself hangs, so there is no graph to cut: no result in {seconds:g} s at {place}",
            stage="capture", user_line=line, hint="mark parts of the function with lamina.disable",
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Hangs(BaseException):  # not an Exception: capture must not take it for one of its own
    pass


def where_capture_is(frame: Any) -> tuple[str, str | None]:
    """Return (place of a frame, the program's line that capture follows at it, if it is at work)."""
    place, line = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}", None
    while frame is not None and line is None:
        stack = getattr(frame.f_locals.get("self"), "stack_trace", None)
        with contextlib.suppress(Exception):
            line = failures.line_of_stack(stack()) if callable(stack) else None
        frame = frame.f_back
    return place, line


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


class IsolatedTest:
    """A test that runs the script of the graph in a process of its own."""

    def __init__(self, rung: str, timeout: float, data: bool = False) -> None:
        self.rung, self.timeout, self.data = rung, timeout, data
        self.limit = timeout
        self.slowest = 0.0
        self.trials = trials.Trials()

    def __call__(self, gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> str | None:
        return self.tried(gm, inputs, self.rung)

    def tried(self, gm: torch.fx.GraphModule, inputs: Sequence[Any], rung: str) -> str | None:
        """Compare one rung with eager; what differs, was raised, or happened to the process, or None."""
        try:
            text = script_of(gm, inputs, rung=rung, purpose="compare", data=self.data)
        except CannotWriteScript:
            return None
        done = self.trials.run(text, self.limit)
        if done.status is None:
            return f"no result in {self.limit:g} s{done.place()}"
        self.slowest = max(self.slowest, done.seconds)
        if done.status == 0:
            return None
        if done.status < 0:
            return f"the interpreter died with signal {-done.status}{done.place()}"
        return raised_in(done.stderr)

    def hurry(self, gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
        """Wait for less than `timeout` from now on: parts of a graph that hangs either end about as soon as the whole
        does on the rung that compiles nothing, or hang themselves."""
        self.tried(gm, inputs, "eager")
        self.limit = min(self.timeout, max(QUICK, 10 * self.slowest))

    def wait(self) -> None:
        """Wait for the whole `timeout` again."""
        self.limit = self.timeout


QUICK = 8.0
"""Seconds that every part of a graph is given to compile, at least, before it counts as hanging."""


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
    """Return "hang", "... signal N", the class of an exception, or "difference"; shrinking stays with one kind."""
    if failure.startswith("no result in"):
        return "hang"
    if failure.startswith("the interpreter died"):
        return failure.partition(" at ")[0]
    if failure.startswith("exception"):
        return failure.partition(" became ")[2].partition(":")[0]
    return "difference"


def shrink(
    gm: torch.fx.GraphModule,
    inputs: Sequence[Any],
    test: Test,
    failure: str,
    seconds: float = 300.0,
    runs: bool = True,
    data: bool = False,
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """Return the smallest graph found that fails in the same way. `runs`, `data`: see `candidates`."""
    until = time.monotonic() + seconds
    best, left = gm, list(inputs)

    def fails(candidate: torch.fx.GraphModule, candidate_inputs: Sequence[Any]) -> bool:
        why = test(candidate, candidate_inputs)
        return why is not None and kind_of(why) == kind_of(failure)

    changed = True
    while changed and time.monotonic() < until:
        changed = False
        for candidate in candidates(best, left, runs, data):
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


def candidates(gm: torch.fx.GraphModule, inputs: Sequence[Any], runs: bool = True, data: bool = False) -> list[Move]:
    """Return smaller graphs to try, the boldest cuts first, each made when it is asked for.

    `runs` False: what is in the middle of the graph is made up from its metadata, so that nothing of it is run.
    `data`: it has the values of the run.
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
            made = [copy_tree(t) for t in tensors.values()] if data else made_up_inputs(list(tensors.values()))
            replaced = dict(zip(tensors, made, strict=True))
            replaced = {k: v.detach().requires_grad_(tensors[k].requires_grad) for k, v in replaced.items()}
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


def write(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], backend: str, path: str | None, failure: str, data: bool = False
) -> Minified:
    """Write the script of a failing graph; LaminaError if the graph cannot be written as one."""
    try:
        purpose = "compile" if failure.startswith("exception: no exception became") else "compare"
        text = script_of(gm, inputs, rung=backend, purpose=purpose, data=data,
                         title=f"lamina: backend {backend!r} fails on this graph: {failure.splitlines()[0][:160]}")
    except CannotWriteScript as error:
        raise LaminaError(f"the failing graph cannot be written as a script: {error}", stage="minify") from error
    if path is None:
        handle, path = tempfile.mkstemp(".py", "lamina_minified_")
        os.close(handle)
    with open(path, "w") as out:
        out.write(text)
    return Minified(path, len(calls(gm)), failure, text)
