"""What acts on a tensor object rather than on its values: gradients, hooks, parameters, ``data``, ``requires_grad``.

Each becomes a node of the graph, in program order. A backend that traces without data runs such nodes for real between
what it compiles (aot_autograd splits its graphs there), so that a hook sees exactly the gradient that it sees in eager.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import higher_order
from ..fake import Fake
from ..graph_break import GraphBreak
from ..source import AttrSource
from ..translator.base import RestartTranslation
from .base import VariableTracker
from .bodies import body_node, translate_body
from .builtin import CONSTRUCTORS
from .constant import ConstantVariable
from .container import TupleVariable
from .tensor import METADATA, METHODS, SETTERS, TensorVariable
from .torch_api import handles


def make_node(tx: Any, target: Any, args: tuple[Any, ...], value: Any, kwargs: Any = None) -> torch.fx.Node:
    """A node with effects, whose result is known."""
    op = "call_method" if isinstance(target, str) else "call_function"
    node = tx.output.graph.create_node(op, target, args, kwargs or {})
    tx.output.op_count += 1
    node.meta.update(val=value, impure=True, stack_trace=tx.stack_trace())
    return node


# -- requires_grad -----------------------------------------------------------------------------------------------------


def _requires_grad(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
    wanted = args[0] if args else kwargs.get("requires_grad")
    flag = True if wanted is None else wanted.realize().as_python_constant()
    if vt.fake.requires_grad == flag:
        return vt
    if type(flag) is not bool:
        raise GraphBreak("tensor_attribute", name="requires_grad_")
    return tx.output.create_call("call_method", "requires_grad_", [vt, tx.const(flag)])


def _set_requires_grad(tx: Any, vt: TensorVariable, value: VariableTracker) -> None:
    _requires_grad(tx, vt, [value], {})


METHODS["requires_grad_"] = _requires_grad
SETTERS["requires_grad"] = _set_requires_grad


# -- grad --------------------------------------------------------------------------------------------------------------


def _grad(tx: Any, vt: TensorVariable) -> VariableTracker:
    known = tx.output.gradients.values.get(vt)
    if known is not None:
        return known  # type: ignore[no-any-return]
    if vt.source is None or vt.real is None:
        return tx.const(None)  # what the region makes has no gradient yet
    return tx.wrap(vt.real.grad, AttrSource(vt.source, "grad"))


def _set_grad(tx: Any, vt: TensorVariable, value: VariableTracker) -> None:
    """Kept until the region ends, as nothing in it looks at ``grad`` but the program itself."""
    if isinstance(value, TensorVariable):
        mine, other = vt.fake, value.fake
        fits = other.shape == mine.shape and other.dtype == mine.dtype and other.device == mine.device
        if not fits or value is vt or value.cls is not torch.Tensor:
            raise GraphBreak("side_effect", operation="tensor.grad = ...")
    elif not (isinstance(value, ConstantVariable) and value.value is None):
        raise GraphBreak("side_effect", operation="tensor.grad = ...")
    tx.output.side_effects.mutation(vt)
    if vt.attrs is None:
        vt.attrs = {}
    vt.attrs["grad"] = value


METADATA["grad"] = METADATA["_grad"] = _grad
SETTERS["grad"] = _set_grad


# -- data --------------------------------------------------------------------------------------------------------------


def _data(tx: Any, vt: TensorVariable) -> VariableTracker:
    """Another tensor of the same memory, with a version counter of its own (``detach`` shares it)."""
    shape, stride, dtype, device, offset = vt.fake.mk
    fake = Fake.make(shape, stride, dtype, device, offset)
    node = make_node(tx, getattr, (vt.as_proxy(), "data"), fake)
    del node.meta["impure"]
    return tx.output.wrap_result(node, fake)


def _set_data(tx: Any, vt: TensorVariable, value: VariableTracker) -> None:
    if not isinstance(value, TensorVariable) or value.fake.device != vt.fake.device or vt.fake.is_inference():
        raise GraphBreak("side_effect", operation="tensor.data = ...")
    if value.fake.dtype != vt.fake.dtype and not value.fake.dtype.is_floating_point:
        raise GraphBreak("side_effect", operation="tensor.data = ...")
    make_node(tx, higher_order.set_data, (vt.as_proxy(), value.as_proxy()), None)
    old, new = vt.fake, value.fake.mk
    if old.is_leaf:
        fake = Fake.make(*new, old.requires_grad)
    else:
        with torch.enable_grad():
            fake = Fake.make(*new, True).view_as_fake()  # type: ignore[attr-defined]
    vt.fake = fake
    tx.output.track(fake, vt)


METADATA["data"] = _data
SETTERS["data"] = _set_data


# -- hooks -------------------------------------------------------------------------------------------------------------


class HookHandleVariable(VariableTracker):
    """What ``register_hook`` returned."""

    __slots__ = ("node",)

    def __init__(self, node: torch.fx.Node):
        self.source = None
        self.node = node

    def python_type(self) -> type:
        return torch.utils.hooks.RemovableHandle

    def truth(self, tx: Any) -> bool:
        return True

    def as_proxy(self) -> Any:
        return self.node

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "remove":
            return HandleRemoval(self)
        raise GraphBreak("hook", attribute=name)

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        if name != "remove" or args or kwargs:
            raise GraphBreak("hook", attribute=name)
        make_node(tx, higher_order.remove_hook, (self.node,), None)
        return tx.const(None)

    def reconstruct(self, codegen: Any) -> None:
        codegen.graph_output(self.node)


class HandleRemoval(VariableTracker):
    """``handle.remove``."""

    __slots__ = ("handle",)

    def __init__(self, handle: HookHandleVariable):
        self.source = None
        self.handle = handle

    def call_function(self, tx: Any, args: Any, kwargs: Any) -> VariableTracker:
        return self.handle.call_method(tx, "remove", args, kwargs)

    def children(self) -> Any:
        return (self.handle,)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.handle)
        codegen.load_attr("remove")


def _register_hook(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
    """The hook becomes a body, called with the gradient; one with effects of its own is left to eager."""
    values = [*args, *kwargs.values()]
    if len(values) != 1 or not vt.fake.requires_grad:
        raise GraphBreak("hook", value=vt.describe())
    hook = values[0].realize()
    output = tx.output
    mark = ("hook set later", output.count)
    if output.decisions.get(mark):
        return _register_hook_later(tx, vt, hook)
    try:
        body = follow_hook(tx, vt, hook)
    except GraphBreak as e:
        if output.graph is not output.root_graph:
            raise GraphBreak("hook", value=vt.describe(), reason=str(e)) from None
        output.decisions[mark] = True
        raise RestartTranslation from None
    node = make_node(tx, higher_order.register_hook, (vt.as_proxy(), body_node(tx, body), *body.lifted), None)
    return HookHandleVariable(node)


def follow_hook(tx: Any, vt: TensorVariable, hook: VariableTracker) -> Any:
    """The hook of a gradient as a body; breaks if it does anything but compute a gradient."""
    shape, stride, dtype, device, _ = vt.fake.mk
    gradient = TensorVariable(vt.as_proxy(), Fake.make(shape, stride, dtype, device), None, torch.Tensor)
    with torch.no_grad():
        body = translate_body(tx, hook, [gradient], pure=True)
    result = body.result.realize()
    nothing = isinstance(result, ConstantVariable) and result.value is None
    if body.impure or not (nothing or isinstance(result, TensorVariable)):
        raise GraphBreak("hook", value=vt.describe())
    return body


def _register_hook_later(tx: Any, vt: TensorVariable, hook: VariableTracker) -> VariableTracker:
    """A hook with effects of its own: the graph keeps a place for it, and the code behind the graph puts the program's
    function there. Nothing asks for gradients before (``backward`` breaks)."""
    tx.output.gradients.hooks_to_come = True
    handle = HookHandleVariable(make_node(tx, higher_order.register_hook_later, (vt.as_proxy(),), None))
    tx.output.side_effects.record_call(higher_order.set_hook, [handle, hook], {})
    return handle


def _retain_grad(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
    if args or kwargs or not vt.fake.requires_grad:
        raise GraphBreak("hook", value=vt.describe())
    vt.fake.retain_grad()
    tx.output.gradients.retained.append(vt)
    make_node(tx, "retain_grad", (vt.as_proxy(),), None)
    return tx.const(None)


METHODS["register_hook"] = _register_hook
METHODS["retain_grad"] = _retain_grad


# -- parameters --------------------------------------------------------------------------------------------------------


def _make_parameter(tx: Any, data: Any = None, requires_grad: Any = None) -> VariableTracker:
    value = data.realize() if data is not None else None
    flag = requires_grad.realize().as_python_constant() if requires_grad is not None else True
    if value is None or isinstance(value, ConstantVariable) and value.value is None:
        value = tx.output.create_call("call_function", torch.empty, [tx.const(0)])
    if not isinstance(value, TensorVariable) or type(flag) is not bool:
        raise GraphBreak("torch_unsupported", function="torch.nn.Parameter")
    if (
        value.cls is not torch.Tensor
        or flag
        and not (value.fake.dtype.is_floating_point or value.fake.dtype.is_complex)
    ):
        raise GraphBreak("torch_unsupported", function="torch.nn.Parameter")
    fake = Fake.make(*value.fake.mk, flag)
    node = make_node(tx, higher_order.make_parameter, (value.as_proxy(), flag), fake)
    vt = TensorVariable(node, fake, None, torch.nn.Parameter)
    tx.output.track(fake, vt)
    return vt


CONSTRUCTORS[torch.nn.Parameter] = _make_parameter


# -- gradients of tensors ----------------------------------------------------------------------------------------------

_GRAD_NAMES = (
    "outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "only_inputs", "allow_unused",
    "is_grads_batched", "materialize_grads",
)  # fmt: skip


def _tensors(tx: Any, vt: VariableTracker) -> list[Any]:
    return [vt] if isinstance(vt, TensorVariable) else [i.realize() for i in vt.unpack(tx)]


@handles(torch.autograd.grad)
def _autograd_grad(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """Runs on the fakes, whose graph is that of eager as far as it was made in the region."""
    given = dict(zip(_GRAD_NAMES, args)) | kwargs

    def flag(name: str, default: Any) -> Any:
        return given[name].realize().as_python_constant() if name in given else default

    outputs, inputs = _tensors(tx, given["outputs"]), _tensors(tx, given["inputs"])
    if flag("is_grads_batched", False) or flag("materialize_grads", False) or not flag("only_inputs", True):
        raise GraphBreak("autograd_call")
    if not all(isinstance(t, TensorVariable) for t in (*outputs, *inputs)) or any(
        t.source is not None and not t.fake.is_leaf for t in (*outputs, *inputs)
    ):
        raise GraphBreak("autograd_call", reason="a graph from outside")
    if tx.output.gradients.hooks_to_come:
        raise GraphBreak("autograd_call", reason="a hook with side effects was registered before it")
    directions = given.get("grad_outputs")
    seeds: Any = None
    if directions is not None and not (
        isinstance(directions.realize(), ConstantVariable) and directions.as_python_constant() is None
    ):
        seeds = [s.as_proxy() for s in _tensors(tx, directions.realize())]
    create = flag("create_graph", False)
    tx.output.stamps.need_history()
    call = (
        [t.as_proxy() for t in outputs], [t.as_proxy() for t in inputs], seeds, flag("retain_graph", None), create,
        flag("allow_unused", None) or False,
    )  # fmt: skip
    with torch.autograd.set_multithreading_enabled(False):
        try:
            result = tx.output.create_node("call_function", higher_order.autograd_grad, call, {}, impure=True)
        except GraphBreak as e:
            raise GraphBreak("autograd_call", reason=str(e)) from None
    return TupleVariable(list(result.items))
