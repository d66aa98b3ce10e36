"""Operators that write to several arguments, or to another one than the first.

ATen has a functional counterpart of a few of them (`..._functional`). Each other gets one of our own, in the namespace
`lamina_functional`: the same arguments; it returns the op's own results followed by the new values of the written
arguments, and clones what it writes to.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from ..errors import UnsupportedError
from .tensor import TraceTensor, make_value

_library: Any = None
_made: dict[Any, Any] = {}


def functional_op(func: Any) -> Any:
    """The functional operator for `func`: ATen's, or one of ours, defined on first use."""
    global _library
    if func in _made:
        return _made[func]
    given = _atens_own(func)
    if given is not None:
        _made[func] = given
        return given
    if _library is None:
        _library = torch.library.Library("lamina_functional", "DEF")  # noqa: TOR901
    schema = func._schema
    name = schema.name.replace("::", "__").replace(".", "_") + (
        "__" + schema.overload_name if schema.overload_name else ""
    )
    written = [i for i, arg in enumerate(schema.arguments) if arg.alias_info and arg.alias_info.is_write]
    for i in written:
        if str(schema.arguments[i].type) not in ("Tensor", "Optional[Tensor]"):
            raise UnsupportedError(f"{func} writes to a list of tensors")
    text = str(schema)
    arguments = text[text.index("(") : text.rindex("->")].strip()
    for mark in "abcdefghijkl":
        arguments = arguments.replace(f"({mark}!)", "").replace(f"({mark})", "").replace(f"({mark} -> *)", "")
    own = [str(ret.type) for ret in schema.returns if ret.alias_info is None]
    if any(kind not in ("Tensor",) for kind in own):
        raise UnsupportedError(f"{func} writes to arguments and returns {own}")
    returns = ", ".join(["Tensor"] * (len(own) + len(written)))
    _library.define(f"{name}{arguments} -> ({returns})")

    def call(*args: Any, **kwargs: Any) -> tuple:
        values = list(args)
        named = dict(kwargs)
        new = []
        for i in written:
            arg = schema.arguments[i]
            if i < len(values):
                values[i] = value = None if values[i] is None else values[i].clone()
            else:
                named[arg.name] = value = None if named.get(arg.name) is None else named[arg.name].clone()
            new.append(value)
        result = func(*values, **named)
        results = result if isinstance(result, (tuple, list)) else () if result is None else (result,)
        fresh = [r for r, ret in zip(results, schema.returns, strict=True) if ret.alias_info is None]
        reference = next(v for v in (*values, *named.values()) if isinstance(v, torch.Tensor))
        return tuple(fresh + [reference.new_empty(0) if v is None else v for v in new])

    _library.impl(name, call, "CompositeExplicitAutograd")
    op = getattr(torch.ops.lamina_functional, name).default
    _made[func] = op
    return op


def _atens_own(func: Any) -> Any:
    """ATen's functional counterpart with the same arguments and the written ones among the results, or None."""
    namespace, _, name = func._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), f"{name}_functional", None)
    found = getattr(packet, func._overloadname, None)
    if found is None:
        return None
    mine, theirs = ([(a.name, str(a.type)) for a in op._schema.arguments] for op in (func, found))
    written = sum(bool(a.alias_info and a.alias_info.is_write) for a in func._schema.arguments)
    own = sum(r.alias_info is None for r in func._schema.returns)
    return found if mine == theirs and len(found._schema.returns) == own + written else None


def run_mutable(tracer: Any, info: Any, args: tuple, kwargs: dict) -> Any:
    """Trace a call of a mutating operator as its functional operator and store the written values."""
    func = info.func
    schema = func._schema
    if any(isinstance(v, torch.Tensor) and type(v) is not TraceTensor for v in (*args, *kwargs.values())):
        raise UnsupportedError(f"{func} on a tensor that is not an input")
    op = functional_op(func)
    targets = []
    for i, arg in enumerate(schema.arguments):
        if arg.alias_info and arg.alias_info.is_write:
            targets.append(args[i] if i < len(args) else kwargs.get(arg.name))
    from .fallback import meta_results, result_device

    own = [ret for ret in schema.returns if ret.alias_info is None]
    metas: list[tuple] = []
    if op.namespace == schema.name.partition("::")[0]:
        metas = list(tracer.results(type(info)(op), args, kwargs))[: len(own)]
    elif own:
        result = meta_results(func, args, kwargs)
        results = result if isinstance(result, (tuple, list)) else (result,)
        device = result_device(args, kwargs)
        metas += [
            (tuple(r.shape), r.stride(), r.dtype, device)
            for r, ret in zip(results, schema.returns, strict=True)
            if ret.alias_info is None
        ]
    for target in targets:
        if target is None:
            metas.append(((0,), (1,), torch.float32, result_device(args, kwargs)))
        else:
            metas.append((tuple(target.shape), target.stride(), target.dtype, target.device))
    node = tracer._record_call(type(info)(op), args, kwargs, [make_value(*m) for m in metas])
    items = [tracer.record("getitem", operator.getitem, (node, i), {}, node.meta["val"][i]) for i in range(len(metas))]
    for target, item, meta in zip(targets, items[len(own) :], metas[len(own) :], strict=True):
        if target is not None:
            tracer.store(target, item, meta)
    fresh = iter([tracer.fresh(item, meta) for item, meta in zip(items[: len(own)], metas[: len(own)], strict=True)])
    by_mark = iter(targets)
    results = [next(fresh) if ret.alias_info is None else next(by_mark) for ret in schema.returns]
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)
