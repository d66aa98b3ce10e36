"""Runs a captured FX graph node by node on trace tensors, and knows which nodes cannot be inside a traced region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch.utils.checkpoint import checkpoint

from .errors import AotError, DataDependentError, TraceError, UnsupportedError
from .floats import NEEDS_NUMBER
from .regions import Region
from .trace.attention import scaled_dot_product_attention
from .trace.products import prod
from .trace.tensor import TraceTensor

KEEPS_INPUTS = "keeps_inputs"
"""Key in the meta of a graph: its backward may be differentiated when nobody else holds its inputs any more."""

# Tensor methods whose effect is on the tensor object (its storage, its place in the autograd graph): run for real.
OBJECT_METHODS = frozenset(
    {
        "retain_grad",
        "register_hook",
        "register_post_accumulate_grad_hook",
        "requires_grad_",
        "detach_",
        "set_",
        "resize_",
        "resize_as_",
        "t_",
        "transpose_",
        "swapaxes_",
        "swapdims_",
        "squeeze_",
        "unsqueeze_",
        "as_strided_",
        "backward",
        "swap_tensors",
        "share_memory_",
        "rename_",
        "untyped_storage",
        "storage",
        "data_ptr",
        "item",
        "tolist",
        "numpy",
        "nonzero",
        "__setattr__",
        "record_stream",
        "pin_memory",
    }
)
_OBJECT_FUNCTIONS: set[Any] = {
    torch.Tensor.data.__set__,
    torch.Tensor.requires_grad.__set__,
    torch.Tensor.grad.__set__,
    setattr,  # type: ignore
    torch.Tensor.retain_grad,
    torch.Tensor.register_hook,
    torch.Tensor.requires_grad_,
    torch.Tensor.detach_,
    torch.Tensor.set_,
    torch.Tensor.resize_,
    torch.Tensor.backward,
    torch.autograd.backward,
    torch.nonzero,
    torch.utils.swap_tensors,
}


_INFERENCE_SETTERS = ("_enter_inference_mode", "_exit_inference_mode")


def needs_real_tensors(node: fx.Node) -> str | None:
    """Why a node cannot be traced with its neighbours, or None."""
    if isinstance(node.kwargs.get("generator"), fx.Node) or node.target is torch.Generator:
        return "a random generator of the program's own"
    if node.op in ("placeholder", "output"):  # a piece's input carries the marks of the node that gives it
        return None
    if NEEDS_NUMBER in node.meta:
        return "the op takes a number, which changes from call to call"
    if node.op == "call_method":
        if node.target in OBJECT_METHODS:
            return f".{node.target}() acts on the tensor object"
        if node.target == "new_tensor" and node.kwargs.get("requires_grad"):
            return "a leaf tensor is made"
    elif node.op == "call_function":
        target: Any = node.target
        try:
            if target in _OBJECT_FUNCTIONS:
                return f"{getattr(target, '__name__', target)} acts on the tensor object"
        except TypeError:
            pass
        if getattr(target, "__name__", "") == "__set__" and type(getattr(target, "__self__", None)).__name__ in (
            "getset_descriptor",
            "property",
        ):
            return f"an attribute of a tensor is set ({target.__self__.__name__})"  # type: ignore[attr-defined]
        if node.kwargs.get("requires_grad") and target is not torch.nn.Parameter:
            return "a leaf tensor is made"
        if getattr(target, "__name__", "") in _INFERENCE_SETTERS:
            return "inference mode changes: what is made inside are inference tensors"
        if getattr(target, "_lamina_needs_real_tensors", False):
            return "the function asks for real tensors"
    return None


class Interpreter:
    """Runs `gm` with a tracer active.

    regions: traces calls of regions (`trace.region_calls.RegionTracer`); None: they run node by node.
    """

    def __init__(self, gm: fx.GraphModule, tracer: Any, regions: Any = None) -> None:
        self.gm = gm
        self.tracer = tracer
        self.regions = regions

    def run(self, *inputs: Any) -> Any:
        """Value of the graph's output, in its own structure. `inputs` in placeholder order."""
        return self._run(self.gm, inputs, {}, None)

    def _run(self, gm: fx.GraphModule, inputs: tuple, named: dict, outer_meta: dict | None) -> Any:
        env: dict[fx.Node, Any] = {}
        feed = iter(inputs)
        enter = self.tracer.enter_node
        for node in gm.graph.nodes:
            op = node.op
            if op == "placeholder":
                try:
                    env[node] = next(feed)
                except StopIteration:
                    if node.target in named:
                        env[node] = named[node.target]
                    elif node.args:
                        env[node] = node.args[0]
                    else:
                        raise TypeError(f"missing input {node.target}") from None
                continue
            if op == "output":
                return fx.node.map_arg(node.args[0], env.__getitem__)
            meta = node.meta
            if outer_meta is not None and "stack_trace" not in meta:
                meta = outer_meta
            enter(meta)
            args = fx.node.map_arg(node.args, env.__getitem__)
            kwargs = fx.node.map_arg(node.kwargs, env.__getitem__) if node.kwargs else {}
            try:
                env[node] = self._step(gm, node, args, kwargs, meta)
            except AotError as error:
                if error.node is None:
                    raise type(error)(error.message, node=node, hint=error.hint) from error
                raise
            except RuntimeError as error:
                if "data is not allocated yet" in str(error):
                    raise DataDependentError("an op reads the values of a tensor", node=node) from error
                raise
        raise TraceError("a graph without output")

    def _step(self, gm: fx.GraphModule, node: fx.Node, args: Any, kwargs: Any, meta: dict) -> Any:
        op, target = node.op, node.target
        if op == "call_function":
            handler = _FUNCTIONS.get(target) if _is_hashable(target) else None
            if handler is not None:
                return handler(self, args, kwargs)
            if isinstance(target, Region):
                return self._region(target, args, meta)
            return target(*args, **kwargs)  # type: ignore[operator]
        if op == "call_method":
            handler = _METHODS.get(target)  # type: ignore[arg-type]
            if handler is not None:
                return handler(self, args, kwargs)
            return getattr(args[0], target)(*args[1:], **kwargs)  # type: ignore[arg-type]
        value = _fetch(gm, target)  # type: ignore[arg-type]
        if op == "call_module":
            if isinstance(value, fx.GraphModule):
                return self._run(value, args, kwargs, meta)
            return value(*args, **kwargs)
        if isinstance(value, fx.GraphModule):
            return self._callable(value, meta)
        return value

    def _region(self, region: Region, args: Any, meta: dict) -> Any:
        if self.regions is not None:
            return self.regions.call(self.tracer, region, args, meta)
        return self._run(region.graph_module, args, {}, meta)

    def _callable(self, gm: fx.GraphModule, meta: dict) -> Callable:
        def body(*args: Any, **kwargs: Any) -> Any:
            return self._run(gm, args, kwargs, meta)

        return body


def _is_hashable(target: Any) -> bool:
    try:
        hash(target)
    except TypeError:
        return False
    return True


def _fetch(gm: Any, path: str) -> Any:
    value = gm
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _run_checkpoint(interpreter: Interpreter, args: Any, kwargs: Any) -> Any:
    """A checkpointed region is traced as it is; its values are marked for recomputation in the backward graph."""
    function, *inputs = args
    rest = {
        k: v
        for k, v in kwargs.items()
        if k not in ("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop")
    }
    if kwargs.get("context_fn") is not None and kwargs["context_fn"] is not torch.utils.checkpoint.noop_context_fn:
        raise UnsupportedError("a checkpoint with contexts of its own")
    tracer = interpreter.tracer
    previous, tracer.recompute = tracer.recompute, "must_recompute"
    if previous is None:
        tracer.checkpoint += 1
    tensors = [t for t in (*inputs, *rest.values()) if isinstance(t, TraceTensor) and t._s is not None]
    before = [t._s.gen for t in tensors]
    try:
        result = function(*inputs, **rest)
    finally:
        tracer.recompute = previous
    if torch.is_grad_enabled() and before != [t._s.gen for t in tensors]:
        raise UnsupportedError("a checkpointed region writes to its inputs: eager writes again when it runs it again")
    return result


def _sym_size(interpreter: Interpreter, args: Any, kwargs: Any) -> Any:
    return torch.Tensor.size(*args)


def _one_hot(interpreter: Interpreter, args: Any, kwargs: Any) -> Any:
    """On tensors without data torch drops the check of the classes: a gather keeps it."""

    def one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
        known = isinstance(num_classes, int) and num_classes > 0
        if isinstance(num_classes, int) and num_classes == 0 and tensor.numel():
            raise UnsupportedError("one_hot with no classes: eager refuses every index")
        if not known or tensor.dtype is not torch.int64 or not tensor.numel():
            return torch.nn.functional.one_hot(tensor, num_classes)
        classes = torch.arange(num_classes, device=tensor.device)
        checked = classes.gather(0, tensor.reshape(-1)).reshape(tensor.shape)
        return (checked.unsqueeze(-1) == classes).long()

    return one_hot(*args, **kwargs)


def _kron(interpreter: Interpreter, args: Any, kwargs: Any) -> Any:
    """torch writes into `out` through a view that is not told to be one."""
    kwargs = dict(kwargs)
    out = kwargs.pop("out", None)
    result = torch.kron(*args, **kwargs)
    if out is None:
        return result
    if out.shape != result.shape or out.dtype is not result.dtype or result.requires_grad:
        raise UnsupportedError("an out= tensor that is resized, of another dtype, or beside gradients")
    return out.copy_(result)


def _matrix_rank(interpreter: Interpreter, args: Any, kwargs: Any) -> Any:
    """torch fills `out` with what it computes on the way, by paths that are not told to the dispatcher."""
    if kwargs.get("out") is not None:
        raise UnsupportedError("linalg.matrix_rank with out=")
    return torch.linalg.matrix_rank(*args, **kwargs)


_FUNCTIONS: dict[Any, Callable] = {
    checkpoint: _run_checkpoint,
    torch.ops.aten.sym_size.int: _sym_size,
    torch.nn.functional.one_hot: _one_hot,
    torch.kron: _kron,
    torch.linalg.matrix_rank: _matrix_rank,
    torch.prod: prod,
    torch.Tensor.prod: prod,
    torch.nn.functional.scaled_dot_product_attention: scaled_dot_product_attention,
}
_METHODS: dict[str, Callable] = {"prod": prod}
