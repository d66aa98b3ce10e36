"""What some opcodes do, written in Python so that translation can follow it like user code."""

# ruff: noqa: F821 - exception groups exist from Python 3.11 on, and so do the opcodes that come here
from __future__ import annotations

import functools
import math

import torch

_missing = object()

_SELF_MATCH = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


def match_keys(subject, keys):
    """Values of ``keys`` in the mapping ``subject`` as a tuple, or None if one is missing."""
    seen = set()
    values = []
    get = subject.get if keys else None
    for key in keys:
        if key in seen:
            raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
        seen.add(key)
        value = get(key, _missing)
        if value is _missing:
            return None
        values.append(value)
    return tuple(values)


def rest_of_mapping(subject, keys):
    """What ``**rest`` of a mapping pattern binds."""
    rest = dict(subject)
    for key in keys:
        del rest[key]
    return rest


def split_group(group, matches):
    """The parts of an exception group (matching, rest), as groups of the same nesting; None where a part is empty."""
    if matches(group):
        return group, None
    taken, left = [], []
    for part in group.exceptions:
        if isinstance(part, BaseExceptionGroup):
            inner, rest = split_group(part, matches)
            if inner is not None:
                taken.append(inner)
            if rest is not None:
                left.append(rest)
        elif matches(part):
            taken.append(part)
        else:
            left.append(part)
    return subset_of_group(group, taken), subset_of_group(group, left)


def subset_of_group(group, parts):
    """A group of ``parts`` with the message, chain and notes of ``group``."""
    if not parts:
        return None
    fresh = group.derive(parts)
    if not isinstance(fresh, BaseExceptionGroup):
        raise TypeError("derive must return an instance of BaseExceptionGroup")
    fresh.__traceback__ = group.__traceback__
    fresh.__context__ = group.__context__
    cause, hidden = group.__cause__, group.__suppress_context__
    fresh.__cause__ = cause
    fresh.__suppress_context__ = hidden
    notes = getattr(group, "__notes__", None)
    if notes is not None:
        fresh.__notes__ = list(notes)
    return fresh


def group_condition(condition):
    """What ``split`` and ``subgroup`` accept, as a function."""
    if isinstance(condition, type) and issubclass(condition, BaseException):
        return lambda e: isinstance(e, condition)
    if isinstance(condition, tuple) and all(isinstance(c, type) and issubclass(c, BaseException) for c in condition):
        return lambda e: isinstance(e, condition)
    if callable(condition) and not isinstance(condition, type):
        return condition
    raise TypeError("expected a function, exception type or tuple of exception types")


def group_split(group, condition):
    """``BaseExceptionGroup.split``."""
    return split_group(group, group_condition(condition))


def group_subgroup(group, condition):
    """``BaseExceptionGroup.subgroup``."""
    return split_group(group, group_condition(condition))[0]


def group_derive(group, parts):
    """``BaseExceptionGroup.derive``."""
    return BaseExceptionGroup(group.message, parts)


def match_except_star(exc, kinds):
    """``except* kinds``: (rest, match)."""
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise TypeError("catching classes that do not inherit from BaseException is not allowed")
        if issubclass(kind, BaseExceptionGroup):
            raise TypeError("catching ExceptionGroup with except* is not allowed. Use except instead.")
    if exc is None:
        return None, None
    if isinstance(exc, kinds):
        return None, exc if isinstance(exc, BaseExceptionGroup) else ExceptionGroup("", [exc])
    if isinstance(exc, BaseExceptionGroup):
        match, rest = split_group(exc, lambda e: isinstance(e, kinds))
        return rest, match
    return exc, None


def leaves_of(group, out):
    for part in group.exceptions:
        if isinstance(part, BaseExceptionGroup):
            leaves_of(part, out)
        else:
            out.append(part)
    return out


def is_part_of(exc, group):
    """Whether ``exc`` is a part of ``group`` that is raised again, and not a new exception."""
    return (
        isinstance(exc, BaseExceptionGroup)
        and getattr(exc, "__notes__", None) is getattr(group, "__notes__", None)
        and exc.__traceback__ is group.__traceback__
        and exc.__cause__ is group.__cause__
        and exc.__context__ is group.__context__
    )


def reraise_star(group, raised):
    """What leaves a ``try`` with ``except*`` clauses: the exception to raise, or None."""
    if not isinstance(group, BaseExceptionGroup):
        return raised[0] if raised else None
    fresh, again = [], []
    for exc in raised:
        if exc is not None:
            (again if is_part_of(exc, group) else fresh).append(exc)
    back = None
    if again:
        kept = []
        for exc in again:
            leaves_of(exc, kept)
        back = split_group(group, lambda e: any(e is leaf for leaf in kept))[0]
    if not fresh:
        return back
    if back is not None:
        fresh.append(back)
    return ExceptionGroup("", fresh) if len(fresh) > 1 else fresh[0]


def match_class(subject, cls, count, names):
    """Attributes that a class pattern binds, or None if ``subject`` does not match."""
    if not isinstance(cls, type):
        raise TypeError("called match pattern must be a class")
    if not isinstance(subject, cls):
        return None
    seen = set()
    values = []
    if count:
        try:
            positional = cls.__match_args__
        except AttributeError:
            positional = ()
            takes_self = issubclass(cls, _SELF_MATCH)
        else:
            takes_self = False
            if not isinstance(positional, tuple):
                raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {type(positional).__name__})")
        allowed = 1 if takes_self else len(positional)
        if count > allowed:
            plural = "" if allowed == 1 else "s"
            text = f"{cls.__name__}() accepts {allowed} positional sub-pattern{plural} ({count} given)"
            raise TypeError(text)
        if takes_self:
            values.append(subject)
        else:
            for i in range(count):
                name = positional[i]
                if not isinstance(name, str):
                    raise TypeError(f"__match_args__ elements must be strings (got {type(name).__name__})")
                if name in seen:
                    raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
                seen.add(name)
                try:
                    values.append(getattr(subject, name))
                except AttributeError:
                    return None
    for name in names:
        if name in seen:
            raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
        seen.add(name)
        try:
            values.append(getattr(subject, name))
        except AttributeError:
            return None
    return tuple(values)


def fill_between(tensor, key, bounds, value):
    """``tensor[key] = value`` with some of the key's slices bounded by (dimension of ``tensor[key]``, start, stop)."""
    view = tensor[key]
    inside = None
    for dim, start, stop in bounds:
        size = view.shape[dim]
        position = torch.arange(size, device=view.device)
        for bound, is_start in ((start, True), (stop, False)):
            if bound is None:
                continue
            if isinstance(bound, torch.Tensor):
                bound = bound.reshape(())
                bound = torch.where(bound < 0, bound + size, bound)
            elif bound < 0:
                bound = bound + size
            part = position >= bound if is_start else position < bound
            after = view.dim() - 1 - dim % view.dim()
            part = part.reshape((size,) + (1,) * after)
            inside = part if inside is None else inside & part
    view.masked_fill_(inside, value)


def modules(found):
    """``Module.modules`` over the modules listed ahead (`variables.module_walk`)."""
    yield from found


def named_modules(found):
    """``Module.named_modules`` over the pairs listed ahead."""
    yield from found


def scaled_size(image, scales):
    """The sizes that ``interpolate(image, scale_factor=scales)`` gives the last dimensions."""
    return [int(n * s) for n, s in zip(image.shape[2:], scales)]


def group_tensors(lists, with_indices=False):
    """The tensors of ``lists`` by device and dtype of the first list's, as torch's optimizers and clipping want them:
    ``{(device, dtype): (lists, positions)}``."""
    found = {}
    for i, first in enumerate(lists[0]):
        key = (first.device, first.dtype)
        if key not in found:
            found[key] = ([[] for _ in lists], [])
        parts, positions = found[key]
        for part, tensors in zip(parts, lists):
            if len(tensors):
                part.append(tensors[i])
        if with_indices:
            positions.append(i)
    return found


def strict_zip(*iterators: Any) -> Any:
    """``zip`` of parked iterators."""
    return zip(*iterators, strict=True)


def dispatching_method(descriptor, obj, cls):
    """The method that ``functools.singledispatchmethod`` binds."""

    def method(*args, **kwargs):
        if not args:
            name = getattr(descriptor.func, "__name__", "singledispatchmethod method")
            raise TypeError(f"{name} requires at least 1 positional argument")
        return descriptor.dispatcher.dispatch(args[0].__class__).__get__(obj, cls)(*args, **kwargs)

    return functools.update_wrapper(method, descriptor.func)


def _over_positions(fn, before):
    """``fn`` of numbers (after `before` tensors that are mapped along) as a function of all positions."""
    for place in (3, 2, 1, 0):
        dims = tuple(0 if k == place else None for k in range(4))
        fn = torch.vmap(fn, in_dims=(0,) * before + dims, out_dims=0)
    return fn


def _in_order_of(out, stride):
    """``out`` laid out in memory in the order of `stride`, with the last dimension the closest."""
    order = sorted(range(3), key=lambda d: -stride[d])
    if order == [0, 1, 2]:
        return out.contiguous()
    order.append(3)
    back = [order.index(d) for d in range(4)]
    return out.permute(order).contiguous().permute(back)


class WideProduct(torch.autograd.Function):
    """``query @ key^T`` of half-precision tensors in float32. Gradients of it are rounded to half before they are
    multiplied, as kernels of attention do: twice the products in float32 would take longer than all the rest."""

    @staticmethod
    def forward(ctx, query, key):
        ctx.save_for_backward(query, key)
        return query.to(torch.float32) @ key.to(torch.float32).transpose(-2, -1)

    @staticmethod
    def backward(ctx, grad):
        query, key = ctx.saved_tensors
        grad = grad.to(query.dtype)
        return grad @ key, grad.transpose(-2, -1) @ query


def flexible_attention(query, key, value, score_mod, block_mask, scale, kernel_options):
    """What the operator behind ``flex_attention`` stands for: (result, log2-sum-exp2, maxima / log 2)."""
    kind = query.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        query, key, value = (x.to(dtype) if x.dtype is not torch.float64 else x for x in (query, key, value))
        with torch.autocast(kind, enabled=False):
            return flexible_attention(query, key, value, score_mod, block_mask, scale, kernel_options)
    mask_mod = block_mask[-1]
    trains = kind != "cpu" and torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))

    def attend(query, key, value):
        working = torch.float64 if query.dtype is torch.float64 else torch.float32
        batch, heads = query.shape[0], query.shape[1]
        if key.shape[0] != batch:
            key, value = (x.expand(batch, *x.shape[1:]) for x in (key, value))
        if key.shape[1] != heads:
            key, value = (
                x.unsqueeze(2).expand(batch, x.shape[1], heads // x.shape[1], *x.shape[2:]).reshape(
                    batch, heads, *x.shape[2:]
                )
                for x in (key, value)
            )
        if trains and query.dtype is key.dtype and query.dtype in (torch.bfloat16, torch.float16):
            scores = WideProduct.apply(query, key) * scale
        else:
            scores = (query.to(working) @ key.to(working).transpose(-2, -1)) * scale
        places = [torch.arange(n, device=query.device) for n in scores.shape]
        inside = _over_positions(mask_mod, 0)(*places)
        scores = torch.where(inside, _over_positions(score_mod, 1)(scores, *places), float("-inf")).to(working)
        sums = scores.logsumexp(-1)
        highest = scores.amax(-1)
        sums = torch.where(highest == float("-inf"), float("-inf"), sums)
        out = torch._safe_softmax(scores, -1).to(query.dtype) @ value.to(query.dtype)
        return _in_order_of(out, query.stride()), sums / math.log(2), highest / math.log(2)

    if trains:
        # the scores of a layer are larger than all that goes into it: the backward computes them again
        return torch.utils.checkpoint.checkpoint(attend, query, key, value, use_reentrant=False)
    return attend(query, key, value)
