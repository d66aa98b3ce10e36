"""What happens when a captured graph raises while it runs: the frame's own code takes over.

A graph stands for many lines of the program, and which of them failed, inside which ``try`` and ``with`` blocks and
after which effects, is known to the program's own bytecode only. Nothing of the frame has happened yet when its graph
is called (effects are replayed behind it), so the whole region is run again in eager: it meets the error at its own
line, or handles it. That is done only where the graph left its inputs and the random stream as they were.
"""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any

import torch
import torch.fx

from . import _torch as private
from . import interruption
from .bytecode import Instruction
from .bytecode import versions as v
from .bytecode.instruction import ExceptionRange
from .draws import restore_streams
from .guards.build import arg_names_of
from .higher_order import backward_runs

ERROR = "__lamina_error"
"""The local of compiled code that holds what its graph raised."""

_WRITTEN = "__lamina_inputs_written__"
_VARIADIC = 4 | 8


class Region:
    """What the handler of one compiled region knows. ``decides``: the program can see more than the error itself
    (handlers, effects before it), so what its own code does is the outcome; otherwise its code only has to show where
    the error comes from.
    """

    __slots__ = ("code", "decides", "flat")

    def __init__(self, code: CodeType, decides: bool):
        self.code = code
        self.decides = decides
        self.flat: CodeType | None = None

    def flat_code(self) -> CodeType:
        """The frame's code, which takes all its arguments by position, ``*args`` as a tuple."""
        if self.flat is None:
            self.flat = self.code.replace(
                co_argcount=len(arg_names_of(self.code)),
                co_posonlyargcount=0,
                co_kwonlyargcount=0,
                co_flags=self.code.co_flags & ~_VARIADIC,
            )
        return self.flat


def take_over(region: Region, error: BaseException, f_globals: dict[str, Any], *cells: Any) -> Any:
    """Called by compiled code whose graph raised ``error``: the function to call with the frame's arguments. Raises
    ``error`` where the program cannot go back."""
    if not isinstance(error, Exception) or getattr(error, _WRITTEN, False) or _is_ours(error) or _is_a_signal(error):
        raise error
    interruption.pass_on(error)
    from .counters import bump

    _disabled(bump)("graph_errors", type(error).__name__)  # it calls Python code of collections, under its lock
    fn = FunctionType(region.flat_code(), f_globals, region.code.co_name, None, cells or None)
    if not region.decides:

        def run(*args: Any) -> Any:
            fn(*args)
            raise error  # eager has no fault to show: it is one of the compiled code

        return _disabled(run)
    return _disabled(fn)


RUNTIME_FUNCTIONS = (take_over,)
"""Called by generated code; never captured themselves."""


def _disabled(fn: Any) -> Any:
    from .translator.translate import disabled

    return disabled(fn)


def _is_ours(error: BaseException) -> bool:
    """An error of the compiler, which the program does not know of."""
    return any(cls.__module__.split(".")[0].startswith("lamina") for cls in type(error).__mro__)


def _is_a_signal(error: BaseException) -> bool:
    """No fault of the graph: a checkpoint around the call leaves it as soon as it has what it recomputes, from the hook
    that saves a tensor. Run again, the hook would be called too often."""
    return type(error).__module__ == "torch.utils.checkpoint"


def written_inputs(output: Any) -> list[int] | None:
    """Which inputs of the graph it may write to; None if that cannot be told."""
    positions = {node: i for i, (node, _, _) in enumerate(output.inputs)}
    found: set[int] = set()
    for node in output.root_graph.nodes:
        if "impure" not in node.meta:
            continue
        pending = [n for n in node.all_input_nodes]
        seen = set()
        while pending:
            n = pending.pop()
            if n in seen:
                continue
            seen.add(n)
            if n in positions:
                found.add(positions[n])
            elif n.op in ("call_function", "call_method") and n.args:
                pending += [a for a in n.all_input_nodes[:1]]  # a view writes to what it looks at
            elif n.op == "get_attr":
                return None
    return sorted(found)


def is_repeatable(graph: torch.fx.Graph) -> bool:
    """Whether a second run does what the first did: functions of the user that are called whole may do anything."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        module = getattr(node.target, "__module__", None) or ""
        if isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            continue
        if not module.startswith(("torch", "_operator", "operator", "math", "builtins", "lamina_dynamo", "numpy")):
            return False
    return True


def watched(fn: Any, *, sets_state: bool, draws: bool, written: list[int]) -> Any:
    """``fn``, after whose failure torch's state is that from before: modes, the random stream. If it wrote to one of
    the inputs ``written``, or to gradients, the error says so."""

    def run(*args: Any) -> Any:
        gradients = backward_runs()
        grad = torch.is_grad_enabled()
        before = private.autocast_state() if sets_state else None
        inference = private.open_inference_modes() if sets_state else None
        stream = torch.random.default_generator.get_state() if draws else None
        versions = [_version(args[i]) for i in written]
        try:
            return fn(*args)
        except BaseException as error:
            if sets_state:
                private.leave_inference_modes(inference)
                private.set_grad_enabled(grad)
                private.restore_autocast_state(before)  # type: ignore[arg-type]
            versions_now = [_version(args[i]) for i in written]
            if versions != versions_now or None in versions or gradients != backward_runs():
                error.__lamina_inputs_written__ = True  # type: ignore[attr-defined]
            elif stream is not None:
                torch.random.default_generator.set_state(stream)
            raise

    return run


def _version(value: Any) -> int | None:
    """None if the tensor counts no writes."""
    if not isinstance(value, torch.Tensor):
        return 0
    return None if value.is_inference() else value._version


def emit_handler(cg: Any, region: Region, call: list[Instruction]) -> list[Instruction]:
    """Protect the instructions ``call``; gives the handler, to be put behind the code. The stack is empty there."""
    from .resume import cell_names

    previous, cg.out = cg.out, []
    try:
        if v.PY311:
            cg.emit("PUSH_EXC_INFO")
            cg.emit("STORE_FAST", ERROR)
        else:
            cg.emit("POP_TOP")
            cg.emit("STORE_FAST", ERROR)
            cg.emit("POP_TOP")
        cg.emit("POP_EXCEPT")
        if cg.state_before_draws is not None:
            cg.push_function(restore_streams)
            cg.emit("LOAD_FAST", cg.state_before_draws)
            cg.call_function(1)
            cg.pop()
        cg.push_function(take_over)
        cg.load_const(region)
        cg.emit("LOAD_FAST", ERROR)
        cg.push_function(globals)
        cg.call_function(0)
        free = region.code.co_freevars
        for name in free:
            cg.load_closure(name)
        cg.call_function(3 + len(free))
        cg.emit("LOAD_CONST", None)
        cg.emit("STORE_FAST", ERROR)  # the error's traceback leads to this frame
        cg.make_callable()
        names = arg_names_of(region.code)
        cells = cell_names(region.code)
        for name in names:
            cg.emit("LOAD_DEREF" if name in cells else "LOAD_FAST", name)
        cg.call_function(len(names))
        cg.emit("RETURN_VALUE")
        handler = cg.out
    finally:
        cg.out = previous
    line = region.code.co_firstlineno
    for inst in handler:
        inst.positions = (line, line, None, None)
    if v.PY311:
        entry = ExceptionRange(handler[0], 0, False)
        for inst in call:
            inst.exc = entry
    return handler


def has_handler(tx: Any) -> bool:
    """Whether an error at the current instruction would meet code of the program, in this frame or a caller's."""
    while tx is not None:
        if tx.is_protected():
            return True
        tx = tx.parent
    return False


def has_handler_of_program(tx: Any) -> bool:
    """`has_handler`, but for code that only puts torch's state back, as the failed graph does itself: contexts of grad
    mode, autocast and profiling, optimizers."""
    while tx is not None:
        if not (tx.f_globals.get("__name__") or "").startswith("torch.optim.") and _is_in_block_of_program(tx):
            return True
        tx = tx.parent
    return False


def _is_in_block_of_program(tx: Any) -> bool:
    from .variables.context import ContextVariable

    if not v.PY311:
        return bool(tx.is_protected())
    entry = tx.current_instruction.exc
    while entry is not None:
        if entry.depth < 1 or entry.depth > len(tx.stack):
            return True
        leave = tx.stack[entry.depth - 1].realize()  # what `with` left there
        if not isinstance(getattr(leave, "owner", None), ContextVariable):
            return True
        entry = entry.target.exc
        while entry is not None and entry.lasti and entry.depth >= len(tx.stack):  # the handler's own cleanup
            entry = entry.target.exc
    return False


__all__ = [
    "ERROR", "Region", "emit_handler", "has_handler", "has_handler_of_program", "is_repeatable", "take_over", "watched",
    "written_inputs",
]  # fmt: skip
