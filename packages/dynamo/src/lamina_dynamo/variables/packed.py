"""Packed sequences (``torch.nn.utils.rnn``): packing, recurrent layers over packed steps, and padding again.

How many rows there are, and how many steps, is decided by the lengths, which only the run knows: both are symbols. The
operators read the number of rows of each step, so that the graph holds them as functions that are run for real.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import _torch as private
from .. import higher_order
from ..fake import Fake, joined
from ..graph_break import GraphBreak
from .base import VariableTracker
from .constant import ConstantVariable
from .tensor import TensorVariable
from .tensor_state import make_node
from .torch_api import handles

_LAYERS = "torch.nn.modules.rnn"


class BatchSizesVariable(TensorVariable):
    """The number of rows of each step, of sequences packed in the region. ``batch``: that of the first step, which is
    the number of sequences; torch's layers are told it without reading the tensor."""

    __slots__ = ("batch",)

    def __init__(self, node: Any, fake: Any, batch: int):
        super().__init__(node, fake, None, torch.Tensor)
        self.batch = batch

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        key = key.realize()
        first = isinstance(key, ConstantVariable) and type(key.value) is int and key.value == 0
        if first and tx.f_globals.get("__name__") == _LAYERS:
            return tx.const(self.batch)  # type: ignore[no-any-return]
        return super().get_item(tx, key)


def _break(reason: str) -> GraphBreak:
    return GraphBreak("data_dependent_shape", reason=reason)


def _new(shape: tuple[Any, ...], like: Fake, parents: list[Fake], stride: Any = None) -> Fake:
    if stride is None:
        stride, step = [], 1
        for n in reversed(shape):
            stride.insert(0, step)
            step = step * n
    made = Fake.make(tuple(shape), tuple(stride), like.dtype, like.device)
    needed = [p for p in parents if p.requires_grad]
    return joined(made, needed) if needed and torch.is_grad_enabled() else made


def _record(tx: Any, target: Any, args: tuple[Any, ...], fakes: tuple[Fake, ...]) -> list[torch.fx.Node]:
    """The nodes of the results of a call that looks at lengths, which it may refuse."""
    node = make_node(tx, target, args, fakes)
    tx.output.note_handlers(node, True)
    return [part.as_proxy() for part in tx.output.wrap_result(node, fakes).items]


def _sizes(*fakes: Fake) -> bool:
    return all(type(n) is int for fake in fakes for n in fake.shape)


@handles(private.recurrent_operators._pack_padded_sequence)
def _pack(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    from .container import TupleVariable

    data, lengths, batch_first = args
    first = batch_first.as_python_constant()
    if not isinstance(data, TensorVariable) or not isinstance(lengths, TensorVariable) or kwargs:
        raise _break("unusual arguments")
    if not tx.output.captures(scalar=False):
        raise _break("the lengths decide the shape of packed sequences")
    if data.fake.dim() < 2 or not _sizes(data.fake, lengths.fake):
        raise _break("packing sequences of symbolic sizes")
    batch, steps = data.fake.shape[:2] if first else data.fake.shape[1::-1]
    if tuple(lengths.fake.shape) != (batch,) or batch == 0 or steps == 0 or lengths.fake.device.type != "cpu":
        raise _break("lengths that do not fit")
    env = tx.output.symbols.env
    rows, longest = env.create_unbacked_symint(), env.create_unbacked_symint()
    for number, low, high in ((rows, batch, batch * steps), (longest, 1, steps)):
        env.size_like.add(number.node.expr)
        torch._check(number >= low)
        torch._check(number <= high)
    packed = _new((rows, *data.fake.shape[2:]), data.fake, [data.fake])
    counts = Fake.make((longest,), (1,), torch.int64, torch.device("cpu"))
    nodes = _record(
        tx, higher_order.pack_padded, (data.as_proxy(), lengths.as_proxy(), bool(first)), (packed, counts)
    )
    sizes = BatchSizesVariable(nodes[1], counts, batch)
    tx.output.track(counts, sizes)
    return TupleVariable([packed.vt, sizes])


@handles(private.recurrent_operators._pad_packed_sequence)
def _pad(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    from .container import TupleVariable

    data, sizes, batch_first, padding, total = args
    if not isinstance(data, TensorVariable) or not isinstance(sizes, BatchSizesVariable) or kwargs:
        raise _break("sequences that were packed outside")
    first, known = batch_first.as_python_constant(), not getattr(total, "is_symbolic_number", False)
    steps: Any = total.as_python_constant() if known else sizes.fake.shape[0]
    rest = tuple(data.fake.shape[1:])
    stride: list[Any] = []
    step: Any = 1
    for n in reversed((steps, sizes.batch, *rest)):
        stride.insert(0, step)
        step = step * n
    shape: tuple[Any, ...] = (steps, sizes.batch, *rest)
    if first:
        shape, stride = (sizes.batch, steps, *rest), [stride[1], stride[0], *stride[2:]]
    padded = _new(shape, data.fake, [data.fake], stride)
    lengths = Fake.make((sizes.batch,), (1,), torch.int64, torch.device("cpu"))
    value = padding.as_python_constant()
    _record(
        tx, higher_order.pad_packed,
        (data.as_proxy(), sizes.as_proxy(), bool(first), value, steps if known else 0), (padded, lengths),
    )  # fmt: skip
    return TupleVariable([padded.vt, lengths.vt])


def _layer(name: str) -> Any:
    operator = getattr(private.recurrent_operators, name)

    @handles(operator)
    def handler(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if len(args) < 2 or not isinstance(args[1], BatchSizesVariable):
            return tx.output.create_call("call_function", operator, args, kwargs)  # type: ignore[no-any-return]
        return _run_layer(tx, name, args, kwargs)

    return handler


def _run_layer(tx: Any, name: str, args: list[Any], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    from .container import TupleVariable

    if kwargs or len(args) != 9:
        raise _break("unusual arguments")
    data, sizes, state, weights, *settings = args
    states = state.unpack(tx) if name == "lstm" else [state]
    tensors = [data, *states, *weights.unpack(tx)]
    tensors = [t.realize() for t in tensors]
    if not all(isinstance(t, TensorVariable) for t in tensors):
        raise _break("unusual arguments")
    if torch.is_autocast_enabled(data.fake.device.type):
        raise _break("a layer over packed sequences under autocast")
    flags = [s.as_python_constant() for s in settings]
    _, _, dropout, training, both = flags
    tx.output.draws = tx.output.draws or bool(dropout and training)
    parents = [t.fake for t in tensors]
    hidden = parents[1]
    rows = _new((data.fake.shape[0], hidden.shape[-1] * (2 if both else 1)), data.fake, parents)
    ends = [_new(tuple(p.shape), p, parents) for p in parents[1 : 1 + len(states)]]
    proxies = [t.as_proxy() for t in tensors]
    count = 1 + len(states)
    call = (name, proxies[0], sizes.as_proxy(), proxies[1:count], proxies[count:], flags)
    _record(tx, higher_order.run_packed_layer, call, (rows, *ends))
    return TupleVariable([fake.vt for fake in (rows, *ends)])


for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    _layer(_name)
