"""Generators of the traced program: a child translator that is run step by step, as the program asks for values."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

from ..bytecode import versions as v
from ..graph_break import GraphBreak, ObservedException
from ..variables.base import VariableTracker
from ..variables.owner_method import OwnerMethodVariable
from .base import NONE, Translator, constant
from .blocks import misses_exit, passes_exit


class GeneratorVariable(VariableTracker):
    """A generator made inside the region. Its body runs interleaved with the frame that consumes it."""

    __slots__ = ("child", "started", "finished", "fn", "handled", "rebuilt", "running")
    is_mutable = True
    notices_drop = True

    def __init__(self, child: Translator, fn: VariableTracker, started: bool = False):
        self.source = None
        self.child = child
        self.fn = fn
        self.started = started
        self.finished = False
        self.handled: Any = None
        self.rebuilt = False
        self.running = False
        child.output.generators.append(self)

    def is_abandoned(self) -> bool:
        """Left in the middle, inside a try or with block, and not alive after the region: dropping the real one runs
        the rest of that block."""
        if not self.started or self.finished or self.rebuilt:
            return False
        return not only_passes_exit(self.child)

    def drop(self, tx: Any, references: int) -> None:
        """The program let go of one reference. If that was the last (``references``: to this object, the callers' own
        not counted), a generator that stands inside a block runs the rest of it now."""
        if not self.is_abandoned() or self.running:
            return
        if references - tx.output.builder.is_known(self) > 1:  # that of the output's list
            return
        try:
            self.close(tx)
        except ObservedException:  # eager prints it and goes on
            name = self.child.f_code.co_name
            raise GraphBreak("generator_escapes", function=name, reason="fails at its end") from None

    def python_type(self) -> type:
        return GeneratorType

    def truth(self, tx: Any) -> bool:
        return True

    def iterate(self, tx: Any) -> VariableTracker:
        return self

    def next(self, tx: Any) -> VariableTracker:
        return self._resume(tx, NONE)

    def _resume(self, tx: Any, value: VariableTracker, error: VariableTracker | None = None) -> VariableTracker:
        if self.running:
            tx.raise_exception(ValueError, "generator already executing")
        if self.finished:
            if error is not None:
                raise ObservedException(error)
            tx.raise_exception(StopIteration)
        child = self.child
        if error is not None and not self.started:
            self.finished = True
            raise ObservedException(error)
        if self.started:
            child.stack.append(value)
        elif not (value.is_python_constant() and value.as_python_constant() is None):
            tx.raise_exception(TypeError, "can't send non-None value to a just-started generator")
        self.started = True
        self.running = True
        root = child.root
        saved = child.parent, child.depth
        child.parent, child.depth = tx, tx.depth + 1
        # What the caller handles, and what the generator was handling when it yielded.
        child.outer_handled = root.handled_exception
        if self.handled is not None:
            root.handled_exception = self.handled
        child.yielded = None
        try:
            if error is not None:
                child.stack.pop()
                thrown = ObservedException(error)
                child.handle_exception(thrown)
            result = child.run()
        except ObservedException as e:
            self.finished = True
            if e.matches(StopIteration):
                raise ObservedException(escaped_stop(tx, e.vt)) from None
            raise
        finally:
            self.running = False
            child.parent, child.depth = saved
            still = root.handled_exception
            self.handled = still if child.yielded is not None and still is not child.outer_handled else None
            root.handled_exception, child.outer_handled = child.outer_handled, None
        if child.yielded is not None:
            return result
        self.finished = True
        if result.is_python_constant() and result.as_python_constant() is None:
            tx.raise_exception(StopIteration)
        tx.raise_exception(StopIteration, result)

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name in _METHODS:
            return OwnerMethodVariable(self, name, type(_exhausted().send))
        if name == "gi_running":
            return constant(self.running)
        if name == "__class__":
            return tx.wrap(GeneratorType, None)
        if name in ("__name__", "__qualname__"):
            return self.fn.get_attr(tx, name)
        if not hasattr(GeneratorType, name):
            tx.raise_exception(AttributeError, f"'generator' object has no attribute '{name}'")
        raise GraphBreak("unknown_attribute", type="generator", name=name)

    def call_method(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name == "__iter__":
            return self
        if name == "__next__":
            return self._resume(tx, NONE)
        if name == "send":
            return self._resume(tx, args[0])
        if name == "throw":
            error = tx._instance(args[1] if len(args) > 1 and not args[1].realize().is_python_constant() else args[0])
            return self._resume(tx, NONE, error)
        if name == "close":
            return self.close(tx)
        return super().call_method(tx, name, args, kwargs)

    call_builtin_method = call_method

    def close(self, tx: Any) -> VariableTracker:
        if self.finished or not self.started:
            self.finished = True
            return NONE
        from ..variables.exception import make_exception

        try:
            self._resume(tx, NONE, make_exception(tx, GeneratorExit, []))
        except ObservedException as e:
            if e.matches((GeneratorExit, StopIteration)):
                return NONE
            raise
        tx.raise_exception(RuntimeError, "generator ignored GeneratorExit")

    def hash_key(self, tx: Any) -> Any:
        return id(self)

    def reconstruct(self, codegen: Any) -> None:
        self.rebuilt = True
        if self.finished:
            codegen.push_callable(_empty_generator)
            codegen.call_function(0)
            return
        from ..resume import emit_generator

        emit_generator(codegen, self)


_PASSIVE = {"PUSH_EXC_INFO", "COPY", "POP_EXCEPT", "POP_TOP", "SWAP", "NOP", "CACHE", "BUILD_TUPLE"}


def only_passes_exit(child: Translator) -> bool:
    """Do the handlers around the yield let GeneratorExit through without running code of the program? So do no
    handlers, and ``except IndexError:``."""
    if not v.PY311:
        return all(passes_exit(child, block) for block in child.blocks)
    entry = child.current_instruction.exc
    for _ in range(100):
        if entry is None:
            return True
        inst = entry.target
        classes: list[Any] = []
        while inst.opname not in ("RERAISE", "CLEANUP_THROW"):  # the second one: of ``yield from``, from 3.12 on
            if inst.opname == "CALL_INTRINSIC_1" and inst.arg == 3:
                pass  # from 3.12 on a block around the whole body turns StopIteration into RuntimeError
            elif inst.opname == "LOAD_GLOBAL":
                name = inst.argval
                classes.append(child.f_globals.get(name, child.f_builtins.get(name)))
            elif inst.opname == "CHECK_EXC_MATCH":
                if not classes or not all(misses_exit(c) for c in classes):
                    return False
                classes = []
                inst = child.instructions[inst.index + 1]
                if not (inst.opname.startswith("POP_JUMP") and inst.opname.endswith("IF_FALSE")):
                    return False
                inst = inst.target
                continue
            elif inst.opname not in _PASSIVE:
                return False
            inst = child.instructions[inst.index + 1]
        entry = inst.exc
    return False


def escaped_stop(tx: Any, stop: Any) -> Any:
    """The RuntimeError that a StopIteration becomes which leaves a generator's body."""
    from ..variables.exception import make_exception

    error: Any = make_exception(tx, RuntimeError, ["generator raised StopIteration"])
    error.cause = error.context = stop
    error.suppress_context = constant(True)
    return error


def _exhausted():  # type: ignore[no-untyped-def]
    return
    yield


def _empty_generator() -> Any:
    """A generator that is used up."""
    generator = _exhausted()
    for _ in generator:
        pass
    return generator


_METHODS = {"__iter__", "__next__", "send", "throw", "close"}
