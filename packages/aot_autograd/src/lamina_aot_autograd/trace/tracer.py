"""The dispatch mode that runs ATen calls on trace tensors and records a functional graph.

It sits below autograd: autograd sees eager's calls (views, in-place writes, version counters), the graph sees pure ops.
"""

from __future__ import annotations

import builtins
import keyword
import operator
from bisect import bisect_right
from typing import Any

import torch
import torch.fx as fx

from .._torch import DispatchMode, append_node, current_autograd_node, increment_version, next_sequence_nr
from ..errors import DataDependentError, UnsupportedError
from ..functionalize import read_step, write
from ..regions import REGION_POSITION
from . import op_info
from .fallback import meta_results, result_device
from .op_info import COMPOSITE, INPLACE, MUTATE, OUT, PURE, VIEW, OpInfo
from .overflow import FILLS, HALF_MAX, check_numbers, is_large
from .overlap import NO_SHARING, refuse_overlap, refuse_overlaps
from .sizes import SizeNodes
from .special import SPECIAL
from .tensor import Storage, TraceTensor, ViewStep, make_root, make_value, make_wrapper
from .view_rules import ViewMeta, view_by_rule

aten = torch.ops.aten
# Names that generated Python must not hide: torch.fx would rename such a node, and then clash with ours.
_NUMBERS_DTYPE = {
    (bool, torch.SymBool): torch.bool,
    (int, torch.SymInt): torch.int64,
    (float, torch.SymFloat): None,  # the default dtype
}
_NUMBERS = (bool, int, float, torch.SymBool, torch.SymInt, torch.SymFloat)

_TAKEN_NAMES = frozenset(
    {
        *dir(builtins),
        *keyword.kwlist,
        "inf",
        "nan",
        "torch",
        "device",
        "NoneType",
        "self",
        "fx_pytree",
        "pytree",
        "math",
        "operator",
    }
)
# Operators whose kernels ignore the strides of `out`, or give it other ones.
_LAYS_OUT = frozenset(
    {"aten::avg_pool3d", "aten::cholesky_inverse", "aten::gelu", "aten::linear", "aten::narrow_copy"}
)
_ATOMS = frozenset(
    {
        int,
        float,
        bool,
        str,
        type(None),
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
        complex,
        torch.Size,
        torch.Generator,
    }
)


def _is_complete(metas: Any) -> bool:
    """False when a rule leaves strides open."""
    if isinstance(metas, tuple) and is_single(metas):
        return metas[1] is not None
    return all(m is None or m[1] is not None for m in metas)


def is_single(meta: Any) -> bool:
    """True for one TensorMeta, False for a tuple of them."""
    return len(meta) == 4 and isinstance(meta[2], torch.dtype)


class Number:
    """A result that is a Python number known from the operands' metadata (the lengths that attention ops return)."""

    __slots__ = ("value",)

    def __init__(self, value: bool | int | float) -> None:
        self.value = value


class Tracer(DispatchMode):
    """Records into `graph`. `constants` maps attribute names to real tensors that the graph reads by get_attr.

    source_meta: meta of the captured node that runs now; phase: "forward" or "backward";
    decompositions: overload -> Python function that is traced in its place.
    """

    def __init__(self, graph: fx.Graph, decompositions: dict | None = None) -> None:
        super().__init__()
        self.graph = graph
        self.constants: dict[str, torch.Tensor] = {}
        self.decompositions = decompositions or {}
        self.phase = "forward"
        self.source_meta: dict[str, Any] = {}
        self.recompute: str | None = None
        self.checkpoint = 0  # number of the checkpointed region that is traced
        self.large_number = False  # an argument of the op that is being recorded may be too large for its dtype
        self.sizes = SizeNodes(self)
        self._counts: dict[str, int] = {}
        self._constant_roots: dict[int, TraceTensor] = {}
        self._sequence_starts: list[int] = []
        self._sequence_meta: list[dict] = []

    # -- captured nodes ---------------------------------------------------------------------------------------------

    def enter_node(self, meta: dict[str, Any]) -> None:
        """The captured node with this meta runs from now on: its ops inherit where they come from."""
        self.source_meta = meta
        self._sequence_starts.append(next_sequence_nr())
        self._sequence_meta.append(meta)

    def origin(self) -> tuple[dict, int]:
        """(meta of the captured node that runs or whose gradient is taken, number of its autograd node)."""
        if self.phase == "forward":
            return self.source_meta, next_sequence_nr() - 1
        node = current_autograd_node()
        if node is None:
            return {}, -1
        number = node._sequence_nr()
        at = bisect_right(self._sequence_starts, number) - 1
        return (self._sequence_meta[at] if at >= 0 else {}), number

    # -- recording --------------------------------------------------------------------------------------------------

    def name(self, base: str) -> str:
        count = self._counts.get(base)
        if count is None:
            if base in _TAKEN_NAMES:
                self._counts[base] = 1
                return f"{base}_1"
            self._counts[base] = 0
            return base
        self._counts[base] = count + 1
        return f"{base}_{count + 1}"

    def record(self, base: str, func: Any, args: tuple, kwargs: dict, val: Any) -> fx.Node:
        """Append a node; `val` is its metadata value."""
        if (self.large_number or func in FILLS) and self.phase == "forward":
            self.large_number = False
            check_numbers(func, args, kwargs, val)
        node = append_node(self.graph, self.name(base), func, args, kwargs)
        origin, number = self.origin()
        meta = node.meta
        meta["val"] = val
        meta["seq_nr"] = number
        meta["partition"] = self.phase
        if self.recompute is not None and self.phase == "forward":
            meta["recompute"] = self.recompute
            meta["checkpoint"] = self.checkpoint
        trace = origin.get("stack_trace")
        if trace is not None:
            meta["stack_trace"] = trace
        stack = origin.get("nn_module_stack")
        if stack is not None:
            meta["nn_module_stack"] = stack
        position = origin.get(REGION_POSITION)
        if position is not None:
            meta[REGION_POSITION] = position
        return node

    def emit(self, func: Any, args: tuple, kwargs: dict, like: Any) -> fx.Node:
        """Append a node whose value has `like`'s shape, stride, dtype (functionalization's own nodes)."""
        device = args[0].meta["val"].device
        shape = tuple(like.shape)
        args = tuple(self.lower(a) if type(a) not in _ATOMS and not isinstance(a, fx.Node) else a for a in args)
        return self.record(
            op_info.lookup(func).base, func, args, kwargs, make_value(shape, tuple(like.stride), like.dtype, device)
        )

    def lower(self, value: Any) -> Any:
        """Graph argument for a Python argument."""
        kind = type(value)
        if kind is TraceTensor:
            return self.read(value)
        if kind in _ATOMS:
            if kind is float and not -HALF_MAX <= value <= HALF_MAX and is_large(value):
                self.large_number = True
            return value
        if kind is list or kind is tuple:
            return kind([self.lower(item) for item in value])
        if isinstance(value, torch.Tensor):
            return self.read(self.constant(value))
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.sizes.node_of(value)
        if isinstance(value, (list, tuple)):
            return [self.lower(item) for item in value]
        return value

    def read(self, tensor: TraceTensor) -> fx.Node:
        storage, step = tensor._s, tensor._v
        if storage is None:
            raise UnsupportedError("a bare value entered the trace")
        if step is None:
            return storage.node
        if step.gen == storage.gen:
            return step.node
        return read_step(self.emit, storage, step)

    def constant(self, real: torch.Tensor) -> TraceTensor:
        """Trace tensor for a real tensor that the program holds."""
        known = self._constant_roots.get(id(real))
        if known is not None:
            return known
        if type(real) is not torch.Tensor and type(real) is not torch.nn.Parameter:
            raise UnsupportedError(f"a tensor of class {type(real).__name__} inside the graph")
        if real.requires_grad:
            raise UnsupportedError(
                "a tensor with gradient that is not an input of the graph",
                hint="parameters must be inputs: lamina_aot_autograd.parameters_as_inputs(module, example_inputs)",
            )
        name = self.name("_tensor_constant")
        self.constants[name] = real
        node = self.graph.create_node("get_attr", name, name=name)
        node.meta["val"] = make_value(real.shape, real.stride(), real.dtype, real.device)
        node.meta["partition"] = self.phase
        storage = Storage(node, tuple(real.shape), real.stride(), real.dtype, real.device)
        storage.real = real
        tensor = self._constant_roots[id(real)] = make_root(storage)
        storage.root = tensor
        return tensor

    def changed_constants(self) -> bool:
        """True when the program wrote to a real tensor that is not an input."""
        return any(t._s.gen for t in self._constant_roots.values())  # type: ignore[union-attr]

    def fresh(self, node: fx.Node, meta: tuple) -> TraceTensor:
        """A new root tensor whose value is `node`."""
        shape, stride, dtype, device = meta
        tensor = make_wrapper(TraceTensor, shape, strides=stride, dtype=dtype, device=device)
        storage = tensor._s = Storage(node, shape, stride, dtype, device)
        tensor._v = None
        storage.root = tensor
        return tensor

    # -- dispatch ---------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        special = SPECIAL.get(func)
        if special is not None:
            result = special(self, func, args, kwargs)
            if result is not NotImplemented:
                return result
        if func in self.decompositions:
            with self:
                result = self.decompositions[func](*args, **kwargs)
            if result is not NotImplemented:
                return result
        info = op_info._table.get(func) or op_info.lookup(func)
        if args and isinstance(args[0], _NUMBERS) and _is_of_numbers_alone(func, args):
            args = (self.number(args[0]), *args[1:])
        return _RUN[info.kind](self, info, args, kwargs)

    def number(self, value: Any) -> TraceTensor:
        """A 0-dim tensor of a number, of the type that torch gives a number without a tensor beside it."""
        dtype = next(d for kind, d in _NUMBERS_DTYPE.items() if isinstance(value, kind))
        with self:
            return torch.scalar_tensor(value, dtype=dtype or torch.get_default_dtype())

    def results(self, info: OpInfo, args: tuple, kwargs: dict) -> Any:
        """Metadata of an op's results: TensorMeta, a tuple of TensorMeta or None, or the meta kernel's own result."""
        if info.rule is not None:
            try:
                found = info.rule(args, kwargs)
                if _is_complete(found):
                    return found
            except NotImplementedError:
                pass
        result = meta_results(info.func, args, kwargs)
        device = result_device(args, kwargs)
        return self._describe(result, device)

    def _describe(self, result: Any, device: torch.device) -> Any:
        if isinstance(result, torch.Tensor):
            return (tuple(result.shape), result.stride(), result.dtype, device)
        if isinstance(result, (list, tuple)):
            return [self._describe(item, device) for item in result]
        if result is None:
            return None
        if isinstance(result, (bool, int, float)):
            return Number(result)
        raise DataDependentError(f"an op gives a Python {type(result).__name__}")

    def run_pure(self, info: OpInfo, args: tuple, kwargs: dict) -> Any:
        if info.is_random and self.phase == "backward":
            raise UnsupportedError("a random op in the backward (a region run again)")
        meta = self.results(info, args, kwargs)
        if isinstance(meta, Number):
            raise DataDependentError(f"{info.func} gives a Python {type(meta.value).__name__}")
        lower = self.lower
        graph_args = tuple([lower(a) for a in args])
        graph_kwargs = {k: lower(v) for k, v in kwargs.items()} if kwargs else kwargs
        if kwargs.get("generator") is not None:
            raise UnsupportedError("a random op with a generator of its own")
        if meta is None:
            self.record(info.base, info.func, graph_args, graph_kwargs, None)
            return None
        if isinstance(meta, tuple) and is_single(meta):
            node = self.record(info.base, info.func, graph_args, graph_kwargs, make_value(*meta))
            return self.fresh(node, meta)
        node = self.record(
            info.base,
            info.func,
            graph_args,
            graph_kwargs,
            [None if m is None else m.value if isinstance(m, Number) else make_value(*m) for m in meta],
        )
        results = []
        for i, m in enumerate(meta):
            if m is None or isinstance(m, Number):
                results.append(None if m is None else m.value)
                continue
            item = self.record("getitem", operator.getitem, (node, i), {}, node.meta["val"][i])
            results.append(self.fresh(item, m))
        if not results and not info.func._schema.returns:
            return None
        return tuple(results) if len(info.func._schema.returns) > 1 else results

    def run_view(self, info: OpInfo, args: tuple, kwargs: dict) -> Any:
        parent = args[0]
        if type(parent) is not TraceTensor:
            if isinstance(parent, torch.Tensor):
                parent = self.constant(parent)
                args = (parent, *args[1:])
            else:
                raise UnsupportedError(f"{info.func} on {type(parent).__name__}")
        result = view_by_rule(info.func, args, kwargs)
        if result is None:
            result = meta_results(info.func, args, kwargs)
        storage = parent._s
        assert storage is not None
        rest = tuple(args[1:])
        grad_mode = torch.is_grad_enabled()
        func = info.func
        start = parent.storage_offset()
        if isinstance(result, (torch.Tensor, ViewMeta)):
            if func is aten.as_strided.default:
                if rest[2:] and rest[2] is not None:
                    offset = rest[2]
                else:
                    offset = start
                rest = (rest[0], rest[1], offset)
                step = ViewStep(None, func, rest, {}, -1, storage.shape, storage.dtype, grad_mode)
            else:
                step = ViewStep(parent._v, func, rest, kwargs, -1, tuple(parent.shape), parent.dtype, grad_mode)
                offset = start + result.storage_offset()
            return self._view_result(storage, step, result, offset)
        results = []
        steps = []
        for i, item in enumerate(result):
            step = ViewStep(parent._v, func, rest, kwargs, i, tuple(parent.shape), parent.dtype, grad_mode)
            results.append(self._view_result(storage, step, item, start + item.storage_offset()))
            steps.append(step)
        lowered = tuple(self.lower(a) for a in rest)
        node = self.record(
            info.base,
            func,
            (self.read(parent), *lowered),
            kwargs,
            [make_value(t.shape, t.stride(), t.dtype, t.device) for t in results],
        )
        for i, step in enumerate(steps):
            step.node = self.record("getitem", operator.getitem, (node, i), {}, node.meta["val"][i])
            step.gen = storage.gen
        return tuple(results) if type(result) is tuple else results

    def _view_result(
        self, storage: Storage, step: ViewStep, result: torch.Tensor | ViewMeta, offset: Any
    ) -> TraceTensor:
        step.shape = tuple(result.shape)
        step.stride = result.stride()
        step.dtype = result.dtype
        step.offset = offset
        tensor = make_wrapper(
            TraceTensor, step.shape, strides=step.stride, storage_offset=offset, dtype=step.dtype, device=storage.device
        )
        tensor._s = storage
        tensor._v = step
        return tensor

    def run_inplace(self, info: OpInfo, args: tuple, kwargs: dict) -> Any:
        functional = info.functional
        if torch.Tag.inplace_view in info.func.tags and functional is not None:
            return self._view_in_place(info, args, kwargs)
        if functional is None:
            raise UnsupportedError(f"{info.func} has no functional form")
        targets = args[0]
        if len(args) < len(info.fill):
            args = (*args, *info.fill[len(args) :])
        pure = op_info.lookup(functional)
        if isinstance(targets, (list, tuple)):
            refuse_overlaps(targets, args[1:])
            metas = self.results(pure, args, kwargs)
            node = self._record_call(pure, args, kwargs, [make_value(*m) for m in metas])
            for i, (target, meta) in enumerate(zip(targets, metas, strict=True)):
                item = self.record("getitem", operator.getitem, (node, i), {}, node.meta["val"][i])
                self._store(target, item, meta)
            increment_version(targets)
            return None
        if type(targets) is not TraceTensor:
            targets = self.constant(targets)
        meta = self.results(pure, args, kwargs)
        if not (isinstance(meta, tuple) and is_single(meta)):
            raise UnsupportedError(f"{info.func} has several results")
        if info.converts_out:
            refuse_overlap(targets, (*args[1:], *kwargs.values()))
        elif info.func._schema.name in NO_SHARING:
            refuse_overlap(targets, (*args[1:], *kwargs.values()), at_all=True)
        node = self._record_call(pure, args, kwargs, make_value(*meta))
        self._store(targets, node, meta)
        return args[0]

    def _view_in_place(self, info: OpInfo, args: tuple, kwargs: dict) -> TraceTensor:
        """A view that replaces the tensor's own metadata (transpose_, squeeze_, ...), on intermediates."""
        target = args[0]
        pure = op_info.lookup(info.functional)
        if type(target) is not TraceTensor or pure.kind != VIEW:
            raise UnsupportedError(f"{info.func} has no functional form")
        if target._s.input_index >= 0 and target._s.root is target:
            raise UnsupportedError(f"{info.func} changes the metadata of an input")
        if target._v is not None:
            raise UnsupportedError(f"{info.func} changes the metadata of a view")
        view = self.run_view(pure, args, kwargs)
        torch.Tensor.data.__set__(target, view)  # type: ignore[attr-defined]
        target._v = view._v
        return target

    def _record_call(self, info: OpInfo, args: tuple, kwargs: dict, val: Any) -> fx.Node:
        if info.is_random and self.phase == "backward":
            raise UnsupportedError("a random op in the backward (a region run again)")
        if kwargs.get("generator") is not None:
            raise UnsupportedError("a random op with a generator of its own")
        lower = self.lower
        return self.record(
            info.base,
            info.func,
            tuple([lower(a) for a in args]),
            {k: lower(v) for k, v in kwargs.items()} if kwargs else kwargs,
            val,
        )

    def store(self, target: TraceTensor, node: fx.Node, meta: tuple) -> None:
        """Write a computed value into a tensor's memory, with eager's checks and conversion."""
        self._store(target, node, meta)

    def _store(self, target: TraceTensor, node: fx.Node, meta: tuple) -> None:
        shape, stride, dtype, device = meta
        if tuple(shape) != tuple(target.shape):
            raise RuntimeError(
                f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(shape)}"
            )
        if dtype is not target.dtype:
            if not torch.can_cast(dtype, target.dtype):
                raise RuntimeError(
                    f"result type {_type_name(dtype)} can't be cast to the desired output type "
                    f"{_type_name(target.dtype)}"
                )
            node = self.record(
                "to_copy",
                aten._to_copy.default,
                (node,),
                {"dtype": target.dtype},
                make_value(shape, stride, target.dtype, device),
            )
        write(self.emit, target, node, stride)
        step = target._v
        if step is not None and tuple(stride) == tuple(step.stride):
            step.node = node
            step.gen = target._s.gen  # type: ignore[union-attr]

    def run_out(self, info: OpInfo, args: tuple, kwargs: dict) -> Any:
        if info.functional is None:
            raise UnsupportedError(f"{info.func} has no functional form")
        outs = [kwargs[name] for name in info.mutated]
        if not all(isinstance(out, torch.Tensor) for out in outs):
            raise UnsupportedError(f"{info.func} writes to a list of tensors")
        if info.func._schema.name in _LAYS_OUT and not all(out.numel() and out.is_contiguous() for out in outs):
            raise UnsupportedError(f"{info.func} does as it likes with the strides of out=")
        rest = {k: v for k, v in kwargs.items() if k not in info.mutated}
        pure = op_info.lookup(info.functional)
        metas = self.results(pure, args, rest)
        single = isinstance(metas, tuple) and is_single(metas)
        if single:
            metas = (metas,)
        if any(out.dtype is not meta[2] for out, meta in zip(outs, metas, strict=True)) and not pure.converts_out:
            raise UnsupportedError(f"{info.func} with an out= tensor of another dtype")
        node = self._record_call(pure, args, rest, make_value(*metas[0]) if single else [make_value(*m) for m in metas])
        for i, (out, meta) in enumerate(zip(outs, metas, strict=True)):
            if tuple(meta[0]) != tuple(out.shape):
                raise UnsupportedError("an out= tensor that is resized")
            item = node if single else self.record("getitem", operator.getitem, (node, i), {}, node.meta["val"][i])
            self._store(out, item, meta)
        return outs[0] if single else tuple(outs)

    def run_mutate(self, info: OpInfo, args: tuple, kwargs: dict) -> Any:
        from .mutable_ops import run_mutable

        return run_mutable(self, info, args, kwargs)

    def run_composite(self, info: OpInfo, args: tuple, kwargs: dict) -> Any:
        with self:
            return info.func.decompose(*args, **kwargs)


def _is_of_numbers_alone(func: Any, args: tuple) -> bool:
    """True for a call such as torch.div(7, 2): an operator of tensors that got only numbers."""
    first = func._schema.arguments[0].type
    return str(first) == "Tensor" and not any(isinstance(a, torch.Tensor) for a in args)


def _type_name(dtype: torch.dtype) -> str:
    names = {
        "float32": "Float",
        "float64": "Double",
        "int64": "Long",
        "int32": "Int",
        "int16": "Short",
        "int8": "Char",
        "uint8": "Byte",
        "bool": "Bool",
        "float16": "Half",
        "bfloat16": "BFloat16",
        "complex64": "ComplexFloat",
        "complex128": "ComplexDouble",
    }
    text = str(dtype).removeprefix("torch.")
    return names.get(text, text)


_RUN = {
    PURE: Tracer.run_pure,
    VIEW: Tracer.run_view,
    INPLACE: Tracer.run_inplace,
    OUT: Tracer.run_out,
    MUTATE: Tracer.run_mutate,
    COMPOSITE: Tracer.run_composite,
}
