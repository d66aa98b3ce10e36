"""numpy's functions in graphs: ``numpy_call("sin", x)`` is ``numpy.sin`` of a tensor that shares memory with an array.

Also what generated code and guards need to go from arrays to tensors and back.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from . import _torch as private


def numpy_call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a function of numpy (``sin``), a method of its arrays (``array.reshape``) or an operator (``operator.add``)
    on tensors; torch's own rendering of numpy does the work."""
    numpy = private.numpy_on_tensors()
    where, _, what = name.rpartition(".")
    if where == "operator":
        fn = getattr(operator, what)
    else:
        fn = getattr(numpy.ndarray if where else numpy, what)
    return _tensors(fn(*_arrays(args, numpy), **_arrays(kwargs, numpy)), numpy)


def _arrays(x: Any, numpy: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return numpy.ndarray(x)
    if isinstance(x, dict):
        return {k: _arrays(v, numpy) for k, v in x.items()}
    return type(x)([_arrays(v, numpy) for v in x]) if type(x) in (tuple, list) else x


def _tensors(x: Any, numpy: Any) -> Any:
    if isinstance(x, numpy.ndarray):
        return x.tensor
    return type(x)([_tensors(v, numpy) for v in x]) if type(x) in (tuple, list) else x


def tensor_of(array: Any) -> torch.Tensor:
    """The tensor over an array's memory. Raises ValueError or TypeError if there is none."""
    if not array.flags.writeable:
        raise ValueError("the array is read-only")
    return torch.from_numpy(array)


def array_of(tensor: torch.Tensor) -> Any:
    """The array over a tensor's memory."""
    return tensor.detach().numpy()


def number_of(tensor: torch.Tensor) -> Any:
    """numpy's scalar of a tensor without dimensions."""
    return tensor.detach().numpy()[()]
