"""The callables that run compiled graphs: generated for each graph, so that a call does only what this graph needs.

Inference: `compiled -> write back -> regenerate views`. Training: the same around `Function.apply`, one Function
class a graph. The backward is compiled at the first backward. The generated source is kept in `call.source`.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import functools
import gc
import re
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from ._torch import (
    below_autograd,
    interpreter_stack,
    is_any_autocast_enabled,
    is_legacy_batched,
    short_apply,
)
from .double_backward import (
    DoubleBackward,
    Written,
    copy_of,
    inputs_to_hold,
    place_of,
    placeholders_of,
    rng_state,
    tensor_inputs,
    unreached_inputs,
)
from .observe import is_observed, report
from .partition import Partition, note_saved_strides
from .partition.extract import is_grad_mode_read, is_random
from .regions import needed_for, reached_results
from .schemas import GraphMetadata, JointGraph
from .trace.sizes import size_hint
from .under_autocast import UnderAutocast, run_graph
from .wrappers import mutation
from .wrappers.accumulate import GradientSinks
from .wrappers.alias import compile_recipe, describe
from .wrappers.boxing import check_flat, is_boxed, positional, without_autocast
from .wrappers.dedup import AliasGroup
from .wrappers.remaining import Remaining
from .wrappers.results import held_to_graph


def completed(compiled: Any) -> Callable:
    """What a compiler returned, ready to be called: one that returned early is waited for."""
    complete = getattr(compiled, "complete", None)
    return compiled if complete is None else complete()


def compile_both(parts: Partition, compiler: Callable, backward: BackwardGraph) -> Callable:
    """The compiled forward of a partition; the backward is told how saved tensors lie in memory.

    A compiler may return early, with an object that has `output_strides` and `complete()`, while other processes work
    for it: then the backward is compiled beside it.
    """
    early = compile_with(compiler, parts.forward, "forward_compiled")
    note_saved_strides(parts, early)
    if getattr(early, "complete", None) is None:
        return early
    if not any(_is_symbolic_value(v) for v in fakes_of(parts.backward)):  # sizes are known to one thread at a time
        backward.start()
    forward = completed(early)
    if getattr(forward, "output_strides", None) != early.output_strides:  # it fell back to something else
        backward.forget()
        for node in parts.backward.graph.nodes:
            node.meta.pop("physical_stride", None)
        note_saved_strides(parts, forward)
    return forward


def _is_symbolic_value(value: Any) -> bool:
    return isinstance(value, torch.SymInt) or (isinstance(value, torch.Tensor) and _is_symbolic(value))


def fakes_of(gm: fx.GraphModule) -> list[Any]:
    """The example inputs for a compiler: each placeholder's `val`."""
    return [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]


def compile_with(compiler: Callable, gm: fx.GraphModule, event: str) -> Callable:
    """A positional callable from `compiler(gm, fakes)`."""
    start = time.perf_counter()
    compiled = compiler(gm, fakes_of(gm))
    if is_observed():
        report(event, gm, time.perf_counter() - start)
    return held_to_graph(compiled, gm, compiler, event.removesuffix("_compiled"))


class collection_paused:
    """Garbage collection off while a graph is compiled: what is made then lives, and a full collection, which the many
    new objects would set off, walks the whole program (a quarter of the time of a large backward)."""

    def __enter__(self) -> None:
        self.enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *exc: object) -> None:
        if self.enabled:
            gc.enable()


class _Source:
    """Lines of a function and the names they use."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        # Under a name of this package: a frame hook that looks for programs leaves such frames alone.
        self.names: dict[str, Any] = {
            "__name__": __name__,
            "torch": torch,
            "interpreter_stack": interpreter_stack,
        }

    def add(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    def build(self, name: str) -> Any:
        text = "\n".join(self.lines) + "\n"
        exec(compile(text, f"<lamina aot {name}>", "exec"), self.names)
        function = self.names[name]
        function.source = text
        return function


def is_trivial(meta: GraphMetadata, groups: Sequence[AliasGroup]) -> bool:
    """True when the compiled graph's results are the caller's results as they are."""
    return (
        not groups
        and not meta.mutated
        and not meta.num_bases
        and meta.final_grad_enabled == meta.grad_enabled
        and meta.output_is_tuple
        and not meta.written_outputs
        and len(meta.outputs) == meta.num_values
        and all(o.kind == "value" and o.slot == i for i, o in enumerate(meta.outputs))
    )


def build_inference(
    joint: JointGraph, compiled: Callable, groups: Sequence[AliasGroup], eager: Callable, autocast: bool
) -> Callable:
    """The callable for a graph without gradients."""
    meta = joint.metadata
    call = positional(compiled)
    if autocast:
        call = without_autocast(call)
    if is_trivial(meta, groups):
        return _pass_through(call, eager)
    return _build_call(meta, groups, call, eager, "inference")


def _pass_through(call: Callable, eager: Callable) -> Callable:
    """`call` itself, in a form that can carry attributes."""

    def run(*args: Any) -> Any:
        if interpreter_stack() is not None:
            return eager(*args)
        return call(*args)

    run.unboxed = call  # type: ignore[attr-defined]
    return run


def _build_call(
    meta: GraphMetadata,
    groups: Sequence[AliasGroup],
    inner: Callable,
    eager: Callable,
    kind: str,
    apart: Sequence[int] = (),
) -> Callable:
    """The caller's side of a graph. apart: inputs that the graph gets detached."""
    source = _Source()
    names = source.names
    names.update(inner=inner, eager=eager, check_flat=check_flat)
    source.add(0, "def call(*args):")
    source.add(1, "if interpreter_stack() is not None:")
    source.add(2, "return eager(*args)")
    feed = "args"
    if groups:
        grouped = {i for g in groups for i in g.members}
        kept = [f"args[{i}]" for i in range(len(meta.inputs)) if i not in grouped]
        for number, group in enumerate(groups):
            names[f"base_of_{number}"] = group.base_of
            source.add(1, f"base_{number} = base_of_{number}(args)")
            kept.append(f"base_{number}")
        source.add(1, f"feed = ({', '.join(kept)},)")
        feed = "feed"
    given = f"*{feed}"
    if apart:
        given = ", ".join(
            f"{feed}[{i}].detach()" if i in apart else f"{feed}[{i}]" for i in range(meta.num_forward_inputs)
        )
    if kind == "training" and meta.grad_enabled and is_trivial(meta, groups):
        source.add(1, f"return inner({given})")
        return source.build("call")
    if kind == "training" and not meta.grad_enabled:
        # grad mode is switched on inside the program; the Function decides per output what carries gradient
        source.add(1, "torch._C._set_grad_enabled(True)")
        source.add(1, "try:")
        source.add(2, f"outs = inner({given})")
        source.add(1, "finally:")
        source.add(2, "torch._C._set_grad_enabled(False)")
    else:
        source.add(1, f"outs = inner({given})")
    if kind == "inference":
        _add_versions(source, meta)
    _add_writes(source, meta, feed)
    results = _add_outputs(source, meta, feed)
    if meta.final_grad_enabled != meta.grad_enabled:
        source.add(1, f"torch._C._set_grad_enabled({meta.final_grad_enabled})")
    if meta.output_is_tuple:
        source.add(1, f"return ({', '.join(results)}{',' if results else ''})")
    else:
        source.add(1, f"return {results[0]}")
    return source.build("call")


def _bumps(meta: GraphMetadata, position: int) -> int:
    grouped = sum(1 for info in meta.inputs if info.group >= 0)
    order = [i for i, info in enumerate(meta.inputs) if info.group < 0]
    if position < len(order):
        return meta.inputs[order[position]].version_bumps
    member = next(i for i in meta.inputs if i.group == position - len(order)) if grouped else meta.inputs[0]
    return member.version_bumps


def _add_writes(source: _Source, meta: GraphMetadata, feed: str) -> None:
    source.names.update(
        write_back=mutation.write_back,
        write_back_untracked=mutation.write_back_untracked,
        write_back_many=mutation.write_back_many,
    )
    untracked = [k for k in range(meta.num_mutated) if not meta.differentiable[k]]
    if len(untracked) > 2:
        source.names["bumps"] = tuple(_bumps(meta, meta.mutated[k]) for k in untracked)
        tensors = ", ".join(f"{feed}[{meta.mutated[k]}]" for k in untracked)
        values = ", ".join(f"outs[{k}]" for k in untracked)
        source.add(1, f"write_back_many([{tensors}], [{values}], bumps)")
        untracked = []
    for k in range(meta.num_mutated):
        position = meta.mutated[k]
        if meta.differentiable[k]:
            source.add(1, f"write_back({feed}[{position}], outs[{k}], {_bumps(meta, position)})")
        elif k in untracked:
            source.add(1, f"write_back_untracked({feed}[{position}], outs[{k}], {_bumps(meta, position)})")


def _add_versions(source: _Source, meta: GraphMetadata) -> None:
    """Results count the writes that made them, as in eager."""
    written = meta.written_outputs
    if written:
        source.names["count_writes"] = mutation.count_writes
        tensors = ", ".join(f"outs[{k}]" for k in written)
        source.add(1, f"count_writes(({tensors},), {tuple(written.values())})")


def _add_outputs(source: _Source, meta: GraphMetadata, feed: str) -> list[str]:
    results = [""] * len(meta.outputs)
    first_value = meta.num_mutated
    first_base = first_value + meta.num_values
    waiting = list(enumerate(meta.outputs))
    while waiting:
        i, out = waiting.pop(0)
        if out.kind in ("same", "view") and not results[out.source]:
            waiting.append((i, out))
        elif out.kind == "value":
            results[i] = f"outs[{first_value + out.slot}]"
        elif out.kind == "input":
            results[i] = f"args[{out.source}]"
        elif out.kind == "same":
            results[i] = results[out.source]
        elif out.kind == "constant":
            source.names[f"constant_{i}"] = out.value
            results[i] = f"constant_{i}"
        else:
            origin = results[out.source] if out.kind == "view" else {
                "input_view": f"{feed}[{out.source}]",
                "base_view": f"outs[{first_base + out.source}]",
                "output_view": f"outs[{first_value + out.source}]",
            }[out.kind]
            source.names[f"view_{i}"] = compile_recipe(out.recipe, first_value)
            source.add(1, f"out_{i} = view_{i}({origin}, outs)  # {describe(out.recipe)}")
            if out.writes:
                source.names["count_writes"] = mutation.count_writes
                source.add(1, f"count_writes((out_{i},), ({out.writes},))")
            results[i] = f"out_{i}"
    return results


# From this many saved bytes on, a backward gets its inputs in a list that it may empty: saved tensors are then freed
# while it runs, as in eager. Below, the direct call is faster.
BOXED_FROM_BYTES = 1 << 18


# -- training ---------------------------------------------------------------------------------------------------------


def build_training(
    joint: JointGraph,
    parts: Partition,
    forward: Callable,
    backward: BackwardGraph,
    groups: Sequence[AliasGroup],
    eager: Callable,
    autocast: bool,
    compile_now: bool,
) -> Callable:
    """The callable for a graph with gradients: a Function class around the two compiled graphs."""
    meta = joint.metadata
    function = make_function(joint, parts, forward, backward, autocast, compile_now, eager, groups)
    apart = unreached_inputs(joint, parts)
    call = _build_call(meta, groups, short_apply(function), eager, "training", apart)
    call.function = function
    return call


class BackwardGraph:
    """The backward graph and its compiled form, which is made at the first call or, from `start` on, beside whatever
    runs meanwhile."""

    def __init__(self, gm: fx.GraphModule, compiler: Callable) -> None:
        self.gm = gm
        self.compiler = compiler
        self.call: Callable | None = None
        self.boxed: Callable | None = None
        self._early: threading.Thread | None = None
        self._started: list[Any] = []

    def start(self) -> None:
        """Begin to compile in a thread of its own."""

        def work() -> None:
            # an error comes again where the backward is first needed
            with contextlib.suppress(Exception):
                self._started.append(self._begin())

        run = functools.partial(contextvars.copy_context().run, work)
        self._early = threading.Thread(target=run, name="lamina-backward", daemon=True)
        self._early.start()

    def forget(self) -> None:
        """Take back `start`: the backward is compiled at its first call."""
        if self._early is not None:
            self._early.join()
        self._early, self._started = None, []

    def _begin(self) -> Any:
        with torch.no_grad(), collection_paused():
            return compile_with(self.compiler, self.gm, "backward_compiled")

    def compile(self) -> Callable:
        """The positional callable (compiled on first use)."""
        if self.call is None:
            if self._early is not None:
                self._early.join()
            with torch.no_grad():
                compiled = completed(self._started.pop() if self._started else self._begin())
            self.call = positional(compiled)
            self.boxed = compiled if is_boxed(compiled) else None
        return self.call

    def call_boxed(self, args: list[Any], sinks: list[Any] | None = None) -> Any:
        """Run on a list that the callee may empty, so that saved tensors are freed on the way. `sinks`: see
        `GradientSinks`."""
        call = self.compile()
        if sinks is not None and (into := getattr(self.boxed, "call_into", None)) is not None:
            return into(args, sinks)
        if self.boxed is not None:
            return self.boxed(args)
        return call(*args)

    def compile_other(self, gm: fx.GraphModule) -> Callable:
        """The positional callable of another graph in the place of this one."""
        with torch.no_grad(), collection_paused():
            return positional(completed(compile_with(self.compiler, gm, "backward_compiled")))

    def run_eagerly(self, args: Sequence[Any]) -> Any:
        """Op by op through the dispatcher: under vmap, or recorded by autograd."""
        return run_graph(self.gm, args) if is_any_autocast_enabled() else self.gm.forward(*args)


def make_function(
    joint: JointGraph,
    parts: Partition,
    forward: Callable,
    backward: BackwardGraph,
    autocast: bool,
    compile_now: bool,
    eager: Callable,
    groups: Sequence[AliasGroup],
) -> Any:
    """The autograd Function of one compiled graph."""
    call = positional(forward)
    if autocast:
        call = without_autocast(call)
    source = _Source()
    names = source.names
    names.update(fw=call, weak=weakref.ref, Function=torch.autograd.Function)
    names.update(set_grad_mode=torch._C._set_grad_enabled)
    _forward_source(source, joint, parts)
    _backward_source(source, joint, parts, backward)
    forward_function = source.build("forward")
    backward_function = names["backward"]
    names["double"] = DoubleBackward(joint, parts, eager, groups)
    cls = type(
        "CompiledFunction",
        (torch.autograd.Function,),
        {"forward": staticmethod(forward_function), "backward": staticmethod(backward_function)},
    )
    cls.source = "\n".join(source.lines)  # type: ignore[attr-defined]
    cls.compiled_backward = backward  # type: ignore[attr-defined]
    if compile_now:
        names["bw"] = backward.compile()
    return cls


def _forward_source(source: _Source, joint: JointGraph, parts: Partition) -> None:
    meta = joint.metadata
    count = meta.num_forward_outputs
    source.add(0, "def forward(ctx, *args):")
    if any(is_random(n) for n in joint.graph.nodes):
        source.names["rng_state"] = rng_state
        source.add(1, "ctx.rng = rng_state(args)")
    if any(is_grad_mode_read(n) for n in joint.graph.nodes):
        source.names.update(below_autograd=below_autograd, enable_grad=torch.enable_grad)
        source.add(1, "with below_autograd(), enable_grad():")
        source.add(2, "outs = fw(*args)")
    else:
        source.add(1, "outs = fw(*args)")
    _add_versions(source, meta)
    tensors = [v for v in parts.saved if v.is_tensor]
    sizes = [v for v in parts.saved if not v.is_tensor]

    def place(value: Any) -> str:
        return f"{'args' if value.kind == 'input' else 'outs'}[{value.position}]"

    if tensors:
        # what `save_for_backward` does, without its Python call
        source.add(1, f"ctx.to_save = ({', '.join(place(v) for v in tensors)},)")
    watched = _watched_outputs(joint, parts)
    if watched:
        source.names["counter_of"] = counter_of
        source.add(1, f"ctx.counters = ({', '.join(f'counter_of(outs[{k}])' for k in watched)},)")
    if sizes:
        source.add(1, f"ctx.sizes = ({', '.join(place(v) for v in sizes)},)")
    saved_inputs = {v.position for v in tensors if v.kind == "input"}
    is_tensor = tensor_inputs(joint)
    loose = [i for i in range(meta.num_forward_inputs) if i not in saved_inputs and is_tensor[i]]
    written = Written(joint, parts)
    if loose:
        held = set(loose) if meta.keeps_inputs else inputs_to_hold(joint, parts, written.left)
        refs = (f"{f'args[{i}]' if i in held else f'weak(args[{i}])'}, args[{i}]._version" for i in loose)
        source.add(1, f"ctx.loose = ({', '.join(refs)},)")
    earlier = [f"{i}: copy_of(args[{i}])" for i in written.copied if i in loose]
    earlier += [f"{i}: place_of(args[{i}])" for i in written.places if i in loose]
    if earlier:
        source.names.update(copy_of=copy_of, place_of=place_of)
        source.add(1, f"ctx.earlier = {{{', '.join(earlier)}}}")
    rigid = [i for i in range(meta.num_forward_inputs) if not is_tensor[i]]
    if rigid:
        source.add(1, f"ctx.numbers = ({', '.join(f'args[{i}]' for i in rigid)},)")
    plain = [k for k in range(count) if not meta.differentiable[k] and k != -1]
    floats = ", ".join(f"outs[{k}]" for k in plain if _is_tensor_output(joint, k))
    if floats:
        source.add(1, f"ctx.mark_non_differentiable({floats})")
    source.add(1, "ctx.materialize_grads = False")
    varying = [k for k, val in zip(parts.tangents, _tangent_values(joint), strict=True) if _is_symbolic(val)]
    if varying:
        source.add(1, f"ctx.tangent_sizes = {{{', '.join(f'{k}: outs[{k}].shape' for k in varying)}}}")
    results = ", ".join(f"outs[{k}]" for k in range(count))
    source.add(1, f"return ({results},)")


def _is_tensor_output(joint: JointGraph, position: int) -> bool:
    value = joint.graph.output_node().args[0][position]  # type: ignore[index]
    return isinstance(value, fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)


def _tangent_values(joint: JointGraph) -> list[Any]:
    """The fake value of each tangent."""
    return [n.meta["val"] for n in placeholders_of(joint)[joint.metadata.num_forward_inputs :]]


def _is_symbolic(value: torch.Tensor) -> bool:
    return any(isinstance(s, torch.SymInt) for s in (*value.shape, *value.stride()))


def _tangent_fixers(meta_val: Any) -> tuple[Callable, Any, Callable]:
    """(zeros, expected strides, restride) for one tangent, which the graph takes in a dense layout.

    With symbolic sizes `zeros` takes the shape, and the expected strides are a function of the shape, or None where
    they are the contiguous ones.
    """
    shape, stride, dtype, device = tuple(meta_val.shape), tuple(meta_val.stride()), meta_val.dtype, meta_val.device
    if not _is_symbolic(meta_val):

        def zeros() -> torch.Tensor:
            return torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()

        if meta_val.is_contiguous() and all(n > 1 for n in shape):
            return zeros, stride, torch.Tensor.contiguous  # exactly these strides, in one call

        def restride(grad: torch.Tensor) -> torch.Tensor:
            if len(shape) != grad.dim():
                return grad.contiguous()
            return torch.empty_strided(shape, stride, dtype=dtype, device=grad.device).copy_(grad)

        return zeros, stride, restride

    inner_to_outer = sorted(range(len(shape)), key=lambda d: (size_hint(stride[d]), size_hint(shape[d]), -d))

    def layout(sizes: Sequence[int]) -> tuple[int, ...]:
        out, step = [0] * len(sizes), 1
        for d in inner_to_outer:
            out[d] = step
            step *= max(sizes[d], 1)
        return tuple(out)

    def zeros_of(sizes: Sequence[int]) -> torch.Tensor:
        return torch.empty_strided(sizes, layout(sizes), dtype=dtype, device=device).zero_()

    def restride_any(grad: torch.Tensor) -> torch.Tensor:
        out = torch.empty_strided(grad.shape, layout(grad.shape), dtype=dtype, device=grad.device)
        return out.copy_(grad)

    is_plain = inner_to_outer == list(range(len(shape)))[::-1]
    return zeros_of, (None if is_plain else layout), restride_any


def _given_tangents(parts: Partition) -> dict[int, int]:
    """Results of the backward graph that are tangents: position of the forward output whose gradient they are."""
    placeholders = [n for n in parts.backward.graph.nodes if n.op == "placeholder"]
    tangents = dict(zip(placeholders[len(placeholders) - len(parts.tangents) :], parts.tangents, strict=True))
    results: Any = parts.backward.graph.output_node().args[0]
    return {slot: tangents[node] for slot, node in enumerate(results) if node in tangents}


_OVERWRITTEN = re.compile(r"which is output (\d+) of CompiledFunction")


def counter_of(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """A tensor without memory that shares the version counter of `tensor`, and what it counts now."""
    counter = tensor.detach()
    counter.data = tensor.new_empty(0)
    return counter, counter._version


class _SavedFor:
    """The saved tensors of a backward in which outputs were overwritten that only other outputs' gradients need: eager,
    where each output has a graph of its own, never looks at those."""

    def __init__(self, parts: Partition, watched: Sequence[int]) -> None:
        self.parts = parts
        self.watched = watched
        self.remaining = Remaining(parts)

    def __call__(self, ctx: Any, grads: Sequence[Any], error: RuntimeError, given: int = 0) -> list[torch.Tensor]:
        """Zeros where a tensor is not needed for the gradients that were given; raises `error` where one is."""
        parts = self.parts
        served = self.remaining.serve(ctx, given, error) if given else None
        if served is not None:
            return served
        tensors = [v for v in parts.saved if v.is_tensor]
        told = _OVERWRITTEN.search(str(error))
        if torch.is_grad_enabled() or told is None or not self.watched:
            raise error
        changed = {p for p, (counter, version) in zip(self.watched, ctx.counters) if counter._version != version}
        overwritten = [k for k, v in enumerate(tensors) if v.kind == "output" and v.position in changed]
        # the first one is what autograd complains of, so that what comes before, the inputs among it, is as it was
        if not overwritten or tensors[overwritten[0]].position != int(told[1]):
            raise error
        if any(v.kind == "input" for v in tensors[overwritten[0] :]):
            raise error
        nodes = [n for n in parts.backward.graph.nodes if n.op == "placeholder"]
        tangents = list(zip(nodes[len(nodes) - len(parts.tangents) :], parts.tangents, strict=True))
        given = {n for n, p in tangents if grads[p] is not None}
        needed = needed_for(parts.backward.graph, given, {n for n, _ in tangents} - given)
        holders = [n for n, v in zip(nodes, parts.saved) if v.is_tensor]
        saved = [kept.data for kept in ctx._raw_saved_tensors]  # without a check
        for k in overwritten:
            if holders[k] in needed:
                raise error
            saved[k] = torch.zeros_like(saved[k])
        return saved


def _watched_outputs(joint: JointGraph, parts: Partition) -> list[int]:
    """Saved results that the program gets, too, and may overwrite, where a backward may be for others alone."""
    if len(parts.tangents) < 2:
        return []
    count = joint.metadata.num_forward_outputs
    return sorted({v.position for v in parts.saved if v.is_tensor and v.kind == "output" and v.position < count})


class _MissingTangents:
    """Takes out gradients that no given tangent reaches: an input used for other outputs alone has none in eager."""

    def __init__(self, parts: Partition) -> None:
        self.backward = parts.backward
        self.count = len(parts.tangents)
        self.reached: list[int] | None = None

    def __call__(self, missing: int, outs: Sequence[Any]) -> list[Any]:
        """The backward graph's results; `missing` has a bit for each tangent that autograd left out."""
        return [None if r and not r & ~missing else out for r, out in zip(self.reached_by(), outs, strict=True)]

    def reached_by(self) -> list[int]:
        """Per result of the backward graph the tangents it depends on, as bits."""
        if self.reached is None:
            self.reached = self._reach()
        return self.reached

    def _reach(self) -> list[int]:
        placeholders = [n for n in self.backward.graph.nodes if n.op == "placeholder"]
        first = len(placeholders) - self.count
        return reached_results(self.backward.graph, {node: 1 << k for k, node in enumerate(placeholders[first:])})


def _gradients(slots: Sequence[int | None], passed: dict[int, str], parts: Partition) -> list[str]:
    """What a backward returns, as expressions of the backward graph's results `outs`. `passed`: results that are what
    came in; they go on as they are, as in eager."""
    count = len(parts.backward.graph.output_node().args[0])
    used = [slot for slot in slots if slot is not None]
    first = next((i for i, slot in enumerate(slots) if slot is not None), 0)
    if not passed and used == list(range(count)) == list(slots[first : first + count]):  # in a row, as they come
        return [*["None"] * first, "*outs", *["None"] * (len(slots) - first - count)]
    return ["None" if slot is None else passed.get(slot, f"outs[{slot}]") for slot in slots]


def _gradient_sinks(joint: JointGraph, parts: Partition, by_position: dict[int, int]) -> GradientSinks:
    """The large gradients, by the edges of the graph's autograd node: one for each tensor among the inputs."""
    tensors = [i for i, is_tensor in enumerate(tensor_inputs(joint)) if is_tensor]
    inputs = placeholders_of(joint)
    slots = [(edge, by_position[i]) for edge, i in enumerate(tensors) if by_position.get(i) is not None]
    uses = collections.Counter(slot for _, slot in slots)
    passed = _given_tangents(parts)  # handed on as they came
    once = [pair for pair in slots if uses[pair[1]] == 1 and pair[1] not in passed]
    count = len(parts.backward.graph.output_node().args[0])  # type: ignore[arg-type]
    return GradientSinks([inputs[i].meta["val"] for i in tensors], once, count)


def _backward_source(source: _Source, joint: JointGraph, parts: Partition, backward: BackwardGraph) -> None:
    meta = joint.metadata
    names = source.names

    def first_call(*args: Any) -> Any:
        call = names["bw"] = backward.compile()
        return call(*args)

    names.update(
        bw=first_call,
        bw_eager=backward.run_eagerly,
        is_grad_enabled=torch.is_grad_enabled,
        bw_autocast=UnderAutocast(backward),
        is_any_autocast_enabled=is_any_autocast_enabled,
    )
    sizes = any(not v.is_tensor for v in parts.saved)
    single = meta.num_forward_outputs == 1 and list(parts.tangents) == [0]
    source.add(0, f"def backward(ctx, {'grad' if single else '*grads'}):")
    given = {p: "grad" if single else f"grads[{p}]" for p in parts.tangents}
    if given:
        # Reached over another result of a later graph: nothing flows here, and what was saved may be freed already.
        source.add(1, f"if {' and '.join(f'{g} is None' for g in given.values())}:")
        source.add(2, f"return ({'None, ' * meta.num_forward_inputs})")
    # autograd is not asked whether what only unused outputs need was overwritten
    saved_for = names["saved_for"] = _SavedFor(parts, _watched_outputs(joint, parts))
    several = len(parts.tangents) > 1
    every = saved_for.remaining.all
    if several:
        bits = (f"(grads[{p}] is not None) << {k}" for k, p in enumerate(parts.tangents))
        source.add(1, f"given = {' | '.join(bits)}")
    if meta.frees or any(v.is_tensor for v in parts.saved):
        source.add(1, "try:")
        source.add(2, "saved = ctx.saved_tensors")
        source.add(1, "except RuntimeError as error:")
        source.add(2, f"saved = saved_for(ctx, {'(grad,)' if single else 'grads'}, error{', given' * several})")
        if several:
            names["keep"] = saved_for.remaining.keep
            source.add(1, "else:")
            source.add(2, f"ctx.remaining = None if given == {every} else keep(given, saved)")
    else:
        source.add(1, "saved = ()")
    source.add(1, "if is_grad_enabled():")
    source.add(2, f"return double(ctx, saved, {'(grad,)' if single else 'grads'})")
    names["is_legacy_batched"] = is_legacy_batched
    legacy = [f"{g} is not None and is_legacy_batched({g})" for g in given.values()]
    source.add(1, f"batched = {' or '.join(['interpreter_stack() is not None', *legacy])}")
    tangents = []
    if several:
        names["without_missing"] = _MissingTangents(parts)
        source.add(1, f"missing = {every} ^ given")
    for k, (position, val) in enumerate(zip(parts.tangents, _tangent_values(joint), strict=True)):
        zeros, stride, restride = _tangent_fixers(val)
        names[f"zeros_{k}"], names[f"stride_{k}"], names[f"restride_{k}"] = zeros, stride, restride
        source.add(1, f"g{k} = {given[position]}")
        source.add(1, f"if g{k} is None:")
        source.add(2, f"g{k} = zeros_{k}({f'ctx.tangent_sizes[{position}]' if _is_symbolic(val) else ''})")
        if callable(stride):
            source.add(1, f"elif not batched and g{k}.stride() != stride_{k}(g{k}.shape):")
        elif stride is None:
            source.add(1, f"elif not batched and not g{k}.is_contiguous():")
        elif restride is torch.Tensor.contiguous:
            source.add(1, "elif not batched:")
        else:
            source.add(1, f"elif g{k}.stride() != stride_{k} and not batched:")
        plain = restride is torch.Tensor.contiguous
        source.add(2, f"g{k} = g{k}.contiguous()" if plain else f"g{k} = restride_{k}(g{k})")
        tangents.append(f"g{k}")
    arguments = ", ".join((["*ctx.sizes"] if sizes else []) + ["*saved"] + tangents)
    source.add(1, "if batched:")
    source.add(2, f"outs = bw_eager(({arguments},))")
    source.add(1, "elif is_any_autocast_enabled():")
    source.add(2, f"outs = bw_autocast({arguments})")
    source.add(1, "else:")
    by_position = dict(zip(meta.grad_inputs, parts.gradient_slots, strict=True))
    sinks = _gradient_sinks(joint, parts, by_position)
    if parts.report.saved_bytes >= BOXED_FROM_BYTES or sinks.total_bytes >= BOXED_FROM_BYTES:
        names["bw_boxed"] = backward.call_boxed
        source.add(2, f"feed = [{arguments}]")
        source.add(2, "del saved")
        source.add(2, "ctx.maybe_clear_saved_tensors()")
        if sinks.total_bytes >= BOXED_FROM_BYTES:
            names["find_sinks"] = sinks.find
            if several:
                sinks.reached = names["without_missing"].reached_by
            source.add(2, f"sinks = find_sinks(ctx.next_functions{', missing' if several else ''})")
            source.add(2, "outs = bw_boxed(feed, sinks)")
        else:
            source.add(2, "outs = bw_boxed(feed)")
    else:
        source.add(2, f"outs = bw({arguments})")
    slots = [by_position.get(i) for i in range(meta.num_forward_inputs)]
    if several:
        source.add(1, "if missing:")
        source.add(2, "outs = without_missing(missing, outs)")
    passed = {slot: given[position] for slot, position in _given_tangents(parts).items()}
    source.add(1, f"return ({', '.join(_gradients(slots, passed, parts))},)")
