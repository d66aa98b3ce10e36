"""numpy arrays: tensors in the graph, on which numpy's functions run by way of `numpy_call`.

A call is only taken into the graph if numpy itself, tried on made-up arrays with the same types and shapes, gives what
the graph is going to give. What is not in the tables is left to eager.
"""

from __future__ import annotations

import math
import operator
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from .. import interruption
from ..graph_break import GraphBreak
from ..numpy_calls import array_of, number_of, numpy_call, tensor_of
from ..source import PythonSource
from .base import VariableTracker
from .builder import wraps_if
from .constant import ConstantVariable
from .container import TupleVariable
from .owner_method import OwnerMethodVariable

_UFUNCS = """sin cos tan exp exp2 expm1 log log2 log10 log1p sqrt square absolute fabs floor ceil trunc rint negative
positive tanh sinh cosh arctan arctan2 hypot maximum minimum fmax fmin add subtract multiply divide true_divide equal
not_equal less less_equal greater greater_equal logical_and logical_or logical_not logical_xor isnan isinf isfinite
matmul""".split()
_FUNCTIONS = """sum mean prod max min amax amin std var all any cumsum argmax argmin reshape transpose concatenate stack
vstack hstack expand_dims squeeze tile roll flip where dot outer ravel clip zeros_like ones_like""".split()
_CREATE = "zeros ones full eye arange linspace".split()
_METHODS = """reshape sum mean prod max min std var all any cumsum argmax argmin transpose ravel flatten squeeze clip
astype copy dot repeat swapaxes""".split()
_OPERATORS: dict[Callable[..., Any], str] = {
    getattr(operator, name): name for name in "add sub mul truediv matmul lt le eq ne gt ge neg pos abs getitem".split()
}
_BIT_OPERATORS = {operator.and_: "and_", operator.or_: "or_", operator.xor: "xor", operator.invert: "invert"}

_TAKEN = {*_UFUNCS, *_FUNCTIONS, *_CREATE}

#: Elements of the arrays that numpy is asked with.
_TRIAL = 1 << 22


def _numpy() -> Any:
    return sys.modules.get("numpy")


def is_array(value: Any) -> bool:
    numpy = _numpy()
    return numpy is not None and type(value) is numpy.ndarray


class NumpyArrayVariable(VariableTracker):
    """An array (or with `is_number` a numpy scalar that only the run knows). `tensor` shares its memory."""

    __slots__ = ("is_number", "tensor")

    def __init__(self, tensor: Any, is_number: bool = False, source: Any = None):
        super().__init__(source)
        self.tensor = tensor
        self.is_number = is_number

    def describe(self) -> str:
        return f"array of {self.tensor.describe()}"

    @property
    def dtype(self) -> Any:
        return _numpy().dtype(str(self.tensor.fake.dtype).removeprefix("torch."))

    def python_type(self) -> type:
        return self.dtype.type if self.is_number else _numpy().ndarray

    def truth(self, tx: Any) -> bool | None:
        return None

    def children(self) -> Any:
        return (self.tensor,)

    def trial(self) -> Any:
        """An array with this one's type and shape, and numbers that operators can tell apart."""
        numpy, shape = _numpy(), _hints(self.tensor.fake.shape)
        count = math.prod(shape)
        if count > _TRIAL:
            raise GraphBreak("unknown_call", type="numpy", reason="a large array")
        numbers = (numpy.arange(count) % 5 + 1).reshape(shape)
        made = (numbers > 2) if self.dtype.kind == "b" else numbers.astype(self.dtype)
        return made[()] if self.is_number else made

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "shape":
            return TupleVariable(list(self.tensor.get_attr(tx, "shape").items))
        if name == "size":
            return self.tensor.call_method(tx, "numel", [], {})
        if name in ("ndim", "itemsize", "nbytes"):
            return self.tensor.get_attr(tx, name)
        if name == "dtype":
            from .numpy_ import NumpyFunction

            return NumpyFunction(self.dtype, None)
        if name == "T":
            return call_numpy(tx, "array.transpose", [self], {})
        if name in _METHODS:
            return OwnerMethodVariable(self, name)
        raise GraphBreak("unknown_attribute", type="numpy.ndarray", name=name)

    def call_method(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name not in _METHODS:
            raise GraphBreak("unsupported_builtin_method", type="numpy.ndarray", method=name)
        return call_numpy(tx, f"array.{name}", [self, *args], kwargs)

    call_builtin_method = call_method

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        name = _OPERATORS.get(op) or (self.dtype.kind == "b" and _BIT_OPERATORS.get(op))
        if op is operator.pow and self.dtype.kind == "f":
            name = "pow"
        if not name:
            raise GraphBreak("unknown_call", type=f"numpy.ndarray {op.__name__}")
        pair = [other, self] if reflected else [self, other]
        return call_numpy(tx, f"operator.{name}", pair, {})

    def inplace_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker) -> Any:
        raise GraphBreak("unknown_call", type=f"numpy.ndarray {op.__name__}")

    def unary_op(self, tx: Any, op: Callable[..., Any]) -> VariableTracker:
        if op is operator.not_:
            raise GraphBreak("data_dependent_branch", value=self.describe())
        name = _OPERATORS.get(op) or (self.dtype.kind == "b" and _BIT_OPERATORS.get(op))
        if not name:
            raise GraphBreak("unknown_call", type=f"numpy.ndarray {op.__name__}")
        return call_numpy(tx, f"operator.{name}", [self], {})

    def get_item(self, tx: Any, key: VariableTracker) -> VariableTracker:
        return call_numpy(tx, "operator.getitem", [self, key], {})

    def set_item(self, tx: Any, key: VariableTracker, value: VariableTracker) -> None:
        raise GraphBreak("side_effect", operation="assignment to elements of a numpy array")

    def length(self, tx: Any) -> VariableTracker:
        return self.tensor.length(tx)

    def contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        raise GraphBreak("data_dependent_scalar", op="in")

    def iterate(self, tx: Any) -> VariableTracker:
        return TupleVariable(self.unpack(tx)).iterate(tx)

    def unpack(self, tx: Any) -> list[VariableTracker]:
        size: Any = self.length(tx)
        size = size.as_index(tx) if getattr(size, "is_symbolic_number", False) else size.as_python_constant()
        return [self.get_item(tx, tx.const(i)) for i in range(size)]

    def hash_key(self, tx: Any) -> Any:
        raise GraphBreak("data_dependent_scalar", op="hash")

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(number_of if self.is_number else array_of)
        codegen(self.tensor)
        codegen.call_function(1)


def is_taken(function: Any) -> str | None:
    """Name under which a function of numpy goes into graphs, or None."""
    name = getattr(function, "__name__", None)
    if type(name) is not str or name not in _TAKEN:
        return None
    return name if getattr(_numpy(), name, None) is function else None


def call_numpy(
    tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """The call as a node of the graph."""
    numpy = _numpy()
    if torch.is_autocast_enabled("cpu") or numpy.geterr() != {
        "divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn",
    }:
        raise GraphBreak("unknown_call", type=f"numpy.{name}", reason="under autocast or another error state")
    args = [_settled(tx, a) for a in args]
    kwargs = {k: _settled(tx, a) for k, a in kwargs.items()}
    where, _, what = name.rpartition(".")
    if where == "operator":
        real = getattr(operator, what)
    else:
        real = getattr(numpy.ndarray if where else numpy, what)
    positional, named = [_trial(a) for a in args], {k: _trial(a) for k, a in kwargs.items()}
    try:
        with numpy.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = real(*positional, **named)
            again = numpy_call(name, *map(_as_given, positional), **{k: _as_given(a) for k, a in named.items()})
            slack = 0.0 if name in _CREATE else 1e-2
            equal = numpy.allclose(again.numpy(), expected, rtol=slack, atol=slack * 1e-3, equal_nan=True)
    except Exception as e:  # eager raises it, or there is no kernel
        interruption.pass_on(e)
        raise GraphBreak("unknown_call", type=f"numpy.{name}", error=type(e).__name__) from None
    if not equal:
        raise GraphBreak("unknown_call", type=f"numpy.{name}", reason="the graph would give other values")
    given = [tx.const(name), *[_argument(tx, a) for a in args]]
    out = tx.output.create_call(
        "call_function", numpy_call, given, {k: _argument(tx, a) for k, a in kwargs.items()}
    )
    return _checked(name, out, expected)


def _checked(name: str, out: VariableTracker, expected: Any) -> VariableTracker:
    from .tensor import TensorVariable

    numpy = _numpy()
    is_number = isinstance(expected, numpy.generic)
    if isinstance(out, TensorVariable) and (is_number or type(expected) is numpy.ndarray):
        fake = out.fake
        same = str(fake.dtype).removeprefix("torch.") == str(expected.dtype)
        if same and _hints(fake.shape) == expected.shape and fake.device.type == "cpu":
            return NumpyArrayVariable(out, is_number)
    raise GraphBreak("unknown_call", type=f"numpy.{name}", reason="the graph would give another type")


def _settled(tx: Any, vt: VariableTracker) -> VariableTracker:
    """numpy decides types by values of plain numbers, so these are looked at."""
    real: Any = vt.realize()
    return real.specialize(tx) if getattr(real, "is_symbolic_number", False) else real


def _hints(shape: Any) -> tuple[int, ...]:
    """The sizes of this run."""
    if any(type(n) is not int and not n.node.has_hint() for n in shape):
        raise GraphBreak("dynamic_shape", value=str(shape))
    return tuple(n if type(n) is int else n.node.hint for n in shape)


def _trial(vt: VariableTracker) -> Any:
    """What numpy is asked with for an argument."""
    if isinstance(vt, NumpyArrayVariable):
        return vt.trial()
    items = getattr(vt, "items", None)
    if vt.is_python_constant():
        return vt.as_python_constant()
    if isinstance(items, list):
        made = [_trial(i.realize()) for i in items]
        return slice(*made) if vt.python_type() is slice else vt.python_type()(made)
    raise GraphBreak("not_graph_argument", tracker=vt.describe())


def _as_given(value: Any) -> Any:
    """What `numpy_call` gets for an argument of the trial."""
    numpy = _numpy()
    if isinstance(value, numpy.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, numpy.generic):
        return torch.from_numpy(numpy.array(value))
    if isinstance(value, (type, numpy.dtype)):
        return numpy.dtype(value).name
    return type(value)([_as_given(v) for v in value]) if type(value) in (list, tuple) else value


def _argument(tx: Any, vt: VariableTracker) -> VariableTracker:
    """The argument as `numpy_call` takes it."""
    numpy = _numpy()
    if isinstance(vt, NumpyArrayVariable):
        return vt.tensor
    if vt.is_python_constant():
        value = vt.as_python_constant()
        if isinstance(value, (type, numpy.dtype)):
            return ConstantVariable(numpy.dtype(value).name)
        if isinstance(value, numpy.generic):
            dtype = getattr(torch, value.dtype.name, None)
            if dtype is None:
                raise GraphBreak("not_graph_argument", type=type(value).__name__)
            # its type takes part in promotion, which that of a plain number does not
            return tx.output.create_call(
                "call_function", torch.tensor, [tx.const(value.item())], {"dtype": tx.wrap(dtype, None)}
            )
        return vt
    items = getattr(vt, "items", None)
    if isinstance(items, list) and vt.python_type() in (list, tuple):
        return type(vt)([_argument(tx, i.realize()) for i in items])
    return vt


def array_of_tensor(tx: Any, tensor: Any) -> VariableTracker:
    """`tensor.numpy()`."""
    fake = tensor.fake
    plain = type(fake.layout) is torch.layout and fake.layout is torch.strided and fake.device.type == "cpu"
    if not plain or fake.requires_grad or fake.dtype in (torch.bfloat16,) or tensor.python_type() is not torch.Tensor:
        raise GraphBreak("data_dependent_scalar", op="numpy")
    if fake.is_conj() or fake.is_neg() or fake.dtype.itemsize < 1:
        raise GraphBreak("data_dependent_scalar", op="numpy")
    try:
        _numpy().dtype(str(fake.dtype).removeprefix("torch."))
    except (TypeError, AttributeError):
        raise GraphBreak("data_dependent_scalar", op="numpy") from None
    return NumpyArrayVariable(tensor.call_method(tx, "detach", [], {}))


@wraps_if(is_array, priority=40)
def wrap_array(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is None:
        raise GraphBreak("unknown_object", type="numpy.ndarray constant")
    try:
        tensor = tensor_of(value)
    except (TypeError, ValueError):
        raise GraphBreak("unknown_object", type="numpy.ndarray", dtype=str(value.dtype)) from None
    tx.output.guard(source, "TYPE", type(value))
    return NumpyArrayVariable(tx.output.add_tensor_input(tensor, PythonSource(source, tensor_of)), source=source)
