"""The ladder of backends, wired from the four layers; nothing of them is imported before the first graph.

    eager      capture only: the captured graph runs as it is
    aot_eager  + aot_autograd: functional forward and backward graphs of ATen operators, run by torch
    aot_prims  + primtorch: the same graphs as prims, each run by its eager implementation
    reference  + inductor's IR, interpreted with plain torch: needs no compiler
    inductor   + generated code

A rung is `backend(graph_module, example_inputs) -> callable`. When a stage fails, the graph that it was given runs in
eager and one warning says so, unless `LAMINA_STRICT=1` or `fullgraph=True` asks for the exception.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from . import config, events, failures
from .errors import StageMissingError
from .options import CompileOptions, values_for

PACKAGES = {
    "capture": "lamina_dynamo",
    "aot": "lamina_aot_autograd",
    "prims": "lamina_primtorch",
    "inductor": "lamina_inductor",
}


def import_stage(stage: str) -> Any:
    """Import the package that does `stage`; StageMissingError names the pip command if it is not installed."""
    name = PACKAGES[stage]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise StageMissingError(
            f"{name} cannot be imported: {error}", stage=stage,
            hint=f"python -m pip install {name.replace('_', '-')}",
        ) from error


class Rung:
    """One backend of the ladder with the options of one `lamina.compile` call.

    Calling it with a captured graph and its example inputs returns the compiled callable. Two rungs made by `bind`
    from equal options are the same object, so that capture can compare backends by identity.
    """

    keeps_contract = True  # capture need not look at the results of each call

    def __init__(self, name: str, settings: CompileOptions) -> None:
        self.__name__ = name
        self.settings = settings
        self.values = settings.values()

    def __repr__(self) -> str:
        return f"<lamina backend {self.__name__} mode={self.settings.mode!r}>"

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        if self.__name__ == "eager":
            return gm.forward
        try:
            aot = import_stage("aot")
            extra = self._aot_arguments(aot)
            with events.timed("aot", "aot_compile", gm), _patched(aot, values_for("aot", self.values)):
                compiled = aot.aot_compile(
                    gm,
                    example_inputs,
                    forward_compiler=self._compiler("forward"),
                    backward_compiler=self._compiler("backward"),
                    inference_compiler=self._inference_compiler(gm, example_inputs),
                    regions=self._takes_regions(example_inputs) and not self.values.get("freezing"),
                    **extra,
                )
            return self._report_fallback(compiled, gm, example_inputs)
        except Exception as error:
            failures.handle(error, stage="aot", gm=gm, example_inputs=example_inputs, rung=self)
            return gm.forward

    def attempt(self, stage: str, gm: Any, example_inputs: Sequence[Any]) -> None:
        """Compile a graph (for "aot" a captured, else a flat one) with one stage alone and raise what it raises."""
        aot = import_stage("aot")
        with config.patch(strict=True):
            if stage == "aot":
                def keep(flat: Any, _inputs: Sequence[Any]) -> Callable[..., Any]:
                    return aot.run_eagerly(flat)

                with _patched(aot, values_for("aot", self.values)):
                    compiled = aot.aot_compile(gm, example_inputs, forward_compiler=keep, backward_compiler=keep,
                                               inference_compiler=keep, **self._aot_arguments(aot))
                error = getattr(compiled, "error", None)
                if error is not None:
                    raise error
                return
            lowered = import_stage("prims").decompose(gm, "prims")
            if stage == "inductor":
                self._generate("attempt", lowered, example_inputs, {})

    def _inference_compiler(self, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """The compiler of graphs without gradients; under the option `freezing`, module members are their constants."""
        members: dict[int, Any] = {}
        if self.values.get("freezing") and self.__name__ == "inductor":
            placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
            for k, (node, value) in enumerate(zip(placeholders, example_inputs, strict=True)):
                if type(node.meta.get("source")).__name__ == "ModuleMemberSource" and hasattr(value, "data_ptr"):
                    members[k] = value
        return self._compiler("inference", members=members)

    def _compiler(self, role: str, **more: Any) -> Callable[..., Any]:
        """What aot_autograd calls with a flat graph of that role."""
        compiler = functools.partial(self._lower, role, **more)
        compiler.keeps_contract = True  # type: ignore[attr-defined]
        return compiler

    def _report_fallback(
        self, compiled: Callable[..., Any], gm: Any, example_inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        """aot_autograd runs in eager what it cannot trace; tell, unless it is the kind of graph it leaves to eager.

        A program that is itself wrong fails while it is traced, too: then its call raises, and nothing is reported.
        """
        error = getattr(compiled, "error", None)
        if error is None or isinstance(error, import_stage("aot").errors.TraceError):
            return compiled
        report = functools.partial(failures.handle, error, stage="aot", gm=gm, example_inputs=example_inputs, rung=self)
        if failures.compile_error_in(error) is not None:
            report()
            return compiled
        told = False

        def run(*args: Any) -> Any:
            nonlocal told
            result = compiled(*args)
            if not told:
                report()
                told = True
            return result

        return run

    def _takes_regions(self, example_inputs: Sequence[Any]) -> bool:
        """Repeated layers are stamped out where the code generator can call one function for each of them."""
        on_cpu = all(x.device.type == "cpu" for x in example_inputs if hasattr(x, "device"))
        return self.__name__ == "inductor" and self.values.get("target") in (None, "cpp") and on_cpu

    def _aot_arguments(self, aot: Any) -> dict[str, Any]:
        chosen = self.values.get("partitioner")
        if chosen is None:
            return {}
        if callable(chosen):
            return {"partitioner": chosen}
        policies = getattr(aot, "PARTITIONERS", {})
        return {"partitioner": policies.get(chosen, chosen)}

    def _lower(
        self, role: str, gm: Any, example_inputs: Sequence[Any], members: dict[int, Any] | None = None
    ) -> Callable[..., Any] | PendingGraph:
        """Compile one flat ATen graph that aot_autograd made; `role` is forward, backward or inference."""
        stage = "prims"
        run_eagerly = import_stage("aot").run_eagerly  # below autograd, autocast off: flat graphs have both written out
        try:
            if self.__name__ == "aot_eager":
                return run_eagerly(gm)
            prims = import_stage("prims")
            start = time.perf_counter()
            with events.timed("prims", "decompose", role):
                lowered = prims.decompose(gm, "prims")
            events.emit("prims", "decomposed graph", lowered, time.perf_counter() - start)
            if self.__name__ == "aot_prims":
                return _laid_out(run_eagerly(lowered), lowered, import_stage("aot"))
            stage = "inductor"
            compiled = self._generate(role, lowered, example_inputs, members or {})
            if getattr(compiled, "is_pending", False):
                return PendingGraph(compiled, functools.partial(self._complete, gm, example_inputs, compiled))
            return compiled
        except Exception as error:
            failures.handle(error, stage=stage, gm=gm, example_inputs=example_inputs, rung=self)
            return run_eagerly(gm)

    def _complete(self, gm: Any, example_inputs: Sequence[Any], compiled: Any) -> Callable[..., Any]:
        """What `_lower` began to compile, ready to be called."""
        try:
            compiled.finish()
            return _without_fault(compiled)
        except Exception as error:
            failures.handle(error, stage="inductor", gm=gm, example_inputs=example_inputs, rung=self)
            return import_stage("aot").run_eagerly(gm)

    def _generate(
        self, role: str, lowered: Any, example_inputs: Sequence[Any], members: dict[int, Any]
    ) -> Callable[..., Any]:
        """Compile a graph of prims; raises what inductor reports as its own fault. The parts of a training step are
        compiled side by side (such a graph is pending), unless a listener needs them one after the other."""
        inductor = import_stage("inductor")
        target = self.values.get("target") or ("reference" if self.__name__ == "reference" else None)
        trusted = {"check_inputs": False}  # guards and aot_autograd's runtime see to the inputs
        defer = role in ("forward", "backward") and not events.needs_order()
        with events.timed("inductor", "compile_graph", role), _patched(
            inductor, {**trusted, **values_for("inductor", self.values)}
        ):
            compile_ = functools.partial(inductor.compile_graph, target=target, name=role, defer=defer)
            frozen = _frozen_inputs(lowered, members) if members else {}
            if frozen:
                freezing = importlib.import_module(f"{inductor.__name__}.freezing")
                compiled = freezing.freeze(lowered, frozen, compile_)
            else:
                compiled = compile_(lowered, example_inputs)
        return compiled if getattr(compiled, "is_pending", False) else _without_fault(compiled)


def _laid_out(run: Callable[..., Any], gm: Any, aot: Any) -> Callable[..., Any]:
    """`run`, its results in the strides that the graph promises and in memory of their own: prims are values, each run
    by whatever of torch's operators computes it, views among them."""
    import torch

    direct = getattr(run, "unboxed", None)
    if direct is None:  # somebody else's stage
        return run
    values: list[Any] = [getattr(node, "meta", {}).get("val") for node in gm.graph.output_node().args[0]]
    strides = [
        tuple(v.stride()) if hasattr(v, "stride") and all(type(n) is int for n in (*v.shape, *v.stride())) else None
        for v in values
    ]

    def call(*args: Any) -> Any:
        results = list(direct(*args))
        taken = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
        for k, (result, stride) in enumerate(zip(results, strides, strict=True)):
            if not isinstance(result, torch.Tensor) or any(result is a for a in args):
                continue
            wanted = tuple(result.stride()) if stride is None else stride
            if tuple(result.stride()) != wanted or result.untyped_storage().data_ptr() in taken:
                results[k] = torch.empty_strided(result.shape, wanted, dtype=result.dtype, device=result.device)
                into = results[k]
                for dim, step in enumerate(wanted):
                    if step == 0 and result.shape[dim] > 1:  # expanded: one element stands for all
                        into, result = into.narrow(dim, 0, 1), result.narrow(dim, 0, 1)
                into.copy_(result)
            taken.add(results[k].untyped_storage().data_ptr())
        return results

    return aot.make_boxed(call)


class PendingGraph:
    """A graph whose compilers still run. `output_strides` are known already; `complete()` waits and returns the
    callable."""

    def __init__(self, compiled: Any, complete: Callable[[], Callable[..., Any]]) -> None:
        self.output_strides = compiled.output_strides
        self.complete = complete


def _without_fault(compiled: Any) -> Callable[..., Any]:
    """`compiled`; raises the fault for which it would run in eager."""
    events.emit("inductor", "wrapper", compiled)
    error = getattr(compiled, "error", None)
    if error is not None:
        raise error
    return compiled


def _frozen_inputs(gm: Any, members: dict[int, Any]) -> dict[int, Any]:
    """Input position -> tensor, for the inputs of a flat graph that are `members` (position in the captured graph ->
    tensor) and are not written to."""
    output = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
    written = {d.index for d in output.meta.get("desc") or () if getattr(d, "kind", "") == "mutated_input"}
    found = {}
    for k, node in enumerate(n for n in gm.graph.nodes if n.op == "placeholder"):
        desc = node.meta.get("desc")
        if getattr(desc, "kind", "") in ("parameter", "buffer", "user_input") and desc.index not in written:
            if desc.index in members:
                found[k] = members[desc.index]
    return found


def _patched(package: Any, values: dict[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """Return a with-block in which the config of `package` has `values`.

    Layers used alone dump on their own; here the listener of `logs` writes all dumps, under one numbering.
    """
    if config.current().dump_dir:
        values = {**values, "dump_dir": ""}
    if not values:
        return contextlib.nullcontext()
    return importlib.import_module(f"{package.__name__}.config").patch(**values)


_bound: dict[tuple[Any, ...], Rung] = {}


def bind(name: str, settings: CompileOptions | None = None) -> Rung:
    """Return the rung `name` for these options; the same object for equal options."""
    settings = settings or CompileOptions(backend=name)
    key = (name, settings.mode, settings.fullgraph, tuple(sorted((k, repr(v)) for k, v in settings.options.items())))
    if key not in _bound:
        _bound[key] = Rung(name, settings)
    return _bound[key]


def eager(gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Backend: run the captured graph as it is."""
    return bind("eager")(gm, example_inputs)


def aot_eager(gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Backend: forward and backward graphs of ATen operators, run by torch."""
    return bind("aot_eager")(gm, example_inputs)


def aot_prims(gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Backend: forward and backward graphs of prims, run by their eager implementations."""
    return bind("aot_prims")(gm, example_inputs)


def reference(gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Backend: loop-level IR, interpreted with plain torch; needs no compiler."""
    return bind("reference")(gm, example_inputs)


def inductor(gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Backend: generated code for the device of the inputs."""
    return bind("inductor")(gm, example_inputs)


RUNGS = {f.__name__: f for f in (eager, aot_eager, aot_prims, reference, inductor)}
for _rung in RUNGS.values():
    _rung.keeps_contract = True  # type: ignore[attr-defined]
