"""From a frame that is about to run to an entry of its code's cache.

The hook calls `Compiler.__call__` when no entry fits. Errors end here: a fault of ours leaves the frame to eager
with one warning (or is
raised: LAMINA_STRICT, fullgraph); a fault of the backend is raised as BackendCompilerFailed; an exception of the
program itself never shows
up here, since translation runs nothing of it: such a frame runs in eager and raises by itself.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import threading
import time
import types
import warnings
import weakref
from typing import Any

import torch

from . import _eval_frame, _torch, cache, config, interruption, observe, trace_policy
from .backends import name_of
from .counters import bump
from .dynamic import FrameState
from .errors import BackendCompilerFailed, DynamoError, GraphBreakError, InternalError, RecompileLimitError
from .guards import build as guards_build
from .guards.explain import explain_failure, record
from .resume import origin_of
from .source import Scope

__all__ = ["Compiler", "EntryInfo", "compiler_for", "is_translating"]

# One translation at a time: a second thread waits and then finds the first one's entry.
_lock = threading.RLock()
_thread = threading.local()

# Breaks that say what the program does and not what capture cannot do: the frame runs in eager, also under fullgraph.
_EAGER_KINDS = frozenset({"exception_escapes", "lazy_module"})

# How often a frame that gave nothing is looked at again with other inputs.
_FRUITLESS = 4


class EntryInfo:
    """What is known about an entry: guards (no objects of the program), breaks, original code, seconds, number of
    graphs.
    """

    __slots__ = ("breaks", "built", "code", "graphs", "seconds")

    def __init__(
        self, code: types.CodeType, built: guards_build.BuiltGuards, breaks: list[Any], graphs: int, seconds: float
    ) -> None:
        self.code, self.built, self.breaks, self.graphs, self.seconds = code, built, breaks, graphs, seconds


class FrameRecord:
    """Memory of one code object under one owner."""

    __slots__ = ("compiled", "fruitless", "gave_up", "reads", "state")

    def __init__(self, dynamic: bool | None) -> None:
        self.state = FrameState(dynamic)
        self.compiled = 0
        self.fruitless = 0
        self.gave_up = False
        self.reads = 0  # how often values of tensors were read after next to nothing


class Compiler:
    """A way of compiling: backend, fullgraph, dynamic. The key of owners and entries, compared by identity."""

    __slots__ = ("__weakref__", "backend", "dynamic", "fullgraph", "translate")

    def __init__(self, backend: Any, fullgraph: bool, dynamic: bool | None, translate: Any = None) -> None:
        self.backend = backend
        self.fullgraph = fullgraph
        self.dynamic = dynamic
        self.translate = translate

    def __repr__(self) -> str:
        return f"Compiler({name_of(self.backend)}, fullgraph={self.fullgraph}, dynamic={self.dynamic})"

    def __call__(
        self,
        owner: Any,
        code: types.CodeType,
        f_locals: dict[str, Any],
        f_globals: dict[str, Any],
        f_builtins: Any,
        closure: Any,
        misses: list[Any],
    ) -> Any:
        """The entry to run, or None: run the frame in eager."""
        settings = config.get()
        if settings.disabled or _torch.dispatch_modes() or _torch.has_user_modes() or _torch.in_dual_level():
            return None
        if not isinstance(f_builtins, dict) or not _is_candidate(code, f_globals):
            _mark_skipped(code, "module is never captured", deep=_is_machinery(f_globals) or code.co_name == "<module>")
            return None
        record_ = owner.state.get(code)
        if record_ is None:
            record_ = owner.state[code] = FrameRecord(settings.dynamic if self.dynamic is None else self.dynamic)
        if record_.gave_up:
            return None
        if not self.fullgraph and _reads_on(owner, code):
            if origin_of(code) is code:
                record_.gave_up = True
                bump("skips", "a small function that reads value after value")
            else:
                _mark_skipped(code, "a small function that reads value after value")
            return None
        with _lock:
            found = _eval_frame.look_up(owner, code, f_locals, f_globals, f_builtins, closure)
            if found is not None:
                return found
            if getattr(_thread, "busy", 0):
                return None  # a frame of the compiler's own that got here by way of a callback
            _thread.busy = 1
            try:
                # Translation leaves cycles that hold the frame's values. With automatic collection off they are all
                # young, so that they can
                # be found at the end without looking at the rest of the program's objects.
                with _young_garbage_collected():
                    scope = Scope(f_locals, f_globals, f_builtins, closure or (), code.co_freevars)
                    return self._convert(owner, code, scope, misses, record_, settings)
            finally:
                _thread.busy = 0

    # ------------------------------------------------------------------------------------------------------------------
    def _convert(
        self,
        owner: Any,
        code: types.CodeType,
        scope: Scope,
        misses: list[Any],
        memory: FrameRecord,
        settings: config.Config,
    ) -> Any:
        bump("frames")
        self._note_misses(owner, code, scope, misses, memory)
        if memory.compiled >= settings.recompile_limit:
            if not self._may_generalise(memory, settings):
                return self._give_up(code, memory, misses, scope)
        started = time.perf_counter()
        try:
            with _torch.random_state_kept(), _torch.saved_tensors_left_alone():
                result = self._translate(code, scope, memory, settings)
        except DynamoError:
            raise
        except RecursionError:
            # The program's own stack is nearly full already: eager gets further, and says so itself if it does not.
            bump("skips", "the stack is nearly full")
            return None
        except Exception as e:
            interruption.pass_on(e)
            if isinstance(e, RuntimeError) and "is a view and its base or another view of its base" in str(e):
                # The program wrote to the base of one of several views, and eager refuses whoever asks for its history.
                bump("skips", "a view from a list of views, whose base was written to")
                return None
            return self._fault(code, memory, e, settings)
        seconds = time.perf_counter() - started
        _forget_trackers(result.graphs)
        for broken in result.breaks:
            bump("continued_breaks" if result.continued else "breaks", broken.kind.id)
            if observe.listeners:
                observe.emit(
                    "capture",
                    "graph break",
                    {"code": code, "kind": broken.kind.id, "record": broken, "message": broken.message},
                )
        _note_reads(owner, code, memory, result)
        if self.fullgraph and result.breaks and not all(b.kind.id in _EAGER_KINDS for b in result.breaks):
            broken = next(b for b in result.breaks if b.kind.id not in _EAGER_KINDS)
            raise GraphBreakError(
                f"graph break under fullgraph=True: {broken.message}",
                kind=broken.kind.id,
                user_line=_user_line(broken, code),
                hint=broken.kind.hint,
            )
        new_code, closed = result.code, not result.has_breaks
        if new_code is None:
            initialises = any(b.kind.id == "lazy_module" for b in result.breaks)
            if result.breaks and not initialises or memory.compiled >= settings.recompile_limit:
                return self._fruitless(code, memory, result, seconds)
            # Followed to its end, calls included, and nothing for a backend in it: while the guards hold it runs as
            # it is, and the
            # frames below it need not be looked at either.
            new_code, closed = code, True
        try:
            built = guards_build.build(result.guards, code, scope, result.given)
            failed = built.check(scope)
            if failed >= 0 and threading.active_count() > 1:
                # Another thread changed what the frame read: this call runs in eager, the next one is translated.
                bump("skips", "another thread changed what the frame read")
                return None
            if failed >= 0:
                raise InternalError(
                    "a guard fails on the very inputs it was made from: "
                    f"{built.guards[failed] if built.guards else 'none'}",
                    stage="guards",
                )
            if settings.verify:
                self._verify(result, code, built, scope)
            info = EntryInfo(code, built, [b.message for b in result.breaks], len(result.graphs), seconds)
            entry = _eval_frame.Entry(self, code, new_code, built.program, info, closed)
        except Exception as e:
            interruption.pass_on(e)
            return self._fault(code, memory, e, settings)
        if result.globals:
            scope.f_globals.update(result.globals)
        memory.compiled += 1
        memory.fruitless = 0
        if new_code is code:
            bump("skips", result.reason or "no tensor operations")
            if observe.listeners:
                told = {"code": code, "frame": _place(code), "reason": result.reason, "breaks": []}
                observe.emit("capture", "frame skipped", told, seconds)
            return entry
        bump("compiled")
        bump("graphs", amount=len(result.graphs))
        if observe.listeners:
            payload = {
                "code": code,
                "new_code": result.code,
                "guards": built.guards,
                "graphs": result.graphs,
                "breaks": result.breaks,
                "entry": entry,
                "result": result,
            }
            observe.emit("capture", "frame compiled", payload, seconds)
        return entry

    def _translate(self, code: types.CodeType, scope: Scope, memory: FrameRecord, settings: config.Config) -> Any:
        translate = self.translate
        if translate is None:
            from .translator.translate import translate
        if self.fullgraph and settings.dynamic is not False and self.dynamic is not False:
            # Values that only the run knows become symbols: a break would be an error.
            settings = dataclasses.replace(settings, capture_scalar_outputs=True, capture_dynamic_output_shape=True)
        return translate(
            code,
            scope.f_locals,
            scope.f_globals,
            scope.f_builtins,
            scope.closure,
            backend=self.backend,
            config=settings,
            frame_state=memory.state,
        )

    def _note_misses(
        self, owner: Any, code: types.CodeType, scope: Scope, misses: list[Any], memory: FrameRecord
    ) -> None:
        for entry, index in misses:
            if not entry.program.valid:  # an object it compares with died: it can never fit again
                entry.unlink()
                owner.entries.discard(entry)
                continue
            if entry in owner.entries and isinstance(entry.info, EntryInfo) and index < len(entry.info.built.guards):
                why = explain_failure(entry.info.built.guards[index], scope, code)
                bump("recompiles", f"{why.kind} {why.expression}")
                record(why)
                memory.state.recompiles += 1
                if observe.listeners:
                    observe.emit(
                        "guards", "recompile", {"code": code, "reason": why, "guard": entry.info.built.guards[index]}
                    )
                break

    def _may_generalise(self, memory: FrameRecord, settings: config.Config) -> bool:
        if memory.state.generalised or memory.state.mode is False:
            return memory.state.generalised and memory.compiled < settings.recompile_limit + 2
        memory.state.generalise()
        return True

    def _give_up(self, code: types.CodeType, memory: FrameRecord, misses: list[Any], scope: Scope) -> None:
        why = next(
            (
                explain_failure(e.info.built.guards[i], scope, code)
                for e, i in misses
                if isinstance(e.info, EntryInfo) and i < len(e.info.built.guards)
            ),
            None,
        )
        message = (
            f"{_place(code)} was compiled {memory.compiled} times, the limit; with new inputs it runs in eager "
            "from now on"
        )
        if self.fullgraph:
            raise RecompileLimitError(
                f"{_place(code)} was compiled {memory.compiled} times, the limit (config recompile_limit)"
                + (f"; last reason: {why}" if why else ""),
                user_line=_place(code),
                hint=why.hint if why else None,
            )
        memory.gave_up = True
        bump("fallbacks")
        if observe.listeners:
            observe.emit("guards", "fallback", {"code": code, "reason": message, "recompile": why})
        warnings.warn(message + (f". Last reason: {why}" if why else ""), RecompileWarning, stacklevel=3)

    def _fruitless(self, code: types.CodeType, memory: FrameRecord, result: Any, seconds: float) -> None:
        memory.fruitless += 1
        bump("skips", result.reason.split("(")[0].strip() or "nothing to capture")
        if observe.listeners:
            told = {"code": code, "frame": _place(code), "reason": result.reason, "breaks": result.breaks}
            observe.emit("capture", "frame skipped", told, seconds)
        # Other inputs may give something; after a few attempts the frame is left alone for good.
        if memory.fruitless >= _FRUITLESS and not memory.compiled and not self.fullgraph:
            _mark_skipped(code, result.reason)
        elif memory.fruitless >= 2 * _FRUITLESS and not self.fullgraph:
            memory.gave_up = True  # what is compiled goes on being used

    def _fault(self, code: types.CodeType, memory: FrameRecord, error: BaseException, settings: config.Config) -> None:
        line = _place(code)
        if settings.strict or self.fullgraph:
            if isinstance(error, DynamoError):
                raise error
            raise InternalError(f"{type(error).__name__}: {error}", user_line=line) from error
        memory.gave_up = True
        bump("fallbacks")
        if observe.listeners:
            observe.emit("capture", "fallback", {"code": code, "error": error, "reason": str(error)})
        stage = getattr(error, "stage", "capture")
        warnings.warn(
            f"lamina-dynamo: internal error while compiling {line} (stage {stage}): {type(error).__name__}: {error}. "
            "The function runs in eager. "
            "Please report it with the traceback that LAMINA_STRICT=1 gives.",
            InternalWarning,
            stacklevel=3,
        )

    def _verify(self, result: Any, code: types.CodeType, built: guards_build.BuiltGuards, scope: Scope) -> None:
        from .guards.kinds import check_guard
        from .guards.pattern import expand_guards

        for guard in expand_guards(result.guards):
            if not check_guard(guards_build.complete(guard, scope), scope):
                raise InternalError(f"the Python form of a guard fails: {guard}", stage="guards")
        try:
            from .contract import check_graph
        except ImportError:
            return
        for gm in result.graphs:
            check_graph(gm)


def _forget_trackers(graphs: list[Any]) -> None:
    """Fake values lead back to the trackers of the translation, and those to the frame's real values: graphs outlive
    the frame, so cut that.
    """
    nodes = (n for gm in graphs for m in gm.modules() if isinstance(m, torch.fx.GraphModule) for n in m.graph.nodes)
    for node in nodes:
        value = node.meta.get("val")
        for one in value if isinstance(value, (tuple, list)) else (value,):
            attributes = getattr(one, "__dict__", None)
            if attributes and "vt" in attributes:
                attributes["vt"] = None


class _young_garbage_collected:
    def __enter__(self) -> None:
        self.enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *exc: object) -> None:
        if self.enabled:
            gc.enable()
        gc.collect(0)


class RecompileWarning(UserWarning):
    """A frame reached the limit of recompiles."""


class InternalWarning(UserWarning):
    """An internal error sent a frame back to eager."""


def _place(code: types.CodeType) -> str:
    return f"{getattr(code, 'co_qualname', code.co_name)} ({code.co_filename}:{code.co_firstlineno})"


def _user_line(broken: Any, code: types.CodeType) -> str:
    return str(getattr(broken, "user_line", "") or _place(code))


# Of torch's own Python code only what is made of modules and tensor programs is worth a graph of its own.
_TORCH_ROOTS = (
    "torch.nn.",
    "torch.optim",
    "torch.distributions",
    "torch.func",
    "torch.fft",
    "torch.functional",
    "torch.ao.nn",
    "torch.utils.checkpoint",
)


# Run by the interpreter between the lines of a program, once for each name: nothing to capture in them.
_IMPLICIT = frozenset(
    {"__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__del__", "__repr__", "__str__", "__hash__"}
)


def _is_candidate(code: types.CodeType, f_globals: dict[str, Any]) -> bool:
    if code.co_argcount == 1 and code.co_varnames[0] == ".0":
        return False  # a comprehension that eager runs: its only argument is an iterator, which capture cannot advance
    if code.co_name in _IMPLICIT:
        return False
    name = f_globals.get("__name__")
    if not isinstance(name, str):
        return True
    if name in trace_policy.WHOLE_MODULES:
        return False
    if name == "torch" or name.startswith("torch."):
        # Wrappers for several devices run as they are; the modules inside them are frames of their own.
        if name.startswith("torch.nn.parallel"):
            return False
        return name.startswith(_TORCH_ROOTS) and not trace_policy.is_skipped_module(name)
    return not trace_policy.is_skipped_module(name)


# Not even what they call: another compiler at work, imports, reports.
_MACHINERY = (
    *trace_policy.COMPILER_MODULES,
    "torch.fx",
    "importlib",
    "_frozen_importlib",
    "logging",
    "warnings",
    "traceback",
    "linecache",
)


# A function of few instructions that has read values of tensors so often, and has no part of more than few operations,
# is run by eager from there on (what it calls is captured): a graph of two operations costs more than they do.
_MOST_READS = 2
_NEVER = -(1 << 30)
_FEW_NODES = 16
_SMALL_CODE = 1024
_READS = frozenset({"data_dependent_scalar", "data_dependent_branch", "data_dependent_shape", "random_draw"})


def _reads_on(owner: Any, code: types.CodeType) -> bool:
    """Does ``code`` belong to a small function that reads value after value?"""
    found = owner.state.get(origin_of(code))
    return found is not None and found.reads >= _MOST_READS


def _note_reads(owner: Any, code: types.CodeType, memory: FrameRecord, result: Any) -> None:
    origin = origin_of(code)
    large = sum(len(gm.graph.nodes) for gm in result.graphs) > _FEW_NODES
    if not large and (not result.breaks or result.breaks[0].kind.id not in _READS):
        return
    if len(origin.co_code) > _SMALL_CODE:
        return
    found = owner.state.get(origin)
    if found is None:
        found = owner.state[origin] = FrameRecord(memory.state.mode)
    found.reads = _NEVER if large else found.reads + 1  # a part that is worth a graph keeps the others


def _is_machinery(f_globals: dict[str, Any]) -> bool:
    name = f_globals.get("__name__")
    return isinstance(name, str) and any(name == m or name.startswith(m + ".") for m in _MACHINERY)


def _mark_skipped(code: types.CodeType, reason: str, deep: bool = False) -> None:
    _eval_frame.mark_code(code, _eval_frame.MARK_SKIP_DEEP if deep else _eval_frame.MARK_SKIP)
    cache.remember_marked(code)
    bump("skips", reason.split("(")[0].strip() or "skipped")


def is_translating() -> bool:
    """Whether this thread is in the middle of a compilation."""
    return bool(getattr(_thread, "busy", 0))


_compilers: weakref.WeakValueDictionary[tuple[Any, ...], Compiler] = weakref.WeakValueDictionary()


def compiler_for(backend: Any, fullgraph: bool = False, dynamic: bool | None = None) -> Compiler:
    """The one compiler with these settings; equal settings and the same backend object give the same compiler."""
    key = (id(backend), fullgraph, dynamic)
    found = _compilers.get(key)
    if found is None or found.backend is not backend:
        found = _compilers[key] = Compiler(backend, fullgraph, dynamic)
    return found


def _in_forked_child() -> None:
    # The thread that held the lock does not exist here.
    global _lock
    _lock = threading.RLock()
    _thread.busy = 0
    _eval_frame.after_fork()


os.register_at_fork(after_in_child=_in_forked_child)

__all__ += ["BackendCompilerFailed", "InternalWarning", "RecompileWarning"]
