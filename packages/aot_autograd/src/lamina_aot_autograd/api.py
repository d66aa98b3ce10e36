"""The entry points: trace_joint, partition, aot_compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from . import config, printing
from ._torch import is_any_autocast_enabled, storage_address
from .contract import require_graph
from .errors import CompilerResultError, PartitionError, TraceError, UnsupportedError
from .interpret import KEEPS_INPUTS, needs_real_tensors
from .joint import check_traceable, trace_joint
from .observe import report
from .partition import POLICIES, Partition, partition
from .regions import roll_repeats
from .runtime import BackwardGraph, build_inference, build_training, compile_both, compile_with
from .schemas import JointGraph
from .trace.region_calls import RegionTracer
from .wrappers.boxing import run_eagerly
from .wrappers.dedup import AliasGroup, find_groups, overlaps_itself, shared_storages
from .wrappers.mutation import counting_first

__all__ = ["aot_compile", "partition", "trace_joint"]


def aot_compile(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    forward_compiler: Callable[..., Any] | None = None,
    backward_compiler: Callable[..., Any] | None = None,
    inference_compiler: Callable[..., Any] | None = None,
    partitioner: Any = None,
    decompositions: Any = None,
    memory_budget: float | None = None,
    regions: bool = False,
    name: str = "graph",
) -> Callable[..., Any]:
    """Compile a captured graph: `callable(*inputs) -> outputs`, with eager's results, mutations, aliases and gradients.

    gm: FX graph of torch functions; placeholders are tensors and ints. example_inputs: tensors like the actual inputs
    (shapes, strides, dtypes, devices, requires_grad); symbolic sizes come from the placeholders' `meta["val"]`.
    forward_compiler, backward_compiler (default: forward_compiler), inference_compiler (default: forward_compiler):
    `compiler(gm, fakes) -> callable`, boxed or positional; None runs the graph op by op. partitioner: "default",
    "min_cut",
    "save_everything" or a function. decompositions: overload -> function, traced in place of the op; or a function from
    GraphModule to GraphModule, run on each graph before its compiler. memory_budget: see `partition`. regions: the
    compilers take graphs with calls of a `Region`, so that repeated structure is traced once and compiled once; else it
    is traced once and written out.

    The result is compiled under the current grad mode and autocast state. It carries `aliasing_assumptions` (pairs of
    inputs that must not overlap for the first graph to be used; when they do, another is traced), `unboxed` where a
    callable without overhead exists, `joint`, `partition` and `reason` (why it runs in eager, or None).
    """
    require_graph(gm, example_inputs)
    for what, compiler in (("forward_compiler", forward_compiler), ("backward_compiler", backward_compiler),
                           ("inference_compiler", inference_compiler)):
        if compiler is not None and not callable(compiler):
            raise TypeError(f"{what} is a function compiler(gm, example_inputs) -> callable, not "
                            f"{type(compiler).__name__}")
    if partitioner is not None and not callable(partitioner) and partitioner not in POLICIES:
        raise PartitionError(f"no partition policy {partitioner!r}",
                             hint=f"one of {', '.join(POLICIES)}, or a function")
    options = Options(
        forward_compiler, backward_compiler, inference_compiler, partitioner, decompositions, memory_budget, regions,
        name,
    )
    return compile_graph(gm, list(example_inputs), options)


class Options:
    """The choices of one aot_compile call, with their defaults filled in."""

    def __init__(
        self,
        forward_compiler: Callable[..., Any] | None,
        backward_compiler: Callable[..., Any] | None,
        inference_compiler: Callable[..., Any] | None,
        partitioner: Any,
        decompositions: Any,
        memory_budget: float | None,
        regions: bool,
        name: str,
    ) -> None:
        forward = forward_compiler or run_eagerly
        self.forward = self._with_rewrite(forward, decompositions)
        self.backward = self._with_rewrite(backward_compiler or forward, decompositions)
        self.inference = self._with_rewrite(inference_compiler or forward, decompositions)
        self.partitioner = partitioner
        self.decompositions = decompositions if isinstance(decompositions, dict) else None
        self.memory_budget = memory_budget
        self.regions = regions and config.get().regions and self._can_divide(partitioner, memory_budget)
        self.name = name

    @staticmethod
    def _can_divide(partitioner: Any, memory_budget: float | None) -> bool:
        """Whether the partition of a graph may be put together from those of its regions: not with a budget in bytes
        for the whole, nor with somebody's own function, which has never seen a region."""
        budget = config.get().memory_budget if memory_budget is None else memory_budget
        return budget <= 1 and not callable(partitioner)

    @staticmethod
    def _with_rewrite(compiler: Callable[..., Any], decompositions: Any) -> Callable[..., Any]:
        if decompositions is None or isinstance(decompositions, dict):
            return compiler

        def rewrite_and_compile(gm: fx.GraphModule, fakes: Sequence[Any]) -> Callable[..., Any]:
            return compiler(decompositions(gm), fakes)

        return rewrite_and_compile


def compile_graph(gm: fx.GraphModule, examples: list[Any], options: Options) -> Callable[..., Any]:
    """aot_compile with its options bundled; splits the graph where nodes need real tensors."""
    from .floats import lift_floats, run_lifted
    from .split import compile_split, lift_attributes

    floats = lift_floats(gm)
    if floats is not None:
        return _with_floats(examples, options, floats, run_lifted)
    lifted, extra = lift_attributes(gm)
    if extra:
        inner = compile_graph(lifted, [*examples, *extra], options)
        return _with_extra_inputs(inner, extra)
    barriers = {node: why for node in gm.graph.nodes if (why := needs_real_tensors(node)) is not None}
    if barriers:
        return compile_split(gm, barriers, options)
    try:
        check_traceable(examples)
        return _Entries(gm, options).build(examples)
    except TraceError as error:
        node = error.node
        if node is not None and node.graph is gm.graph and node.op != "placeholder":
            return compile_split(gm, {node: str(error).splitlines()[0]}, options)
        return eager_call(gm, error)
    except CompilerResultError:
        raise
    except Exception as error:  # the program's own error, or ours: eager decides
        return eager_call(gm, error)


def _with_floats(examples: list[Any], options: Options, lifted: Any, run: Any) -> Callable[..., Any]:
    """A graph with floats that change: 0-dim tensors are made of them at each call."""
    devices = [e.device for e in examples if isinstance(e, torch.Tensor) and e.dim()]
    device = devices[0] if devices else torch.device("cpu")
    given = [None if i in lifted.floats else e for i, e in enumerate(examples)]
    given += [torch.zeros((), dtype=torch.float64, device=device) for _ in lifted.tensors]
    given += [0.0 for _ in lifted.numbers]
    inner = compile_graph(lifted.gm, given, options)
    call = run(inner, lifted, device)
    for attribute in ("aliasing_assumptions", "joint", "partition", "reason", "source"):
        if hasattr(inner, attribute):
            setattr(call, attribute, getattr(inner, attribute))
    return call


def _with_extra_inputs(inner: Callable[..., Any], extra: list[Any]) -> Callable[..., Any]:
    values = tuple(extra)

    def call(*args: Any) -> Any:
        return inner(*args, *values)

    for attribute in ("aliasing_assumptions", "joint", "partition", "reason", "source"):
        if hasattr(inner, attribute):
            setattr(call, attribute, getattr(inner, attribute))
    return call


def eager_call(gm: fx.GraphModule, error: Exception) -> Callable[..., Any]:
    """The graph in eager, with the reason. In strict mode an unexpected error is raised once eager has gone well."""
    report("fallback", {"reason": str(error), "error": error, "graph": gm})
    unexpected = not isinstance(error, TraceError)

    def call(*args: Any) -> Any:
        _ = gm.code  # made now where capture put it off: an error then passes without torch.fx printing it
        result = gm.forward(*args)
        if unexpected and config.get().strict:
            raise TraceError(f"tracing failed where eager works: {error!r}") from error
        return result

    call.error = error  # type: ignore[attr-defined]
    call.reason = str(error)  # type: ignore[attr-defined]
    call.aliasing_assumptions = ()  # type: ignore[attr-defined]
    return call


class _Entries:
    """The compiled forms of one graph: one for each way its inputs share memory, and for each value of plain
    numbers."""

    def __init__(self, gm: fx.GraphModule, options: Options) -> None:
        self.gm = gm
        self.options = options
        self.mutated: set[int] = set()
        self.entries: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self.constants: list[int] = []
        self.rolled = roll_repeats(gm, options.regions) if config.get().regions else None
        self.regions = RegionTracer(self._partition, options.decompositions)

    def build(self, examples: list[Any]) -> Callable[..., Any]:
        groups: list[AliasGroup] = []
        joint = self._trace(examples, ())
        self._note_mutated(joint)
        if any(overlaps_itself(examples[i]) for i in self.mutated):
            raise UnsupportedError("a write to an input whose elements share memory with each other")
        if self.mutated and shared_storages(examples):
            groups = find_groups(examples, self.mutated)
            if groups:
                joint = self._trace(examples, groups)
        placeholders = [n for n in self.gm.graph.nodes if n.op == "placeholder"]
        self.constants = [
            i
            for i, e in enumerate(examples)
            if not isinstance(e, (torch.Tensor, torch.SymInt))
            and not isinstance(placeholders[i].meta.get("val"), torch.SymInt)
        ]
        first = self._compile(joint, groups)
        self.entries[self._key(groups, examples)] = first
        tensors = [i for i, e in enumerate(examples) if isinstance(e, torch.Tensor)]
        if not self.constants and not (self.mutated and len(tensors) > 1):
            first.aliasing_assumptions = ()  # type: ignore[attr-defined]
            return first
        return self._checked(first, tensors, groups, tuple(examples[i] for i in self.constants))

    def _key(self, groups: Sequence[AliasGroup], args: Sequence[Any]) -> tuple[Any, ...]:
        return (torch.is_grad_enabled(), tuple(g.key() for g in groups), tuple(args[i] for i in self.constants))

    def _note_mutated(self, joint: JointGraph) -> None:
        self.mutated = {i for i, info in enumerate(joint.metadata.inputs) if info.mutates_data}

    def _trace(self, examples: list[Any], groups: Sequence[AliasGroup]) -> JointGraph:
        if self.rolled is not None:
            try:
                return trace_joint(
                    self.rolled,
                    examples,
                    decompositions=self.options.decompositions,
                    groups=groups,
                    regions=self.regions,
                )
            except Exception as error:
                # whatever it is, the graph as it was captured decides
                report("fallback", {"reason": f"repeated layers are not stamped out: {error}", "graph": self.gm})
                self.rolled = None
        return trace_joint(self.gm, examples, decompositions=self.options.decompositions, groups=groups)

    def _partition(self, joint: JointGraph) -> Partition:
        return partition(
            joint, self.options.partitioner, memory_budget=self.options.memory_budget, observed=False
        )

    def _compile(self, joint: JointGraph, groups: Sequence[AliasGroup]) -> Callable[..., Any]:
        options = self.options
        autocast = is_any_autocast_enabled()
        joint.metadata.keeps_inputs = bool(self.gm.meta.get(KEEPS_INPUTS))
        parts: Partition | None = None
        if joint.metadata.needs_autograd:
            parts = partition(joint, options.partitioner, memory_budget=options.memory_budget)
            backward = BackwardGraph(parts.backward, options.backward)
            with torch.no_grad():
                forward = compile_both(parts, options.forward, backward)
            call = build_training(
                joint,
                parts,
                forward,
                backward,
                groups,
                self.gm.forward,
                autocast,
                config.get().eager_backward_compile,
            )
        else:
            printing.dump(joint.gm, "inference")
            with torch.no_grad():
                compiled = compile_with(options.inference, joint.gm, "inference_compiled")
            call = build_inference(joint, compiled, groups, self.gm.forward, autocast)
        call.joint = joint  # type: ignore[attr-defined]
        call.partition = parts  # type: ignore[attr-defined]
        call.reason = None  # type: ignore[attr-defined]
        return call

    def _checked(
        self, first: Callable[..., Any], tensors: list[int], groups: list[AliasGroup], constants: tuple[Any, ...]
    ) -> Callable[..., Any]:
        separate = not groups
        watched = bool(self.mutated) and len(tensors) > 1
        positions = tuple(tensors)
        count = len(positions)
        fixed = tuple(self.constants)
        find = self._find

        def call(*args: Any) -> Any:
            if watched and (not separate or len({storage_address(args[i]) for i in positions}) != count):
                return find(args)(*args)
            for i, value in zip(fixed, constants, strict=True):
                if args[i] is not value and (type(args[i]) is not type(value) or args[i] != value):
                    return find(args)(*args)
            return first(*args)

        call.joint = first.joint  # type: ignore[attr-defined]
        call.partition = first.partition  # type: ignore[attr-defined]
        call.source = getattr(first, "source", None)  # type: ignore[attr-defined]
        call.reason = None  # type: ignore[attr-defined]
        call.entries = self.entries  # type: ignore[attr-defined]
        pairs = [(i, j) for i in sorted(self.mutated) for j in positions if i != j] if separate else []
        call.aliasing_assumptions = tuple(pairs)  # type: ignore[attr-defined]
        return call

    def _find(self, args: tuple[Any, ...]) -> Callable[..., Any]:
        """The entry for these inputs; traced now if it is the first with this pattern."""
        try:
            groups = find_groups(args, self.mutated)
        except TraceError as error:
            return eager_call(self.gm, error)
        key = self._key(groups, args)
        entry = self.entries.get(key)
        if entry is None:
            report("retrace", {"graph": self.gm, "groups": groups})
            try:
                check_traceable(args)
                entry = self._compile(self._trace(list(args), groups), groups)
            except CompilerResultError:
                raise
            except Exception as error:
                entry = eager_call(self.gm, error)
            self.entries[key] = entry
        return entry if groups else self._counting_first(entry, args)

    def _counting_first(self, entry: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
        """The entry for inputs that overlap nowhere; some of them are parts of one memory."""
        joint = getattr(entry, "joint", None)
        if joint is None or not joint.metadata.needs_autograd:
            return entry
        infos = joint.metadata.inputs
        return counting_first(entry, [(i, infos[i].version_bumps) for i in sorted(self.mutated)])
