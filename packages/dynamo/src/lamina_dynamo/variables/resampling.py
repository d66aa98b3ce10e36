"""Upsampling with sizes known only as symbols.

``torch.nn.functional.interpolate`` calls an overload whose own code takes plain numbers only; the overload beneath it
takes symbols.
"""

from __future__ import annotations

from typing import Any

import torch

from .base import VariableTracker
from .constant import is_none
from .container import TupleVariable
from .torch_api import HANDLERS, call_or_inline, handles

# name -> (number of sizes, does it take align_corners)
_OPS = {
    "upsample_nearest1d": (1, False),
    "upsample_nearest2d": (2, False),
    "upsample_nearest3d": (3, False),
    "_upsample_nearest_exact1d": (1, False),
    "_upsample_nearest_exact2d": (2, False),
    "_upsample_nearest_exact3d": (3, False),
    "upsample_linear1d": (1, True),
    "upsample_bilinear2d": (2, True),
    "upsample_bicubic2d": (2, True),
    "upsample_trilinear3d": (3, True),
    "_upsample_bilinear2d_aa": (2, True),
    "_upsample_bicubic2d_aa": (2, True),
}


def _handler(fn: Any, op: Any, count: int, aligns: bool) -> Any:
    def upsample(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if len(args) != 3 + aligns or kwargs or not _is_symbolic(args):
            return tx.output.create_call("call_function", fn, args, kwargs)
        image, size, factors = args[0], args[1], args[-1]
        scales = [tx.const(None)] * count if is_none(factors) else [f.realize() for f in factors.unpack(tx)]
        if is_none(size):
            from ..translator.polyfills import scaled_size

            size = tx.inline_real(scaled_size, image, TupleVariable(scales))
        return tx.output.create_call("call_function", op, [image, size, *args[2:-1], *scales], {})

    return upsample


@handles(torch.nn.functional.interpolate)
def _interpolate(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """One node, unless sizes are symbols: as a whole it would read them where it computes the new ones."""
    fn = torch.nn.functional.interpolate
    image = args[0] if args else kwargs.get("input")
    if any(type(n) is not int for n in getattr(getattr(image, "fake", None), "shape", ())):
        from .function import UserFunctionVariable

        return tx.inline(UserFunctionVariable(fn, None), args, kwargs)
    return call_or_inline(tx, fn, None, args, kwargs)


def _is_symbolic(args: list[VariableTracker]) -> bool:
    sizes = getattr(getattr(args[0], "fake", None), "shape", ())
    if any(type(n) is not int for n in sizes):
        return True
    items = getattr(args[1], "items", None) or ()
    return any(getattr(i.realize(), "is_symbolic_number", False) for i in items)


for _name, (_count, _aligns) in _OPS.items():
    _fn, _op = getattr(torch._C._nn, _name, None), getattr(torch.ops.aten, _name, None)
    if _fn is not None and _op is not None:
        HANDLERS[_fn] = _handler(_fn, _op.default, _count, _aligns)
