"""`compile_graph`: a graph of prims in, a callable out."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from time import perf_counter
from typing import Any

from torch.fx import GraphModule

from .codegen.kernel import KernelSpec
from .codegen.target import Compiled, Target
from .config import Config, current
from .contract import check_program
from .errors import InductorError, TargetError, TargetUnavailable, UnsupportedGraph
from .graph import GraphLowering
from .input_check import CheckedGraph
from .ir.printing import print_program
from .ir.program import ExternCall, GraphProgram
from .observe import is_active, report
from .pad_matmul import pad_matrix_products
from .passes import is_on
from .scheduler.fusion import Refusal
from .scheduler.plan import schedule

TARGET_OF_DEVICE = {"cpu": "cpp", "cuda": "triton"}
_said: set[str] = set()  # reasons for another target that this process has been told


class CompiledGraph:
    """A compiled graph. Boxed: takes one list of inputs (emptied) and returns a list; `unboxed(*inputs)` takes them
    one by one.

    `source` is the generated code, `kernels` the kernel descriptions, `externs` the calls that stayed ATen ops,
    `reasons` why (node, reason), `fusion_log` the refused fusions,
    `error` the fault for which `target` is "eager" (None where the graph is of a kind that is left to eager),
    `output_strides` for each output None or the strides chosen for a saved tensor in place of eager's,
    `timings` seconds by stage, `target` the target's name ("eager" when the graph is run as it is, then
    `fallback` says why), `program` the scheduled program.
    """

    _boxed_call = True
    call_into: Callable[[list[Any], list[Any]], list[Any]] | None = None
    """None, or the boxed call with a second list: for each result None or a tensor that the result is added to in
    place as soon as it is complete. Results that were added come back as None; small ones may be handed out instead."""

    def __init__(self, run: Callable[..., Sequence[Any]], target: str, timings: dict[str, float]) -> None:
        self._use(run)
        self.target = target
        self.timings = timings
        self.program: GraphProgram | None = None
        self.fusion_log: list[Refusal] = []
        self.reasons: list[tuple[str, str]] = []
        self.fallback: str | None = None
        self.error: Exception | None = None
        self.output_strides: list[tuple[int, ...] | None] = []
        self._finish: Callable[[], None] | None = None

    def _use(self, run: Callable[..., Sequence[Any]]) -> None:
        self.run = run
        # straight to the native function where the target has one: no Python frame between the caller and it
        self.unboxed: Callable[..., Sequence[Any]] = getattr(run, "unboxed", run)
        self._boxed: Callable[[list[Any]], list[Any]] | None = getattr(run, "boxed", None)
        self.call_into = self._boxed if getattr(run, "takes_sinks", False) else None

    @property
    def is_pending(self) -> bool:
        """True while compilers run for it: then it has everything but code, and `finish` must come before a call."""
        return self._finish is not None

    def finish(self) -> None:
        """Waits for the compilers of a graph compiled with ``defer=True``; once is enough. Errors are those of
        `compile_graph`."""
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()

    def __call__(self, inputs: list[Any]) -> list[Any]:
        if self._boxed is not None:
            return self._boxed(inputs)
        args = tuple(inputs)
        inputs.clear()
        out = self.unboxed(*args)
        return out if isinstance(out, list) else list(out)

    @property
    def source(self) -> str:
        """Text of the generated code."""
        return getattr(self.run, "source", "")

    @property
    def kernels(self) -> list[KernelSpec]:
        """One entry per kernel call, in order; equal kernels are the same object."""
        return self.program.kernels if self.program is not None else []

    @property
    def externs(self) -> list[ExternCall]:
        """The calls of ops that were not lowered."""
        return self.program.externs if self.program is not None else []

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the compiled graph to a file that `load` reads in another process, with no compiler there (target
        ``cpp``). Raises TargetError naming what cannot be saved: another target, a graph that runs in eager mode, a
        call of a Python function, weights that freezing packed."""
        self.finish()
        parts = getattr(self.run, "parts", None)
        if parts is None:
            why = f" ({self.fallback})" if self.fallback else ""
            raise TargetError(f"target {self.target!r} cannot save compiled graphs{why}")
        from .codegen.cpp_saved import write_graph

        strides = [None if s is None else list(s) for s in self.output_strides]
        write_graph(replace(parts, notes={"output_strides": strides, "reasons": self.reasons}), path)

    @staticmethod
    def load(path: str | os.PathLike[str], target: str = "cpp") -> CompiledGraph:
        """Reads what `save` wrote. The graph has its `source`, but no `program`, `kernels` or `externs`; its inputs are
        always checked, since no guard stands before it. Raises TargetError for a file that is none, is damaged, or was
        made for another machine, torch or version. The file holds machine code: loading it runs what its author
        wrote."""
        loader = getattr(find_target(target), "load", None)
        if loader is None:
            raise TargetError(f"target {target!r} cannot load compiled graphs")
        run = loader(path)
        compiled = CompiledGraph(run, target, {})
        notes = run.parts.notes
        compiled.output_strides = [None if s is None else tuple(s) for s in notes.get("output_strides", ())]
        compiled.reasons = [(str(node), str(why)) for node, why in notes.get("reasons", ())]
        return compiled


@cache
def _entry_points() -> dict[str, Any]:
    return {e.name: e for e in importlib.metadata.entry_points(group="lamina.targets")}


@cache
def find_target(name: str) -> Target:
    """The target registered under `name` (entry point group ``lamina.targets``); TargetUnavailable if there is none."""
    entry = _entry_points().get(name)
    if entry is None:
        if name == "reference":
            from .codegen.reference import ReferenceTarget

            return ReferenceTarget()
        raise TargetUnavailable(f"no target named {name!r}", hint=f"registered: {', '.join(sorted(_entry_points()))}")
    try:
        return entry.load()()
    except ImportError as error:
        raise TargetUnavailable(f"target {name!r} cannot be loaded: {error}") from error


def list_targets() -> list[str]:
    """Names of the registered targets."""
    return sorted(_entry_points())


def choose_target(name: str | Target | None, device: str) -> tuple[Target, str | None]:
    """(target, reason why it is not the wanted one, or None)."""
    if name is not None and not isinstance(name, str):
        return name, None
    wanted = name or TARGET_OF_DEVICE.get(device, "reference")
    try:
        target = find_target(wanted)
        reason = target.unavailable()
    except TargetUnavailable as error:
        if name:
            raise
        reason = error.message
    if reason is None:
        return target, None
    if name:
        raise TargetUnavailable(f"target {wanted!r}: {reason}")
    return find_target("reference"), _substitution(wanted, reason)


def _substitution(wanted: str, reason: str) -> str:
    return f"target {wanted!r} is not available: {reason}; the reference target runs in its place: same results, slow"


def _tell(reason: str) -> None:
    """Say once a process that another target than the device's is used."""
    report("fallback", reason)
    if reason not in _said:
        _said.add(reason)
        warnings.warn(f"lamina: {reason}", stacklevel=2)


def compile_graph(
    gm: GraphModule,
    example_inputs: Sequence[Any] | None = None,
    *,
    target: str | Target | None = None,
    config: Config | None = None,
    name: str = "graph",
    defer: bool = False,
) -> CompiledGraph:
    """Compiles a functional graph of prims and extern ops.

    `example_inputs` (real or fake tensors, ints) are only needed where placeholders carry no ``meta["val"]``. The
    target is chosen by the
    device of the inputs unless given. What cannot be lowered is called as it is; a graph that cannot be handled at
    all runs in eager mode,
    and `CompiledGraph.fallback` says why. Internal errors do the same, except in strict mode, where they are raised.
    TypeError for arguments of another kind. `defer`: where the target can, return while compilers still run
    (`CompiledGraph.is_pending`).
    """
    if not isinstance(gm, GraphModule):
        raise TypeError(f"compile_graph takes a torch.fx.GraphModule, not {type(gm).__name__}")
    if target is not None and not isinstance(target, str) and not hasattr(target, "build"):
        raise TypeError(f"target is a name from list_targets(), a Target or None, not {target!r}")
    if config is not None and not isinstance(config, Config):
        raise TypeError(f"config is a lamina_inductor.config.Config or None, not {config!r}")
    if not isinstance(name, str):
        raise TypeError(f"name is text, not {name!r}")
    config = config or current()
    start = perf_counter()
    timings: dict[str, float] = {}
    try:
        compiled = _compile(gm, example_inputs, target or config.target or None, config, name, timings, defer)
    except Exception as error:
        compiled = _eager(gm, *_fault(error, config), timings)
    timings["total"] = perf_counter() - start
    return compiled


def _fault(error: Exception, config: Config) -> tuple[str, Exception | None]:
    """(why a graph runs in eager mode after `error`, the fault if it is one); raised where that is not wanted."""
    if isinstance(error, UnsupportedGraph):
        return str(error), None
    if isinstance(error, InductorError):
        if config.strict:
            raise error
        return str(error), error
    internal = InductorError(f"internal error: {type(error).__name__}: {error}", hint="please report this")
    internal.__cause__ = error
    if config.strict:
        raise internal from error
    return internal.message, internal


def _compile(
    gm: GraphModule,
    example_inputs: Sequence[Any] | None,
    target: str | Target | None,
    config: Config,
    name: str,
    timings: dict[str, float],
    defer: bool = False,
) -> CompiledGraph:
    device = _device_of(gm, example_inputs)
    chosen, reason = choose_target(target, device)
    if reason is not None:
        _tell(reason)
    prepare = getattr(chosen, "prepare", None)
    if prepare is not None:
        prepare(gm, config)
    collecting = gc.isenabled()
    gc.disable()  # many small objects live until the end: collections in between only cost time
    try:
        start = perf_counter()
        if device == "cuda" and is_on("pad_matmul"):
            gm = pad_matrix_products(gm)
        lowered = GraphLowering(gm, config, chosen.can_lower, example_inputs).run()
        timings["lower"] = perf_counter() - start
        start = perf_counter()
        plan = schedule(lowered, name)
        timings["schedule"] = perf_counter() - start
    finally:
        if collecting:
            gc.enable()
    timings.update({f"schedule.{k}": v for k, v in plan.seconds.items()})
    _check_symbols(plan.program)
    if config.strict:
        check_program(plan.program)
    if config.dump_dir:
        _dump(config.dump_dir, name, gm, plan.program)
    start = perf_counter()
    try:
        begin = getattr(chosen, "begin", None) if defer else None
        if begin is not None:
            compiled = _begin(gm, plan.program, chosen.name, begin(plan.program, config), config, timings)
        else:
            built: Compiled = chosen.build(plan.program, config)
            run = CheckedGraph(built, plan.program) if config.check_inputs else built
            compiled = CompiledGraph(run, chosen.name, timings)
    except TargetUnavailable as error:  # no compiler, and the cache has not what this graph needs
        if target is not None:
            raise
        _tell(_substitution(chosen.name, f"{error.message} ({error.hint})"))
        return _compile(gm, example_inputs, "reference", config, name, timings)
    timings["build"] = perf_counter() - start
    compiled.program, compiled.fusion_log, compiled.reasons = plan.program, plan.log, lowered.reasons
    compiled.output_strides = lowered.output_strides
    if is_active():
        for kernel in {id(k): k for k in compiled.kernels}.values():
            report("kernel", kernel)
        for made in plan.fused:
            report("fusion made", made)
        for refusal in plan.log:
            report("fusion refused", refusal)
        for node, why in lowered.reasons:
            report("fallback", f"{node}: {why}")
        report("program", plan.program, timings["lower"] + timings["schedule"])
    return compiled


def _begin(
    gm: GraphModule,
    program: GraphProgram,
    target: str,
    wait: Callable[[], Compiled],
    config: Config,
    timings: dict[str, float],
) -> CompiledGraph:
    """A graph whose compilers run: `wait` returns what they make."""

    def too_early(*inputs: Any) -> Sequence[Any]:
        raise InductorError("a graph was called before `finish`", hint="please report this")

    compiled = CompiledGraph(too_early, target, timings)

    def finish() -> None:
        start = perf_counter()
        try:
            built = wait()
            compiled._use(CheckedGraph(built, program) if config.check_inputs else built)
        except Exception as error:
            compiled.fallback, compiled.error = _fault(error, config)
            report("fallback", compiled.fallback)
            compiled.target, compiled.output_strides = "eager", []  # eager's strides: no promise holds any more
            compiled._use(EagerGraph(gm))
        timings["finish"] = perf_counter() - start

    compiled._finish = finish
    return compiled


def _check_symbols(program: GraphProgram) -> None:
    known = {s for s, *_ in program.sizes}
    known.update(getattr(s, "symbol", "") for s in program.steps)
    for step in program.steps:
        known.update(s for _, s in getattr(step, "scalars", ()))
    needed: set[str] = set()
    for b in program.buffers.values():
        if b.kind not in ("input", "constant"):
            for e in (*b.layout.shape, *b.layout.stride):
                needed |= e.syms
    for step in program.steps:
        for e in getattr(step, "sizes", ()):
            needed |= e.syms
    for output in program.outputs:
        layout = getattr(output, "layout", None)
        if layout is not None:
            for e in (*layout.shape, *layout.stride, layout.offset):
                needed |= e.syms
    missing = needed - known
    if missing:
        raise UnsupportedGraph(f"sizes {', '.join(sorted(missing))} cannot be read from the inputs")


def _device_of(gm: GraphModule, example_inputs: Sequence[Any] | None) -> str:
    values = [n.meta.get("val") for n in gm.graph.nodes if n.op in ("placeholder", "call_function")]
    for v in [*values, *(example_inputs or ())]:
        device = getattr(v, "device", None)
        if device is not None and device.type != "cpu":
            return device.type
    return "cpu"


class EagerGraph:
    """The graph itself, run by torch.fx."""

    def __init__(self, gm: GraphModule) -> None:
        self.gm = gm
        self.source = gm.code

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        out = self.gm.forward(*inputs)  # called as a module, torch.fx prints errors that are the program's
        return list(out) if isinstance(out, (tuple, list)) else [out]


def _eager(gm: GraphModule, reason: str, error: Exception | None, timings: dict[str, float]) -> CompiledGraph:
    report("fallback", reason)
    compiled = CompiledGraph(EagerGraph(gm), "eager", timings)
    compiled.fallback, compiled.error = reason, error
    return compiled


def _dump(folder: str, name: str, gm: GraphModule, program: GraphProgram) -> None:
    os.makedirs(folder, exist_ok=True)
    kernels = {id(k): k for k in program.kernels}.values()
    for number, what, text in (
        (10, "prims", str(gm.code)),
        (11, "program", print_program(program)),
        (12, "kernels", "\n".join(k.text() for k in kernels)),
    ):
        with open(os.path.join(folder, f"{number:02d}_{name}_{what}.py"), "w") as f:
            f.write(f"# {what} of {name}\n{text}")


__all__ = ["CompiledGraph", "choose_target", "compile_graph", "find_target", "list_targets"]
