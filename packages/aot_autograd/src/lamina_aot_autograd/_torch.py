"""Every private name of torch that this package uses, one line each saying what for."""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
import torch.fx as fx
from torch.utils._python_dispatch import TorchDispatchMode

disabled_torch_function = torch._C._disabled_torch_function_impl  # turns __torch_function__ off on the trace tensor
below_autograd = torch._C._AutoDispatchBelowAutograd  # guard: kernels run without autograd and without view tracking
no_view_tracking = functools.partial(  # guard: views made under it are plain tensors, in-place writes are not counted
    torch._C._ExcludeDispatchKeyGuard, torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
)
DisableAutocast = (
    torch._C._DisableAutocast
)  # guard: a traced graph has its casts written out, autocast must not add more
is_any_autocast_enabled = torch._C._is_any_autocast_enabled  # one cheap test instead of one per device type
storage_address = torch._C._storage_address  # identity of a tensor's storage, without making a Python storage
current_autograd_node = torch._C._current_autograd_node  # the autograd node that the engine is running now
next_sequence_nr = torch._C._autograd._get_sequence_nr  # numbers autograd nodes; maps backward ops to forward ops
set_version_counter = torch._C._autograd._unsafe_set_version_counter  # version counters are moved as eager moves them
increment_version = torch.autograd.graph.increment_version  # for lists of tensors: their kernels count by themselves
interpreter_stack = torch._C._functorch.peek_interpreter_stack  # not None while a torch.func transform is active
is_legacy_batched = torch._C._functorch.is_legacy_batchedtensor  # tensor of `is_grads_batched=True`
is_functorch_tensor = torch._C._functorch.is_functorch_wrapped_tensor  # tensor of a vmap / grad / jvp level
forward_mode = torch.autograd.forward_ad  # its _current_level is not negative while forward-mode AD is active
set_grad_enabled = torch._C._set_grad_enabled  # grad-mode setter that a captured graph may contain
disable_torch_dispatch = torch._C._DisableTorchDispatch  # guard: calls go straight to the backend kernel
_make_wrapper = torch.Tensor._make_wrapper_subclass  # a tensor with metadata and no data


def make_wrapper(cls: Any, shape: Any, *, strides: Any, **options: Any) -> Any:
    """A tensor with metadata and no data. Nobody asks how large its storage is: with symbolic sizes that would be
    computed each time (190 us; everything else takes 11)."""
    for n in (*shape, *strides):
        if type(n) is not int:
            return _make_wrapper(cls, shape, strides=strides, storage_size=0, **options)
    return _make_wrapper(cls, shape, strides=strides, **options)


def symbolic_decompositions() -> Any:
    """Python kernels, which can do with symbolic sizes, go before the C++ ones of composite ops."""
    from torch._dispatch.python import enable_python_dispatcher

    return enable_python_dispatcher()


class quiet_fake_tensors:
    """torch prints the traceback of every op that its fake tensors refuse; the caller tells the user what it means."""

    def __enter__(self) -> None:
        self.log = logging.getLogger("torch._subclasses.fake_tensor")
        self.disabled, self.log.disabled = self.log.disabled, True

    def __exit__(self, *exc: Any) -> None:
        self.log.disabled = self.disabled


class without_saved_tensor_hooks:
    """Takes off the hooks on saved tensors that are on now: they are for what the program saves when it runs. Hooks
    that the traced program itself puts on (a checkpoint inside) are not touched."""

    def __enter__(self) -> None:
        autograd = torch._C._autograd
        self.taken: list[Any] = []
        while (hooks := autograd._top_saved_tensors_default_hooks(True)) is not None:
            self.taken.append(hooks)
            autograd._pop_saved_tensors_default_hooks()

    def __exit__(self, *exc: Any) -> None:
        for hooks in reversed(self.taken):
            torch._C._autograd._push_saved_tensors_default_hooks(*hooks)


def short_apply(function: type) -> Any:
    """`function.apply` without its Python layer (1 us a call): callers test for torch.func transforms themselves."""
    return torch._C._FunctionBase.__dict__["apply"].__get__(None, function)


def will_engine_run(node: Any) -> bool:
    """True if the backward that is running executes this leaf's node: then it ends in `.grad`. A call of
    `torch.autograd.grad` asks for the gradient itself (torch raises there)."""
    try:
        return torch._C._will_engine_execute_node(node)
    except RuntimeError:
        return False


def run_backward(outputs: tuple, grad_outputs: tuple, inputs: tuple) -> tuple:
    """`torch.autograd.grad(..., allow_unused=True)` straight at the engine (the public function imports sympy)."""
    engine = torch.autograd.Variable._execution_engine
    return engine.run_backward(
        outputs, grad_outputs, False, False, inputs, allow_unreachable=True, accumulate_grad=False
    )


def lazy_graph_module(root: Any, graph: fx.Graph) -> fx.GraphModule:
    """A GraphModule whose Python code is generated on first use only (code generation is ~30 us a node)."""
    try:
        from torch.fx._lazy_graph_module import _LazyGraphModule
    except ImportError:
        return fx.GraphModule(root, graph)
    return _LazyGraphModule(root, graph)


def append_node(
    graph: fx.Graph, name: str, target: Any, args: tuple, kwargs: dict, op: str = "call_function"
) -> fx.Node:
    """Append a node by the short path (2 us; `Graph.create_node` takes 34).

    `name` must be unique in the graph; the caller numbers names itself and calls `register_names` at the end.
    """
    node = fx.Node(graph, name, op, target, args, kwargs)
    graph._root.prepend(node)
    graph._find_nodes_lookup_table.insert(node)
    graph._len += 1
    return node


def copy_node(graph: fx.Graph, node: fx.Node, env: dict[fx.Node, fx.Node]) -> fx.Node:
    """Append a node like `node` of another graph, under the same name, its arguments taken from `env`."""
    args = fx.node.map_arg(node.args, env.__getitem__)
    kwargs = fx.node.map_arg(node.kwargs, env.__getitem__) if node.kwargs else {}
    copy = append_node(graph, node.name, node.target, args, kwargs, node.op)
    copy.type = node.type
    copy.meta = dict(node.meta)
    return copy


def register_names(graph: fx.Graph) -> None:
    """Tell the graph's namespace about nodes made by `append_node`, so that later passes get fresh names."""
    namespace = graph._graph_namespace
    used, owners = namespace._used_names, namespace._obj_to_name
    for node in graph.nodes:
        owners[node] = node.name
        if isinstance(used, set):
            used.add(node.name)
        else:
            used[node.name] = None


class DispatchMode(TorchDispatchMode):
    """A TorchDispatchMode that torch's own capture need not know (else making one imports that package)."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True
