"""Tensors of the traced program: a graph node and a fake with its metadata."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import increment_version

from ..fake import known_scalar
from ..graph_break import GraphBreak, leave_whole
from ..source import AttrSource, TensorMetaSource
from .attributes import raise_attribute_error
from .base import VariableTracker
from .builder import wraps_if, wraps_type
from .constant import ConstantVariable
from .container import ListVariable, SizeVariable, TupleVariable
from .keys import IdentityKey
from .slices import SliceVariable
from .tensor_bounds import fill_between_tensors


class TensorVariable(VariableTracker):
    """One tensor. ``node`` is None for an outside tensor that no node has used yet."""

    __slots__ = ("node", "fake", "cls", "real", "attrs")
    has_identity = True

    def __init__(self, node: Any, fake: Any, source: Any, cls: type):
        self.source = source
        self.node = node
        self.fake = fake
        self.cls = cls
        self.real: Any = None
        self.attrs: dict[str, VariableTracker] | None = None

    def describe(self) -> str:
        where = self.source.name if self.source is not None else str(self.node)
        return f"tensor {where}"

    def python_type(self) -> type:
        return self.cls

    def as_proxy(self) -> Any:
        node = self.node
        if node is None:
            from lamina_dynamo.variables.context import current_output

            node = self.node = current_output().input_node(self)
        return node

    def hash_key(self, tx: Any) -> Any:
        return IdentityKey(self)

    def truth(self, tx: Any) -> bool | None:
        value = known_scalar(self.fake)
        return None if value is None else bool(value)

    # -- attributes ---------------------------------------------------------------------------------------------

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if self.attrs is not None and name in self.attrs:
            return self.attrs[name]
        if tx.output.overrides:
            from .torch_function import intercept_attribute

            taken = intercept_attribute(tx, self, name)
            if taken is not None:
                return taken
        reader = METADATA.get(name)
        if reader is not None:
            return reader(tx, self)
        if self.real is not None and name in getattr(self.real, "__dict__", ()):
            tx.output.guard(self.source, "HAS_ATTR", name)
            return tx.lazy(self.real.__dict__[name], AttrSource(self.source, name))
        found = getattr(torch.Tensor, name, None)
        if found is None:
            if self.cls is not torch.Tensor and hasattr(self.cls, name):
                raise GraphBreak("tensor_attribute", type=self.cls.__name__, name=name)
            if hasattr(torch.Tensor, name):
                return tx.const(None)
            self.guard_no_attr(tx, name)
            raise_attribute_error(tx, self, name)
        if callable(found):
            return TensorMethodVariable(self, name)
        if name == "__dict__":
            raise GraphBreak("tensor_attribute", name=name)
        result = getattr(self.fake, name)
        if isinstance(result, torch.Tensor):
            raise GraphBreak("tensor_attribute", name=name)
        if type(result) in (bool, int, float, str, type(None)):
            return tx.const(result)
        raise GraphBreak("tensor_attribute", name=name)

    def set_attr(self, tx: Any, name: str, value: VariableTracker) -> None:
        value = value.realize()
        setter = SETTERS.get(name)
        if setter is not None:
            setter(tx, self, value)
            return
        if name in METADATA or hasattr(torch.Tensor, name):
            raise GraphBreak("side_effect", operation=f"tensor.{name} = ...")
        tx.output.side_effects.mutation(self)
        if self.attrs is None:
            self.attrs = {}
        self.attrs[name] = value

    def guard_no_attr(self, tx: Any, name: str) -> None:
        if self.real is not None and self.source is not None:
            tx.output.guard(self.source, "NO_INSTANCE_ATTR", name)

    def copy_object(self, tx: Any, memo: Any) -> VariableTracker:
        """copy.deepcopy of a parameter, or of a plain tensor without history; others are left to eager."""
        kind = self.python_type()
        plain = memo is not None and not self.attrs and not getattr(self.real, "__dict__", None)
        if plain and kind is torch.nn.Parameter:
            data = self.get_attr(tx, "data").call_method(tx, "clone", [], {})
            return tx.wrap(kind, None).call_function(tx, [data, tx.const(self.fake.requires_grad)], {})
        if plain and kind is torch.Tensor and not self.fake.requires_grad:
            copy = self.call_method(tx, "clone", [], {})
            if copy.fake.stride() == self.fake.stride():
                return copy
        raise GraphBreak("copying", type=kind.__name__)

    def del_attr(self, tx: Any, name: str) -> None:
        if not self.has_attr(tx, name):
            raise_attribute_error(tx, self, name)
        raise GraphBreak("side_effect", operation=f"del tensor.{name}")

    def has_attr(self, tx: Any, name: str) -> bool:
        if name in METADATA or (self.attrs is not None and name in self.attrs):
            return True
        if hasattr(torch.Tensor, name):
            return True
        if self.real is not None and name in getattr(self.real, "__dict__", ()):
            tx.output.guard(self.source, "HAS_ATTR", name)
            return True
        self.guard_no_attr(tx, name)
        return False

    # -- side effects: attributes the program stored on the tensor ---------------------------------------------------

    is_existing = property(lambda self: self.source is not None)

    def children(self) -> Any:
        return tuple(self.attrs.values()) if self.attrs else ()

    def fill(self, codegen: Any) -> None:
        for name, value in (self.attrs or {}).items():
            codegen.push_function(setattr)
            codegen(self)
            codegen.load_const(name)
            codegen(value)
            codegen.call_function(3)
            codegen.pop()

    replay = fill

    # -- calls --------------------------------------------------------------------------------------------------

    def call_method(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if tx.output.overrides:
            from .torch_function import intercept_method

            taken = intercept_method(tx, self, name, args, kwargs)
            if taken is not None:
                return taken
        handler = METHODS.get(name)
        if handler is not None:
            return handler(tx, self, args, kwargs)
        if name not in _METHOD_NAMES:
            if not hasattr(torch.Tensor, name):
                return self.get_attr(tx, name).call_function(tx, args, kwargs)
            raise GraphBreak("tensor_attribute", name=name)
        return tx.output.create_call("call_method", name, [self, *args], kwargs)

    def call_builtin_method(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return self.call_method(tx, name, args, kwargs)

    def call_function(self, tx: Any, args: Any, kwargs: Any) -> VariableTracker:
        tx.raise_exception(TypeError, f"'{self.cls.__name__}' object is not callable")

    # -- protocols ----------------------------------------------------------------------------------------------

    def convert_number(self, tx: Any, kind: type) -> VariableTracker:
        """``int(tensor)``, ``float(tensor)``: its one element."""
        value = known_scalar(self.fake)
        if value is not None:
            return tx.const(kind(value))
        dtype = self.fake.dtype
        if kind is int and dtype.is_floating_point:
            return self.call_method(tx, "long", [], {}).call_method(tx, "item", [], {})
        if kind is float and not dtype.is_floating_point:
            return self.call_method(tx, "double", [], {}).call_method(tx, "item", [], {})
        if dtype is torch.bool or dtype.is_complex:
            raise GraphBreak("data_dependent_scalar", value=self.describe())
        return self.call_method(tx, "item", [], {})

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        key = key.realize()
        if tx.output.looks_up:
            from .flexible_attention import look_up

            found = look_up(tx, self, key)
            if found is not None:
                return found
        key = _index_values(tx, key)
        if getattr(key, "is_symbolic_number", False) and key.python_type() is int:
            # Indexing with a number reads it; select takes it as it is.
            return tx.output.create_call("call_method", "select", [self, tx.const(0), key])
        return tx.output.create_call("call_function", operator.getitem, [self, key])

    def set_item(self, tx: Any, key: VariableTracker, value: VariableTracker) -> None:
        key, value = key.realize(), value.realize()
        if not fill_between_tensors(tx, self, key, value):
            tx.output.create_call("call_function", operator.setitem, [self, _index_values(tx, key), value])

    def length(self, tx: Any) -> VariableTracker:
        if not self.fake.dim():
            tx.raise_exception(TypeError, "len() of a 0-d tensor")
        return make_size(tx.output, self.fake.shape, self).items[0]

    def contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        raise GraphBreak("data_dependent_scalar", op="in")

    def iterate(self, tx: Any) -> VariableTracker:
        return TupleVariable(self.unpack(tx)).iterate(tx)

    def unpack(self, tx: Any) -> list[VariableTracker]:
        if not self.fake.dim():
            tx.raise_exception(TypeError, "iteration over a 0-d tensor")
        return tx.output.create_call("call_method", "unbind", [self, tx.const(0)]).items

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        other = other.realize()
        if not is_operand(other):
            return NotImplemented
        pair = [other, self] if reflected else [self, other]
        return tx.output.create_call("call_function", op, pair)

    def inplace_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker) -> Any:
        other = other.realize()
        if not is_operand(other):
            return NotImplemented
        return tx.output.create_call("call_function", op, [self, other])

    def unary_op(self, tx: Any, op: Callable[..., Any]) -> VariableTracker:
        if op is operator.not_:
            value = known_scalar(self.fake)
            if value is not None:
                return tx.const(not value)
            raise GraphBreak("data_dependent_branch", value=self.describe())
        if op is operator.pos:
            return self.call_method(tx, "positive", [], {})
        return tx.output.create_call("call_function", op, [self])

    def reconstruct(self, codegen: Any) -> None:
        codegen.graph_output(self.as_proxy())
        if self.attrs:
            codegen.remember(self)
            codegen.output.side_effects.pending_fill.append(self)


def _index_values(tx: Any, key: VariableTracker) -> VariableTracker:
    """An index whose slices have tensors as bounds (``x[:n]``): their values are read first."""
    if isinstance(key, SliceVariable):
        parts = [i.realize() for i in key.items]
        if any(isinstance(i, TensorVariable) for i in parts):
            return SliceVariable(*[i.convert_number(tx, int) if isinstance(i, TensorVariable) else i for i in parts])
    elif type(key) is TupleVariable:
        items = [_index_values(tx, i.realize()) for i in key.items]
        if any(a is not b for a, b in zip(items, key.items)):
            return TupleVariable(items)
    return key


def is_operand(vt: VariableTracker) -> bool:
    """May ``vt`` be the other operand of a tensor operator?"""
    if isinstance(vt, TensorVariable):
        return True
    if isinstance(vt, ConstantVariable):
        return type(vt.as_proxy()) in (int, float, bool, complex)
    storage = getattr(vt, "storage", None)
    if storage is not None:
        return is_operand(storage)
    return getattr(vt, "is_symbolic_number", False)


def make_size(output: Any, shape: Any, owner: TensorVariable | None = None) -> SizeVariable:
    """Tracker of a torch.Size; symbolic sizes are read from ``owner`` in the graph."""
    from ..translator.base import constant

    items: list[VariableTracker] = []
    for dim, n in enumerate(shape):
        if type(n) is int:
            items.append(constant(n))
            continue
        known = n.node.maybe_as_int()
        if known is not None:
            items.append(constant(known))
        elif owner is None:
            raise GraphBreak("dynamic_shape", value=str(n))
        else:
            from .symint import SizeNumberVariable

            items.append(SizeNumberVariable(n, owner, dim))
    return SizeVariable(items)


def make_sequence(kind: type, items: list[VariableTracker]) -> VariableTracker:
    """Tracker of what a torch call returned: list, tuple or a named tuple of ``torch.return_types``."""
    if kind is list:
        return ListVariable(items)
    if kind is tuple:
        return TupleVariable(items)
    if hasattr(kind, "_fields"):
        from .subclass_storage import NamedTupleVariable

        return NamedTupleVariable(items, kind)
    if issubclass(kind, tuple):
        return StructSequenceVariable(items, kind)
    raise GraphBreak("torch_unsupported", result=kind.__name__)


class StructSequenceVariable(TupleVariable):
    """A ``torch.return_types`` object: a tuple whose elements also have names."""

    __slots__ = ("struct", "names")

    def __init__(self, items: list[VariableTracker], struct: type):
        super().__init__(items)
        self.struct = struct
        fields = [n for n, f in vars(struct).items() if type(f).__name__ == "member_descriptor"]
        self.names = fields if len(fields) == len(items) else list(struct.__match_args__)

    def python_type(self) -> type:
        return self.struct

    def is_python_constant(self) -> bool:
        return False

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name in self.names:
            return self.items[self.names.index(name)]
        return super().get_attr(tx, name)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(self.struct)
        super().push_new_arguments(codegen)
        codegen.call_function(1)


class TensorMethodVariable(VariableTracker):
    """A method bound to a tensor."""

    __slots__ = ("tensor", "name")

    def __init__(self, tensor: TensorVariable, name: str):
        self.source = None
        self.tensor = tensor
        self.name = name

    def describe(self) -> str:
        return f"tensor method {self.name}"

    def python_type(self) -> type:
        return type(getattr(torch.zeros(()), self.name))

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return self.tensor.call_method(
            tx, self.name, [a.realize() for a in args], {k: a.realize() for k, a in kwargs.items()}
        )

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "__self__":
            return self.tensor
        if name == "__name__":
            return tx.const(self.name)
        return super().get_attr(tx, name)

    def children(self) -> Any:
        return (self.tensor,)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.tensor)
        codegen.load_attr(self.name)


# -- attributes answered from metadata
# -----------------------------------------------------------------------------------


def _constant(name: str) -> Callable[..., VariableTracker]:
    def read(tx: Any, vt: TensorVariable) -> VariableTracker:
        return tx.output.wrap_value(getattr(vt.fake, name))

    return read


def _call(name: str, *args: Any) -> Callable[..., VariableTracker]:
    def read(tx: Any, vt: TensorVariable) -> VariableTracker:
        return tx.output.create_call("call_method", name, [vt, *[tx.const(a) for a in args]])

    return read


def _shape(tx: Any, vt: TensorVariable) -> VariableTracker:
    return make_size(tx.output, vt.fake.shape, vt)


def _reverse(tx: Any, vt: TensorVariable) -> VariableTracker:
    n = vt.fake.dim()
    if n == 2:
        return tx.output.create_call("call_method", "t", [vt])
    return tx.output.create_call("call_method", "permute", [vt, *[tx.const(i) for i in reversed(range(n))]])


def _complex_part(fn: Any) -> Callable[..., VariableTracker]:
    def read(tx: Any, vt: TensorVariable) -> VariableTracker:
        if fn is torch.real and not vt.fake.dtype.is_complex:
            return vt
        return tx.output.create_call("call_function", fn, [vt])

    return read


def _history(name: str) -> Callable[..., VariableTracker]:
    """What depends on how a tensor came about, which the guards on an outside tensor do not cover by themselves."""

    def read(tx: Any, vt: TensorVariable) -> VariableTracker:
        value = getattr(vt.fake, name)
        if vt.source is not None and vt.real is not None and vt.real.requires_grad:
            if getattr(vt.real, name) != value:
                raise GraphBreak("tensor_attribute", name=name)
            tx.output.guard(AttrSource(vt.source, name), "CONSTANT", value)
        return tx.const(value)

    return read


def _grad_fn(tx: Any, vt: TensorVariable) -> VariableTracker:
    if vt.fake.grad_fn is None:
        METADATA["is_leaf"](tx, vt)  # for the guard
        return tx.const(None)
    raise GraphBreak("tensor_attribute", name="grad_fn")


def _unfollowed(name: str) -> Callable[..., VariableTracker]:
    def read(tx: Any, vt: TensorVariable) -> VariableTracker:
        raise GraphBreak("tensor_attribute", name=name)

    return read


def _class(tx: Any, vt: TensorVariable) -> VariableTracker:
    return vt.class_vt(tx)


def _nbytes(tx: Any, vt: TensorVariable) -> VariableTracker:
    return vt.call_method(tx, "numel", [], {}).binary_op(tx, operator.mul, tx.const(vt.fake.element_size())).realize()


#: Attributes that the program may store and that torch gives a meaning; see ``tensor_state``.
SETTERS: dict[str, Callable[..., None]] = {}

METADATA: dict[str, Callable[..., VariableTracker]] = {
    "shape": _shape,
    "T": _reverse,
    "mT": _call("transpose", -2, -1),
    "nbytes": _nbytes,
    "H": _call("adjoint"),
    "mH": _call("adjoint"),
    "real": _complex_part(torch.real),
    "imag": _complex_part(torch.imag),
    "grad_fn": _grad_fn,
    "__class__": _class,
    "__dict__": _unfollowed("__dict__"),
    "_base": _unfollowed("_base"),
    "_backward_hooks": _unfollowed("_backward_hooks"),
    "_version": _unfollowed("_version"),
    "volatile": _constant("volatile"),
    "_cdata": _unfollowed("_cdata"),
}
METADATA.update(
    (name, _constant(name))
    for name in (
        "dtype device ndim layout requires_grad is_cuda is_cpu is_meta is_mps is_xpu "
        "is_sparse is_sparse_csr is_quantized "
        "is_nested is_mkldnn is_vulkan is_ipu is_xla is_maia itemsize names name"
    ).split()
    if hasattr(torch.Tensor, name)
)
METADATA.update((name, _history(name)) for name in ("is_leaf", "output_nr", "retains_grad"))


# -- methods with a meaning of their own
# ----------------------------------------------------------------------------------


def _size(
    tx: Any, vt: TensorVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    size = make_size(tx.output, vt.fake.shape, vt)
    where = args[0] if args else kwargs.get("dim")
    if where is None or (isinstance(where, ConstantVariable) and where.value is None):
        return size
    return size.get_item(tx, where)


def _dim(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
    return tx.const(vt.fake.dim())


def _break(kind: str) -> Callable[..., VariableTracker]:
    def method(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
        raise GraphBreak(kind, value=vt.describe())

    return method


def _number(
    kind: str, read: Callable[[torch.Tensor], Any], capture: Callable[..., VariableTracker] | None = None
) -> Callable[..., VariableTracker]:
    """A method that reads the value: answered for known scalars; for all others ``capture`` makes symbols if that is
    wanted, or the graph breaks."""

    def method(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
        value = known_scalar(vt.fake)
        if value is None:
            if capture is not None and tx.output.config.capture_scalar_outputs:
                return capture(tx, vt)
            raise GraphBreak(kind, value=vt.describe())
        return tx.const(read(value))

    return method


def _length(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
    return vt.length(tx)


def _iterate(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
    return vt.iterate(tx)


def _get_item(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
    return vt.get_item(tx, args[0])


def _set_item(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
    vt.set_item(tx, args[0], args[1])
    return tx.const(None)


def _operator(op: Any, reflected: bool = False) -> Callable[..., VariableTracker]:
    def method(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
        result = vt.binary_op(tx, op, args[0], reflected)
        return tx.const(NotImplemented) if result is NotImplemented else result

    return method


def _unary(op: Any) -> Callable[..., VariableTracker]:
    def method(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
        return vt.unary_op(tx, op)

    return method


def _in_place_view(name: str) -> Callable[..., VariableTracker]:
    """``x.unsqueeze_(0)``: from here on the program's object ``x`` is what ``x.unsqueeze(0)`` gives. Views that were
    made of it before stay what they are."""

    def method(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
        if vt.source is not None or (vt.fake.is_leaf and vt.fake.requires_grad):
            raise GraphBreak("torch_unsupported", target=name + "_", reason="changes an outside tensor's sizes")
        if vt.fake.requires_grad and not torch.is_grad_enabled():
            raise GraphBreak("torch_unsupported", target=name + "_", reason="a view made here would lose its history")
        result = tx.output.create_call("call_method", name, [vt, *args], kwargs)
        if result is not vt:
            _count_write(tx, vt)
            vt.node, vt.fake = result.node, result.fake
            tx.output.track(vt.fake, vt)
        return vt

    return method


def _count_write(tx: Any, vt: TensorVariable) -> None:
    """Eager counts new sizes as a write to all that shares a version counter with ``vt``: seen where that is a tensor
    from outside."""
    if vt.fake.is_inference():
        return
    outside = [node.meta["val"] for node, _, _ in tx.output.inputs if isinstance(node.meta["val"], torch.Tensor)]
    before = [(fake, fake._version) for fake in outside if not fake.is_inference()]
    increment_version(vt.fake)
    for fake, version in before:
        if fake._version != version and fake.vt is not None:
            tx.output.side_effects.record_call(increment_version, [fake.vt], {})
            return


def _new_tensor(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
    return tx.output.create_call("call_method", "new_tensor", [vt, *args], kwargs)


def _is_inference(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
    return tx.const(vt.fake.is_inference())  # of outside tensors: part of the guarded dispatch keys


def _storage_offset(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
    """Known for tensors from outside alone: shape rules do not follow it."""
    if vt.source is None or vt.real is None:
        raise GraphBreak("tensor_attribute", name="storage_offset")
    return tx.const(guard_offset(tx, vt.source, vt.real))


def guard_offset(tx: Any, source: Any, value: torch.Tensor) -> int:
    """The offset of an outside tensor in its storage, in elements, which the guards then hold it to."""
    offset = int(value.storage_offset())
    tx.output.guard(TensorMetaSource(source, "storage_offset", 0), "CONSTANT", offset)
    return offset


def _as_strided(name: str) -> Callable[..., VariableTracker]:
    """Reaches everything in the storage, but a graph knows no more of it than the tensors it is given: breaks unless
    those from outside are all there is of their storages."""

    def method(tx: Any, vt: TensorVariable, args: list[VariableTracker], kwargs: Any) -> VariableTracker:
        vt.as_proxy()
        for _, value, source in tx.output.inputs:
            if not isinstance(value, torch.Tensor):
                continue
            if guard_offset(tx, source, value) or value.untyped_storage().nbytes() != value.nbytes:
                raise GraphBreak("torch_unsupported", name=f"{name} on a part of a storage")
        return tx.output.create_call("call_method", name, [vt, *args], kwargs)

    return method


_LONGEST_LIST = 256


def _to_list(tx: Any, vt: TensorVariable) -> VariableTracker:
    """Nested lists of numbers, each an ``item()`` of its own."""
    shape = vt.fake.shape
    if any(type(n) is not int for n in shape) or vt.fake.numel() > _LONGEST_LIST:
        raise GraphBreak("data_dependent_scalar", value=vt.describe())
    if not shape:
        return vt.call_method(tx, "item", [], {})
    rows = [vt.call_method(tx, "select", [tx.const(0), tx.const(i)], {}) for i in range(shape[0])]
    return ListVariable([_to_list(tx, r) for r in rows])  # type: ignore[arg-type]


def _with_tensor_value(name: str, combine: Any) -> Callable[..., VariableTracker]:
    """``x.addcdiv_(a, b, value=v)`` where ``v`` is a tensor, as optimizers call it: eager reads its value, the graph
    multiplies by it."""

    def method(tx: Any, vt: TensorVariable, args: list[VariableTracker], kwargs: Any) -> VariableTracker:
        value = kwargs.get("value")
        if len(args) != 2 or not isinstance(value, TensorVariable):
            return tx.output.create_call("call_method", name, [vt, *args], kwargs)
        product = tx.output.create_call("call_function", combine, [args[0], args[1]])
        scaled = tx.output.create_call("call_function", operator.mul, [product, value])
        return tx.output.create_call("call_method", "add_", [vt, scaled], {})

    return method


def _as_array(tx: Any, vt: TensorVariable, args: list[VariableTracker], kwargs: Any) -> VariableTracker:
    from .numpy_arrays import array_of_tensor

    if args or kwargs:
        raise GraphBreak("data_dependent_scalar", op="numpy")
    return array_of_tensor(tx, vt)


METHODS: dict[str, Callable[..., VariableTracker]] = {
    "addcdiv_": _with_tensor_value("addcdiv_", operator.truediv),
    "addcmul_": _with_tensor_value("addcmul_", operator.mul),
    "is_inference": _is_inference,
    "storage_offset": _storage_offset,
    **{name: _as_strided(name) for name in ("as_strided", "as_strided_", "as_strided_scatter")},
    "size": _size,
    "dim": _dim,
    "ndimension": _dim,
    "tolist": _number("data_dependent_scalar", torch.Tensor.tolist, _to_list),
    "numpy": _as_array,
    "__bool__": _number("data_dependent_branch", bool),
    "__float__": _number("data_dependent_scalar", float, lambda tx, vt: vt.convert_number(tx, float)),
    "__int__": _number("data_dependent_scalar", int, lambda tx, vt: vt.convert_number(tx, int)),
    "__index__": _number("data_dependent_scalar", operator.index, lambda tx, vt: vt.convert_number(tx, int)),
    "__array__": _break("data_dependent_scalar"),
    "__contains__": _break("data_dependent_scalar"),
    "__repr__": _break("data_dependent_scalar"),
    "__str__": _break("data_dependent_scalar"),
    "__format__": _break("data_dependent_scalar"),
    "data_ptr": _break("tensor_attribute"),
    "untyped_storage": _break("tensor_attribute"),
    "storage": _break("tensor_attribute"),
    "register_post_accumulate_grad_hook": _break("hook"),
    "set_": _break("torch_unsupported"),
    "resize_": _break("torch_unsupported"),
    "resize_as_": _break("torch_unsupported"),
    "share_memory_": _break("torch_unsupported"),
    "__len__": _length,
    "__iter__": _iterate,
    "__getitem__": _get_item,
    "__setitem__": _set_item,
    "__deepcopy__": _break("torch_unsupported"),
    "__reduce_ex__": _break("torch_unsupported"),
    "__torch_function__": _break("torch_unsupported"),
    "to_sparse": _break("sparse_or_nested"),
    "to_sparse_csr": _break("sparse_or_nested"),
    "to_dense": _break("sparse_or_nested"),
    "map_": _break("torch_unsupported"),
    "apply_": _break("torch_unsupported"),
    **{name + "_": _in_place_view(name) for name in ("unsqueeze", "squeeze", "transpose", "t", "swapaxes", "swapdims")},
    "__neg__": _unary(operator.neg),
    "__invert__": _unary(operator.invert),
    "__abs__": _unary(abs),
}
for _name in "add sub mul matmul truediv floordiv mod pow lshift rshift and_ or_ xor".split():
    _plain = _name.rstrip("_")
    METHODS[f"__{_plain}__"] = _operator(getattr(operator, _name))
    METHODS[f"__r{_plain}__"] = _operator(getattr(operator, _name), True)
for _name in "lt le eq ne gt ge".split():
    METHODS[f"__{_name}__"] = _operator(getattr(operator, _name))

_METHOD_NAMES = {
    name
    for name in dir(torch.Tensor)
    if callable(getattr(torch.Tensor, name, None))
    and name not in METHODS
    and (not name.startswith("__") or name in ("__and__",))
}


def wrap_tensor(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is None:
        raise GraphBreak("unknown_object", type="tensor constant")
    return tx.output.add_tensor_input(value, source)


wraps_type(torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)(wrap_tensor)


@wraps_if(lambda v: issubclass(type(v), torch.Tensor), priority=20)
def wrap_subclass(tx: Any, value: Any, source: Any) -> VariableTracker:
    kind = type(value)
    if (
        kind.__torch_function__ in (torch._C._disabled_torch_function_impl,)
        and kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    ):
        if kind.__module__.startswith("torch.nn.parameter") and not kind.__name__.startswith("Uninitialized"):
            return wrap_tensor(tx, value, source)
    if kind.__name__ in ("UninitializedParameter", "UninitializedBuffer") and kind.__module__ == "torch.nn.parameter":
        leave_whole("lazy_module", value=source.name if source is not None else kind.__name__)
    from .torch_function import is_followed, wrap_subclass_tensor

    if is_followed(kind):
        return wrap_subclass_tensor(tx, value, source)
    raise GraphBreak("tensor_subclass", type=kind.__name__)
